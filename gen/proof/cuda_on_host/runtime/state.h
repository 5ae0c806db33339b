// What the pieces of the runtime share: the launch that runs, its fibers, the fault that ends it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "../collective.h"
#include "fibers.h"
#include "interface.h"

namespace cuda_on_host {

constexpr int kMaxThreads = 1024, kWarp = 32;

enum class State : uint8_t { kReady, kAtBarrier, kAtCollective, kFinished };

// What a thread waits for at a warp's collective, and what it gets.
struct Waiting {
  Collective kind;
  int source, bytes;
  uint32_t mask;
  alignas(8) unsigned char brought[8], received[8];
};

struct Thread {
  Context context;
  char* stack;  // its lowest byte
  State state;
  uint16_t number;  // x first, then y, then z
  Index index;
  uint64_t steps;
  int barrier_line, predicate;
  void* wait_pc;
  Waiting waiting;
  // A clock of each lane of its warp: what the lane did up to then happened before what this thread does now.
  uint32_t known[kWarp];

  int lane() const { return number % kWarp; }
  int warp() const { return number / kWarp; }
  uint32_t clock() const { return known[lane()]; }
};

struct Run {
  const Launch* launch;
  Fault* fault;
  Thread* current;  // null outside a launch
  Context scheduler;
  Index block;
  int thread_count;
  int barrier_count;     // the predicates of the last barrier
  uint32_t epoch;        // counts barriers and blocks: one orders everything before it
  uint32_t block_epoch;  // the first of this block
  Thread threads[kMaxThreads];
};

extern Run run;

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

// Back to the scheduler until the thread is made ready again.
void wait(State state, void* pc);

// Puts a thread into the queue of those that can run.
void make_ready(Thread& thread);

// Makes the shared memory of a launch known; forgets what was written, before each block.
bool prepare_shared();
void poison_shared();

unsigned char* dynamic_area();

// The buffer that holds an address, or else the one that begins or ends nearest.
struct Spot {
  int32_t buffer;
  int64_t offset;
};
Spot locate(uint64_t address);

// Names in `run.fault` why nothing can go on.
void report_stuck();

}  // namespace cuda_on_host

#define CUDA_ON_HOST_EXPORT __attribute__((visibility("default")))
