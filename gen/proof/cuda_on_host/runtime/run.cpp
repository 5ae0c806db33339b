// Runs one launch: blocks one after another, the threads of a block as fibers, both in a seeded random order.
#include <cstdio>
#include <cstring>

#include "state.h"
#include "watchdog.h"

namespace cuda_on_host {

Run run;

namespace {

// The threads that can run, first in first out.
struct Queue {
  Thread* threads[kMaxThreads];
  int first, count;
} queue;

uint64_t random_state;

// SplitMix64 (Steele, Lea, Flood 2014): enough to vary an order.
uint64_t random_number() {
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}
uint64_t random_below(uint64_t bound) { return uint64_t((unsigned __int128)random_number() * bound >> 64); }

void start() {
  run.launch->enter(run.launch->arguments);
  run.current->state = State::kFinished;
  switch_context(run.current->context, run.scheduler);
}

// Threads go on in the order of `order`, from a random place in it.
void make_all_ready(const uint16_t* order) {
  const int begin = int(random_below(run.thread_count));
  for (int i = 0; i < run.thread_count; ++i) {
    const int place = begin + i;
    make_ready(run.threads[order[place < run.thread_count ? place : place - run.thread_count]]);
  }
}

void begin_block(uint16_t* order) {
  const Index size = run.launch->block;
  run.block_epoch = ++run.epoch;
  poison_shared();
  for (int i = 0; i < run.thread_count; ++i) {
    Thread& thread = run.threads[i];
    thread.index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    thread.steps = 0;
    memset(thread.known, 0, sizeof thread.known);
    thread.known[thread.lane()] = 1;
    prepare(thread.context, thread.stack, i, start);
  }
  for (int i = run.thread_count - 1; i > 0; --i) {
    const int other = int(random_below(i + 1));
    const uint16_t kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  make_all_ready(order);
}

// Whether every thread waits at one and the same barrier.
bool barrier_is_full() {
  for (int i = 0; i < run.thread_count; ++i) {
    const Thread& thread = run.threads[i];
    if (thread.state != State::kAtBarrier || thread.barrier_line != run.threads[0].barrier_line) return false;
  }
  return true;
}

bool block_is_finished() {
  for (int i = 0; i < run.thread_count; ++i) {
    if (run.threads[i].state != State::kFinished) return false;
  }
  return true;
}

// Runs one block to its end or to a fault.
void run_block(uint16_t* order) {
  begin_block(order);
  for (;;) {
    while (queue.count > 0) {
      run.current = queue.threads[queue.first];
      queue.first = (queue.first + 1) % kMaxThreads;
      --queue.count;
      switch_context(run.scheduler, run.current->context);
      if (run.fault->kind != Kind::kNone) return;
    }
    if (block_is_finished()) return;
    if (!barrier_is_full()) return report_stuck();
    run.barrier_count = 0;
    for (int i = 0; i < run.thread_count; ++i) run.barrier_count += run.threads[i].predicate != 0;
    ++run.epoch;
    make_all_ready(order);
  }
}

uint64_t greatest_common_divisor(uint64_t a, uint64_t b) { return b == 0 ? a : greatest_common_divisor(b, a % b); }

}  // namespace

void make_ready(Thread& thread) {
  thread.state = State::kReady;
  queue.threads[(queue.first + queue.count) % kMaxThreads] = &thread;
  ++queue.count;
}

void record(Kind kind, const void* pc, const char* text, int32_t buffer, int64_t offset, int32_t bytes) {
  Fault& fault = *run.fault;
  fault.kind = kind;
  fault.bytes = bytes;
  fault.buffer = buffer;
  fault.offset = offset;
  fault.pc = reinterpret_cast<uint64_t>(pc);
  fault.block = run.block;
  fault.thread = run.current->index;
  snprintf(fault.text, sizeof fault.text, "%s", text);
}

void fail(Kind kind, const void* pc, const char* text, int32_t buffer, int64_t offset, int32_t bytes) {
  record(kind, pc, text, buffer, offset, bytes);
  switch_context(run.current->context, run.scheduler);
  __builtin_unreachable();
}

CUDA_ON_HOST_EXPORT Index thread_index() { return run.current->index; }
CUDA_ON_HOST_EXPORT Index block_index() { return run.block; }
CUDA_ON_HOST_EXPORT Index block_dimensions() { return run.launch->block; }
CUDA_ON_HOST_EXPORT Index grid_dimensions() { return run.launch->grid; }
CUDA_ON_HOST_EXPORT int lane() { return run.current->lane(); }
CUDA_ON_HOST_EXPORT unsigned char* dynamic_shared() { return dynamic_area(); }
CUDA_ON_HOST_EXPORT void fence() {}

}  // namespace cuda_on_host

using namespace cuda_on_host;

// Runs a launch. 0: all blocks ended; 1: `fault` says what is wrong; 2: memory is short.
extern "C" CUDA_ON_HOST_EXPORT int cuda_on_host_run(const Launch* launch, Fault* fault) {
  static char* stacks = map_stacks(kMaxThreads);
  if (stacks == nullptr) return 2;
  *fault = Fault{};
  run.launch = launch;
  run.fault = fault;
  run.thread_count = int(launch->block.x * launch->block.y * launch->block.z);
  if (!prepare_shared()) return 2;
  queue.first = queue.count = 0;
  random_state = launch->seed;
  const Watchdog watchdog;

  uint16_t order[kMaxThreads];
  for (int i = 0; i < run.thread_count; ++i) {
    order[i] = uint16_t(i);
    run.threads[i].number = uint16_t(i);
    run.threads[i].stack = stacks + size_t(i) * kStackBytes;
  }
  // Every block once, in an order that needs no list: a random step that shares no factor with their number.
  const Index grid = launch->grid;
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  uint64_t stride = 1 + random_below(blocks);
  while (greatest_common_divisor(stride, blocks) != 1) stride = 1 + random_below(blocks);
  uint64_t block = random_below(blocks);
  for (uint64_t i = 0; i < blocks && fault->kind == Kind::kNone; ++i) {
    run.block = {uint32_t(block % grid.x), uint32_t(block / grid.x % grid.y), uint32_t(block / grid.x / grid.y)};
    run_block(order);
    block = (block + stride) % blocks;
  }
  run.current = nullptr;
  return fault->kind == Kind::kNone ? 0 : 1;
}
