// Where threads wait for each other: barriers of a block, collectives of a warp.
#include <cstdio>
#include <cstring>

#include "../collective.h"
#include "state.h"

namespace cuda_on_host {

namespace {

constexpr uint64_t kGiveWaySteps = 256;  // a thread that waits for others still ends one day

const char* name(Collective kind) {
  switch (kind) {
    case Collective::kSync:
      return "__syncwarp";
    case Collective::kShuffle:
      return "__shfl_sync";
    case Collective::kShuffleUp:
      return "__shfl_up_sync";
    case Collective::kShuffleDown:
      return "__shfl_down_sync";
    case Collective::kShuffleXor:
      return "__shfl_xor_sync";
    case Collective::kBallot:
      return "__ballot_sync";
    case Collective::kAny:
      return "__any_sync";
    case Collective::kAll:
      return "__all_sync";
    case Collective::kMatchAny:
      return "__match_any_sync";
    case Collective::kMatchAll:
      return "__match_all_sync";
    case Collective::kAdd:
      return "__reduce_add_sync of unsigned";
    case Collective::kMin:
      return "__reduce_min_sync of unsigned";
    case Collective::kMax:
      return "__reduce_max_sync of unsigned";
    case Collective::kAnd:
      return "__reduce_and_sync";
    case Collective::kOr:
      return "__reduce_or_sync";
    case Collective::kXor:
      return "__reduce_xor_sync";
    case Collective::kSignedAdd:
      return "__reduce_add_sync of int";
    case Collective::kSignedMin:
      return "__reduce_min_sync of int";
    default:
      return "__reduce_max_sync of int";
  }
}

bool is_shuffle(Collective kind) { return kind >= Collective::kShuffle && kind <= Collective::kShuffleXor; }
bool is_vote(Collective kind) { return kind >= Collective::kBallot && kind <= Collective::kAll; }
bool is_match(Collective kind) { return kind == Collective::kMatchAny || kind == Collective::kMatchAll; }

// Up to 8 bytes, mostly a word.
inline void copy(void* to, const void* from, int bytes) {
  if (bytes == 4) {
    memcpy(to, from, 4);
  } else if (bytes > 0) {
    memcpy(to, from, bytes);
  }
}

uint32_t word(const Waiting& waiting) {
  uint32_t value;
  memcpy(&value, waiting.brought, sizeof value);
  return value;
}

uint32_t combine(Collective kind, uint32_t a, uint32_t b) {
  switch (kind) {
    case Collective::kAdd:
    case Collective::kSignedAdd:
      return a + b;
    case Collective::kMin:
      return a < b ? a : b;
    case Collective::kMax:
      return a < b ? b : a;
    case Collective::kAnd:
      return a & b;
    case Collective::kOr:
      return a | b;
    case Collective::kXor:
      return a ^ b;
    case Collective::kSignedMin:
      return int32_t(a) < int32_t(b) ? a : b;
    default:
      return int32_t(a) < int32_t(b) ? b : a;
  }
}

// What every lane of the mask did so far happens before what any of them does next.
void synchronise(Thread* warp, uint32_t mask) {
  uint32_t joined[kWarp] = {};
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const Thread& thread = warp[__builtin_ctz(left)];
    for (int i = 0; i < kWarp; ++i) joined[i] = joined[i] < thread.known[i] ? thread.known[i] : joined[i];
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    memcpy(warp[lane].known, joined, sizeof joined);
    ++warp[lane].known[lane];
  }
  if (run.block->chained) join_lanes(warp->warp(), mask);
}

// A shuffle from a lane that its mask does not name gives a value that is undefined (PTX ISA, shfl.sync). A kernel may
// drop it; so that a result which hangs on it shows, it is other bits in every run.
void undefined(Thread& thread) {
  const uint64_t bits = random_number();
  memcpy(thread.waiting.received, &bits, sizeof bits);
  Fault& fault = *run.fault;
  if (fault.pc != 0) return;
  fault.pc = reinterpret_cast<uint64_t>(thread.wait_pc);
  fault.block = run.block->index;
  fault.thread = thread.index;
  snprintf(fault.text, sizeof fault.text, "a shuffle reads lane %d, which its mask 0x%08x does not name",
           thread.waiting.source, thread.waiting.mask);
}

// Hands every lane of the mask its result. All have come.
[[gnu::noinline]] void complete(Thread* warp, Collective kind, uint32_t mask) {
  const auto each = [&](auto&& act) {
    for (uint32_t left = mask; left != 0; left &= left - 1) act(__builtin_ctz(left), warp[__builtin_ctz(left)].waiting);
  };
  if (kind == Collective::kSync) return synchronise(warp, mask);
  if (is_shuffle(kind)) {
    return each([&](int lane, Waiting& w) {
      if (mask >> w.source & 1) {
        copy(w.received, warp[w.source].waiting.brought, w.bytes);
      } else {
        undefined(warp[lane]);
      }
    });
  }
  if (is_match(kind)) {
    return each([&](int, Waiting& w) {
      uint32_t equal = 0;
      each(
          [&](int lane, Waiting& other) { equal |= uint32_t(memcmp(w.brought, other.brought, w.bytes) == 0) << lane; });
      memcpy(w.received, &equal, sizeof equal);
    });
  }
  uint32_t result = 0;
  bool first = true;
  each([&](int lane, Waiting& w) {
    const uint32_t brought = is_vote(kind) ? word(w) << lane : word(w);
    result = first ? brought : combine(is_vote(kind) ? Collective::kOr : kind, result, brought);
    first = false;
  });
  each([&](int, Waiting& w) { memcpy(w.received, &result, sizeof result); });
}

// What is larger than a word is moved by other instructions.
bool together(const Thread& one, const Thread& other) {
  const bool same_size = (one.waiting.bytes > 4) == (other.waiting.bytes > 4);
  return one.waiting.mask == other.waiting.mask && one.waiting.kind == other.waiting.kind && same_size;
}

// A function of its own, as `complete` is: what lies in the frame of `collective` every waiting thread keeps on its
// stack, and the caches hold few lines of a thousand stacks.
[[noreturn, gnu::noinline]] void refuse_mask(Collective kind, unsigned mask, const void* pc) {
  char text[sizeof Fault::text];
  snprintf(text, sizeof text, "the mask 0x%08x of %s does not name the calling lane %d", mask, name(kind),
           run.current->lane());
  fail(Kind::kAbsentLane, pc, text);
}

// Names a lane that the current thread waits for, and which waits for others elsewhere.
void report_disagreement(const Thread& other) {
  const Thread& me = *run.current;
  char text[sizeof Fault::text];
  const auto bytes = [](const Thread& thread) { return thread.waiting.bytes > 4 ? " of 8 bytes" : ""; };
  snprintf(text, sizeof text, "it waits at %s%s of mask 0x%08x, lane %d at %s%s of mask 0x%08x", name(me.waiting.kind),
           bytes(me), me.waiting.mask, other.lane(), name(other.waiting.kind), bytes(other), other.waiting.mask);
  run.fault->other_thread = other.index;
  run.fault->other_pc = reinterpret_cast<uint64_t>(other.wait_pc);
  record(Kind::kLanesDisagree, me.wait_pc, text);
}

}  // namespace

