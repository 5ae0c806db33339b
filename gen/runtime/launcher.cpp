// Repeats calls of kernels that Python has checked, dispatched and planned once: `gen/runtime/launcher.py` says why.
//
// A `Launcher` belongs to one kernel object. `remember` keeps what became of a call; `call` reads the arrays of another,
// and launches what was kept if nothing differs that decided it: types, shapes, strides, alignment, runtime parameters.
// Else, or where anything must be refused, it returns None, and Python does the whole call. `Repeating` is a base of the
// kernel object's class: called, it asks its launcher first, and Python makes neither a tuple nor a dictionary.
//
// All state is guarded by the GIL, which is released while the driver launches: a full queue makes the driver wait, and
// what the GPU waits for may be a function of Python. Whoever launches with the scratch memory of a stream, here or in
// Python, holds it, so that several launches of one call stay together and nobody frees it meanwhile.

#include "launcher_arrays.h"

#include <structmember.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr int kMostArguments = 128;  // of one launch
constexpr int kMostParameters = 8;   // of one call
constexpr size_t kSlots = 4096;     // of the table of remembered calls
constexpr int64_t kAlignment = 32;  // bytes: the widest vector of any GPU
constexpr uint64_t kPerThreadStream = 2;
constexpr uint64_t kLegacyStreamId = ~0ull;
static_assert((kSlots & (kSlots - 1)) == 0, "slots are found by a mask");

// The driver, by the addresses of its functions.
struct Driver {
  int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared_bytes,
                void* stream, void** arguments, void** extra);
  int (*get_current)(void** context);
  int (*push_current)(void* context);
  int (*pop_current)(void** context);
  int (*is_capturing)(void* stream, int* status);
  int (*stream_id)(void* stream, unsigned long long* id);
  int (*launch_cooperative)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                         unsigned shared_bytes, void* stream, void** arguments);  // a cooperative launch
};

struct Argument {
  enum Source : uint8_t { kArray, kScratch, kNumber } source;
  uint8_t place;
  alignas(16) unsigned char number[16];
};

struct Launch {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  int cooperative;  // whether all blocks must run at the same time
  std::vector<Argument> arguments;
};

// How an output is made that the caller does not bring: a callable and its arguments, the last of them by name.
struct Maker {
  PyObject* callable = nullptr;
  std::vector<PyObject*> arguments;
  PyObject* names = nullptr;
};

struct Need { int slot; uint64_t size; };

struct Entry {
  int references = 1;
  uint64_t hash = 0;
  std::vector<int64_t> key;
  int64_t low[kMostArrays] = {}, high[kMostArrays] = {};  // bytes of an array from its address; high is behind the last
  std::vector<Launch> launches;
  std::vector<Need> needs;
  Maker makers[kMostArrays];
  std::vector<PyObject*> kept;  // whose addresses stand in the key
  PyObject* name = nullptr;     // of the variant

  ~Entry() {
    Py_XDECREF(name);
    for (PyObject* object : kept) Py_DECREF(object);
    for (Maker& maker : makers) {
      Py_XDECREF(maker.callable);
      Py_XDECREF(maker.names);
      for (PyObject* object : maker.arguments) Py_DECREF(object);
    }
  }
};

struct Slot { uint64_t address = 0, size = 0; };

struct Scratch {
  uint64_t id;
  bool busy = false;
  std::vector<Slot> slots;
};

struct Launcher {
  PyObject_HEAD
  Driver driver;
  void* context;
  int device;
  Py_ssize_t inputs, arrays;
  uint32_t written;             // by array, a bit
  PyObject* returned;           // places of the arrays that a call returns
  PyObject* parameters;            // names
  std::vector<int64_t>* defaults;  // of the parameters, where a call states none
  std::vector<Reader>* readers;
  std::vector<Scratch*>* scratch_of_streams;
  std::vector<Entry*>* table;
  size_t entries;
  Entry* last;  // of the table: the one that was looked up last, since calls repeat
};

PyTypeObject* launcher_type;
PyObject *refused, *word_out, *word_stream, *word_by_python, *word_given_up, *word_cuda_stream;

void let_go(Entry* entry) {
  if (--entry->references == 0) delete entry;
}

// What a call was given; all borrowed.
struct Stated {
  PyObject* const* arguments;
  Py_ssize_t count;
  PyObject* out = Py_None;
  PyObject* stream = Py_None;
  int64_t parameters[kMostParameters];
};

