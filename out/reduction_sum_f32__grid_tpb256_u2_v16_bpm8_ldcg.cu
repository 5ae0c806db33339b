// reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg
//
// The sum of n floats; 0 for none.
// One launch: every block strides through the array with vector loads; the block that finishes
// last adds up the partial results in index order, so that every run gives the same bits.
//
// Launch:   <<<max(min((n + 2047) / 2048, sm_count * 8), 1), 256>>>(in, out, partials, ticket, n)
// Scratch:  partials, max(min((n + 2047) / 2048, sm_count * 8), 1) * 4 bytes
// Scratch:  ticket, 4 bytes, 0 before the first launch
// Spec:     {"axes": "all", "dtype": "f32", "op": "sum"}
// Config:   {"blocks_per_sm": 8, "load_modifier": "cg", "threads_per_block": 256, "unroll": 2,
//           "vec_bytes": 16}
// Template: reduction/grid.cu.jinja, with its partials sha256 637c9067c0d62196
//
// Written by gen: change the template, not this file.

constexpr int kThreadsPerBlock = 256;
constexpr int kUnroll = 2;  // vector loads that each thread has in flight
constexpr int kVecBytes = 16;
constexpr int kVecItems = kVecBytes / sizeof(float);
constexpr int kWarps = kThreadsPerBlock / 32;
static_assert(kThreadsPerBlock % 32 == 0 && kWarps <= 32, "a block is whole warps, at most 32");
static_assert(sizeof(uint4) == kVecBytes, "one load moves one vector");

// The sum over a warp, in all its lanes.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// The sum over the block, in its first warp. A barrier must come before warp_sums is used again.
__device__ __forceinline__ float block_sum(float value, float (&warp_sums)[kWarps]) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x < 32) value = warp_sum(threadIdx.x < kWarps ? warp_sums[threadIdx.x] : 0.0f);
  return value;
}

// Adds each item of a vector to a sum of its own.
__device__ __forceinline__ void add_items(float (&sum)[kVecItems], uint4 vector) {
  sum[0] += __uint_as_float(vector.x);
  sum[1] += __uint_as_float(vector.y);
  sum[2] += __uint_as_float(vector.z);
  sum[3] += __uint_as_float(vector.w);
}

// partials has an element a block; ticket is 0 before the launch and after it.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__grid_tpb256_u2_v16_bpm8_ldcg(
        const float* __restrict__ in, float* __restrict__ out, float* partials, unsigned* ticket,
        long long n) {
  __shared__ float warp_sums[kWarps];
  __shared__ bool is_last_block;

  // Vectors lie at multiples of kVecBytes: the head before the first, the tail after the last.
  const int past = reinterpret_cast<unsigned long long>(in) % kVecBytes;
  const int to_first = (kVecBytes - past) % kVecBytes / sizeof(float);
  const long long head = n < to_first ? n : to_first;
  const long long vectors = (n - head) / kVecItems;
  const long long tail = n - head - vectors * kVecItems;
  const uint4* const body = reinterpret_cast<const uint4*>(in + head);

  const long long stride = static_cast<long long>(gridDim.x) * kThreadsPerBlock;
  const long long first = static_cast<long long>(blockIdx.x) * kThreadsPerBlock + threadIdx.x;
  float sum[kVecItems] = {};
  long long i = first;
  for (; i + (kUnroll - 1) * stride < vectors; i += kUnroll * stride) {
    uint4 loaded[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) loaded[u] = __ldcg(&body[i + u * stride]);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) add_items(sum, loaded[u]);
  }
  for (; i < vectors; i += stride) add_items(sum, __ldcg(&body[i]));
  if (first < head) sum[0] += in[first];
  if (first < tail) sum[0] += in[n - tail + first];
#pragma unroll
  for (int item = 1; item < kVecItems; ++item) sum[0] += sum[item];

  const float partial = block_sum(sum[0], warp_sums);
  if (gridDim.x == 1) {
    if (threadIdx.x == 0) *out = partial;
    return;
  }
  if (threadIdx.x == 0) {
    partials[blockIdx.x] = partial;
    __threadfence();  // the partial result is there before the ticket says so
    // Counts the blocks before this one; the last sets it back to 0.
    is_last_block = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last_block) return;

  __threadfence();
  float total = 0.0f;
  for (unsigned block = threadIdx.x; block < gridDim.x; block += kThreadsPerBlock) {
    total += __ldcg(partials + block);
  }
  total = block_sum(total, warp_sums);
  if (threadIdx.x == 0) *out = total;
}
