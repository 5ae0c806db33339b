// Races and uninitialised reads in shared memory: a cell for each byte.
#pragma once
#include "touch.h"

namespace cuda_on_host {

constexpr uint16_t kManyWarps = 0xffff;

// A reader that nothing orders before the current thread; -1 if there is none, kMaxThreads if it cannot be named.
inline int unordered_reader(const Cell& cell) {
  const Thread& me = *run.current;
  if (cell.reader == kManyWarps) return kMaxThreads;
  uint32_t lanes = cell.lanes;
  if (cell.reader == me.warp()) lanes &= ~(1u << me.lane());
  for (; lanes != 0; lanes &= lanes - 1) {
    const int reader = cell.reader * kWarp + __builtin_ctz(lanes);
    if (!ordered_in_block(reader, clock_of(cell.read_clocks, reader % kWarp))) return reader;
  }
  return -1;
}

inline void note_read(Cell& cell, const void* pc) {
  const Thread& me = *run.current;
  const uint32_t epoch = run.now, lane = 1u << me.lane();
  if (cell.read_epoch != epoch || (cell.reader == me.warp() && unordered_reader(cell) < 0)) {
    if (cell.read_clocks >= kApart && cell.read_epoch > run.begin) [[unlikely]]
      drop_clocks(cell.read_clocks);
    cell.read_epoch = epoch;
    cell.reader = uint16_t(me.warp());
    cell.lanes = lane;
    cell.read_clocks = me.clock();
    cell.read_pc = pc;
  } else if (cell.reader == me.warp()) {
    cell.lanes |= lane;
    cell.read_clocks = with_clock(cell.read_clocks, me.lane(), me.clock());
  } else {
    cell.reader = kManyWarps;
  }
}

template <Touch touch>
CUDA_ON_HOST_FAST void check_shared(Cell* cell, const void* pc, int32_t buffer, int64_t offset, int size) {
  const Thread& me = *run.current;
  const uint32_t epoch = run.now, begin = run.block->begin;
  for (int i = 0; i < size; ++i, ++cell) {
    if (cell->copier != 0) [[unlikely]] {
      if (cell->write_epoch >= begin) {
        conflict(Kind::kInFlight, pc, "the copy of", epoch, cell->copier - 1, cell->write_pc, buffer, offset, size);
      }
      cell->copier = 0;  // of an earlier block, which has ended
    }
    const bool written = cell->write_epoch == epoch;
    const int writer = cell->writer & kThreadBits;
    const bool both_atomic = atomic(touch) && harmless<touch>(cell->writer, size, true);
    if (written && !both_atomic && !ordered_in_block(writer, cell->write_clock)) [[unlikely]] {
      const char* text = writes(touch) ? "and written by" : "but written by";
      conflict(Kind::kRace, pc, text, epoch, writer, cell->write_pc, buffer, offset, size);
    }
    if (written && both_atomic && cell->plain_writer != 0 &&
        !ordered_in_block(cell->plain_writer - 1, cell->plain_clock)) [[unlikely]] {
      fail(Kind::kRace, pc, "and was written without an atomic, which nothing orders before it", buffer, offset, size);
    }
    if (reads(touch) && cell->write_epoch < begin) [[unlikely]] {
      fail(Kind::kUninitialised, pc, "", buffer, offset, size);
    }
    if (writes(touch)) {
      if (cell->read_epoch == epoch) {
        const int reader = unordered_reader(*cell);
        if (reader >= 0) [[unlikely]]
          conflict(Kind::kRace, pc, "but read by", epoch, reader, cell->read_pc, buffer, offset, size);
      }
      if (!(written && both_atomic)) {
        cell->plain_writer = uint16_t(atomic(touch) && written ? writer + 1 : 0);
        cell->plain_clock = cell->write_clock;
      }
      cell->write_epoch = epoch;
      cell->write_clock = me.clock();
      cell->writer = uint16_t(me.number | writer_flags<touch>(size));
      cell->write_pc = pc;
    } else {
      note_read(*cell, pc);
    }
  }
}

}  // namespace cuda_on_host
