// stencil_heat_de794a2b_f32__stream_u2_x1_y4
//
// Each cell of rows x cols becomes the weighted sum of 5 cells around it, steps times; outside
// lies 0. Pitches count cells from row to row.
// Each warp loads all rows of its cells as vectors of 16 bytes; rows stay in registers, neighbours
// come by shuffles.
//
// Let:      tiles_down = (rows + 7) / 8
// Let:      tiles_across = (cols + 127) / 128
// Let:      blocks = tiles_down * tiles_across
// Launch:   <<<blocks, 128>>>(in, out, rows, cols, in_pitch, out_pitch, tiles_across), min(steps,
//           1) * (steps % 2) times; then in and out change places; then out and spare change
//           places
// Launch:   <<<blocks, 128>>>(in, spare, rows, cols, in_pitch, out_pitch, tiles_across),
//           min(steps, 1) * (1 - steps % 2) times; then in and spare change places
// Launch:   <<<blocks, 128>>>(in, out, rows, cols, out_pitch, out_pitch, tiles_across), steps -
//           min(steps, 1) times; then in and out change places
// Launch:   .._copy <<<(rows * cols + 255) / 256, 256>>>(in, out, rows, cols, in_pitch,
//           out_pitch), 1 - min(steps, 1) times
// Scratch:  spare, rows * out_pitch * 4 * (min(max(steps, 1), 2) - 1) bytes
// Spec:     {"boundary": "constant", "cval": 0.0, "dtype": "f32", "shape": [3, 3], "weights":
//           [0.0, 0.125, 0.0, 0.125, 0.5, 0.125, 0.0, 0.125, 0.0], "word": "heat"}
// Config:   {"rows": 2, "warps_across": 1, "warps_down": 4}
// Template: stencil/stream.cu.jinja, with its partials sha256 2443f8f3aade4fda
//
// Written by gen: change the template, not this file.

namespace stencil_heat_de794a2b_f32__stream_u2_x1_y4 {

constexpr int kRows = 2;  // rows of cells that a warp computes
constexpr int kWarpsAcross = 1, kWarpsDown = 4;  // warps of a block
constexpr int kThreadsPerBlock = 32 * kWarpsAcross * kWarpsDown;
constexpr int kUp = 1, kDown = 1;  // how far the weights reach from the cell
constexpr int kLeft = 1, kRight = 1;
constexpr int kHigh = kUp + kDown + 1, kWide = kLeft + kRight + 1;
constexpr int kSide = kLeft > kRight ? kLeft : kRight;  // neighbours that are read on each side
constexpr int kCells = 16 / sizeof(float);  // cells of a vector
constexpr int kWarpCols = 32 * kCells;
constexpr int kLoaded = kRows + kHigh - 1;  // rows that a warp loads
constexpr int kAhead = 4;  // rows in flight
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kThreadsPerBlock <= 1024, "a block has at most 1024 threads");
static_assert(kAhead <= kLoaded, "no more rows can be on their way than there are");
static_assert(kSide <= 16 * kCells, "what the first lanes load must not be what the last ones do");

// The nearest cell inside: a a a | a b c d | d d d.
__device__ __forceinline__ long long nearest(long long i, long long n) {
  if (i < 0) return 0;
  return i < n ? i : n - 1;
}

// Writes the cells of a vector as numbers to to[first] and on.
template <int kNumbers>
__device__ __forceinline__ void unpack(float (&to)[kNumbers], int first, uint4 vector) {
  to[first] = __uint_as_float(vector.x);
  to[first + 1] = __uint_as_float(vector.y);
  to[first + 2] = __uint_as_float(vector.z);
  to[first + 3] = __uint_as_float(vector.w);
}

// The vector of cells made of the numbers from[first] and on.
template <int kNumbers>
__device__ __forceinline__ uint4 packed(const float (&from)[kNumbers], int first) {
  return make_uint4(
      __float_as_uint(from[first]), __float_as_uint(from[first + 1]),
      __float_as_uint(from[first + 2]), __float_as_uint(from[first + 3]));
}

// Writes a vector by one store.
__device__ __forceinline__ void put(float* to, uint4 vector) {
  asm volatile("st.global.v4.u32 [%0], { %1, %2, %3, %4 };" ::"l"(to), "r"(vector.x),
               "r"(vector.y), "r"(vector.z), "r"(vector.w)
               : "memory");
}

