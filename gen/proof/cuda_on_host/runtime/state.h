// What the pieces of the runtime share: the launch that runs, its blocks and fibers, the fault that ends it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../collective.h"
#include "chains.h"
#include "fibers.h"
#include "interface.h"

namespace cuda_on_host {

constexpr int kMaxThreads = 1024;

enum class State : uint8_t { kReady, kAtBarrier, kAtClusterBarrier, kAtCollective, kFinished };

// What a thread waits for at a warp's collective, and what it gets.
struct Waiting {
  int source;
  uint32_t mask;
  Collective kind;
  uint8_t bytes;
  unsigned char brought[8], received[8];
};

// The place that a thread asks again and again, what it found there, and how often it asked there and in all.
struct Spin {
  const volatile void* address;
  uint64_t value;
  int same, all;
};

// A copy to shared memory that a thread has begun.
struct Copy {
  unsigned char* to;
  const unsigned char* from;
  const void* pc;
  int bytes, read;  // it writes so many, and reads so many: the rest is zeros
  uint64_t group;
  unsigned char data[16];
};

// Those that it has not waited for, oldest first, and the number of the group that is open.
struct Copies {
  std::vector<Copy> flying;
  uint64_t group;
};

// What a thread knows of the barrier of its cluster: how often it has arrived and waited, and how many barriers it
// knows that all have come to, since it or a thread of its block has waited.
struct ClusterBarriers {
  uint32_t arrivals, waits, seen;
};

// What every switch between threads reads and writes comes first, in one line of the caches.
struct alignas(64) Thread {
  Context context;
  char* stack;  // its lowest byte
  uint64_t steps;
  void* wait_pc;
  Waiting waiting;
  uint16_t number;  // x first, then y, then z
  State state;
  // A clock of each lane of its warp: what the lane did up to then happened before what this thread does now.
  uint32_t known[kWarp];
  Index index;
  int barrier_line, barrier_site, predicate;
  uint64_t way;          // by which calls it has come to a barrier, as one number; `wait_pc` if from the kernel itself
  void** barrier_frame;  // where the calls are found if not
  Spin spin;
  uint32_t flag_reads;  // of words that blocks which do not run would write
  Chains chains;
  Copies copies;
  ClusterBarriers cluster_barriers;

