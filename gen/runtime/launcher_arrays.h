// Arrays of a call, for the launcher: each is read into integers, of which those that decide what is launched are a key.
//
// Tensors of torch are read by DLPack's C exchange API, arrays of CuPy by their attributes.

#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <vector>

namespace {

constexpr int kMostArrays = 16;     // of one call
constexpr int kMostNumbers = 1024;  // that describe one call
constexpr uint64_t kLegacyStream = 1;

// The C structures of DLPack 1, as its specification fixes them.
enum { kDLCUDA = 2, kDLFloat = 2, kDLComplex = 5 };
struct DLPackVersion { uint32_t major, minor; };
struct DLDevice { int32_t device_type, device_id; };
struct DLDataType { uint8_t code, bits; uint16_t lanes; };
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLPackExchangeApi {
  DLPackVersion version;
  DLPackExchangeApi* previous;
  void* allocate;
  void* managed_from_object;
  void* object_from_managed;
  int (*tensor_from_object)(void* object, DLTensor* tensor);
  int (*current_stream)(int device_type, int32_t device_id, void** stream);
};

enum class Kind : int64_t { kNone, kDlpack, kAttributes };

// A class of arrays: one that offers DLPack's exchange API, or one that is read by attributes, as CuPy's is.
struct Reader {
  PyTypeObject* type;
  Kind kind;
  const DLPackExchangeApi* api;
  PyObject* current_stream;  // gives an object with `ptr`; of those without an API
};

// One array of a call.
struct Given {
  PyObject* object = nullptr;  // borrowed
  int64_t address = 0;
};

// A call as far as it is read.
struct Call {
  Kind kind = Kind::kNone;
  const Reader* reader = nullptr;
  Given given[kMostArrays];
  int64_t key[kMostNumbers];
  int length = 0;
  PyObject* kept[kMostArrays];  // borrowed: dtypes in the key
  int kept_count = 0;

  bool add(int64_t number) {
    if (length == kMostNumbers) return false;
    key[length++] = number;
    return true;
  }
};

// Names of attributes, made when the program is loaded.
PyObject *word_requires_grad, *word_is_neg, *word_is_conj, *word_data, *word_ptr, *word_device_id, *word_shape,
    *word_strides, *word_dtype;

bool integer(PyObject* value, int64_t* result) {
  if (value == nullptr || !PyLong_CheckExact(value)) return false;
  int overflow = 0;
  *result = PyLong_AsLongLongAndOverflow(value, &overflow);
  return !overflow;
}

// The integer that an attribute is.
bool integer_of(PyObject* object, PyObject* word, int64_t* result) {
  PyObject* value = PyObject_GetAttr(object, word);
  const bool found = integer(value, result);
  Py_XDECREF(value);
  return found;
}

bool is_false(PyObject* answer) {  // steals it
  const bool found = answer == Py_False;
  Py_XDECREF(answer);
  return found;
}

// Every reader adds a dtype, the axes, shape and strides, and finds the address. false: Python must look at the array.
bool read_dlpack(int device, const Reader& reader, PyObject* array, bool made, Call* call, int64_t* address) {
  DLTensor tensor;
  if (reader.api->tensor_from_object(array, &tensor) != 0) return false;
  if (tensor.device.device_type != kDLCUDA || tensor.device.device_id != device) return false;
  *address = reinterpret_cast<int64_t>(tensor.data) + static_cast<int64_t>(tensor.byte_offset);
  if (made) return true;
  const DLDataType dtype = tensor.dtype;
  if (!is_false(PyObject_GetAttr(array, word_requires_grad))) return false;
  // Numbers that torch is to negate are the imaginary parts of conjugates, each behind a real part as large; or complex.
  // It is asked no more often than needed, since `is_neg` gives up the GIL.
  const bool imaginary = dtype.code == kDLFloat && *address % (dtype.bits / 4) != 0;
  const bool complex = dtype.code == kDLComplex;
  if ((imaginary || complex) && !is_false(PyObject_CallMethodNoArgs(array, word_is_neg))) return false;
  if (complex && !is_false(PyObject_CallMethodNoArgs(array, word_is_conj))) return false;
  if (tensor.strides == nullptr && tensor.ndim > 0) return false;
  if (!call->add(dtype.code | dtype.bits << 8 | int64_t{dtype.lanes} << 16) || !call->add(tensor.ndim)) return false;
  for (int axis = 0; axis < tensor.ndim; ++axis)
    if (!call->add(tensor.shape[axis]) || !call->add(tensor.strides[axis])) return false;
  return true;
}

bool read_attributes(int device, PyObject* array, bool made, Call* call, int64_t* address) {
  PyObject* data = PyObject_GetAttr(array, word_data);
  int64_t own = 0;
  const bool here = data != nullptr && integer_of(data, word_ptr, address) &&
                    integer_of(data, word_device_id, &own) && own == device;
  Py_XDECREF(data);
  if (!here || made) return here;
  PyObject* dtype = PyObject_GetAttr(array, word_dtype);
  PyObject* shape = PyObject_GetAttr(array, word_shape);
  PyObject* strides = PyObject_GetAttr(array, word_strides);
  bool good = dtype && shape && strides && PyTuple_Check(shape) && PyTuple_Check(strides) &&
              PyTuple_GET_SIZE(shape) == PyTuple_GET_SIZE(strides) && Py_REFCNT(dtype) > 1;
  if (good) {
    call->kept[call->kept_count++] = dtype;  // which the array keeps too
    good = call->add(reinterpret_cast<int64_t>(dtype)) && call->add(PyTuple_GET_SIZE(shape));
    for (Py_ssize_t axis = 0; good && axis < PyTuple_GET_SIZE(shape); ++axis) {
      int64_t extent = 0, stride = 0;
      good = integer(PyTuple_GET_ITEM(shape, axis), &extent) && integer(PyTuple_GET_ITEM(strides, axis), &stride) &&
             call->add(extent) && call->add(stride);
    }
  }
  Py_XDECREF(dtype);
  Py_XDECREF(shape);
  Py_XDECREF(strides);
  return good;
}

const Reader* reader_of(const std::vector<Reader>& readers, PyObject* array) {
  for (const Reader& reader : readers)
    if (reader.type == Py_TYPE(array)) return &reader;
  return nullptr;
}

// Reads an array of a call; of one that the call made, the address alone. false: Python must look at it.
bool read(const std::vector<Reader>& readers, int device, PyObject* array, bool made, Call* call, int64_t* address) {
  const Reader* reader = reader_of(readers, array);
  if (reader == nullptr) return false;
  if (call->reader != nullptr && reader->api != call->reader->api) return false;  // of two libraries, and two streams
  call->reader = reader;
  return reader->kind == Kind::kDlpack ? read_dlpack(device, *reader, array, made, call, address)
                                       : read_attributes(device, array, made, call, address);
}

// The current stream of the library whose arrays these are.
bool current_stream(int device, const Reader& reader, uint64_t* stream) {
  int64_t handle = 0;
  if (reader.kind == Kind::kDlpack) {
    void* found = nullptr;
    if (reader.api->current_stream(kDLCUDA, device, &found) != 0) return false;
    handle = reinterpret_cast<int64_t>(found);
  } else {
    PyObject* found = PyObject_CallNoArgs(reader.current_stream);
    const bool good = found != nullptr && integer_of(found, word_ptr, &handle);
    Py_XDECREF(found);
    if (!good) return false;
  }
  *stream = handle == 0 ? kLegacyStream : static_cast<uint64_t>(handle);
  return true;
}

}  // namespace
