// Runs one launch: blocks one after another, the threads of a block as fibers, both in a seeded random order. A block
// whose threads only wait for other blocks is set aside, and goes on when others have had their turn.

#include <cstdio>
#include <cstring>

#include "overflow.h"
#include "state.h"
#include "watchdog.h"

namespace cuda_on_host {

namespace {

constexpr uint64_t kMostFibers = 1 << 15;  // alive at once; each has touched two or three pages of its stack
constexpr int kFruitless = 64;             // turns of a block in which nothing changes anywhere

Block first_block;  // kept from launch to launch; most launches need no other
uint64_t random_state;

uint64_t random_below(uint64_t bound) { return uint64_t((unsigned __int128)random_number() * bound >> 64); }

void start() {
  run.launch->enter(run.launch->arguments);
  run.current->state = State::kFinished;
  ++run.changes;
  switch_context(run.current->context, run.scheduler);
}

// Threads go on in the order of `order`, from a random place in it.
void make_all_ready(Block& block) {
  const int begin = int(random_below(run.thread_count));
  for (int i = 0; i < run.thread_count; ++i) {
    const int place = begin + i;
    make_ready(block.threads[block.order[place < run.thread_count ? place : place - run.thread_count]]);
  }
}

// Gives a block stacks, threads and notes for this launch; they are kept for later ones.
bool equip(Block& block) {
  const size_t count = run.thread_count;
  if (block.threads.size() < count) {
    if (block.stacks != nullptr) unmap_stacks(block.stacks, block.threads.size(), block.guards);
    block.threads.clear();
    block.stacks = map_stacks(count, block.guards);
    if (block.stacks == nullptr) return false;
    block.threads.resize(count);
    block.queue.resize(count);
    for (size_t i = 0; i < count; ++i) {
      block.threads[i].number = uint16_t(i);
      block.threads[i].stack = block.stacks + i * kStackBytes;
    }
  }
  block.order.resize(count);
  for (size_t i = 0; i < count; ++i) block.order[i] = uint16_t(i);
  return prepare_cells(block);
}

void begin_block(Block& block, uint64_t number) {
  run.block = &block;
  block.number = uint32_t(number);
  block.index = block_at(number);
  draw_epoch(block);
  block.begin = block.epoch;
  block.first = block.count = block.idle = 0;
  if (block.chained) {
    block.chains.clear();
    for (Thread& thread : block.threads) thread.chains.clear();
    block.chained = false;
  }
  poison_shared();
  for (int i = 0; i < run.thread_count; ++i) {
    Thread& thread = block.threads[i];
    thread.index = thread_at(i);
    thread.steps = 0;
    thread.spin = {};
    thread.copies.flying.clear();
    thread.copies.group = 0;
    memset(thread.known, 0, sizeof thread.known);
    thread.known[thread.lane()] = 1;
    prepare(thread.context, thread.stack, i, start);
  }
  for (int i = run.thread_count - 1; i > 0; --i) {
    const int other = int(random_below(i + 1));
    const uint16_t kept = block.order[i];
    block.order[i] = block.order[other];
    block.order[other] = kept;
  }
  make_all_ready(block);
  ++run.changes;
}

// Whether every thread waits at one and the same barrier.
bool barrier_is_full(const Block& block) {
  for (int i = 0; i < run.thread_count; ++i) {
    const Thread& thread = block.threads[i];
    if (thread.state != State::kAtBarrier || thread.barrier_line != block.threads[0].barrier_line) return false;
  }
  return true;
}

bool is_finished(const Block& block) {
  for (int i = 0; i < run.thread_count; ++i) {
    if (block.threads[i].state != State::kFinished) return false;
  }
  return true;
}

enum class Outcome { kFinished, kWaiting, kFault };

// Runs a block until it ends, or until all its threads that can run have given way in a row.
Outcome run_block(Block& block) {
  block.idle = 0;
  for (;;) {
    while (block.count > 0) {
      const int idle = block.idle;
      if (idle >= block.count) return Outcome::kWaiting;
      run.current = block.queue[block.first];
      block.first = (block.first + 1) % run.thread_count;
      --block.count;
      const uint64_t steps = run.current->steps;
      switch_context(run.scheduler, run.current->context);
      run.steps += run.current->steps - steps;
      if (run.steps > run.launch->steps && run.fault->kind == Kind::kNone) {
        record(Kind::kTooLong, nullptr, "its blocks do more than is tried here");
      }
      if (run.fault->kind != Kind::kNone) return Outcome::kFault;
      if (block.idle == idle) block.idle = 0;
    }
    if (is_finished(block)) return Outcome::kFinished;
    if (!barrier_is_full(block)) {
      report_stuck();
      return Outcome::kFault;
    }
    block.barrier_count = 0;
    for (int i = 0; i < run.thread_count; ++i) block.barrier_count += block.threads[i].predicate != 0;
    if (block.chained) join_block();
    draw_epoch(block);
    ++run.changes;
    make_all_ready(block);
  }
}

// All blocks of a launch: those to come, in an order that needs no list, and those that were set aside.
class Blocks {
 public:
  Blocks() : count_(count()) {
    // A random step that shares no factor with their number leads to every block once.
    do {
      stride_ = 1 + random_below(count_);
    } while (greatest_common_divisor(stride_, count_) != 1);
    next_ = random_below(count_);
    const uint64_t fitting = kMostFibers / run.thread_count;
    most_ = run.launch->resident_blocks < fitting ? run.launch->resident_blocks : fitting;
  }

