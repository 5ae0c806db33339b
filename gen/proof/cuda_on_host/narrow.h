// What CUDA's headers for half and bfloat16 offer on a GPU only, written once for both types.
//
// Each result is computed in double and rounded once. A GPU's own functions may differ in the last bit where CUDA
// promises no more; fused multiply-add, square root and rounding to an integer are exact on both.
#pragma once

#define CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, name, expression) \
  CUDA_ON_HOST_PURE T h##name(T value) {                                      \
    const double x = to_float(value);                                         \
    return from_double(expression);                                           \
  }                                                                           \
  CUDA_ON_HOST_PURE T2 h2##name(T2 value) { return T2(h##name(value.x), h##name(value.y)); }

#define CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, name, R)                                \
  CUDA_ON_HOST_PURE R __##type_name##2##name##_rn(T x) { return (R)__builtin_rintf(to_float(x)); }  \
  CUDA_ON_HOST_PURE R __##type_name##2##name##_rd(T x) { return (R)__builtin_floorf(to_float(x)); } \
  CUDA_ON_HOST_PURE R __##type_name##2##name##_ru(T x) { return (R)__builtin_ceilf(to_float(x)); }

#define CUDA_ON_HOST_NARROW(T, T2, to_float, from_double, type_name)                                          \
  CUDA_ON_HOST_PURE T __hfma(T a, T b, T c) {                                                                 \
    return from_double(__builtin_fma(to_float(a), to_float(b), to_float(c)));                                 \
  }                                                                                                           \
  CUDA_ON_HOST_PURE T __hfma_sat(T a, T b, T c) {                                                             \
    const double x = __builtin_fma(to_float(a), to_float(b), to_float(c));                                    \
    return from_double(x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0);                                                  \
  }                                                                                                           \
  CUDA_ON_HOST_PURE T __hfma_relu(T a, T b, T c) {                                                            \
    const double x = __builtin_fma(to_float(a), to_float(b), to_float(c));                                    \
    return from_double(x < 0.0 ? 0.0 : x);                                                                    \
  }                                                                                                           \
  CUDA_ON_HOST_PURE T2 __hfma2(T2 a, T2 b, T2 c) { return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
  CUDA_ON_HOST_PURE T2 __hcmadd(T2 a, T2 b, T2 c) { /* complex numbers */                                     \
    return T2(__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y)));             \
  }                                                                                                           \
  CUDA_ON_HOST_PURE T2 __hfma2_sat(T2 a, T2 b, T2 c) {                                                        \
    return T2(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y));                                          \
  }                                                                                                           \
  CUDA_ON_HOST_PURE T2 __hfma2_relu(T2 a, T2 b, T2 c) {                                                       \
    return T2(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y));                                        \
  }                                                                                                           \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, exp, __builtin_exp(x))                                  \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, exp2, __builtin_exp2(x))                                \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, exp10, __builtin_pow(10.0, x))                          \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, log, __builtin_log(x))                                  \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, log2, __builtin_log2(x))                                \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, log10, __builtin_log10(x))                              \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, sin, __builtin_sin(x))                                  \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, cos, __builtin_cos(x))                                  \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, tanh, __builtin_tanh(x))                                \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, tanh_approx, __builtin_tanh(x))                         \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, sqrt, __builtin_sqrt(x))                                \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, rsqrt, 1.0 / __builtin_sqrt(x))                         \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, rcp, 1.0 / x)                                           \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, ceil, __builtin_ceil(x))                                \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, floor, __builtin_floor(x))                              \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, trunc, __builtin_trunc(x))                              \
  CUDA_ON_HOST_NARROW_1(T, T2, to_float, from_double, rint, __builtin_rint(x))                                \
  CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, short, short)                                           \
  CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, ushort, unsigned short)                                 \
  CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, int, int)                                               \
  CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, uint, unsigned)                                         \
  CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, ll, long long)                                          \
  CUDA_ON_HOST_NARROW_INTEGER(T, to_float, type_name, ull, unsigned long long)