// All of a call that its launches depend on, but addresses. false, maybe with an error set: Python must look at it.
bool describe(const Launcher* self, const Stated& stated, Call* call) {
  const Py_ssize_t outputs = self->arrays - self->inputs;
  if (stated.count != self->inputs) return false;
  PyObject* out = stated.out;
  const bool several = PyTuple_CheckExact(out);
  if (several ? PyTuple_GET_SIZE(out) != outputs : out != Py_None && outputs != 1) return false;
  for (Py_ssize_t place = 0; place < self->arrays; ++place) {
    PyObject* array = place < self->inputs ? stated.arguments[place]
                      : several            ? PyTuple_GET_ITEM(out, place - self->inputs)
                                           : out;
    if (place >= self->inputs && array == Py_None) {
      if (!call->add(-1)) return false;
      continue;
    }
    Given& given = call->given[place];
    if (!read(*self->readers, self->device, array, false, call, &given.address)) return false;
    given.object = array;
    if (!call->add(static_cast<int64_t>(static_cast<uint64_t>(given.address) % kAlignment))) return false;
  }
  for (size_t place = 0; place < self->defaults->size(); ++place)
    if (!call->add(stated.parameters[place])) return false;
  return true;
}

// Sorts arguments by name; names are interned wherever they stand in a program. false: there are others.
bool take_names(const Launcher* self, PyObject* const* values, PyObject* names, Stated* stated) {
  const Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
  for (size_t place = 0; place < self->defaults->size(); ++place) stated->parameters[place] = (*self->defaults)[place];
  for (Py_ssize_t at = 0; at < count; ++at) {
    PyObject* name = PyTuple_GET_ITEM(names, at);
    if (name == word_out) {
      stated->out = values[at];
    } else if (name == word_stream) {
      stated->stream = values[at];
    } else {
      size_t place = 0;
      while (place < self->defaults->size() && PyTuple_GET_ITEM(self->parameters, place) != name) ++place;
      if (place == self->defaults->size() || !integer(values[at], &stated->parameters[place])) return false;
    }
  }
  return true;
}

uint64_t hash_of(const Call& call) {
  uint64_t hash = 0x9e3779b97f4a7c15ull;
  for (int place = 0; place < call.length; ++place) {
    hash = (hash ^ static_cast<uint64_t>(call.key[place])) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return hash;
}

bool same(const Entry& entry, const Call& call) {
  return entry.key.size() == static_cast<size_t>(call.length) &&
         memcmp(entry.key.data(), call.key, call.length * sizeof(int64_t)) == 0;
}

size_t place_of(const Launcher* self, const Call& call, uint64_t hash) {
  size_t place = hash & (kSlots - 1);
  while (const Entry* entry = (*self->table)[place]) {
    if (entry->hash == hash && same(*entry, call)) break;
    place = (place + 1) & (kSlots - 1);
  }
  return place;
}

// What became of such a call; null if nobody knows.
Entry* found(Launcher* self, const Call& call) {
  if (self->last == nullptr || !same(*self->last, call)) self->last = (*self->table)[place_of(self, call, hash_of(call))];
  return self->last;
}

// The handle of a stream that the caller names: a number, or an object of torch or of CuPy.
bool chosen_stream(PyObject* named, uint64_t* stream) {
  int64_t handle = 0;
  if (!integer(named, &handle) && !integer_of(named, word_cuda_stream, &handle)) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
    PyErr_Clear();
    if (!integer_of(named, word_ptr, &handle)) return false;
  }
  if (handle < 0) return false;
  *stream = handle == 0 ? kLegacyStream : static_cast<uint64_t>(handle);
  return true;
}

Scratch* scratch_of(Launcher* self, uint64_t id) {
  for (Scratch* scratch : *self->scratch_of_streams)
    if (scratch->id == id) return scratch;
  return nullptr;
}

