// Barriers, shuffles, votes and reductions of a warp. Every lane that a mask names must come.
#pragma once

#define CUDA_ON_HOST_BARRIER(predicate) cuda_on_host::block_barrier(__LINE__, __COUNTER__, predicate)
#define __syncthreads() ((void)CUDA_ON_HOST_BARRIER(0))
#define __syncthreads_count(predicate) CUDA_ON_HOST_BARRIER((predicate) != 0)
#define __syncthreads_and(predicate) (CUDA_ON_HOST_BARRIER((predicate) == 0) == 0)
#define __syncthreads_or(predicate) (CUDA_ON_HOST_BARRIER((predicate) != 0) != 0)

CUDA_ON_HOST_INLINE void __syncwarp(unsigned mask = 0xffffffffu) {
  cuda_on_host::collective(cuda_on_host::Collective::kSync, mask, 0, nullptr, 0);
}

namespace cuda_on_host {

template <class T>
CUDA_ON_HOST_INLINE T shuffle(Collective kind, unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  collective(kind, mask, source, &value, sizeof(T));
  return value;
}

// The first lane of this lane's group, where `width` lanes form a group.
CUDA_ON_HOST_INLINE int first_of_group(int width) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0) refuse_width(width);
  return lane() & ~(width - 1);
}

}  // namespace cuda_on_host

template <class T>
CUDA_ON_HOST_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = cuda_on_host::first_of_group(width) | (source & (width - 1));
  return cuda_on_host::shuffle(cuda_on_host::Collective::kShuffle, mask, value, lane);
}
template <class T>
CUDA_ON_HOST_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int source = cuda_on_host::lane() - int(delta);
  return cuda_on_host::shuffle(cuda_on_host::Collective::kShuffleUp, mask, value,
                               source < cuda_on_host::first_of_group(width) ? cuda_on_host::lane() : source);
}
template <class T>
CUDA_ON_HOST_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int source = cuda_on_host::lane() + int(delta);
  const int last = cuda_on_host::first_of_group(width) + width - 1;
  return cuda_on_host::shuffle(cuda_on_host::Collective::kShuffleDown, mask, value,
                               source > last ? cuda_on_host::lane() : source);
}
template <class T>
CUDA_ON_HOST_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int source = cuda_on_host::lane() ^ (lane_mask & 31);
  const int last = cuda_on_host::first_of_group(width) + width - 1;  // lanes of earlier groups may be read
  return cuda_on_host::shuffle(cuda_on_host::Collective::kShuffleXor, mask, value,
                               source > last ? cuda_on_host::lane() : source);
}

namespace cuda_on_host {

// The lanes for which the condition holds.
CUDA_ON_HOST_INLINE unsigned vote(Collective kind, unsigned mask, bool condition) {
  unsigned value = condition;
  collective(kind, mask, 0, &value, sizeof value);
  return value;
}

// The lanes that brought the same value.
template <class T>
CUDA_ON_HOST_INLINE unsigned match(Collective kind, unsigned mask, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values of 4 or 8 bytes are matched");
  union {
    T value;
    unsigned lanes;
  } exchanged = {value};
  collective(kind, mask, 0, &exchanged, sizeof(T));
  return exchanged.lanes;
}

}  // namespace cuda_on_host

CUDA_ON_HOST_INLINE unsigned __ballot_sync(unsigned mask, int predicate) {
  return cuda_on_host::vote(cuda_on_host::Collective::kBallot, mask, predicate != 0);
}
CUDA_ON_HOST_INLINE int __any_sync(unsigned mask, int predicate) {
  return cuda_on_host::vote(cuda_on_host::Collective::kAny, mask, predicate != 0) != 0;
}
CUDA_ON_HOST_INLINE int __all_sync(unsigned mask, int predicate) {
  return cuda_on_host::vote(cuda_on_host::Collective::kAll, mask, predicate == 0) == 0;
}

template <class T>
CUDA_ON_HOST_INLINE unsigned __match_any_sync(unsigned mask, T value) {
  return cuda_on_host::match(cuda_on_host::Collective::kMatchAny, mask, value);
}

// `*all` says whether every lane brought the same value.
template <class T>
CUDA_ON_HOST_INLINE unsigned __match_all_sync(unsigned mask, T value, int* all) {
  *all = cuda_on_host::match(cuda_on_host::Collective::kMatchAll, mask, value) == mask;
  return *all ? mask : 0;
}

// A GPU promises the calling lane and no other.
CUDA_ON_HOST_INLINE unsigned __activemask() { return 1u << cuda_on_host::lane(); }

#define CUDA_ON_HOST_REDUCE(name, T, kind)                                                \
  CUDA_ON_HOST_INLINE T name(unsigned mask, T value) {                                    \
    cuda_on_host::collective(cuda_on_host::Collective::kind, mask, 0, &value, sizeof(T)); \
    return value;                                                                         \
  }
CUDA_ON_HOST_REDUCE(__reduce_add_sync, unsigned, kAdd)
CUDA_ON_HOST_REDUCE(__reduce_add_sync, int, kSignedAdd)
CUDA_ON_HOST_REDUCE(__reduce_min_sync, unsigned, kMin)
CUDA_ON_HOST_REDUCE(__reduce_min_sync, int, kSignedMin)
CUDA_ON_HOST_REDUCE(__reduce_max_sync, unsigned, kMax)
CUDA_ON_HOST_REDUCE(__reduce_max_sync, int, kSignedMax)
CUDA_ON_HOST_REDUCE(__reduce_and_sync, unsigned, kAnd)
CUDA_ON_HOST_REDUCE(__reduce_or_sync, unsigned, kOr)
CUDA_ON_HOST_REDUCE(__reduce_xor_sync, unsigned, kXor)
#undef CUDA_ON_HOST_REDUCE
