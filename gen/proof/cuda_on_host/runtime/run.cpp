// Runs one launch: blocks one after another, the threads of a block as fibers, both in a seeded random order. A block
// whose threads only wait for other blocks is set aside, and goes on when others have had their turn; so is one that is
// preempted before an atomic. Blocks of a cluster begin together.

#include <cstdio>
#include <cstring>

#include "clusters.h"
#include "overflow.h"
#include "watchdog.h"

namespace cuda_on_host {

namespace {

constexpr uint64_t kMostFibers = 1 << 15;  // alive at once; each has touched two or three pages of its stack
constexpr int kFruitless = 64;             // turns of a block in which nothing changes anywhere
constexpr uint64_t kPreempted = 4;         // blocks that are preempted at the same time; further ones do not begin

Block first_block;                // kept from launch to launch; most launches need no other
std::vector<Block*> kept_blocks;  // the same for clusters, of which one at a time is what most need, and preempted blocks
uint64_t random_state;

uint64_t random_below(uint64_t bound) { return uint64_t((unsigned __int128)random_number() * bound >> 64); }

void start() {
  run.launch->enter(run.launch->arguments);
  leave_cluster();
  run.current->state = State::kFinished;
  ++run.changes;
  go_on();
}

// The thread whose turn is next, or null: none can run, or all that can have given way in a row.
Thread* begin_turn(Block& block) {
  if (block.idle >= block.count) return nullptr;
  run.current = block.queue[block.first];
  if (++block.first == run.thread_count) block.first = 0;
  --block.count;
  run.turn_steps = run.current->steps;
  run.turn_idle = block.idle;
  return run.current;
}

// Threads go on in the order of `order`, from a random place in it.
void make_all_ready(Block& block) {
  const int begin = int(random_below(run.thread_count));
  for (int i = 0; i < run.thread_count; ++i) {
    const int place = begin + i;
    make_ready(block, block.threads[block.order[place < run.thread_count ? place : place - run.thread_count]]);
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
  block.preemptions = run.launch->preemptions;
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
    thread.wait_pc = nullptr;
    thread.spin = {};
    thread.flag_reads = 0;
    thread.copies.flying.clear();
    thread.copies.group = 0;
    thread.cluster_barriers = {};
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
    if (thread.state != State::kAtBarrier || thread.barrier_site != block.threads[0].barrier_site) return false;
  }
  return true;
}

bool is_finished(const Block& block) {
  for (int i = 0; i < run.thread_count; ++i) {
    if (block.threads[i].state != State::kFinished) return false;
  }
  return true;
}

bool waits_for_cluster(const Block& block) {
  for (int i = 0; i < run.thread_count; ++i) {
    if (block.threads[i].state == State::kAtClusterBarrier) return true;
  }
  return false;
}

enum class Outcome { kFinished, kWaiting, kPreempted, kAtCluster, kFault };

// Runs a block until it ends, until all its threads that can run have given way in a row, until it is preempted, or
// until none can run before other blocks of its cluster have come to a barrier.
Outcome run_block(Block& block) {
  block.idle = 0;
  for (;;) {
    if (const Thread* first = begin_turn(block)) switch_context(run.scheduler, first->context);
    if (run.fault->kind != Kind::kNone) return Outcome::kFault;
    if (run.preempted) {
      run.preempted = false;
      return Outcome::kPreempted;
    }
    if (block.count > 0) return Outcome::kWaiting;
    if (is_finished(block)) return Outcome::kFinished;
    if (!barrier_is_full(block)) {
      if (waits_for_cluster(block)) return Outcome::kAtCluster;
      report_stuck();
      return Outcome::kFault;
    }
    block.barrier_count = 0;
    bool same_way = true;
    for (int i = 0; i < run.thread_count; ++i) {
      block.barrier_count += block.threads[i].predicate != 0;
      same_way &= block.threads[i].way == block.threads[0].way;
    }
    if (!same_way) note_divergent_barriers(block);
    if (block.chained) join_block();
    if (block.cluster != nullptr) join_cluster_barriers(block);
    draw_epoch(block);
    ++run.changes;
    make_all_ready(block);
  }
}

// All blocks of a launch, or all clusters: those to come, in an order that needs no list, and those that were set
// aside.
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
  bool run_all() { return run.cluster_size > 1 ? run_clusters() : run_blocks(); }

