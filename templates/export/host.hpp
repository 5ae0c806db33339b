// The host program of an exported library: checks arrays, chooses a variant, launches it through the CUDA driver.
//
// What is known of each spec stands in tables and functions that gen wrote; this file interprets them. The driver is
// loaded when it is first needed, so that the library can be built and linked without CUDA.

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

namespace {

using Int = int64_t;

// What expressions call. Nothing divides by zero: what is not read may be anything.
[[maybe_unused]] inline Int quotient(Int a, Int b) {
  if (b == 0) return 0;
  const Int found = a / b;
  return found - (a % b != 0 && (a < 0) != (b < 0));
}
[[maybe_unused]] inline double quotient(double a, double b) { return std::floor(a / b); }
[[maybe_unused]] inline Int remainder(Int a, Int b) { return b == 0 ? 0 : a - quotient(a, b) * b; }
[[maybe_unused]] inline Int least(Int a, Int b) { return b < a ? b : a; }
[[maybe_unused]] inline double least(double a, double b) { return b < a ? b : a; }
[[maybe_unused]] inline Int most(Int a, Int b) { return a < b ? b : a; }
[[maybe_unused]] inline double most(double a, double b) { return a < b ? b : a; }
[[maybe_unused]] inline Int rounded(double a) { return static_cast<Int>(std::nearbyint(a)); }  // ties to even
[[maybe_unused]] inline Int rounded_down(double a) { return static_cast<Int>(std::floor(a)); }
[[maybe_unused]] inline Int rounded_up(double a) { return static_cast<Int>(std::ceil(a)); }
[[maybe_unused]] inline Int greatest_divisor(Int a, Int b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) {
    const Int next = a % b;
    a = b;
    b = next;
  }
  return a;
}
[[maybe_unused]] inline Int bit_length(Int a) {
  Int bits = 0;
  for (; a > 0; a >>= 1) ++bits;
  return bits;
}

// The results of a function that gives several.
template <int count>
struct Several {
  Int value[count];
  Int operator[](int place) const { return value[place]; }
};
template <int count>
[[maybe_unused]] Several<count> results_of(void (*function)(const Int*, int, Int*), std::initializer_list<Int> given) {
  Several<count> found;
  function(given.begin(), static_cast<int>(given.size()), found.value);
  return found;
}

enum Status { kFine = 0, kRefused = 1, kNoDriver = 2, kNoDevice = 3, kDriverFailed = 4 };
constexpr int kMostAxes = 8, kMostArrays = 24, kMostSizes = 192;  // gen exports no more
constexpr int kMostSteps = 48, kMostArguments = 512, kMostSwaps = 160, kMostSlots = 24;
constexpr Int kWidest = 16;               // bytes: no kernel asks for a larger alignment
constexpr Int kMostBytes = Int(1) << 56;  // of an array: all sizes that follow from it fit 64 bits

thread_local std::string last_error;

int fail(int status, const std::string& words) {
  last_error = words;
  return status;
}
int refuse(std::string* words, const std::string& text) {
  *words = text;
  return -1;
}
std::string number(Int value) { return std::to_string(value); }

int check_version(const char* name, const char* own, const char* wanted) {
  if (wanted != nullptr && strcmp(own, wanted) == 0) return kFine;
  return fail(kRefused, std::string("The library ") + name + " must be of version " +
                            (wanted == nullptr ? "null" : wanted) + ", as who calls it is (got " + own +
                            "). Build both from one exported folder");
}

// An array: strides in bytes; alignment is what divides the address and all strides, up to 32. Nothing is set before
// `read` or a function of the spec sets it: a call has room for many.
struct View {
  uint64_t address;
  int ndim;
  Int shape[kMostAxes], strides[kMostAxes], alignment;
};

struct Limits {
  Int multiprocessors;
  double clock_hz, memory_bytes_per_second;
};

// The launches of one call. Slots are its arrays, then its scratch buffers.
struct Plan {
  struct Argument {
    int slot;  // -1: a number
    Int value;
    alignas(16) unsigned char bytes[16];
  };
  struct Step {
    const char* entry;
    Int grid[3];
    unsigned block[3];
    Int shared_bytes, times;
    int first_argument, arguments, first_swap, swaps;
    bool cooperative;  // all blocks must run at the same time: a cooperative launch

    bool launches() const { return grid[0] != 0 && grid[1] != 0 && grid[2] != 0 && times > 0; }
  };
  int steps = 0, arguments = 0, swaps = 0, buffers = 0;
  Step step[kMostSteps];
  Argument argument[kMostArguments];
  int swapped[kMostSwaps][2];
  Int buffer_bytes[kMostSlots];
  bool zeroed[kMostSlots];

  void scratch(Int bytes, bool zero) {
    buffer_bytes[buffers] = bytes;
    zeroed[buffers++] = zero;
  }
  void launch(const char* entry, Int gx, Int gy, Int gz, unsigned bx, unsigned by, unsigned bz, Int shared, Int times) {
    step[steps++] = {entry, {gx, gy, gz}, {bx, by, bz}, shared, times, arguments, 0, swaps, 0, false};
  }
  void cooperative() { step[steps - 1].cooperative = true; }
  void array(int slot) {
    argument[arguments++].slot = slot;
    ++step[steps - 1].arguments;
  }
  template <typename T>
  void number(Int value) {
    const T stored = static_cast<T>(value);
    argument[arguments].slot = -1;
    argument[arguments].value = value;
    memcpy(argument[arguments++].bytes, &stored, sizeof(T));
    ++step[steps - 1].arguments;
  }
  void swap(int one, int other) {
    swapped[swaps][0] = one;
    swapped[swaps++][1] = other;
    ++step[steps - 1].swaps;
  }
};

