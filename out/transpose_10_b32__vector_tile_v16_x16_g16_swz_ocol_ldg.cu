// transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// A thread reads a square of elements by vectors, one from each row, transposes it in registers,
// and writes it to shared memory by vectors, one for each column. From there vectors are written
// along the rows of the output.
//
// Let:      tiles_down = (rows + 63) / 64
// Let:      tiles_across = (cols + 63) / 64
// Let:      tiles_down_inverse = 9223372036854775807 / max(tiles_down, 1)
// Launch:   <<<tiles_down * tiles_across, 256>>>(in, out, rows, cols, in_pitch, out_pitch,
//           tiles_down, tiles_across, tiles_down_inverse)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"block_order": "col", "groups": 16, "lanes": 16, "load_modifier": "g", "spread":
//           "swz", "vec_bytes": 16}
// Template: transpose/vector_tile.cu.jinja, with its partials sha256 fef7912682551b79
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg {

constexpr int kVecBytes = 16;  // bytes of each load and store
constexpr int kSize = 4;  // bytes of an element
constexpr int kElements = kVecBytes / kSize;  // a thread transposes squares of so many elements
constexpr int kSquaresAcross = 16;  // squares across a tile
constexpr int kGroups = 16;  // squares down a tile
constexpr int kPadding = 0;  // no padding: slot() spreads a row over the banks
constexpr int kTileRows = kGroups * kElements;
constexpr int kTileCols = kSquaresAcross * kElements;
constexpr int kThreadsPerBlock = kSquaresAcross * kGroups;
static_assert(kElements > 0, "a vector holds at least one element");
static_assert((kGroups & (kGroups - 1)) == 0, "columns are exchanged within a power of two");
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

constexpr int kWords = 4;  // 32-bit words of a vector

// Transposes a square: kElements vectors, one of each row, become kElements vectors, one of each
// column.
__device__ __forceinline__ void transpose_square(
    const unsigned (&rows)[kElements][kWords], unsigned (&cols)[kElements][kWords]) {
  constexpr int kPerElement = kWords / kElements;
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      cols[w / kPerElement][i * kPerElement + w % kPerElement] = rows[i][w];
    }
  }
}

// The slot of a vector in the tile: rows group * kElements and on of a column.
__device__ __forceinline__ int slot(int col, int group) {
  return col * kGroups + (group ^ col / kElements % kGroups);
}

using Tile = uint4[kTileCols * (kGroups + kPadding)];

using Index = long long;  // an offset in elements

// Moves a tile by vectors. Where it lies inside there are no guards, so that a thread issues all
// of its loads, then all of its stores.
template <bool kInside>
__device__ __forceinline__ void move_by_vectors(
    Tile& tile, const unsigned* __restrict__ in,
    unsigned* __restrict__ out, Index rows, Index cols, Index in_pitch, Index out_pitch,
    Index first_row, Index first_col) {
  const int square = threadIdx.x % kSquaresAcross;
  const int group = threadIdx.x / kSquaresAcross;
  const Index row = first_row + group * kElements;
  const Index col = first_col + square * kElements;
  unsigned across[kElements][kWords];
  unsigned down[kElements][kWords];
  if (kInside || (row < rows && col < cols)) {
    const unsigned* start = in + row * in_pitch + col;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const uint4* from = reinterpret_cast<const uint4*>(start);
      const uint4 loaded = __ldg(&from[0]);
      across[i][0] = loaded.x;
      across[i][1] = loaded.y;
      across[i][2] = loaded.z;
      across[i][3] = loaded.w;
      start += in_pitch;
    }
    transpose_square(across, down);
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      uint4& place = tile[slot(square * kElements + j, group)];
      place = make_uint4(down[j][0], down[j][1], down[j][2], down[j][3]);
    }
  }
  __syncthreads();
  const int below = threadIdx.x % kGroups;
  if (kInside || first_row + below * kElements < rows) {
    const Index first = (first_col + threadIdx.x / kGroups) * out_pitch + first_row;
    unsigned* start = out + (first + below * kElements);
#pragma unroll
    for (int k = 0; k < kTileCols; k += kSquaresAcross) {
      const int c = k + threadIdx.x / kGroups;
      if (kInside || first_col + c < cols) {
        uint4* to = reinterpret_cast<uint4*>(start);
        to[0] = tile[slot(c, below)];
      }
      start += kSquaresAcross * out_pitch;
    }
  }
}

// Moves a tile at the edge, or one of arrays whose rows are not aligned. It is a separate
// function, so that the instructions for all other tiles stay close together.
__device__ __noinline__ void move_edge(
    Tile& tile, const unsigned* __restrict__ in,
    unsigned* __restrict__ out, Index rows, Index cols, Index in_pitch, Index out_pitch,
    Index first_row, Index first_col, bool aligned) {
  if (aligned && rows % kElements == 0 && cols % kElements == 0) {
    move_by_vectors<false>(
        tile, in, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
    return;
  }
  const int thread = threadIdx.x;
  unsigned* elements = reinterpret_cast<unsigned*>(tile);
#pragma unroll 1
  for (int k = thread; k < kTileRows * kTileCols; k += kThreadsPerBlock) {
    const int r = k / kTileCols;
    const int c = k % kTileCols;
    if (first_row + r < rows && first_col + c < cols) {
      elements[slot(c, r / kElements) * kElements + r % kElements] =
          in[(first_row + r) * in_pitch + first_col + c];
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int k = thread; k < kTileRows * kTileCols; k += kThreadsPerBlock) {
    const int c = k / kTileRows;
    const int r = k % kTileRows;
    if (first_row + r < rows && first_col + c < cols) {
      out[(first_col + c) * out_pitch + first_row + r] =
          elements[slot(c, r / kElements) * kElements + r % kElements];
    }
  }
}

// The quotient of a number below 2^31 - 1, given (2^63 - 1) / divisor: faster than a division.
// Exact: (number + 1) * inverse / 2^63 lies below (number + 1) / divisor, by 1 / divisor at most.
__device__ __forceinline__ unsigned divided(unsigned number, unsigned long long inverse) {
  return __umul64hi(2 * number + 2, inverse);
}

// in is rows x cols, out is cols x rows. Tiles at the edge are moved by vectors only where rows
// and cols are multiples of kElements; where an address or a pitch is not aligned, no tile is.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across,
        unsigned long long tiles_down_inverse) {
  __shared__ Tile tile;
  const unsigned line = divided(blockIdx.x, tiles_down_inverse);
  const long long tile_row = blockIdx.x - line * tiles_down;
  const long long tile_col = line;
  const Index first_row = tile_row * kTileRows;
  const Index first_col = tile_col * kTileCols;

  const auto in_address = reinterpret_cast<unsigned long long>(in);
  const auto out_address = reinterpret_cast<unsigned long long>(out);
  const bool aligned = (in_address | out_address) % kVecBytes == 0 &&
                       (in_pitch | out_pitch) % kElements == 0;
  const bool inside = first_row + kTileRows <= rows && first_col + kTileCols <= cols;
  if (aligned && inside) {
    move_by_vectors<true>(
        tile, in, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
  } else {
    move_edge(tile, in, out, rows, cols, in_pitch, out_pitch, first_row, first_col, aligned);
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
  const long long tiles_down_inverse = 9223372036854775807 / max(tiles_down, 1LL);
  if (blocks > 0) {
    transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg<<<blocks, 256, 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, tiles_down, tiles_across, tiles_down_inverse);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg
