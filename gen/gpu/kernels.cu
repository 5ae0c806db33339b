// What the measuring side of gen runs on a GPU beside the kernels it measures: plain CUDA, one
// grid-stride loop each. Sizes are in 16-byte vectors unless they say otherwise.

constexpr int kThreads = 256;  // of every block
constexpr int kLoads = 8;  // vectors in flight in each thread of gen_read

__device__ __forceinline__ long long first_index() {
  return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ long long index_stride() {
  return static_cast<long long>(gridDim.x) * blockDim.x;
}

// Does nothing: the floor under every launch.
extern "C" __global__ void gen_empty() {}

// Holds back what is queued behind it until the host writes to open, or for so many clock cycles.
extern "C" __global__ void gen_gate(const volatile int* open, long long most_cycles) {
#ifdef __CUDA_ARCH__
  const long long start = clock64();
  while (*open == 0 && clock64() - start < most_cycles) {
  }
#endif
}

// Writes one word everywhere: poison for outputs, dirty lines for a flush.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_fill(uint4* __restrict__ to, unsigned word, long long vectors) {
  const uint4 value = make_uint4(word, word, word, word);
  for (long long i = first_index(); i < vectors; i += index_stride()) to[i] = value;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    gen_copy(const uint4* __restrict__ from, uint4* __restrict__ to, long long vectors) {
  for (long long i = first_index(); i < vectors; i += index_stride()) to[i] = from[i];
}

// Reads everything and folds it with xor; sink keeps the loads alive and is written only where the
// fold of a thread is the one word that random data does not give.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_read(const uint4* __restrict__ from, unsigned* sink, long long vectors) {
  unsigned fold = 0;
  long long i = first_index();
  const long long stride = index_stride();
  for (; i + (kLoads - 1) * stride < vectors; i += kLoads * stride) {
    uint4 loaded[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) loaded[k] = from[i + k * stride];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) fold ^= loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
  }
  for (; i < vectors; i += stride) fold ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (fold == 0xdeadbeefu) atomicXor(sink, fold);
}

// Random words from a counter (the finalizer of MurmurHash3). As floats they are whole numbers from
// 1 to 8, either sign: never zeros, never NaN, and sums of them are exact.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_random(unsigned* __restrict__ to, unsigned seed, int as_floats, long long words) {
  for (long long i = first_index(); i < words; i += index_stride()) {
    unsigned h = static_cast<unsigned>(i) ^ (static_cast<unsigned>(i >> 32) * 0x9e3779b9u) ^ seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    const float number = 1 + (h >> 8) % 8;
    to[i] = as_floats ? __float_as_uint(h & 1 ? number : -number) : h;
  }
}

// An order-independent digest of words: the sum of each word mixed with its place.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_checksum(const unsigned* __restrict__ from, unsigned long long* sum, long long words) {
  unsigned long long own = 0;
  for (long long i = first_index(); i < words; i += index_stride()) {
    own += (from[i] + 0x9e3779b97f4a7c15ull) * (2 * static_cast<unsigned long long>(i) + 1);
  }
  atomicAdd(sum, own);
}

// Counts the words in which two arrays differ, and finds the first that does; first starts as all
// ones.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_compare_words(
        const unsigned* __restrict__ got, const unsigned* __restrict__ expected,
        unsigned long long* wrong, unsigned long long* first, long long words) {
  for (long long i = first_index(); i < words; i += index_stride()) {
    if (got[i] != expected[i]) {
      atomicAdd(wrong, 1ull);
      atomicMin(first, static_cast<unsigned long long>(i));
    }
  }
}

// Counts the elements further from the expected value than relative times their magnitude plus
// absolute. NaN must meet NaN, and an infinity itself.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_compare_bound(
        const float* __restrict__ got, const double* __restrict__ expected,
        const double* __restrict__ magnitude, double relative, double absolute,
        unsigned long long* wrong, unsigned long long* first, long long elements) {
  for (long long i = first_index(); i < elements; i += index_stride()) {
    const double value = got[i];
    const bool both_nan = value != value && expected[i] != expected[i];
    const bool finite = expected[i] - expected[i] == 0.0;
    const double distance = value > expected[i] ? value - expected[i] : expected[i] - value;
    const double bound = relative * magnitude[i] + absolute;
    if (!(value == expected[i] || both_nan || (finite && distance <= bound))) {
      atomicAdd(wrong, 1ull);
      atomicMin(first, static_cast<unsigned long long>(i));
    }
  }
}
