// CUB's device-wide reductions behind one C function for each kind, for one operator and type.
// The build defines GEN_IN, GEN_ACCUMULATOR, GEN_OUT and one of GEN_SUM, GEN_MIN, GEN_MAX,
// GEN_ARGMAX, GEN_ARGMIN.
#include <cstdint>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_segmented_reduce.cuh>
#include <cub/version.cuh>
#include <cuda/functional>
#include <cuda/std/functional>
#include <cuda/std/limits>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

using In = GEN_IN;
using Accumulator = GEN_ACCUMULATOR;
using Out = GEN_OUT;
using Limits = cuda::std::numeric_limits<Accumulator>;

#if defined(GEN_SUM)
using Operator = cuda::std::plus<Accumulator>;
static Accumulator identity() { return Accumulator(0); }
#elif defined(GEN_MIN)
using Operator = cuda::minimum<Accumulator>;
static Accumulator identity() { return Limits::has_infinity ? Limits::infinity() : Limits::max(); }
#elif defined(GEN_MAX)
using Operator = cuda::maximum<Accumulator>;
static Accumulator identity() { return Limits::has_infinity ? -Limits::infinity() : Limits::lowest(); }
#endif

extern "C" int gen_cub_version() { return CUB_VERSION; }

#if defined(GEN_ARGMAX) || defined(GEN_ARGMIN)
// The extreme value goes to the 16 bytes before the index.
extern "C" int gen_cub_reduce(
    void* temporary, size_t* bytes, const void* in, void* out, long long n, void* stream) {
  auto* value = static_cast<In*>(out);
  auto* index = reinterpret_cast<cuda::std::int64_t*>(static_cast<char*>(out) + 16);
#if defined(GEN_ARGMAX)
  return cub::DeviceReduce::ArgMax(
      temporary, *bytes, static_cast<const In*>(in), value, index, static_cast<cuda::std::int64_t>(n),
      static_cast<cudaStream_t>(stream));
#else
  return cub::DeviceReduce::ArgMin(
      temporary, *bytes, static_cast<const In*>(in), value, index, static_cast<cuda::std::int64_t>(n),
      static_cast<cudaStream_t>(stream));
#endif
}
#else
extern "C" int gen_cub_reduce(
    void* temporary, size_t* bytes, const void* in, void* out, long long n, void* stream) {
  return cub::DeviceReduce::Reduce(
      temporary, *bytes, static_cast<const In*>(in), static_cast<Out*>(out), n, Operator{}, identity(),
      static_cast<cudaStream_t>(stream));
}

struct RowStart {
  long long cols;
  __host__ __device__ long long operator()(long long row) const { return row * cols; }
};

extern "C" int gen_cub_rows(
    void* temporary, size_t* bytes, const void* in, void* out, long long rows, long long cols,
    void* stream) {
#if CUB_VERSION >= 300200
  return cub::DeviceSegmentedReduce::Reduce(
      temporary, *bytes, static_cast<const In*>(in), static_cast<Out*>(out), rows, static_cast<int>(cols),
      Operator{}, identity(), static_cast<cudaStream_t>(stream));
#else
  const auto starts = thrust::make_transform_iterator(thrust::make_counting_iterator(0ll), RowStart{cols});
  return cub::DeviceSegmentedReduce::Reduce(
      temporary, *bytes, static_cast<const In*>(in), static_cast<Out*>(out), rows, starts, starts + 1,
      Operator{}, identity(), static_cast<cudaStream_t>(stream));
#endif
}
#endif
