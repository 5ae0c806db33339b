// system_wave_7d72a419_f32__naive_x64_y4
//
// At each cell of rows x cols, steps times: u becomes 1.9375 * u - 0.9375 * v + 0.25 * m *
// laplace(u), v becomes u; cells whose neighbours lie outside stay as they are.
// Every thread computes the new values of all fields at one cell, straight from global memory.
//
// Let:      cells = rows * cols
// Let:      blocks_copy = (cells + 255) / 256
// Let:      tiles_down = (rows + 3) / 4
// Let:      tiles_across = (cols + 63) / 64
// Let:      blocks = tiles_down * tiles_across
// Let:      rest = steps % 3
// Launch:   .._copy <<<blocks_copy, 256>>>(u, u_out, cells), 1 - min(steps, 1) times
// Launch:   .._copy <<<blocks_copy, 256>>>(v, v_out, cells), 1 - min(steps, 1) times
// Launch:   .._copy <<<blocks_copy, 256>>>(u, v_out, cells), 1 - min(max(steps, 1) - min(steps,
//           1), 1) times
// Launch:   <<<blocks, dim3(64, 4, 1)>>>(u, v, m, u_out, rows, cols, tiles_across), 1 -
//           min(max(rest, 1) - min(rest, 1), 1) times; then u and u_out change places; then v and
//           u_out change places; then u_out and u_spare change places
// Launch:   <<<blocks, dim3(64, 4, 1)>>>(u, v, m, v_out, rows, cols, tiles_across), rest / 2
//           times; then u and v_out change places; then v and v_out change places; then v_out and
//           u_spare change places
// Launch:   <<<blocks, dim3(64, 4, 1)>>>(u, v, m, u_spare, rows, cols, tiles_across), min(steps,
//           1) * (1 - min(rest, 1)) times; then u and u_spare change places; then v and u_spare
//           change places; then u_out and v_out change places
// Launch:   <<<blocks, dim3(64, 4, 1)>>>(u, v, m, u_out, rows, cols, tiles_across), min(max(steps,
//           1), 2) - 1 times; then u_out and u change places; then u_out and v change places; then
//           u_out and u_spare change places; then u_out and v_out change places
// Launch:   <<<blocks, dim3(64, 4, 1)>>>(u, v, m, u_out, rows, cols, tiles_across), max(steps, 2)
//           - 2 times; then u_out and u change places; then u_out and v change places
// Scratch:  u_spare, cells * 4 * (min(max(steps, 2), 3) - 2) bytes
// Spec:     {"boundary": "frozen", "cval": 0.0, "dtype": "f32", "ndim": 2, "updates": [["u", ["+",
//           ["-", ["*", 1.9375, "u"], ["*", 0.9375, "v"]], ["*", ["*", 0.25, "m"], {"of": "u",
//           "offsets": [[-1, 0], [0, -1], [0, 0], [0, 1], [1, 0]], "sum": "laplace", "weights":
//           [1.0, 1.0, -4.0, 1.0, 1.0]}]]], ["v", "u"]], "word": "wave"}
// Config:   {"block_x": 64, "block_y": 4}
// Template: system/naive.cu.jinja, with its partials sha256 96925002170ebeb6
//
// Written by gen: change the template, not this file.

namespace system_wave_7d72a419_f32__naive_x64_y4 {

constexpr int kBlockX = 64;  // threads along a row
constexpr int kBlockY = 4;  // threads down the rows
constexpr int kThreadsPerBlock = kBlockX * kBlockY;
// How far away the cells are that any update reads.
constexpr int kUp = 1, kDown = 1;
constexpr int kLeft = 1, kRight = 1;
// How many cells of u at each end are frozen.
constexpr int kUpOfU = 1, kDownOfU = 1;
constexpr int kLeftOfU = 1, kRightOfU = 1;
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

// The nearest cell inside: a a a | a b c d | d d d.
__device__ __forceinline__ long long nearest(long long i, long long n) {
  if (i < 0) return 0;
  return i < n ? i : n - 1;
}

// The cell at a position, or the value that the boundary gives it outside the array.
__device__ __forceinline__ float cell_or_outside(
    const float* __restrict__ cells, long long rows, long long cols,
    long long row, long long col) {
  row = nearest(row, rows);
  col = nearest(col, cols);
  return cells[row * cols + col];
}

template <typename Cells>
__device__ __forceinline__ float laplace(const Cells& cells) {
  float sum = 0.0f;
  sum = fmaf(1.0f, cells(-1, 0), sum);
  sum = fmaf(1.0f, cells(0, -1), sum);
  sum = fmaf(-4.0f, cells(0, 0), sum);
  sum = fmaf(1.0f, cells(0, 1), sum);
  sum = fmaf(1.0f, cells(1, 0), sum);
  return sum;
}

// tiles_across is the number of blocks along a row.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    system_wave_7d72a419_f32__naive_x64_y4(
        const float* __restrict__ u_in,
        const float* __restrict__ v_in,
        const float* __restrict__ m_in,
        float* __restrict__ u_out,
        long long rows, long long cols, unsigned tiles_across) {
  const long long row = static_cast<long long>(blockIdx.x / tiles_across) * kBlockY + threadIdx.y;
  const long long col = static_cast<long long>(blockIdx.x % tiles_across) * kBlockX + threadIdx.x;
  if (row >= rows || col >= cols) return;
  const long long here = row * cols + col;
  const float u = u_in[here];
  const float v = v_in[here];
  const float m = m_in[here];
  float laplace_u;
  const bool inside = kUp <= row && row < rows - kDown &&
                      kLeft <= col && col < cols - kRight;
  if (inside) {
    const auto near_u = [=](int y, int x) {
      return u_in[here + y * cols + x];
    };
    laplace_u = laplace(near_u);
  } else {
    const auto near_u = [=](int y, int x) {
      return cell_or_outside(u_in, rows, cols, row + y, col + x);
    };
    laplace_u = laplace(near_u);
  }

  // u becomes 1.9375 * u - 0.9375 * v + 0.25 * m * laplace(u).
  if (row < kUpOfU || row >= rows - kDownOfU || col < kLeftOfU || col >= cols - kRightOfU) {
    u_out[here] = u_in[here];
  } else {
    u_out[here] = fmaf(0.25f * m, laplace_u, fmaf(-0.9375f, v, 1.9375f * u));
  }
}

