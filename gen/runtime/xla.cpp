// Launches kernels for XLA: `gen/runtime/xla.py` keeps what a call launches, and compiled programs name it by number.
//
// A program of XLA calls `gen_launch` with its own buffers and stream. `gen_launch_on_host` is the same without a stream,
// for XLA's own CPU backend, where tests bring functions of their own in the driver's place.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;

constexpr uint64_t kAlignment = 16;  // bytes: what kernels are chosen for; XLA's buffers have 16 at least

using LaunchFunction = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                               void**);
using CooperativeFunction = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                                 void**);
using MemsetFunction = int (*)(uint64_t, unsigned char, size_t, void*);

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

// Arrays are a call's inputs, its outputs and its scratch memory, in this order.
struct Plan {
  LaunchFunction launch;
  CooperativeFunction launch_cooperative;
  MemsetFunction memset;
  std::vector<std::pair<uint64_t, uint64_t>> zeroed;  // place and bytes of scratch memory that must be 0
  std::vector<Launch> launches;
};

std::mutex mutex;
std::unordered_map<int64_t, std::shared_ptr<const Plan>> plans;

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
  for (const auto& [place, bytes] : plan->zeroed)
    if (const int status = plan->memset(addresses.at(place), 0, bytes, stream)) return refused("clear memory", status);
  std::vector<void*> arguments;
  for (const Launch& launch : plan->launches) {
    arguments.clear();
    for (const Argument& argument : launch.arguments)
      arguments.push_back(argument.source == Argument::kArray ? static_cast<void*>(&addresses.at(argument.content[0]))
                                                              : const_cast<uint64_t*>(argument.content));
    const unsigned *grid = launch.grid, *block = launch.block;
    const int status = launch.cooperative
                           ? plan->launch_cooperative(launch.function, grid[0], grid[1], grid[2], block[0], block[1],
                                                      block[2], launch.shared_bytes, stream, arguments.data())
                           : plan->launch(launch.function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                                          launch.shared_bytes, stream, arguments.data(), nullptr);
    if (status != 0) return refused("launch", status);
  }
  return ffi::Error::Success();
}

ffi::Error run_on_host(int64_t number, ffi::RemainingArgs inputs, ffi::RemainingRets outputs) {
  return run(nullptr, number, inputs, outputs);
}

}  // namespace

// Keeps a plan: the addresses of cuLaunchKernel, cuLaunchCooperativeKernel and cuMemsetD8Async; how much scratch memory
// must be 0, each with its place and bytes; how many launches there are, each with its function, grid, block, bytes of
// shared memory, whether it is cooperative, and its number of arguments, and of each argument its source and two words.
extern "C" void gen_keep(int64_t number, const uint64_t* next) {
  auto plan = std::make_shared<Plan>();
  plan->launch = reinterpret_cast<LaunchFunction>(*next++);
  plan->launch_cooperative = reinterpret_cast<CooperativeFunction>(*next++);
  plan->memset = reinterpret_cast<MemsetFunction>(*next++);
  for (uint64_t count = *next++; count > 0; --count, next += 2) plan->zeroed.emplace_back(next[0], next[1]);
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