// The new value of a cell, wherever it lies.
__device__ __forceinline__ float cell_anywhere(
    const float* __restrict__ in, long long rows, long long cols, long long in_pitch,
    long long row, long long col) {
  static constexpr float kWeights[kHigh][kWide] = {
      {0.0f, 0.125f, 0.0f},
      {0.125f, 0.5f, 0.125f},
      {0.0f, 0.125f, 0.0f},
  };
  const auto cell = [=](long long row, long long col) {
    if (row < 0 || row >= rows) return 0.0f;
    if (col < 0 || col >= cols) return 0.0f;
    return in[row * in_pitch + col];
  };
  float sum = 0.0f;
#pragma unroll 1
  for (int y = 0; y < kHigh; ++y) {  // not unrolled: few warps come here
#pragma unroll
    for (int x = 0; x < kWide; ++x) {
      if (kWeights[y][x] == 0.0f) continue;  // a weight of 0 reads no cell
      sum = fmaf(kWeights[y][x], cell(row + y - kUp, col + x - kLeft), sum);
    }
  }
  return sum;
}

// Computes the cells of a warp by vectors. kEdge: some cells that are read may lie outside.
template <bool kEdge>
__device__ __forceinline__ void compute(
    const float* __restrict__ in, float* __restrict__ out, long long rows, long long cols,
    long long in_pitch, long long out_pitch, long long first_row, long long first_col) {
  static constexpr float kWeights[kHigh][kWide] = {
      {0.0f, 0.125f, 0.0f},
      {0.125f, 0.5f, 0.125f},
      {0.0f, 0.125f, 0.0f},
  };
  // How many neighbours on each side are read, for each row.
  static constexpr int kSides[kLoaded] = {0, 1, 1, 0};
  const int lane = threadIdx.x % 32;
  const long long own_col = first_col + lane * kCells;
  uint4 vectors[kAhead];
  float beside[kAhead][kSide + 1];  // neighbours of the first and the last lanes
  const auto load = [&](int y) {
    const long long row = first_row + y - kUp;
    const long long from = kEdge ? nearest(row, rows) : row;
    vectors[y % kAhead] = *reinterpret_cast<const uint4*>(in + from * in_pitch + own_col);
#pragma unroll
    for (int d = 1; d <= kSides[y]; ++d) {
      const bool is_first = lane * kCells < d;
      if (is_first || (31 - lane) * kCells < d) {
        const int there = is_first ? -d : kCells - 1 + d;
        const long long col = own_col + there;
        const long long from_col = kEdge ? nearest(col, cols) : col;
        beside[y % kAhead][d] = in[from * in_pitch + from_col];
        if (kEdge && from_col != col) beside[y % kAhead][d] = 0.0f;
      }
    }
  };
#pragma unroll
  for (int y = 0; y < kAhead; ++y) load(y);
  float window[kLoaded][kSide + kCells + kSide];
#pragma unroll
  for (int y = 0; y < kLoaded; ++y) {
    unpack(window[y], kSide, vectors[y % kAhead]);
#pragma unroll
    for (int d = 1; d <= kSides[y]; ++d) {
      const int lanes = (d + kCells - 1) / kCells;
      const float left =
          __shfl_up_sync(kAllLanes, window[y][kSide + lanes * kCells - d], lanes);
      const float right = __shfl_down_sync(
          kAllLanes, window[y][kSide + kCells - 1 + d - lanes * kCells], lanes);
      window[y][kSide - d] = lane * kCells < d ? beside[y % kAhead][d] : left;
      window[y][kSide + kCells - 1 + d] = (31 - lane) * kCells < d ? beside[y % kAhead][d] : right;
    }
    if (y + kAhead < kLoaded) {
      if (kEdge) asm volatile("" ::: "memory");  // the compiler must not load all rows at once
      load(y + kAhead);
    }
    if (kEdge && (first_row + y < kUp || first_row + y - kUp >= rows)) {
#pragma unroll
      for (int i = 0; i < kSide + kCells + kSide; ++i) window[y][i] = 0.0f;
    }
    if (y < kHigh - 1) continue;
    float sum[kCells] = {};
#pragma unroll
    for (int dy = 0; dy < kHigh; ++dy) {
#pragma unroll
      for (int dx = 0; dx < kWide; ++dx) {
        if (kWeights[dy][dx] == 0.0f) continue;  // a weight of 0 reads no cell
#pragma unroll
        for (int i = 0; i < kCells; ++i) {
          sum[i] = fmaf(
              kWeights[dy][dx], window[y - kHigh + 1 + dy][kSide - kLeft + dx + i], sum[i]);
        }
      }
    }
    const long long row = first_row + y - kHigh + 1;
    if (!kEdge || row < rows) {
      put(out + row * out_pitch + own_col, packed(sum, 0));
    }
  }
}

