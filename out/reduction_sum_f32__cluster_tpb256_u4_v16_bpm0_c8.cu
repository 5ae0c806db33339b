// reduction_sum_f32__cluster_tpb256_u4_v16_bpm0_c8
//
// The sum of all f32 elements of an array; of none: 0.
// One launch: the blocks of a cluster stride through a row with vector loads, and every warp
// leaves its result in the shared memory of the first of them, which combines them in order. Where
// a row has one cluster, that is all: no scratch memory, no fence, no atomic. Else the cluster
// that finishes last combines the partial results in index order.
//
// Launch:   <<<8, 256>>>(in, out, n) in clusters of 8 blocks
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"blocks_per_cluster": 8, "blocks_per_sm": 0, "threads_per_block": 256, "unroll": 4,
//           "vec_bytes": 16}
// Template: reduction/cluster.cu.jinja, with its partials sha256 c122a032179e5a32
//
// Written by gen: change the template, not this file.

constexpr int kCluster = 8;  // blocks that reach into each other's shared memory
constexpr int kThreadsPerBlock = 256;
constexpr int kUnroll = 4;  // vector loads that each thread has in flight
constexpr int kVecBytes = 16;
constexpr int kVecItems = 4;
constexpr int kChains = 4;  // of states, which each thread keeps side by side
constexpr int kWarps = kThreadsPerBlock / 32;
static_assert(kThreadsPerBlock % 32 == 0 && kWarps <= 32, "a block is whole warps, at most 32");
static_assert(kCluster <= 8, "not every device has larger clusters");

using Item = float;  // an element in memory
using State = float;  // of the elements seen so far: their sum

__device__ __forceinline__ State identity() {
  return 0.0f;
}

__device__ __forceinline__ State combine(State a, State b) { return a + b; }

// The state of one element.
__device__ __forceinline__ State lift(Item item) {
  const float x = item;
  return x;
}

// The state of another lane of the warp.
__device__ __forceinline__ State from_lane(State state, int distance) {
  return __shfl_xor_sync(0xffffffffu, state, distance);
}

// The state of kCount neighbouring lanes, a power of two, in each of them.
template <int kCount = 32>
__device__ __forceinline__ State combine_warp(State state) {
#pragma unroll
  for (int distance = kCount / 2; distance > 0; distance /= 2) {
    state = combine(state, from_lane(state, distance));
  }
  return state;
}

// The state of the cluster, in the first warp of its first block, where every warp leaves its own.
// The block must have arrived at the cluster's barrier once before.
__device__ __forceinline__ State combine_cluster(
    State state, unsigned rank, State (&states)[kCluster * kWarps]) {
  state = combine_warp(state);
  __cluster_barrier_wait();  // all blocks have begun: their shared memory is there
  if (threadIdx.x % 32 == 0) {
    State* const first = static_cast<State*>(__cluster_map_shared_rank(states, 0));
    first[rank * kWarps + threadIdx.x / 32] = state;
  }
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
  if (rank == 0 && threadIdx.x < 32) {
    state = identity();
    for (int warp = threadIdx.x; warp < kCluster * kWarps; warp += 32) {
      state = combine(state, states[warp]);
    }
    state = combine_warp(state);
  }
  return state;
}

// Element i of each output, from what is known of `count` elements.
__device__ __forceinline__ void write_results(
    State state, long long count, long long i,
    float* __restrict__ out) {
  out[i] = state;
}

// Loaded at once, then taken apart.
union Vector {
  uint4 raw;
  Item items[kVecItems];
};
static_assert(sizeof(Vector::raw) == kVecBytes, "one load moves one vector");
static_assert(sizeof(Vector) == kVecBytes, "its items fill a vector");
using Raw = uint4;

// What a thread has read in whole vectors: chains of states that do not wait for each other.
struct Seen {
  State states[kChains];
};

__device__ __forceinline__ Seen nothing_seen() {
  Seen seen;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) seen.states[chain] = identity();
  return seen;
}

// Adds each item of a vector to the state of its chain.
__device__ __forceinline__ void fold_vector(Seen& seen, const Vector& vector) {
#pragma unroll
  for (int i = 0; i < kVecItems; ++i) {
    seen.states[i % kChains] = combine(seen.states[i % kChains], lift(vector.items[i]));
  }
}

__device__ __forceinline__ State state_of(const Seen& seen) {
  State state = seen.states[0];
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) state = combine(state, seen.states[chain]);
  return state;
}

// The state of what one thread reads of n elements. A team of threads takes every parts-th tile of
// team * kUnroll vectors, from number `part` on: what is loaded at once lies together.
__device__ __forceinline__ State read_share(
    const Item* __restrict__ in, long long n, int thread, int team,
    long long part, long long parts) {
  Seen seen = nothing_seen();
  // Vectors lie at multiples of kVecBytes: the head before the first, the tail after the last.
  const int past = reinterpret_cast<unsigned long long>(in) % kVecBytes;
  const int to_first = (kVecBytes - past) % kVecBytes / sizeof(Item);
  const long long head = n < to_first ? n : to_first;
  const long long vectors = (n - head) / kVecItems;
  const long long tail = n - head - vectors * kVecItems;
  const Raw* const body = reinterpret_cast<const Raw*>(in + head);
  const long long tile = static_cast<long long>(team) * kUnroll;
  long long i = part * tile + thread;
  for (; i + (kUnroll - 1) * team < vectors; i += parts * tile) {
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u].raw = body[i + u * team];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      fold_vector(seen, loaded[u]);
    }
  }
  if (i < vectors) {
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * team < vectors) loaded[u].raw = body[i + u * team];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * team < vectors) {
        fold_vector(seen, loaded[u]);
      }
    }
  }
  State state = state_of(seen);
  const long long first = part * team + thread;
  for (long long i = first; i < head; i += team * parts) {
    state = combine(state, lift(in[i]));
  }
  const long long behind = n - tail;
  for (long long i = first; i < tail; i += team * parts) {
    state = combine(state, lift(in[behind + i]));
  }
  return state;
}

// The array has one cluster.
extern "C" __global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__cluster_tpb256_u4_v16_bpm0_c8(
        const Item* __restrict__ in,
        float* __restrict__ out,
        long long n) {
  __shared__ State states[kCluster * kWarps];
  __cluster_barrier_arrive_relaxed();  // this block has begun
  const unsigned rank = blockIdx.x % kCluster;  // of this block among those of its cluster
  const State share =
      read_share(in, n, threadIdx.x, kThreadsPerBlock, rank, kCluster);
  const State total = combine_cluster(share, rank, states);
  if (rank == 0 && threadIdx.x == 0) write_results(total, n, 0, out);
}
