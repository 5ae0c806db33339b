// probe_aos2_f32__records_tpb128_u2
//
// Adds 10, 20, ... to the 2 float fields of n records, which are stored one after the other.
// Every thread processes its records field by field. Where the fields of a record are consecutive,
// a warp's accesses to one field are a record apart; where each field has an array of its own,
// they are consecutive.
//
// Launch:   <<<(n + 255) / 256, 128>>>(in, out, n)
// Spec:     {"dtype": "f32", "fields": 2, "layout": "aos", "probe": "records"}
// Config:   {"threads_per_block": 128, "unroll": 2}
// Template: probe/records.cu.jinja, with its partials sha256 8cd2006484738c00
//
// Written by gen: change the template, not this file.

namespace probe_aos2_f32__records_tpb128_u2 {

constexpr int kThreadsPerBlock = 128;
constexpr int kUnroll = 2;  // records of each thread, kThreadsPerBlock apart
constexpr int kFields = 2;  // fields of a record
static_assert(kThreadsPerBlock % 32 == 0 && kThreadsPerBlock <= 1024, "a block is whole warps");

// Adds 10 to the first field of n records, 20 to the second, and so on.
// The fields of a record are consecutive.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    probe_aos2_f32__records_tpb128_u2(
        const float* __restrict__ in, float* __restrict__ out, long long n) {
  const long long begin = static_cast<long long>(blockIdx.x) * kThreadsPerBlock * kUnroll;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const long long record = begin + u * kThreadsPerBlock + threadIdx.x;
    if (record >= n) return;
#pragma unroll
    for (int f = 0; f < kFields; ++f) {
      out[record * kFields + f] = in[record * kFields + f] + 10 * (f + 1);
    }
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(const float* in, float* out, long long n, cudaStream_t stream) {
  const long long blocks = (n + 255) / 256;
  if (blocks > 0) {
    probe_aos2_f32__records_tpb128_u2<<<blocks, 128, 0, stream>>>(
        in, out, n);
  }
  return cudaGetLastError();
}

#endif

}  // namespace probe_aos2_f32__records_tpb128_u2