// The scratch memory of a stream that is not being captured, if it is free and its memory suffices.
Scratch* free_scratch(Launcher* self, const Entry& entry, uint64_t stream) {
  if (stream == kPerThreadStream) return nullptr;
  int capturing = 0;
  unsigned long long id = kLegacyStreamId;
  void* handle = reinterpret_cast<void*>(stream);
  if (self->driver.is_capturing(handle, &capturing) != 0 || capturing != 0) return nullptr;
  if (stream != kLegacyStream && self->driver.stream_id(handle, &id) != 0) return nullptr;
  Scratch* scratch = scratch_of(self, id);
  if (scratch == nullptr || scratch->busy) return nullptr;
  for (const Need& need : entry.needs) {
    if (need.size == 0) continue;
    const size_t slot = static_cast<size_t>(need.slot);
    if (slot >= scratch->slots.size() || scratch->slots[slot].size < need.size) return nullptr;
  }
  return scratch;
}

bool overlaps(const Launcher* self, const Entry& entry, const Call& call) {
  for (Py_ssize_t one = 0; one < self->arrays; ++one) {
    for (Py_ssize_t other = one + 1; other < self->arrays; ++other) {
      if (!((self->written >> one | self->written >> other) & 1)) continue;
      const Given &a = call.given[one], &b = call.given[other];
      if (a.object == nullptr || b.object == nullptr) continue;
      if (a.address + entry.low[one] < b.address + entry.high[other] &&
          b.address + entry.low[other] < a.address + entry.high[one])
        return true;
    }
  }
  return false;
}

// Makes the outputs that are not given. -1: an error is set; 0: Python must make them; 1: they are there.
int make_outputs(const Launcher* self, const Entry& entry, Call* call, PyObject** made) {
  for (Py_ssize_t place = self->inputs; place < self->arrays; ++place) {
    const Maker& maker = entry.makers[place];
    Given& given = call->given[place];
    if (given.object != nullptr) continue;
    if (maker.callable == nullptr) return 0;
    const size_t named = maker.names == nullptr ? 0 : PyTuple_GET_SIZE(maker.names);
    made[place] = PyObject_Vectorcall(maker.callable, maker.arguments.data(), maker.arguments.size() - named, maker.names);
    if (made[place] == nullptr) return -1;
    if (!read(*self->readers, self->device, made[place], true, call, &given.address)) return 0;
    given.object = made[place];
  }
  return 1;
}

// Queues the launches of an entry; gives the driver's status and the launch that it refused.
int queue(const Driver& driver, const Entry& entry, const Call& call, const Scratch* scratch, uint64_t stream,
          size_t* at) {
  uint64_t pointers[kMostArguments];
  void* arguments[kMostArguments];
  for (*at = 0; *at < entry.launches.size(); ++*at) {
    const Launch& launch = entry.launches[*at];
    for (size_t place = 0; place < launch.arguments.size(); ++place) {
      const Argument& argument = launch.arguments[place];
      if (argument.source == Argument::kNumber) {
        arguments[place] = const_cast<unsigned char*>(argument.number);
        continue;
      }
      if (argument.source == Argument::kArray) {
        pointers[place] = static_cast<uint64_t>(call.given[argument.place].address);
      } else {
        const Need& need = entry.needs[argument.place];
        pointers[place] = need.size == 0 ? 0 : scratch->slots[need.slot].address;
      }
      arguments[place] = &pointers[place];
    }
    const unsigned *grid = launch.grid, *block = launch.block;
    void* const cuda_stream = reinterpret_cast<void*>(stream);
    const int status =
        launch.cooperative
            ? driver.launch_cooperative(launch.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                        launch.shared_bytes, cuda_stream, arguments)
            : driver.launch(launch.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                            launch.shared_bytes, cuda_stream, arguments, nullptr);
    if (status != 0) return status;
  }
  return 0;
}

PyObject* result_of(const Launcher* self, const Call& call) {
  const Py_ssize_t count = PyTuple_GET_SIZE(self->returned);
  PyObject* results = count == 1 ? nullptr : PyTuple_New(count);
  if (count != 1 && results == nullptr) return nullptr;
  for (Py_ssize_t place = 0; place < count; ++place) {
    PyObject* array = call.given[PyLong_AsSsize_t(PyTuple_GET_ITEM(self->returned, place))].object;
    Py_INCREF(array);
    if (count == 1) return array;
    PyTuple_SET_ITEM(results, place, array);
  }
  return results;
}