// What gen wrote of a spec. A test of null says no; of an estimate of null nothing is known.
using Test = bool (*)(const Int* sizes, const Limits& device, Int alignment);
using Estimate = double (*)(const Int* sizes, const Limits& device, Int alignment);
struct Candidate { int variant; Test cannot, slow; Estimate microseconds; };
struct Part {
  Test holds;
  bool measured, later;  // later: the first of the others came after it was measured
  double worth;          // the part of its estimated time under which another is taken
  Candidate chosen;
  bool has_wider;
  Candidate wider;
};
struct Row {
  int target, structure, number;  // the number of the shape class
  const Part* parts;              // the last one holds all sizes
  const Candidate* others;
  int other_count;
  Candidate base;
  double first_stays;  // the part of the estimated time of the first of the others under which another is taken
  int most;            // of the others, the first so many that can compute the sizes are compared
};
struct Target { const char *arch, *device; int capability; Limits limits; };
struct Operand { const char *name, *dtype; int kind, bits; bool written, output; };  // of kind -1: only moved
struct Rank {
  int axes;
  bool dense;
  int (*measure)(const View* arrays, Int* sizes, std::string* words);
  int (*others)(const View* arrays, View* others, std::string* words);  // shapes of all arrays but the first
  int (*misfits[kMostArrays])(const View* arrays, std::string* words);  // by array: what to say of other axes
};
struct Variant { const char* name; void (*plan)(const Int* sizes, const Limits& device, Plan& plan); };
struct Code { int variant, capability; bool exact, ptx; size_t offset; };
struct Spec {
  const char* name;
  const Operand* operands;
  int inputs, arrays;
  const int* parameters;  // places of runtime parameters among the sizes
  const char* const* parameter_names;
  int parameter_count;
  const Rank* ranks;
  int rank_count;
  const Target* targets;
  int target_count;
  int (*const* classify)(const Int* sizes, const Limits& device, Int alignment);  // by structure
  const Row* rows;
  int row_count;
  const Variant* variants;
  const Code* codes;
  int code_count;
};

// ---- Choosing, as gen.load does: gen/runtime/dispatch.py ------------------------------------------------------------

struct Problem {
  Int sizes[kMostSizes] = {};
  int structure = 0;
  Int alignment = kWidest;
};

bool says(Test test, const Problem& p, const Limits& device) {
  return test != nullptr && test(p.sizes, device, p.alignment);
}
double estimate(const Candidate& one, const Problem& p, const Limits& device) {
  return one.microseconds == nullptr ? NAN : one.microseconds(p.sizes, device, p.alignment);
}

const Row* row_of(const Spec& spec, int target, const Problem& p, const Limits& device, Int alignment) {
  const int number = spec.classify[p.structure](p.sizes, device, alignment);
  for (int place = 0; place < spec.row_count; ++place) {
    const Row& row = spec.rows[place];
    if (row.target == target && row.structure == p.structure && row.number == number) return &row;
  }
  return nullptr;
}

// What is estimated to take least; the chosen one unless that is much less; null without estimates.
const Candidate* least_estimated(const Row& row, const Part& part, bool supported, const Problem& p,
                                 const Limits& device) {
  const Candidate& chosen = part.chosen;
  const double own = supported ? estimate(chosen, p, device) : NAN;
  if (supported && std::isnan(own) && !says(chosen.slow, p, device)) return nullptr;
  const Candidate *first = nullptr, *found = nullptr;
  double first_time = 0, time = 0;
  int able = 0;
  for (int place = 0; place < row.other_count; ++place) {
    const Candidate& one = row.others[place];
    if (says(one.cannot, p, device)) continue;
    if (able++ == row.most) break;
    if (one.variant < 0) continue;
    const double its = estimate(one, p, device);
    if (std::isnan(its)) continue;
    if (first == nullptr) first = &one, first_time = its;
    if (found == nullptr || its < time) found = &one, time = its;
  }
  if (first == nullptr) return nullptr;
  if (time > first_time * row.first_stays && !says(first->slow, p, device)) found = first, time = first_time;
  if (found->variant == chosen.variant) return &chosen;
  const bool often_fast = chosen.variant == first->variant;
  if (!std::isnan(own) && !often_fast && time > own * part.worth) return &chosen;
  return found;
}

const Candidate* fitting(const Row& row, const Problem& p, const Limits& device) {
  const Part* part = row.parts;
  while (part->holds != nullptr && !part->holds(p.sizes, device, p.alignment)) ++part;
  const Candidate* chosen = &part->chosen;
  const bool supported = !says(chosen->cannot, p, device);
  if (supported && part->measured) return chosen;
  if (!supported && part->has_wider && !says(part->wider.cannot, p, device) && !says(part->wider.slow, p, device))
    return &part->wider;
  if (const Candidate* found = least_estimated(row, *part, supported, p, device)) return found;
  if (part->later && supported && !says(row.others[0].cannot, p, device)) chosen = &row.others[0];
  if (supported && !says(chosen->slow, p, device)) return chosen;
  for (int place = 0; place < row.other_count; ++place) {
    const Candidate& one = row.others[place];
    if (one.variant >= 0 && !says(one.cannot, p, device) && !says(one.slow, p, device)) return &one;
  }
  return chosen;
}

// The variant of a problem; -1 if there is none.
int choose(const Spec& spec, int target, const Problem& p, const Limits& device) {
  if (const Row* row = row_of(spec, target, p, device, p.alignment)) {
    const Candidate* found = fitting(*row, p, device);
    if (!says(found->cannot, p, device)) return found->variant;
  }
  const Row* row = row_of(spec, target, p, device, kWidest);
  if (row != nullptr && !says(row->base.cannot, p, device)) return row->base.variant;
  fail(kRefused, std::string(spec.name) + " cannot take these sizes. Call it for parts of the array");
  return -1;
}

// ---- Arrays ---------------------------------------------------------------------------------------------------------

constexpr int kDeviceCuda = 2, kDeviceCudaHost = 3, kDeviceManaged = 13;  // as DLPack numbers them

std::string tuple_of(const Int* values, int count) {
  std::string text = "(";
  for (int axis = 0; axis < count; ++axis) text += (axis ? ", " : "") + number(values[axis]);
  return text + (count == 1 ? ",)" : ")");
}

std::string hexadecimal(uint64_t address) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

