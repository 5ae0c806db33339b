// Notes of what a launch touches, for whoever wants to know what it moves.
#pragma once
#include <cstdint>

#include "interface.h"

namespace cuda_on_host {

// Counts an access of the current thread, and notes it if it is one of those that are asked for.
void note(Trace& trace, uint64_t address, int size, const void* pc, uint8_t touch, bool read_only);

}  // namespace cuda_on_host
