// Checks every access of a kernel before it happens: the callbacks of -fsanitize=thread.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "state.h"

namespace cuda_on_host {
namespace {

constexpr uint16_t kManyWarps = 0xffff, kAtomic = 0x8000, kThreadBits = 0x7fff;

// Who touched a byte of shared memory last, and when: a race is two threads in one epoch that nothing orders.
struct Cell {
  uint32_t write_epoch, write_clock, read_epoch, read_clock;
  uint32_t lanes;           // of the warp that has read it
  uint16_t writer, reader;  // a thread, and kAtomic; a warp
  const void *write_pc, *read_pc;
};

Cell* cells;
size_t cell_capacity;
unsigned char* dynamic;
constexpr size_t kDynamicCapacity = size_t(1) << 19;  // twice what any device has

// Whether what `thread` did at `clock`, in this epoch, happened before what the current thread does.
inline bool ordered(int thread, uint32_t clock) {
  const Thread& me = *run.current;
  if (thread == me.number) return true;
  return thread / kWarp == me.warp() && me.known[thread % kWarp] >= clock;
}

// A reader that nothing orders before the current thread; -1 if there is none, kMaxThreads if it cannot be named.
inline int unordered_reader(const Cell& cell) {
  const Thread& me = *run.current;
  if (cell.reader == kManyWarps) return kMaxThreads;
  uint32_t lanes = cell.lanes;
  if (cell.reader == me.warp()) lanes &= ~(1u << me.lane());
  for (; lanes != 0; lanes &= lanes - 1) {
    const int reader = cell.reader * kWarp + __builtin_ctz(lanes);
    if (!ordered(reader, cell.read_clock)) return reader;
  }
  return -1;
}

[[noreturn]] void race(const void* pc, const char* text, int other, const void* other_pc, int32_t buffer,
                       int64_t offset, int size) {
  run.fault->other_pc = reinterpret_cast<uint64_t>(other_pc);
  if (other < kMaxThreads) run.fault->other_thread = run.threads[other].index;
  fail(Kind::kRace, pc, text, buffer, offset, size);
}

inline void note_read(Cell& cell, const void* pc) {
  const Thread& me = *run.current;
  const uint32_t lane = 1u << me.lane();
  if (cell.read_epoch != run.epoch || (cell.reader == me.warp() && unordered_reader(cell) < 0)) {
    cell.read_epoch = run.epoch;
    cell.reader = uint16_t(me.warp());
    cell.lanes = lane;
    cell.read_clock = me.clock();
    cell.read_pc = pc;
  } else if (cell.reader == me.warp()) {
    cell.lanes |= lane;
    if (me.clock() < cell.read_clock) cell.read_clock = me.clock();  // never a false alarm
  } else {
    cell.reader = kManyWarps;
  }
}

template <bool write, bool atomic>
inline void check_shared(Cell* cell, const void* pc, int32_t buffer, int64_t offset, int size) {
  const Thread& me = *run.current;
  for (int i = 0; i < size; ++i, ++cell) {
    const bool written = cell->write_epoch == run.epoch;
    const int writer = cell->writer & kThreadBits;
    if (written && !(atomic && cell->writer & kAtomic) && !ordered(writer, cell->write_clock)) [[unlikely]] {
      race(pc, write ? "and written by" : "but written by", writer, cell->write_pc, buffer, offset, size);
    }
    if (write) {
      if (cell->read_epoch == run.epoch) {
        const int reader = unordered_reader(*cell);
        if (reader >= 0) [[unlikely]]
          race(pc, "but read by", reader, cell->read_pc, buffer, offset, size);
      }
      if (atomic && cell->write_epoch < run.block_epoch) [[unlikely]] {
        fail(Kind::kUninitialised, pc, "", buffer, offset, size);
      }
      cell->write_epoch = run.epoch;
      cell->write_clock = me.clock();
      cell->writer = me.number | (atomic ? kAtomic : 0);
      cell->write_pc = pc;
    } else {
      if (cell->write_epoch < run.block_epoch) [[unlikely]] {
        fail(Kind::kUninitialised, pc, "", buffer, offset, size);
      }
      note_read(*cell, pc);
    }
  }
}

[[noreturn]] void stray(Kind kind, uint64_t address, const void* pc, int size) {
  const Spot spot = locate(address);
  fail(kind, pc, address < 4096 ? "a null pointer" : "", spot.buffer, spot.offset, size);
}

template <bool write, bool atomic>
inline void check(const volatile void* pointer, int size, const void* pc, bool aligned) {
  if (run.current == nullptr) return;
  const uint64_t address = reinterpret_cast<uint64_t>(pointer);
  if (address - reinterpret_cast<uint64_t>(run.current->stack) < kStackBytes) return;
  step(pc);
  constexpr Kind outside = write ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead;
  const bool misaligned = aligned && (address & uint64_t(size - 1)) != 0;
  const Launch& launch = *run.launch;

  const uint64_t offset = address - reinterpret_cast<uint64_t>(launch.shared);
  if (offset < launch.shared_bytes) {
    const bool inside = offset + size <= launch.shared_bytes;
    if (!inside || launch.objects[offset] == 0 || launch.objects[offset] != launch.objects[offset + size - 1]) {
      fail(outside, pc, "", kStaticShared, int64_t(offset), size);
    }
    if (misaligned) fail(Kind::kMisaligned, pc, "", kStaticShared, int64_t(offset), size);
    check_shared<write, atomic>(cells + offset, pc, kStaticShared, int64_t(offset), size);
    return;
  }
  const uint64_t dynamic_offset = address - reinterpret_cast<uint64_t>(dynamic);
  if (dynamic_offset < launch.dynamic_bytes) {
    if (dynamic_offset + size > launch.dynamic_bytes) {
      fail(outside, pc, "", kDynamicShared, int64_t(dynamic_offset), size);
    }
    if (misaligned) fail(Kind::kMisaligned, pc, "", kDynamicShared, int64_t(dynamic_offset), size);
    check_shared<write, atomic>(cells + launch.shared_bytes + dynamic_offset, pc, kDynamicShared,
                                int64_t(dynamic_offset), size);
    return;
  }
  for (int64_t i = 0; i < launch.buffer_count; ++i) {
    const Buffer& buffer = launch.buffers[i];
    if (address < buffer.low || address + size > buffer.high) continue;
    const int64_t place = int64_t(address - buffer.low);
    if (write && !buffer.writable) [[unlikely]]
      fail(Kind::kReadOnly, pc, "", int32_t(i), place, size);
    if (misaligned) [[unlikely]]
      fail(Kind::kMisaligned, pc, "", int32_t(i), place, size);
    if (buffer.written != nullptr) {
      uint8_t* written = buffer.written + place;
      if (!write || atomic) {
        for (int k = 0; k < size; ++k) {
          if (!written[k]) [[unlikely]]
            fail(Kind::kUninitialised, pc, "", int32_t(i), place, size);
        }
      }
      if (write) memset(written, 1, size);
    }
    return;
  }
  stray(outside, address, pc, size);
}

// The same for a range of any length.
template <bool write>
void check_range(const void* pointer, size_t size, const void* pc) {
  constexpr size_t kPiece = 1024;
  for (size_t done = 0; done < size; done += kPiece) {
    const size_t left = size - done;
    check<write, false>(static_cast<const char*>(pointer) + done, int(left < kPiece ? left : kPiece), pc, false);
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
  return spot;
}

bool prepare_shared() {
  if (dynamic == nullptr) {
    void* area = mmap(nullptr, kDynamicCapacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return false;
    dynamic = static_cast<unsigned char*>(area);
  }
  const size_t needed = run.launch->shared_bytes + run.launch->dynamic_bytes;
  if (run.launch->dynamic_bytes > kDynamicCapacity) return false;
  if (needed > cell_capacity) {
    free(cells);
    cells = static_cast<Cell*>(calloc(needed, sizeof(Cell)));  // epoch 0 lies before every block
    cell_capacity = cells == nullptr ? 0 : needed;
    if (cells == nullptr) return false;
  } else if (run.epoch > uint32_t(1) << 31) {  // epochs go on from launch to launch
    memset(static_cast<void*>(cells), 0, cell_capacity * sizeof(Cell));
    run.epoch = 0;
  }
  return true;
}

void poison_shared() {
  static constexpr uint16_t kNan = 0x7ff5;  // repeated it is no number in any floating-point type
  const auto fill = [](uint8_t* bytes, uint64_t count) {
    uint64_t i = 0;
    for (; i + 2 <= count; i += 2) memcpy(bytes + i, &kNan, 2);
    if (i < count) bytes[i] = 0xf5;
  };
  fill(run.launch->shared, run.launch->shared_bytes);
  fill(dynamic, run.launch->dynamic_bytes);
}

CUDA_ON_HOST_EXPORT void atomic_access(const volatile void* address, int bytes, void* pc) {
  check<true, true>(address, bytes, pc, true);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

#define CALLBACK(name, write, size, aligned)                                  \
  extern "C" CUDA_ON_HOST_EXPORT void __tsan_##name(void* address) {          \
    check<write, false>(address, size, __builtin_return_address(0), aligned); \
  }
// A type that is less aligned than it is large is not one access on a GPU either: its own alignment is another check.
#define CALLBACKS(size)                                       \
  CALLBACK(read##size, false, size, true)                     \
  CALLBACK(write##size, true, size, true)                     \
  CALLBACK(volatile_read##size, false, size, true)            \
  CALLBACK(volatile_write##size, true, size, true)            \
  CALLBACK(unaligned_read##size, false, size, false)          \
  CALLBACK(unaligned_write##size, true, size, false)          \
  CALLBACK(unaligned_volatile_read##size, false, size, false) \
  CALLBACK(unaligned_volatile_write##size, true, size, false)
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)

extern "C" {

CUDA_ON_HOST_EXPORT void __tsan_read_range(void* address, size_t size) {
  check_range<false>(address, size, __builtin_return_address(0));
}
CUDA_ON_HOST_EXPORT void __tsan_write_range(void* address, size_t size) {
  check_range<true>(address, size, __builtin_return_address(0));
}
CUDA_ON_HOST_EXPORT void __tsan_init() {}
CUDA_ON_HOST_EXPORT void __tsan_func_entry(void*) {}
CUDA_ON_HOST_EXPORT void __tsan_func_exit() {}
// The guard of a shared array whose elements have a constructor: it has been run, there is nothing to run.
CUDA_ON_HOST_EXPORT unsigned char __tsan_atomic8_load(const volatile void*, int) { return 1; }

// The linker sends a kernel's own calls here (--wrap): g++ makes them of loops and of large structures.
CUDA_ON_HOST_EXPORT void* __wrap_memcpy(void* to, const void* from, size_t size) {
  check_range<false>(from, size, __builtin_return_address(0));
  check_range<true>(to, size, __builtin_return_address(0));
  return memcpy(to, from, size);
}
CUDA_ON_HOST_EXPORT void* __wrap_memmove(void* to, const void* from, size_t size) {
  check_range<false>(from, size, __builtin_return_address(0));
  check_range<true>(to, size, __builtin_return_address(0));
  return memmove(to, from, size);
}
CUDA_ON_HOST_EXPORT void* __wrap_memset(void* to, int value, size_t size) {
  check_range<true>(to, size, __builtin_return_address(0));
  return memset(to, value, size);
}
}
