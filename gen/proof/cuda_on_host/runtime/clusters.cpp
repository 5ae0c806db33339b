#include "clusters.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cuda_on_host {

namespace {

uint64_t place_of_barrier(const Cluster& cluster) { return (uint64_t(0xc1) << 56) + cluster.number; }  // no address

Cluster& cluster_of_thread(const void* pc) {
  if (run.block->cluster == nullptr) fail(Kind::kClusterBarrier, pc, "the kernel is launched without clusters");
  return *run.block->cluster;
}

[[noreturn]] void out_of_life(const Block& there, const char* why, const void* pc, int32_t buffer, int64_t offset,
                              int size) {
  char text[sizeof Fault::text];
  const Index index = there.index;
  snprintf(text, sizeof text, "of block (%u, %u, %u), which %s", index.x, index.y, index.z, why);
  fail(Kind::kLifetime, pc, text, buffer, offset, size);
}

}  // namespace

uint64_t block_in_cluster(uint64_t cluster, uint32_t rank) {
  const Index grid = run.launch->grid, size = run.launch->cluster;
  const uint64_t across = grid.x / size.x, down = grid.y / size.y;
  const uint64_t x = cluster % across * size.x + rank % size.x;
  const uint64_t y = cluster / across % down * size.y + rank / size.x % size.y;
  const uint64_t z = cluster / across / down * size.z + rank / size.x / size.y;
  return x + grid.x * (y + grid.y * z);
}

uint64_t cluster_of_block(uint64_t block) {
  const Index grid = run.launch->grid, size = run.launch->cluster, index = block_at(block);
  const uint64_t across = grid.x / size.x, down = grid.y / size.y;
  return index.x / size.x + across * (index.y / size.y + down * (index.z / size.z));
}

SharedPlace find_shared(uint64_t address) {
  const Launch& launch = *run.launch;
  const auto within = [&](Block* block, const void* low, const void* dynamic_low) -> SharedPlace {
    const uint64_t offset = address - reinterpret_cast<uint64_t>(low);
    if (offset < launch.shared_bytes) return {block, kStaticShared, int64_t(offset)};
    const uint64_t dynamic_offset = address - reinterpret_cast<uint64_t>(dynamic_low);
    if (dynamic_offset < launch.dynamic_bytes) return {block, kDynamicShared, int64_t(dynamic_offset)};
    return {nullptr, kNoBuffer, 0};
  };
  SharedPlace found = within(run.block, launch.shared, dynamic_area());
  for (Block* block : run.block->cluster->blocks) {
    if (found.block != nullptr) break;
    if (block != run.block) found = within(block, block->aside, block->dynamic_aside);
  }
  return found;
}

bool prepare_notes(Block& block) {
  const size_t needed = run.launch->shared_bytes + run.launch->dynamic_bytes;
  if (needed > block.word_capacity) {
    release_notes(block);
    block.words = static_cast<Word*>(malloc(needed * sizeof(Word)));
    if (block.words == nullptr) return false;
    block.word_capacity = needed;
  }
  if (needed > 0) memset(static_cast<void*>(block.words), 0, needed * sizeof(Word));
  block.reaches.clear();
  return true;
}

void release_notes(Block& block) {
  free(block.words);
  block.words = nullptr;
  block.word_capacity = 0;
}

void reach(Block& there, const void* pc, int32_t buffer, int64_t offset, int size) {
  const Thread& me = *run.current;
  if (me.cluster_barriers.seen == 0) {
    out_of_life(there, "may not have begun: no barrier of the cluster comes before", pc, buffer, offset, size);
  }
  if (there.ended) out_of_life(there, "has returned", pc, buffer, offset, size);
  if (there.reaches.empty()) there.reaches.resize(size_t(run.cluster_size) * run.thread_count);
  there.reaches[size_t(run.block->rank) * run.thread_count + me.number] = {run.now, me.clock(), pc,
                                                                           buffer,  size,       offset};
}

void end_block(Block& block) {
  block.ended = true;
  --block.cluster->left;
  for (size_t i = 0; i < block.reaches.size(); ++i) {
    const Reach& last = block.reaches[i];
    if (last.epoch == 0) continue;
    Block& from = *block.cluster->blocks[i / run.thread_count];
    const int thread = int(i % run.thread_count);
    bool ordered = false;
    for (int k = 0; k < run.thread_count && !ordered; ++k) {
      run.current = &block.threads[k];
      ordered = reached(from.number, last.epoch, thread, last.clock);
    }
    if (ordered) continue;
    run.block = &from;
    run.current = &from.threads[thread];
    char text[sizeof Fault::text];
    const Index index = block.index;
    snprintf(text, sizeof text, "of block (%u, %u, %u), which does not wait for it and may return before", index.x,
             index.y, index.z);
    return record(Kind::kLifetime, last.pc, text, last.buffer, last.offset, last.bytes);
  }
}

void leave_cluster() {
  const Thread& me = *run.current;
  if (run.block->cluster == nullptr || me.cluster_barriers.arrivals == me.cluster_barriers.waits) return;
  fail(Kind::kClusterBarrier, me.wait_pc, "it has arrived, and returns without having waited");
}