// A type of elements: as gen calls it, or as NumPy does where elements are only moved.
std::string words_for(const DLDataType& dtype, bool moved) {
  const char* const kinds[][2] = {{"i", "int"}, {"u", "uint"}, {"f", "float"}, {"opaque ", "opaque "}, {"bf", "bfloat"},
                                  {"c", "complex"}};
  if (dtype.code == 6) return "bool";
  return (dtype.code < 6 ? kinds[dtype.code][moved] : "type " + std::to_string(dtype.code) + " of ") +
         std::to_string(dtype.bits);
}

// What to do next about an array that holds other elements.
const char* other_elements(const Operand& operand) {
  return operand.output ? "). Pass one that does, or none: then it is made"
                        : "). Convert it first, or export a kernel for such elements";
}

int missing(const std::string& name) { return fail(kRefused, name + " is missing (got a null pointer)"); }

int read(const Operand& operand, const DLTensor* tensor, View* view) {
  const std::string name = operand.name;
  if (tensor == nullptr) return missing(name);
  const int where = static_cast<int>(tensor->device.device_type);
  if (where != kDeviceCuda && where != kDeviceManaged && where != kDeviceCudaHost)
    return fail(kRefused, name + " must be in a GPU's memory (got device type " + std::to_string(where) +
                              " of DLPack). Copy it there first");
  const DLDataType& dtype = tensor->dtype;
  const bool right = operand.kind < 0 ? dtype.bits * dtype.lanes == operand.bits
                                      : dtype.code == operand.kind && dtype.bits == operand.bits && dtype.lanes == 1;
  if (!right)
    return fail(kRefused, name + " must hold " + operand.dtype + " (got " + words_for(dtype, operand.kind < 0) +
                              other_elements(operand));
  if (tensor->ndim < 0 || tensor->ndim > kMostAxes)
    return fail(kRefused, name + " must have at most 8 axes (got " + std::to_string(tensor->ndim) + ")");
  if (tensor->ndim > 0 && tensor->shape == nullptr) return missing(name + ".shape");
  view->address = reinterpret_cast<uint64_t>(tensor->data) + tensor->byte_offset;
  view->ndim = tensor->ndim;
  const Int size = operand.bits / 8;
  Int bytes = size;
  for (int axis = 0; axis < view->ndim; ++axis) {
    const Int extent = view->shape[axis] = tensor->shape[axis];
    if (extent < 0) return fail(kRefused, name + " must have no negative extents (got " + number(extent) + ")");
    if (extent > kMostBytes / bytes)
      return fail(kRefused, name + " must be of at most 2^56 bytes (got shape " + tuple_of(tensor->shape, view->ndim) +
                                "). Pass it in parts");
    bytes *= most(extent, 1);
  }
  view->alignment = greatest_divisor(32, static_cast<Int>(view->address % 32));
  Int step = size;
  for (int axis = view->ndim - 1; axis >= 0; --axis) {
    view->strides[axis] = step;
    if (tensor->strides != nullptr && __builtin_mul_overflow(tensor->strides[axis], size, &view->strides[axis]))
      return fail(kRefused, name + " must have strides of less than 2^63 bytes (got " + number(tensor->strides[axis]) +
                                " elements)");
    view->alignment = greatest_divisor(view->alignment, view->strides[axis]);
    step *= most(view->shape[axis], 1);
  }
  return kFine;
}

Int bytes_of(const Operand& operand, const View& view) {
  Int bytes = operand.bits / 8;
  for (int axis = 0; axis < view.ndim; ++axis) bytes *= view.shape[axis];
  return bytes;
}

bool is_dense(const Operand& operand, const View& view) {
  Int step = operand.bits / 8;
  if (bytes_of(operand, view) == 0) return true;
  for (int axis = view.ndim - 1; axis >= 0; --axis) {
    if (view.shape[axis] > 1 && view.strides[axis] != step) return false;
    step *= view.shape[axis];
  }
  return true;
}

// The address of an array's first byte, and of the one behind its last.
std::pair<uint64_t, uint64_t> span_of(const Operand& operand, const View& view) {
  uint64_t low = view.address, high = view.address + operand.bits / 8;
  for (int axis = 0; axis < view.ndim; ++axis) {
    if (view.shape[axis] == 0) return {0, 0};
    const uint64_t steps = view.shape[axis] - 1;  // unsigned: beyond 2^64 is no memory
    (view.strides[axis] < 0 ? low : high) += steps * static_cast<uint64_t>(view.strides[axis]);
  }
  return {low, high};
}

const Rank* rank_of(const Spec& spec, int axes) {
  std::string known;
  for (int place = 0; place < spec.rank_count; ++place) {
    if (spec.ranks[place].axes == axes) return &spec.ranks[place];
    known += (place ? ", " : "") + std::to_string(spec.ranks[place].axes);
  }
  fail(kRefused, std::string(spec.operands[0].name) + " must have as many axes as " + spec.name +
                     " was exported for: " + known + " (got " + std::to_string(axes) + ")");
  return nullptr;
}

struct Call {
  View arrays[kMostArrays];
  Problem problem;
};

// Refuses an array that has too few axes, or too many.
int misfit(const Rank& rank, int place, const View* arrays) {
  std::string words;
  rank.misfits[place](arrays, &words);
  return fail(kRefused, words);
}

int check_array(const Spec& spec, int place, const Rank& rank, const View* expected, const DLTensor* const* tensors,
                const View* arrays) {
  const View& view = arrays[place];
  const Operand& operand = spec.operands[place];
  const std::string name = operand.name;
  if (place > 0 && view.ndim != expected[place - 1].ndim) return misfit(rank, place, arrays);
  if (rank.dense && !is_dense(operand, view))
    return fail(kRefused, name + " must be contiguous (got strides in bytes " + tuple_of(view.strides, view.ndim) +
                              " at shape " + tuple_of(view.shape, view.ndim) + ")");
  if (operand.kind < 0 && tensors[place]->dtype.code != tensors[0]->dtype.code)
    return fail(kRefused, name + " must hold " + words_for(tensors[0]->dtype, true) + " elements (got " +
                              words_for(tensors[place]->dtype, true) + other_elements(operand));
  return kFine;
}

