// Loads and stores with a cache operator, atomics, fences.
#pragma once

// A cache operator changes speed only: here each is the plain access, inlined so that it is the kernel's own.
#define CUDA_ON_HOST_LOAD(name)                  \
  template <class T>                             \
  CUDA_ON_HOST_INLINE T name(const T* address) { \
    return *address;                             \
  }
CUDA_ON_HOST_LOAD(__ldca)
CUDA_ON_HOST_LOAD(__ldcg)
CUDA_ON_HOST_LOAD(__ldcs)
CUDA_ON_HOST_LOAD(__ldlu)
#undef CUDA_ON_HOST_LOAD

template <class T>
CUDA_ON_HOST_UNCHECKED T __ldg(const T* address) {
  cuda_on_host::read_only_access(address, sizeof(T), __builtin_return_address(0));
  return *address;
}
template <class T>
CUDA_ON_HOST_INLINE T __ldcv(const T* address) {
  if constexpr (__is_class(T)) {
    return *address;
  } else {
    return *static_cast<const volatile T*>(address);
  }
}

#define CUDA_ON_HOST_STORE(name)                                                                 \
  template <class T>                                                                             \
  CUDA_ON_HOST_INLINE void name(T* address, const typename cuda_on_host::Same<T>::type& value) { \
    *address = value;                                                                            \
  }
CUDA_ON_HOST_STORE(__stwb)
CUDA_ON_HOST_STORE(__stcg)
CUDA_ON_HOST_STORE(__stcs)
CUDA_ON_HOST_STORE(__stwt)
#undef CUDA_ON_HOST_STORE

#define __threadfence() cuda_on_host::fence(true)
#define __threadfence_block() cuda_on_host::fence(false)
#define __threadfence_system() cuda_on_host::fence(true)
#define __nanosleep(nanoseconds) ((void)(nanoseconds), cuda_on_host::nap())
#define clock64() cuda_on_host::clock()

// One fiber runs at a time, so read, compute, write is atomic here; the access itself is checked like any other.
namespace cuda_on_host {

// As bytes: the constructors of CUDA's classes would be accesses of the kernel's own.
template <class T>
CUDA_ON_HOST_UNCHECKED T peek(const T* address) {
  T value;
  __builtin_memcpy(&value, address, sizeof(T));
  return value;
}
template <class T>
CUDA_ON_HOST_UNCHECKED void poke(T* address, T value) {
  __builtin_memcpy(address, &value, sizeof(T));
}

// Of a vector each element is added by itself.
CUDA_ON_HOST_PURE float2 wrapping_add(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
CUDA_ON_HOST_PURE float4 wrapping_add(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

}  // namespace cuda_on_host

#define CUDA_ON_HOST_ATOMIC_OF(name, block_only, computed)                                        \
  template <class T>                                                                              \
  CUDA_ON_HOST_UNCHECKED T name(T* address, typename cuda_on_host::Same<T>::type value) {         \
    cuda_on_host::atomic_access(address, sizeof(T), block_only, __builtin_return_address(0));     \
    const T old = cuda_on_host::peek(address);                                                    \
    cuda_on_host::poke<T>(address, computed);                                                     \
    return old;                                                                                   \
  }
#define CUDA_ON_HOST_ATOMIC(name, computed)            \
  CUDA_ON_HOST_ATOMIC_OF(name, false, computed)        \
  CUDA_ON_HOST_ATOMIC_OF(name##_block, true, computed) \
  CUDA_ON_HOST_ATOMIC_OF(name##_system, false, computed)
CUDA_ON_HOST_ATOMIC(atomicAdd, cuda_on_host::wrapping_add(old, value))
CUDA_ON_HOST_ATOMIC(atomicSub, cuda_on_host::wrapping_subtract(old, value))
CUDA_ON_HOST_ATOMIC(atomicExch, value)
CUDA_ON_HOST_ATOMIC(atomicMin, value < old ? value : old)
CUDA_ON_HOST_ATOMIC(atomicMax, old < value ? value : old)
CUDA_ON_HOST_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
CUDA_ON_HOST_ATOMIC(atomicDec, (old == T(0) || old > value) ? value : T(old - 1))
CUDA_ON_HOST_ATOMIC(atomicAnd, T(old& value))
CUDA_ON_HOST_ATOMIC(atomicOr, T(old | value))
CUDA_ON_HOST_ATOMIC(atomicXor, T(old ^ value))
#undef CUDA_ON_HOST_ATOMIC
#undef CUDA_ON_HOST_ATOMIC_OF

// One that finds another value writes nothing, and so publishes nothing.
#define CUDA_ON_HOST_CAS(name, block_only)                                                      \
  template <class T>                                                                            \
  CUDA_ON_HOST_UNCHECKED T name(T* address, typename cuda_on_host::Same<T>::type expected,      \
                                typename cuda_on_host::Same<T>::type value) {                   \
    cuda_on_host::atomic_question(address, sizeof(T), block_only, __builtin_return_address(0)); \
    const T old = cuda_on_host::peek(address);                                                  \
    const bool same = old == expected;                                                          \
    if (same) cuda_on_host::poke<T>(address, value);                                            \
    cuda_on_host::atomic_order(address, same);                                                  \
    return old;                                                                                 \
  }
CUDA_ON_HOST_CAS(atomicCAS, false)
CUDA_ON_HOST_CAS(atomicCAS_block, true)
CUDA_ON_HOST_CAS(atomicCAS_system, false)
#undef CUDA_ON_HOST_CAS
