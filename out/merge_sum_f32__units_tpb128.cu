// merge_sum_f32__units_tpb128
//
// N results, each the sum of f32 elements, from the sum of each of the units, which hold `counts`
// of these elements; one that holds none adds nothing.
// Every thread merges the partial results of one element of the outputs, unit after unit.
// Neighbouring threads merge neighbouring elements.
//
// Launch:   <<<(n + 127) / 128, 128>>>(partial_sum, counts, out, units, n)
// Spec:     {"axis": null, "ddof": 0, "dtype": "f32", "keepdims": false, "op": ["sum"], "result":
//           "f32"}
// Config:   {"threads_per_block": 128}
// Template: merge/units.cu.jinja, with its partials sha256 bf12ccf1107aa629
//
// Written by gen: change the template, not this file.

namespace merge_sum_f32__units_tpb128 {

constexpr int kThreadsPerBlock = 128;
constexpr int kUnroll = 8;  // units whose partial results a thread loads at once
static_assert(kThreadsPerBlock % 32 == 0 && kThreadsPerBlock <= 1024, "a block is whole warps");

using State = float;  // of the elements seen so far: their sum

__device__ __forceinline__ State identity() {
  return 0.0f;
}

__device__ __forceinline__ State combine(State a, State b) { return a + b; }

// Writes element i of each output, from the state of `count` elements.
__device__ __forceinline__ void write_results(
    State state, long long count, long long i,
    float* __restrict__ out) {
  out[i] = state;
}

// Each unit has n partial results, stored unit after unit; counts has the number of elements of
// each unit.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    merge_sum_f32__units_tpb128(
        const float* __restrict__ partial_sum,
        const long long* __restrict__ counts,
        float* __restrict__ out,
        long long units, long long n) {
  const long long result = static_cast<long long>(blockIdx.x) * kThreadsPerBlock + threadIdx.x;
  if (result >= n) return;
  State state = identity();
  long long before = 0;  // elements of the units merged so far
#pragma unroll kUnroll
  for (long long unit = 0; unit < units; ++unit) {
    const long long count = counts[unit];
    const long long i = unit * n + result;
    const State own = static_cast<float>(partial_sum[i]);
    if (count > 0) {  // a unit without elements has no best one
      state = combine(state, own);
      before += count;
    }
  }
  write_results(state, before, result, out);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* partial_sum, const long long* counts, float* out, long long units, long long n,
    cudaStream_t stream) {
  const long long blocks = (n + 127) / 128;
  if (blocks > 0) {
    merge_sum_f32__units_tpb128<<<blocks, 128, 0, stream>>>(
        partial_sum, counts, out, units, n);
  }
  return cudaGetLastError();
}

#endif

}  // namespace merge_sum_f32__units_tpb128
