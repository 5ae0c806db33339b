// The state spaces that PTX tells apart: global, shared and local memory. An instruction that names one takes an address
// of that one only, and of shared memory the address within a window of its own.
#include "clusters.h"

namespace cuda_on_host {
namespace {

// Where the window holds static and dynamic shared memory. Low bits are those of the address: a kernel may compute with
// them.
constexpr uint64_t kStaticWindow = uint64_t(1) << 24, kDynamicWindow = uint64_t(1) << 26, kLowBits = 4095;
constexpr uint64_t kMissed = 1024;

struct Window {
  uint64_t low, bytes, begin;  // the first address, and what it is in the window

  // Whether an address so many bytes behind the first one is in the window: what just misses shared memory is too, and
  // is then found to miss it.
  bool near(uint64_t offset) const { return bytes > 0 && offset + kMissed < bytes + 2 * kMissed; }
};

Window static_window() {
  const uint64_t low = reinterpret_cast<uint64_t>(run.launch->shared);
  return {low, run.launch->shared_bytes, kStaticWindow + (low & kLowBits)};
}
Window dynamic_window() {
  const uint64_t low = reinterpret_cast<uint64_t>(dynamic_area());
  return {low, run.launch->dynamic_bytes, kDynamicWindow + (low & kLowBits)};
}

[[noreturn]] void refuse(const char* text, uint64_t address, int bytes, const void* pc) {
  const Spot spot = locate(address);
  fail(Kind::kOperand, pc, text, spot.buffer, spot.offset, bytes);
}

bool is_local(const void* address) {
  return reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(run.current->stack) < kStackBytes;
}
bool is_shared(const void* address) {
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  if (run.block->cluster != nullptr) return find_shared(place).block != nullptr;
  const Window one = static_window(), other = dynamic_window();
  return place - one.low < one.bytes || place - other.low < other.bytes;
}

}  // namespace

void check_global(const void* address, int bytes, const void* pc) {
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  if (is_local(address)) refuse("an address of local memory, not of global memory", place, bytes, pc);
  if (is_shared(address)) refuse("an address of shared memory, not of global memory", place, bytes, pc);
}

CUDA_ON_HOST_EXPORT void global_read(const void* address, int bytes, bool read_only, void* pc) {
  check_global(address, bytes, pc);
  if (read_only) {
    read_only_access(address, bytes, pc);
  } else {
    plain_read(address, bytes, bytes, pc);
  }
}
CUDA_ON_HOST_EXPORT void global_write(void* address, int bytes, void* pc) {
  check_global(address, bytes, pc);
  plain_write(address, bytes, pc);
}
CUDA_ON_HOST_EXPORT void check_alignment(const void* address, int alignment, void* pc) {
  plain_read(address, alignment, 0, pc);
}
CUDA_ON_HOST_EXPORT void global_flag_read(const void* address, int bytes, bool acquire, void* pc) {
  check_global(address, bytes, pc);
  flag_read(address, bytes, acquire, pc);
}
CUDA_ON_HOST_EXPORT void global_flag_write(void* address, int bytes, bool release, void* pc) {
  check_global(address, bytes, pc);
  flag_write(address, bytes, release, pc);
}

CUDA_ON_HOST_EXPORT size_t shared_window(const void* address, void* pc) {
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  for (const Window& window : {static_window(), dynamic_window()}) {
    if (window.near(place - window.low)) return window.begin + (place - window.low);
  }
  refuse("an address of no shared memory of the block", place, 0, pc);
}
CUDA_ON_HOST_EXPORT void* from_shared_window(unsigned long long address, void* pc) {
  for (const Window& window : {static_window(), dynamic_window()}) {
    if (window.near(address - window.begin)) {
      return reinterpret_cast<void*>(window.low + (address - window.begin));
    }
  }
  refuse("an address outside the window of shared memory", address, 0, pc);
}

CUDA_ON_HOST_EXPORT void refuse_policy(void* pc) {
  fail(Kind::kOperand, pc, "a cache policy that createpolicy has not made");
}

// A line of the cache, of which a priority is changed.
CUDA_ON_HOST_EXPORT void check_line(const void* address, void* pc) {
  constexpr uint64_t kLine = 128;
  check_global(address, kLine, pc);
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  const Spot spot = locate(place);
  if (place % kLine != 0) fail(Kind::kMisaligned, pc, "", spot.buffer, spot.offset, kLine);
  for (int64_t i = 0; i < run.launch->buffer_count; ++i) {
    if (run.launch->buffers[i].low <= place && place < run.launch->buffers[i].high) return;
  }
  refuse("an address outside every buffer", place, kLine, pc);
}

}  // namespace cuda_on_host
