// reduction_sum_f32__flags_tpb512_u2_v16_bpm2
//
// The sum of all f32 elements of an array; of none: 0.
// One launch: the blocks of a row stride through it with vector loads. Each hands its partial
// result to the last block, with a flag beside every word; that block waits for all of them and
// combines them in index order. It needs no fence and no counter of blocks, and so ends sooner
// than grid. It relies on blocks with smaller numbers being started first, which GPUs do, though
// CUDA does not promise an order.
//
// Let:      blocks = max(min((n + 4095) / 4096, multiprocessors * 2), 1)
// Launch:   <<<blocks, 512>>>(in, out, slots, n)
// Scratch:  slots, min(blocks - 1, 1) * blocks * 8 bytes, 0 before the first launch
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"blocks_per_sm": 2, "threads_per_block": 512, "unroll": 2, "vec_bytes": 16}
// Template: reduction/flags.cu.jinja, with its partials sha256 6772e2d0253d546f
//
// Written by gen: change the template, not this file.

namespace reduction_sum_f32__flags_tpb512_u2_v16_bpm2 {

constexpr int kThreadsPerBlock = 512;
constexpr int kUnroll = 2;  // vector loads that each thread has in flight
constexpr int kVecBytes = 16;
constexpr int kVecItems = 4;
constexpr int kChains = 4;  // independent states of each thread
constexpr int kWords = 1;  // 32-bit words of a state
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

// A state as words of 32 bits. One store of 64 bits hands over a word together with a flag: a
// thread that reads the flag has also read the word, so no fence is needed. Slots are 0 before and
// after each launch.
union Words {
  State state;
  unsigned words[kWords];
};
static_assert(sizeof(State) == sizeof(unsigned) * kWords, "a state is whole words");
using Slot = unsigned long long;
constexpr Slot kThere = 1ull << 32;
constexpr int kBatch = 4;  // states that a thread waits for at once

__device__ __forceinline__ void hand_over(Slot* slots, State state) {
  Words words;
  words.state = state;
#pragma unroll
  for (int w = 0; w < kWords; ++w) atomicExch(slots + w, kThere | words.words[w]);
}

// Waits for up to kBatch of `count` states, which lie `apart` slots from one to the next. Sets
// their slots back to 0 and combines the states.
__device__ __forceinline__ State take_over(Slot* slots, int apart, int count) {
  const volatile Slot* const seen = slots;
  Slot taken[kBatch][kWords];
  bool are_there = false;
  while (!are_there) {
    are_there = true;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) taken[i][w] = i < count ? seen[i * apart + w] : kThere;
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int w = 0; w < kWords; ++w) are_there = are_there && taken[i][w] >= kThere;
    }
  }
  State total = identity();
#pragma unroll
  for (int i = 0; i < kBatch; ++i) {
    if (i < count) {
      Words words;
#pragma unroll
      for (int w = 0; w < kWords; ++w) {
        words.words[w] = static_cast<unsigned>(taken[i][w] & 0xffffffffull);
        atomicExch(slots + i * apart + w, 0ull);
      }
      total = combine(total, words.state);
    }
  }
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

// slots has a slot for each word of the state of each block; with one block, none. The last block
// takes over the states that the others hand over.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__flags_tpb512_u2_v16_bpm2(
        const float* __restrict__ in,
        float* __restrict__ out,
        Slot* slots, long long n) {
  __shared__ State states[kThreadsPerBlock];

  const Item* const begin = in;
  const State share =
      read_share(begin, n, threadIdx.x, kThreadsPerBlock, blockIdx.x, gridDim.x);
  const State partial = combine_block(share, states);
  if (gridDim.x == 1) {
    if (threadIdx.x == 0) write_results(partial, n, 0, out);
    return;
  }
  const unsigned others = gridDim.x - 1;
  if (blockIdx.x < others) {
    if (threadIdx.x == 0) hand_over(slots + blockIdx.x * kWords, partial);
    return;
  }
  State total = threadIdx.x == 0 ? partial : identity();
  for (unsigned block = threadIdx.x; block < others; block += kBatch * kThreadsPerBlock) {
    const int left = (others - block + kThreadsPerBlock - 1) / kThreadsPerBlock;
    total = combine(total, take_over(slots + block * kWords, kThreadsPerBlock * kWords, left));
  }
  __syncthreads();
  total = combine_block(total, states);
  if (threadIdx.x == 0) write_results(total, n, 0, out);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The bytes of slots, scratch memory for launch(), 0 before the first launch; each leaves it 0.
inline long long slots_bytes(long long n, long long multiprocessors) {
  const long long blocks = max(min((n + 4095) / 4096, multiprocessors * 2), 1LL);
  return min(blocks - 1, 1LL) * blocks * 8;
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* in, float* out, void* slots, long long n, long long multiprocessors,
    cudaStream_t stream) {
  const long long blocks = max(min((n + 4095) / 4096, multiprocessors * 2), 1LL);
  reduction_sum_f32__flags_tpb512_u2_v16_bpm2<<<blocks, 512, 0, stream>>>(
      in, out, static_cast<Slot*>(slots), n);
  return cudaGetLastError();
}

#endif

}  // namespace reduction_sum_f32__flags_tpb512_u2_v16_bpm2
