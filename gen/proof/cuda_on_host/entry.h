// How the runtime enters a kernel: arguments come as addresses, unpacking them is not the kernel's doing.
#pragma once

namespace cuda_on_host {

template <class T>
constexpr bool is_pointer = false;
template <class T>
constexpr bool is_pointer<T*> = true;
template <class T>
constexpr bool is_floating = false;
template <>
inline constexpr bool is_floating<float> = true;
template <>
inline constexpr bool is_floating<double> = true;

// What a kernel takes, a letter and a digit a parameter: p8 pointer, f4 float, i8 long long, u4 unsigned, s2 a class.
template <class... Parameters>
struct Signature {
  char text[2 * sizeof...(Parameters) + 1];
};

template <class T>
constexpr char letter() {
  if (is_pointer<T>) return 'p';
  if (is_floating<T>) return 'f';
  if (__is_class(T)) return 's';
  return T(-1) < T(0) ? 'i' : 'u';
}
template <class T>
constexpr char parameter_letter() {
  if constexpr (is_pointer<T> || __is_class(T)) {
    return is_pointer<T> ? 'p' : 's';
  } else {
    return letter<T>();
  }
}

template <class... Parameters>
constexpr Signature<Parameters...> signature(void (*)(Parameters...)) {
  Signature<Parameters...> written{};
  int place = 0;
  ((written.text[place++] = parameter_letter<Parameters>(), written.text[place++] = char('0' + sizeof(Parameters))),
   ...);
  return written;
}

template <int... numbers>
struct Numbers {};

template <class... Parameters, int... numbers>
CUDA_ON_HOST_UNCHECKED void unpack(void (*kernel)(Parameters...), void** arguments, Numbers<numbers...>) {
  kernel(*static_cast<Parameters*>(arguments[numbers])...);
}
template <class... Parameters>
CUDA_ON_HOST_UNCHECKED void enter(void (*kernel)(Parameters...), void** arguments) {
  unpack(kernel, arguments, Numbers<__integer_pack(sizeof...(Parameters))...>{});
}

}  // namespace cuda_on_host

// Slot and number name the pair of symbols: a kernel's own name may stand in several translation units.
#define CUDA_ON_HOST_ENTRY(label, kernel)                                                                         \
  extern "C" __attribute__((visibility("default"))) CUDA_ON_HOST_UNCHECKED void enter_##label(void** arguments) { \
    cuda_on_host::enter(kernel, arguments);                                                                       \
  }                                                                                                               \
  extern "C" __attribute__((visibility("default"))) const char* signature_##label() {                             \
    static constexpr auto written = cuda_on_host::signature(kernel);                                              \
    return written.text;                                                                                          \
  }

// The threads of a block that a kernel is made for.
#define CUDA_ON_HOST_BOUNDS(label, threads) \
  extern "C" __attribute__((visibility("default"))) int bounds_##label() { return threads; }

// Blocks along an axis of the clusters that a kernel is made for.
#define CUDA_ON_HOST_CLUSTER(label, ...)                                                                   \
  extern "C" __attribute__((visibility("default"))) CUDA_ON_HOST_UNCHECKED int cluster_##label(int axis) { \
    const int given[3] = {__VA_ARGS__};                                                                    \
    return given[axis] > 0 ? given[axis] : 1;                                                              \
  }
