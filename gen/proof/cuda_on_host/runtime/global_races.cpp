#include "global_races.h"

#include <sys/mman.h>

namespace cuda_on_host {

std::vector<Words> words;
std::vector<Readers> all_readers;
std::vector<LaneClocks> lane_clocks;

namespace {

std::vector<uint32_t> free_clocks;  // places in `lane_clocks`

uint32_t keep_clocks(const LaneClocks& clocks) {
  if (free_clocks.empty()) {
    free_clocks.push_back(uint32_t(lane_clocks.size()));
    lane_clocks.push_back({});
  }
  const uint32_t place = free_clocks.back();
  free_clocks.pop_back();
  lane_clocks[place] = clocks;
  return kApart + place;
}

}  // namespace

uint32_t with_clock(uint32_t clocks, int lane, uint32_t clock) {
  if (clocks == clock) return clocks;
  if (clocks < kApart) {
    LaneClocks made;
    for (uint32_t& one : made.of) one = clocks;
    clocks = keep_clocks(made);
  }
  lane_clocks[clocks - kApart].of[lane] = clock;
  return clocks;
}

void drop_clocks(uint32_t clocks) {
  if (clocks >= kApart) free_clocks.push_back(clocks - kApart);
}

namespace {

constexpr int kNearReaders = 16;  // of a word that are looked through; further ones are found by their names

// Notes that may stay in memory between launches: every word says of which epoch it is. And as many as may keep their
// addresses: to empty more of them, the system would look through page tables that stay for good.
constexpr size_t kKeptBytes = size_t(1) << 24, kKeptAddresses = size_t(1) << 30;

char* area;  // mapped page by page when it is touched
size_t area_bytes, used;
uint32_t free_readers;
std::vector<uint32_t> far_readers;  // places in `all_readers` by name: what is found need not be what was sought

uint32_t& far_place(const Word& word, uint16_t who) {
  if (far_readers.empty()) far_readers.resize(size_t(1) << 16);
  const uint64_t name = reinterpret_cast<uint64_t>(&word) / sizeof(Word) + (uint64_t(run.now) << 32 | who);
  return far_readers[name * 0x9e3779b97f4a7c15u >> 48];
}

int shift_of(int granule) { return granule == 4 ? 2 : granule == 2 ? 1 : 0; }

void give_back() {
  if (area != nullptr) munmap(area, area_bytes);
  area = nullptr;
  area_bytes = used = 0;
}

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
    if (!ordered(readers.epoch, reader, clock_of(readers.clocks, reader % kWarp))) return reader;
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
    give_back();
    void* mapped = mmap(nullptr, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return false;
    area = static_cast<char*>(mapped);
    area_bytes = needed;
  }
  used = 0;
  words.assign(launch.buffer_count, {nullptr, 0});
  for (int64_t i = 0; i < launch.buffer_count; ++i) {
    const Buffer& buffer = launch.buffers[i];
    const bool both = buffer.taken == Taken::kMutable || buffer.taken == Taken::kMutableAndReadOnly;
    const int shift = shift_of(buffer.granule);
    if (buffer.writable && both) words[i] = {take(buffer.high - buffer.low, shift), shift};
  }
  all_readers.assign(1, {});
  far_readers.clear();
  lane_clocks.clear();
  free_clocks.clear();
  free_readers = 0;
  return true;
}

void forget_words() {
  if (area_bytes > kKeptAddresses) give_back();
  if (area != nullptr) madvise(area, area_bytes, MADV_DONTNEED);
}

void forget_many_words() {
  if (used > kKeptBytes) forget_words();
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
    for (uint32_t at = word.readers; at != 0; at = all_readers[at].next) {
      Readers copy = all_readers[at];
      copy.word = &fine[i];
      copy.next = fine[i].readers;
      if (copy.clocks >= kApart) {
        const LaneClocks own = lane_clocks[copy.clocks - kApart];
        copy.clocks = keep_clocks(own);
      }
      fine[i].readers = keep(copy);
    }
  }
  coarse = {fine, 0};
}

void add_reader(Word& word, uint16_t who, uint32_t pc) {
  const Thread& me = *run.current;
  const uint32_t lane = 1u << me.lane();
  const Readers one{&word, run.now, me.clock(), lane, pc, who, 0};
  const auto join = [&](Readers& readers) {
    if (readers.lanes == lane) drop_clocks(readers.clocks);
    readers.lanes |= lane;
    readers.clocks = readers.lanes == lane ? me.clock() : with_clock(readers.clocks, me.lane(), me.clock());
  };
  const uint32_t first = has_readers(word) ? word.readers : 0;
  uint32_t* far = nullptr;
  int count = 0;
  for (uint32_t at = first; at != 0; at = all_readers[at].next) {
    Readers& readers = all_readers[at];
    if (++count > kNearReaders) {
      far = &far_place(word, who);
      Readers& found = all_readers[*far < all_readers.size() ? *far : 0];
      if (found.word == &word && found.epoch == run.now && found.who == who) return join(found);
      break;
    }
    if ((readers.who & ~kWarpBits) == (who & ~kWarpBits) && unordered(readers) < 0) {
      const uint32_t next = readers.next;
      drop_clocks(readers.clocks);
      readers = one;
      readers.next = next;
      return;
    }
    if (readers.epoch == run.now && readers.who == who) return join(readers);
  }
  Readers added = one;
  added.next = first;
  word.readers = keep(added);
  if (far != nullptr) *far = word.readers;
}

void add_plain_writer(Word& word, const Word& before) {
  const int writer = before.writer & kThreadBits;
  const uint16_t who = uint16_t(writer / kWarp | kPlainWriter);
  const Readers kept{&word, before.epoch, uint32_t(before.clock), 1u << writer % kWarp, uint32_t(before.pc), who, 0};
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
    drop_clocks(readers.clocks);
    readers.word = nullptr;
    readers.next = free_readers;
    free_readers = at;
  }
  word.readers = kept;
  if (kept != 0) all_readers[kept].next = 0;
}

}  // namespace cuda_on_host
