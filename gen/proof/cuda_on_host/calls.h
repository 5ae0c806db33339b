// What a kernel calls in the runtime. Everything else that the runtime sees, it sees through the sanitizers' callbacks.
#pragma once
#include "collective.h"

// Code that the sanitizers leave alone: it stands for the GPU, not for the kernel.
#define CUDA_ON_HOST_UNCHECKED __attribute__((no_sanitize("thread", "undefined"), noinline))
// Code that becomes part of the kernel, so that an access in it is reported with the kernel's line.
#define CUDA_ON_HOST_INLINE inline __attribute__((always_inline))

namespace cuda_on_host {

// `const`: these are no memory accesses, and a thread's answer never changes.
__attribute__((const)) uint3 thread_index();
__attribute__((const)) uint3 block_index();
__attribute__((const)) dim3 block_dimensions();
__attribute__((const)) dim3 grid_dimensions();
__attribute__((const)) int lane();
__attribute__((const)) unsigned char* dynamic_shared();

// Waits for every thread of the block; returns how many of them brought a predicate that is not 0. `site`: no two
// barriers in the text have the same, though they may stand in one line.
int block_barrier(int line, int site, int predicate);

// Waits for the lanes of `mask` at the same collective and replaces `value` by its result for this lane.
void collective(Collective kind, unsigned mask, int source, void* value, int bytes);

// Reports an atomic access before it happens. `block_only`: other blocks may see it torn; `pc`: the kernel's code that
// asked for it.
void atomic_access(const volatile void* address, int bytes, bool block_only, void* pc);

// The same in two halves, for an atomic that looks before it writes: the access, and, with no other thread between, what
// it orders.
void atomic_question(const volatile void* address, int bytes, bool block_only, void* pc);
void atomic_order(const volatile void* address, bool wrote);

// The same for a read that goes past the caches that writes go through.
void read_only_access(const volatile void* address, int bytes, void* pc);

void fence(bool device);

// Lets other threads go on.
void nap();

// The accesses and waits of this thread up to now, which stand for clock cycles.
long long clock();

// Ends a thread that shuffles among so many lanes: no power of two up to 32.
[[noreturn]] void refuse_width(int width);

template <class T>
struct Same {
  using type = T;
};

}  // namespace cuda_on_host
