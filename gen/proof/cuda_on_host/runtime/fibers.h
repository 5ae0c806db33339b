// One fiber a GPU thread: a stack of its own and a switch between them.
#pragma once
#include <cstddef>

#if !defined(__x86_64__) || defined(CUDA_ON_HOST_UCONTEXT)
#include <ucontext.h>
#endif

namespace cuda_on_host {

#if defined(__x86_64__) && !defined(CUDA_ON_HOST_UCONTEXT)  // the second to try the other way here
struct Context {
  void* stack_pointer;
};
#else
struct Context {
  ucontext_t registers;
};
#endif

constexpr size_t kStackBytes = size_t(1) << 18;
constexpr size_t kGuardBytes = size_t(1) << 14;  // the lowest of them, which nothing may touch: a multiple of any page

// A guard and the stack behind it are two ranges of pages, of which Linux gives a process 65,530.
constexpr size_t kMostGuards = 16384;

// A lazily mapped stack for each of `count` fibers, or null if memory is short. The first `guards` of them are guarded:
// all, unless the process has the most of them already, or the system gives no more.
char* map_stacks(size_t count, size_t& guards);
void unmap_stacks(char* stacks, size_t count, size_t guards);

// Makes `context` start `function` on the stack when it is switched to. Fibers start at different cache sets.
void prepare(Context& context, char* stack, int number, void (*function)());

#if defined(__x86_64__) && !defined(CUDA_ON_HOST_UCONTEXT)
extern "C" void cuda_on_host_switch(void** save, void* load);
inline void switch_context(Context& from, const Context& to) {
  cuda_on_host_switch(&from.stack_pointer, to.stack_pointer);
}
#else
void switch_context(Context& from, const Context& to);
#endif

}  // namespace cuda_on_host
