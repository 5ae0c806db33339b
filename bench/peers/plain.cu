// What anybody writes first: one thread an element, no vectors, no staging, no tuning but the block.
// The text before this says In, Accumulator, Out, and of a stencil kDim, kTaps, kWeights, kOffsets.

#ifdef GEN_SUM
// Each block adds up `chunk` elements; the last of them may be cut short by the end of the array.
extern "C" __global__ void plain(const In* in, Out* out, long long n, long long chunk) {
  __shared__ Accumulator partial[1024];
  const long long end = min(n, (blockIdx.x + 1) * chunk);
  Accumulator sum = 0;
  for (long long i = blockIdx.x * chunk + threadIdx.x; i < end; i += blockDim.x) {
    sum += static_cast<Accumulator>(in[i]);
  }
  partial[threadIdx.x] = sum;
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<Out>(partial[0]);
}
#endif

#ifdef GEN_COLUMNS
// A thread adds up what lies `inner` elements apart.
extern "C" __global__ void plain(const In* in, Out* out, long long n, long long inner, long long all) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const In* first = in + i / inner * n * inner + i % inner;
  Accumulator sum = 0;
  for (long long k = 0; k < n; ++k) sum += static_cast<Accumulator>(first[k * inner]);
  out[i] = static_cast<Out>(sum);
}
#endif

#ifdef GEN_TRANSPOSE
extern "C" __global__ void plain(const In* in, Out* out, long long rows, long long cols) {
  const long long across = (cols + blockDim.x - 1) / blockDim.x;
  const long long col = blockIdx.x % across * blockDim.x + threadIdx.x;
  const long long row = blockIdx.x / across * blockDim.y + threadIdx.y;
  if (row < rows && col < cols) out[col * rows + row] = in[row * cols + col];
}
#endif

#ifdef GEN_PERMUTE
// One thread an element of the result; kExtents are the result's, kStrides the input's in its order.
extern "C" __global__ void plain(const In* in, Out* out, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  constexpr long long extents[kDim] = {kExtents}, strides[kDim] = {kStrides};
  long long rest = i, from = 0;
#pragma unroll
  for (int axis = kDim - 1; axis >= 0; --axis) {
    from += rest % extents[axis] * strides[axis];
    rest /= extents[axis];
  }
  out[i] = in[from];
}
#endif

#ifdef GEN_SWEEP
// One thread a cell; blocks lie along the last axis and over the rows of all others.
extern "C" __global__ void plain(const In* in, Out* out, long long rows, long long cols) {
  constexpr int extents[kDim] = {kExtents}, offsets[kTaps][kDim] = {kOffsets};
  constexpr double weights[kTaps] = {kWeights};
  const long long across = (cols + blockDim.x - 1) / blockDim.x;
  const long long col = blockIdx.x % across * blockDim.x + threadIdx.x;
  const long long row = blockIdx.x / across * blockDim.y + threadIdx.y;
  if (row >= rows || col >= cols) return;
  int cell[kDim];
  long long rest = row;
  cell[kDim - 1] = static_cast<int>(col);
#pragma unroll
  for (int axis = kDim - 2; axis >= 0; --axis) {
    cell[axis] = static_cast<int>(rest % extents[axis]);
    rest /= extents[axis];
  }
#pragma unroll
  for (int axis = 0; axis < kDim; ++axis) {
    if (kFrozen && (cell[axis] < kRadius || cell[axis] >= extents[axis] - kRadius)) return;
  }
  Accumulator sum = 0;
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    long long from = 0;
#pragma unroll
    for (int axis = 0; axis < kDim; ++axis) {
      int place = cell[axis] + offsets[tap][axis];
      if (!kFrozen) place += place < 0 ? extents[axis] : place >= extents[axis] ? -extents[axis] : 0;
      from = from * extents[axis] + place;
    }
    sum = fma(static_cast<Accumulator>(weights[tap]), static_cast<Accumulator>(in[from]), sum);
  }
  out[row * cols + col] = static_cast<Out>(sum);
}
#endif
