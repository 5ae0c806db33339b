// Notes of what a launch touches: all of it is counted, by block and place in the machine code, and as much is noted as
// was asked for.
#include "trace.h"

#include <vector>

#include "clusters.h"
#include "shared_races.h"

namespace cuda_on_host {
namespace {

std::vector<CodePlace> places;  // in the order in which they were met
std::vector<uint32_t> rounds;  // how often each thread was at each of them
std::vector<uint32_t> slots;   // a hash table: 1 + the number of a place; 0 where there is none

void begin(Trace& trace) {
  places.clear();
  rounds.clear();
  slots.assign(1 << 8, 0);
  trace.places = nullptr;
  trace.place_count = 0;
}

// Where a place is in the table, or belongs.
size_t slot_of(uint64_t pc, uint32_t block) {
  const size_t mask = slots.size() - 1;
  size_t slot = size_t((pc * 0x9e3779b97f4a7c15u + block) * 0xff51afd7ed558ccdu >> 32) & mask;
  while (slots[slot] != 0) {
    const CodePlace& place = places[slots[slot] - 1];
    if (place.pc == pc && place.block == block) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

size_t place_at(Trace& trace, uint64_t pc, uint32_t block) {
  const size_t slot = slot_of(pc, block);
  if (slots[slot] != 0) return slots[slot] - 1;
  places.push_back({pc, 0, 0, block, 0});
  rounds.resize(places.size() * size_t(run.thread_count));
  slots[slot] = uint32_t(places.size());
  if (2 * places.size() > slots.size()) {
    slots.assign(4 * slots.size(), 0);
    for (size_t i = 0; i < places.size(); ++i) slots[slot_of(places[i].pc, places[i].block)] = uint32_t(i + 1);
  }
  trace.places = places.data();
  trace.place_count = places.size();
  return places.size() - 1;
}

}  // namespace

void note(Trace& trace, uint64_t address, int size, const void* pc, uint8_t touch, bool read_only) {
  if (trace.count++ == 0) begin(trace);
  const Launch& launch = *run.launch;
  const size_t number = place_at(trace, reinterpret_cast<uint64_t>(pc), run.block->number);
  CodePlace& place = places[number];
  ++place.count;
  const uint32_t round = rounds[number * size_t(run.thread_count) + run.current->number]++;
  if (trace.noted >= trace.capacity || round / trace.together % trace.every != 0) return;
  if (trace.chosen != nullptr && !trace.chosen[run.block->turn]) return;
  ++place.noted;
  uint64_t offset = address - reinterpret_cast<uint64_t>(launch.shared);
  uint64_t dynamic_offset = address - reinterpret_cast<uint64_t>(dynamic_area());
  if (run.block->cluster != nullptr) {  // as if another block's were its own
    const SharedPlace found = find_shared(address);
    if (found.block != nullptr) (found.buffer == kStaticShared ? offset : dynamic_offset) = uint64_t(found.offset);
  }
  const bool is_static = offset < launch.shared_bytes, is_dynamic = dynamic_offset < launch.dynamic_bytes;
  if (is_static) address = offset;
  if (is_dynamic) address = launch.shared_bytes + dynamic_offset;
  const uint8_t space = is_static || is_dynamic ? kInShared : kInGlobal;
  trace.accesses[trace.noted++] = {
      address, place.pc, run.block->number, run.current->number, uint16_t(size), touch, space, read_only, {}};
}

}  // namespace cuda_on_host