// Raises what tells Python that the driver refused a launch.
void refuse(const Entry& entry, const Launch& launch, int status, uint64_t stream) {
  PyObject* what = Py_BuildValue("(OiK(III)(III))", entry.name, status, static_cast<unsigned long long>(stream),
                                 launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0], launch.block[1],
                                 launch.block[2]);
  if (what != nullptr) PyErr_SetObject(refused, what);
  Py_XDECREF(what);
}

// Python looks at the call again, and says what is wrong in gen's words; but a KeyboardInterrupt comes only once.
PyObject* not_done() {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyErr_Clear();
  Py_RETURN_NONE;
}

// call(*arrays, out=None, stream=None, **parameters): the results; None if Python has to do this call.
PyObject* launcher_call(PyObject* object, PyObject* const* given, Py_ssize_t count, PyObject* names) {
  auto* self = reinterpret_cast<Launcher*>(object);
  if (self->entries == 0) Py_RETURN_NONE;
  Stated stated{given, count};
  Call call;
  if (!take_names(self, given + count, names, &stated) || !describe(self, stated, &call)) return not_done();
  bool complete = true;
  for (Py_ssize_t place = self->inputs; place < self->arrays; ++place) complete &= call.given[place].object != nullptr;
  const bool chosen = stated.stream != Py_None;
  uint64_t stream = 0, current = 0;
  if (chosen && !chosen_stream(stated.stream, &stream)) return not_done();
  void* before = nullptr;
  if (self->driver.get_current(&before) != 0) return not_done();
  const bool entered = before != self->context;
  if (!chosen || !complete) {
    if (entered && call.reader->kind == Kind::kAttributes) return not_done();  // CuPy would name another device's stream
    if (!current_stream(self->device, *call.reader, &current)) return not_done();
  }
  if (!chosen) stream = current;
  if (!complete && stream != current) return not_done();  // memory is made in the order of another stream
  Entry* entry = found(self, call);  // not before, since a stream's attributes may be Python's, which may forget entries
  if (entry == nullptr || overlaps(self, *entry, call)) return not_done();

  if (entered && self->driver.push_current(self->context) != 0) return not_done();
  PyObject* made[kMostArrays] = {};
  PyObject* result = nullptr;
  ++entry->references;  // what makes outputs may call Python, even this kernel
  int ready = complete ? 1 : make_outputs(self, *entry, &call, made);
  Scratch* scratch = ready != 1 || entry->needs.empty() ? nullptr : free_scratch(self, *entry, stream);
  if (ready == 1 && scratch == nullptr && !entry->needs.empty()) ready = 0;
  if (ready == 1) {
    size_t at = 0;
    if (scratch != nullptr) scratch->busy = true;
    PyThreadState* state = PyEval_SaveThread();
    const int status = queue(self->driver, *entry, call, scratch, stream, &at);
    PyEval_RestoreThread(state);
    if (scratch != nullptr) scratch->busy = false;
    if (status == 0) {
      result = result_of(self, call);
    } else {
      refuse(*entry, entry->launches[at], status, stream);
    }
  }
  let_go(entry);
  if (!complete)
    for (PyObject* array : made) Py_XDECREF(array);
  if (entered) self->driver.pop_current(&before);
  return ready == 0 ? not_done() : result;
}

bool unsigned_of(PyObject* value, uint64_t* result) {
  *result = PyLong_AsUnsignedLongLong(value);
  return !PyErr_Occurred();
}

bool take_launch(PyObject* content, Launch* launch) {
  PyObject* arguments;
  unsigned long long function;
  if (!PyArg_ParseTuple(content, "K(III)(III)IpO!", &function, &launch->grid[0], &launch->grid[1], &launch->grid[2],
                        &launch->block[0], &launch->block[1], &launch->block[2], &launch->shared_bytes,
                        &launch->cooperative, &PyTuple_Type, &arguments))
    return false;
  launch->function = reinterpret_cast<void*>(function);
  if (PyTuple_GET_SIZE(arguments) > kMostArguments) {
    PyErr_SetString(PyExc_ValueError, "a launch has too many arguments");
    return false;
  }
  for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(arguments); ++place) {
    PyObject* content_of = PyTuple_GET_ITEM(arguments, place);
    Argument argument{};
    if (PyBytes_CheckExact(content_of)) {
      argument.source = Argument::kNumber;
      if (PyBytes_GET_SIZE(content_of) > static_cast<Py_ssize_t>(sizeof(argument.number))) {
        PyErr_SetString(PyExc_ValueError, "a number has at most 16 bytes");
        return false;
      }
      memcpy(argument.number, PyBytes_AS_STRING(content_of), PyBytes_GET_SIZE(content_of));
    } else {
      const long number = PyLong_AsLong(content_of);  // arrays count from 0, scratch from -1 downwards
      if (PyErr_Occurred()) return false;
      argument.source = number < 0 ? Argument::kScratch : Argument::kArray;
      argument.place = static_cast<uint8_t>(number < 0 ? -1 - number : number);
    }
    launch->arguments.push_back(argument);
  }
  return true;
}

