// Ends a thread whose calls go deeper than its stack, which would end the process.
#pragma once
#include <signal.h>

namespace cuda_on_host {

// Watches for accesses to the guards of stacks, in the current operating-system thread, while it lives.
class StackGuard {
 public:
  StackGuard();
  ~StackGuard();
  StackGuard(const StackGuard&) = delete;
  StackGuard& operator=(const StackGuard&) = delete;

 private:
#ifdef __x86_64__
  struct sigaction before_;
  stack_t stack_before_;
#endif
};

}  // namespace cuda_on_host
