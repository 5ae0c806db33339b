// Arithmetic that CUDA has and C++ lacks: bits of a word, conversions, minimum and maximum.
#pragma once

#define CUDA_ON_HOST_PURE inline __attribute__((always_inline, no_sanitize("undefined")))

namespace cuda_on_host {

template <class T>
struct Unsigned {
  using type = T;  // floating-point types and unsigned ones add as they are
};
template <>
struct Unsigned<int> {
  using type = unsigned;
};
template <>
struct Unsigned<long long> {
  using type = unsigned long long;
};

template <class T>
CUDA_ON_HOST_PURE T wrapping_add(T a, T b) {
  return T(typename Unsigned<T>::type(a) + typename Unsigned<T>::type(b));
}
template <class T>
CUDA_ON_HOST_PURE T wrapping_subtract(T a, T b) {
  return T(typename Unsigned<T>::type(a) - typename Unsigned<T>::type(b));
}

template <class To, class From>
CUDA_ON_HOST_PURE To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

}  // namespace cuda_on_host

// Minimum and maximum as CUDA's math_functions.hpp overloads them: mixed signs meet in the unsigned type.
#define CUDA_ON_HOST_MIN_MAX(A, B, R)                                     \
  CUDA_ON_HOST_PURE R min(A a, B b) { return (R)a < (R)b ? (R)a : (R)b; } \
  CUDA_ON_HOST_PURE R max(A a, B b) { return (R)a < (R)b ? (R)b : (R)a; }
CUDA_ON_HOST_MIN_MAX(int, int, int)
CUDA_ON_HOST_MIN_MAX(unsigned, unsigned, unsigned)
CUDA_ON_HOST_MIN_MAX(int, unsigned, unsigned)
CUDA_ON_HOST_MIN_MAX(unsigned, int, unsigned)
CUDA_ON_HOST_MIN_MAX(long, long, long)
CUDA_ON_HOST_MIN_MAX(unsigned long, unsigned long, unsigned long)
CUDA_ON_HOST_MIN_MAX(long, unsigned long, unsigned long)
CUDA_ON_HOST_MIN_MAX(unsigned long, long, unsigned long)
CUDA_ON_HOST_MIN_MAX(long long, long long, long long)
CUDA_ON_HOST_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
CUDA_ON_HOST_MIN_MAX(long long, unsigned long long, unsigned long long)
CUDA_ON_HOST_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef CUDA_ON_HOST_MIN_MAX
CUDA_ON_HOST_PURE float min(float a, float b) { return __builtin_fminf(a, b); }
CUDA_ON_HOST_PURE float max(float a, float b) { return __builtin_fmaxf(a, b); }
CUDA_ON_HOST_PURE double min(double a, double b) { return __builtin_fmin(a, b); }
CUDA_ON_HOST_PURE double max(double a, double b) { return __builtin_fmax(a, b); }
CUDA_ON_HOST_PURE double min(float a, double b) { return __builtin_fmin(a, b); }
CUDA_ON_HOST_PURE double min(double a, float b) { return __builtin_fmin(a, b); }
CUDA_ON_HOST_PURE double max(float a, double b) { return __builtin_fmax(a, b); }
CUDA_ON_HOST_PURE double max(double a, float b) { return __builtin_fmax(a, b); }
CUDA_ON_HOST_PURE unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }
CUDA_ON_HOST_PURE unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }

// The overloads for float that C's <math.h> lacks.
#define CUDA_ON_HOST_FLOAT(name) \
  CUDA_ON_HOST_PURE float name(float x) { return __builtin_##name##f(x); }
CUDA_ON_HOST_FLOAT(fabs)
CUDA_ON_HOST_FLOAT(sqrt)
CUDA_ON_HOST_FLOAT(exp)
CUDA_ON_HOST_FLOAT(log)
CUDA_ON_HOST_FLOAT(sin)
CUDA_ON_HOST_FLOAT(cos)
CUDA_ON_HOST_FLOAT(floor)
CUDA_ON_HOST_FLOAT(ceil)
CUDA_ON_HOST_FLOAT(trunc)
CUDA_ON_HOST_FLOAT(rint)
#undef CUDA_ON_HOST_FLOAT
CUDA_ON_HOST_PURE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CUDA_ON_HOST_PURE float pow(float a, float b) { return __builtin_powf(a, b); }
CUDA_ON_HOST_PURE float abs(float x) { return __builtin_fabsf(x); }
CUDA_ON_HOST_PURE double abs(double x) { return __builtin_fabs(x); }
inline __attribute__((always_inline)) int abs(int x) { return x < 0 ? -x : x; }
inline __attribute__((always_inline)) long long abs(long long x) { return x < 0 ? -x : x; }
#undef isnan
#undef isinf
#undef isfinite
#undef signbit
#define CUDA_ON_HOST_CLASSIFY(name)                                    \
  CUDA_ON_HOST_PURE bool name(float x) { return __builtin_##name(x); } \
  CUDA_ON_HOST_PURE bool name(double x) { return __builtin_##name(x); }
CUDA_ON_HOST_CLASSIFY(isnan)
CUDA_ON_HOST_CLASSIFY(isinf)
CUDA_ON_HOST_CLASSIFY(isfinite)
CUDA_ON_HOST_CLASSIFY(signbit)
#undef CUDA_ON_HOST_CLASSIFY

CUDA_ON_HOST_PURE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
CUDA_ON_HOST_PURE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
CUDA_ON_HOST_PURE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
CUDA_ON_HOST_PURE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
CUDA_ON_HOST_PURE float __fadd_rn(float a, float b) { return a + b; }
CUDA_ON_HOST_PURE float __fsub_rn(float a, float b) { return a - b; }
CUDA_ON_HOST_PURE float __fmul_rn(float a, float b) { return a * b; }
CUDA_ON_HOST_PURE float __fdiv_rn(float a, float b) { return a / b; }
CUDA_ON_HOST_PURE float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
CUDA_ON_HOST_PURE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
CUDA_ON_HOST_PURE double __dadd_rn(double a, double b) { return a + b; }
CUDA_ON_HOST_PURE double __dsub_rn(double a, double b) { return a - b; }
CUDA_ON_HOST_PURE double __dmul_rn(double a, double b) { return a * b; }
CUDA_ON_HOST_PURE double __ddiv_rn(double a, double b) { return a / b; }

// Bits of a floating-point number.
CUDA_ON_HOST_PURE int __float_as_int(float x) { return cuda_on_host::bits<int>(x); }
CUDA_ON_HOST_PURE unsigned __float_as_uint(float x) { return cuda_on_host::bits<unsigned>(x); }
CUDA_ON_HOST_PURE float __int_as_float(int x) { return cuda_on_host::bits<float>(x); }
CUDA_ON_HOST_PURE float __uint_as_float(unsigned x) { return cuda_on_host::bits<float>(x); }
CUDA_ON_HOST_PURE long long __double_as_longlong(double x) { return cuda_on_host::bits<long long>(x); }
CUDA_ON_HOST_PURE double __longlong_as_double(long long x) { return cuda_on_host::bits<double>(x); }
CUDA_ON_HOST_PURE int __double2hiint(double x) { return int(cuda_on_host::bits<unsigned long long>(x) >> 32); }
CUDA_ON_HOST_PURE int __double2loint(double x) { return int(unsigned(cuda_on_host::bits<unsigned long long>(x))); }
CUDA_ON_HOST_PURE double __hiloint2double(int high, int low) {
  return cuda_on_host::bits<double>((unsigned long long)unsigned(high) << 32 | unsigned(low));
}
// To an integer: what does not fit becomes the nearest that does. What is no number becomes 0 from a float to 32 bits,
// and the highest bit alone from a double or to 64 bits: so says the PTX ISA, 9.0, of `cvt`.
#define CUDA_ON_HOST_ROUNDS(from, to, T, F, suffix, LOW, LAST, PAST)                                         \
  CUDA_ON_HOST_PURE T __##from##2##to##_rz(F x) {                                                            \
    if (x != x) return (T)(sizeof(F) == 4 && sizeof(T) == 4 ? 0 : 1ULL << (8 * sizeof(T) - 1));              \
    return x >= PAST ? (T)(LAST) : x > F(LOW) ? (T)x : (T)(LOW);                                             \
  }                                                                                                          \
  CUDA_ON_HOST_PURE T __##from##2##to##_rn(F x) { return __##from##2##to##_rz(__builtin_rint##suffix(x)); }  \
  CUDA_ON_HOST_PURE T __##from##2##to##_rd(F x) { return __##from##2##to##_rz(__builtin_floor##suffix(x)); } \
  CUDA_ON_HOST_PURE T __##from##2##to##_ru(F x) { return __##from##2##to##_rz(__builtin_ceil##suffix(x)); }
#define CUDA_ON_HOST_ROUNDS_OF(from, F, suffix)                                                                \
  CUDA_ON_HOST_ROUNDS(from, int, int, F, suffix, -0x80000000LL, 0x7fffffff, 0x1p31)                            \
  CUDA_ON_HOST_ROUNDS(from, uint, unsigned, F, suffix, 0, 0xffffffffu, 0x1p32)                                 \
  CUDA_ON_HOST_ROUNDS(from, ll, long long, F, suffix, -0x7fffffffffffffffLL - 1, 0x7fffffffffffffffLL, 0x1p63) \
  CUDA_ON_HOST_ROUNDS(from, ull, unsigned long long, F, suffix, 0, 0xffffffffffffffffull, 0x1p64)
CUDA_ON_HOST_ROUNDS_OF(float, float, f)
CUDA_ON_HOST_ROUNDS_OF(double, double, )
#undef CUDA_ON_HOST_ROUNDS
#undef CUDA_ON_HOST_ROUNDS_OF
CUDA_ON_HOST_PURE float __ll2float_rn(long long x) { return float(x); }
CUDA_ON_HOST_PURE float __ull2float_rn(unsigned long long x) { return float(x); }
CUDA_ON_HOST_PURE double __int2double_rn(int x) { return double(x); }
CUDA_ON_HOST_PURE double __ll2double_rn(long long x) { return double(x); }
CUDA_ON_HOST_PURE float __int2float_rn(int x) { return float(x); }
CUDA_ON_HOST_PURE float __uint2float_rn(unsigned x) { return float(x); }
CUDA_ON_HOST_PURE float __double2float_rn(double x) { return float(x); }

// Bits of a word.
CUDA_ON_HOST_PURE int __popc(unsigned x) { return __builtin_popcount(x); }
CUDA_ON_HOST_PURE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
CUDA_ON_HOST_PURE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
CUDA_ON_HOST_PURE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
CUDA_ON_HOST_PURE int __ffs(int x) { return __builtin_ffs(x); }
CUDA_ON_HOST_PURE int __ffsll(long long x) { return __builtin_ffsll(x); }
CUDA_ON_HOST_PURE unsigned __brev(unsigned x) {
  x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
  x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
  x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(x);
}
CUDA_ON_HOST_PURE unsigned long long __brevll(unsigned long long x) {
  return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
CUDA_ON_HOST_PURE unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)b << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned choice = selector >> (4 * i) & 15;
    unsigned byte = unsigned(bytes >> (8 * (choice & 7))) & 255;
    if (choice & 8) byte = byte & 128 ? 255 : 0;  // the sign, spread over the byte
    result |= byte << (8 * i);
  }
  return result;
}
CUDA_ON_HOST_PURE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31));
}
CUDA_ON_HOST_PURE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) << (shift & 31) >> 32);
}
CUDA_ON_HOST_PURE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> (shift < 32 ? shift : 32));
}
CUDA_ON_HOST_PURE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
  return shift < 32 ? unsigned(((unsigned long long)high << 32 | low) << shift >> 32) : low;
}
CUDA_ON_HOST_PURE unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
CUDA_ON_HOST_PURE int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
CUDA_ON_HOST_PURE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
CUDA_ON_HOST_PURE unsigned __sad(int a, int b, unsigned c) { return (a < b ? unsigned(b) - a : unsigned(a) - b) + c; }
CUDA_ON_HOST_PURE unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }

// Four bytes times four bytes, summed.
CUDA_ON_HOST_PURE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
  return c;
}
CUDA_ON_HOST_PURE int __dp4a(int a, int b, int c) {
  unsigned sum = unsigned(c);
  for (int i = 0; i < 32; i += 8) sum += unsigned(int((signed char)(a >> i)) * int((signed char)(b >> i)));
  return int(sum);
}

// Two half-words times two bytes, the lower or the upper two, summed.
#define CUDA_ON_HOST_DP2A(name, first)                                                  \
  CUDA_ON_HOST_PURE unsigned name(unsigned a, unsigned b, unsigned c) {                 \
    return c + (a & 65535) * (b >> first & 255) + (a >> 16) * (b >> (first + 8) & 255); \
  }                                                                                     \
  CUDA_ON_HOST_PURE int name(int a, int b, int c) {                                     \
    return int(unsigned(c) + unsigned((short)a * (signed char)(b >> first)) +           \
               unsigned((short)(a >> 16) * (signed char)(b >> (first + 8))));           \
  }
CUDA_ON_HOST_DP2A(__dp2a_lo, 0)
CUDA_ON_HOST_DP2A(__dp2a_hi, 16)
#undef CUDA_ON_HOST_DP2A

// Averages, and products of 24 bits or of which the upper half is wanted.
CUDA_ON_HOST_PURE int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
CUDA_ON_HOST_PURE int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
CUDA_ON_HOST_PURE unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
CUDA_ON_HOST_PURE unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b + 1) >> 1); }
CUDA_ON_HOST_PURE int __mul24(int a, int b) {
  return int(unsigned((int(unsigned(a) << 8) >> 8) * (long long)(int(unsigned(b) << 8) >> 8)));
}
CUDA_ON_HOST_PURE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
CUDA_ON_HOST_PURE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }

// Fast versions, which a GPU rounds less well: here they are as good as any.
CUDA_ON_HOST_PURE float __expf(float x) { return __builtin_expf(x); }
CUDA_ON_HOST_PURE float __exp10f(float x) { return __builtin_powf(10.0f, x); }
CUDA_ON_HOST_PURE float __logf(float x) { return __builtin_logf(x); }
CUDA_ON_HOST_PURE float __log2f(float x) { return __builtin_log2f(x); }
CUDA_ON_HOST_PURE float __log10f(float x) { return __builtin_log10f(x); }
CUDA_ON_HOST_PURE float __sinf(float x) { return __builtin_sinf(x); }
CUDA_ON_HOST_PURE float __cosf(float x) { return __builtin_cosf(x); }
CUDA_ON_HOST_PURE float __tanf(float x) { return __builtin_tanf(x); }
CUDA_ON_HOST_PURE float __powf(float a, float b) { return __builtin_powf(a, b); }
CUDA_ON_HOST_PURE float __fdividef(float a, float b) { return a / b; }
CUDA_ON_HOST_PURE float __frcp_rn(float x) { return 1.0f / x; }
CUDA_ON_HOST_PURE float __frsqrt_rn(float x) { return float(1.0 / __builtin_sqrt((double)x)); }