bool take_maker(PyObject* content, Maker* maker) {
  if (content == Py_None) return true;
  PyObject *callable, *arguments, *names;
  if (!PyArg_ParseTuple(content, "OO!O", &callable, &PyTuple_Type, &arguments, &names)) return false;
  Py_INCREF(callable);
  maker->callable = callable;
  if (names != Py_None) {
    Py_INCREF(names);
    maker->names = names;
  }
  for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(arguments); ++place) {
    PyObject* argument = PyTuple_GET_ITEM(arguments, place);
    Py_INCREF(argument);
    maker->arguments.push_back(argument);
  }
  return true;
}

bool take_entry(Launcher* self, PyObject* spans, PyObject* launches, PyObject* needs, PyObject* makers, Entry* entry) {
  if (PyTuple_GET_SIZE(spans) != self->arrays || PyTuple_GET_SIZE(makers) != self->arrays) {
    PyErr_SetString(PyExc_ValueError, "spans and makers must be as many as arrays");
    return false;
  }
  for (Py_ssize_t place = 0; place < self->arrays; ++place) {
    long long low = 0, high = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(spans, place), "LL", &low, &high)) return false;
    entry->low[place] = low;
    entry->high[place] = high;
    if (!take_maker(PyTuple_GET_ITEM(makers, place), &entry->makers[place])) return false;
  }
  for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(needs); ++place) {
    unsigned long long size = 0;
    int slot = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(needs, place), "iK", &slot, &size)) return false;
    entry->needs.push_back({slot, size});
  }
  for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(launches); ++place) {
    entry->launches.emplace_back();
    if (!take_launch(PyTuple_GET_ITEM(launches, place), &entry->launches.back())) return false;
    for (const Argument& argument : entry->launches.back().arguments) {
      const size_t most = argument.source == Argument::kArray ? self->arrays : entry->needs.size();
      if (argument.source != Argument::kNumber && argument.place >= most) {
        PyErr_SetString(PyExc_ValueError, "an argument is no array of the call and none of its scratch");
        return false;
      }
    }
  }
  return true;
}

// What an entry keeps may run Python as it goes, even this kernel: by then nobody finds the entry any more.
void forget_entries(Launcher* self) {
  std::vector<Entry*> forgotten(kSlots, nullptr);
  forgotten.swap(*self->table);
  self->entries = 0;
  self->last = nullptr;
  for (Entry* entry : forgotten)
    if (entry != nullptr) let_go(entry);
}

PyObject* launcher_forget(PyObject* object, PyObject*) {
  forget_entries(reinterpret_cast<Launcher*>(object));
  Py_RETURN_NONE;
}

// remember(name, arrays, out, parameters, spans, launches, needs, makers): whether such calls are done here now.
PyObject* launcher_remember(PyObject* object, PyObject* arguments_of) {
  auto* self = reinterpret_cast<Launcher*>(object);
  PyObject *name, *arrays, *out, *parameters, *spans, *launches, *needs, *makers;
  if (!PyArg_ParseTuple(arguments_of, "OO!OO!O!O!O!O!", &name, &PyTuple_Type, &arrays, &out, &PyTuple_Type, &parameters,
                        &PyTuple_Type, &spans, &PyTuple_Type, &launches, &PyTuple_Type, &needs, &PyTuple_Type, &makers))
    return nullptr;
  Stated stated{reinterpret_cast<PyTupleObject*>(arrays)->ob_item, PyTuple_GET_SIZE(arrays), out};
  bool known = PyTuple_GET_SIZE(parameters) == static_cast<Py_ssize_t>(self->defaults->size());
  for (size_t place = 0; known && place < self->defaults->size(); ++place)
    known = integer(PyTuple_GET_ITEM(parameters, place), &stated.parameters[place]);
  Call call;
  if (!known || 2 * self->entries >= kSlots || !describe(self, stated, &call)) {
    PyErr_Clear();
    Py_RETURN_FALSE;
  }
  auto* entry = new Entry;
  Py_INCREF(name);
  entry->name = name;
  if (!take_entry(self, spans, launches, needs, makers, entry)) {
    delete entry;
    return nullptr;
  }
  entry->hash = hash_of(call);
  entry->key.assign(call.key, call.key + call.length);
  for (int place = 0; place < call.kept_count; ++place) {
    Py_INCREF(call.kept[place]);
    entry->kept.push_back(call.kept[place]);
  }
  const size_t place = place_of(self, call, entry->hash);
  self->last = nullptr;
  if (Entry* replaced = std::exchange((*self->table)[place], entry)) {
    let_go(replaced);
  } else {
    ++self->entries;
  }
  Py_RETURN_TRUE;
}

