// Barriers that threads come to by different calls. A function with a barrier in it may stand on both sides of a branch:
// it is one barrier in the text, and two in what the compiler makes of it.
#include "state.h"

namespace cuda_on_host {
namespace {

constexpr size_t kMostBarriers = 64;
constexpr int kLeast = 4;  // calls to a barrier that stands in a kernel itself: three of entry.h lead there

struct Ways {
  uint64_t one, other;
};
std::vector<Ways> known;
std::vector<DivergentBarrier> divergent_barriers;
uint64_t in_kernel[64];  // return addresses of barriers that stand in a kernel itself, each in a place of its own

// The return addresses from a frame outwards. Kernels are built with frame pointers: a frame begins with where the
// caller's begins, and the return address follows.
template <class Act>
inline void each_call(const Thread& thread, void** frame, Act&& act) {
  const uint64_t stack = reinterpret_cast<uint64_t>(thread.stack);
  for (int i = 0; i < kMostCalls; ++i) {
    const uint64_t pc = reinterpret_cast<uint64_t>(frame[1]);
    if (pc - run.launch->code >= run.launch->code_bytes) return;
    act(i, pc);
    void** const caller = static_cast<void**>(frame[0]);
    if (caller <= frame || reinterpret_cast<uint64_t>(caller) - stack > kStackBytes - 2 * sizeof(void*)) return;
    frame = caller;
  }
}

void write_way(const Thread& thread, uint64_t* way) {
  way[0] = reinterpret_cast<uint64_t>(thread.wait_pc);
  if (thread.way != way[0]) each_call(thread, thread.barrier_frame, [&](int call, uint64_t pc) { way[call] = pc; });
}

}  // namespace

void note_way(void** frame) {
  Thread& me = *run.current;
  const uint64_t pc = reinterpret_cast<uint64_t>(frame[1]);
  uint64_t& same = in_kernel[pc * 0x9e3779b97f4a7c15u >> 58];
  me.way = pc;
  if (same == pc) [[likely]]
    return;
  me.barrier_frame = frame;
  int calls = 0;
  each_call(me, frame, [&](int call, uint64_t caller) {
    me.way = me.way * 0x9e3779b97f4a7c15u + caller;
    calls = call + 1;
  });
  if (calls == kLeast) me.way = same = pc;
}

void note_divergent_barriers(const Block& block) {
  const Thread& one = block.threads[0];
  for (int i = 1; i < run.thread_count; ++i) {
    const Thread& other = block.threads[i];
    bool is_new = other.way != one.way && known.size() < kMostBarriers;
    for (const Ways& ways : known) is_new = is_new && (ways.one != one.way || ways.other != other.way);
    if (!is_new) continue;
    known.push_back({one.way, other.way});
    DivergentBarrier barrier{{}, {}, block.index, one.index, other.index};
    write_way(one, barrier.way);
    write_way(other, barrier.other_way);
    divergent_barriers.push_back(barrier);
  }
  run.fault->divergent_barriers = divergent_barriers.size();
}

void forget_divergent_barriers() {
  known.clear();
  divergent_barriers.clear();
}

}  // namespace cuda_on_host

// Those of the last launch.
extern "C" CUDA_ON_HOST_EXPORT const cuda_on_host::DivergentBarrier* cuda_on_host_divergent_barriers() {
  return cuda_on_host::divergent_barriers.data();
}
