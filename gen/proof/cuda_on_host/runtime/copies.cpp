// Copies to shared memory that are in flight until their thread has waited for them: as late as a GPU may end them. Who
// touches their bytes before, or begins another copy there, is told, and so is who changes what they read.
#include <cstring>

#include "shared_races.h"

namespace cuda_on_host {
namespace {

// The notes on a byte of shared memory.
Cell* cell_at(const void* address) {
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  const Launch& launch = *run.launch;
  const uint64_t offset = place - reinterpret_cast<uint64_t>(launch.shared);
  if (offset < launch.shared_bytes) return run.block->cells + offset;
  return run.block->cells + launch.shared_bytes + (place - reinterpret_cast<uint64_t>(dynamic_area()));
}

// What was copied is written now, for all that look at it, and could have been read now.
void arrive(const Copy& copy) {
  if (memcmp(copy.data, copy.from, copy.read) != 0) {
    const Spot spot = locate(reinterpret_cast<uint64_t>(copy.from));
    fail(Kind::kInFlight, copy.pc, "what it copies has been changed before it was waited for", spot.buffer, spot.offset,
         copy.read);
  }
  Cell* const cells = cell_at(copy.to);
  for (int i = 0; i < copy.bytes; ++i) cells[i].copier = 0;
  const Spot spot = locate(reinterpret_cast<uint64_t>(copy.to));
  check_shared<Touch::kWrite>(cells, copy.pc, spot.buffer, spot.offset, copy.bytes);
  memcpy(copy.to, copy.data, copy.bytes);
}

}  // namespace

CUDA_ON_HOST_EXPORT void begin_copy(void* to, const void* from, int bytes, unsigned read, void* pc) {
  const Spot spot = locate(reinterpret_cast<uint64_t>(to));
  const auto refuse = [&](const char* text) { fail(Kind::kOperand, pc, text, spot.buffer, spot.offset, bytes); };
  if (run.block->cluster != nullptr) refuse("a place in a cluster, where copies are not followed here");
  if (read > unsigned(bytes)) refuse("more bytes to read than to write");
  Copy copy{static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), pc, bytes, int(read),
            run.current->copies.group, {}};
  check_global(from, bytes, pc);
  plain_read(from, bytes, int(read), pc);
  plain_write(to, bytes, pc);
  Cell* const cells = cell_at(to);
  memcpy(copy.data, from, read);
  for (int i = 0; i < bytes; ++i) cells[i].copier = uint16_t(run.current->number + 1);
  run.current->copies.flying.push_back(copy);
}

CUDA_ON_HOST_EXPORT void commit_copies() { ++run.current->copies.group; }

CUDA_ON_HOST_EXPORT void wait_for_copies(unsigned long long later_groups, void* pc) {
  Copies& copies = run.current->copies;
  step(pc);
  size_t arrived = 0;
  while (arrived < copies.flying.size() && copies.flying[arrived].group + later_groups < copies.group) {
    arrive(copies.flying[arrived++]);
  }
  copies.flying.erase(copies.flying.begin(), copies.flying.begin() + arrived);
}

}  // namespace cuda_on_host