// learn(type, source): arrays of this very class are read here: by the API in a capsule, or by attributes, where
// `source` gives the current stream.
PyObject* launcher_learn(PyObject* object, PyObject* arguments) {
  auto* self = reinterpret_cast<Launcher*>(object);
  PyObject *type, *source;
  if (!PyArg_ParseTuple(arguments, "O!O", &PyType_Type, &type, &source)) return nullptr;
  Reader reader{reinterpret_cast<PyTypeObject*>(type), Kind::kAttributes, nullptr, nullptr};
  if (PyCapsule_CheckExact(source)) {
    auto* api = static_cast<const DLPackExchangeApi*>(PyCapsule_GetPointer(source, "dlpack_exchange_api"));
    if (api == nullptr) return nullptr;
    while (api != nullptr && api->version.major != 1) api = api->previous;
    if (api == nullptr || api->tensor_from_object == nullptr || api->current_stream == nullptr) Py_RETURN_FALSE;
    reader.kind = Kind::kDlpack;
    reader.api = api;
  } else {
    Py_INCREF(source);
    reader.current_stream = source;
  }
  Py_INCREF(type);
  self->readers->push_back(reader);
  Py_RETURN_TRUE;
}

// acquire(stream): waits until nobody launches with a stream's scratch memory; from then on it is the caller's.
PyObject* launcher_acquire(PyObject* object, PyObject* identity) {
  auto* self = reinterpret_cast<Launcher*>(object);
  uint64_t id = 0;
  if (!unsigned_of(identity, &id)) return nullptr;
  for (;;) {
    Scratch* scratch = scratch_of(self, id);
    if (scratch == nullptr) {
      scratch = new Scratch{id, false, {}};
      self->scratch_of_streams->push_back(scratch);
    }
    if (!scratch->busy) {
      scratch->busy = true;
      Py_RETURN_NONE;
    }
    Py_BEGIN_ALLOW_THREADS
    std::this_thread::yield();
    Py_END_ALLOW_THREADS
  }
}

// release(stream, memory): gives scratch memory back that the caller holds; by slot, address and size of its memory.
PyObject* launcher_release(PyObject* object, PyObject* arguments) {
  auto* self = reinterpret_cast<Launcher*>(object);
  unsigned long long id = 0;
  PyObject* memory;
  if (!PyArg_ParseTuple(arguments, "KO!", &id, &PyTuple_Type, &memory)) return nullptr;
  std::vector<Slot> slots;
  for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(memory); ++place) {
    unsigned long long address = 0, size = 0;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(memory, place), "KK", &address, &size)) return nullptr;
    slots.push_back({address, size});
  }
  Scratch* scratch = scratch_of(self, id);
  if (scratch != nullptr) {
    scratch->slots = slots;
    scratch->busy = false;
  }
  Py_RETURN_NONE;
}

// drop(stream): forgets scratch memory that the caller holds.
PyObject* launcher_drop(PyObject* object, PyObject* identity) {
  auto* self = reinterpret_cast<Launcher*>(object);
  uint64_t id = 0;
  if (!unsigned_of(identity, &id)) return nullptr;
  for (size_t place = 0; place < self->scratch_of_streams->size(); ++place) {
    if ((*self->scratch_of_streams)[place]->id != id) continue;
    delete (*self->scratch_of_streams)[place];
    self->scratch_of_streams->erase(self->scratch_of_streams->begin() + static_cast<Py_ssize_t>(place));
    break;
  }
  Py_RETURN_NONE;
}

