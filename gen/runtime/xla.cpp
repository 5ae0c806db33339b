// Launches kernels for XLA: `gen/runtime/xla.py` keeps what a call launches, and compiled programs name it by number.
//
// A program of XLA calls `gen_launch` with its own buffers and stream. `gen_launch_on_host` is the same without a stream,
// for XLA's own CPU backend, where tests bring functions of their own in the driver's place.

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;

constexpr uint64_t kAlignment = 16;  // bytes: what kernels are chosen for; XLA's buffers have 16 at least
constexpr uint64_t kPart = 256;      // bytes, of which every buffer of zeros is a multiple

// The driver, by the addresses of its functions, and the context of the device.
struct Driver {
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*launch_cooperative)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**);
  int (*memset)(uint64_t address, unsigned char value, size_t size, void* stream);
  int (*allocate)(uint64_t* address, size_t size);
  int (*free)(uint64_t address);
  int (*stream_id)(void* stream, unsigned long long* id);
  int (*push_current)(void* context);
  int (*pop_current)(void** context);
  void* context;
};

struct Argument {
  enum Source : uint64_t { kArray, kNumber } source;
  uint64_t content[2];  // the place of an array, or a number's bytes
};

struct Launch {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  bool cooperative;  // whether all blocks must run at the same time
  std::vector<Argument> arguments;
};

// Arrays are a call's inputs, its outputs, its scratch memory, and that which must be 0, in this order.
struct Plan {
  Driver driver;
  std::vector<uint64_t> zeroed;  // bytes of the last
  std::vector<Launch> launches;
};

// Memory of a stream that is 0 before every call, since launches leave it so. Whoever launches with it holds it.
struct Zeroed {
  std::mutex held;
  uint64_t address = 0, size = 0;  // a size of 0: it may hold anything

  // Makes room for so many bytes; gives the driver's status.
  int grow(const Driver& driver, uint64_t wanted, void* stream) {
    if (size >= wanted) return 0;
    if (const int status = driver.push_current(driver.context)) return status;
    if (address != 0) driver.free(address);  // which waits for the launches that use it
    address = size = 0;
    int status = driver.allocate(&address, wanted);
    if (status == 0) status = driver.memset(address, 0, wanted, stream);
    if (status == 0) size = wanted;
    void* left;
    driver.pop_current(&left);
    return status;
  }
};

std::mutex mutex;
std::unordered_map<int64_t, std::shared_ptr<const Plan>> plans;
std::map<unsigned long long, Zeroed> zeroed_of_streams;  // by the driver's number of the stream, which no later one gets

Zeroed& zeroed_of(unsigned long long stream_id) {
  std::lock_guard<std::mutex> lock(mutex);
  return zeroed_of_streams[stream_id];
}

std::shared_ptr<const Plan> plan_of(int64_t number) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = plans.find(number);
  return found == plans.end() ? nullptr : found->second;
}

ffi::Error refused(const std::string& what, int status) {
  return ffi::Error::Internal("gen: the driver refused to " + what + ", with status " + std::to_string(status));
}