  int lane() const { return number % kWarp; }
  int warp() const { return number / kWarp; }
  uint32_t clock() const { return known[lane()]; }
};

// Who touched a byte of shared memory last, and when: a race is two threads in one epoch that nothing orders.
struct Cell {
  uint32_t write_epoch, write_clock, read_epoch, read_clocks;
  uint32_t lanes;           // of the warp that has read it
  uint32_t plain_clock;     // when it was last written without an atomic, if atomics have followed in that epoch,
  uint16_t plain_writer;    // and 1 + the thread; 0: none
  uint16_t writer, reader;  // a thread, and how it wrote; a warp
  uint16_t copier;          // 1 + the thread that copies here and has not waited for it; 0: nobody
  const void *write_pc, *read_pc;
};

// Where a thread of another block has last reached into a block's shared memory; epoch 0: never.
struct Reach {
  uint32_t epoch, clock;
  const void* pc;
  int32_t buffer, bytes;
  int64_t offset;
};

struct Cluster;
struct Word;

// A block that runs, or that was set aside because all its threads wait for other blocks.
struct Block {
  uint32_t number;  // x first, then y, then z
  uint64_t turn;    // the same, or its place among the chosen blocks
  Index index;
  std::vector<Thread> threads;
  char* stacks = nullptr;
  size_t guards = 0;  // of them
  std::vector<uint16_t> order;
  std::vector<Thread*> queue;  // of the threads that can run, first in first out
  int first, count;
  int idle;               // threads that gave way in a row
  uint64_t preemptions;   // that are left to it
  int barrier_count;      // the predicates of the last barrier
  uint32_t epoch;         // drawn anew at each barrier: one orders everything before it
  uint32_t begin;         // the first of this block
  Cell* cells = nullptr;  // of its shared memory
  size_t cell_capacity = 0;
  std::vector<uint8_t> shared;  // what it had there when it was set aside:
  uint8_t *aside = nullptr, *dynamic_aside = nullptr;
  bool chained = false;        // a thread of it has used a fence or an atomic
  Chains chains;               // what all of its threads have seen of other blocks
  uint64_t changes;            // as many as there were when it was set aside
  int fruitless;               // times it was set aside with no change since
  Block* next;                 // of those that were set aside
  Cluster* cluster = nullptr;  // null where a launch has none
  uint32_t rank;               // in it
  bool ended;
  Word* words = nullptr;  // of its shared memory, in a cluster
  size_t word_capacity = 0;
  std::vector<Reach> reaches;  // by rank and thread; none until somebody has
};

struct Run {
  const Launch* launch;
  Fault* fault;
  Thread* current;      // null outside a launch
  uint64_t turn_steps;  // of the current thread when its turn began
  int turn_idle;        // threads that had given way in a row then
  Block* block;
  uint32_t now;  // its epoch
  Context scheduler;
  int thread_count, cluster_size;
  uint32_t epoch;                // the last one drawn; they go on from launch to launch
  uint32_t begin;                // all epochs up to this one belong to earlier launches
  uint64_t steps;                // of all threads of this launch
  uint64_t changes;              // counts whatever a waiting thread could be waiting for
  bool preempted;                // the thread that ran last has stopped before an atomic, for other blocks to go on
  uint64_t preemption_mask;      // the bits of a random number that are 0 where one is
  std::vector<uint32_t> owners;  // the block of each epoch of this launch
};

extern Run run;

// The block that an epoch of this launch belongs to.
inline uint32_t owner(uint32_t epoch) { return run.owners[epoch - run.begin - 1]; }
inline void draw_epoch(Block& block) {
  run.now = block.epoch = ++run.epoch;
  run.owners.push_back(block.number);
}
uint64_t random_number();  // the next of this launch
Index block_at(uint64_t number);
Index thread_at(int number);

// Whether what `thread` of this block did at `clock`, in this epoch, happened before what the current thread does.
inline bool ordered_in_block(int thread, uint32_t clock) {
  const Thread& me = *run.current;
  if (thread == me.number) return true;
  if (thread / kWarp == me.warp() && me.known[thread % kWarp] >= clock) return true;
  return run.block->chained && reached(run.block->number, run.now, thread, clock);
}

// The same for any epoch of this launch.
inline bool ordered(uint32_t epoch, int thread, uint32_t clock) {
  if (epoch == run.now) return ordered_in_block(thread, clock);
  const uint32_t block = owner(epoch);
  return block == run.block->number || (run.block->chained && reached(block, epoch, thread, clock));
}

// Records what is wrong with the current thread: the first fault counts.
void record(Kind kind, const void* pc, const char* text = "", int32_t buffer = kNoBuffer, int64_t offset = 0,
            int32_t bytes = 0);

// The same from within a fiber, and abandons the launch.
[[noreturn]] void fail(Kind kind, const void* pc, const char* text = "", int32_t buffer = kNoBuffer, int64_t offset = 0,
                       int32_t bytes = 0);

constexpr uint64_t kWaitSteps = 16;  // a wait takes about as long as so many accesses

// Counts an access or a wait of the current thread; ends a thread that never ends.
inline void step(const void* pc, uint64_t count = 1) {
  if ((run.current->steps += count) > run.launch->steps_per_thread) [[unlikely]] {
    fail(Kind::kHang, pc, "it takes more steps than any thread that ends");
  }
}

// Ends the current thread's turn until it is made ready again: the next thread that can run goes on, or the scheduler.
void go_on();

// The same, in the meantime in this state.
void wait(State state, void* pc);

// Lets every other thread go on first, in other blocks too.
void give_way(const void* pc);

// Now and then lets other blocks go on before a thread asks global memory by an atomic or a volatile load.
void may_preempt(const void* pc);

// Puts a thread of a block into the queue of those that can run.
void make_ready(Block& block, Thread& thread);

// Check an access of the kernel: to `size` bytes, aligned to `alignment`.
void plain_read(const void* address, int alignment, int size, const void* pc);
void plain_write(void* address, int size, const void* pc);
void read_only_access(const volatile void* address, int bytes, void* pc);

// The same of an atomic load that may acquire, and an atomic store that may release, both at the scope of the device.
void flag_read(const void* address, int bytes, bool acquire, const void* pc);
void flag_write(void* address, int bytes, bool release, const void* pc);

unsigned char* dynamic_area();

// Refuses an address of local or shared memory where an instruction names global memory.
void check_global(const void* address, int bytes, const void* pc);

// The buffer that holds an address, or else the one that begins or ends nearest.
struct Spot {
  int32_t buffer;
  int64_t offset;
};
Spot locate(uint64_t address);

// Makes the launch's shared memory known, and the notes on who has touched which byte of its buffers.
bool prepare_shared();
bool prepare_words();
void forget_words();
void forget_many_words();  // unless they are few
bool prepare_cells(Block& block);
void release_cells(Block& block);

// Makes room for what a block has in shared memory while others run, as aligned as for the one that runs.
void make_room_aside(Block& block);

// Makes shared memory look unwritten, before each block.
void poison_shared();

// The current thread has come to a barrier by calls of which this is the innermost frame.
void note_way(void** frame);

// Takes a note of threads that have come to a full barrier by different calls: whether they came by different lines is
// for those to say who can read the code's lines.
void note_divergent_barriers(const Block& block);
void forget_divergent_barriers();

// Names in `run.fault` why nothing can go on.
void report_stuck();

// In words: the thread, and what it waits for.
void describe(const Thread& thread, char* text, size_t size);

}  // namespace cuda_on_host

#define CUDA_ON_HOST_EXPORT __attribute__((visibility("default")))