// Launcher(functions, context, device, inputs, written, returned, parameters, defaults)
PyObject* launcher_new(PyTypeObject* type, PyObject* arguments, PyObject* /*names*/) {
  unsigned long long functions[7], context;
  int device;
  PyObject *written, *returned, *parameters, *defaults;
  Py_ssize_t inputs;
  if (!PyArg_ParseTuple(arguments, "(KKKKKKK)KinO!O!O!O!", &functions[0], &functions[1], &functions[2], &functions[3],
                        &functions[4], &functions[5], &functions[6], &context, &device, &inputs, &PyTuple_Type, &written,
                        &PyTuple_Type, &returned, &PyTuple_Type, &parameters, &PyTuple_Type, &defaults))
    return nullptr;
  if (PyTuple_GET_SIZE(written) > kMostArrays || PyTuple_GET_SIZE(defaults) > kMostParameters ||
      PyTuple_GET_SIZE(defaults) != PyTuple_GET_SIZE(parameters)) {
    PyErr_SetString(PyExc_ValueError, "a call has at most 16 arrays and 8 runtime parameters, each with a default");
    return nullptr;
  }
  auto* self = reinterpret_cast<Launcher*>(type->tp_alloc(type, 0));
  if (self == nullptr) return nullptr;
  memcpy(&self->driver, functions, sizeof(self->driver));
  self->context = reinterpret_cast<void*>(context);
  self->device = device;
  self->inputs = inputs;
  self->arrays = PyTuple_GET_SIZE(written);
  for (Py_ssize_t place = 0; place < self->arrays; ++place)
    self->written |= static_cast<uint32_t>(PyTuple_GET_ITEM(written, place) == Py_True) << place;
  Py_INCREF(returned);
  self->returned = returned;
  Py_INCREF(parameters);
  self->parameters = parameters;
  self->defaults = new std::vector<int64_t>;
  for (Py_ssize_t place = 0; place < PyTuple_GET_SIZE(defaults); ++place)
    self->defaults->push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(defaults, place)));
  self->readers = new std::vector<Reader>;
  self->scratch_of_streams = new std::vector<Scratch*>;
  self->table = new std::vector<Entry*>(kSlots, nullptr);
  return reinterpret_cast<PyObject*>(self);
}

void launcher_free(PyObject* object) {
  auto* self = reinterpret_cast<Launcher*>(object);
  PyTypeObject* type = Py_TYPE(object);
  forget_entries(self);
  for (Reader& reader : *self->readers) {
    Py_DECREF(reader.type);
    Py_XDECREF(reader.current_stream);
  }
  for (Scratch* scratch : *self->scratch_of_streams) delete scratch;
  Py_XDECREF(self->returned);
  Py_XDECREF(self->parameters);
  delete self->defaults;
  delete self->readers;
  delete self->scratch_of_streams;
  delete self->table;
  type->tp_free(object);
  Py_DECREF(type);
}

// A base of the class of kernel objects.
struct Repeating {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject* launcher;  // or null
};

// Tells the kernel object that the driver refused a launch; it raises what users are to see.
PyObject* give_up(PyObject* kernel) {
  PyObject *type, *error, *trace;
  PyErr_Fetch(&type, &error, &trace);
  PyErr_NormalizeException(&type, &error, &trace);
  PyObject* result = PyObject_CallMethodOneArg(kernel, word_given_up, error);
  Py_XDECREF(type);
  Py_XDECREF(error);
  Py_XDECREF(trace);
  return result;
}

