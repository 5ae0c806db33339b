// stencil_heat_de794a2b_f32__naive_x32_y8_u1
//
// Each cell of rows x cols becomes the weighted sum of 5 cells around it, steps times; outside
// lies 0. Pitches count cells from row to row.
// Every thread computes cells of one column, a row at a time, straight from global memory.
//
// Let:      tiles_down = (rows + 7) / 8
// Let:      tiles_across = (cols + 31) / 32
// Launch:   <<<tiles_down * tiles_across, dim3(32, 8, 1)>>>(in, out, rows, cols, in_pitch,
//           out_pitch, tiles_across), min(steps, 1) * (steps % 2) times; then in and out change
//           places; then out and spare change places
// Launch:   <<<tiles_down * tiles_across, dim3(32, 8, 1)>>>(in, spare, rows, cols, in_pitch,
//           out_pitch, tiles_across), min(steps, 1) * (1 - (steps % 2)) times; then in and spare
//           change places
// Launch:   <<<tiles_down * tiles_across, dim3(32, 8, 1)>>>(in, out, rows, cols, out_pitch,
//           out_pitch, tiles_across), max(steps, 1) - 1 times; then in and out change places
// Launch:   .._copy <<<((rows * cols) + 255) / 256, 256>>>(in, out, rows, cols, in_pitch,
//           out_pitch), 1 - min(steps, 1) times
// Scratch:  spare, ((rows * out_pitch) * 4) * (min(max(steps, 1), 2) - 1) bytes
// Spec:     {"boundary": "constant", "cval": 0.0, "dtype": "f32", "shape": [3, 3], "weights":
//           [0.0, 0.125, 0.0, 0.125, 0.5, 0.125, 0.0, 0.125, 0.0], "word": "heat"}
// Config:   {"block_x": 32, "block_y": 8, "unroll": 1}
// Template: stencil/naive.cu.jinja, with its partials sha256 2991452057b034b2
//
// Written by gen: change the template, not this file.

constexpr int kBlockX = 32;  // threads along a row
constexpr int kBlockY = 8;  // threads down the rows
constexpr int kUnroll = 1;  // rows of cells each thread computes
constexpr int kThreadsPerBlock = kBlockX * kBlockY;
constexpr int kHigh = 3, kWide = 3;  // extents of the weights
constexpr int kUp = 1, kLeft = 1;  // how many of them come before the cell
constexpr int kDown = kHigh - 1 - kUp, kRight = kWide - 1 - kLeft;
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

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
  const long long first_row = tile_row * (kBlockY * kUnroll) + threadIdx.y;
  const long long col = tile_col * kBlockX + threadIdx.x;
  if (col >= cols) return;

  const auto cell = [=](long long row, long long col) {
    return in[row * in_pitch + col];
  };
  const auto cell_or_outside = [=](long long row, long long col) {
    if (row < 0 || row >= rows) return 0.0f;
    if (col < 0 || col >= cols) return 0.0f;
    return cell(row, col);
  };
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const long long row = first_row + u * kBlockY;
    if (row >= rows) return;
    const bool rows_inside = kUp <= row && row < rows - kDown;
    const bool cols_inside = kLeft <= col && col < cols - kRight;
    float sum = 0.0f;
    if (rows_inside && cols_inside) {
#pragma unroll
      for (int y = 0; y < kHigh; ++y) {
#pragma unroll
        for (int x = 0; x < kWide; ++x) {
          if (kWeights[y][x] == 0.0f) continue;  // reads nothing
          const float weight = kWeights[y][x];
          sum = fmaf(weight, cell(row + y - kUp, col + x - kLeft), sum);
        }
      }
    } else {
#pragma unroll
      for (int y = 0; y < kHigh; ++y) {
#pragma unroll
        for (int x = 0; x < kWide; ++x) {
          if (kWeights[y][x] == 0.0f) continue;  // reads nothing
          const float weight = kWeights[y][x];
          sum = fmaf(weight, cell_or_outside(row + y - kUp, col + x - kLeft), sum);
        }
      }
    }
    out[row * out_pitch + col] = sum;
  }
}

// No step at all: every cell as it is.
extern "C" __global__ void __launch_bounds__(256)
    stencil_heat_de794a2b_f32__naive_x32_y8_u1_copy(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows * cols) out[i / cols * out_pitch + i % cols] = in[i / cols * in_pitch + i % cols];
}
