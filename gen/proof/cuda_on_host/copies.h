// Copies to shared memory that go on while the thread does: CUDA's pipeline primitives, cp.async in PTX.
#pragma once

namespace cuda_on_host {

void begin_copy(void* to, const void* from, size_t bytes, size_t zeros, void* pc);
void commit_copies();
void wait_for_copies(size_t later_groups, void* pc);

}  // namespace cuda_on_host

CUDA_ON_HOST_UNCHECKED inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  cuda_on_host::begin_copy(to, from, bytes, zeros, __builtin_return_address(0));
}
CUDA_ON_HOST_UNCHECKED inline void __pipeline_commit() { cuda_on_host::commit_copies(); }
CUDA_ON_HOST_UNCHECKED inline void __pipeline_wait_prior(size_t later_groups) {
  cuda_on_host::wait_for_copies(later_groups, __builtin_return_address(0));
}
