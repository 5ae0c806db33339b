// reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg
//
// The sum of all f32 elements of an array; of none: 0.
// The blocks of a row stride through it with vector loads; the block that finishes last, or one of
// a second launch, combines the partial results in index order, so that every run gives the same
// bits.
//
// Let:      blocks = max(min((n + 2047) / 2048, multiprocessors * 8), 1)
// Launch:   <<<blocks, 256>>>(in, out, partials, ticket, n)
// Scratch:  partials, min(blocks - 1, 1) * blocks * 4 bytes
// Scratch:  ticket, min(blocks - 1, 1) * 4 bytes, 0 before the first launch
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"blocks_per_sm": 8, "load_modifier": "cg", "threads_per_block": 256, "unroll": 2,
//           "vec_bytes": 16}
// Template: reduction/grid.cu.jinja, with its partials sha256 ed97aca941efc3c1
//
// Written by gen: change the template, not this file.

namespace reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg {

constexpr int kThreadsPerBlock = 256;
constexpr int kUnroll = 2;  // vector loads that each thread has in flight
constexpr int kVecBytes = 16;
constexpr int kVecItems = 4;
constexpr int kChains = 4;  // independent states of each thread
constexpr int kWarps = kThreadsPerBlock / 32;
static_assert(kThreadsPerBlock % 32 == 0 && kWarps <= 32, "a block is whole warps, at most 32");

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

// The combined state of kCount neighbouring lanes, in each of them; kCount is a power of two.
template <int kCount = 32>
__device__ __forceinline__ State combine_warp(State state) {
#pragma unroll
  for (int distance = kCount / 2; distance > 0; distance /= 2) {
    state = combine(state, from_lane(state, distance));
  }
  return state;
}

static_assert((kWarps & (kWarps - 1)) == 0, "the first lanes take a state a warp, and halve");

// The combined state of the block, in thread 0. A barrier must come before warp_states is used
// again.
__device__ __forceinline__ State combine_block(State state, State (&warp_states)[kWarps]) {
  state = combine_warp(state);
  if (threadIdx.x % 32 == 0) warp_states[threadIdx.x / 32] = state;
  __syncthreads();
  if (threadIdx.x < 32) {
    state = combine_warp<kWarps>(threadIdx.x < kWarps ? warp_states[threadIdx.x] : identity());
  }
  return state;
}

// The state that another block has written to memory, read without the L1 cache.
__device__ __forceinline__ State load_partial(const State* partial) {
  return __ldcg(partial);
}

// Writes element i of each output, from the state of `count` elements.
__device__ __forceinline__ void write_results(
    State state, long long count, long long i,
    float* __restrict__ out) {
  out[i] = state;
}

// A vector is loaded at once, then taken apart into its items.
union Vector {
  uint4 raw;
  Item items[kVecItems];
};
static_assert(sizeof(Vector::raw) == kVecBytes, "one load moves one vector");
static_assert(sizeof(Vector) == kVecBytes, "its items fill a vector");
using Raw = uint4;

// The state of all whole vectors that a thread has read, as several independent states.
struct Seen {
  State states[kChains];
};

__device__ __forceinline__ Seen nothing_seen() {
  Seen seen;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) seen.states[chain] = identity();
  return seen;
}

// Adds each item of a vector to one of the independent states.
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

// The state of those of n elements that one thread reads. `team` threads take every parts-th tile
// of team * kUnroll vectors, beginning with tile number `part`: loads in flight are neighbours.
__device__ __forceinline__ State read_share(
    const Item* __restrict__ in, long long n, int thread, int team,
    long long part, long long parts) {
  Seen seen = nothing_seen();
  // Vectors begin at multiples of kVecBytes. The head are the elements before the first vector,
  // the tail those after the last.
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
    for (int u = 0; u < kUnroll; ++u) loaded[u].raw = __ldcg(&body[i + u * team]);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      fold_vector(seen, loaded[u]);
    }
  }
  if (i < vectors) {
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * team < vectors) loaded[u].raw = __ldcg(&body[i + u * team]);
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

// partials has an element for each block; ticket is 0 before and after the launch.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg(
        const float* __restrict__ in,
        float* __restrict__ out,
        State* partials, unsigned* ticket, long long n) {
  __shared__ State warp_states[kWarps];
  __shared__ bool is_last_block;

  const Item* const begin = in;
  const State share =
      read_share(begin, n, threadIdx.x, kThreadsPerBlock, blockIdx.x, gridDim.x);
  const State partial = combine_block(share, warp_states);
  if (gridDim.x == 1) {
    if (threadIdx.x == 0) write_results(partial, n, 0, out);
    return;
  }
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = partial;
    __threadfence();  // the partial result is visible before the ticket is counted
    // Counts the blocks that are done; the last of them sets it back to 0.
    is_last_block = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    if (is_last_block) __threadfence();  // the whole block sees the other blocks' results
  }
  __syncthreads();
  if (!is_last_block) return;

  State total = identity();
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreadsPerBlock) {
    total = combine(total, load_partial(partials + block));
  }
  total = combine_block(total, warp_states);
  if (threadIdx.x == 0) write_results(total, n, 0, out);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The bytes of partials, scratch memory for launch().
inline long long partials_bytes(long long n, long long multiprocessors) {
  const long long blocks = max(min((n + 2047) / 2048, multiprocessors * 8), 1LL);
  return min(blocks - 1, 1LL) * blocks * 4;
}

// The bytes of ticket, scratch memory for launch(), 0 before the first launch; each leaves it 0.
inline long long ticket_bytes(long long n, long long multiprocessors) {
  const long long blocks = max(min((n + 2047) / 2048, multiprocessors * 8), 1LL);
  return min(blocks - 1, 1LL) * 4;
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* in, float* out, void* partials, void* ticket, long long n,
    long long multiprocessors, cudaStream_t stream) {
  const long long blocks = max(min((n + 2047) / 2048, multiprocessors * 8), 1LL);
  reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg<<<blocks, 256, 0, stream>>>(
      in, out, static_cast<State*>(partials), static_cast<unsigned*>(ticket), n);
  return cudaGetLastError();
}

#endif

}  // namespace reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg
