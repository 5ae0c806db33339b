// transpose_10_b32__skinny_rows_t256_tpb128
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// With few columns, a tile that has all of them lies in one piece in the input, is read as it
// lies, and written to as many long pieces; with few rows the other way round.
//
// Launch:   <<<((rows + 63) / 64) * ((cols + 255) / 256), 128, (((rows * 1024) + 4095) / 4096) *
//           4096>>>(in, out, rows, cols, in_pitch, out_pitch, (rows + 63) / 64, (cols + 255) /
//           256)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"few": "rows", "length": 256, "threads_per_block": 128}
// Template: transpose/skinny.cu.jinja, with its partials sha256 ba82c49c69ff5930
//
// Written by gen: change the template, not this file.

constexpr int kLength = 256;  // cols of a tile, which has all rows
constexpr int kThreadsPerBlock = 128;
constexpr int kSize = 4;  // bytes of an element
using Unit = unsigned;  // what the tile is made of
constexpr int kElements = sizeof(Unit) / kSize;  // in a unit
constexpr int kLine = 128 / sizeof(Unit);  // units that all banks hold side by side

// Where the tile holds a unit: exchanged within its line, so that steps of any length meet most
// banks.
__device__ __forceinline__ int slot(int unit) { return unit ^ unit / kLine % kLine; }

// Where the tile, taken as elements, holds one.
__device__ __forceinline__ int element_slot(int place) {
  return slot(place / kElements) * kElements + place % kElements;
}

static_assert(kLength % (16 / kSize) == 0, "tiles begin at whole vectors");

// Reads length elements of each of count rows, and leaves them as they follow each other in the
// output.
__device__ __forceinline__ void read_rows(
    Unit* tile, const unsigned* __restrict__ from, long long in_pitch, int length,
    int count) {
  unsigned* elements = reinterpret_cast<unsigned*>(tile);
#pragma unroll 4
  for (int i = threadIdx.x; i < count * kLength; i += kThreadsPerBlock) {
    const int row = i / kLength;
    const int col = i % kLength;
    if (col < length) {
      elements[element_slot(col * count + row)] = __ldg(from + row * in_pitch + col);
    }
  }
}

// Writes count elements that follow each other from the tile.
__device__ __forceinline__ void write_piece(
    const Unit* tile, unsigned* __restrict__ to, int count) {
  const bool aligned = reinterpret_cast<unsigned long long>(to) % 16 == 0;
  const int vectors = aligned ? count * kSize / 16 : 0;
#pragma unroll 4
  for (int v = threadIdx.x; v < vectors; v += kThreadsPerBlock) {
    const unsigned x = tile[slot(4 * v)];
    const unsigned y = tile[slot(4 * v + 1)];
    const unsigned z = tile[slot(4 * v + 2)];
    const unsigned w = tile[slot(4 * v + 3)];
    const uint4 vector = make_uint4(x, y, z, w);
    uint4* vectors_to = reinterpret_cast<uint4*>(to);
    vectors_to[v] = vector;
  }
  const unsigned* elements = reinterpret_cast<const unsigned*>(tile);
  for (int i = vectors * (16 / kSize) + threadIdx.x; i < count; i += kThreadsPerBlock) {
    to[i] = elements[element_slot(i)];
  }
}

// in is rows x cols, out is cols x rows; rows are few, so that a tile lies in one piece in
// the output: out_pitch is rows.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__skinny_rows_t256_tpb128(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Unit* tile = reinterpret_cast<Unit*>(shared_bytes);
  const long long tile_row = blockIdx.x / tiles_across;
  const long long tile_col = blockIdx.x % tiles_across;
  const long long first = (tile_col + tile_row) * kLength;  // there is one row of tiles
  const int length = min(static_cast<long long>(kLength), cols - first);
  read_rows(tile, in + first, in_pitch, length, rows);
  __syncthreads();
  write_piece(tile, out + first * rows, length * rows);
}
