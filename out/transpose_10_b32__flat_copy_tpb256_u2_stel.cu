// transpose_10_b32__flat_copy_tpb256_u2_stel
//
// Transposes a matrix of rows x cols elements of 4 bytes; pitches count elements from row to row.
// Consecutive elements of the input stay consecutive in the output. The 16-byte vectors of the
// runs along one of the other axes are numbered one after another, so that also short runs keep
// all threads busy. With up to three other axes, a block finds its position along them without a
// division.
//
// Let:      run_elements = rows * cols
// Let:      run_vectors = (run_elements + 3) / 4
// Let:      all_vectors = 1 - min(run_elements % 4, 1)
// Launch:   <<<(run_vectors + 511) / 512, 256>>>(in, out, run_vectors, all_vectors, run_elements)
// Spec:     {"axes": [1, 0], "dtype": "b32"}
// Config:   {"store_modifier": "el", "threads_per_block": 256, "unroll": 2}
// Template: transpose/flat_copy.cu.jinja, with its partials sha256 91f5adb5a59a4000
//
// Written by gen: change the template, not this file.

namespace transpose_10_b32__flat_copy_tpb256_u2_stel {

constexpr int kSize = 4;  // bytes of an element
constexpr int kUnroll = 2;  // vectors of each thread
constexpr int kThreadsPerBlock = 256;
constexpr int kVector = 16 / kSize;  // elements of a vector
static_assert(kVector * kSize == 16, "vectors hold whole elements");

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

// Copies the runs of a block element by element, where runs do not begin and end at whole vectors.
__device__ __noinline__ void copy_elements(
    const unsigned* __restrict__ in, unsigned* __restrict__ out, long long run,
    long long in_step, long long out_step, unsigned vectors, unsigned per_run) {
#pragma unroll 1
  for (int u = 0; u < kUnroll; ++u) {
    const unsigned number = (blockIdx.x * kUnroll + u) * kThreadsPerBlock + threadIdx.x;
    if (number >= vectors) return;
    const unsigned mine = number / per_run;
    const long long first = (number - mine * per_run) * static_cast<long long>(kVector);
    const long long last = min(run, first + kVector);
    for (long long e = first; e < last; ++e) out[mine * out_step + e] = in[mine * in_step + e];
  }
}

// The order of elements within a run of run_elements stays.
// The run has run_vectors vectors; all_vectors is 1 where the last one is full, else 0.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    transpose_10_b32__flat_copy_tpb256_u2_stel(
        const unsigned* __restrict__ in, unsigned* __restrict__ out,
        unsigned run_vectors, int all_vectors, long long run_elements) {
  const unsigned vectors = run_vectors;
  const auto in_address = reinterpret_cast<unsigned long long>(in);
  const auto out_address = reinterpret_cast<unsigned long long>(out);
  if (!all_vectors || (in_address | out_address) % 16 != 0) {
    copy_elements(in, out, run_elements, 0, 0, vectors, run_vectors);
    return;
  }
  const uint4* from = reinterpret_cast<const uint4*>(in);
  uint4* to = reinterpret_cast<uint4*>(out);
  const unsigned first = blockIdx.x * (kUnroll * kThreadsPerBlock) + threadIdx.x;
  uint4 loaded[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const unsigned number = first + u * kThreadsPerBlock;
    if (number < vectors) loaded[u] = __ldg(&from[number]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const unsigned number = first + u * kThreadsPerBlock;
    if (number < vectors) st_evict_last(&to[number], loaded[u]);
  }
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const void* in, void* out, long long cols, long long rows, cudaStream_t stream) {
  const long long run_elements = rows * cols;
  const long long run_vectors = (run_elements + 3) / 4;
  const long long blocks = (run_vectors + 511) / 512;
  const long long all_vectors = 1 - min(run_elements % 4, 1LL);
  if (blocks > 0) {
    transpose_10_b32__flat_copy_tpb256_u2_stel<<<blocks, 256, 0, stream>>>(
        static_cast<const unsigned*>(in), static_cast<unsigned*>(out), run_vectors, all_vectors,
        run_elements);
  }
  return cudaGetLastError();
}

#endif

}  // namespace transpose_10_b32__flat_copy_tpb256_u2_stel
