// Blocks of a cluster: they run at the same time, meet at a barrier, and reach into each other's shared memory.
#pragma once
#include "global_races.h"

namespace cuda_on_host {

struct Cluster {
  uint64_t number;             // x first, then y, then z
  std::vector<Block*> blocks;  // by rank
  int left;                    // blocks that have not ended
  int arrived;                 // threads at the barrier that is open
  uint32_t barriers;           // that all threads have come to
  uint32_t releases;           // that came before the last of them opened
};

// The number of the block of this rank in a cluster; the number of a block's cluster.
uint64_t block_in_cluster(uint64_t cluster, uint32_t rank);
uint64_t cluster_of_block(uint64_t block);

// A place in the shared memory of a block of the running one's cluster, its own among them; block null: it is in none.
struct SharedPlace {
  Block* block;
  int32_t buffer;  // kStaticShared or kDynamicShared
  int64_t offset;
};
SharedPlace find_shared(uint64_t address);

// Notes for each byte of a block's shared memory, that nobody has touched it. False if memory is short.
bool prepare_notes(Block& block);
void release_notes(Block& block);

// Refuses what reaches into a block that may not have begun, or may have ended; notes the rest.
void reach(Block& there, const void* pc, int32_t buffer, int64_t offset, int size);

// The last thread of a block in a cluster has returned: whoever has reached into it must have done so before.
void end_block(Block& block);

// Ends a thread that has not waited for its cluster.
void leave_cluster();

// What threads know of their cluster's barriers, they all know after a barrier of the block.
void join_cluster_barriers(Block& block);

// Whether no thread of a cluster can run, and so none ever will: `run.fault` then says why.
bool is_stuck(Cluster& cluster);

// Shared memory that other blocks may touch is noted as global memory is.
template <Touch touch>
void check_in_cluster(const SharedPlace& place, int size, const void* pc, bool misaligned) {
  const Launch& launch = *run.launch;
  constexpr Kind outside = writes(touch) ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead;
  const int64_t offset = place.offset;
  const bool is_static = place.buffer == kStaticShared;
  const uint64_t end = uint64_t(offset) + size;
  const bool inside = is_static ? end <= launch.shared_bytes && launch.objects[offset] != 0 &&
                                      launch.objects[offset] == launch.objects[end - 1]
                                : end <= launch.dynamic_bytes;
  if (!inside) fail(outside, pc, "", place.buffer, offset, size);
  if (misaligned) fail(Kind::kMisaligned, pc, "", place.buffer, offset, size);
  if (place.block != run.block) reach(*place.block, pc, place.buffer, offset, size);
  Word* word = place.block->words + (is_static ? 0 : launch.shared_bytes) + offset;
  for (int i = 0; i < size; ++i, ++word) {
    if (reads(touch) && word->epoch == 0) fail(Kind::kUninitialised, pc, "", place.buffer, offset, size);
    check_word<touch>(*word, pc, place.buffer, offset, size);
  }
}

}  // namespace cuda_on_host
