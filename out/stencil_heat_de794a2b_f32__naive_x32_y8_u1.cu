// stencil_heat_de794a2b_f32__naive_x32_y8_u1
//
// Each cell of rows x cols becomes the weighted sum of 5 cells around it, steps times; outside
// lies 0. Pitches count cells from row to row.
// Every thread computes cells of one column, straight from global memory. A cell that several of
// them read is loaded once.
//
// Let:      tiles_down = (rows + 7) / 8
// Let:      tiles_across = (cols + 31) / 32
// Let:      blocks = tiles_down * tiles_across
// Launch:   <<<blocks, dim3(32, 8, 1)>>>(in, out, rows, cols, in_pitch, out_pitch, tiles_across),
//           min(steps, 1) * (steps % 2) times; then in and out change places; then out and spare
//           change places
// Launch:   <<<blocks, dim3(32, 8, 1)>>>(in, spare, rows, cols, in_pitch, out_pitch,
//           tiles_across), min(steps, 1) * (1 - steps % 2) times; then in and spare change places
// Launch:   <<<blocks, dim3(32, 8, 1)>>>(in, out, rows, cols, out_pitch, out_pitch, tiles_across),
//           steps - min(steps, 1) times; then in and out change places
// Launch:   .._copy <<<(rows * cols + 255) / 256, 256>>>(in, out, rows, cols, in_pitch,
//           out_pitch), 1 - min(steps, 1) times
// Scratch:  spare, rows * out_pitch * 4 * (min(max(steps, 1), 2) - 1) bytes
// Spec:     {"boundary": "constant", "cval": 0.0, "dtype": "f32", "shape": [3, 3], "weights":
//           [0.0, 0.125, 0.0, 0.125, 0.5, 0.125, 0.0, 0.125, 0.0], "word": "heat"}
// Config:   {"block_x": 32, "block_y": 8, "unroll": 1}
// Template: stencil/naive.cu.jinja, with its partials sha256 e1961631f302e36e
//
// Written by gen: change the template, not this file.

namespace stencil_heat_de794a2b_f32__naive_x32_y8_u1 {

constexpr int kBlockX = 32;  // threads along a row
constexpr int kBlockY = 8;  // threads down the rows
constexpr int kUnroll = 1;  // rows of cells that each thread computes
constexpr int kThreadsPerBlock = kBlockX * kBlockY;
constexpr int kHigh = 3, kWide = 3;  // extents of the array of weights
constexpr int kUp = 1, kLeft = 1;  // how many of the weights lie before the cell
constexpr int kDown = kHigh - 1 - kUp, kRight = kWide - 1 - kLeft;
constexpr int kRowsRead = kUnroll + kHigh - 1;  // rows that a thread reads to compute its own
static_assert(kDown >= 0 && kRight >= 0, "the cell lies among its neighbours");
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

// The place, or a negative number where it lies outside.
__device__ __forceinline__ long long none_outside(long long i, long long n) {
  return i < n ? i : -1;
}

// tiles_across is the number of blocks along a row.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    stencil_heat_de794a2b_f32__naive_x32_y8_u1(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_across) {
  static constexpr float kWeights[kHigh][kWide] = {
      {0.0f, 0.125f, 0.0f},
      {0.125f, 0.5f, 0.125f},
      {0.0f, 0.125f, 0.0f},
  };
  const long long tile_row = blockIdx.x / tiles_across;
  const long long tile_col = blockIdx.x % tiles_across;
  const long long first_row = (tile_row * kBlockY + threadIdx.y) * kUnroll;
  const long long left = tile_col * kBlockX;
  const long long col = left + threadIdx.x;
  if (col >= cols || first_row >= rows) return;

