// reduction_sum_f32__single_tpb512_u2_v4
//
// The sum of all f32 elements of an array; of none: 0.
// One launch of one block, which strides through the array with vector loads: no other block is
// waited for, little is computed before the first load, and a small array is read at once. Its
// threads hand each other what they know by shuffles.
//
// Launch:   <<<1, 512>>>(in, out, n)
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"threads_per_block": 512, "unroll": 2, "vec_bytes": 4}
// Template: reduction/single.cu.jinja, with its partials sha256 9b57b0cf1e2b3ace
//
// Written by gen: change the template, not this file.

constexpr int kThreadsPerBlock = 512;
constexpr int kUnroll = 2;  // vector loads that each thread has in flight
constexpr int kVecBytes = 4;
constexpr int kVecItems = 1;
constexpr int kChains = 1;  // of states, which each thread keeps side by side
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

// The state of kCount neighbouring lanes, a power of two, in each of them.
template <int kCount = 32>
__device__ __forceinline__ State combine_warp(State state) {
#pragma unroll
  for (int distance = kCount / 2; distance > 0; distance /= 2) {
    state = combine(state, from_lane(state, distance));
  }
  return state;
}

static_assert((kWarps & (kWarps - 1)) == 0, "the first lanes take a state a warp, and halve");

// The state of the block, in thread 0. A barrier must come before warp_states is used again.
__device__ __forceinline__ State combine_block(State state, State (&warp_states)[kWarps]) {
  state = combine_warp(state);
  if (threadIdx.x % 32 == 0) warp_states[threadIdx.x / 32] = state;
  __syncthreads();
  if (threadIdx.x < 32) {
    state = combine_warp<kWarps>(threadIdx.x < kWarps ? warp_states[threadIdx.x] : identity());
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
  unsigned raw;
  Item items[kVecItems];
};
static_assert(sizeof(Vector::raw) == kVecBytes, "one load moves one vector");
static_assert(sizeof(Vector) == kVecBytes, "its items fill a vector");
using Raw = unsigned;

// Adds a run of elements.
template <int kCount>
__device__ __forceinline__ void fold(State& state, const Item (&items)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) state = combine(state, lift(items[i]));
}

// What a thread has read in whole vectors.
struct Seen {
  State states[kChains];
};

__device__ __forceinline__ Seen nothing_seen() {
  Seen seen;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) seen.states[chain] = identity();
  return seen;
}

// Adds a vector.
__device__ __forceinline__ void fold_vector(Seen& seen, const Vector& vector) {
  fold(seen.states[0], vector.items);
}

__device__ __forceinline__ State state_of(const Seen& seen) {
  State state = seen.states[0];
#pragma unroll
  for (int chain = 1; chain < kChains; ++chain) state = combine(state, seen.states[chain]);
  return state;
}

// The state of what one thread reads of n elements. Indices have 32 bits, no load waits for
// another, and the address of the first depends on no division: nothing else takes long where
// there is so little to read.
__device__ __forceinline__ State read_share(const Item* __restrict__ in, int n, int thread) {
  Seen seen = nothing_seen();
  const int vectors = n;
  const Raw* const body = reinterpret_cast<const Raw*>(in);
  int done = 0;
#pragma unroll 1
  do {  // once, where one round takes all
    Vector loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int i = done + thread + u * kThreadsPerBlock;
      if (i < vectors) loaded[u].raw = body[i];
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int i = done + thread + u * kThreadsPerBlock;
      if (i < vectors) fold_vector(seen, loaded[u]);
    }
    done += kUnroll * kThreadsPerBlock;
  } while (done < vectors);
  return state_of(seen);
}

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__single_tpb512_u2_v4(
        const Item* __restrict__ in,
        float* __restrict__ out, int n) {
  __shared__ State warp_states[kWarps];

  const State total = combine_block(read_share(in, n, threadIdx.x), warp_states);
  if (threadIdx.x == 0) write_results(total, n, 0, out);
}
