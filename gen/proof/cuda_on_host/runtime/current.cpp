// The thread that runs: who and where it is, how it becomes ready, how it fails.
#include <cstdio>

#include "state.h"

namespace cuda_on_host {

Run run;

Index block_at(uint64_t number) {
  const Index grid = run.launch->grid;
  return {uint32_t(number % grid.x), uint32_t(number / grid.x % grid.y), uint32_t(number / grid.x / grid.y)};
}
Index thread_at(int number) {
  const Index size = run.launch->block;
  return {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
}

void make_ready(Block& block, Thread& thread) {
  thread.state = State::kReady;
  const int place = block.first + block.count;
  block.queue[place < run.thread_count ? place : place - run.thread_count] = &thread;
  ++block.count;
}

void record(Kind kind, const void* pc, const char* text, int32_t buffer, int64_t offset, int32_t bytes) {
  Fault& fault = *run.fault;
  fault.kind = kind;
  fault.bytes = bytes;
  fault.buffer = buffer;
  fault.offset = offset;
  fault.pc = reinterpret_cast<uint64_t>(pc);
  fault.block = run.block->index;
  fault.thread = run.current->index;
  snprintf(fault.text, sizeof fault.text, "%s", text);
}

void fail(Kind kind, const void* pc, const char* text, int32_t buffer, int64_t offset, int32_t bytes) {
  record(kind, pc, text, buffer, offset, bytes);
  switch_context(run.current->context, run.scheduler);
  __builtin_unreachable();
}

CUDA_ON_HOST_EXPORT Index thread_index() { return run.current->index; }
CUDA_ON_HOST_EXPORT Index block_index() { return run.block->index; }
CUDA_ON_HOST_EXPORT Index block_dimensions() { return run.launch->block; }
CUDA_ON_HOST_EXPORT Index grid_dimensions() { return run.launch->grid; }
CUDA_ON_HOST_EXPORT int lane() { return run.current->lane(); }
CUDA_ON_HOST_EXPORT long long clock() { return (long long)run.current->steps; }
CUDA_ON_HOST_EXPORT unsigned char* dynamic_shared() { return dynamic_area(); }

}  // namespace cuda_on_host
