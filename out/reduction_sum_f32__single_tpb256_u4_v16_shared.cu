// reduction_sum_f32__single_tpb256_u4_v16_shared
//
// The sum of all f32 elements of an array; of none: 0.
// One launch of one block, which strides through the array with vector loads: no other block is
// waited for, little is computed before the first load, and a small array is read at once. Its
// threads hand each other what they know by shared memory.
//
// Launch:   <<<1, 256>>>(in, out, n)
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"block_reduce": "shared", "threads_per_block": 256, "unroll": 4, "vec_bytes": 16}
// Template: reduction/single.cu.jinja, with its partials sha256 a540950821476eaf
//
// Written by gen: change the template, not this file.

namespace reduction_sum_f32__single_tpb256_u4_v16_shared {

constexpr int kThreadsPerBlock = 256;
constexpr int kUnroll = 4;  // vector loads that each thread has in flight
constexpr int kVecBytes = 16;
constexpr int kVecItems = 4;
constexpr int kChains = 4;  // independent states of each thread
constexpr int kWarps = kThreadsPerBlock / 32;
static_assert(kThreadsPerBlock % 32 == 0 && kWarps <= 32, "a block is whole warps, at most 32");
static_assert(2 * kVecItems <= kThreadsPerBlock, "a thread has at most one element of both ends");

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

// The combined state of the block, in thread 0. Each lane of the first warp combines the states of
// the same lane of all warps, which it reads from shared memory; then thread 0 combines those of
// the lanes. That is a shorter chain of dependent steps than two rounds of shuffles. A barrier
// must come before states is used again.
__device__ __forceinline__ State combine_block(State state, State (&states)[kThreadsPerBlock]) {
  states[threadIdx.x] = state;
  __syncthreads();
  if (threadIdx.x >= 32) return state;
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
    state = combine(state, states[warp * 32 + threadIdx.x]);
  }
  states[threadIdx.x] = state;
  __syncwarp();
  if (threadIdx.x > 0) return state;
  constexpr int kLaneChains = 4;  // independent chains, in which thread 0 combines the lanes
  State chains[kLaneChains];
#pragma unroll
  for (int i = 0; i < kLaneChains; ++i) chains[i] = states[i];
#pragma unroll
  for (int lane = kLaneChains; lane < 32; ++lane) {
    chains[lane % kLaneChains] = combine(chains[lane % kLaneChains], states[lane]);
  }
  State total = chains[0];
#pragma unroll
  for (int i = 1; i < kLaneChains; ++i) total = combine(total, chains[i]);
  return total;
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

// The state of those of n elements that one thread reads. Indices have 32 bits, no load waits for
// another, and the address of the first one needs no division: for so few elements these decide
// the time.
__device__ __forceinline__ State read_share(const Item* __restrict__ in, int n, int thread) {
  Seen seen = nothing_seen();
  // Vectors begin at multiples of kVecBytes. The head are the elements before the first vector,
  // the tail those after the last.
  const unsigned past = reinterpret_cast<unsigned long long>(in) % kVecBytes;
  const unsigned bytes = (kVecBytes - past) % kVecBytes;
  const int head = bytes / sizeof(Item);
  const int vectors = (n - head) / kVecItems;  // 0 where all elements belong to the head
  const Raw* const body =
      reinterpret_cast<const Raw*>(reinterpret_cast<const unsigned char*>(in) + bytes);
  // The first threads read the head, those after them the tail.
  const int end = thread < head ? thread : vectors * kVecItems + thread;
  State ends = identity();
  if (end < n) ends = lift(in[end]);
  int done = 0;
#pragma unroll 1
  do {  // one round where it reads all elements
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
  return combine(state_of(seen), ends);
}

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__single_tpb256_u4_v16_shared(
        const float* __restrict__ in,
        float* __restrict__ out, int n) {
  __shared__ State states[kThreadsPerBlock];

  const State total = combine_block(read_share(in, n, threadIdx.x), states);
  if (threadIdx.x == 0) write_results(total, n, 0, out);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(const float* in, float* out, long long n, cudaStream_t stream) {
  reduction_sum_f32__single_tpb256_u4_v16_shared<<<1, 256, 0, stream>>>(
      in, out, n);
  return cudaGetLastError();
}

#endif

}  // namespace reduction_sum_f32__single_tpb256_u4_v16_shared
