// probe_write11_f32__offset_tpb256_u4
//
// The sum of two arrays of n floats, rolled 11 elements on.
// Every warp reads and writes consecutive elements. Those that it reads, or writes, begin at the
// offset, so that they may not be aligned to cache lines and sectors.
//
// Launch:   <<<(n + 1023) / 1024, 256>>>(a, b, out, n)
// Spec:     {"dtype": "f32", "offset": 11, "probe": "offset", "shifts": "write"}
// Config:   {"threads_per_block": 256, "unroll": 4}
// Template: probe/offset.cu.jinja, with its partials sha256 78bae8ad32b94242
//
// Written by gen: change the template, not this file.

namespace probe_write11_f32__offset_tpb256_u4 {

constexpr int kThreadsPerBlock = 256;
constexpr int kUnroll = 4;  // elements of each thread, kThreadsPerBlock apart
constexpr int kOffset = 11;  // from a thread's own index to the one that it writes
static_assert(kThreadsPerBlock % 32 == 0 && kThreadsPerBlock <= 1024, "a block is whole warps");

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    probe_write11_f32__offset_tpb256_u4(
        const float* __restrict__ a, const float* __restrict__ b,
        float* __restrict__ out, long long n) {
  const long long begin = static_cast<long long>(blockIdx.x) * kThreadsPerBlock * kUnroll;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const long long i = begin + u * kThreadsPerBlock + threadIdx.x;
    if (i >= n) return;
    long long shifted = i + kOffset;
    if (shifted >= n) shifted %= n;  // the last elements continue at the beginning
    out[shifted] = a[i] + b[i];
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* a, const float* b, float* out, long long n, cudaStream_t stream) {
  const long long blocks = (n + 1023) / 1024;
  if (blocks > 0) {
    probe_write11_f32__offset_tpb256_u4<<<blocks, 256, 0, stream>>>(
        a, b, out, n);
  }
  return cudaGetLastError();
}

#endif

}  // namespace probe_write11_f32__offset_tpb256_u4
