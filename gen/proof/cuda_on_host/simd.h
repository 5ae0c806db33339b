// SIMD within a word: 4 bytes or 2 half-words at once, and minima and maxima of sums and of three.
#pragma once

namespace cuda_on_host {

// A value within the range of its lane.
CUDA_ON_HOST_PURE int clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

}  // namespace cuda_on_host

// `a` and `b` are a lane of each word; a result is cut to the lane's bits.
#define CUDA_ON_HOST_LANES(name, T, bit_count, expression)                       \
  CUDA_ON_HOST_PURE unsigned name(unsigned x, unsigned y) {                      \
    constexpr unsigned mask = (1u << bit_count) - 1;                             \
    unsigned result = 0;                                                         \
    for (int i = 0; i < 32; i += bit_count) {                                    \
      [[maybe_unused]] const int a = (T)(x >> i & mask), b = (T)(y >> i & mask); \
      result |= (unsigned(expression) & mask) << i;                              \
    }                                                                            \
    return result;                                                               \
  }
#define CUDA_ON_HOST_LANES_1(name, T, bit_count, expression)  \
  CUDA_ON_HOST_LANES(name##_of_two, T, bit_count, expression) \
  CUDA_ON_HOST_PURE unsigned name(unsigned x) { return name##_of_two(x, 0); }
#define CUDA_ON_HOST_COMPARE(name, T, lanes, bit_count, operation)                                \
  CUDA_ON_HOST_LANES(__vcmp##name##lanes, T, bit_count, a operation b ? (1 << bit_count) - 1 : 0) \
  CUDA_ON_HOST_LANES(__vset##name##lanes, T, bit_count, a operation b ? 1 : 0)
#define CUDA_ON_HOST_SUM(name, T, lanes, bit_count)                \
  CUDA_ON_HOST_PURE unsigned name##lanes(unsigned x, unsigned y) { \
    unsigned sum = 0;                                              \
    for (int i = 0; i < 32; i += bit_count) {                      \
      const int a = (T)(x >> i), b = (T)(y >> i);                  \
      sum += a < b ? b - a : a - b;                                \
    }                                                              \
    return sum;                                                    \
  }
// S and U: a lane, signed and unsigned; LOW to HIGH and 0 to MOST: what they hold.
#define CUDA_ON_HOST_SIMD(S, U, lanes, bit_count, LOW, HIGH, MOST)                                          \
  CUDA_ON_HOST_LANES(__vminu##lanes, U, bit_count, a < b ? a : b)                                           \
  CUDA_ON_HOST_LANES(__vmaxu##lanes, U, bit_count, a < b ? b : a)                                           \
  CUDA_ON_HOST_LANES(__vmins##lanes, S, bit_count, a < b ? a : b)                                           \
  CUDA_ON_HOST_LANES(__vmaxs##lanes, S, bit_count, a < b ? b : a)                                           \
  CUDA_ON_HOST_LANES(__vadd##lanes, U, bit_count, a + b)                                                    \
  CUDA_ON_HOST_LANES(__vaddss##lanes, S, bit_count, cuda_on_host::clamp(a + b, LOW, HIGH))                  \
  CUDA_ON_HOST_LANES(__vaddus##lanes, U, bit_count, cuda_on_host::clamp(a + b, 0, MOST))                    \
  CUDA_ON_HOST_LANES(__vsub##lanes, U, bit_count, a - b)                                                    \
  CUDA_ON_HOST_LANES(__vsubss##lanes, S, bit_count, cuda_on_host::clamp(a - b, LOW, HIGH))                  \
  CUDA_ON_HOST_LANES(__vsubus##lanes, U, bit_count, cuda_on_host::clamp(a - b, 0, MOST))                    \
  CUDA_ON_HOST_LANES(__vabsdiffs##lanes, S, bit_count, a < b ? b - a : a - b)                               \
  CUDA_ON_HOST_LANES(__vabsdiffu##lanes, U, bit_count, a < b ? b - a : a - b)                               \
  CUDA_ON_HOST_LANES(__vavgs##lanes, S, bit_count, (a + b + (a + b >= 0)) >> 1) /* halves away from zero */ \
  CUDA_ON_HOST_LANES(__vavgu##lanes, U, bit_count, (a + b + 1) >> 1)                                        \
  CUDA_ON_HOST_LANES(__vhaddu##lanes, U, bit_count, (a + b) >> 1)                                           \
  CUDA_ON_HOST_LANES_1(__vabs##lanes, S, bit_count, a < 0 ? -a : a)                                         \
  CUDA_ON_HOST_LANES_1(__vabsss##lanes, S, bit_count, cuda_on_host::clamp(a < 0 ? -a : a, LOW, HIGH))       \
  CUDA_ON_HOST_LANES_1(__vneg##lanes, S, bit_count, -a)                                                     \
  CUDA_ON_HOST_LANES_1(__vnegss##lanes, S, bit_count, cuda_on_host::clamp(-a, LOW, HIGH))                   \
  CUDA_ON_HOST_SUM(__vsads, S, lanes, bit_count)                                                            \
  CUDA_ON_HOST_SUM(__vsadu, U, lanes, bit_count)                                                            \
  CUDA_ON_HOST_COMPARE(eq, U, lanes, bit_count, ==)                                                         \
  CUDA_ON_HOST_COMPARE(ne, U, lanes, bit_count, !=)                                                         \
  CUDA_ON_HOST_COMPARE(ges, S, lanes, bit_count, >=)                                                        \
  CUDA_ON_HOST_COMPARE(geu, U, lanes, bit_count, >=)                                                        \
  CUDA_ON_HOST_COMPARE(gts, S, lanes, bit_count, >)                                                         \
  CUDA_ON_HOST_COMPARE(gtu, U, lanes, bit_count, >)                                                         \
  CUDA_ON_HOST_COMPARE(les, S, lanes, bit_count, <=)                                                        \
  CUDA_ON_HOST_COMPARE(leu, U, lanes, bit_count, <=)                                                        \
  CUDA_ON_HOST_COMPARE(lts, S, lanes, bit_count, <)                                                         \
  CUDA_ON_HOST_COMPARE(ltu, U, lanes, bit_count, <)
CUDA_ON_HOST_SIMD(signed char, unsigned char, 4, 8, -128, 127, 255)
CUDA_ON_HOST_SIMD(short, unsigned short, 2, 16, -32768, 32767, 65535)

// Words: the larger or smaller of a sum and a number, or of three numbers.
#define CUDA_ON_HOST_PICK(pick, T, letter)                                                                          \
  CUDA_ON_HOST_PURE T __viadd##pick##_##letter##32(T a, T b, T c) { return pick(T(unsigned(a) + unsigned(b)), c); } \
  CUDA_ON_HOST_PURE T __vi##pick##3_##letter##32(T a, T b, T c) { return pick(pick(a, b), c); }
#define CUDA_ON_HOST_PICK_RELU(pick)                                                                                   \
  CUDA_ON_HOST_PURE int __viadd##pick##_s32_relu(int a, int b, int c) { return max(__viadd##pick##_s32(a, b, c), 0); } \
  CUDA_ON_HOST_PURE int __vi##pick##3_s32_relu(int a, int b, int c) { return max(__vi##pick##3_s32(a, b, c), 0); }     \
  CUDA_ON_HOST_PURE int __vi##pick##_s32_relu(int a, int b) { return max(pick(a, b), 0); }
#define CUDA_ON_HOST_PICK_2(pick, letter)                                                         \
  CUDA_ON_HOST_PURE unsigned __viadd##pick##_##letter##16x2(unsigned a, unsigned b, unsigned c) { \
    return __v##pick##letter##2(__vadd2(a, b), c);                                                \
  }                                                                                               \
  CUDA_ON_HOST_PURE unsigned __vi##pick##3_##letter##16x2(unsigned a, unsigned b, unsigned c) {   \
    return __v##pick##letter##2(__v##pick##letter##2(a, b), c);                                   \
  }
#define CUDA_ON_HOST_PICK_2_RELU(pick)                                                        \
  CUDA_ON_HOST_PURE unsigned __viadd##pick##_s16x2_relu(unsigned a, unsigned b, unsigned c) { \
    return __vmaxs2(__viadd##pick##_s16x2(a, b, c), 0);                                       \
  }                                                                                           \
  CUDA_ON_HOST_PURE unsigned __vi##pick##3_s16x2_relu(unsigned a, unsigned b, unsigned c) {   \
    return __vmaxs2(__vi##pick##3_s16x2(a, b, c), 0);                                         \
  }                                                                                           \
  CUDA_ON_HOST_PURE unsigned __vi##pick##_s16x2_relu(unsigned a, unsigned b) {                \
    return __vmaxs2(__v##pick##s2(a, b), 0);                                                  \
  }
#define CUDA_ON_HOST_PICKS(pick)       \
  CUDA_ON_HOST_PICK(pick, int, s)      \
  CUDA_ON_HOST_PICK(pick, unsigned, u) \
  CUDA_ON_HOST_PICK_RELU(pick)         \
  CUDA_ON_HOST_PICK_2(pick, s)         \
  CUDA_ON_HOST_PICK_2(pick, u)         \
  CUDA_ON_HOST_PICK_2_RELU(pick)
CUDA_ON_HOST_PICKS(min)
CUDA_ON_HOST_PICKS(max)
#undef CUDA_ON_HOST_LANES
#undef CUDA_ON_HOST_LANES_1
#undef CUDA_ON_HOST_COMPARE
#undef CUDA_ON_HOST_SUM
#undef CUDA_ON_HOST_SIMD
#undef CUDA_ON_HOST_PICK
#undef CUDA_ON_HOST_PICK_RELU
#undef CUDA_ON_HOST_PICK_2
#undef CUDA_ON_HOST_PICK_2_RELU
#undef CUDA_ON_HOST_PICKS
