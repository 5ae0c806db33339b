// Races in global memory, within a block and between blocks: a word of notes for each 4 bytes of what a launch may
// write, or for each byte where smaller pieces are touched.
#pragma once
#include "touch.h"

namespace cuda_on_host {

// The last writer. Notes of earlier launches are known by their epochs: nothing is ever cleared.
struct Word {
  uint32_t epoch;
  uint32_t readers;                           // since then: a place in `all_readers`, where it is the word's own
  uint64_t writer : 16, clock : 24, pc : 24;  // pc counts from where the kernel's machine code begins
};
constexpr uint32_t kLastClock = (1 << 24) - 1, kLastPlace = (1 << 24) - 1;

// Readers that nothing orders: lanes of one warp, in one epoch. Or the last plain writer, once atomics have followed
// it: each of them must come after it, not only the first.
struct Readers {
  const Word* word;
  uint32_t epoch, clocks, lanes, pc;
  uint16_t who;   // a warp, and how it read; where that was volatile also the size
  uint32_t next;  // 0: no further ones
};

constexpr uint16_t kVolatileReader = 0x8000, kReadOnlyReader = 0x4000, kPlainWriter = 0x2000, kWarpBits = 0x3ff;
// Where a buffer's words lie in this launch; null where the launch only reads.
struct Words {
  Word* first;
  int shift;  // of the number of bytes that share a word
};
extern std::vector<Words> words;
extern std::vector<Readers> all_readers;  // of this launch; the first stands for none

// From now on each byte has its word.
void refine(int32_t buffer);

inline bool has_readers(const Word& word) {
  return word.readers < all_readers.size() && all_readers[word.readers].word == &word;
}
void add_reader(Word& word, uint16_t who, uint32_t pc);
void add_plain_writer(Word& word, const Word& before);
void check_plain_writer(const Word& word, const char* text, const void* pc, int32_t buffer, int64_t offset, int size);

// Forgets them, but for a plain writer where another atomic follows.
void check_readers(Word& word, Touch touch, const void* pc, int32_t buffer, int64_t offset, int size);

inline const void* code_at(uint32_t pc) { return reinterpret_cast<const void*>(run.launch->code + pc); }

template <Touch touch>
CUDA_ON_HOST_FAST void check_word(Word& word, const void* pc, int32_t buffer, int64_t offset, int size) {
  const Thread& me = *run.current;
  const uint64_t distance = reinterpret_cast<uint64_t>(pc) - run.launch->code;
  const uint32_t place = distance < kLastPlace ? uint32_t(distance) : kLastPlace;
  if (word.epoch > run.begin) {
    const int writer = word.writer & kThreadBits;
    if (touch == Touch::kReadOnlyPath) [[unlikely]] {
      conflict(Kind::kReadOnlyPath, pc, "written by", word.epoch, writer, code_at(word.pc), buffer, offset, size);
    }
    if (!harmless<touch>(word.writer, size, owner(word.epoch) == run.block->number) &&
        !ordered(word.epoch, writer, word.clock)) [[unlikely]] {
      const char* text = writes(touch) ? "and written by" : "but written by";
      conflict(Kind::kRace, pc, text, word.epoch, writer, code_at(word.pc), buffer, offset, size);
    }
  }
  if (writes(touch)) {
    if (has_readers(word)) [[unlikely]] {
      check_readers(word, touch, pc, buffer, offset, size);
    } else {
      word.readers = 0;
    }
    const uint32_t clock = me.clock();
    if (clock > kLastClock) [[unlikely]]
      fail(Kind::kTooLong, pc, "after more fences and barriers of a warp than are told apart", buffer, offset, size);
    const Word before = word;
    word = {run.now, before.readers, uint64_t(me.number) | writer_flags<touch>(size), clock, place};
    if (atomic(touch) && before.epoch > run.begin && (before.writer & kAtomic) == 0) add_plain_writer(word, before);
  } else {
    if (touch == Touch::kVolatileRead && has_readers(word)) {
      check_plain_writer(word, "but written by", pc, buffer, offset, size);
    }
    const uint16_t how = touch == Touch::kVolatileRead   ? kVolatileReader | size_flags(size)
                         : touch == Touch::kReadOnlyPath ? kReadOnlyReader
                                                         : 0;
    add_reader(word, uint16_t(me.warp() | how), place);
  }
}

template <Touch touch>
CUDA_ON_HOST_FAST void check_global(const void* pc, int32_t buffer, int64_t offset, int size) {
  const Words* found = &words[buffer];
  const int64_t rest = (int64_t(1) << found->shift) - 1;
  if (((offset | size) & rest) != 0) [[unlikely]]
    refine(buffer);
  Word* word = found->first + (offset >> found->shift);
  for (int i = 0; i < size; i += 1 << found->shift, ++word) check_word<touch>(*word, pc, buffer, offset, size);
}

}  // namespace cuda_on_host
