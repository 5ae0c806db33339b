// stencil_heat_de794a2b_f32__naive_x64_y2_u2
//
// Each cell of rows x cols becomes the weighted sum of 5 cells around it; outside lies 0. Pitches
// count cells from row to row.
// Every thread computes cells of one column, a row at a time, straight from global memory.
//
// Launch:   <<<((rows + 3) / 4) * ((cols + 63) / 64), dim3(64, 2, 1)>>>(in, out, rows, cols,
//           in_pitch, out_pitch, (cols + 63) / 64)
// Spec:     {"boundary": "constant", "cval": 0.0, "dtype": "f32", "shape": [3, 3], "weights":
//           [0.0, 0.125, 0.0, 0.125, 0.5, 0.125, 0.0, 0.125, 0.0], "word": "heat"}
// Config:   {"block_x": 64, "block_y": 2, "unroll": 2}
// Template: stencil/naive.cu.jinja, with its partials sha256 cf0a77f7e164aedd
//
// Written by gen: change the template, not this file.

constexpr int kBlockX = 64;  // threads along a row
constexpr int kBlockY = 2;  // threads down the rows
constexpr int kUnroll = 2;  // rows of cells each thread computes
constexpr int kThreadsPerBlock = kBlockX * kBlockY;
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");

// tiles_across is the number of blocks along a row.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    stencil_heat_de794a2b_f32__naive_x64_y2_u2(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_across) {
  const long long tile_row = blockIdx.x / tiles_across;
  const long long tile_col = blockIdx.x % tiles_across;
  const long long first_row = tile_row * (kBlockY * kUnroll) + threadIdx.y;
  const long long col = tile_col * kBlockX + threadIdx.x;
  if (col >= cols) return;

  const auto cell = [=](long long row, long long col) {
    const bool inside = 0 <= row && row < rows && 0 <= col && col < cols;
    return inside ? in[row * in_pitch + col] : 0.0f;
  };
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const long long row = first_row + u * kBlockY;
    if (row >= rows) return;
    float sum = 0.0f;
    sum = fmaf(0.125f, cell(row - 1, col), sum);
    sum = fmaf(0.125f, cell(row, col - 1), sum);
    sum = fmaf(0.5f, cell(row, col), sum);
    sum = fmaf(0.125f, cell(row, col + 1), sum);
    sum = fmaf(0.125f, cell(row + 1, col), sum);
    out[row * out_pitch + col] = sum;
  }
}
