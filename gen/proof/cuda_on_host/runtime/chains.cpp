#include "chains.h"

#include <cstring>

#include "state.h"

namespace cuda_on_host {
namespace {

// What a thread knew at a fence.
struct Release {
  uint32_t block;
  uint32_t epoch, known[kWarp];
  int warp;
  bool device;
  std::vector<Seen> seen;
};

// A number for each key: what <unordered_map> does, without the second that it takes to compile.
class Table {
 public:
  // The number of a key, which is kNone until it is set.
  uint32_t& operator[](uint64_t key) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = find(key);
    if (slot.number == kNone) {
      slot.key = key;
      ++count_;
    }
    return slot.number;
  }
  uint32_t get(uint64_t key) { return slots_.empty() ? kNone : find(key).number; }

  static constexpr uint32_t kNone = ~uint32_t(0);

 private:
  struct Slot {
    uint64_t key;
    uint32_t number;
  };
  Slot& find(uint64_t key) {
    size_t place = size_t(key * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1);
    while (slots_[place].number != kNone && slots_[place].key != key) place = (place + 1) & (slots_.size() - 1);
    return slots_[place];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 8 : 2 * slots_.size(), Slot{0, kNone});
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number != kNone) find(slot.key) = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two
  size_t count_ = 0;
};

struct Publication {
  uint32_t release;   // a place in `releases`
  uint32_t previous;  // of the same block: a position in the log
};

// A place that atomics have touched after a fence: what they published, in order.
struct Place {
  std::vector<Publication> log;
  Table last;                    // position of each block's last one
  std::vector<uint32_t> linked;  // positions of those that have seen other places
  uint32_t visited_device, visited_block;
  uint64_t visit;
};

std::vector<Release> releases;
std::vector<Place> places;
Table numbers;  // of a place, by address
uint64_t visit;

void merge(std::vector<Seen>& into, const Seen& seen) {
  for (Seen& old : into) {
    if (old.place != seen.place) continue;
    if (old.device < seen.device) old.device = seen.device;
    if (old.block < seen.block) old.block = seen.block;
    return;
  }
  into.push_back(seen);
}
void merge(std::vector<Seen>& into, const std::vector<Seen>& from) {
  for (const Seen& seen : from) merge(into, seen);
}

// An event that may have been released.
struct Event {
  uint32_t block, epoch, clock;
  int thread;
};

bool holds(const Release& release, const Event& event) {
  if (event.epoch != release.epoch) return event.epoch < release.epoch;  // of one block: a barrier lies between
  return event.thread / kWarp == release.warp && release.known[event.thread % kWarp] >= event.clock;
}

// Whether the releases that `seen` counts, or those that they had seen, hold the event.
bool leads(const Seen& seen, const Event& event) {
  Place& place = places[seen.place];
  if (place.visit != visit) {
    place.visit = visit;
    place.visited_device = place.visited_block = 0;
  }
  if (seen.device <= place.visited_device && seen.block <= place.visited_block) return false;
  if (place.visited_device < seen.device) place.visited_device = seen.device;
  if (place.visited_block < seen.block) place.visited_block = seen.block;
  const uint32_t mine = run.block->number;
  const auto usable = [&](uint32_t position) {
    const Release& release = releases[place.log[position].release];
    return (position < seen.device && release.device) || (position < seen.block && release.block == mine);
  };
  for (uint32_t position = place.last.get(event.block); position != Table::kNone;
       position = place.log[position].previous) {
    if (usable(position) && holds(releases[place.log[position].release], event)) return true;
  }
  for (const uint32_t position : place.linked) {
    if (!usable(position)) continue;
    for (const Seen& further : releases[place.log[position].release].seen) {
      if (leads(further, event)) return true;
    }
  }
  return false;
}

// The number of a place, which is made if there is none yet.
uint32_t place_of(uint64_t key) {
  uint32_t& number = numbers[key];
  if (number == Table::kNone) {
    number = uint32_t(places.size());
    places.push_back({});
  }
  return number;
}

