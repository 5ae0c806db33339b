// What a stencil must give, in double, and how far a contender may be off: nobody tuned it. The macros in capitals
// and those that begin with k are defined above, where this text is put together.

#ifdef GEN_BEGIN
extern "C" __global__ void gen_exact(const ELEMENT* in, double* value, double* off, long long cells) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= cells) return;
  value[i] = static_cast<NUMBER>(in[i]);
  off[i] = 0;
}
#endif

#ifdef GEN_STEP
// One thread a cell; blocks lie along the last axis and over the rows of all others.
extern "C" __global__ void gen_exact(
    const double* value, const double* off, double* next_value, double* next_off, long long rows,
    long long cols) {
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
  const long long own = row * cols + col;
#pragma unroll
  for (int axis = 0; axis < kDim; ++axis) {
    if (kFrozen && (cell[axis] < kRadius || cell[axis] >= extents[axis] - kRadius)) {
      next_value[own] = value[own];
      next_off[own] = off[own];
      return;
    }
  }
  double sum = 0, magnitude = 0, passed_on = 0;
#pragma unroll
  for (int tap = 0; tap < kTaps; ++tap) {
    long long from = 0;
#pragma unroll
    for (int axis = 0; axis < kDim; ++axis) {
      int place = cell[axis] + offsets[tap][axis];
      if (!kFrozen) place += place < 0 ? extents[axis] : place >= extents[axis] ? -extents[axis] : 0;
      from = from * extents[axis] + place;
    }
    const double there = weights[tap] * value[from];
    sum += there;
    magnitude += there < 0 ? -there : there;
    passed_on += weights[tap] * off[from];  // no weight is negative
  }
  next_value[own] = sum;
  next_off[own] = passed_on + kRelative * (magnitude + passed_on) + kAbsolute;
}
#endif
