// A stand-in for NVIDIA's driver on host memory, as far as gen/gpu/cuda.py calls it. What is queued is
// done at once, or becomes part of the graph that its stream is captured into. One kernel computes: add(to, what).
// Built as libcuda.so.1; handles are checked, and everything wants a context that is current.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

enum Result { kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kInvalidImage = 200, kInvalidContext = 201,
              kInvalidHandle = 400, kNotFound = 500,
              kPeerAlreadyEnabled = 704, kTooManyPeersError = 711, kNotCaptured = 900 };
constexpr int kOnDevice = 2, kAnywhere = 4;  // of memory that is copied
constexpr int kRelaxed = 2;  // of capture modes
constexpr size_t kTotal = 1ull << 36;  // bytes of memory

using Address = unsigned long long;
using Graph = std::vector<std::function<void()>>;
struct Stream { Graph* capturing = nullptr; Address id = 0; };
struct Event { unsigned flags = 0; double ms = -1; };
struct Function { std::string name; int dynamic_bytes = 0; };
struct Module { std::map<std::string, Function> functions; };

int primary;  // its address is the primary context's handle
thread_local std::vector<void*> current;
std::map<Address, size_t> memory;
size_t used = 0, pending = 2048;
double clock_ms = 0;
Address next_id = 10;
thread_local int capture_mode = 0;
char constant[64];
constexpr int kNoPeers = -1, kTooManyPeers = -2;
int ordinal_of_memory = 0;  // the number of the GPU that has all memory
bool pinned = true;  // whether memory of the host can be pinned
int peers = 0;  // how often access was enabled; the tests set it to one of these

int here() { return current.empty() ? kInvalidContext : kSuccess; }

Stream* made(void* stream) { return reinterpret_cast<Address>(stream) <= 2 ? nullptr : static_cast<Stream*>(stream); }

int queue(void* stream, std::function<void()> work) {
  Stream* own = made(stream);
  if (own && own->capturing) {
    own->capturing->push_back(work);
  } else {
    work();
  }
  return here();
}

}  // namespace

