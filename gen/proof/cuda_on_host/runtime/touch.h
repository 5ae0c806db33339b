// How a kernel touches memory, and how one touch gets into another's way.
#pragma once
#include "state.h"

#define CUDA_ON_HOST_FAST inline __attribute__((always_inline))  // a part of every access

namespace cuda_on_host {

enum class Touch { kRead, kVolatileRead, kReadOnlyPath, kWrite, kVolatileWrite, kAtomic, kBlockAtomic };

// The clocks of lanes that have read, as one number: the clock that all have in common, or, where they read at
// different ones, kApart and a place in `lane_clocks`.
constexpr uint32_t kApart = uint32_t(1) << 31;
struct LaneClocks {
  uint32_t of[kWarp];
};
extern std::vector<LaneClocks> lane_clocks;  // of this launch

inline uint32_t clock_of(uint32_t clocks, int lane) {
  return clocks < kApart ? clocks : lane_clocks[clocks - kApart].of[lane];
}
// `clocks` of some lanes, of which `lane` now reads at this clock; and what nobody needs any more.
uint32_t with_clock(uint32_t clocks, int lane, uint32_t clock);
void drop_clocks(uint32_t clocks);

constexpr bool writes(Touch touch) { return touch >= Touch::kWrite; }
constexpr bool atomic(Touch touch) { return touch >= Touch::kAtomic; }
constexpr bool reads(Touch touch) { return touch <= Touch::kReadOnlyPath || atomic(touch); }

// A writer as it is noted: the thread's number and how it wrote; of an atomic or a volatile write also the size, as its
// binary logarithm.
constexpr uint16_t kAtomic = 0x8000, kVolatile = 0x4000, kBlockOnly = 0x2000, kSizeBits = 0x1c00, kThreadBits = 0x3ff;
static_assert(kMaxThreads - 1 <= kThreadBits);
inline uint16_t size_flags(int size) { return uint16_t(__builtin_ctz(unsigned(size)) << 10); }
template <Touch touch>
inline uint16_t writer_flags(int size) {
  if (touch == Touch::kVolatileWrite) return uint16_t(kVolatile | size_flags(size));
  if (!atomic(touch)) return 0;
  return uint16_t((touch == Touch::kBlockAtomic ? kAtomic | kBlockOnly : kAtomic) | size_flags(size));
}

// Whether a touch is no race with a write in whatever order they come: atomics are not, of one size and in one scope;
// nor is a volatile question that another warp answers, while lanes of one warp would rely on going in lock-step. Of
// another size it may see a part of the answer.
template <Touch touch>
inline bool harmless(uint16_t writer, int size, bool same_block) {
  if (!atomic(touch) && touch != Touch::kVolatileRead) return false;
  if ((writer & kSizeBits) != size_flags(size)) return false;
  if (atomic(touch)) {
    const bool apart = !same_block && (touch == Touch::kBlockAtomic || (writer & kBlockOnly) != 0);
    return (writer & kAtomic) != 0 && !apart;
  }
  const bool same_warp = same_block && (writer & kThreadBits) / kWarp == run.current->warp();
  return (writer & kAtomic) != 0 || ((writer & kVolatile) != 0 && !same_warp);
}

[[noreturn]] inline void conflict(Kind kind, const void* pc, const char* text, uint32_t epoch, int other,
                                  const void* other_pc, int32_t buffer, int64_t offset, int size) {
  run.fault->other_pc = reinterpret_cast<uint64_t>(other_pc);
  run.fault->other_block = block_at(owner(epoch));
  if (other < kMaxThreads) run.fault->other_thread = thread_at(other);
  fail(kind, pc, text, buffer, offset, size);
}

}  // namespace cuda_on_host
