// transpose_10_b32__skinny_cols_b16384_tpb256
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// With few columns, a tile that has all of them is contiguous in the input. It is read as it lies,
// and written as one long piece of each row of the output. With few rows it is the other way
// round.
//
// Let:      full = max(16384 / max(cols * 4, 1) / 32 * 32, 32)
// Let:      tiles_down = (rows + full - 1) / full
// Launch:   <<<tiles_down * min(cols, 1), 256, (cols * full * 4 + 16 + 127) / 128 * 128>>>(in,
//           out, rows, cols, in_pitch, out_pitch, tiles_down, 1, full)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"few": "cols", "piece": 16384, "threads_per_block": 256}
// Template: transpose/skinny.cu.jinja, with its partials sha256 3e96d1a1515c23df
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__skinny_cols_b16384_tpb256 {

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

// Reads `count` consecutive elements into the tile.
template <bool kSpread = true>
__device__ __forceinline__ void read_piece(
    Unit* tile, const unsigned* __restrict__ from, int count, int early) {
  const int first = early > 0;  // number of the first whole vector
  const int end = (early + count) / kVector;
  const uint4* vectors = reinterpret_cast<const uint4*>(from - early);
#pragma unroll 4
  for (int v = first + threadIdx.x; v < end; v += kThreadsPerBlock) {
    const uint4 loaded = __ldg(vectors + v);
    if (kSpread) {
      tile[slot(4 * v)] = loaded.x;
      tile[slot(4 * v + 1)] = loaded.y;
      tile[slot(4 * v + 2)] = loaded.z;
      tile[slot(4 * v + 3)] = loaded.w;
    } else {
      reinterpret_cast<uint4*>(tile)[v] = loaded;
    }
  }
  // The elements before and after the whole vectors.
  const int units = (early + count + kElements - 1) / kElements;
  const int head = min(units, first * kUnits);
  const int tail = max(first, end) * kUnits;
  for (int i = threadIdx.x + early; i < head; i += kThreadsPerBlock) {
    tile[slot<kSpread>(i)] = from[i - early];
  }
  for (int i = tail + threadIdx.x; i < units; i += kThreadsPerBlock) {
    tile[slot<kSpread>(i)] = from[i - early];
  }
}

// How many threads work on the same column; the others work on other columns.
__device__ __forceinline__ int abreast(int steps) {
  return min(kThreadsPerBlock, 1 << (31 - __clz(steps)));
}

// Writes `length` elements of each of `count` columns.
template <bool kSpread>
__device__ __forceinline__ void write_columns(
    const Unit* tile, unsigned* __restrict__ to, long long out_pitch, int length, int count,
    int early) {
  const int along = abreast(length);
  for (int col = threadIdx.x / along; col < count; col += kThreadsPerBlock / along) {
    unsigned* column = to + col * out_pitch;
#pragma unroll 4
    for (int row = threadIdx.x % along; row < length; row += along) {
      const unsigned element = tile[slot<kSpread>(early + row * count + col)];
      column[row] = element;
    }
  }
}

// in is rows x cols, out is cols x rows; there are few cols. A tile has all of them and
// `length` rows, so that it is contiguous in the input: in_pitch is cols.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__skinny_cols_b16384_tpb256(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across, int full) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  Unit* tile = reinterpret_cast<Unit*>(shared_bytes);
  const long long first = blockIdx.x * static_cast<long long>(full);
  const int length = min(static_cast<long long>(full), rows - first);
  const int early = early_of(in + first * cols);
  if (cols % 2 == 0) {
    read_piece<true>(tile, in + first * cols, length * cols, early);
    __syncthreads();
    write_columns<true>(tile, out + first, out_pitch, length, cols, early);
  } else {
    read_piece<false>(tile, in + first * cols, length * cols, early);
    __syncthreads();
    write_columns<false>(tile, out + first, out_pitch, length, cols, early);
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long rows, long long cols, long long in_pitch,
    long long out_pitch, cudaStream_t stream) {
  const long long full = max(16384 / max(cols * 4, 1LL) / 32 * 32, 32LL);
  const long long tiles_down = (rows + full - 1) / full;
  const long long blocks = tiles_down * min(cols, 1LL);
  const long long shared_bytes = (cols * full * 4 + 16 + 127) / 128 * 128;
  cudaError_t error = cudaFuncSetAttribute(
      transpose_10_b32__skinny_cols_b16384_tpb256, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  if (blocks > 0) {
    transpose_10_b32__skinny_cols_b16384_tpb256<<<blocks, 256, shared_bytes, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, tiles_down, 1, full);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__skinny_cols_b16384_tpb256
