// transpose_10_b32__tiled_t64_r8_p1_u1_ocol
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// A tile is read along the rows of the input, staged in shared memory, and written along the rows
// of the output: both sides are coalesced. Padding spreads a column of the tile over the banks.
//
// Let:      tiles_down = (rows + 63) / 64
// Let:      tiles_across = (cols + 63) / 64
// Launch:   <<<tiles_down * tiles_across, dim3(64, 8, 1)>>>(in, out, rows, cols, in_pitch,
//           out_pitch, tiles_down, tiles_across)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"block_order": "col", "block_rows": 8, "padding": 1, "tile_dim": 64, "unroll": 1}
// Template: transpose/tiled.cu.jinja, with its partials sha256 1d6e588f0296dd57
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__tiled_t64_r8_p1_u1_ocol {

constexpr int kTileDim = 64;
constexpr int kBlockRows = 8;  // rows that the block moves at a time
constexpr int kPadding = 1;  // spreads a column of the tile over the banks
constexpr int kUnroll = 1;  // squares side by side in a tile
constexpr int kTileCols = kTileDim * kUnroll;
static_assert(kTileDim % kBlockRows == 0, "the block moves whole strips of the tile");
constexpr int kThreadsPerBlock = kTileDim * kBlockRows;
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

// in is rows x cols, out is cols x rows; tiles_across is the number of tiles in a row of tiles.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__tiled_t64_r8_p1_u1_ocol(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across) {
  __shared__ unsigned tile[kTileDim][kTileCols + kPadding];
  const long long tile_row = blockIdx.x % tiles_down;  // consecutive blocks lie below each other
  const long long tile_col = blockIdx.x / tiles_down;
  const long long first_row = tile_row * kTileDim;
  const long long first_col = tile_col * kTileCols;
  const int x = threadIdx.x;
  const int y = threadIdx.y;

#pragma unroll
  for (int j = 0; j < kTileDim; j += kBlockRows) {
#pragma unroll
    for (int i = 0; i < kTileCols; i += kTileDim) {
      const long long row = first_row + y + j;
      const long long col = first_col + x + i;
      if (row < rows && col < cols) {
        tile[y + j][x + i] = in[row * in_pitch + col];
      }
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTileCols; i += kTileDim) {
#pragma unroll
    for (int j = 0; j < kTileDim; j += kBlockRows) {
      const long long row = first_row + x;
      const long long col = first_col + y + j + i;
      if (row < rows && col < cols) {
        out[col * out_pitch + row] = tile[x][y + j + i];
      }
    }
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long rows, long long cols, long long in_pitch,
    long long out_pitch, cudaStream_t stream) {
  const long long tiles_down = (rows + 63) / 64;
  const long long tiles_across = (cols + 63) / 64;
  const long long blocks = tiles_down * tiles_across;
  if (blocks > 0) {
    transpose_10_b32__tiled_t64_r8_p1_u1_ocol<<<blocks, dim3(64, 8), 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, tiles_down, tiles_across);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__tiled_t64_r8_p1_u1_ocol
