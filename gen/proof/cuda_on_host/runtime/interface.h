// What Python hands over and gets back; gen/proof/native.py declares the same structures.
#pragma once
#include <cstdint>

namespace cuda_on_host {

struct Index {
  uint32_t x, y, z;
};

// How a launch takes a buffer. Where it only reads, nothing in it can race.
enum class Taken : int32_t { kMutable, kConst, kReadOnly, kMutableAndReadOnly };

// Of an array with gaps between its rows: from one row to the next, and how much of that is the row's. Rows may be made
// of shorter ones, down to single elements.
struct Level {
  uint64_t pitch, used;
};

// A range of bytes that a launch may touch.
struct Buffer {
  uint64_t low, high;
  uint8_t* written;        // one byte a byte: set once it has been written; null where all are from the start
  uint8_t* touched;        // one byte a byte: kTouchedByRead, kTouchedByWrite; null where nobody asks
  uint8_t* touched_pages;  // one byte a page of these: set where one is marked
  int32_t writable;
  int32_t granule;  // bytes that are mostly accessed together: 1, 2 or 4
  Taken taken;
  int32_t level_count;
  const Level* levels;  // the longest rows first
};

constexpr uint8_t kTouchedByRead = 1, kTouchedByWrite = 2;
constexpr uint64_t kMarksPerPage = 4096;

constexpr uint8_t kInGlobal = 0, kInShared = 1;

// One access of one thread, in the order in which each thread makes its own.
struct Access {
  uint64_t address;  // of shared memory: bytes from its beginning
  uint64_t pc;
  uint32_t block;  // x first, then y, then z
  uint16_t thread;
  uint16_t bytes;
  uint8_t touch;      // kTouchedByRead, kTouchedByWrite
  uint8_t space;      // kInGlobal, kInShared
  uint8_t read_only;  // through the read-only path
  uint8_t reserved[5];
};

// A place in the machine code, for one block: how many accesses its threads made there, and how many were noted.
struct CodePlace {
  uint64_t pc, count, noted;
  uint32_t block, reserved;
};

// All accesses are counted. As far as there is room, those of chosen blocks are noted, of each thread at each place: so
// many together, of every so many times as many.
struct Trace {
  Access* accesses;
  uint64_t capacity;
  uint32_t together, every;
  const uint8_t* chosen;  // one byte a block that runs; null: all
  uint64_t count, noted;
  const CodePlace* places;  // until the next launch
  uint64_t place_count;
};

struct Launch {
  void (*enter)(void**);
  void** arguments;
  Index grid, block;
  uint64_t seed;
  uint64_t steps_per_thread;  // accesses and waits after which a thread hangs
  uint64_t resident_blocks;   // so many blocks at once may wait for each other
  uint8_t* shared;            // static shared memory
  const uint8_t* objects;     // one byte a byte of it: the number of its object; 0: belongs to none
  uint64_t shared_bytes, dynamic_bytes;
  const Buffer* buffers;
  int64_t buffer_count;
  uint64_t code, code_bytes;  // the machine code of the kernel's library
  const uint64_t* blocks;     // the numbers of those that run, clusters whole and by rank; null: all
  uint64_t block_count;
  uint64_t* touched;  // by each of them: bytes of buffers of which somebody asks what is touched
  uint64_t steps;     // of all threads together, after which the launch is given up
  Trace* trace;       // where accesses are noted; null where nobody asks
  Index cluster;      // blocks in a cluster
  uint64_t preemptions;  // of a block at most, at atomics of global memory, before which other blocks run
};

enum class Kind : int32_t {
  kNone,
  kOutOfBoundsRead,
  kOutOfBoundsWrite,
  kMisaligned,
  kReadOnly,
  kUninitialised,
  kRace,
  kReadOnlyPath,
  kBarrier,
  kAbsentLane,
  kLanesDisagree,
  kHang,
  kOverflow,
  kIndex,
  kDivision,
  kShift,
  kNoReturn,
  kStackOverflow,
  kTooLong,
  kWidth,
  kInFlight,
  kClusterBarrier,
  kLifetime,
  kConversion,
  kOperand,
};

constexpr int32_t kNoBuffer = -1, kStaticShared = -2, kDynamicShared = -3;

// What ended a launch. Where nothing did, `pc` may be where a thread first got a value that is undefined.
struct Fault {
  Kind kind;
  int32_t bytes;   // of the access
  int32_t buffer;  // number in Launch::buffers, or one of the constants above
  int32_t line;    // known without its pc, for a barrier
  int64_t offset;  // from the buffer's first byte
  uint64_t pc, other_pc;
  Index block, thread, other_block, other_thread;
  char text[200];
  uint64_t divergent_barriers;  // how many there were
};

constexpr int kMostCalls = 8;

// Two threads that waited at the same barrier and came there by different calls: the return addresses, the innermost
// first, in as far as they lie in the kernel's code; then 0.
struct DivergentBarrier {
  uint64_t way[kMostCalls], other_way[kMostCalls];
  Index block, thread, other_thread;
};

}  // namespace cuda_on_host
