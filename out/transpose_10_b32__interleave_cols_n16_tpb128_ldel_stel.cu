// transpose_10_b32__interleave_cols_n16_tpb128_ldel_stel
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// With few rows, a thread reads a vector of each row and interleaves them in registers; a warp
// then writes the interleaved elements as one contiguous piece. With few columns it is the other
// way round.
//
// Let:      tiles_down = (rows + 511) / 512
// Let:      tiles_down_inverse = 9223372036854775807 / max(tiles_down, 1)
// Launch:   <<<tiles_down, 128>>>(in, out, rows, cols, in_pitch, out_pitch, tiles_down, 1,
//           tiles_down_inverse)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"count": 16, "few": "cols", "load_modifier": "el", "store_modifier": "el",
//           "threads_per_block": 128}
// Template: transpose/interleave.cu.jinja, with its partials sha256 560ff44035f0be17
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__interleave_cols_n16_tpb128_ldel_stel {

constexpr int kSize = 4;  // bytes of an element
constexpr int kCount = 16;  // columns of a matrix
constexpr int kThreadsPerBlock = 128;
constexpr int kVector = 16 / kSize;  // elements of a vector
constexpr int kSpan = kThreadsPerBlock * kVector;  // rows that a block moves
static_assert(kVector * kSize == 16, "vectors hold whole elements");
static_assert(kThreadsPerBlock % 32 == 0, "whole warps exchange vectors");
// With fewer registers the compiler would stage vectors before the last load is issued.
constexpr int kRegisters = 4 * kCount + 48;  // registers of a thread: its vectors, and others
constexpr int kBlocks = 65536 / (kThreadsPerBlock * kRegisters);  // blocks of a multiprocessor
static_assert(kBlocks > 0, "a block finds its registers");

constexpr int kWords = kSize / 4;  // words of an element

// Splits the vectors of consecutive rows into one vector of each column.
__device__ __forceinline__ void part(
    const unsigned (&together)[kCount * 4], unsigned (&apart)[kCount][4]) {
#pragma unroll
  for (int r = 0; r < kCount; ++r) {
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      apart[r][w] = together[(w / kWords * kCount + r) * kWords + w % kWords];
    }
  }
}

// A load whose line is evicted from the L2 last although it is read only once: so the lines that
// are written are evicted first, and in a steady stream.
__device__ __forceinline__ uint4 ld_evict_last(const uint4* from) {
#if __CUDA_ARCH__ >= 800
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  uint4 loaded;
  asm("ld.global.nc.L1::evict_last.L2::cache_hint.v4.u32 { %0, %1, %2, %3 }, [%4], %5;"
      : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
      : "l"(from), "l"(policy));
  return loaded;
#else
  return __ldg(from);
#endif
}

// A store whose line is evicted from the L2 last: the next kernel that reads the output finds much
// of it there.
__device__ __forceinline__ void st_evict_last(uint4* to, const uint4& value) {
#if __CUDA_ARCH__ >= 800
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], { %1, %2, %3, %4 }, %5;"
               :
               : "l"(to), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "l"(policy)
               : "memory");
#else
  *to = value;
#endif
}

// The slot in which the block stages a vector. Vectors are permuted within each row of the banks,
// unless an odd stride meets all banks anyway.
__device__ __forceinline__ unsigned slot(unsigned vector) {
  return kCount % 2 == 0 ? vector ^ vector / 8 % 8 : vector;
}

// The quotient of a number below 2^31 - 1, given (2^63 - 1) / divisor: faster than a division.
// Exact: (number + 1) * inverse / 2^63 lies below (number + 1) / divisor, by 1 / divisor at most.
__device__ __forceinline__ unsigned divided(unsigned number, unsigned long long inverse) {
  return __umul64hi(2 * number + 2, inverse);
}

// in is rows x kCount, without gaps between its rows; out is kCount x rows.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock, kBlocks)
    transpose_10_b32__interleave_cols_n16_tpb128_ldel_stel(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_down, unsigned tiles_across,
        unsigned long long tiles_down_inverse) {
  __shared__ uint4 staged[kThreadsPerBlock * kCount];
  const unsigned line = divided(blockIdx.x, tiles_down_inverse);
  const long long tile_row = blockIdx.x - line * tiles_down;
  const long long tile_col = line;
  const long long first = (tile_row + tile_col) * kSpan;
  unsigned* apart = out + first;
  const unsigned* together = in + first * kCount;
  const int length = min(static_cast<long long>(kSpan), rows - first);
  const auto apart_address = reinterpret_cast<unsigned long long>(apart);
  const auto together_address = reinterpret_cast<unsigned long long>(together);
  const bool aligned = (apart_address | together_address | out_pitch * kSize) % 16 == 0;
  const int vectors = aligned ? length / kVector : 0;  // of each column; a thread has one of each
  const int thread = threadIdx.x;
  const int warp = thread / 32 * 32 * kCount + thread % 32;  // the thread's first vector
  const uint4* from = reinterpret_cast<const uint4*>(together);
  const int last = vectors * kCount - 1;  // loaded again in the place of vectors beyond it
  if (last >= 0) {
    uint4 loaded[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      loaded[j] = ld_evict_last(&from[min(warp + j * 32, last)]);
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) staged[slot(warp + j * 32)] = loaded[j];
  }
  __syncwarp();
  if (thread < vectors) {
    unsigned words[kCount * 4];
    unsigned columns[kCount][4];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const uint4 vector = staged[slot(thread * kCount + j)];
      words[4 * j] = vector.x;
      words[4 * j + 1] = vector.y;
      words[4 * j + 2] = vector.z;
      words[4 * j + 3] = vector.w;
    }
    part(words, columns);
#pragma unroll
    for (int r = 0; r < kCount; ++r) {
      uint4* to = reinterpret_cast<uint4*>(apart + r * out_pitch);
      const uint4 vector = make_uint4(columns[r][0], columns[r][1], columns[r][2], columns[r][3]);
      st_evict_last(&to[thread], vector);
    }
  }
#pragma unroll 1
  for (int k = vectors * kVector * kCount + thread; k < length * kCount; k += kThreadsPerBlock) {
    apart[k % kCount * out_pitch + k / kCount] = together[k];
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long rows, long long cols, long long in_pitch,
    long long out_pitch, cudaStream_t stream) {
  const long long tiles_down = (rows + 511) / 512;
  const long long tiles_down_inverse = 9223372036854775807 / max(tiles_down, 1LL);
  if (tiles_down > 0) {
    transpose_10_b32__interleave_cols_n16_tpb128_ldel_stel<<<tiles_down, 128, 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), rows, cols, in_pitch,
        out_pitch, tiles_down, 1, tiles_down_inverse);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__interleave_cols_n16_tpb128_ldel_stel
