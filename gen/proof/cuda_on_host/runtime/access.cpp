// Checks every access of a kernel before it happens: the callbacks of -fsanitize=thread.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "clusters.h"
#include "shared_races.h"
#include "trace.h"

namespace cuda_on_host {
namespace {

unsigned char* dynamic;
constexpr size_t kDynamicCapacity = size_t(1) << 19;  // twice what any device has
constexpr int kSpins = 16, kLooks = 1024;             // fruitless ones, and any, before other threads go on
constexpr int kChanges = 8;                           // of one place, on average

[[noreturn]] void stray(Kind kind, uint64_t address, const void* pc, int size) {
  const Spot spot = locate(address);
  fail(kind, pc, address < 4096 ? "a null pointer" : "", spot.buffer, spot.offset, size);
}

// An atomic or a volatile read may be a question that only another thread can answer: after some, others go on. So they
// do at times between changes of one place, or whoever hands over piece by piece would have handed over everything.
inline void look(const volatile void* address, int size, const void* pc) {
  uint64_t value = 0;
  memcpy(&value, const_cast<const void*>(address), size < 8 ? size : 8);
  Spin& spin = run.current->spin;
  const bool again = spin.address == address, same = again && spin.value == value;
  const bool interrupted = again && !same && random_number() % kChanges == 0;
  if (!same) {
    spin.address = address;
    spin.value = value;
    spin.same = 0;
    ++run.changes;
  }
  if (++spin.all < kLooks && ++spin.same < kSpins && !interrupted) return;
  spin.all = spin.same = 0;
  give_way(pc);
}

// Where only some blocks run, a thread that waits for others finds words of ones and words of zeros in turns, so many at
// a time: whatever it waits for, all words that it looks at together say so before long.
constexpr uint32_t kFlagsInTurn = 64;

bool some_blocks_only() {
  const Launch& launch = *run.launch;
  return launch.blocks != nullptr && launch.block_count < uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
}

// A launch that takes a buffer as const only has no notes of it; whether that is true is known all the same.
[[noreturn]] void refuse_write(Taken taken, const void* pc, int32_t buffer, int64_t offset, int size) {
  if (taken == Taken::kConst) fail(Kind::kReadOnly, pc, "the kernel takes it as const", buffer, offset, size);
  fail(Kind::kReadOnlyPath, pc, "written, which the kernel takes as const __restrict__", buffer, offset, size);
}

// What tells places of atomics apart: blocks take turns at the same addresses of shared memory, and in a cluster have
// several for the same place.
uint64_t place_of(const volatile void* address) {
  constexpr uint64_t kApart = 0x9e3779b97f4a7c15u;
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  if (run.block->cluster != nullptr) {
    const SharedPlace found = find_shared(place);
    if (found.block == nullptr) return place;
    const void* low = found.buffer == kStaticShared ? run.launch->shared : dynamic;
    return reinterpret_cast<uint64_t>(low) + found.offset + (found.block->number + uint64_t(1)) * kApart;
  }
  const bool shared = place - reinterpret_cast<uint64_t>(run.launch->shared) < run.launch->shared_bytes ||
                      place - reinterpret_cast<uint64_t>(dynamic) < run.launch->dynamic_bytes;
  return shared ? place + (run.block->number + uint64_t(1)) * kApart : place;
}

// What lies between the rows of an array belongs to no element of it.
inline void check_rows(const Buffer& buffer, Kind outside, const void* pc, int32_t number, int64_t offset, int size) {
  uint64_t rest = uint64_t(offset);
  for (int32_t level = 0; level < buffer.level_count; ++level) {
    rest %= buffer.levels[level].pitch;
    if (rest + size > buffer.levels[level].used) [[unlikely]]
      fail(outside, pc, "outside the row that the index begins in", number, offset, size);
  }
}

template <Touch touch>
[[gnu::noinline]] void check_memory(const volatile void* pointer, int size, const void* pc, int alignment) {
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  step(pc);
  constexpr Kind outside = writes(touch) ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead;
  constexpr bool asks = atomic(touch) || touch == Touch::kVolatileRead;
  const bool misaligned = (address & uint64_t(alignment - 1)) != 0;
  const Launch& launch = *run.launch;
  constexpr uint8_t marks = (reads(touch) ? kTouchedByRead : 0) | (writes(touch) ? kTouchedByWrite : 0);
  if (launch.trace != nullptr) [[unlikely]]
    note(*launch.trace, address, size, pc, marks, touch == Touch::kReadOnlyPath);
  if (writes(touch) && !asks) ++run.changes;
  if (run.block->cluster != nullptr) [[unlikely]] {
    const SharedPlace place = find_shared(address);
    if (place.block != nullptr) {
      check_in_cluster<touch>(place, size, pc, misaligned);
      if (asks) look(pointer, size, pc);
      return;
    }
  }

  const uint64_t offset = address - reinterpret_cast<uint64_t>(launch.shared);
  if (offset < launch.shared_bytes) {
    const bool inside = offset + size <= launch.shared_bytes;
    if (!inside || launch.objects[offset] == 0 || launch.objects[offset] != launch.objects[offset + size - 1]) {
      fail(outside, pc, "", kStaticShared, int64_t(offset), size);
    }
    if (misaligned) fail(Kind::kMisaligned, pc, "", kStaticShared, int64_t(offset), size);
    check_shared<touch>(run.block->cells + offset, pc, kStaticShared, int64_t(offset), size);
    if (asks) look(pointer, size, pc);
    return;
  }
  const uint64_t dynamic_offset = address - reinterpret_cast<uint64_t>(dynamic);
  if (dynamic_offset < launch.dynamic_bytes) {
    if (dynamic_offset + size > launch.dynamic_bytes) {
      fail(outside, pc, "", kDynamicShared, int64_t(dynamic_offset), size);
    }
    if (misaligned) fail(Kind::kMisaligned, pc, "", kDynamicShared, int64_t(dynamic_offset), size);
    check_shared<touch>(run.block->cells + launch.shared_bytes + dynamic_offset, pc, kDynamicShared,
                        int64_t(dynamic_offset), size);
    if (asks) look(pointer, size, pc);
    return;
  }
  if (touch == Touch::kAtomic || touch == Touch::kVolatileRead) may_preempt(pc);
  for (int64_t i = 0; i < launch.buffer_count; ++i) {
    const Buffer& buffer = launch.buffers[i];
    if (address < buffer.low || address + size > buffer.high) continue;
    const int64_t place = int64_t(address - buffer.low);
    if (buffer.level_count != 0) check_rows(buffer, outside, pc, int32_t(i), place, size);
    if (writes(touch) && !buffer.writable) [[unlikely]]
      fail(Kind::kReadOnly, pc, "", int32_t(i), place, size);
    if (misaligned) [[unlikely]]
      fail(Kind::kMisaligned, pc, "", int32_t(i), place, size);
    if (words[i].first != nullptr) {
      constexpr bool plain = touch == Touch::kRead;
      if (plain && buffer.taken == Taken::kMutableAndReadOnly) [[unlikely]] {
        check_global<Touch::kReadOnlyPath>(pc, int32_t(i), place, size);
      } else {
        check_global<touch>(pc, int32_t(i), place, size);
      }
    } else if (writes(touch)) {
      refuse_write(buffer.taken, pc, int32_t(i), place, size);
    }
    if (buffer.written != nullptr) {
      uint8_t* written = buffer.written + place;
      if (reads(touch)) {
        for (int k = 0; k < size; ++k) {
          if (!written[k]) [[unlikely]]
            fail(Kind::kUninitialised, pc, "", int32_t(i), place, size);
        }
      }
      if (writes(touch)) memset(written, 1, unsigned(size));
    }
    if (buffer.touched != nullptr) [[unlikely]] {
      for (int k = 0; k < size; ++k) buffer.touched[place + k] |= marks;
      for (const int64_t byte : {place, place + size - 1}) buffer.touched_pages[byte / kMarksPerPage] = 1;
      if (launch.touched != nullptr) launch.touched[run.block->turn] += size;
    }
    if (asks) look(pointer, size, pc);
    return;
  }
  stray(outside, address, pc, size);
}

// Most accesses are of the thread's own variables. They need no function that saves registers first.
template <Touch touch>
CUDA_ON_HOST_FAST void check(const volatile void* pointer, int size, const void* pc, int alignment) {
  const Thread* me = run.current;
  if (me == nullptr || reinterpret_cast<uint64_t>(pointer) - reinterpret_cast<uint64_t>(me->stack) < kStackBytes)
    return;
  check_memory<touch>(pointer, size, pc, alignment);
}

// The same for a range of any length.
template <Touch touch>
void check_range(const void* pointer, size_t size, const void* pc) {
  constexpr size_t kPiece = 1024;
  for (size_t done = 0; done < size; done += kPiece) {
    const size_t left = size - done;
    check<touch>(static_cast<const char*>(pointer) + done, int(left < kPiece ? left : kPiece), pc, 1);
  }
}

}  // namespace

unsigned char* dynamic_area() { return dynamic; }

Spot locate(uint64_t address) {
  const Launch& launch = *run.launch;
  Spot spot{kNoBuffer, int64_t(address)};
  uint64_t nearest = uint64_t(1) << 40;  // further away it is no index gone astray
  const auto consider = [&](uint64_t low, uint64_t bytes, int32_t number) {
    const uint64_t distance = address < low ? low - address : address - low >= bytes ? address - low - bytes : 0;
    if (low == 0 || distance >= nearest) return;
    nearest = distance;
    spot = {number, int64_t(address - low)};
  };
  for (int64_t i = 0; i < launch.buffer_count; ++i) {
    consider(launch.buffers[i].low, launch.buffers[i].high - launch.buffers[i].low, int32_t(i));
  }
  if (launch.shared_bytes > 0) consider(reinterpret_cast<uint64_t>(launch.shared), launch.shared_bytes, kStaticShared);
  if (launch.dynamic_bytes > 0) consider(reinterpret_cast<uint64_t>(dynamic), launch.dynamic_bytes, kDynamicShared);
  if (run.block->cluster != nullptr) {
    for (const Block* block : run.block->cluster->blocks) {
      const uint64_t low = reinterpret_cast<uint64_t>(block->aside);
      const uint64_t dynamic_low = reinterpret_cast<uint64_t>(block->dynamic_aside);
      if (launch.shared_bytes > 0) consider(low, launch.shared_bytes, kStaticShared);
      if (launch.dynamic_bytes > 0) consider(dynamic_low, launch.dynamic_bytes, kDynamicShared);
    }
  }
  return spot;
}

bool prepare_shared() {
  if (dynamic == nullptr) {
    void* area = mmap(nullptr, kDynamicCapacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return false;
    dynamic = static_cast<unsigned char*>(area);
  }
  return run.launch->dynamic_bytes <= kDynamicCapacity;
}

bool prepare_cells(Block& block) {
  const size_t needed = run.launch->shared_bytes + run.launch->dynamic_bytes;
  if (needed <= block.cell_capacity) return true;
  release_cells(block);
  block.cells = static_cast<Cell*>(calloc(needed, sizeof(Cell)));  // epoch 0 lies before every block
  block.cell_capacity = block.cells == nullptr ? 0 : needed;
  return block.cells != nullptr;
}

void release_cells(Block& block) {
  free(block.cells);
  block.cells = nullptr;
  block.cell_capacity = 0;
}

void make_room_aside(Block& block) {
  constexpr size_t kLine = 128, kGap = 4096;  // what strays behind one part does not lie in the other
  const auto align = [](uint8_t* place) {
    return reinterpret_cast<uint8_t*>((reinterpret_cast<uint64_t>(place) + kLine - 1) & ~uint64_t(kLine - 1));
  };
  const Launch& launch = *run.launch;
  block.shared.resize(launch.shared_bytes + launch.dynamic_bytes + 3 * kLine + kGap);
  block.aside = align(block.shared.data()) + reinterpret_cast<uint64_t>(launch.shared) % kLine;
  block.dynamic_aside = align(block.aside + launch.shared_bytes + kGap);
}

void poison_shared() {
  static constexpr uint64_t kNans = 0x7ff57ff57ff57ff5;  // no number in any floating-point type, wherever it begins
  const auto fill = [](uint8_t* bytes, uint64_t count) {
    uint64_t i = 0;
    for (; i + 8 <= count; i += 8) memcpy(bytes + i, &kNans, 8);
    memcpy(bytes + i, &kNans, count - i);
  };
  fill(run.launch->shared, run.launch->shared_bytes);
  fill(dynamic, run.launch->dynamic_bytes);
}

CUDA_ON_HOST_EXPORT void atomic_question(const volatile void* address, int bytes, bool block_only, void* pc) {
  if (block_only) {
    check<Touch::kBlockAtomic>(address, bytes, pc, bytes);
  } else {
    check<Touch::kAtomic>(address, bytes, pc, bytes);
  }
}
CUDA_ON_HOST_EXPORT void atomic_order(const volatile void* address, bool wrote) {
  if (run.current != nullptr) chain(place_of(address), wrote);
}
CUDA_ON_HOST_EXPORT void atomic_access(const volatile void* address, int bytes, bool block_only, void* pc) {
  atomic_question(address, bytes, block_only, pc);
  atomic_order(address, true);
}
void flag_read(const void* address, int bytes, bool acquire, const void* pc) {
  check<Touch::kAtomic>(address, bytes, pc, bytes);
  if (run.current == nullptr) return;
  if (some_blocks_only()) {
    memset(const_cast<void*>(address), run.current->flag_reads++ / kFlagsInTurn % 2 == 0 ? 0xFF : 0, unsigned(bytes));
  }
  const uint64_t place = place_of(address);
  acquire ? acquire_at(place, releases_at(place)) : chain(place, false);
}
void flag_write(void* address, int bytes, bool release, const void* pc) {
  check<Touch::kAtomic>(address, bytes, pc, bytes);
  if (run.current == nullptr) return;
  const uint64_t place = place_of(address);
  release ? release_at(place) : chain(place, true);
}
void plain_read(const void* address, int alignment, int size, const void* pc) {
  if (reinterpret_cast<uint64_t>(address) % uint64_t(alignment) != 0) {
    const Spot spot = locate(reinterpret_cast<uint64_t>(address));
    fail(Kind::kMisaligned, pc, "", spot.buffer, spot.offset, alignment);
  }
  if (size > 0) check<Touch::kRead>(address, size, pc, 1);
}
void plain_write(void* address, int size, const void* pc) { check<Touch::kWrite>(address, size, pc, size); }
CUDA_ON_HOST_EXPORT void read_only_access(const volatile void* address, int bytes, void* pc) {
  check<Touch::kReadOnlyPath>(address, bytes, pc, bytes);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

#define CALLBACK(name, touch, size, alignment)                                  \
  extern "C" CUDA_ON_HOST_EXPORT void __tsan_##name(void* address) {            \
    check<Touch::touch>(address, size, __builtin_return_address(0), alignment); \
  }
// A type that is less aligned than it is large is not one access on a GPU either: its own alignment is another check.
// Of 16 bytes g++ calls aligned what lies at a multiple of 8: a pair of two numbers of 8 bytes.
#define CALLBACKS(size)                                           \
  CALLBACK(read##size, kRead, size, size < 8 ? size : 8)          \
  CALLBACK(write##size, kWrite, size, size < 8 ? size : 8)        \
  CALLBACK(volatile_read##size, kVolatileRead, size, size)        \
  CALLBACK(volatile_write##size, kVolatileWrite, size, size)      \
  CALLBACK(unaligned_read##size, kRead, size, 1)                  \
  CALLBACK(unaligned_write##size, kWrite, size, 1)                \
  CALLBACK(unaligned_volatile_read##size, kVolatileRead, size, 1) \
  CALLBACK(unaligned_volatile_write##size, kVolatileWrite, size, 1)
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)

extern "C" {

CUDA_ON_HOST_EXPORT void __tsan_read_range(void* address, size_t size) {
  check_range<Touch::kRead>(address, size, __builtin_return_address(0));
}
CUDA_ON_HOST_EXPORT void __tsan_write_range(void* address, size_t size) {
  check_range<Touch::kWrite>(address, size, __builtin_return_address(0));
}
CUDA_ON_HOST_EXPORT void __tsan_init() {}
CUDA_ON_HOST_EXPORT void __tsan_func_entry(void*) {}
CUDA_ON_HOST_EXPORT void __tsan_func_exit() {}
// The guard of a shared array whose elements have a constructor: it has been run, there is nothing to run.
CUDA_ON_HOST_EXPORT unsigned char __tsan_atomic8_load(const volatile void*, int) { return 1; }

// The linker sends a kernel's own calls here (--wrap): g++ makes them of loops and of large structures.
CUDA_ON_HOST_EXPORT void* __wrap_memcpy(void* to, const void* from, size_t size) {
  check_range<Touch::kRead>(from, size, __builtin_return_address(0));
  check_range<Touch::kWrite>(to, size, __builtin_return_address(0));
  return memcpy(to, from, size);
}
CUDA_ON_HOST_EXPORT void* __wrap_memmove(void* to, const void* from, size_t size) {
  check_range<Touch::kRead>(from, size, __builtin_return_address(0));
  check_range<Touch::kWrite>(to, size, __builtin_return_address(0));
  return memmove(to, from, size);
}
CUDA_ON_HOST_EXPORT void* __wrap_memset(void* to, int value, size_t size) {
  check_range<Touch::kWrite>(to, size, __builtin_return_address(0));
  return memset(to, value, size);
}
}