void publish(uint32_t number, int32_t release) {
  Place& place = places[number];
  const uint32_t position = uint32_t(place.log.size());
  uint32_t& last = place.last[releases[release].block];
  place.log.push_back({uint32_t(release), last});
  last = position;
  if (!releases[release].seen.empty()) place.linked.push_back(position);
}

// Notes what the current thread knows, and begins what it does next: the number of the release.
int32_t release_all(bool device) {
  Thread& me = *run.current;
  Release release{run.block->number, run.block->epoch, {}, me.warp(), device, me.chains.known};
  merge(release.seen, run.block->chains.known);
  memcpy(release.known, me.known, sizeof release.known);
  releases.push_back(std::move(release));
  ++me.known[me.lane()];
  return int32_t(releases.size()) - 1;
}

}  // namespace

void Chains::clear() {
  pending.clear();
  known.clear();
  device = block = -1;
  place = published_device = published_block = 0;
}

void fence_thread(bool device) {
  Thread& me = *run.current;
  Chains& mine = me.chains;
  run.block->chained = true;
  for (const Seen& seen : mine.pending) merge(mine.known, {seen.place, device ? seen.device : 0, seen.block});
  (device ? mine.device : mine.block) = release_all(device);
  if (device) mine.block = -1;  // the wider one holds all of it
}

void release_at(uint64_t key) {
  run.block->chained = true;
  const int32_t release = release_all(true);
  publish(place_of(key), release);
}

void acquire_at(uint64_t key, uint32_t count) {
  run.block->chained = true;
  if (count > 0) merge(run.current->chains.known, {place_of(key), count, count});
}

uint32_t releases_at(uint64_t key) { return uint32_t(places[place_of(key)].log.size()); }

void chain(uint64_t key, bool wrote) {
  Chains& mine = run.current->chains;
  wrote = wrote && (mine.device >= 0 || mine.block >= 0);
  if (!wrote && numbers.get(key) == Table::kNone) return;
  const uint32_t number = place_of(key);
  const uint32_t before = uint32_t(places[number].log.size());
  const bool repeated = mine.place == number + 1 && mine.published_device == uint32_t(mine.device) &&
                        mine.published_block == uint32_t(mine.block);
  if (wrote && !repeated) {
    if (mine.device >= 0) publish(number, mine.device);
    if (mine.block >= 0) publish(number, mine.block);
    mine.place = number + 1;
    mine.published_device = uint32_t(mine.device);
    mine.published_block = uint32_t(mine.block);
  }
  if (before > 0) {
    run.block->chained = true;
    merge(mine.pending, {number, before, before});
  }
}

bool reached(uint32_t block, uint32_t epoch, int thread, uint32_t clock) {
  ++visit;
  const Event event{block, epoch, clock, thread};
  for (const std::vector<Seen>* known : {&run.current->chains.known, &run.block->chains.known}) {
    for (const Seen& seen : *known) {
      if (leads(seen, event)) return true;
    }
  }
  return false;
}

void join_block() {
  Chains& all = run.block->chains;
  for (int i = 0; i < run.thread_count; ++i) {
    Chains& one = run.block->threads[i].chains;
    merge(all.known, one.known);
    one.known.clear();
  }
}

void join_lanes(int warp, uint32_t mask) {
  Chains joined;
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    const Chains& one = run.block->threads[warp * kWarp + __builtin_ctz(left)].chains;
    merge(joined.known, one.known);
  }
  for (uint32_t left = mask; left != 0; left &= left - 1) {
    Chains& one = run.block->threads[warp * kWarp + __builtin_ctz(left)].chains;
    one.known = joined.known;
  }
}

void forget_chains() {
  releases.clear();
  places.clear();
  numbers = {};
}

}  // namespace cuda_on_host