int check_memory(const Spec& spec, const Call& call) {
  for (int place = 0; place < spec.arrays; ++place)
    if (call.arrays[place].address == 0 && bytes_of(spec.operands[place], call.arrays[place]) != 0)
      return missing(spec.operands[place].name);
  return kFine;
}

int check_overlap(const Spec& spec, const Call& call) {
  for (int one = 0; one < spec.arrays; ++one)
    for (int other = one + 1; other < spec.arrays; ++other) {
      if (!spec.operands[one].written && !spec.operands[other].written) continue;
      const auto a = span_of(spec.operands[one], call.arrays[one]);
      const auto b = span_of(spec.operands[other], call.arrays[other]);
      if (a.first < b.second && b.first < a.second)
        return fail(kRefused, std::string(spec.operands[other].name) + " must not overlap " + spec.operands[one].name +
                                  " (got " + hexadecimal(call.arrays[other].address) + ")");
    }
  return kFine;
}

// Reads the arrays of a call, and measures them.
int prepare(const Spec& spec, const DLTensor* const* tensors, const Int* parameters, Call* call) {
  for (int place = 0; place < spec.arrays; ++place)
    if (const int status = read(spec.operands[place], tensors[place], &call->arrays[place])) return status;
  const Rank* rank = rank_of(spec, call->arrays[0].ndim);
  if (rank == nullptr) return spec.ranks[0].misfits[0] ? misfit(spec.ranks[0], 0, call->arrays) : kRefused;
  View expected[kMostArrays];
  std::string words;
  if (rank->others(call->arrays, expected, &words) < 0) return fail(kRefused, words);
  for (int place = 0; place < spec.arrays; ++place)
    if (const int status = check_array(spec, place, *rank, expected, tensors, call->arrays)) return status;
  Problem& p = call->problem;
  for (int place = 0; place < spec.parameter_count; ++place) {
    if (parameters[place] < 0 || parameters[place] >= Int(1) << 31)
      return fail(kRefused, std::string(spec.parameter_names[place]) +
                                " must be a whole number, not negative and below 2^31 (got " +
                                number(parameters[place]) + ")");
    p.sizes[spec.parameters[place]] = parameters[place];
  }
  p.structure = rank->measure(call->arrays, p.sizes, &words);
  if (p.structure < 0) return fail(kRefused, words);
  for (int place = 0; place < spec.arrays; ++place)
    if (bytes_of(spec.operands[place], call->arrays[place]) > kWidest)
      p.alignment = greatest_divisor(p.alignment, static_cast<Int>(call->arrays[place].address % kWidest));
  return kFine;
}

// ---- The driver -----------------------------------------------------------------------------------------------------

struct Driver {
  int (*cuInit)(unsigned);
  int (*cuDeviceGet)(int*, int);
  int (*cuDeviceGetCount)(int*);
  int (*cuDeviceGetName)(char*, int, int);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuCtxGetCurrent)(void**);
  int (*cuCtxPushCurrent_v2)(void*);
  int (*cuCtxPopCurrent_v2)(void**);
  int (*cuCtxGetDevice)(int*);
  int (*cuModuleLoadData)(void**, const void*);
  int (*cuModuleGetFunction)(void**, void*, const char*);
  int (*cuFuncSetAttribute)(void*, int, int);
  int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**);
  int (*cuLaunchCooperativeKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                                   void**);
  int (*cuMemAlloc_v2)(uint64_t*, size_t);
  int (*cuMemFree_v2)(uint64_t);
  int (*cuMemsetD8Async)(uint64_t, unsigned char, size_t, void*);
  int (*cuStreamIsCapturing)(void*, int*);
  int (*cuStreamGetId)(void*, unsigned long long*);
  int (*cuGetErrorString)(int, const char**);
  std::string missing;  // why there is none
};

Driver load_driver() {
  Driver made{};
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    made.missing = "There is no CUDA driver on this machine: libcuda.so.1 cannot be loaded. Install NVIDIA's driver";
    return made;
  }
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) made.missing = std::string("The CUDA driver lacks ") + name + ". Install a later one";
  };
#define GEN_FIND(name) find(made.name, #name)
  GEN_FIND(cuInit);
  GEN_FIND(cuDeviceGet);
  GEN_FIND(cuDeviceGetCount);
  GEN_FIND(cuDeviceGetName);
  GEN_FIND(cuDeviceGetAttribute);
  GEN_FIND(cuDevicePrimaryCtxRetain);
  GEN_FIND(cuCtxGetCurrent);
  GEN_FIND(cuCtxPushCurrent_v2);
  GEN_FIND(cuCtxPopCurrent_v2);
  GEN_FIND(cuCtxGetDevice);
  GEN_FIND(cuModuleLoadData);
  GEN_FIND(cuModuleGetFunction);
  GEN_FIND(cuFuncSetAttribute);
  GEN_FIND(cuLaunchKernel);
  GEN_FIND(cuLaunchCooperativeKernel);
  GEN_FIND(cuMemAlloc_v2);
  GEN_FIND(cuMemFree_v2);
  GEN_FIND(cuMemsetD8Async);
  GEN_FIND(cuStreamIsCapturing);
  GEN_FIND(cuStreamGetId);
  GEN_FIND(cuGetErrorString);
#undef GEN_FIND
  if (made.missing.empty() && made.cuInit(0) != 0)
    made.missing = "The CUDA driver finds no GPU that it can use. nvidia-smi says what there is";
  return made;
}

const Driver& driver() {
  static const Driver loaded = load_driver();
  return loaded;
}

int driver_failed(const char* function, int status) {
  const char* words = nullptr;
  driver().cuGetErrorString(status, &words);
  return fail(kDriverFailed, std::string("The GPU reports an error in ") + function + " (got " +
                                 (words != nullptr ? words : "error " + std::to_string(status)) + ")");
}