PyObject* repeating_call(PyObject* object, PyObject* const* given, size_t flags, PyObject* names) {
  auto* self = reinterpret_cast<Repeating*>(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  PyObject* launcher = self->launcher;
  if (launcher != nullptr && Py_IS_TYPE(launcher, launcher_type)) {
    Py_INCREF(launcher);  // `_repeats` may be set while it launches
    PyObject* result = launcher_call(launcher, given, count, names);
    Py_DECREF(launcher);
    if (result == nullptr) return PyErr_ExceptionMatches(refused) ? give_up(object) : nullptr;
    if (result != Py_None) return result;
    Py_DECREF(result);
  }
  std::vector<PyObject*> all{object};
  all.insert(all.end(), given, given + count + (names == nullptr ? 0 : PyTuple_GET_SIZE(names)));
  return PyObject_VectorcallMethod(word_by_python, all.data(), count + 1, names);
}

PyObject* repeating_new(PyTypeObject* type, PyObject* /*arguments*/, PyObject* /*names*/) {
  // Before Python 3.12 a class that is made in Python inherits where the function is, but not that it is to be used.
  // One that has a `__call__` of its own must not.
  if (type->tp_call == PyVectorcall_Call) type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
  PyObject* made = type->tp_alloc(type, 0);
  if (made != nullptr) reinterpret_cast<Repeating*>(made)->vectorcall = repeating_call;
  return made;
}

void repeating_free(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  Py_XDECREF(reinterpret_cast<Repeating*>(object)->launcher);
  type->tp_free(object);
  Py_DECREF(type);
}

PyMemberDef repeating_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Repeating, vectorcall), READONLY, nullptr},
    {"_repeats", T_OBJECT, offsetof(Repeating, launcher), 0, "The launcher that is asked first."},
    {nullptr, 0, 0, 0, nullptr}};

PyType_Slot repeating_slots[] = {{Py_tp_new, reinterpret_cast<void*>(repeating_new)},
                                 {Py_tp_dealloc, reinterpret_cast<void*>(repeating_free)},
                                 {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                 {Py_tp_members, repeating_members},
                                 {0, nullptr}};

PyType_Spec repeating_spec = {"gen_launcher.Repeating", sizeof(Repeating), 0,
                              Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, repeating_slots};

// METH_FASTCALL functions have another type than PyMethodDef names; Python casts them back.
PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t, PyObject*)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef launcher_methods[] = {
    {"call", fast(launcher_call), METH_FASTCALL | METH_KEYWORDS, "The results of a call; None if it is Python's."},
    {"remember", launcher_remember, METH_VARARGS, "Keeps what became of a call."},
    {"forget", launcher_forget, METH_NOARGS, "Forgets every call."},
    {"learn", launcher_learn, METH_VARARGS, "Says how arrays of a class are read."},
    {"acquire", launcher_acquire, METH_O, "Waits for the scratch memory of a stream, and holds it."},
    {"release", launcher_release, METH_VARARGS, "Gives held scratch memory back, with the memory that it has now."},
    {"drop", launcher_drop, METH_O, "Forgets held scratch memory."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot launcher_slots[] = {{Py_tp_new, reinterpret_cast<void*>(launcher_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(launcher_free)},
                                {Py_tp_methods, launcher_methods},
                                {0, nullptr}};

PyType_Spec launcher_spec = {"gen_launcher.Launcher", sizeof(Launcher), 0, Py_TPFLAGS_DEFAULT, launcher_slots};

PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "gen_launcher", nullptr, -1,
                                 nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_gen_launcher() {
  const struct { PyObject** place; const char* word; } words[] = {
      {&word_out, "out"}, {&word_stream, "stream"}, {&word_by_python, "_by_python"}, {&word_given_up, "_given_up"},
      {&word_requires_grad, "requires_grad"}, {&word_is_neg, "is_neg"}, {&word_is_conj, "is_conj"},
      {&word_data, "data"}, {&word_ptr, "ptr"}, {&word_device_id, "device_id"}, {&word_shape, "shape"},
      {&word_strides, "strides"}, {&word_dtype, "dtype"}, {&word_cuda_stream, "cuda_stream"}};
  for (const auto& one : words)
    if ((*one.place = PyUnicode_InternFromString(one.word)) == nullptr) return nullptr;
  PyObject* module = PyModule_Create(&module_definition);
  PyObject *type = PyType_FromSpec(&launcher_spec), *base = PyType_FromSpec(&repeating_spec);
  refused = PyErr_NewException("gen_launcher.Refused", nullptr, nullptr);
  if (module == nullptr || type == nullptr || base == nullptr || refused == nullptr) return nullptr;
  launcher_type = reinterpret_cast<PyTypeObject*>(type);
  Py_INCREF(type);
  Py_INCREF(refused);
  if (PyModule_AddObject(module, "Launcher", type) < 0 || PyModule_AddObject(module, "Repeating", base) < 0 ||
      PyModule_AddObject(module, "Refused", refused) < 0)
    return nullptr;
  return module;
}
