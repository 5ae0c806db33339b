// What C++ leaves undefined and g++ checks: the handlers of -fsanitize=signed-integer-overflow and its kin.
#include <cstdio>

#include "state.h"

using namespace cuda_on_host;

namespace {

struct Place {
  const char* file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, info;
  char name[1];  // as the program spells it
};
struct Arithmetic {
  Place place;
  const Type* type;
};
struct OutOfBounds {
  Place place;
  const Type *array, *index;
};
struct Cast {
  Place place;
  const Type *from, *to;
};
struct Shift {
  Place place;
  const Type *value, *count;
};
struct Mismatch {
  Place place;
  const Type* type;
  uint8_t log_alignment, check;
};

// An integer that fits a register, as the handlers get it.
long long signed_value(const Type* type, uint64_t value) {
  const int bits = 1 << (type->info >> 1);
  if (bits > 64) return 0;  // behind a pointer; never seen in a kernel
  if ((type->info & 1) == 0 || bits == 64) return static_cast<long long>(value);
  return static_cast<long long>(value << (64 - bits)) >> (64 - bits);
}

[[noreturn]] void overflow(const Arithmetic* data, uint64_t left, const char* sign, uint64_t right, const void* pc) {
  char text[sizeof Fault::text];
  snprintf(text, sizeof text, "%lld %s %lld does not fit %.60s", signed_value(data->type, left), sign,
           signed_value(data->type, right), data->type->name);
  fail(Kind::kOverflow, pc, text);
}

}  // namespace

// g++ calls the second form where a sanitizer is told not to recover.
#define HANDLER(name, parameters, body)                                          \
  extern "C" CUDA_ON_HOST_EXPORT void __ubsan_handle_##name parameters {         \
    const void* pc = __builtin_return_address(0);                                \
    if (run.current == nullptr) return;                                          \
    body                                                                         \
  }                                                                              \
  extern "C" CUDA_ON_HOST_EXPORT void __ubsan_handle_##name##_abort parameters { \
    const void* pc = __builtin_return_address(0);                                \
    if (run.current == nullptr) return;                                          \
    body                                                                         \
  }

HANDLER(add_overflow, (Arithmetic * data, uint64_t left, uint64_t right), overflow(data, left, "+", right, pc);)
HANDLER(sub_overflow, (Arithmetic * data, uint64_t left, uint64_t right), overflow(data, left, "-", right, pc);)
HANDLER(mul_overflow, (Arithmetic * data, uint64_t left, uint64_t right), overflow(data, left, "*", right, pc);)
HANDLER(negate_overflow, (Arithmetic * data, uint64_t value), overflow(data, 0, "-", value, pc);)
HANDLER(divrem_overflow, (Arithmetic * data, uint64_t left, uint64_t right), {
  if (signed_value(data->type, right) != 0) overflow(data, left, "/", right, pc);
  fail(Kind::kDivision, pc);
})
// A GPU takes the nearest integer there is, and 0 for NaN; this CPU does not.
HANDLER(float_cast_overflow, (Cast * data, uint64_t), {
  char text[sizeof Fault::text];
  snprintf(text, sizeof text, "%.60s to %.60s", data->from->name, data->to->name);
  fail(Kind::kConversion, pc, text);
})
HANDLER(shift_out_of_bounds, (Shift * data, uint64_t, uint64_t count), {
  char text[sizeof Fault::text];
  snprintf(text, sizeof text, "%.60s shifted by %lld", data->value->name, signed_value(data->count, count));
  fail(Kind::kShift, pc, text);
})
HANDLER(out_of_bounds, (OutOfBounds * data, uint64_t index), {
  char text[sizeof Fault::text];
  snprintf(text, sizeof text, "index %lld of %.80s", signed_value(data->index, index), data->array->name);
  fail(Kind::kIndex, pc, text);
})
HANDLER(type_mismatch_v1, (Mismatch * data, uint64_t address), {
  char text[sizeof Fault::text];
  if (data->log_alignment == 0) {  // -fsanitize=object-size
    // Of arrays that lie elsewhere each access is checked.
    if (address - reinterpret_cast<uint64_t>(run.current->stack) >= kStackBytes) return;
    snprintf(text, sizeof text, "%.60s behind the end of its object", data->type->name);
    fail(Kind::kIndex, pc, text);
  }
  snprintf(text, sizeof text, "%.60s needs a multiple of %u bytes", data->type->name, 1u << data->log_alignment);
  const Spot spot = locate(address);
  fail(Kind::kMisaligned, pc, text, spot.buffer, spot.offset);
})
HANDLER(missing_return, (Place*), fail(Kind::kNoReturn, pc);)
HANDLER(builtin_unreachable, (Place*), fail(Kind::kNoReturn, pc);)
