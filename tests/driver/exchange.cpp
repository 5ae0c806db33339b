// DLPack's C exchange API for `tests.driver.torch.Tensor`, as torch offers it for its own tensors: a tensor says by its
// attribute `dltensor` where its structure lies.
#include <Python.h>

#include <cstdint>
#include <cstring>

namespace {

struct Api {
  uint32_t major, minor;
  void* previous;
  void *allocate, *managed_from_object, *object_from_managed;
  int (*tensor_from_object)(void*, void*);
  int (*current_stream)(int, int32_t, void**);
};

constexpr size_t kTensorBytes = 48;
void* current = nullptr;

int tensor_from_object(void* object, void* tensor) {
  PyObject* place = PyObject_GetAttrString(static_cast<PyObject*>(object), "dltensor");
  if (place == nullptr) return -1;
  memcpy(tensor, PyLong_AsVoidPtr(place), kTensorBytes);
  Py_DECREF(place);
  return 0;
}

int current_stream(int, int32_t, void** stream) {
  *stream = current;
  return 0;
}

Api api{1, 3, nullptr, nullptr, nullptr, nullptr, tensor_from_object, current_stream};

}  // namespace

extern "C" {
void set_current_stream(void* stream) { current = stream; }
PyObject* capsule() { return PyCapsule_New(&api, "dlpack_exchange_api", nullptr); }
}