// Copies a field, for a call of no step, or of fewer steps than a history has fields.
extern "C" __global__ void __launch_bounds__(256)
    system_wave_7d72a419_f32__naive_x64_y4_copy(
        const float* __restrict__ in, float* __restrict__ out, long long cells) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < cells) out[i] = in[i];
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The bytes of u_spare, scratch memory for launch().
inline long long u_spare_bytes(long long rows, long long cols, long long steps) {
  const long long cells = rows * cols;
  return cells * 4 * (min(max(steps, 2LL), 3LL) - 2);
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* u, const float* v, const float* m, float* u_out, float* v_out, void* u_spare,
    long long rows, long long cols, long long steps, cudaStream_t stream) {
  const long long cells = rows * cols;
  const long long blocks_copy = (cells + 255) / 256;
  const long long tiles_down = (rows + 3) / 4;
  const long long tiles_across = (cols + 63) / 64;
  const long long blocks = tiles_down * tiles_across;
  const long long rest = steps % 3;
  float* now_u = const_cast<float*>(u);  // it is only read
  float* now_u_out = u_out;
  float* now_v = const_cast<float*>(v);  // it is only read
  float* now_v_out = v_out;
  float* now_u_spare = static_cast<float*>(u_spare);
  for (long long time = 0; time < 1 - min(steps, 1LL); ++time) {
    if (blocks_copy > 0) {
      system_wave_7d72a419_f32__naive_x64_y4_copy<<<blocks_copy, 256, 0, stream>>>(
          now_u, now_u_out, cells);
    }
  }
  for (long long time = 0; time < 1 - min(steps, 1LL); ++time) {
    if (blocks_copy > 0) {
      system_wave_7d72a419_f32__naive_x64_y4_copy<<<blocks_copy, 256, 0, stream>>>(
          now_v, now_v_out, cells);
    }
  }
  for (long long time = 0; time < 1 - min(max(steps, 1LL) - min(steps, 1LL), 1LL); ++time) {
    if (blocks_copy > 0) {
      system_wave_7d72a419_f32__naive_x64_y4_copy<<<blocks_copy, 256, 0, stream>>>(
          now_u, now_v_out, cells);
    }
  }
  for (long long time = 0; time < 1 - min(max(rest, 1LL) - min(rest, 1LL), 1LL); ++time) {
    if (blocks > 0) {
      system_wave_7d72a419_f32__naive_x64_y4<<<blocks, dim3(64, 4), 0, stream>>>(
          now_u, now_v, m, now_u_out, rows, cols, tiles_across);
    }
    std::swap(now_u, now_u_out);
    std::swap(now_v, now_u_out);
    std::swap(now_u_out, now_u_spare);
  }
  for (long long time = 0; time < rest / 2; ++time) {
    if (blocks > 0) {
      system_wave_7d72a419_f32__naive_x64_y4<<<blocks, dim3(64, 4), 0, stream>>>(
          now_u, now_v, m, now_v_out, rows, cols, tiles_across);
    }
    std::swap(now_u, now_v_out);
    std::swap(now_v, now_v_out);
    std::swap(now_v_out, now_u_spare);
  }
  for (long long time = 0; time < min(steps, 1LL) * (1 - min(rest, 1LL)); ++time) {
    if (blocks > 0) {
      system_wave_7d72a419_f32__naive_x64_y4<<<blocks, dim3(64, 4), 0, stream>>>(
          now_u, now_v, m, now_u_spare, rows, cols, tiles_across);
    }
    std::swap(now_u, now_u_spare);
    std::swap(now_v, now_u_spare);
    std::swap(now_u_out, now_v_out);
  }
  for (long long time = 0; time < min(max(steps, 1LL), 2LL) - 1; ++time) {
    if (blocks > 0) {
      system_wave_7d72a419_f32__naive_x64_y4<<<blocks, dim3(64, 4), 0, stream>>>(
          now_u, now_v, m, now_u_out, rows, cols, tiles_across);
    }
    std::swap(now_u_out, now_u);
    std::swap(now_u_out, now_v);
    std::swap(now_u_out, now_u_spare);
    std::swap(now_u_out, now_v_out);
  }
  for (long long time = 0; time < max(steps, 2LL) - 2; ++time) {
    if (blocks > 0) {
      system_wave_7d72a419_f32__naive_x64_y4<<<blocks, dim3(64, 4), 0, stream>>>(
          now_u, now_v, m, now_u_out, rows, cols, tiles_across);
    }
    std::swap(now_u_out, now_u);
    std::swap(now_u_out, now_v);
  }
  return cudaGetLastError();
}

#endif

}  // namespace system_wave_7d72a419_f32__naive_x64_y4
