// probe_set_row_read_col_32x32_b32__tile_tpb256_p1_dyn
//
// Transposes tiles of 32 x 32 elements of 4 bytes through shared memory, which is filled along its
// rows and read along its columns.
// Each block reads a tile from global memory in the order in which it lies, fills shared memory
// with it along rows or columns, and writes what it reads back along rows or columns, again in the
// order of global memory.
//
// Launch:   <<<tiles, 256, 4224>>>(in, out)
// Spec:     {"cols": 32, "dtype": "b32", "layout": "set_row_read_col", "probe": "tile", "rows":
//           32}
// Config:   {"dynamic": true, "padding": 1, "threads_per_block": 256}
// Template: probe/tile.cu.jinja, with its partials sha256 28fdeeb02858e857
//
// Written by gen: change the template, not this file.

namespace probe_set_row_read_col_32x32_b32__tile_tpb256_p1_dyn {

constexpr int kThreadsPerBlock = 256;
constexpr int kHeight = 32;  // rows of the tile in shared memory
constexpr int kWidth = 32;  // elements of each row
constexpr int kPadding = 1;  // unused elements after each row: they spread a column over the banks
constexpr int kElements = kHeight * kWidth;
static_assert(kThreadsPerBlock % 32 == 0 && kThreadsPerBlock <= 1024, "a block is whole warps");
static_assert(kElements % kThreadsPerBlock == 0, "every thread has as many elements");

// Each block takes a tile through shared memory, which is filled along its rows
// and read along its columns.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    probe_set_row_read_col_32x32_b32__tile_tpb256_p1_dyn(
        const unsigned* __restrict__ in, unsigned* __restrict__ out) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  using Array = unsigned[kHeight][kWidth + kPadding];
  Array& tile = *reinterpret_cast<Array*>(shared_bytes);
  const long long first = static_cast<long long>(blockIdx.x) * kElements;
#pragma unroll
  for (int i = threadIdx.x; i < kElements; i += kThreadsPerBlock) {
    tile[i / kWidth][i % kWidth] = in[first + i];
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kElements; i += kThreadsPerBlock) {
    out[first + i] = tile[i % kHeight][i / kHeight];
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(const void* in, void* out, long long tiles, cudaStream_t stream) {
  if (tiles > 0) {
    probe_set_row_read_col_32x32_b32__tile_tpb256_p1_dyn<<<tiles, 256, 4224, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out));
  }
  return cudaGetLastError();
}

#endif

}  // namespace probe_set_row_read_col_32x32_b32__tile_tpb256_p1_dyn
