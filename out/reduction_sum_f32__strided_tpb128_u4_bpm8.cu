// reduction_sum_f32__strided_tpb128_u4_bpm8
//
// The sum of all f32 elements of an array; of none: 0.
// For axes that alternate between kept and reduced ones, and arrays with gaps: every result has
// one or more blocks, whose threads go from element to element over all reduced axes.
//
// Let:      splits = max(min((n + 511) / 512, multiprocessors * 8 / max(outer, 1)), 1)
// Launch:   <<<outer * splits, 128>>>(in, out, partials, tickets, splits, n, k0, ks0, k1, ks1, k2,
//           ks2, k3, ks3, r0, rs0, r1, rs1, r2, rs2, r3, rs3)
// Scratch:  partials, min(splits - 1, 1) * multiprocessors * 8 * 4 bytes
// Scratch:  tickets, min(splits - 1, 1) * multiprocessors * 8 * 4 bytes, 0 before the first launch
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"blocks_per_sm": 8, "threads_per_block": 128, "unroll": 4}
// Template: reduction/strided.cu.jinja, with its partials sha256 b6f1985ee6af9989
//
// Written by gen: change the template, not this file.

namespace reduction_sum_f32__strided_tpb128_u4_bpm8 {

constexpr int kThreadsPerBlock = 128;
constexpr int kUnroll = 4;  // loads that each thread has in flight
constexpr int kAxes = 4;  // reduced axes, and as many kept ones, the slowest first
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
    reduction_sum_f32__strided_tpb128_u4_bpm8(
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
  const long long kept[kAxes] = {k0, k1, k2, k3}, kept_strides[kAxes] = {ks0, ks1, ks2, ks3};
  const long long reduced[kAxes] = {r0, r1, r2, r3}, strides[kAxes] = {rs0, rs1, rs2, rs3};
  const long long result = blockIdx.x / splits;
  const unsigned split = blockIdx.x % splits;

  // The position of the thread's first element and the step to its next: no division within the
  // loop.
  const long long first = static_cast<long long>(split) * kThreadsPerBlock + threadIdx.x;
  const long long team = static_cast<long long>(splits) * kThreadsPerBlock;
  Position position = position_of(first, reduced, strides);
  const Way way = way_of(team, reduced, strides);
  const Item* const begin = in + position_of(result, kept, kept_strides).offset;

  State state = identity();
  for (long long i = first; i < n; i += kUnroll * team) {
    Item loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * team < n) loaded[u] = begin[position.offset];
      advance(position, way, reduced);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (i + u * team < n) state = combine(state, lift(loaded[u]));
    }
  }
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
  const long long part_1 = min((n + 511) / 512, multiprocessors * 8 / max(outer, 1LL));
  const long long splits = max(part_1, 1LL);
  return min(splits - 1, 1LL) * multiprocessors * 8 * 4;
}

// The bytes of tickets, scratch memory for launch(), 0 before the first launch; each leaves it 0.
inline long long tickets_bytes(long long n, long long outer, long long multiprocessors) {
  const long long part_1 = min((n + 511) / 512, multiprocessors * 8 / max(outer, 1LL));
  const long long splits = max(part_1, 1LL);
  return min(splits - 1, 1LL) * multiprocessors * 8 * 4;
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* in, float* out, void* partials, void* tickets, long long n, long long k0,
    long long ks0, long long k1, long long ks1, long long k2, long long ks2, long long k3,
    long long ks3, long long r0, long long rs0, long long r1, long long rs1, long long r2,
    long long rs2, long long r3, long long rs3, long long outer, long long multiprocessors,
    cudaStream_t stream) {
  const long long part_1 = min((n + 511) / 512, multiprocessors * 8 / max(outer, 1LL));
  const long long splits = max(part_1, 1LL);
  const long long blocks = outer * splits;
  if (blocks > 0) {
    reduction_sum_f32__strided_tpb128_u4_bpm8<<<blocks, 128, 0, stream>>>(
        in, out, static_cast<State*>(partials), static_cast<unsigned*>(tickets), splits, n, k0,
        ks0, k1, ks1, k2, ks2, k3, ks3, r0, rs0, r1, rs1, r2, rs2, r3, rs3);
  }
  return cudaGetLastError();
}

#endif

}  // namespace reduction_sum_f32__strided_tpb128_u4_bpm8