void join_cluster_barriers(Block& block) {
  uint32_t seen = 0;
  for (int i = 0; i < run.thread_count; ++i) {
    if (seen < block.threads[i].cluster_barriers.seen) seen = block.threads[i].cluster_barriers.seen;
  }
  for (int i = 0; i < run.thread_count; ++i) block.threads[i].cluster_barriers.seen = seen;
}

bool is_stuck(Cluster& cluster) {
  Block* waiting = nullptr;
  const Thread* waits = nullptr;
  for (Block* block : cluster.blocks) {
    if (block->ended) continue;
    if (block->count > 0) return false;
    for (int i = 0; i < run.thread_count && waits == nullptr; ++i) {
      if (block->threads[i].state != State::kAtClusterBarrier) continue;
      waiting = block;
      waits = &block->threads[i];
    }
  }
  for (Block* block : cluster.blocks) {
    for (int i = 0; i < run.thread_count; ++i) {
      const Thread& other = block->threads[i];
      if (other.cluster_barriers.arrivals >= waits->cluster_barriers.arrivals) continue;
      char what[80], text[sizeof Fault::text];
      describe(other, what, sizeof what);
      snprintf(text, sizeof text, "it waits there, thread (%u, %u, %u) of block (%u, %u, %u) did not come: it %s",
               other.index.x, other.index.y, other.index.z, block->index.x, block->index.y, block->index.z, what);
      run.block = waiting;
      run.current = const_cast<Thread*>(waits);
      record(Kind::kClusterBarrier, waits->wait_pc, text);
      return true;
    }
  }
  return false;
}

CUDA_ON_HOST_EXPORT Index cluster_dimensions() { return run.launch->cluster; }
CUDA_ON_HOST_EXPORT unsigned cluster_rank() { return run.block->cluster == nullptr ? 0 : run.block->rank; }

CUDA_ON_HOST_EXPORT void arrive_at_cluster(bool release) {
  const void* pc = __builtin_return_address(0);
  step(pc, kWaitSteps);
  Cluster& cluster = cluster_of_thread(pc);
  Thread& me = *run.current;
  if (me.cluster_barriers.arrivals > me.cluster_barriers.waits) {
    fail(Kind::kClusterBarrier, pc, "it has arrived before, and has not waited since");
  }
  ++me.cluster_barriers.arrivals;
  me.wait_pc = const_cast<void*>(pc);
  if (release) release_at(place_of_barrier(cluster));
  ++run.changes;
  if (++cluster.arrived < run.cluster_size * run.thread_count) return;
  cluster.arrived = 0;
  ++cluster.barriers;
  cluster.releases = releases_at(place_of_barrier(cluster));
  for (Block* block : cluster.blocks) {
    for (int i = 0; i < run.thread_count; ++i) {
      Thread& thread = block->threads[i];
      if (thread.state == State::kAtClusterBarrier) make_ready(*block, thread);
    }
  }
}

CUDA_ON_HOST_EXPORT void wait_for_cluster() {
  void* pc = __builtin_return_address(0);
  step(pc, kWaitSteps);
  const Cluster& cluster = cluster_of_thread(pc);
  Thread& me = *run.current;
  if (me.cluster_barriers.arrivals == me.cluster_barriers.waits) {
    fail(Kind::kClusterBarrier, pc, "it waits, and has not arrived");
  }
  if (cluster.barriers < me.cluster_barriers.arrivals) wait(State::kAtClusterBarrier, pc);
  me.cluster_barriers.seen = ++me.cluster_barriers.waits;
  acquire_at(place_of_barrier(cluster), cluster.releases);
}

CUDA_ON_HOST_EXPORT void* map_shared(const void* address, unsigned rank) {
  const void* pc = __builtin_return_address(0);
  step(pc);
  Cluster& cluster = cluster_of_thread(pc);
  const SharedPlace place = find_shared(reinterpret_cast<uint64_t>(address));
  if (place.block != run.block) fail(Kind::kLifetime, pc, "what is mapped is none of the block's shared memory");
  if (rank >= uint32_t(run.cluster_size)) {
    char text[sizeof Fault::text];
    snprintf(text, sizeof text, "rank %u in a cluster of %d blocks", rank, run.cluster_size);
    fail(Kind::kIndex, pc, text);
  }
  if (rank == run.block->rank) return const_cast<void*>(address);
  const Block& there = *cluster.blocks[rank];
  return (place.buffer == kStaticShared ? there.aside : there.dynamic_aside) + place.offset;
}

CUDA_ON_HOST_EXPORT unsigned shared_rank(const void* address) {
  const void* pc = __builtin_return_address(0);
  cluster_of_thread(pc);
  const SharedPlace place = find_shared(reinterpret_cast<uint64_t>(address));
  if (place.block == nullptr) fail(Kind::kLifetime, pc, "the address lies in no shared memory of the cluster");
  return place.block->rank;
}

}  // namespace cuda_on_host