  ~Blocks() {
    for (Block* block : made_) {
      if (kept_blocks.size() < (run.cluster_size > 1 ? uint64_t(run.cluster_size) : kPreempted)) {
        kept_blocks.push_back(block);
        continue;
      }
      if (block->stacks != nullptr) unmap_stacks(block->stacks, block->threads.size(), block->guards);
      release_cells(*block);
      release_notes(*block);
      delete block;
    }
    for (Cluster* cluster : clusters_) delete cluster;
  }

 private:
  bool run_blocks() {
    Block* block = &first_block;
    for (;;) {
      if (!begin(*block)) return false;
      Outcome outcome = run_block(*block);
      while (outcome == Outcome::kWaiting || outcome == Outcome::kPreempted ||
             (outcome == Outcome::kFinished && waiting_ > 0)) {
        bool begins = false;
        if (outcome == Outcome::kWaiting) {
          set_aside(*block);
          if (run.fault->kind != Kind::kNone) return true;
          begins = true;
        } else if (outcome == Outcome::kPreempted) {
          set_aside_preempted(*block);
          begins = waiting_ == 1 || (waiting_ < kPreempted && random_below(2) == 0);
        } else {
          spare_.push_back(block);
        }
        if (begins && begun_ < count_ && waiting_ < most_) {
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

  bool run_clusters() {
    while (waiting_ > 0 || begun_ < count_) {
      if (waiting_ == 0 && !begin_cluster()) return false;
      Block& block = *first_;
      resume(block);
      const Outcome outcome = run_block(block);
      if (outcome == Outcome::kFinished) {
        end_block(block);
        if (block.cluster->left == 0)
          spare_.insert(spare_.end(), block.cluster->blocks.begin(), block.cluster->blocks.end());
      } else if (outcome == Outcome::kAtCluster) {
        if (!is_stuck(*block.cluster)) put_aside(block);
      } else if (outcome == Outcome::kWaiting) {
        set_aside(block);
        if (begun_ < count_ && waiting_ + run.cluster_size <= most_ && !begin_cluster()) return false;
      } else if (outcome == Outcome::kPreempted) {
        set_aside_preempted(block);
        const bool begins = waiting_ <= uint64_t(run.cluster_size) && waiting_ + run.cluster_size <= most_;
        if (begins && begun_ < count_ && !begin_cluster()) return false;
      }
      if (run.fault->kind != Kind::kNone) return true;
    }
    return true;
  }

  static uint64_t count() {
    const Launch& launch = *run.launch;
    const uint64_t blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    return (launch.blocks != nullptr ? launch.block_count : blocks) / run.cluster_size;
  }

  static uint64_t greatest_common_divisor(uint64_t a, uint64_t b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
  }

  bool begin(Block& block) {
    if (!equip(block)) return false;
    block.turn = next_;
    block.cluster = nullptr;
    begin_block(block, run.launch->blocks != nullptr ? run.launch->blocks[next_] : next_);
    next_ = (next_ + stride_) % count_;
    ++begun_;
    block.fruitless = 0;
    return true;
  }

  // Its blocks begin in a random order. None runs yet.
  bool begin_cluster() {
    const size_t size = run.cluster_size;
    const uint64_t* chosen = run.launch->blocks;
    const uint64_t number = chosen != nullptr ? cluster_of_block(chosen[next_ * size]) : next_;
    Cluster* cluster = new Cluster{number, std::vector<Block*>(size), int(size), 0, 0, 0};
    clusters_.push_back(cluster);
    const size_t first = random_below(size);
    for (size_t rank = 0; rank < size; ++rank) {
      Block* block = cluster->blocks[rank] = another();
      if (!equip(*block) || !prepare_notes(*block)) return false;
      block->cluster = cluster;
      block->rank = uint32_t(rank);
      block->ended = false;
      block->fruitless = 0;
      block->turn = next_ * size + rank;
      make_room_aside(*block);
    }
    for (size_t i = 0; i < size; ++i) {
      Block* block = cluster->blocks[(first + i) % size];
      begin_block(*block, block_in_cluster(cluster->number, block->rank));
      put_aside(*block);
    }
    next_ = (next_ + stride_) % count_;
    ++begun_;
    return true;
  }

  Block* another() {
    if (spare_.empty() && !kept_blocks.empty()) {
      spare_.push_back(kept_blocks.back());
      made_.push_back(kept_blocks.back());
      kept_blocks.pop_back();
    }
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
    make_room_aside(block);
    put_aside(block);
  }

  // It can go on at once, so that its turns are not counted as fruitless.
  void set_aside_preempted(Block& block) {
    block.fruitless = 0;
    make_room_aside(block);
    put_aside(block);
  }

  // Keeps what it has in shared memory.
  void put_aside(Block& block) {
    const Launch& launch = *run.launch;
    if (launch.shared_bytes > 0) memcpy(block.aside, launch.shared, launch.shared_bytes);
    if (launch.dynamic_bytes > 0) memcpy(block.dynamic_aside, dynamic_area(), launch.dynamic_bytes);
    (waiting_++ == 0 ? first_ : last_->next) = &block;
    last_ = &block;
  }

  void resume(Block& block) {
    const Launch& launch = *run.launch;
    first_ = block.next;
    --waiting_;
    run.block = &block;
    run.now = block.epoch;
    if (launch.shared_bytes > 0) memcpy(launch.shared, block.aside, launch.shared_bytes);
    if (launch.dynamic_bytes > 0) memcpy(dynamic_area(), block.dynamic_aside, launch.dynamic_bytes);
  }

  uint64_t count_, stride_, next_, begun_ = 0, most_;
  Block *first_, *last_;  // of those that were set aside, in the order of their turns
  uint64_t waiting_ = 0;
  std::vector<Block*> spare_, made_;
  std::vector<Cluster*> clusters_;
};

}  // namespace

void go_on() {
  Thread& me = *run.current;
  Block& block = *run.block;
  run.steps += me.steps - run.turn_steps;
  if (run.steps > run.launch->steps) [[unlikely]] {
    record(Kind::kTooLong, me.wait_pc, "its blocks do more than is tried here");
    switch_context(me.context, run.scheduler);
  }
  if (block.idle == run.turn_idle) block.idle = 0;
  const Thread* next = begin_turn(block);
  switch_context(me.context, next != nullptr ? next->context : run.scheduler);
}

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
  run.cluster_size = int(launch->cluster.x * launch->cluster.y * launch->cluster.z);
  if (run.epoch > uint32_t(1) << 31) {
    release_cells(first_block);
    forget_words();
    run.epoch = 0;
  }
  run.begin = run.epoch;
  run.owners.clear();
  run.changes = run.steps = 0;
  run.preempted = false;
  forget_divergent_barriers();
  if (!prepare_shared() || !prepare_words()) return 2;
  random_state = launch->seed;
  if (launch->preemptions > 0) run.preemption_mask = (uint64_t(1) << random_below(4)) - 1;
  const Watchdog watchdog;
  const StackGuard stack_guard;
  const bool enough = Blocks().run_all();
  run.current = nullptr;
  forget_chains();
  forget_many_words();
  return enough ? fault->kind == Kind::kNone ? 0 : 1 : 2;
}
