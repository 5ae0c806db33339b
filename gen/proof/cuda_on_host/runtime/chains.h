// Order that fences and atomics make: write, fence, atomic; then a later atomic at the same place, fence, read.
#pragma once
#include <cstdint>
#include <vector>

namespace cuda_on_host {

constexpr int kWarp = 32;

// How many releases of a place have been seen; fences of a block count within the block only.
struct Seen {
  uint32_t place, device, block;
};

// What a thread, or a whole block, has seen of others.
struct Chains {
  std::vector<Seen> pending;                 // by an atomic with no fence after it: nothing yet
  std::vector<Seen> known;                   // by an atomic and a fence after it
  int32_t device = -1, block = -1;           // the last fence of each scope, as a release that an atomic publishes
  uint32_t place = 0, published_device = 0;  // the last publication, so that none is repeated
  uint32_t published_block = 0;

  void clear();
};

// A thread's fence: what it and its block did before becomes visible with its next atomic.
void fence_thread(bool device);

// An atomic of the current thread at the place of this key: it sees what others have published, and publishes the
// thread's last fence if it wrote.
void chain(uint64_t key, bool wrote);

// The two halves of a barrier at a place: a release, and the sight of so many of those that were made there.
void release_at(uint64_t key);
void acquire_at(uint64_t key, uint32_t count);
uint32_t releases_at(uint64_t key);

// Whether a chain leads to the current thread from what `thread` of a block did in this epoch, at this clock.
bool reached(uint32_t block, uint32_t epoch, int thread, uint32_t clock);

// What threads have seen, they all have after a barrier, or after a __syncwarp among the lanes of the mask; an atomic
// that waits for a fence waits for one of its own thread.
void join_block();
void join_lanes(int warp, uint32_t mask);

void forget_chains();

}  // namespace cuda_on_host
