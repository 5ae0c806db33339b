// Copies to shared memory that are in flight until their thread has waited for them: as late as a GPU may end them. Who
// touches their bytes before, or begins another copy there, is told, and so is who changes what they read.
#include <cstring>

#include "shared.h"

namespace cuda_on_host {
namespace {

// The notes on a byte of shared memory; null for any other address.
Cell* cell_at(const void* address) {
  const uint64_t place = reinterpret_cast<uint64_t>(address);
  const Launch& launch = *run.launch;
  const uint64_t offset = place - reinterpret_cast<uint64_t>(launch.shared);
  if (offset < launch.shared_bytes) return run.block->cells + offset;
  const uint64_t dynamic_offset = place - reinterpret_cast<uint64_t>(dynamic_area());
  if (dynamic_offset < launch.dynamic_bytes) return run.block->cells + launch.shared_bytes + dynamic_offset;
  return nullptr;
}

bool is_local(const void* address) {
  return reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(run.current->stack) < kStackBytes;
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

CUDA_ON_HOST_EXPORT void begin_copy(void* to, const void* from, size_t bytes, size_t zeros, void* pc) {
  const Spot spot = locate(reinterpret_cast<uint64_t>(to));
  const auto refuse = [&](Kind kind, const char* text) {
    fail(kind, pc, text, spot.buffer, spot.offset, int(bytes));
  };
  if (bytes != 4 && bytes != 8 && bytes != 16) refuse(Kind::kCopy, "a copy has 4, 8 or 16 bytes");
  if (run.block->cluster != nullptr) refuse(Kind::kCopy, "within clusters copies are not followed here");
  if (zeros > bytes) refuse(Kind::kCopy, "more zeros than bytes");
  const int read = int(bytes - zeros);
  Copy copy{static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), pc, int(bytes), read,
            run.current->copies.group, {}};
  if (cell_at(from) != nullptr || is_local(from)) refuse(Kind::kCopy, "it comes from no global memory");
  plain_read(from, int(bytes), read, pc);
  plain_write(to, int(bytes), pc);
  Cell* const cells = cell_at(to);
  if (cells == nullptr) refuse(Kind::kCopy, "it goes to no shared memory");
  memcpy(copy.data, from, read);
  for (size_t i = 0; i < bytes; ++i) cells[i].copier = uint16_t(run.current->number + 1);
  run.current->copies.flying.push_back(copy);
}

CUDA_ON_HOST_EXPORT void commit_copies() { ++run.current->copies.group; }

CUDA_ON_HOST_EXPORT void wait_for_copies(size_t later_groups, void* pc) {
  Copies& copies = run.current->copies;
  step(pc);
  size_t arrived = 0;
  while (arrived < copies.flying.size() && copies.flying[arrived].group + later_groups < copies.group) {
    arrive(copies.flying[arrived++]);
  }
  copies.flying.erase(copies.flying.begin(), copies.flying.begin() + arrived);
}

}  // namespace cuda_on_host
