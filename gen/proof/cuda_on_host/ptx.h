// What gen/proof/ptx.py makes of inline PTX: a value for each register, a function for each form.
#pragma once

namespace cuda_on_host {

template <int bytes>
struct Word {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = unsigned long long;
};

// An operand of a statement and the registers of its constraint: r and l hold integers of 4 and 8 bytes, f and d
// floating-point numbers.
template <char constraint, class T>
constexpr bool fits = sizeof(T) == (constraint == 'r' || constraint == 'f' ? 4 : 8) && !__is_class(T) &&
                      is_floating<T> == (constraint == 'f' || constraint == 'd');

template <char constraint, class T>
CUDA_ON_HOST_PURE auto in_register(T value) {
  static_assert(fits<constraint, T>, "an operand of inline PTX must be as its constraint says");
  return bits<typename Word<sizeof(T)>::type>(value);
}
template <char constraint, class T, class Bits>
CUDA_ON_HOST_INLINE void put_register(T& output, Bits word) {
  static_assert(fits<constraint, T>, "an operand of inline PTX must be as its constraint says");
  output = bits<T>(word);
}

template <char constraint, class T>
CUDA_ON_HOST_INLINE void keep_register(T& operand) {
  put_register<constraint>(operand, in_register<constraint>(operand));
}

// What is loaded, the element with the lowest address first.
template <int bytes, int count>
struct Loaded {
  typename Word<bytes>::type at[count];
};

// Check an access of an instruction with `.global` before it happens. `read_only`: the launch may not write there.
void global_read(const void* address, int bytes, bool read_only, void* pc);
void global_write(void* address, int bytes, void* pc);
void global_flag_read(const void* address, int bytes, bool acquire, void* pc);
void global_flag_write(void* address, int bytes, bool release, void* pc);
void check_alignment(const void* address, int alignment, void* pc);

template <int bytes, int count, bool read_only>
CUDA_ON_HOST_UNCHECKED Loaded<bytes, count> load_global(unsigned long long address) {
  const void* const from = reinterpret_cast<const void*>(address);
  global_read(from, bytes * count, read_only, __builtin_return_address(0));
  Loaded<bytes, count> loaded;
  __builtin_memcpy(&loaded, from, sizeof loaded);
  return loaded;
}
template <class First, class... Others>
CUDA_ON_HOST_UNCHECKED void store_global(unsigned long long address, First first, Others... others) {
  const First values[] = {first, others...};
  void* const to = reinterpret_cast<void*>(address);
  global_write(to, sizeof values, __builtin_return_address(0));
  __builtin_memcpy(to, values, sizeof values);
}

// An atomic load or store of words that other threads wait for: what the one that releases them did before is done for
// the one that acquires them. Of a vector each element is atomic by itself: other threads may go on between two.
template <int bytes, int count, bool acquire>
CUDA_ON_HOST_UNCHECKED Loaded<bytes, count> load_flags(unsigned long long address) {
  using Element = typename Word<bytes>::type;
  const Element* const from = reinterpret_cast<const Element*>(address);
  void* const pc = __builtin_return_address(0);
  check_alignment(from, bytes * count, pc);
  Loaded<bytes, count> loaded;
  for (int i = 0; i < count; ++i) {
    global_flag_read(from + i, bytes, acquire, pc);
    loaded.at[i] = peek(from + i);
  }
  return loaded;
}
template <bool release, class First, class... Others>
CUDA_ON_HOST_UNCHECKED void store_flags(unsigned long long address, First first, Others... others) {
  const First values[] = {first, others...};
  First* const to = reinterpret_cast<First*>(address);
  void* const pc = __builtin_return_address(0);
  check_alignment(to, sizeof values, pc);
  for (unsigned i = 0; i < sizeof values / sizeof first; ++i) {
    global_flag_write(to + i, sizeof first, release, pc);
    poke(to + i, values[i]);
  }
}

// The address in the window of shared memory that instructions with `.shared` take, of any address; and back.
size_t shared_window(const void* address, void* pc);
void* from_shared_window(unsigned long long address, void* pc);

// Copies to shared memory that go on while the thread does.
void begin_copy(void* to, const void* from, int bytes, unsigned read, void* pc);
void commit_copies();
void wait_for_copies(unsigned long long later_groups, void* pc);

// Copies `bytes`, of which it reads so many: the rest is zeros.
template <int bytes, int least>
CUDA_ON_HOST_UNCHECKED void copy_async(unsigned long long to, unsigned long long from, unsigned read = bytes) {
  static_assert(bytes >= least && (bytes == 4 || bytes == 8 || bytes == 16),
                "cp.async.ca copies 4, 8 or 16 bytes, cp.async.cg copies 16");
  void* const pc = __builtin_return_address(0);
  begin_copy(from_shared_window(to, pc), reinterpret_cast<const void*>(from), bytes, read, pc);
}
template <long long groups>
CUDA_ON_HOST_UNCHECKED void wait_for_groups() {
  static_assert(groups >= 0, "cp.async.wait_group takes no negative number");
  wait_for_copies(groups, __builtin_return_address(0));
}
CUDA_ON_HOST_UNCHECKED inline void wait_for_all_copies() {
  commit_copies();
  wait_for_copies(0, __builtin_return_address(0));
}

// What createpolicy gives. No policy changes what is read or written, but an instruction takes no other number.
constexpr unsigned long long kPolicy = 0x14f0000000000000;
void refuse_policy(void* pc);
CUDA_ON_HOST_UNCHECKED inline void check_policy(unsigned long long policy) {
  if (policy != kPolicy) refuse_policy(__builtin_return_address(0));
}

void check_line(const void* address, void* pc);
CUDA_ON_HOST_UNCHECKED inline void apply_priority(unsigned long long address) {
  check_line(reinterpret_cast<const void*>(address), __builtin_return_address(0));
}

}  // namespace cuda_on_host

CUDA_ON_HOST_UNCHECKED inline size_t __cvta_generic_to_shared(const void* address) {
  return cuda_on_host::shared_window(address, __builtin_return_address(0));
}
