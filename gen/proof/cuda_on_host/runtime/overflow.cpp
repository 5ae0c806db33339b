#include "overflow.h"

#include <ucontext.h>

#include "state.h"

namespace cuda_on_host {

#ifdef __x86_64__

namespace {

alignas(16) char handler_stack[size_t(1) << 16];  // the thread's own has no room left
struct sigaction others;                          // what handles all other accesses
uint64_t faulting_pc, faulting_address;
bool faulting_write;

[[noreturn]] void abandon() {
  fail(Kind::kStackOverflow, reinterpret_cast<const void*>(faulting_pc + 1), "its calls go too deep");
}

// An access that no callback announced: of a structure that is passed by value.
[[noreturn]] void abandon_access() {
  const Spot spot = locate(faulting_address);
  fail(faulting_write ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead,
       reinterpret_cast<const void*>(faulting_pc + 1), "", spot.buffer, spot.offset);
}

void on_fault(int, siginfo_t* info, void* context) {
  const Thread* thread = run.current;
  const uint64_t address = reinterpret_cast<uint64_t>(info->si_addr);
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  faulting_pc = uint64_t(registers[REG_RIP]);
  if (thread == nullptr || address - reinterpret_cast<uint64_t>(thread->stack) >= kGuardBytes) {
    if (thread == nullptr || faulting_pc - run.launch->code >= run.launch->code_bytes) {
      sigaction(SIGSEGV, &others, nullptr);  // the access is made once more, and theirs
      return;
    }
    faulting_address = address;
    faulting_write = (registers[REG_ERR] & 2) != 0;
    // As if the kernel had called it: below what it keeps under its stack pointer, aligned as a call leaves it.
    registers[REG_RSP] = greg_t(((uint64_t(registers[REG_RSP]) - 128) & ~uint64_t(15)) - 8);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&abandon_access);
    return;
  }
  // As if the thread had called `abandon` first of all: what its stack holds is needed no more.
  registers[REG_RSP] = greg_t((reinterpret_cast<uint64_t>(thread->stack) + kStackBytes - 128) & ~uint64_t(15)) - 8;
  registers[REG_RIP] = reinterpret_cast<greg_t>(&abandon);
}

}  // namespace

StackGuard::StackGuard() {
  stack_t stack = {};
  stack.ss_sp = handler_stack;
  stack.ss_size = sizeof handler_stack;
  sigaltstack(&stack, &stack_before_);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &before_);
  others = before_;
}

StackGuard::~StackGuard() {
  sigaction(SIGSEGV, &before_, nullptr);
  sigaltstack(&stack_before_, nullptr);
}

#else

StackGuard::StackGuard() {}
StackGuard::~StackGuard() {}

#endif

}  // namespace cuda_on_host
