// Stands in for CUDA under g++: included once, at global scope, before the text of any variant.
//
// The text of a variant then stands in a namespace of its own. CUDA's own headers give vector types and halves;
// everything that runs on a GPU only is declared here and in the headers below.
#pragma once
// The plain C header: C++'s <cmath> takes 0.1 s to read, in every translation unit.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <stddef.h>
#include <vector_functions.h>
#include <vector_types.h>
// These headers' functions take classes by value, marked as unused only: inlined, what reads the argument is an access of
// the kernel's own; else it is part of a call, where -fsanitize=thread does not see it.
#define unused always_inline, unused
#ifdef CUDA_ON_HOST_FP16
#include <cuda_fp16.h>
#endif
#ifdef CUDA_ON_HOST_BF16
#include <cuda_bf16.h>
#endif
#undef unused

// INFINITY, NAN and M_PI do not exist under NVRTC: a text that uses them must fail here too.
#undef INFINITY
#undef NAN
#undef HUGE_VAL
#undef HUGE_VALF

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __forceinline__
#undef __noinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __maxnreg__
#undef __cluster_dims__
// A kernel gets all functions inlined that may be: an argument that is a class is an access of the kernel's own then,
// like those of CUDA's headers. A class that a __noinline__ function takes by value is read unseen.
#define __global__ __attribute__((flatten))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __maxnreg__(...)

// Sections of the variant's own: their bytes are known, poisoned and watched. SHARED_SECTION and CONSTANT_SECTION are
// set before each text. g++ drops the section inside a function template: the build looks for objects that fell out.
#define __shared__ static __attribute__((section(SHARED_SECTION)))
#define __constant__ __attribute__((section(CONSTANT_SECTION)))

#include "calls.h"

#define threadIdx (cuda_on_host::thread_index())
#define blockIdx (cuda_on_host::block_index())
#define blockDim (cuda_on_host::block_dimensions())
#define gridDim (cuda_on_host::grid_dimensions())
#define warpSize 32

#include "arithmetic.h"
#include "memory.h"
#ifdef CUDA_ON_HOST_SIMD
#include "simd.h"
#endif
#include "warp.h"
#include "cluster.h"
#ifdef CUDA_ON_HOST_FP16
#include "half.h"
#endif
#ifdef CUDA_ON_HOST_BF16
#include "bfloat16.h"
#endif
#include "entry.h"
#include "ptx.h"