// tiles_across is the number of blocks along a row.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    stencil_heat_de794a2b_f32__stream_u2_x1_y4(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned tiles_across) {
  const int warp = threadIdx.x / 32;
  // The last row of blocks comes first, since like the first row it takes longer.
  const unsigned down = gridDim.x / tiles_across;
  const long long tile_row = (blockIdx.x / tiles_across + down - 1) % down;
  const long long tile_col = blockIdx.x % tiles_across;
  const long long first_row = (tile_row * kWarpsDown + warp / kWarpsAcross) * kRows;
  const long long first_col = (tile_col * kWarpsAcross + warp % kWarpsAcross) * kWarpCols;
  const auto aligned = [](const void* array, long long pitch) {
    return (reinterpret_cast<unsigned long long>(array) | pitch * sizeof(float)) % 16 == 0;
  };
  const bool vectors = first_col + kWarpCols <= cols && aligned(in, in_pitch) &&
                       aligned(out, out_pitch);
  constexpr int kFarUp = kUp, kFarDown = kDown, kFarLeft = kSide, kFarRight = kSide;
  // Rows are read to the same distance on both sides.
  const bool inner = kFarUp <= first_row && first_row + kRows + kFarDown <= rows &&
                     kFarLeft <= first_col && first_col + kWarpCols + kFarRight <= cols;
  if (vectors && inner) {
    compute<false>(in, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
  } else if (vectors) {
    compute<true>(in, out, rows, cols, in_pitch, out_pitch, first_row, first_col);
  } else {
#pragma unroll 1
    for (long long row = first_row; row < min(first_row + kRows, rows); ++row) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const long long col = first_col + i * 32 + threadIdx.x % 32;
        if (col < cols) {
          out[row * out_pitch + col] = cell_anywhere(in, rows, cols, in_pitch, row, col);
        }
      }
    }
  }
}

// For no time step at all: copies every cell.
extern "C" __global__ void __launch_bounds__(256)
    stencil_heat_de794a2b_f32__stream_u2_x1_y4_copy(
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
  const long long tiles_across = (cols + 127) / 128;
  const long long blocks = tiles_down * tiles_across;
  const long long blocks_copy = (rows * cols + 255) / 256;
  float* now_in = const_cast<float*>(in);  // it is only read
  float* now_out = out;
  float* now_spare = static_cast<float*>(spare);
  for (long long time = 0; time < min(steps, 1LL) * (steps % 2); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__stream_u2_x1_y4<<<blocks, 128, 0, stream>>>(
          now_in, now_out, rows, cols, in_pitch, out_pitch, tiles_across);
    }
    std::swap(now_in, now_out);
    std::swap(now_out, now_spare);
  }
  for (long long time = 0; time < min(steps, 1LL) * (1 - steps % 2); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__stream_u2_x1_y4<<<blocks, 128, 0, stream>>>(
          now_in, now_spare, rows, cols, in_pitch, out_pitch, tiles_across);
    }
    std::swap(now_in, now_spare);
  }
  for (long long time = 0; time < steps - min(steps, 1LL); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__stream_u2_x1_y4<<<blocks, 128, 0, stream>>>(
          now_in, now_out, rows, cols, out_pitch, out_pitch, tiles_across);
    }
    std::swap(now_in, now_out);
  }
  for (long long time = 0; time < 1 - min(steps, 1LL); ++time) {
    if (blocks_copy > 0) {
      stencil_heat_de794a2b_f32__stream_u2_x1_y4_copy<<<blocks_copy, 256, 0, stream>>>(
          now_in, now_out, rows, cols, in_pitch, out_pitch);
    }
  }
  return cudaGetLastError();
}

#endif

}  // namespace stencil_heat_de794a2b_f32__stream_u2_x1_y4