extern "C" {
void stub_set_peers(int value) { peers = value; }
void stub_set_pinned(int value) { pinned = value; }
void stub_set_ordinal(int value) { ordinal_of_memory = value; }
int cuInit(unsigned) { return kSuccess; }
int cuDriverGetVersion(int* version) { *version = 13000; return kSuccess; }
int cuDeviceGetCount(int* count) { *count = 1; return kSuccess; }
int cuDeviceGet(int* device, int index) { *device = index; return index && peers == 0 ? kInvalidValue : kSuccess; }
int cuDeviceGetName(char* name, int size, int) { snprintf(name, size, "Stub GPU"); return kSuccess; }
int cuDeviceGetUuid_v2(char* uuid, int) { memset(uuid, 0x11, 16); return kSuccess; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = attribute == 75 ? 9 : attribute == 16 ? 132 : attribute == 38 ? 4096 : 0;  // sm_90, 132, and a small cache
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) { *context = &primary; return kSuccess; }
int cuDevicePrimaryCtxRelease(int) { return kSuccess; }
int cuCtxGetCurrent(void** context) { *context = current.empty() ? nullptr : current.back(); return kSuccess; }
int cuCtxSetCurrent(void* context) {
  if (current.empty()) current.push_back(context);
  current.back() = context;
  return kSuccess;
}
int cuCtxPushCurrent(void* context) { current.push_back(context); return kSuccess; }
int cuCtxPopCurrent(void** context) { *context = current.back(); current.pop_back(); return kSuccess; }
int cuCtxGetDevice(int* device) { *device = 0; return here(); }
int cuCtxSynchronize() { return here(); }
int cuCtxGetLimit(size_t* value, int) { *value = pending; return here(); }
int cuCtxSetLimit(int, size_t value) { pending = value; return here(); }
int cuMemGetInfo(size_t* free_bytes, size_t* total) { *free_bytes = kTotal - used; *total = kTotal; return here(); }
int cuMemAlloc(Address* address, size_t size) {
  if (here() || capture_mode != kRelaxed) return kInvalidContext;
  if (size > kTotal - used) return kOutOfMemory;
  *address = reinterpret_cast<Address>(aligned_alloc(512, (size + 511) / 512 * 512));
  memory[*address] = size;
  used += size;
  return kSuccess;
}
int cuMemFree(Address address) {
  if (here() || !memory.count(address)) return kInvalidValue;
  used -= memory[address];
  memory.erase(address);
  free(reinterpret_cast<void*>(address));
  return kSuccess;
}
int cuMemHostAlloc(void** place, size_t size, unsigned flags) {
  *place = calloc(1, size);
  return flags == 2 || (flags == 0 && pinned) ? here() : kInvalidValue;  // CU_MEMHOSTALLOC_DEVICEMAP, or none
}
int cuMemHostGetDevicePointer(Address* address, void* place, unsigned) {
  *address = reinterpret_cast<Address>(place);
  return here();
}
int cuMemFreeHost(void* place) { free(place); return kSuccess; }
int cuMemcpyHtoD(Address to, const void* from, size_t n) { memcpy(reinterpret_cast<void*>(to), from, n); return here(); }
int cuMemcpyDtoH(void* to, Address from, size_t n) { memcpy(to, reinterpret_cast<void*>(from), n); return here(); }
int cuMemcpyHtoDAsync(Address to, const void* from, size_t n, void* stream) {
  std::string content(static_cast<const char*>(from), n);
  return queue(stream, [=] { memcpy(reinterpret_cast<void*>(to), content.data(), n); });
}
int cuMemcpyDtoHAsync(void* to, Address from, size_t n, void* stream) {
  return queue(stream, [=] { memcpy(to, reinterpret_cast<void*>(from), n); });
}
int cuMemcpyDtoDAsync(Address to, Address from, size_t n, void* stream) {
  return queue(stream, [=] { memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
}
struct Copied {  // CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER, whose fields differ in nothing but `context`, which the first ignores
  struct Side {
    size_t x, y, z, level; int kind; const void* host; Address device; void *array, *context; size_t pitch, height;
  } from, to;
  size_t width, height, depth;
};
int copy_rows(const Copied& copied, int kind, void* stream) {
  for (const Copied::Side* side : {&copied.from, &copied.to}) {
    if (side->kind != kind || side->x || side->y || side->z || side->pitch < copied.width) return kInvalidValue;
    if (copied.depth > 1 && side->height < copied.height) return kInvalidValue;
  }
  return queue(stream, [=] {
    for (size_t plane = 0; plane < copied.depth; ++plane) {
      for (size_t row = 0; row < copied.height; ++row) {
        const auto place = [=](const Copied::Side& side) {
          return reinterpret_cast<void*>(side.device + (plane * side.height + row) * side.pitch);
        };
        memcpy(place(copied.to), place(copied.from), copied.width);
      }
    }
  });
}
int cuMemcpy3DAsync(const Copied* copied, void* stream) {
  const int kind = copied->from.kind == kAnywhere ? kAnywhere : kOnDevice;
  return copy_rows(*copied, kind, stream);
}
int cuMemcpy3DPeerAsync(const Copied* copied, void* stream) {
  const bool known = copied->from.context == &primary && copied->to.context == &primary;
  if (made(stream) && made(stream)->capturing) return kNotCaptured;
  return known ? copy_rows(*copied, kOnDevice, stream) : kInvalidContext;
}
int cuMemcpyPeerAsync(Address to, void* there, Address from, void* here_too, size_t n, void* stream) {
  return there == &primary && here_too == &primary ? cuMemcpyDtoDAsync(to, from, n, stream) : kInvalidContext;
}
int cuDeviceCanAccessPeer(int* can, int, int) { *can = peers != kNoPeers; return kSuccess; }
int cuCtxEnablePeerAccess(void* context, unsigned) {
  if (here() || context != &primary) return kInvalidContext;
  if (peers == kTooManyPeers) return kTooManyPeersError;
  return ++peers == 1 ? kSuccess : kPeerAlreadyEnabled;
}
int cuMemsetD8Async(Address to, unsigned char value, size_t n, void* stream) {
  return queue(stream, [=] { memset(reinterpret_cast<void*>(to), value, n); });
}
int cuModuleLoadData(void** module, const void* image) {
  *module = new Module;
  return strncmp(static_cast<const char*>(image), "cubin", 5) ? kInvalidImage : here();
}
int cuModuleUnload(void* module) { delete static_cast<Module*>(module); return here(); }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (strstr(name, "none")) return kNotFound;
  Function& found = static_cast<Module*>(module)->functions[name];
  found.name = name;
  *function = &found;
  return here();
}
int cuModuleGetGlobal(Address* address, size_t* size, void*, const char*) {
  *address = reinterpret_cast<Address>(constant);
  *size = sizeof(constant);
  return here();
}
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  *value = attribute == 8 ? static_cast<Function*>(function)->dynamic_bytes : 10 + attribute;
  return here();
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute == 8) static_cast<Function*>(function)->dynamic_bytes = value;
  return here();
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t) {
  *blocks = 2048 / threads;
  return here();
}
int cuLaunchKernel(void* handle, unsigned, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared_bytes,
                   void* stream, void** arguments, void**) {
  const Function& function = *static_cast<Function*>(handle);
  if (threads > 1024 || static_cast<int>(shared_bytes) > function.dynamic_bytes) return kInvalidValue;
  clock_ms += 0.002;
  if (function.name != "add") return queue(stream, [] {});
  int* to = *static_cast<int**>(arguments[0]);
  const int what = *static_cast<int*>(arguments[1]);
  return queue(stream, [=] {
    for (unsigned i = 0; i < threads; ++i) to[i] += what;
  });
}
int cuLaunchCooperativeKernel(void* handle, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned deep, unsigned high,
                              unsigned shared_bytes, void* stream, void** arguments) {
  return cuLaunchKernel(handle, x, y, z, threads, deep, high, shared_bytes, stream, arguments, nullptr);
}
int cuStreamCreate(void** stream, unsigned) { *stream = new Stream{nullptr, ++next_id}; return here(); }
int cuCtxGetStreamPriorityRange(int* least, int* greatest) { *least = 0; *greatest = -5; return here(); }
int cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
  const bool right = flags == 0 && (priority == 0 || priority == -5);  // 0: in turn with the legacy default stream
  return right ? cuStreamCreate(stream, flags) : kInvalidValue;
}
int cuStreamDestroy(void* stream) { delete made(stream); return here(); }
int cuStreamSynchronize(void*) { return here(); }
int cuStreamWaitEvent(void*, void* event, unsigned) {
  return static_cast<Event*>(event)->ms < 0 ? kInvalidHandle : here();
}
int cuStreamGetId(void* stream, Address* id) { *id = made(stream)->id; return here(); }
int cuStreamBeginCapture(void* stream, int mode) {
  made(stream)->capturing = new Graph;
  return mode == kRelaxed ? here() : kInvalidValue;
}
int cuStreamEndCapture(void* stream, void** graph) {
  *graph = made(stream)->capturing;
  made(stream)->capturing = nullptr;
  return here();
}
int cuStreamIsCapturing(void* stream, int* status) {
  *status = made(stream) && made(stream)->capturing ? 1 : 0;
  return here();
}
int cuStreamGetCaptureInfo(void*, int* status, Address* id, void**, const void**, const void**, size_t*) {
  *status = 1;
  *id = 41;
  return here();
}
int cuThreadExchangeStreamCaptureMode(int* mode) { std::swap(capture_mode, *mode); return kSuccess; }
int cuGraphInstantiate(void** executable, void* graph, Address) {
  *executable = new Graph(*static_cast<Graph*>(graph));
  return here();
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, Address flags) {
  return cuGraphInstantiate(executable, graph, flags);
}
int cuGraphLaunch(void* executable, void*) {
  for (const auto& work : *static_cast<Graph*>(executable)) work();
  clock_ms += 1;
  return here();
}
int cuGraphExecDestroy(void* executable) { delete static_cast<Graph*>(executable); return here(); }
int cuGraphDestroy(void* graph) { delete static_cast<Graph*>(graph); return here(); }
int cuEventCreate(void** event, unsigned flags) { *event = new Event{flags}; return here(); }
int cuEventRecord(void* event, void*) { static_cast<Event*>(event)->ms = clock_ms; return here(); }
int cuEventSynchronize(void*) { return here(); }
int cuEventElapsedTime(float* ms, void* before, void* after) {
  const Event &one = *static_cast<Event*>(before), &other = *static_cast<Event*>(after);
  *ms = other.ms - one.ms;
  return one.flags || other.flags || one.ms < 0 || other.ms < 0 ? kInvalidHandle : kSuccess;  // 0: it has a time
}
int cuEventDestroy(void* event) { delete static_cast<Event*>(event); return kSuccess; }
int cuPointerGetAttribute(void* ordinal, int, Address address) {
  const auto found = memory.upper_bound(address);
  const bool inside = found != memory.begin() && address < std::prev(found)->first + std::prev(found)->second;
  *static_cast<int*>(ordinal) = inside ? ordinal_of_memory : -2;
  return inside ? kSuccess : kInvalidValue;
}
int cuGetErrorString(int error, const char** words) {
  *words = error == kInvalidValue ? "invalid argument" : error == kNotFound ? "named symbol not found" : "an error";
  return kSuccess;
}
int cuGetErrorName(int, const char** name) { *name = "CUDA_ERROR"; return kSuccess; }
int cuGetProcAddress_v2(const char* name, void** function, int, Address, int* status) {
  static void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  *function = dlsym(self, strcmp(name, "cuGetProcAddress") ? name : "cuGetProcAddress_v2");  // as since CUDA 12
  if (status) *status = *function ? 0 : 1;
  return *function ? kSuccess : kNotFound;
}
int cuGetProcAddress(const char* name, void** function, int version, Address flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}
}