ffi::Error run(void* stream, int64_t number, ffi::RemainingArgs inputs, ffi::RemainingRets outputs) {
  const auto plan = plan_of(number);
  if (plan == nullptr) return ffi::Error::Internal("gen: the program was compiled by another process");
  std::vector<uint64_t> addresses;
  for (size_t place = 0; place < inputs.size(); ++place) {
    const auto buffer = inputs.get<ffi::AnyBuffer>(place);
    if (buffer.has_error()) return buffer.error();
    addresses.push_back(reinterpret_cast<uint64_t>(buffer->untyped_data()));
  }
  for (size_t place = 0; place < outputs.size(); ++place) {
    auto buffer = outputs.get<ffi::AnyBuffer>(place);
    if (buffer.has_error()) return buffer.error();
    addresses.push_back(reinterpret_cast<uint64_t>((*buffer)->untyped_data()));
  }
  for (const uint64_t address : addresses)
    if (address % kAlignment != 0) return ffi::Error::Internal("gen: a buffer of XLA is not aligned to 16 bytes");
  const Driver& driver = plan->driver;
  std::unique_lock<std::mutex> held;
  Zeroed* zeroed = nullptr;
  if (!plan->zeroed.empty()) {
    unsigned long long stream_id = 0;
    if (const int status = driver.stream_id(stream, &stream_id)) return refused("number a stream", status);
    zeroed = &zeroed_of(stream_id);
    held = std::unique_lock<std::mutex>(zeroed->held);
    uint64_t total = 0;
    for (const uint64_t bytes : plan->zeroed) total += (bytes + kPart - 1) / kPart * kPart;
    if (const int status = zeroed->grow(driver, total, stream)) return refused("make zeros", status);
    uint64_t next = zeroed->address;
    for (const uint64_t bytes : plan->zeroed) {
      addresses.push_back(next);
      next += (bytes + kPart - 1) / kPart * kPart;
    }
  }
  std::vector<void*> arguments;
  for (const Launch& launch : plan->launches) {
    arguments.clear();
    for (const Argument& argument : launch.arguments)
      arguments.push_back(argument.source == Argument::kArray ? static_cast<void*>(&addresses.at(argument.content[0]))
                                                              : const_cast<uint64_t*>(argument.content));
    const unsigned *grid = launch.grid, *block = launch.block;
    const int status = launch.cooperative
                           ? driver.launch_cooperative(launch.function, grid[0], grid[1], grid[2], block[0], block[1],
                                                      block[2], launch.shared_bytes, stream, arguments.data())
                           : driver.launch(launch.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                          launch.shared_bytes, stream, arguments.data(), nullptr);
    if (status != 0) {
      if (zeroed != nullptr) zeroed->size = 0;  // a call that ended in its midst may have left anything there
      return refused("launch", status);
    }
  }
  return ffi::Error::Success();
}

ffi::Error run_on_host(int64_t number, ffi::RemainingArgs inputs, ffi::RemainingRets outputs) {
  return run(nullptr, number, inputs, outputs);
}

}  // namespace

// Keeps a plan: the driver; how many buffers must be 0, each with its bytes; how many launches there are, each with its
// function, grid, block, bytes of shared memory, whether it is cooperative, and its number of arguments, and of each
// argument its source and two words.
extern "C" void gen_keep(int64_t number, const uint64_t* next) {
  auto plan = std::make_shared<Plan>();
  static_assert(sizeof(Driver) % sizeof(*next) == 0, "a driver is so many words");
  memcpy(&plan->driver, next, sizeof(Driver));
  next += sizeof(Driver) / sizeof(*next);
  for (uint64_t count = *next++; count > 0; --count) plan->zeroed.push_back(*next++);
  for (uint64_t count = *next++; count > 0; --count) {
    Launch launch;
    launch.function = reinterpret_cast<void*>(*next++);
    for (unsigned& extent : launch.grid) extent = static_cast<unsigned>(*next++);
    for (unsigned& extent : launch.block) extent = static_cast<unsigned>(*next++);
    launch.shared_bytes = static_cast<unsigned>(*next++);
    launch.cooperative = *next++ != 0;
    for (uint64_t arguments = *next++; arguments > 0; --arguments, next += 3)
      launch.arguments.push_back({static_cast<Argument::Source>(next[0]), {next[1], next[2]}});
    plan->launches.push_back(launch);
  }
  std::lock_guard<std::mutex> lock(mutex);
  plans[number] = plan;
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(gen_launch, run,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::PlatformStream<void*>>()
                                  .Attr<int64_t>("plan")
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(gen_launch_on_host, run_on_host,
                              ffi::Ffi::Bind().Attr<int64_t>("plan").RemainingArgs().RemainingRets());
