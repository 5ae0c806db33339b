// transpose_10_b32__skinny_rows_b16384_tpb256
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// With few columns, a tile that has all of them is contiguous in the input. It is read as it lies,
// and written as one long piece of each row of the output. With few rows it is the other way
// round.
//
// Let:      full = max(16384 / max(rows * 4, 1) / 32 * 32, 32)
// Let:      tiles_across = (cols + full - 1) / full
// Launch:   <<<tiles_across * min(rows, 1), 256, (rows * full * 4 + 16 + 127) / 128 * 128>>>(in,
//           out, rows, cols, in_pitch, out_pitch, 1, tiles_across, full)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"few": "rows", "piece": 16384, "threads_per_block": 256}
// Template: transpose/skinny.cu.jinja, with its partials sha256 3e96d1a1515c23df
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__skinny_rows_b16384_tpb256 {

constexpr int kThreadsPerBlock = 256;
constexpr int kSize = 4;  // bytes of an element
using Unit = unsigned;  // the tile consists of these
constexpr int kElements = sizeof(Unit) / kSize;  // elements of a unit
constexpr int kUnits = 16 / sizeof(Unit);  // units of a vector
constexpr int kVector = kUnits * kElements;  // elements of a vector
constexpr int kLine = 128 / sizeof(Unit);  // units of a line: one row of all banks
static_assert(kVector * kSize == 16, "vectors hold whole elements");

// The slot of a unit in the tile. Units are permuted within each line, so that accesses of any
// stride meet most banks. Odd strides do so anyway, and need no kSpread.
template <bool kSpread = true>
__device__ __forceinline__ unsigned slot(unsigned unit) {
  return kSpread ? unit ^ unit / kLine % kLine : unit;
}

// The slot of an element, if the tile is seen as elements.
template <bool kSpread = true>
__device__ __forceinline__ unsigned element_slot(unsigned place) {
  return slot<kSpread>(place / kElements) * kElements + place % kElements;
}

// How many elements before `first` the aligned vector begins that holds it.
__device__ __forceinline__ int early_of(const unsigned* first) {
  return reinterpret_cast<unsigned long long>(first) % 16 / kSize;
}

// The quotient of two numbers below 2^16, given inverse_of(divisor), which is 2^32 / divisor
// rounded up, and 0 for 1.
__device__ __forceinline__ int divide(int number, unsigned inverse) {
  return inverse == 0 ? number : __umulhi(number, inverse);
}
__device__ __forceinline__ unsigned inverse_of(int divisor) { return 0xffffffffu / divisor + 1; }

// Reads `length` elements of each of `count` rows into the tile, in the order of the output. full:
// the piece is not the last, shorter one.
__device__ __forceinline__ void read_rows(
    Unit* tile, const unsigned* __restrict__ from, long long in_pitch, int length, int full,
    int count, int early) {
  const auto together = reinterpret_cast<unsigned long long>(from) | in_pitch * kSize;
  if (length == full && together % 16 == 0) {
    const int vectors = length / kVector;
    const unsigned per_vectors = inverse_of(vectors);
#pragma unroll 4
    for (int i = threadIdx.x; i < count * vectors; i += kThreadsPerBlock) {
      const int row = divide(i, per_vectors);
      const int v = i - row * vectors;
      const uint4 loaded = __ldg(reinterpret_cast<const uint4*>(from + row * in_pitch) + v);
      const int place = early + v * kVector * count + row;
      tile[slot(place)] = loaded.x;
      tile[slot(place + count)] = loaded.y;
      tile[slot(place + 2 * count)] = loaded.z;
      tile[slot(place + 3 * count)] = loaded.w;
    }
    return;
  }
  const unsigned per_full = inverse_of(full);
#pragma unroll 4
  for (int i = threadIdx.x; i < count * full; i += kThreadsPerBlock) {
    const int row = divide(i, per_full);
    const int col = i - row * full;
    if (col < length) {
      tile[slot(early + col * count + row)] = __ldg(from + row * in_pitch + col);
    }
  }
}

// Writes `count` consecutive elements from the tile.
__device__ __forceinline__ void write_piece(
    const Unit* tile, unsigned* __restrict__ to, int count, int early) {
  const int first = early > 0;  // number of the first whole vector
  const int end = (early + count) / kVector;
  uint4* vectors = reinterpret_cast<uint4*>(to - early);
#pragma unroll 2
  for (int v = first + threadIdx.x; v < end; v += kThreadsPerBlock) {
    const unsigned x = tile[slot(4 * v)];
    const unsigned y = tile[slot(4 * v + 1)];
    const unsigned z = tile[slot(4 * v + 2)];
    const unsigned w = tile[slot(4 * v + 3)];
    const uint4 vector = make_uint4(x, y, z, w);
    vectors[v] = vector;
  }
  // The elements before and after the whole vectors.
  const int head = min(count, first * (kVector - early));
  const int tail = max(head, end * kVector - early);
  for (int i = threadIdx.x; i < head; i += kThreadsPerBlock) {
    to[i] = tile[slot(early + i)];
  }
  for (int i = tail + threadIdx.x; i < count; i += kThreadsPerBlock) {
    to[i] = tile[slot(early + i)];
  }
}

// in is rows x cols, out is cols x rows; there are few rows. A tile has all of them and
// `length` cols, so that it is contiguous in the output: out_pitch is rows.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__skinny_rows_b16384_tpb256(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across, int full) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Unit* tile = reinterpret_cast<Unit*>(shared_bytes);
  const long long first = blockIdx.x * static_cast<long long>(full);
  const int length = min(static_cast<long long>(full), cols - first);
  const int early = early_of(out + first * rows);
  read_rows(tile, in + first, in_pitch, length, full, rows, early);
  __syncthreads();
  write_piece(tile, out + first * rows, length * rows, early);
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long rows, long long cols, long long in_pitch,
    long long out_pitch, cudaStream_t stream) {
  const long long full = max(16384 / max(rows * 4, 1LL) / 32 * 32, 32LL);
  const long long tiles_across = (cols + full - 1) / full;
  const long long blocks = tiles_across * min(rows, 1LL);
  const long long shared_bytes = (rows * full * 4 + 16 + 127) / 128 * 128;
  cudaError_t error = cudaFuncSetAttribute(
      transpose_10_b32__skinny_rows_b16384_tpb256, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  if (blocks > 0) {
    transpose_10_b32__skinny_rows_b16384_tpb256<<<blocks, 256, shared_bytes, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, 1, tiles_across, full);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__skinny_rows_b16384_tpb256
