#include "watchdog.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "state.h"

#ifndef sigev_notify_thread_id  // older C libraries hide the field
#define sigev_notify_thread_id _sigev_un._tid
#endif

namespace cuda_on_host {

#ifdef __x86_64__

namespace {

constexpr long kTickNanoseconds = 250'000'000;  // of this thread's own time: a busy machine ends nothing
constexpr int kTicks = 4;

struct Progress {
  const Thread* thread;
  uint64_t steps;
  uint32_t epoch;
} last;
int idle_ticks;
uint64_t interrupted_pc;

// Where the handler sends a thread that makes no progress.
[[noreturn]] void abandon() {
  fail(Kind::kHang, reinterpret_cast<const void*>(interrupted_pc + 1), "it loops without any access or wait");
}

void on_tick(int, siginfo_t*, void* context) {
  if (run.current == nullptr) return;
  const Progress now{run.current, run.current->steps, run.epoch};
  const bool idle = now.thread == last.thread && now.steps == last.steps && now.epoch == last.epoch;
  last = now;
  idle_ticks = idle ? idle_ticks + 1 : 0;
  if (idle_ticks < kTicks) return;
  greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const uint64_t pc = uint64_t(registers[REG_RIP]);
  if (pc - run.launch->code < run.launch->code_bytes) {  // in the kernel, so nothing of the runtime is half done
    interrupted_pc = pc;
    // As if the kernel had called `abandon`: below what it keeps under its stack pointer, aligned as a call leaves it.
    registers[REG_RSP] = greg_t(((uint64_t(registers[REG_RSP]) - 128) & ~uint64_t(15)) - 8);
    registers[REG_RIP] = reinterpret_cast<greg_t>(&abandon);
  }
}

int signal_number() { return SIGRTMAX - 5; }

}  // namespace

Watchdog::Watchdog() {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_tick;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    return sigaction(signal_number(), &action, nullptr) == 0;
  }();
  idle_ticks = 0;
  last = {};
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = signal_number();
  event.sigev_notify_thread_id = pid_t(syscall(SYS_gettid));
  timer_t timer;
  armed_ = installed && timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer) == 0;
  if (!armed_) return;
  timer_ = timer;
  const itimerspec ticks{{0, kTickNanoseconds}, {0, kTickNanoseconds}};
  timer_settime(timer, 0, &ticks, nullptr);
}

Watchdog::~Watchdog() {
  if (armed_) timer_delete(static_cast<timer_t>(timer_));
}

#else

Watchdog::Watchdog() {}
Watchdog::~Watchdog() {}

#endif

}  // namespace cuda_on_host
