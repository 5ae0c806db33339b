// transpose_10_b32__window_tile_t64_c64_w16_a32_ocol
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// A tile is staged in shared memory. The part of each of its columns that is written is moved up
// by a few rows, so that it begins at a whole sector of memory, even where the rows of the output
// begin at any address.
//
// Let:      tiles_down = (rows + 7 + 63) / 64
// Let:      tiles_across = (cols + 63) / 64
// Let:      tiles_down_inverse = 9223372036854775807 / max(tiles_down, 1)
// Launch:   <<<tiles_down * tiles_across, dim3(32, 16, 1)>>>(in, out, rows, cols, in_pitch,
//           out_pitch, tiles_down, tiles_across, tiles_down_inverse)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"align": 32, "block_order": "col", "tile_cols": 64, "tile_rows": 64, "warps": 16}
// Template: transpose/window_tile.cu.jinja, with its partials sha256 9d40f303c29b400c
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__window_tile_t64_c64_w16_a32_ocol {

constexpr int kTileRows = 64;  // rows of each column that a block writes
constexpr int kTileCols = 64;
constexpr int kWarps = 16;
constexpr int kSize = sizeof(unsigned);
constexpr int kAlign = 32;  // a block writes columns from multiples of so many bytes on
constexpr int kHalo = kAlign / kSize - 1;  // rows before its own that a block also reads, for this
constexpr int kPadding = 1;  // spreads a column of the tile over the banks
constexpr int kThreadsPerBlock = 32 * kWarps;
static_assert(kAlign % kSize == 0, "a window begins at a whole element");
static_assert(kTileRows % 32 == 0 && kTileCols % 32 == 0, "a warp moves 32 elements at a time");
static_assert(kTileCols % kWarps == 0, "every warp writes as many columns");
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

using Tile = unsigned[kTileRows + kHalo][kTileCols + kPadding];

// Reads the tile at (first_row, first_col). Unless kInside, rows and columns of it may lie outside
// the matrix.
template <bool kInside>
__device__ __forceinline__ void read_tile(
    Tile& tile, const unsigned* __restrict__ in, long long in_pitch, long long first_row,
    long long first_col, long long rows, long long cols) {
  const int lane = threadIdx.x;
  const unsigned* from = in + (first_row + threadIdx.y) * in_pitch + first_col + lane;
#pragma unroll
  for (int j = 0; j < kTileRows + kHalo; j += kWarps) {
    const int r = j + threadIdx.y;
    if (j + kWarps > kTileRows + kHalo && r >= kTileRows + kHalo) break;
    const bool row_there = kInside || (first_row + r >= 0 && first_row + r < rows);
#pragma unroll
    for (int i = 0; i < kTileCols; i += 32) {
      const bool there = kInside || (row_there && first_col + i + lane < cols);
      unsigned loaded = {};  // 0 outside; no branch separates the loads
      if (there) loaded = __ldg(&from[i]);
      tile[r][i + lane] = loaded;
    }
    from += kWarps * in_pitch;
  }
}

// Writes of each column of the tile a window of kTileRows rows that begins at a multiple of
// kAlign.
template <bool kInside>
__device__ __forceinline__ void write_tile(
    const Tile& tile, unsigned* __restrict__ out, long long out_pitch, long long first_row,
    long long first_col, long long rows, long long cols) {
  const int lane = threadIdx.x;
  unsigned* start = out + (first_col + threadIdx.y) * out_pitch + first_row + kHalo;
#pragma unroll
  for (int j = 0; j < kTileCols; j += kWarps) {
    const int c = j + threadIdx.y;
    if (kInside || first_col + c < cols) {
      const int early = reinterpret_cast<unsigned long long>(start) % kAlign / kSize;
      const int first = kHalo - early + lane;
      unsigned* to = start - early + lane;
#pragma unroll
      for (int i = 0; i < kTileRows; i += 32) {
        const long long row = first_row + first + i;
        if (kInside || (row >= 0 && row < rows)) {
          to[i] = tile[first + i][c];
        }
      }
    }
    start += kWarps * out_pitch;
  }
}

// The quotient of a number below 2^31 - 1, given (2^63 - 1) / divisor: faster than a division.
// Exact: (number + 1) * inverse / 2^63 lies below (number + 1) / divisor, by 1 / divisor at most.
__device__ __forceinline__ unsigned divided(unsigned number, unsigned long long inverse) {
  return __umul64hi(2 * number + 2, inverse);
}

// in is rows x cols, out is cols x rows; rows of both may begin at any address.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__window_tile_t64_c64_w16_a32_ocol(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across,
        unsigned long long tiles_down_inverse) {
  __shared__ Tile tile;
  const unsigned line = divided(blockIdx.x, tiles_down_inverse);
  const long long tile_row = blockIdx.x - line * tiles_down;
  const long long tile_col = line;
  const long long first_row = tile_row * kTileRows - kHalo;
  const long long first_col = tile_col * kTileCols;
  const bool inside = first_row >= 0 && first_row + kHalo + kTileRows <= rows &&
                      first_col + kTileCols <= cols;
  if (inside) {
    read_tile<true>(tile, in, in_pitch, first_row, first_col, rows, cols);
  } else {
    read_tile<false>(tile, in, in_pitch, first_row, first_col, rows, cols);
  }
  __syncthreads();
  if (inside) {
    write_tile<true>(tile, out, out_pitch, first_row, first_col, rows, cols);
  } else {
    write_tile<false>(tile, out, out_pitch, first_row, first_col, rows, cols);
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long rows, long long cols, long long in_pitch,
    long long out_pitch, cudaStream_t stream) {
  const long long tiles_down = (rows + 7 + 63) / 64;
  const long long tiles_across = (cols + 63) / 64;
  const long long blocks = tiles_down * tiles_across;
  const long long tiles_down_inverse = 9223372036854775807 / max(tiles_down, 1LL);
  if (blocks > 0) {
    transpose_10_b32__window_tile_t64_c64_w16_a32_ocol<<<blocks, dim3(32, 16), 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, tiles_down, tiles_across, tiles_down_inverse);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__window_tile_t64_c64_w16_a32_ocol
