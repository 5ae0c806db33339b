// transpose_10_b32__row_copy_x256_tpb256_u4
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// Consecutive elements of the input stay consecutive in the output: runs of them are copied by
// 16-byte vectors. Where one of the two arrays is not aligned, elements of 1 or 2 bytes are copied
// by vectors that are shifted into place.
//
// Let:      tiles_across = (rows * cols + 4095) / 4096
// Let:      tiles_across_inverse = 9223372036854775807 / max(tiles_across, 1)
// Launch:   <<<tiles_across, 256>>>(in, out, rows, cols, in_pitch, out_pitch, 1, tiles_across,
//           tiles_across_inverse)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"lanes": 256, "threads_per_block": 256, "unroll": 4}
// Template: transpose/row_copy.cu.jinja, with its partials sha256 b74e1ae2fcbd69e7
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__row_copy_x256_tpb256_u4 {

constexpr int kSize = 4;  // bytes of an element
constexpr int kLanes = 256;  // threads along a run
constexpr int kUnroll = 4;  // vectors of each thread
constexpr int kThreadsPerBlock = 256;
constexpr int kRuns = kThreadsPerBlock / kLanes;  // runs that a block copies
constexpr int kVector = 16 / kSize;  // elements of a vector
constexpr int kSpan = kLanes * kUnroll * kVector;  // elements of a run that a block copies
static_assert(kThreadsPerBlock % kLanes == 0, "a block copies whole runs side by side");

// The quotient of a number below 2^31 - 1, given (2^63 - 1) / divisor: faster than a division.
// Exact: (number + 1) * inverse / 2^63 lies below (number + 1) / divisor, by 1 / divisor at most.
__device__ __forceinline__ unsigned divided(unsigned number, unsigned long long inverse) {
  return __umul64hi(2 * number + 2, inverse);
}

// The order of elements within a run of rows * cols elements stays; there is a run for each
// position on the other axes.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__row_copy_x256_tpb256_u4(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across,
        unsigned long long tiles_across_inverse) {
  const long long run = rows * cols;
  const unsigned runs = 1;
  const unsigned line = divided(blockIdx.x, tiles_across_inverse);
  const long long first = static_cast<long long>(blockIdx.x - line * tiles_across) * kSpan;
  const long long last = min(run, first + kSpan);
  const unsigned mine = line * kRuns + threadIdx.x / kLanes;
  if (mine >= runs) return;
  const auto in_address = reinterpret_cast<unsigned long long>(in);
  const auto out_address = reinterpret_cast<unsigned long long>(out);
  const int lane = threadIdx.x % kLanes;
  if ((in_address | out_address) % 16 == 0) {
    const long long vectors = last / kVector;
    long long v = first / kVector + lane;
    const uint4* from = reinterpret_cast<const uint4*>(in);
    uint4* to = reinterpret_cast<uint4*>(out);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (v < vectors) to[v] = __ldg(&from[v]);
      v += kLanes;
    }
    for (long long i = max(first, vectors * kVector) + lane; i < last; i += kLanes) out[i] = in[i];
    return;
  }
  for (long long i = first + lane; i < last; i += kLanes) out[i] = in[i];
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long rows, long long cols, long long in_pitch,
    long long out_pitch, cudaStream_t stream) {
  const long long tiles_across = (rows * cols + 4095) / 4096;
  const long long tiles_across_inverse = 9223372036854775807 / max(tiles_across, 1LL);
  if (tiles_across > 0) {
    transpose_10_b32__row_copy_x256_tpb256_u4<<<tiles_across, 256, 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, 1, tiles_across, tiles_across_inverse);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__row_copy_x256_tpb256_u4
