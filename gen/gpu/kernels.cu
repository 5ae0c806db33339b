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
  const long long start = clock64();
  while (*open == 0 && clock64() - start < most_cycles) {
  }
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

// Loads a vector, and asks the second-level cache to evict it last.
__device__ __forceinline__ uint4 claimed(const uint4* from) {
#if __CUDA_ARCH__ >= 800
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  uint4 loaded;
  asm volatile("ld.global.L2::cache_hint.v4.u32 { %0, %1, %2, %3 }, [%4], %5;"
               : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
               : "l"(from), "l"(policy));
  return loaded;
#else
  return *from;
#endif
}

// Reads everything as gen_read does, and takes as much of the second-level cache as it can, also
// from what was read so before: normal reads and writes leave that where it is.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_claim(const uint4* from, unsigned* sink, long long vectors) {
  unsigned fold = 0;
  for (long long i = first_index(); i < vectors; i += index_stride()) {
    const uint4 loaded = claimed(from + i);
    fold ^= loaded.x ^ loaded.y ^ loaded.z ^ loaded.w;
  }
  if (fold == 0xdeadbeefu) atomicXor(sink, fold);
}

// Lets the second-level cache evict like all else what was claimed, from the start of a line on.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_release(const uint4* from, long long vectors) {
  constexpr int kLine = 128 / sizeof(uint4);  // vectors
  for (long long i = kLine * first_index(); i < vectors; i += kLine * index_stride()) {
#if __CUDA_ARCH__ >= 800
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" : : "l"(from + i) : "memory");
#endif
  }
}

// How an element is read, else as bits; gen/gpu/service.py has the same numbers.
constexpr int kFloat = 1;
constexpr int kDouble = 2;
constexpr int kHalf = 3;
constexpr int kBfloat = 4;
constexpr int kBool = 5;

// The bits of a whole number from 1 to 8, either sign, as a floating-point number of 16 or 32 bits,
// or as the upper half of a double: the exponent's bias and the bits of the significand differ.
__device__ __forceinline__ unsigned whole_number(unsigned random, int kind) {
  const float magnitude = 1 + (random >> 1) % 8;
  const unsigned bits = __float_as_uint(magnitude);
  const unsigned negative = random & 1;
  if (kind == kFloat) return bits | negative << 31;
  if (kind == kBfloat) return bits >> 16 | negative << 15;
  if (kind == kHalf) return (bits - ((127u - 15u) << 23)) >> 13 | negative << 15;
  return (bits >> 3) + ((1023u - 127u) << 20) | negative << 31;
}

// Random words from a counter (the finalizer of MurmurHash3). As floating-point numbers of any size
// they are whole numbers from 1 to 8, either sign: never zeros, never NaN, and sums of them are
// exact; as truth values, bytes of 0 and 1.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_random(unsigned* __restrict__ to, unsigned seed, int kind, long long words) {
  for (long long i = first_index(); i < words; i += index_stride()) {
    unsigned h = static_cast<unsigned>(i) ^ (static_cast<unsigned>(i >> 32) * 0x9e3779b9u) ^ seed;
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    unsigned word = h;
    if (kind == kFloat) word = whole_number(h >> 7, kind);
    if (kind == kDouble) word = i % 2 ? whole_number(h >> 7, kind) : 0;
    if (kind == kHalf || kind == kBfloat) {
      word = whole_number(h >> 7, kind) | whole_number(h >> 19, kind) << 16;
    }
    if (kind == kBool) word = h & 0x01010101u;
    to[i] = word;
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

// Counts the elements of rows pitch bytes apart in which two arrays differ, and finds the first.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_compare_elements(
        const unsigned char* __restrict__ got, const unsigned char* __restrict__ expected, int size,
        long long row_elements, long long pitch, unsigned long long* wrong,
        unsigned long long* first, long long elements) {
  for (long long i = first_index(); i < elements; i += index_stride()) {
    const long long row = i / row_elements;
    const long long place = row * pitch + (i - row * row_elements) * size;
    bool differs = false;
    for (int k = 0; k < size; ++k) differs |= got[place + k] != expected[place + k];
    if (differs) {
      atomicAdd(wrong, 1ull);
      atomicMin(first, static_cast<unsigned long long>(i));
    }
  }
}

// Counts the bytes between rows that no longer hold the poison, the word that was written
// everywhere before; gap_bytes is what all gaps take together.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_compare_gaps(
        const unsigned char* __restrict__ got, unsigned poison, long long row_bytes,
        long long pitch, unsigned long long* wrong, unsigned long long* first,
        long long gap_bytes) {
  const long long gap = pitch - row_bytes;
  for (long long i = first_index(); i < gap_bytes; i += index_stride()) {
    const long long row = i / gap;
    const long long place = row * pitch + row_bytes + (i - row * gap);
    if (got[place] != (poison >> 8 * (place % 4) & 0xffu)) {
      atomicAdd(wrong, 1ull);
      atomicMin(first, static_cast<unsigned long long>(place));
    }
  }
}

// The number that 16 bits are as IEEE 754 binary16. The exponent's bias differs from a float's by
// 112, which a multiplication makes up for, subnormal numbers included.
__device__ __forceinline__ float half_value(unsigned bits) {
  const unsigned magnitude = (bits & 0x7fffu) << 13;
  const bool finite = (bits & 0x7c00u) != 0x7c00u;
  const float scale = __uint_as_float((127u + 112u) << 23);
  const float value = finite ? __uint_as_float(magnitude) * scale
                             : __uint_as_float(magnitude | 0x7f800000u);
  return bits & 0x8000u ? -value : value;
}

__device__ __forceinline__ double value_at(const unsigned char* place, int kind) {
  if (kind == kDouble) return *reinterpret_cast<const double*>(place);
  if (kind == kFloat) return *reinterpret_cast<const float*>(place);
  const unsigned bits = *reinterpret_cast<const unsigned short*>(place);
  return kind == kHalf ? half_value(bits) : __uint_as_float(bits << 16);
}

// Counts the elements further from the expected value than relative times their magnitude, plus
// unit times the value, plus absolute; where the magnitude is beyond largest, anything is right.
// NaN must meet NaN, and an infinity itself.
extern "C" __global__ void __launch_bounds__(kThreads)
    gen_compare_bound(
        const unsigned char* __restrict__ got, int kind, int size, long long row_elements,
        long long pitch, const double* __restrict__ expected, const double* __restrict__ magnitude,
        double relative, double unit, double absolute, double largest, unsigned long long* wrong,
        unsigned long long* first, long long elements) {
  for (long long i = first_index(); i < elements; i += index_stride()) {
    const long long row = i / row_elements;
    const double value = value_at(got + row * pitch + (i - row * row_elements) * size, kind);
    const double right = expected[i];
    const bool both_nan = value != value && right != right;
    const bool finite = right - right == 0.0;
    const double distance = value > right ? value - right : right - value;
    const double bound = relative * magnitude[i] + unit * (right < 0 ? -right : right) + absolute;
    if (!(value == right || both_nan || magnitude[i] > largest || (finite && distance <= bound))) {
      atomicAdd(wrong, 1ull);
      atomicMin(first, static_cast<unsigned long long>(i));
    }
  }
}