#define GEN_CALL(function, ...) \
  if (const int status_of_call = driver().function(__VA_ARGS__)) return driver_failed(#function, status_of_call)

// Attributes of devices and functions, by the driver's numbers.
constexpr int kClockRate = 13, kMultiprocessors = 16, kIntegrated = 18, kMemoryClockRate = 36, kBusWidth = 37;
constexpr int kMajor = 75, kMinor = 76, kDynamicSharedBytes = 8;

struct Arena { uint64_t address = 0; size_t size = 0; };

// Memory for the launches on a stream; what must be zero between calls apart. Whoever launches with it holds it, so that
// the launches of a call stay together. A thread waits for `held` only where another uses the same stream.
struct Scratch {
  std::mutex held;
  Arena plain, zeroed;
  bool captured = false;  // a graph holds its addresses
};

struct Function { void* handle = nullptr; Int shared_bytes = 0; };

// A context of the driver, with what the library has loaded and allocated in it.
struct Context {
  int capability = 0;
  std::string name;
  Limits limits;
  std::map<const Code*, void*> modules;
  std::map<std::pair<const Code*, const char*>, Function> functions;
  std::map<uint64_t, std::shared_ptr<Scratch>> scratch;  // by the number of the stream, which no later one gets
};

std::mutex contexts_mutex;  // of the maps; what they hold stays where it is
std::map<void*, Context> contexts;
std::map<int, void*> primary_contexts;  // by device: each is retained once

// Makes a context of a device current while it lives, unless one is. A device of -1 is the current one, else the first.
struct Entered {
  void* context = nullptr;
  bool pushed = false;
  int enter(int wanted) {
    if (!driver().missing.empty()) return fail(kNoDriver, driver().missing);
    GEN_CALL(cuCtxGetCurrent, &context);
    int current = -1;
    if (context != nullptr) GEN_CALL(cuCtxGetDevice, &current);
    if (context != nullptr && (wanted < 0 || wanted == current)) return kFine;
    int device = 0, count = 0;
    GEN_CALL(cuDeviceGetCount, &count);
    if (wanted >= count || count == 0)
      return fail(kNoDevice, "The device must be a GPU of this machine, which has " + std::to_string(count) +
                                 " (got number " + std::to_string(wanted) + ")");
    GEN_CALL(cuDeviceGet, &device, wanted < 0 ? 0 : wanted);
    static thread_local struct { int device = -1; void* context; } last;
    if (last.device != device) {
      const std::lock_guard<std::mutex> alone(contexts_mutex);
      void*& primary = primary_contexts[device];
      if (primary == nullptr) GEN_CALL(cuDevicePrimaryCtxRetain, &primary, device);
      last = {device, primary};
    }
    context = last.context;
    GEN_CALL(cuCtxPushCurrent_v2, context);
    pushed = true;
    return kFine;
  }
  ~Entered() {
    void* left;
    if (pushed) driver().cuCtxPopCurrent_v2(&left);
  }
};

// What the driver says of the current device; `usual` stands for what it does not say.
int describe(void* handle, const Limits& usual, Context** found) {
  const std::lock_guard<std::mutex> alone(contexts_mutex);
  const auto known = contexts.find(handle);
  if (known != contexts.end()) {
    *found = &known->second;
    return kFine;
  }
  int device = 0, major = 0, minor = 0;
  char name[256] = "";
  GEN_CALL(cuCtxGetDevice, &device);
  GEN_CALL(cuDeviceGetName, name, sizeof name, device);
  GEN_CALL(cuDeviceGetAttribute, &major, kMajor, device);
  GEN_CALL(cuDeviceGetAttribute, &minor, kMinor, device);
  const auto ask = [&](int attribute) {
    int value = 0;
    return driver().cuDeviceGetAttribute(&value, attribute, device) == 0 ? value : 0;
  };
  Context& made = contexts[handle];
  made.capability = 10 * major + minor;
  made.name = name;
  made.limits = usual;
  if (const int count = ask(kMultiprocessors)) made.limits.multiprocessors = count;
  if (const int kilohertz = ask(kClockRate)) made.limits.clock_hz = 1e3 * kilohertz;
  // An integrated GPU shares the host's memory, of whose clock and width drivers say nothing.
  const int width = ask(kIntegrated) ? 0 : ask(kBusWidth) / 8;
  const double bandwidth = 2e3 * ask(kMemoryClockRate) * width;
  if (bandwidth > 0) made.limits.memory_bytes_per_second = bandwidth;
  *found = &made;
  return kFine;
}

bool runs_on(const Code& code, int capability) {
  if (code.exact) return code.capability == capability;
  return code.capability <= capability && (code.ptx || code.capability / 10 == capability / 10);
}

const Code* code_of(const Spec& spec, int variant, int capability) {
  const Code* found = nullptr;
  for (int place = 0; place < spec.code_count; ++place) {
    const Code& code = spec.codes[place];
    if (code.variant != variant || !runs_on(code, capability)) continue;
    if (found == nullptr || found->ptx > code.ptx || (found->ptx == code.ptx && found->capability < code.capability))
      found = &code;
  }
  return found;
}

// The target whose code a device runs: of the latest architecture; one of the device's own name before others. -1: none.
int target_of(const Spec& spec, int capability, const char* name) {
  int found = -1;
  for (int place = 0; place < spec.target_count; ++place) {
    const Target& target = spec.targets[place];
    if (target.device[0] != '\0' && strcmp(target.device, name) != 0) continue;
    bool able = false;
    for (int code = 0; code < spec.code_count; ++code)
      able |= spec.codes[code].capability == target.capability && runs_on(spec.codes[code], capability);
    if (!able) continue;
    const Target* best = found < 0 ? nullptr : &spec.targets[found];
    if (best == nullptr || best->capability < target.capability ||
        (best->capability == target.capability && target.device[0] != '\0'))
      found = place;
  }
  return found;
}

int no_code(const Spec& spec, const Context& context) {
  std::string known;
  for (int place = 0; place < spec.target_count; ++place)
    if (spec.targets[place].device[0] == '\0') known += (known.empty() ? "" : ", ") + std::string(spec.targets[place].arch);
  return fail(kNoDevice, std::string(spec.name) + " has code for " + known + " (got " + context.name + ", sm_" +
                             std::to_string(context.capability) + "). Export it again with another --arch, or --ptx");
}

// A function with as much dynamic shared memory as a launch takes, loaded if it is not.
int load_function(Context& context, const Spec& spec, const Code& code, const Plan::Step& step, Function* loaded) {
  const std::lock_guard<std::mutex> alone(contexts_mutex);
  Function& found = context.functions[{&code, step.entry}];
  if (found.handle == nullptr) {
    void*& module = context.modules[&code];
    if (module == nullptr) GEN_CALL(cuModuleLoadData, &module, code_begin + code.offset);
    const std::string symbol = std::string(spec.variants[code.variant].name) + step.entry;
    GEN_CALL(cuModuleGetFunction, &found.handle, module, symbol.c_str());
  }
  if (step.shared_bytes > found.shared_bytes) {
    GEN_CALL(cuFuncSetAttribute, found.handle, kDynamicSharedBytes, static_cast<int>(step.shared_bytes));
    found.shared_bytes = step.shared_bytes;
  }
  *loaded = found;
  return kFine;
}

// The functions of a plan's launches, in their order; those of launches without blocks are not looked up. What a thread
// has launched it finds again without a lock, unless another function has since taken its place.
int functions_of(Context& context, const Spec& spec, const Code& code, const Plan& plan, void** handles) {
  struct Seen { const Context* context; const Code* code; const char* entry; Function function; };
  constexpr uintptr_t kPlaces = 64;
  static thread_local Seen seen_here[kPlaces];
  for (int place = 0; place < plan.steps; ++place) {
    const Plan::Step& step = plan.step[place];
    if (!step.launches()) continue;
    const uintptr_t key = reinterpret_cast<uintptr_t>(&code) / sizeof(Code) + reinterpret_cast<uintptr_t>(step.entry);
    Seen& seen = seen_here[key % kPlaces];
    if (seen.context != &context || seen.code != &code || seen.entry != step.entry ||
        step.shared_bytes > seen.function.shared_bytes) {
      seen.code = nullptr;
      if (const int status = load_function(context, spec, code, step, &seen.function)) return status;
      seen.context = &context, seen.code = &code, seen.entry = step.entry;
    }
    handles[place] = seen.function.handle;
  }
  return kFine;
}

// ---- Scratch memory -------------------------------------------------------------------------------------------------

constexpr size_t kPart = 256;       // bytes, of which every buffer in a workspace is a multiple
constexpr size_t kMostStreams = 64;  // beyond that the memory of the stream that came first is given back

enum Which { kPlain = 0, kZeroed = 1, kAll = 2 };

size_t part_of(Int bytes) { return (static_cast<size_t>(bytes) + kPart - 1) / kPart * kPart; }

size_t workspace_bytes(const Plan& plan, Which which) {
  size_t total = 0;
  for (int place = 0; place < plan.buffers; ++place)
    if (which == kAll || plan.zeroed[place] == (which == kZeroed)) total += part_of(plan.buffer_bytes[place]);
  return total;
}

// Gives memory back, unless a graph holds its address; waits for what still uses it.
int give_up(const Scratch& scratch, Arena* arena) {
  const uint64_t address = arena->address;
  *arena = {};
  if (address != 0 && !scratch.captured) GEN_CALL(cuMemFree_v2, address);
  return kFine;
}

int grow(const Scratch& scratch, Arena* arena, size_t size, bool zero, bool capturing, void* stream) {
  if (arena->size >= size) return kFine;
  if (capturing)
    return fail(kRefused, "The scratch memory must be there before a graph is captured. Call it once before");
  if (const int status = give_up(scratch, arena)) return status;
  uint64_t address = 0;
  if (driver().cuMemAlloc_v2(&address, size) != 0)
    return fail(kDriverFailed, "The GPU's memory does not hold " + std::to_string(size) + " bytes more");
  *arena = {address, size};
  if (zero) GEN_CALL(cuMemsetD8Async, address, 0, size, stream);
  return kFine;
}

// What the library keeps for a stream; that of the stream on which a thread launched last, it finds without a lock.
int scratch_of(Context& context, void* stream, Scratch** found) {
  struct Last { const Context* context; unsigned long long id; std::shared_ptr<Scratch> scratch; };
  static thread_local Last last{};
  unsigned long long id = 0;
  GEN_CALL(cuStreamGetId, stream, &id);
  if (last.context == &context && last.id == id && last.scratch != nullptr) {
    *found = last.scratch.get();
    return kFine;
  }
  const std::lock_guard<std::mutex> alone(contexts_mutex);
  std::shared_ptr<Scratch>& kept = context.scratch[id];
  if (kept == nullptr) kept = std::make_shared<Scratch>();
  last = {&context, id, kept};
  *found = kept.get();
  if (context.scratch.size() <= kMostStreams) return kFine;
  auto first = context.scratch.begin();
  while (first != context.scratch.end() && first->second.use_count() > 1) ++first;  // a thread's last
  if (first == context.scratch.end()) return kFine;
  const std::shared_ptr<Scratch> left = first->second;
  context.scratch.erase(first);
  const int status = give_up(*left, &left->plain);
  const int other = give_up(*left, &left->zeroed);
  return status ? status : other;
}

// Addresses of the scratch buffers, of which those that are zeroed lie apart.
void place_buffers(const Plan& plan, uint64_t plain, uint64_t zeroed, uint64_t* slots) {
  uint64_t next[] = {plain, zeroed};
  for (int place = 0; place < plan.buffers; ++place) {
    slots[place] = next[plan.zeroed[place]];
    next[plan.zeroed[place]] += part_of(plan.buffer_bytes[place]);
  }
}

// ---- Calls ----------------------------------------------------------------------------------------------------------

int queue(Plan& plan, void* const* functions, uint64_t* slots, void* stream) {
  void* pointers[kMostArguments];
  for (int place = 0; place < plan.steps; ++place) {
    const Plan::Step& step = plan.step[place];
    void* const function = functions[place];
    for (Int time = 0; time < step.times; ++time) {
      for (int a = step.first_argument; a < step.first_argument + step.arguments; ++a) {
        Plan::Argument& argument = plan.argument[a];
        pointers[a] = argument.slot < 0 ? static_cast<void*>(argument.bytes) : static_cast<void*>(&slots[argument.slot]);
      }
      if (step.launches() && step.cooperative) {
        GEN_CALL(cuLaunchCooperativeKernel, function, static_cast<unsigned>(step.grid[0]),
                 static_cast<unsigned>(step.grid[1]), static_cast<unsigned>(step.grid[2]), step.block[0], step.block[1],
                 step.block[2], static_cast<unsigned>(step.shared_bytes), stream, pointers + step.first_argument);
      } else if (step.launches()) {
        GEN_CALL(cuLaunchKernel, function, static_cast<unsigned>(step.grid[0]), static_cast<unsigned>(step.grid[1]),
                 static_cast<unsigned>(step.grid[2]), step.block[0], step.block[1], step.block[2],
                 static_cast<unsigned>(step.shared_bytes), stream, pointers + step.first_argument, nullptr);
      }
      for (int s = step.first_swap; s < step.first_swap + step.swaps; ++s)
        std::swap(slots[plan.swapped[s][0]], slots[plan.swapped[s][1]]);
    }
  }
  return kFine;
}

// Launches with scratch buffers in the caller's workspace, where what must be zero is zeroed first.
int queue_in_workspace(const Spec& spec, Plan& plan, void* const* functions, void* workspace, size_t size, void* stream,
                       uint64_t* slots) {
  const size_t needed = workspace_bytes(plan, kAll), zeros = workspace_bytes(plan, kZeroed);
  const uint64_t first = reinterpret_cast<uint64_t>(workspace);
  if (size < needed)
    return fail(kRefused,
                "The workspace must have " + std::to_string(needed) + " bytes (got " + std::to_string(size) + ")");
  if (first % kPart != 0) return fail(kRefused, "The workspace must begin at a multiple of 256 bytes");
  if (zeros > 0) GEN_CALL(cuMemsetD8Async, first, 0, zeros, stream);
  place_buffers(plan, first + zeros, first, slots + spec.arrays);
  return queue(plan, functions, slots, stream);
}

// Launches with scratch buffers that the library keeps for the stream; launches leave zero what was zeroed.
int queue_in_scratch(Context& context, const Spec& spec, Plan& plan, void* const* functions, void* stream,
                     uint64_t* slots) {
  int capturing = 0;
  Scratch* scratch = nullptr;
  GEN_CALL(cuStreamIsCapturing, stream, &capturing);
  if (const int status = scratch_of(context, stream, &scratch)) return status;
  const std::lock_guard<std::mutex> alone(scratch->held);
  Arena &plain = scratch->plain, &zeroed = scratch->zeroed;
  const size_t bytes = workspace_bytes(plan, kPlain), zeros = workspace_bytes(plan, kZeroed);
  if (const int status = grow(*scratch, &plain, bytes, false, capturing, stream)) return status;
  if (const int status = grow(*scratch, &zeroed, zeros, true, capturing, stream)) return status;
  scratch->captured |= capturing != 0;
  place_buffers(plan, plain.address, zeroed.address, slots + spec.arrays);
  const int status = queue(plan, functions, slots, stream);
  if (status != kFine) zeroed = {};  // a call that ended in its midst may have left anything there
  return status;
}

int make_plan(const Spec& spec, int target, const Call& call, const Limits& limits, Plan* plan, int* variant) {
  *variant = choose(spec, target, call.problem, limits);
  if (*variant < 0) return kRefused;
  spec.variants[*variant].plan(call.problem.sizes, limits, *plan);
  return kFine;
}

// What the current device gets, with its context current.
int plan_here(const Spec& spec, const Entered& entered, const Call& call, Context** context, Plan* plan, int* variant) {
  struct Last { void* handle; const Spec* spec; Context* context; int target; };
  static thread_local Last last{};  // most calls are like the thread's last
  if (last.handle != entered.context || last.spec != &spec) {
    Context* found = nullptr;
    if (const int status = describe(entered.context, spec.targets[0].limits, &found)) return status;
    const int target = target_of(spec, found->capability, found->name.c_str());
    if (target < 0) return no_code(spec, *found);
    last = {entered.context, &spec, found, target};
  }
  *context = last.context;
  return make_plan(spec, last.target, call, last.context->limits, plan, variant);
}

int run(const Spec& spec, const DLTensor* const* tensors, const Int* parameters, int device, void* workspace,
        size_t size, void* stream) {
  Call call;
  if (const int status = prepare(spec, tensors, parameters, &call)) return status;
  if (const int status = check_memory(spec, call)) return status;
  if (const int status = check_overlap(spec, call)) return status;
  Entered entered;
  if (const int status = entered.enter(device)) return status;
  Context* context = nullptr;
  Plan plan;
  int variant = -1;
  if (const int status = plan_here(spec, entered, call, &context, &plan, &variant)) return status;
  const Code* code = code_of(spec, variant, context->capability);
  if (code == nullptr) return no_code(spec, *context);
  void* functions[kMostSteps];
  if (const int status = functions_of(*context, spec, *code, plan, functions)) return status;
  uint64_t slots[kMostArrays + kMostSlots];
  for (int place = 0; place < spec.arrays; ++place) slots[place] = call.arrays[place].address;
  if (plan.buffers == 0) return queue(plan, functions, slots, stream);
  return workspace != nullptr ? queue_in_workspace(spec, plan, functions, workspace, size, stream, slots)
                              : queue_in_scratch(*context, spec, plan, functions, stream, slots);
}

int run_tensors(const Spec& spec, const DLTensor* const* tensors, const Int* parameters, void* stream) {
  for (int place = 0; place < spec.arrays; ++place) {
    const Operand& operand = spec.operands[place];
    if (tensors[place] == nullptr) return missing(operand.name);
    const int number = tensors[place]->device.device_id, wanted = tensors[0]->device.device_id;
    if (number != wanted)
      return fail(kRefused, std::string(operand.name) + " must be on device " + std::to_string(wanted) + ", as " +
                                spec.operands[0].name + " is (got device " + std::to_string(number) + ")");
  }
  return run(spec, tensors, parameters, tensors[0]->device.device_id, nullptr, 0, stream);
}

// Contiguous arrays of which only addresses and the first one's shape are told.
struct Dense {
  DLTensor tensors[kMostArrays];
  const DLTensor* pointers[kMostArrays];
  View others[kMostArrays];  // of all but the first
  Int shape[kMostAxes];

  int make(const Spec& spec, const void* const* addresses, const Int* first, int ndim) {
    if (first == nullptr && ndim > 0) return missing("shape");
    if (ndim < 0 || ndim > kMostAxes)
      return fail(kRefused, "ndim must be from 0 to 8 (got " + std::to_string(ndim) + ")");
    View view;
    view.ndim = ndim;
    for (int axis = 0; axis < ndim; ++axis) view.shape[axis] = shape[axis] = first[axis];
    const Rank* rank = rank_of(spec, ndim);
    if (rank == nullptr) return kRefused;
    std::string words;
    if (rank->others(&view, others, &words) < 0) return fail(kRefused, words);
    for (int place = 0; place < spec.arrays; ++place) {
      const Operand& operand = spec.operands[place];
      DLTensor& made = tensors[place];
      memset(&made, 0, sizeof made);
      made.data = const_cast<void*>(addresses[place]);
      made.device.device_type = static_cast<decltype(made.device.device_type)>(kDeviceCuda);
      made.dtype.code = static_cast<uint8_t>(operand.kind < 0 ? 3 : operand.kind);
      made.dtype.bits = static_cast<uint8_t>(operand.bits);
      made.dtype.lanes = 1;
      made.ndim = place == 0 ? ndim : others[place - 1].ndim;
      made.shape = place == 0 ? shape : others[place - 1].shape;
      pointers[place] = &made;
    }
    return kFine;
  }
};

int run_pointers(const Spec& spec, const void* const* addresses, const Int* shape, int ndim, const Int* parameters,
                 void* workspace, size_t size, void* stream) {
  Dense dense;
  if (const int status = dense.make(spec, addresses, shape, ndim)) return status;
  return run(spec, dense.pointers, parameters, -1, workspace, size, stream);
}

// What a device gets: an architecture or a device by name, as it was exported for; null: the current device.
int plan_for(const Spec& spec, const char* device, const Call& call, Plan* plan, int* variant) {
  if (device == nullptr) {
    Entered entered;
    if (const int status = entered.enter(-1)) return status;
    Context* context = nullptr;
    return plan_here(spec, entered, call, &context, plan, variant);
  }
  std::string known;
  for (int place = 0; place < spec.target_count; ++place) {
    const Target& target = spec.targets[place];
    const char* name = target.device[0] == '\0' ? target.arch : target.device;
    if (strcmp(name, device) == 0) return make_plan(spec, place, call, target.limits, plan, variant);
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return fail(kRefused, "device must be null or one of " + known + " (got " + device + ")");
}

thread_local std::string told_launches;

std::string words_for(const Spec& spec, const Plan& plan, const Plan::Step& step) {
  const Int block[3] = {step.block[0], step.block[1], step.block[2]};
  std::string text = std::string(step.entry) + "<<<" + tuple_of(step.grid, 3) + ", " + tuple_of(block, 3) + ", " +
                     number(step.shared_bytes) + ">>>(";
  for (int a = step.first_argument; a < step.first_argument + step.arguments; ++a) {
    const int slot = plan.argument[a].slot;
    text += a > step.first_argument ? ", " : "";
    text += slot < 0              ? number(plan.argument[a].value)
            : slot < spec.arrays ? spec.operands[slot].name
                                 : "scratch" + std::to_string(slot - spec.arrays);
  }
  text += (step.cooperative ? ") cooperative " : ") ") + number(step.times) + " times";
  for (int s = step.first_swap; s < step.first_swap + step.swaps; ++s)
    text += ", swap " + std::to_string(plan.swapped[s][0]) + " " + std::to_string(plan.swapped[s][1]);
  return text + "\n";
}

template <typename Told>
int tell(const Spec& spec, const DLTensor* const* tensors, const Int* parameters, const char* device, Told* told) {
  Call call;
  Plan plan;
  int variant = -1;
  if (told == nullptr) return missing("choice");
  if (const int status = prepare(spec, tensors, parameters, &call)) return status;
  if (const int status = plan_for(spec, device, call, &plan, &variant)) return status;
  told_launches.clear();
  for (int place = 0; place < plan.steps; ++place) told_launches += words_for(spec, plan, plan.step[place]);
  told->variant = spec.variants[variant].name;
  told->launches = told_launches.c_str();
  told->workspace_bytes = workspace_bytes(plan, kAll);
  return kFine;
}

int tell_workspace(const Spec& spec, const Int* shape, int ndim, const Int* parameters, size_t* bytes) {
  if (bytes == nullptr) return missing("bytes");
  const void* nowhere[kMostArrays] = {};
  Dense dense;
  Call call;
  Plan plan;
  int variant = -1;
  if (const int status = dense.make(spec, nowhere, shape, ndim)) return status;
  if (const int status = prepare(spec, dense.pointers, parameters, &call)) return status;
  if (const int status = plan_for(spec, nullptr, call, &plan, &variant)) return status;
  *bytes = workspace_bytes(plan, kAll);
  return kFine;
}

int tell_results(const Spec& spec, const Int* shape, int ndim, Int (*results)[kMostAxes], int* ndims) {
  const void* nowhere[kMostArrays] = {};
  Dense dense;
  if (results == nullptr) return missing("results");
  if (ndims == nullptr) return missing("ndims");
  if (const int status = dense.make(spec, nowhere, shape, ndim)) return status;
  for (int place = spec.inputs; place < spec.arrays; ++place) {
    const View& one = dense.others[place - 1];
    ndims[place - spec.inputs] = one.ndim;
    for (int axis = 0; axis < one.ndim; ++axis) results[place - spec.inputs][axis] = one.shape[axis];
  }
  return kFine;
}

}  // namespace