  float sum[kUnroll] = {};
  // Whether all cells that this thread and its neighbours in the block read lie inside.
  const bool inner = kUp <= first_row && first_row + kUnroll + kDown <= rows &&
                     kLeft <= left && left + kBlockX + kRight <= cols;
  if (inner) {
    const auto cell = [=](int j, int x) {
      const long long row = first_row + j - kUp;
      return in[row * in_pitch + col + x - kLeft];
    };
#pragma unroll
    for (int j = 0; j < kRowsRead; ++j) {
#pragma unroll
      for (int x = 0; x < kWide; ++x) {
        bool is_read = false;
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          is_read |= 0 <= j - u && j - u < kHigh && kWeights[j - u][x] != 0.0f;
        }
        if (!is_read) continue;
        const float near = cell(j, x);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int y = j - u;  // the row of weights for the cell of row u
          if (y < 0 || y >= kHigh || kWeights[y][x] == 0.0f) continue;
          sum[u] = fmaf(kWeights[y][x], near, sum[u]);
        }
      }
    }
  } else {
    // The offset of each row and column that is read, computed before any cell is
    // loaded; negative where the cell is the constant.
    long long row_of[kRowsRead], col_of[kWide];
#pragma unroll
    for (int j = 0; j < kRowsRead; ++j) {
      row_of[j] = none_outside(first_row + j - kUp, rows) * in_pitch;
    }
#pragma unroll
    for (int x = 0; x < kWide; ++x) col_of[x] = none_outside(col + x - kLeft, cols);
    const auto cell = [&](int j, int x) {
      if ((row_of[j] | col_of[x]) < 0) return 0.0f;
      return in[row_of[j] + col_of[x]];
    };
#pragma unroll
    for (int j = 0; j < kRowsRead; ++j) {
#pragma unroll
      for (int x = 0; x < kWide; ++x) {
        bool is_read = false;
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          is_read |= 0 <= j - u && j - u < kHigh && kWeights[j - u][x] != 0.0f;
        }
        if (!is_read) continue;
        const float near = cell(j, x);
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
          const int y = j - u;  // the row of weights for the cell of row u
          if (y < 0 || y >= kHigh || kWeights[y][x] == 0.0f) continue;
          sum[u] = fmaf(kWeights[y][x], near, sum[u]);
        }
      }
    }
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const long long row = first_row + u;
    if (row >= rows) return;
    const long long own = row * out_pitch + col;
    out[own] = sum[u];
  }
}

// For no time step at all: copies every cell.
extern "C" __global__ void __launch_bounds__(256)
    stencil_heat_de794a2b_f32__naive_x32_y8_u1_copy(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows * cols) out[i / cols * out_pitch + i % cols] = in[i / cols * in_pitch + i % cols];
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The bytes of spare, scratch memory for launch().
inline long long spare_bytes(long long rows, long long out_pitch, long long steps) {
  return rows * out_pitch * 4 * (min(max(steps, 1LL), 2LL) - 1);
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* in, float* out, void* spare, long long rows, long long cols, long long in_pitch,
    long long out_pitch, long long steps, cudaStream_t stream) {
  const long long tiles_down = (rows + 7) / 8;
  const long long tiles_across = (cols + 31) / 32;
  const long long blocks = tiles_down * tiles_across;
  const long long blocks_copy = (rows * cols + 255) / 256;
  float* now_in = const_cast<float*>(in);  // it is only read
  float* now_out = out;
  float* now_spare = static_cast<float*>(spare);
  for (long long time = 0; time < min(steps, 1LL) * (steps % 2); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__naive_x32_y8_u1<<<blocks, dim3(32, 8), 0, stream>>>(
          now_in, now_out, rows, cols, in_pitch, out_pitch, tiles_across);
    }
    std::swap(now_in, now_out);
    std::swap(now_out, now_spare);
  }
  for (long long time = 0; time < min(steps, 1LL) * (1 - steps % 2); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__naive_x32_y8_u1<<<blocks, dim3(32, 8), 0, stream>>>(
          now_in, now_spare, rows, cols, in_pitch, out_pitch, tiles_across);
    }
    std::swap(now_in, now_spare);
  }
  for (long long time = 0; time < steps - min(steps, 1LL); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__naive_x32_y8_u1<<<blocks, dim3(32, 8), 0, stream>>>(
          now_in, now_out, rows, cols, out_pitch, out_pitch, tiles_across);
    }
    std::swap(now_in, now_out);
  }
  for (long long time = 0; time < 1 - min(steps, 1LL); ++time) {
    if (blocks_copy > 0) {
      stencil_heat_de794a2b_f32__naive_x32_y8_u1_copy<<<blocks_copy, 256, 0, stream>>>(
          now_in, now_out, rows, cols, in_pitch, out_pitch);
    }
  }
  return cudaGetLastError();
}

#endif

}  // namespace stencil_heat_de794a2b_f32__naive_x32_y8_u1
