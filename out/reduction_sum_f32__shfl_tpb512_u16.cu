// reduction_sum_f32__shfl_tpb512_u16
//
// The sum of all f32 elements of an array; of none: 0.
// Each warp adds its elements with shuffles, without a barrier; one warp then adds up the warps'
// sums, and a second launch the blocks'.
//
// Launch:   <<<max((n + 8191) / 8192, 1), 512>>>(in, partials, n)
// Launch:   .._finish <<<1, 512>>>(partials, out, max((n + 8191) / 8192, 1))
// Scratch:  partials, max((n + 8191) / 8192, 1) * 4 bytes
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"threads_per_block": 512, "unroll": 16}
// Template: reduction/shfl.cu.jinja, with its partials sha256 b6ba3e4acba389b9
//
// Written by gen: change the template, not this file.

constexpr int kThreadsPerBlock = 512;
constexpr int kUnroll = 16;  // data blocks that a block folds into one first
constexpr int kWarps = kThreadsPerBlock / 32;
static_assert(kThreadsPerBlock % 32 == 0 && kWarps <= 32, "a block is whole warps, at most 32");

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

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__shfl_tpb512_u16(
        const float* __restrict__ in, float* __restrict__ partials, long long n) {
  __shared__ float warp_sums[kWarps];
  const long long begin = static_cast<long long>(blockIdx.x) * kUnroll * kThreadsPerBlock;
  float sum = 0.0f;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const long long i = begin + u * kThreadsPerBlock + threadIdx.x;
    if (i < n) sum += in[i];
  }
  sum = block_sum(sum, warp_sums);  // threads past the end take part: the shuffles name every lane
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// Adds up the blocks' partial results, each thread its own in index order, then the block.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    reduction_sum_f32__shfl_tpb512_u16_finish(
        const float* __restrict__ partials, float* __restrict__ out, long long count) {
  __shared__ float warp_sums[kWarps];
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < count; i += kThreadsPerBlock) sum += partials[i];
  sum = block_sum(sum, warp_sums);
  if (threadIdx.x == 0) *out = sum;
}