void wait(State state, void* pc) {
  Thread& me = *run.current;
  me.state = state;
  me.wait_pc = pc;
  go_on();
}

void give_way(const void* pc) {
  step(pc, kGiveWaySteps);
  Thread& me = *run.current;
  me.wait_pc = const_cast<void*>(pc);
  ++run.block->idle;
  make_ready(*run.block, me);
  go_on();
}

void may_preempt(const void* pc) {
  Block& block = *run.block;
  if (block.preemptions == 0 || (random_number() & run.preemption_mask) != 0) return;
  --block.preemptions;
  run.preempted = true;
  Thread& me = *run.current;
  run.steps += me.steps - run.turn_steps;
  me.wait_pc = const_cast<void*>(pc);
  make_ready(block, me);
  switch_context(me.context, run.scheduler);
}

CUDA_ON_HOST_EXPORT void nap() { give_way(__builtin_return_address(0)); }

CUDA_ON_HOST_EXPORT void refuse_width(int width) {
  char text[sizeof Fault::text];
  snprintf(text, sizeof text, "a width of %d", width);
  fail(Kind::kWidth, __builtin_return_address(0), text);
}

CUDA_ON_HOST_EXPORT void fence(bool device) { fence_thread(device); }

CUDA_ON_HOST_EXPORT void collective(Collective kind, unsigned mask, int source, void* value, int bytes) {
  void* pc = __builtin_return_address(0);
  Thread& me = *run.current;
  step(pc, kWaitSteps);
  if ((mask >> me.lane() & 1) == 0) [[unlikely]]
    refuse_mask(kind, mask, pc);
  me.wait_pc = pc;
  me.waiting.kind = kind;
  me.waiting.source = source;
  me.waiting.bytes = bytes;
  me.waiting.mask = mask;
  copy(me.waiting.brought, value, bytes);

  Thread* warp = run.block->threads.data() + me.warp() * kWarp;
  const int lanes = run.thread_count - me.warp() * kWarp;
  uint32_t absent = mask & ~(1u << me.lane());
  while (absent != 0) {
    const int lane = 31 - __builtin_clz(absent);  // lanes mostly come in ascending order: one that did not is found soon
    // A lane that waits elsewhere may come here later.
    if (lane >= lanes || warp[lane].state != State::kAtCollective || !together(me, warp[lane])) break;
    absent ^= 1u << lane;
  }
  if (absent == 0) {
    ++run.changes;
    complete(warp, kind, mask);
    for (uint32_t left = mask & ~(1u << me.lane()); left != 0; left &= left - 1)
      make_ready(*run.block, warp[__builtin_ctz(left)]);
  } else {
    wait(State::kAtCollective, pc);
  }
  copy(value, me.waiting.received, bytes);
}