  // False if memory is short.
  bool run_all() {
    Block* block = &first_block;
    for (;;) {
      if (!begin(*block)) return false;
      Outcome outcome = run_block(*block);
      while (outcome == Outcome::kWaiting || (outcome == Outcome::kFinished && waiting_ > 0)) {
        if (outcome == Outcome::kWaiting) {
          set_aside(*block);
          if (run.fault->kind != Kind::kNone) return true;
        } else {
          spare_.push_back(block);
        }
        if (outcome == Outcome::kWaiting && begun_ < count_ && waiting_ < most_) {
          block = another();
          if (!begin(*block)) return false;
        } else {
          block = first_;
          resume(*block);
        }
        outcome = run_block(*block);
      }
      if (outcome == Outcome::kFault || begun_ == count_) return true;
    }
  }

  ~Blocks() {
    for (Block* block : made_) {
      if (block->stacks != nullptr) unmap_stacks(block->stacks, block->threads.size(), block->guards);
      release_cells(*block);
      delete block;
    }
  }

 private:
  static uint64_t count() {
    const Launch& launch = *run.launch;
    return launch.blocks != nullptr ? launch.block_count : uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
  }

  static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
  }

  bool begin(Block& block) {
    if (!equip(block)) return false;
    block.turn = next_;
    begin_block(block, run.launch->blocks != nullptr ? run.launch->blocks[next_] : next_);
    next_ = (next_ + stride_) % count_;
    ++begun_;
    block.fruitless = 0;
    return true;
  }

  Block* another() {
    if (spare_.empty()) {
      made_.push_back(new Block);
      return made_.back();
    }
    Block* block = spare_.back();
    spare_.pop_back();
    return block;
  }

  void set_aside(Block& block) {
    const bool fruitless = block.fruitless > 0 && block.changes == run.changes;
    block.fruitless = fruitless ? block.fruitless + 1 : 1;
    block.changes = run.changes;
    if (block.fruitless > kFruitless) {
      char text[sizeof Fault::text];
      const uint64_t left = count_ - begun_;
      run.current = block.queue[block.first];
      snprintf(text, sizeof text, "it waits, and no thread changes what it waits for");
      if (left > 0) {
        snprintf(text, sizeof text, "it waits, and %llu of %llu blocks have not begun: %llu run at the same time",
                 (unsigned long long)left, (unsigned long long)count_, (unsigned long long)waiting_ + 1);
      }
      return record(Kind::kHang, run.current->wait_pc, text);
    }
    const Launch& launch = *run.launch;
    block.shared.resize(launch.shared_bytes + launch.dynamic_bytes);
    if (launch.shared_bytes > 0) memcpy(block.shared.data(), launch.shared, launch.shared_bytes);
    if (launch.dynamic_bytes > 0) {
      memcpy(block.shared.data() + launch.shared_bytes, dynamic_area(), launch.dynamic_bytes);
    }
    (waiting_++ == 0 ? first_ : last_->next) = &block;
    last_ = &block;
  }

  void resume(Block& block) {
    const Launch& launch = *run.launch;
    first_ = block.next;
    --waiting_;
    run.block = &block;
    run.now = block.epoch;
    if (launch.shared_bytes > 0) memcpy(launch.shared, block.shared.data(), launch.shared_bytes);
    if (launch.dynamic_bytes > 0) {
      memcpy(dynamic_area(), block.shared.data() + launch.shared_bytes, launch.dynamic_bytes);
    }
  }

  uint64_t count_, stride_, next_, begun_ = 0, most_;
  Block *first_, *last_;  // of those that were set aside, in the order of their turns
  uint64_t waiting_ = 0;
  std::vector<Block*> spare_, made_;
};

}  // namespace

// SplitMix64 (Steele, Lea, Flood 2014): enough to vary an order.
uint64_t random_number() {
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

// Runs a launch. 0: all blocks ended; 1: `fault` says what is wrong; 2: memory is short.
extern "C" CUDA_ON_HOST_EXPORT int cuda_on_host_run(const Launch* launch, Fault* fault) {
  *fault = Fault{};
  run.launch = launch;
  run.fault = fault;
  run.thread_count = int(launch->block.x * launch->block.y * launch->block.z);
  if (run.epoch > uint32_t(1) << 31) {
    release_cells(first_block);
    forget_words();
    run.epoch = 0;
  }
  run.begin = run.epoch;
  run.owners.clear();
  run.changes = run.steps = 0;
  if (!prepare_shared() || !prepare_words()) return 2;
  random_state = launch->seed;
  const Watchdog watchdog;
  const StackGuard stack_guard;
  const bool enough = Blocks().run_all();
  run.current = nullptr;
  forget_chains();
  forget_words();
  return enough ? fault->kind == Kind::kNone ? 0 : 1 : 2;
}
