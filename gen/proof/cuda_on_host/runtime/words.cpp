#include "words.h"

#include <sys/mman.h>

namespace cuda_on_host {

std::vector<Words> words;
std::vector<Readers> all_readers;

namespace {

constexpr size_t kKeptBytes = size_t(1) << 26;  // notes that may stay in memory between launches

char* area;  // mapped page by page when it is touched
size_t area_bytes, used;
uint32_t free_readers;

int shift_of(int granule) { return granule == 4 ? 2 : granule == 2 ? 1 : 0; }

Word* take(uint64_t bytes, int shift) {
  Word* first = reinterpret_cast<Word*>(area + used);
  used += ((bytes >> shift) + 1) * sizeof(Word);
  return first;
}

// The lanes of `readers` that nothing orders before the current thread.
int unordered(const Readers& readers) {
  const Thread& me = *run.current;
  const int warp = readers.who & kWarpBits;
  uint32_t lanes = readers.lanes;
  const bool mine = warp == me.warp() && owner(readers.epoch) == run.block->number;
  if (mine) lanes &= ~(1u << me.lane());
  for (; lanes != 0; lanes &= lanes - 1) {
    const int reader = warp * kWarp + __builtin_ctz(lanes);
    if (!ordered(readers.epoch, reader, readers.clock)) return reader;
  }
  return -1;
}

// The place that they get.
uint32_t keep(const Readers& readers) {
  const uint32_t place = free_readers != 0 ? free_readers : uint32_t(all_readers.size());
  if (free_readers == 0) all_readers.push_back({});
  free_readers = all_readers[place].next;
  all_readers[place] = readers;
  return place;
}

}  // namespace

bool prepare_words() {
  const Launch& launch = *run.launch;
  size_t needed = 0;
  for (int64_t i = 0; i < launch.buffer_count; ++i) {
    // Twice, should they be refined; memory that is not touched costs nothing.
    if (launch.buffers[i].writable) needed += 2 * (launch.buffers[i].high - launch.buffers[i].low + 2) * sizeof(Word);
  }
  if (needed > area_bytes) {
    if (area != nullptr) munmap(area, area_bytes);
    area_bytes = 0;
    void* mapped = mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    area = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
    if (area == nullptr) return false;
    area_bytes = needed;
  }
  if (used > kKeptBytes) forget_words();
  used = 0;
  words.assign(launch.buffer_count, {nullptr, 0});
  for (int64_t i = 0; i < launch.buffer_count; ++i) {
    const Buffer& buffer = launch.buffers[i];
    const bool both = buffer.taken == Taken::kMutable || buffer.taken == Taken::kMutableAndReadOnly;
    const int shift = shift_of(buffer.granule);
    if (buffer.writable && both) words[i] = {take(buffer.high - buffer.low, shift), shift};
  }
  all_readers.assign(1, {});
  free_readers = 0;
  return true;
}

void forget_words() {
  if (area != nullptr) madvise(area, area_bytes, MADV_DONTNEED);
}

void refine(int32_t number) {
  const Buffer& buffer = run.launch->buffers[number];
  Words& coarse = words[number];
  const uint64_t bytes = buffer.high - buffer.low;
  Word* fine = take(bytes, 0);
  for (uint64_t i = 0; i < bytes; ++i) {
    const Word& word = coarse.first[i >> coarse.shift];
    if (word.epoch > run.begin) fine[i] = word;
    fine[i].readers = 0;
    if (!has_readers(word)) continue;
    const uint32_t readers = uint32_t(all_readers.size());  // the last ones; further ones would be shared
    all_readers.push_back(all_readers[word.readers]);
    all_readers[readers].word = &fine[i];
    all_readers[readers].next = 0;
    fine[i].readers = readers;
  }
  coarse = {fine, 0};
}

void add_reader(Word& word, uint16_t who, uint32_t pc) {
  const Thread& me = *run.current;
  const uint32_t lane = 1u << me.lane();
  const Readers one{&word, run.now, me.clock(), lane, pc, who, 0};
  uint32_t last = 0;
  if (has_readers(word)) {
    last = word.readers;
    for (int count = 1;; ++count) {
      Readers& readers = all_readers[last];
      if ((readers.who & ~kWarpBits) == (who & ~kWarpBits) && unordered(readers) < 0) {
        const uint32_t next = readers.next;
        readers = one;
        readers.next = next;
        return;
      }
      if (readers.epoch == run.now && readers.who == who) {
        readers.lanes |= lane;
        if (me.clock() < readers.clock) readers.clock = me.clock();  // never a false alarm
        return;
      }
      if (count == kMostReaders) return;
      if (readers.next == 0) break;
      last = readers.next;
    }
  }
  const uint32_t added = keep(one);
  (last != 0 ? all_readers[last].next : word.readers) = added;
}

void add_plain_writer(Word& word, const Word& before) {
  const int writer = before.writer & kThreadBits;
  const Readers kept{&word, before.epoch, before.clock, 1u << writer % kWarp,
                     before.pc, uint16_t(writer / kWarp | kPlainWriter), 0};
  word.readers = keep(kept);
}

void check_plain_writer(const Word& word, const char* text, const void* pc, int32_t buffer, int64_t offset, int size) {
  for (uint32_t at = word.readers; at != 0; at = all_readers[at].next) {
    const Readers& one = all_readers[at];
    const int writer = (one.who & kPlainWriter) != 0 ? unordered(one) : -1;
    if (writer >= 0) conflict(Kind::kRace, pc, text, one.epoch, writer, code_at(one.pc), buffer, offset, size);
  }
}

void check_readers(Word& word, Touch touch, const void* pc, int32_t buffer, int64_t offset, int size) {
  check_plain_writer(word, "and written by", pc, buffer, offset, size);
  uint32_t kept = 0;
  for (uint32_t at = word.readers, next; at != 0; at = next) {
    Readers& readers = all_readers[at];
    next = readers.next;
    if (readers.who & kPlainWriter && atomic(touch)) {
      kept = at;
      continue;
    }
    const int first = (readers.who & kWarpBits) * kWarp + __builtin_ctz(readers.lanes);
    if (readers.who & kReadOnlyReader) {
      conflict(Kind::kReadOnlyPath, pc, "read by", readers.epoch, first, code_at(readers.pc), buffer, offset, size);
    }
    const bool lock_step = touch == Touch::kVolatileWrite && (readers.who & kWarpBits) == run.current->warp() &&
                           owner(readers.epoch) == run.block->number;
    const bool whole = (readers.who & kSizeBits) == size_flags(size);
    const bool ignored = readers.who & kVolatileReader && touch != Touch::kWrite && whole && !lock_step;
    const int reader = ignored || readers.who & kPlainWriter ? -1 : unordered(readers);
    if (reader >= 0) {
      conflict(Kind::kRace, pc, "but read by", readers.epoch, reader, code_at(readers.pc), buffer, offset, size);
    }
    readers.word = nullptr;
    readers.next = free_readers;
    free_readers = at;
  }
  word.readers = kept;
  if (kept != 0) all_readers[kept].next = 0;
}

}  // namespace cuda_on_host
