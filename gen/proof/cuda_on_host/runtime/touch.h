// How a kernel touches memory, and how one touch gets into another's way.
#pragma once
#include "state.h"

#define CUDA_ON_HOST_FAST inline __attribute__((always_inline))  // a part of every access

namespace cuda_on_host {

enum class Touch { kRead, kVolatileRead, kReadOnlyPath, kWrite, kVolatileWrite, kAtomic };

constexpr bool writes(Touch touch) { return touch >= Touch::kWrite; }
constexpr bool reads(Touch touch) { return touch <= Touch::kReadOnlyPath || touch == Touch::kAtomic; }

// A writer as it is noted: the thread's number and how it wrote.
constexpr uint16_t kAtomic = 0x8000, kVolatile = 0x4000, kThreadBits = 0x3fff;
constexpr uint16_t writer_flags(Touch touch) {
  return touch == Touch::kAtomic ? kAtomic : touch == Touch::kVolatileWrite ? kVolatile : 0;
}

[[noreturn]] inline void conflict(Kind kind, const void* pc, const char* text, uint32_t epoch, int other,
                                  const void* other_pc, int32_t buffer, int64_t offset, int size) {
  run.fault->other_pc = reinterpret_cast<uint64_t>(other_pc);
  run.fault->other_block = block_at(owner(epoch));
  if (other < kMaxThreads) run.fault->other_thread = thread_at(other);
  fail(kind, pc, text, buffer, offset, size);
}

}  // namespace cuda_on_host
