// A stand-in for NVIDIA's driver that writes down what an exported library asks of it, and launches nothing. Built as
// libcuda.so.1. Streams are numbers; what it is to refuse, and which stream is being captured, stub_set says. Loaded before
// all others (LD_PRELOAD), it counts how often the library locks a mutex, and how often it allocates.
#include <dlfcn.h>
#include <pthread.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

namespace {
int primary;
thread_local void* current = nullptr;
std::mutex mutex;
std::string log_of_calls;
uint64_t next_address = 1ull << 50;
int refused = 0;           // the status of launches
void* captured = nullptr;  // the stream that is being captured
int major = 9;             // of the compute capability
thread_local bool counting = false;
thread_local int locks = 0, allocations = 0;

int note(const std::string& words) {
  const bool before = counting;
  counting = false;
  {
    const std::lock_guard<std::mutex> alone(mutex);
    log_of_calls += words + "\n";
  }
  counting = before;
  return 0;
}
std::string number(uint64_t value) { return std::to_string(value); }
}  // namespace

extern "C" {
void* __libc_malloc(size_t);
void* malloc(size_t size) {
  allocations += counting;
  return __libc_malloc(size);
}
int pthread_mutex_lock(pthread_mutex_t* one) noexcept {
  static const auto usual = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  locks += counting;
  return usual(one);
}
// Calls a function of an exported library, and tells what that took of the host.
int stub_counted(int (*function)(const void*, const void*, void*), const void* in, const void* out, void* stream,
                 int* locks_taken, int* allocations_made) {
  locks = allocations = 0;
  counting = true;
  const int status = function(in, out, stream);
  counting = false;
  *locks_taken = locks, *allocations_made = allocations;
  return status;
}
// Makes a context current in this thread, of a device of this compute capability.
void stub_enter(void* context, int major_of_it) { current = context, major = major_of_it; }
void stub_set(int status, void* stream) { refused = status, captured = stream; }
const char* stub_log() {
  static std::string told;
  told.swap(log_of_calls);
  log_of_calls.clear();
  return told.c_str();
}
int cuInit(unsigned) { return 0; }
int cuDeviceGet(int* device, int number) { return *device = number, 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuDeviceGetName(char* name, int size, int) { return snprintf(name, size, "Stub GPU"), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) { return *value = attribute == 75 ? major : attribute == 16 ? 132 : 0, 0; }
int cuDevicePrimaryCtxRetain(void** context, int) { return *context = &primary, note("retain"); }
int cuCtxGetCurrent(void** context) { return *context = current, 0; }
int cuCtxPushCurrent_v2(void* context) { return current = context, 0; }
int cuCtxPopCurrent_v2(void** context) { return *context = current, current = nullptr, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuModuleLoadData(void** module, const void* image) { return *module = const_cast<void*>(image), note("module"); }
int cuModuleGetFunction(void** function, void*, const char* name) { return *function = strdup(name), 0; }
int cuFuncSetAttribute(void*, int, int value) { return note("shared " + std::to_string(value)); }
int cuLaunchKernel(void* name, unsigned x, unsigned y, unsigned z, unsigned, unsigned, unsigned, unsigned, void* stream, void**,
                   void**) {
  const bool before = counting;
  counting = false;
  const std::string grid = "(" + number(x) + ", " + number(y) + ", " + number(z) + ")";
  note(std::string("launch ") + static_cast<char*>(name) + " " + grid + " on " + number(reinterpret_cast<uint64_t>(stream)));
  counting = before;
  return refused;
}
int cuLaunchCooperativeKernel(void* name, unsigned x, unsigned y, unsigned z, unsigned, unsigned, unsigned, unsigned,
                              void* stream, void**) {
  return cuLaunchKernel(name, x, y, z, 0, 0, 0, 0, stream, nullptr, nullptr);
}
int cuMemAlloc_v2(uint64_t* address, size_t size) {
  *address = next_address += 1 << 30;
  return note("allocate " + number(size));
}
int cuMemFree_v2(uint64_t) { return note("free"); }
int cuMemsetD8Async(uint64_t, unsigned char, size_t size, void*) { return note("zero " + number(size)); }
int cuStreamIsCapturing(void* stream, int* status) { return *status = stream != nullptr && stream == captured, 0; }
int cuStreamGetId(void* stream, unsigned long long* id) { return *id = reinterpret_cast<uint64_t>(stream) + 100, 0; }
int cuPointerGetAttribute(void* ordinal, int, uint64_t) { return *static_cast<int*>(ordinal) = 0, 0; }
int cuGetErrorString(int, const char** words) { return *words = "invalid argument", 0; }
}
