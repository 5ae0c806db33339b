// transpose_10_b32__vector_tile_v8_x16_g16_swz_orow_ldg_i32
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// A thread reads a square of elements by vectors, one from each row, transposes it in registers,
// and writes it to shared memory by vectors, one for each column. From there vectors are written
// along the rows of the output.
//
// Let:      tiles_across = (cols + 31) / 32
// Let:      tiles_down = (rows + 31) / 32
// Let:      aligned = 1 - min(in_pitch % 2 + out_pitch % 2, 1)
// Let:      full_tiles_down = rows / 32 * aligned
// Let:      full_tiles_across = cols / 32 * aligned
// Launch:   <<<dim3(tiles_across, tiles_down, 1), 256>>>(in, out, in_pitch, out_pitch,
//           full_tiles_down, full_tiles_across, rows, cols)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"block_order": "row", "groups": 16, "index_bits": 32, "lanes": 16, "load_modifier":
//           "g", "spread": "swz", "vec_bytes": 8}
// Template: transpose/vector_tile.cu.jinja, with its partials sha256 fef7912682551b79
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__vector_tile_v8_x16_g16_swz_orow_ldg_i32 {

constexpr int kVecBytes = 8;  // bytes of each load and store
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

constexpr int kWords = 2;  // 32-bit words of a vector

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

using Tile = uint2[kTileCols * (kGroups + kPadding)];

using Index = int;  // an offset in elements: both arrays have less than 2^31

// Moves a tile by vectors. Where it lies inside there are no guards, so that a thread issues all
// of its loads, then all of its stores. start is the offset of the thread's first vector.
template <bool kInside>
__device__ __forceinline__ void move_by_vectors(
    Tile& tile, const unsigned* __restrict__ start,
    unsigned* __restrict__ out, Index rows, Index cols, Index in_pitch, Index out_pitch,
    Index first_row, Index first_col) {
  const int square = threadIdx.x % kSquaresAcross;
  const int group = threadIdx.x / kSquaresAcross;
  const Index row = first_row + group * kElements;
  const Index col = first_col + square * kElements;
  unsigned across[kElements][kWords];
  unsigned down[kElements][kWords];
  if (kInside || (row < rows && col < cols)) {
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const uint2* from = reinterpret_cast<const uint2*>(start);
      const uint2 loaded = __ldg(&from[0]);
      across[i][0] = loaded.x;
      across[i][1] = loaded.y;
      start += in_pitch;
    }
    transpose_square(across, down);
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      uint2& place = tile[slot(square * kElements + j, group)];
      place = make_uint2(down[j][0], down[j][1]);
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
        uint2* to = reinterpret_cast<uint2*>(start);
        to[0] = tile[slot(c, below)];
      }
      start += kSquaresAcross * out_pitch;
    }
  }
}

// Moves a tile at the edge, or one of arrays whose rows are not aligned. It is a separate
// function, so that the instructions for all other tiles stay close together.
__device__ __noinline__ void move_edge(
    Tile& tile, const unsigned* __restrict__ in, const unsigned* __restrict__ start,
    unsigned* __restrict__ out, Index rows, Index cols, Index in_pitch, Index out_pitch,
    Index first_row, Index first_col) {
  const auto in_address = reinterpret_cast<unsigned long long>(in);
  const auto out_address = reinterpret_cast<unsigned long long>(out);
  const bool aligned = (in_address | out_address) % kVecBytes == 0 &&
                       (in_pitch | out_pitch) % kElements == 0;
  if (aligned && rows % kElements == 0 && cols % kElements == 0) {
    move_by_vectors<false>(
        tile, start, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
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

// in is rows x cols, out is cols x rows. Tiles at the edge are moved by vectors only where rows
// and cols are multiples of kElements; where an address or a pitch is not aligned, no tile is.
// full_tiles_down x full_tiles_across tiles lie inside; none counts where a pitch is not aligned.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__vector_tile_v8_x16_g16_swz_orow_ldg_i32(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        Index in_pitch, Index out_pitch, Index full_tiles_down, Index full_tiles_across,
        Index rows, Index cols) {
  __shared__ Tile tile;
  // Few instructions come before the first load: all blocks of a small array issue them at the
  // same time.
  const auto in_address = reinterpret_cast<unsigned long long>(in);
  const auto out_address = reinterpret_cast<unsigned long long>(out);
  const bool addresses_aligned = (in_address | out_address) % kVecBytes == 0;
  const Index tile_col = blockIdx.x;
  const Index tile_row = blockIdx.y;
  const Index first_row = tile_row * kTileRows;
  const Index first_col = tile_col * kTileCols;

  // The offset of the thread's first vector. Both branches use it, so that it is computed before
  // the branch, while its condition is not known yet.
  const Index row = first_row + threadIdx.x / kSquaresAcross * kElements;
  const Index col = first_col + threadIdx.x % kSquaresAcross * kElements;
  const unsigned* start = in + (row * in_pitch + col);
  if (addresses_aligned && tile_row < full_tiles_down && tile_col < full_tiles_across) {
    move_by_vectors<true>(
        tile, start, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
  } else {
    move_edge(tile, in, start, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long in_pitch, long long out_pitch, long long rows,
    long long cols, cudaStream_t stream) {
  const long long tiles_across = (cols + 31) / 32;
  const long long tiles_down = (rows + 31) / 32;
  const long long aligned = 1 - min(in_pitch % 2 + out_pitch % 2, 1LL);
  const long long full_tiles_down = rows / 32 * aligned;
  const long long full_tiles_across = cols / 32 * aligned;
  if (tiles_across > 0 && tiles_down > 0) {
    transpose_10_b32__vector_tile_v8_x16_g16_swz_orow_ldg_i32<<<dim3(tiles_across, tiles_down), 256, 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), in_pitch, out_pitch,
        full_tiles_down, full_tiles_across, rows, cols);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__vector_tile_v8_x16_g16_swz_orow_ldg_i32
