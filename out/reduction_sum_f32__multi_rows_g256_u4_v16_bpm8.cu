// reduction_sum_f32__multi_rows_g256_u4_v16_bpm8
//
// The sum of all f32 elements of an array; of none: 0.
// For several reduced axes with kept axes between them, where the fastest axis is reduced. Every
// result has several rows of consecutive elements. A part of a warp, a warp, or one or more blocks
// read them with vector loads: short rows as one sequence of vectors, long rows in tiles.
//
// Let:      splits = (max(min((n + 4095) / 4096, multiprocessors * 8 / max(outer, 1)), 1) - 1) *
//           min(n / 16385, 1) + 1
// Launch:   <<<outer * splits, 256>>>(in, out, partials, tickets, splits, n, k0, ks0, k1, ks1, k2,
//           ks2, k3, ks3, r0, rs0, r1, rs1, r2, rs2, r3, rs3)
// Scratch:  partials, min(splits - 1, 1) * multiprocessors * 8 * 4 bytes
// Scratch:  tickets, min(splits - 1, 1) * multiprocessors * 8 * 4 bytes, 0 before the first launch
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"blocks_per_sm": 8, "group": 256, "unroll": 4, "vec_bytes": 16}
// Template: reduction/multi_rows.cu.jinja, with its partials sha256 2e53da6434b94a77
//
// Written by gen: change the template, not this file.

namespace reduction_sum_f32__multi_rows_g256_u4_v16_bpm8 {

constexpr int kThreadsPerBlock = 256;
constexpr int kGroup = 256;  // threads that share a result
constexpr int kUnroll = 4;  // vector loads that each thread has in flight
constexpr int kVecBytes = 16;
constexpr int kVecItems = 4;
constexpr int kChains = 4;  // independent states of each thread
constexpr int kAxes = 4;  // reduced axes, the last of them contiguous, and as many kept ones
constexpr int kWarps = kThreadsPerBlock / 32;
static_assert(kGroup == kThreadsPerBlock, "more than a warp is the whole block");
static_assert(kThreadsPerBlock % 32 == 0 && kThreadsPerBlock <= 1024, "warps fill the block");

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

// The index along each axis, of which the last changes fastest, and the offset in elements.
struct Position {
  long long on[kAxes];
  long long offset;
};

// The position of an element, given its number in this order.
__device__ __forceinline__ Position position_of(
    long long number, const long long (&extents)[kAxes], const long long (&strides)[kAxes]) {
  Position position;
  position.offset = 0;
#pragma unroll
  for (int axis = kAxes - 1; axis >= 0; --axis) {
    position.on[axis] = axis > 0 ? 0 : number;
    if (axis > 0 && extents[axis] > 1) {  // most arrays have fewer axes: nothing is divided by 1
      position.on[axis] = number % extents[axis];
      number /= extents[axis];
    }
    position.offset += position.on[axis] * strides[axis];
  }
  return position;
}

// The step from one position to the position whose number is larger by a constant.
struct Way {
  Position apart;
  long long back[kAxes];  // added to the offset when the index of an axis wraps around
};

__device__ __forceinline__ Way way_of(
    long long numbers, const long long (&extents)[kAxes], const long long (&strides)[kAxes]) {
  Way way = {position_of(numbers, extents, strides), {0}};
#pragma unroll
  for (int axis = 1; axis < kAxes; ++axis) {
    way.back[axis] = strides[axis - 1] - extents[axis] * strides[axis];
  }
  return way;
}

// Moves a position by this step, without a division or a product.
__device__ __forceinline__ void advance(
    Position& position, const Way& way, const long long (&extents)[kAxes]) {
  position.offset += way.apart.offset;
  bool carry = false;
#pragma unroll
  for (int axis = kAxes - 1; axis > 0; --axis) {
    position.on[axis] += way.apart.on[axis] + carry;
    carry = position.on[axis] >= extents[axis];
    if (carry) {
      position.on[axis] -= extents[axis];
      position.offset += way.back[axis];
    }
  }
  position.on[0] += way.apart.on[0] + carry;
}

// `splits` blocks compute each result, and partials has an element for each of them; the result's
// ticket is 0 before and after the launch.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__multi_rows_g256_u4_v16_bpm8(
        const float* __restrict__ in,
        float* __restrict__ out,
        State* partials, unsigned* tickets, unsigned splits, long long n,
        long long k0, long long ks0,
        long long k1, long long ks1,
        long long k2, long long ks2,
        long long k3, long long ks3,
        long long r0, long long rs0,
        long long r1, long long rs1,
        long long r2, long long rs2,
        long long r3, long long rs3) {
  __shared__ State warp_states[kWarps];
  __shared__ bool is_last_block;
  const long long result = blockIdx.x / splits;
  const unsigned split = blockIdx.x % splits;
  const long long first = static_cast<long long>(split) * kGroup + threadIdx.x;
  const long long team = static_cast<long long>(splits) * kGroup;
  const long long kept[kAxes] = {k0, k1, k2, k3}, kept_strides[kAxes] = {ks0, ks1, ks2, ks3};
  const long long row_strides[kAxes] = {rs0, rs1, rs2, 0};
  const Item* const begin = in + position_of(result, kept, kept_strides).offset;

  // Each row has a slot for each of its vectors, which begin at multiples of kVecBytes, and one
  // for each element that may lie beside them, unless rows begin and end with a vector.
  const unsigned long long strides = static_cast<unsigned long long>(rs0 | rs1 | rs2 | r3);
  const unsigned long long address = reinterpret_cast<unsigned long long>(begin);
  const bool aligned = (address | strides * sizeof(Item)) % kVecBytes == 0;
  const long long vectors = r3 / kVecItems;
  const int rest = r3 % kVecItems;
  const int most_ends = rest < kVecItems - 1 ? rest + kVecItems : rest;
  const long long slots = vectors + (aligned ? 0 : most_ends);
  const long long reduced[kAxes] = {r0, r1, r2, slots};
  const long long all_slots = r0 * r1 * r2 * slots;
  // The position of the thread's first slot and the step to its next: no division within the loop.
  Position position = position_of(first, reduced, row_strides);
  const Way way = way_of(team, reduced, row_strides);

  Seen seen = nothing_seen();
  State ends = identity();  // the state of elements beside the vectors of their rows
  for (long long i = first; i < all_slots; i += kUnroll * team) {
    Vector loaded[kUnroll];
    Item end_items[kUnroll];  // kept apart: writing into a vector would wait for the load
    long long start[kUnroll];  // where the slot begins in its row
    bool full[kUnroll], is_end[kUnroll];
    bool all_full = true;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const Item* const row = begin + position.offset;
      const int past = reinterpret_cast<unsigned long long>(row) % kVecBytes / sizeof(Item);
      const int to_first = (kVecItems - past) % kVecItems;
      const int head = r3 < to_first ? r3 : to_first;
      const long long slot = position.on[kAxes - 1];
      const int end = slot - vectors;  // which of the elements beside the vectors, if any
      const bool there = i + u * team < all_slots;
      if (slot < vectors) {
        start[u] = head + slot * kVecItems;
      } else {
        start[u] = end < head ? end : r3 - (r3 - head) % kVecItems + end - head;
      }
      full[u] = there && slot < vectors && start[u] + kVecItems <= r3;
      is_end[u] = there && slot >= vectors && start[u] < r3;
      all_full = all_full && full[u];
      if (full[u]) {
        loaded[u].raw = *reinterpret_cast<const Raw*>(row + start[u]);
      } else if (is_end[u]) {
        end_items[u] = row[start[u]];
      }
      advance(position, way, reduced);
    }
    if (all_full) {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) fold_vector(seen, loaded[u]);
    } else {
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (full[u]) {
          fold_vector(seen, loaded[u]);
        } else if (is_end[u]) {
          ends = combine(ends, lift(end_items[u]));
        }
      }
    }
  }
  State state = combine(state_of(seen), ends);
  state = combine_block(state, warp_states);
  if (splits == 1) {
    if (threadIdx.x == 0) write_results(state, n, result, out);
    return;
  }
  State* const of_result = partials + result * splits;
  if (threadIdx.x == 0) {
    of_result[split] = state;
    __threadfence();  // the partial result is visible before the ticket is counted
    // Counts the blocks of the result that are done; the last of them sets it back to 0.
    is_last_block = atomicInc(tickets + result, splits - 1) == splits - 1;
    if (is_last_block) __threadfence();  // the whole block sees the other blocks' results
  }
  __syncthreads();
  if (!is_last_block) return;

  state = identity();
  for (unsigned block = threadIdx.x; block < splits; block += kThreadsPerBlock) {
    state = combine(state, load_partial(of_result + block));
  }
  state = combine_block(state, warp_states);
  if (threadIdx.x == 0) write_results(state, n, result, out);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The bytes of partials, scratch memory for launch().
inline long long partials_bytes(long long n, long long outer, long long multiprocessors) {
  const long long part_1 = (n + 4095) / 4096;
  const long long part_2 = multiprocessors * 8 / max(outer, 1LL);
  const long long part_3 = (max(min(part_1, part_2), 1LL) - 1) * min(n / 16385, 1LL);
  const long long splits = part_3 + 1;
  return min(splits - 1, 1LL) * multiprocessors * 8 * 4;
}

// The bytes of tickets, scratch memory for launch(), 0 before the first launch; each leaves it 0.
inline long long tickets_bytes(long long n, long long outer, long long multiprocessors) {
  const long long part_1 = (n + 4095) / 4096;
  const long long part_2 = multiprocessors * 8 / max(outer, 1LL);
  const long long part_3 = (max(min(part_1, part_2), 1LL) - 1) * min(n / 16385, 1LL);
  const long long splits = part_3 + 1;
  return min(splits - 1, 1LL) * multiprocessors * 8 * 4;
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* in, float* out, void* partials, void* tickets, long long n, long long k0,
    long long ks0, long long k1, long long ks1, long long k2, long long ks2, long long k3,
    long long ks3, long long r0, long long rs0, long long r1, long long rs1, long long r2,
    long long rs2, long long r3, long long rs3, long long outer, long long multiprocessors,
    cudaStream_t stream) {
  const long long part_1 = (n + 4095) / 4096;
  const long long part_2 = multiprocessors * 8 / max(outer, 1LL);
  const long long part_3 = (max(min(part_1, part_2), 1LL) - 1) * min(n / 16385, 1LL);
  const long long splits = part_3 + 1;
  const long long blocks = outer * splits;
  if (blocks > 0) {
    reduction_sum_f32__multi_rows_g256_u4_v16_bpm8<<<blocks, 256, 0, stream>>>(
        in, out, static_cast<State*>(partials), static_cast<unsigned*>(tickets), splits, n, k0,
        ks0, k1, ks1, k2, ks2, k3, ks3, r0, rs0, r1, rs1, r2, rs2, r3, rs3);
  }
  return cudaGetLastError();
}

#endif

}  // namespace reduction_sum_f32__multi_rows_g256_u4_v16_bpm8