CUDA_ON_HOST_EXPORT int block_barrier(int line, int site, int predicate) {
  void* pc = __builtin_return_address(0);
  step(pc, kWaitSteps);
  note_way(static_cast<void**>(__builtin_frame_address(0)));
  run.current->barrier_line = line;
  run.current->barrier_site = site;
  run.current->predicate = predicate;
  wait(State::kAtBarrier, pc);
  return run.block->barrier_count;
}

void describe(const Thread& thread, char* text, size_t size) {
  if (thread.state == State::kFinished) {
    snprintf(text, size, "has returned");
  } else if (thread.state == State::kAtBarrier) {
    snprintf(text, size, "waits at the barrier of line %d", thread.barrier_line);
  } else if (thread.state == State::kAtClusterBarrier) {
    snprintf(text, size, "waits at the barrier of its cluster");
  } else {
    snprintf(text, size, "waits at %s of mask 0x%08x", name(thread.waiting.kind), thread.waiting.mask);
  }
}

void report_stuck() {
  char text[sizeof Fault::text];
  const auto where = [&](const Thread& thread) {
    run.fault->other_thread = thread.index;
    if (thread.state == State::kAtCollective) run.fault->other_pc = reinterpret_cast<uint64_t>(thread.wait_pc);
    describe(thread, text, sizeof text);
  };
  for (int i = 0; i < run.thread_count; ++i) {
    Thread& thread = run.block->threads[i];
    if (thread.state != State::kAtCollective) continue;
    run.current = &thread;
    for (uint32_t left = thread.waiting.mask; left != 0; left &= left - 1) {
      const int number = thread.warp() * kWarp + __builtin_ctz(left);
      if (number >= run.thread_count) {
        char absent[sizeof Fault::text];
        snprintf(absent, sizeof absent, "the mask 0x%08x of %s names lane %d, which the block does not have",
                 thread.waiting.mask, name(thread.waiting.kind), number % kWarp);
        return record(Kind::kAbsentLane, thread.wait_pc, absent);
      }
      const Thread& other = run.block->threads[number];
      if (other.state == State::kAtCollective) continue;
      where(other);
      char absent[sizeof Fault::text];
      snprintf(absent, sizeof absent, "the mask 0x%08x of %s names lane %d, which did not come: it %.100s",
               thread.waiting.mask, name(thread.waiting.kind), number % kWarp, text);
      return record(Kind::kAbsentLane, thread.wait_pc, absent);
    }
  }
  for (int i = 0; i < run.thread_count; ++i) {
    Thread& thread = run.block->threads[i];
    if (thread.state != State::kAtCollective) continue;
    run.current = &thread;
    for (uint32_t left = thread.waiting.mask; left != 0; left &= left - 1) {
      const Thread& other = run.block->threads[thread.warp() * kWarp + __builtin_ctz(left)];
      if (!together(thread, other)) return report_disagreement(other);
    }
  }
  for (int i = 0; i < run.thread_count; ++i) {
    Thread& waiting = run.block->threads[i];
    if (waiting.state != State::kAtBarrier) continue;
    for (int k = 0; k < run.thread_count; ++k) {
      const Thread& other = run.block->threads[k];
      if (other.state == State::kAtBarrier && other.barrier_site == waiting.barrier_site) continue;
      where(other);
      run.current = &waiting;
      run.fault->line = waiting.barrier_line;
      return record(Kind::kBarrier, waiting.wait_pc, text);
    }
  }
}

}  // namespace cuda_on_host
