// stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12
//
// Each cell of rows x cols becomes the weighted sum of 5 cells around it, steps times; outside
// lies 0. Pitches count cells from row to row.
// Each warp streams down its columns and takes every row through several time steps. Rows stay in
// registers, and neighbours come by shuffles.
//
// Let:      inner_across = (max(cols, 116) - 116) / 104
// Let:      across = (cols + 103) / 104
// Let:      strips = min(max(min(multiprocessors * 12 / max(inner_across + (across - inner_across)
//           * 3, 1), rows / 24), 1), rows)
// Let:      blocks = strips * (inner_across + (across - inner_across) * 3)
// Let:      full_launches = steps / 12
// Let:      launches = (steps + 11) / 12
// Let:      last_in_pitch = in_pitch * (1 - min(full_launches, 1)) + out_pitch *
//           min(full_launches, 1)
// Launch:   <<<blocks, 32>>>(in, out, rows, cols, in_pitch, out_pitch, strips, inner_across),
//           min(full_launches, 1) * (launches % 2) times; then in and out change places; then out
//           and spare change places
// Launch:   <<<blocks, 32>>>(in, spare, rows, cols, in_pitch, out_pitch, strips, inner_across),
//           min(full_launches, 1) * (1 - launches % 2) times; then in and spare change places
// Launch:   <<<blocks, 32>>>(in, out, rows, cols, out_pitch, out_pitch, strips, inner_across),
//           full_launches - min(full_launches, 1) times; then in and out change places
// Launch:   .._rest <<<blocks, 32>>>(in, out, rows, cols, last_in_pitch, out_pitch, strips,
//           inner_across, steps % 12), min(steps % 12, 1) times
// Launch:   .._copy <<<(rows * cols + 255) / 256, 256>>>(in, out, rows, cols, in_pitch,
//           out_pitch), 1 - min(steps, 1) times
// Scratch:  spare, rows * out_pitch * 4 * (min(max(launches, 1), 2) - 1) bytes
// Spec:     {"boundary": "constant", "cval": 0.0, "dtype": "f32", "shape": [3, 3], "weights":
//           [0.0, 0.125, 0.0, 0.125, 0.5, 0.125, 0.0, 0.125, 0.0], "word": "heat"}
// Config:   {"steps": 12, "vectors": 1, "warps_per_sm": 12, "waves": 1}
// Template: stencil/temporal.cu.jinja, with its partials sha256 3d8973870d0e7200
//
// Written by gen: change the template, not this file.

namespace stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12 {

constexpr int kSteps = 12;  // steps of a launch: each row passes one level for each
constexpr int kVectors = 1;  // neighbouring vectors of 16 bytes that a lane holds
constexpr int kThreadsPerBlock = 32;  // one warp, which spreads evenly over multiprocessors
constexpr int kBlocksPerSm = 12;  // resident blocks of a multiprocessor: bounds registers
constexpr int kUp = 1, kDown = 1;  // how far the weights reach from the cell
constexpr int kLeft = 1, kRight = 1;
constexpr int kVectorCells = 16 / sizeof(float);
constexpr int kCells = kVectors * kVectorCells;  // cells of a lane
constexpr int kHigh = kUp + kDown + 1, kWide = kLeft + kRight + 1;
constexpr int kHeld = kHigh > 1 ? kHigh - 1 : 1;  // rows of unfinished sums
constexpr int kRound = 4;  // rows in flight to shared memory; the loop is unrolled by as many
constexpr int kSide = kLeft > kRight ? kLeft : kRight;  // neighbours that are read on each side
// The halo of the steps on each side, in whole lanes.
constexpr int kHaloLeft = 12, kHaloRight = 12;
constexpr int kOwnCols = 32 * kCells - kHaloLeft - kHaloRight;  // columns that a warp writes
constexpr unsigned kEndStrips = 3;  // strips of a column at the ends, for one elsewhere
constexpr int kEdgeCost = 3;  // inner rows that take as long as one row near an end
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(
    kHaloLeft % kCells == 0 && kHaloRight % kCells == 0,
    "a lane writes all of its columns or none");
static_assert(
    kSteps * kLeft <= kHaloLeft && kSteps * kRight <= kHaloRight,
    "every step uses up as many columns as the weights reach");
static_assert(kOwnCols > 0, "a warp must be wider than what its steps use up");

// The array's extents, and the position of the calling lane.
struct Domain {
  int rows, cols;
  int col;  // the column of the lane's first cell
};

// Whether every row begins at a multiple of a vector's size.
__device__ __forceinline__ bool aligned(const void* array, long long pitch) {
  const unsigned long long address = reinterpret_cast<unsigned long long>(array);
  return (address | pitch * sizeof(float)) % 16 == 0;
}

// Cells beyond the ends are loaded from the nearest row or column, and never used.
__device__ __forceinline__ int clamped(int i, int n) {
  return min(max(i, 0), n - 1);
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

// Begins to copy a vector to shared memory and does not wait. Only this thread reads it there.
__device__ __forceinline__ void copy_ahead(uint4* to, const float* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}

// Copies a cell in the same way.
__device__ __forceinline__ void copy_cell_ahead(float* to, const float* from) {
  const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from),
               "n"(sizeof(float))
               : "memory");
}

// Commits the copies of a row as one group.
__device__ __forceinline__ void end_row_ahead() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for the oldest of the kRound rows in flight.
__device__ __forceinline__ void wait_for_row() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kRound - 1) : "memory");
}

// Waits for all rows in flight: rows that are fetched next may use any slot of the ring.
__device__ __forceinline__ void wait_for_all_rows() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Fetches the lane's cells of a row that lies wholly inside.
__device__ __forceinline__ void fetch_inner(
    uint4 (&to)[kVectors][32], const float* __restrict__ from) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) copy_ahead(&to[v][threadIdx.x % 32], from + v * kVectorCells);
  end_row_ahead();
}

// Fetches the lane's cells of any row, where they may lie outside or be unaligned.
__device__ __forceinline__ void fetch_any(
    uint4 (&to)[kVectors][32], const float* __restrict__ in, long long pitch, int row,
    const Domain& domain) {
  const float* const from = in + clamped(row, domain.rows) * pitch;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int first = domain.col + v * kVectorCells;
    float* const cells = reinterpret_cast<float*>(&to[v][threadIdx.x % 32]);
#pragma unroll
    for (int i = 0; i < kVectorCells; ++i) {
      const int col = first + i;
      copy_cell_ahead(&cells[i], &from[clamped(col, domain.cols)]);
    }
  }
  end_row_ahead();
}

// The lane's cells of a row that has arrived.
__device__ __forceinline__ void take(float (&to)[kCells], const uint4 (&from)[kVectors][32]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) unpack(to, v * kVectorCells, from[v][threadIdx.x % 32]);
}

// Writes the lane's cells by vectors; all of them lie inside.
__device__ __forceinline__ void store_inner(
    float* __restrict__ to, const float (&from)[kCells]) {
#pragma unroll
  for (int i = 0; i < kCells; i += kVectorCells) {
    *reinterpret_cast<uint4*>(to + i) = packed(from, i);
  }
}

// Writes the first `left` cells of the lane; `whole` says whether vectors may be written.
__device__ __forceinline__ void store_any(
    float* __restrict__ to, const float (&from)[kCells], int left, bool whole) {
  if (whole && kCells <= left) {
    store_inner(to, from);
    return;
  }
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    if (i < left) to[i] = from[i];
  }
}

// The lane's cells of a row, with `side` cells of the lanes to the left and right.
__device__ __forceinline__ void widen(
    float (&line)[kSide + kCells + kSide], const float (&cells)[kCells], int side) {
#pragma unroll
  for (int i = 0; i < kCells; ++i) line[kSide + i] = cells[i];
#pragma unroll
  for (int d = 1; d <= kSide; ++d) {
    if (d > side) continue;
    const int lanes = (d + kCells - 1) / kCells;
    line[kSide - d] = __shfl_up_sync(kAllLanes, cells[lanes * kCells - d], lanes);
    line[kSide + kCells - 1 + d] =
        __shfl_down_sync(kAllLanes, cells[kCells - 1 + d - lanes * kCells], lanes);
  }
}

// Sets the neighbours that lie outside the array, where the lane is near an end of its row.
__device__ __forceinline__ void put_outside(
    float (&line)[kSide + kCells + kSide], int side, const Domain& domain) {
#pragma unroll
  for (int first = 0; first < kSide; first += kCells) {  // cells between column 0 and the lane
    if (domain.col != first) continue;
#pragma unroll
    for (int d = 1; d <= kSide - first; ++d) {
      if (d <= side - first) line[kSide - first - d] = 0.0f;
    }
  }
#pragma unroll
  for (int end = 1; end < kCells + kSide; ++end) {  // place of the first column outside
    if (domain.col + end != domain.cols) continue;
#pragma unroll
    for (int d = 0; d < kSide; ++d) {
      if (d < side && end + d < kCells + side) line[kSide + end + d] = 0.0f;
    }
  }
}

// Takes a row through the levels where some cells that are read lie outside: row number `row` goes
// in, row `row - steps * kDown` after all steps comes out. A level holds the last kHigh
// rows of the step before, so that rows outside can be set.
template <bool kWhole>
__device__ __forceinline__ void advance_edge(
    float (&window)[kSteps][kHigh][kCells], float (&cells)[kCells], int row, int steps,
    const Domain& domain) {
  static constexpr float kWeights[kHigh][kWide] = {
      {0.0f, 0.125f, 0.0f},
      {0.125f, 0.5f, 0.125f},
      {0.0f, 0.125f, 0.0f},
  };
  static constexpr int kSides[kHigh] = {0, 1, 0};  // neighbours that a row needs
#pragma unroll
  for (int level = 0; level < kSteps; ++level) {
    if (!kWhole && level >= steps) continue;
    float (&rows)[kHigh][kCells] = window[level];
#pragma unroll
    for (int y = 1; y < kHigh; ++y) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) rows[y - 1][i] = rows[y][i];
    }
    const int newest = row - level * kDown;
    [[maybe_unused]] const int centre = newest - kDown;  // the row that this step can now compute
#pragma unroll
    for (int d = 0; d < kDown; ++d) {
      if (newest != domain.rows + d) continue;
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        cells[i] = 0.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < kCells; ++i) rows[kHigh - 1][i] = cells[i];
    if (centre == 0) {  // sets the rows above row 0
#pragma unroll
      for (int d = 1; d <= kUp; ++d) {
#pragma unroll
        for (int i = 0; i < kCells; ++i) {
          rows[kUp - d][i] = 0.0f;
        }
      }
    }
    float sum[kCells] = {};
#pragma unroll
    for (int y = 0; y < kHigh; ++y) {
      float line[kSide + kCells + kSide];
      widen(line, rows[y], kSides[y]);
      put_outside(line, kSides[y], domain);
#pragma unroll
      for (int x = 0; x < kWide; ++x) {
        if (kWeights[y][x] == 0.0f) continue;  // a weight of 0 reads no cell
#pragma unroll
        for (int i = 0; i < kCells; ++i) {
          sum[i] = fmaf(kWeights[y][x], line[kSide - kLeft + x + i], sum[i]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      cells[i] = sum[i];
    }
  }
}

// The same where all cells that are read lie inside. A level holds unfinished sums. Each row that
// arrives adds its terms to all of them; the oldest is then finished, and goes to the next level.
template <bool kWhole>
__device__ __forceinline__ void advance_inner(
    float (&held)[kSteps][kHeld][kCells], float (&cells)[kCells], int steps) {
  static constexpr float kWeights[kHigh][kWide] = {
      {0.0f, 0.125f, 0.0f},
      {0.125f, 0.5f, 0.125f},
      {0.0f, 0.125f, 0.0f},
  };
#pragma unroll
  for (int level = 0; level < kSteps; ++level) {
    if (!kWhole && level >= steps) continue;
    float line[kSide + kCells + kSide];
    widen(line, cells, kSide);
#pragma unroll
    for (int y = kHigh - 1; y >= 0; --y) {  // row y of each sum; the oldest sum first
      float sum[kCells] = {};
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (y > 0) sum[i] = held[level][kHigh - 1 - y][i];
#pragma unroll
        for (int x = 0; x < kWide; ++x) {
          if (kWeights[y][x] == 0.0f) continue;  // a weight of 0 reads no cell
          sum[i] = fmaf(kWeights[y][x], line[kSide - kLeft + x + i], sum[i]);
        }
        if (y < kHigh - 1) {
          held[level][kHigh - 2 - y][i] = sum[i];
        } else {
          cells[i] = sum[i];
        }
      }
    }
  }
}

// A warp streams down its columns: rows `from` to `to` - 1, and the halo of the steps above and
// below.
template <bool kWhole>
__device__ __forceinline__ void stream_inner(
    const float* __restrict__ in, float* __restrict__ out, long long in_pitch,
    long long out_pitch, int from, int to, int steps, bool writes, const Domain& domain,
    uint4 (&ahead)[kRound][kVectors][32]) {
  float held[kSteps][kHeld][kCells] = {};
  const int first = from - steps * kUp;
  const float* source = in + first * in_pitch + domain.col;
  float* target = out + (first - steps * kDown) * out_pitch + domain.col;
#pragma unroll
  for (int i = 0; i < kRound; ++i) {
    fetch_inner(ahead[i], source);
    source += in_pitch;
  }
  for (int row = first; row < to + steps * kDown; row += kRound) {
#pragma unroll
    for (int i = 0; i < kRound; ++i) {
      float cells[kCells];
      wait_for_row();
      take(cells, ahead[i]);
      advance_inner<kWhole>(held, cells, steps);
      fetch_inner(ahead[i], source);
      const int done = row + i - steps * kDown;
      if (writes && from <= done && done < to) store_inner(target, cells);
      source += in_pitch;
      target += out_pitch;
    }
  }
  wait_for_all_rows();
}

// The same where cells may lie outside or be unaligned. It is not inlined, so that it takes no
// registers from the function above.
template <bool kWhole>
__device__ __noinline__ void stream_edge(
    const float* __restrict__ in, float* __restrict__ out, long long in_pitch,
    long long out_pitch, int from, int to, int steps, bool writes, Domain domain,
    uint4 (&ahead)[kRound][kVectors][32]) {
  float window[kSteps][kHigh][kCells] = {};
  const int left = writes ? domain.cols - domain.col : 0;  // cells up to the end of the row
  const bool writes_whole = aligned(out, out_pitch);
  const int first = max(from - steps * kUp, 0);
#pragma unroll 1
  for (int i = 0; i < kRound; ++i) {
    fetch_any(ahead[i], in, in_pitch, first + i, domain);
  }
#pragma unroll 1
  for (int row = first; row < to + steps * kDown; ++row) {
    uint4(&slot)[kVectors][32] = ahead[(row - first) % kRound];
    float cells[kCells];
    wait_for_row();
    take(cells, slot);
    advance_edge<kWhole>(window, cells, row, steps, domain);
    fetch_any(slot, in, in_pitch, row + kRound, domain);
    const int done = row - steps * kDown;
    if (from <= done) {
      store_any(out + done * out_pitch + domain.col, cells, left, writes_whole);
    }
  }
  wait_for_all_rows();
}

// A warp streams down its columns of a strip of rows, with a halo for the steps on all sides.
template <bool kWhole>
__device__ __forceinline__ void stream(
    const float* __restrict__ in, float* __restrict__ out, int rows, int cols,
    long long in_pitch, long long out_pitch, unsigned strips, unsigned inner_across, int steps,
    uint4 (&ahead)[kRound][kVectors][32]) {
  // Columns of warps at the ends of the rows take longer: they come first, and their strips are
  // shorter. Columns 1 to inner_across are not at the ends.
  const unsigned across = (cols + kOwnCols - 1) / kOwnCols;
  const unsigned ends = (across - inner_across) * strips * kEndStrips;
  const bool is_end = blockIdx.x < ends;
  const unsigned place = is_end ? blockIdx.x : blockIdx.x - ends;
  if (is_end) strips *= kEndStrips;
  const unsigned strip = is_end ? place % strips : place / inner_across;
  unsigned column = is_end ? place / strips : place % inner_across + 1;
  if (is_end && column > 0) column += inner_across;
  const int first_col = static_cast<int>(column * kOwnCols) - kHaloLeft;
  const int lane = threadIdx.x;
  const Domain domain = {rows, cols, first_col + lane * kCells};
  const bool writes = kHaloLeft <= lane * kCells && lane * kCells < 32 * kCells - kHaloRight;
  // Rows first_inner to end_inner - 1 read no cell outside.
  const bool inner = !is_end && aligned(in, in_pitch) && aligned(out, out_pitch);
  const int first_inner = inner ? min(steps * kUp, rows) : rows;
  const int end_inner = max(rows - steps * kDown - 2 * kRound, first_inner);
  // Rows near the first and the last one take longer. The strips with such rows are shorter by the
  // number of inner rows that take as long, but have at least one row.
  const int most = rows / static_cast<int>(strips) - 1;
  const int above = inner ? min(kSteps * kUp * kEdgeCost, most) : 0;
  const int below = inner ? min((kSteps * kDown + 2 * kRound) * kEdgeCost, most) : 0;
  const auto row_of = [=](long long strip) {
    const long long row = (above + rows + below) * strip / strips - above;
    return static_cast<int>(min(max(row, 0LL), static_cast<long long>(rows)));
  };
  const int first_row = row_of(strip), end_row = row_of(strip + 1);
  int begin = 0;
#pragma unroll 1
  for (int piece = 0; piece < 3; ++piece) {  // rows at the top, inner ones, at the bottom
    int end = rows;
    if (piece == 0) end = first_inner;
    if (piece == 1) end = end_inner;
    const int from = max(begin, first_row), to = min(end, end_row);
    begin = end;
    if (from >= to) continue;
    if (piece == 1) {
      stream_inner<kWhole>(in, out, in_pitch, out_pitch, from, to, steps, writes, domain, ahead);
    } else {
      stream_edge<kWhole>(in, out, in_pitch, out_pitch, from, to, steps, writes, domain, ahead);
    }
  }
}

extern "C" __global__ void __launch_bounds__(kThreadsPerBlock, kBlocksPerSm)
    stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned strips, unsigned inner_across) {
  __shared__ uint4 ahead[kRound][kVectors][32];
  stream<true>(in, out, rows, cols, in_pitch, out_pitch, strips, inner_across, kSteps, ahead);
}

// For the last launch of a call, which computes fewer steps than kSteps.
extern "C" __global__ void __launch_bounds__(kThreadsPerBlock)
    stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12_rest(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch,
        unsigned strips, unsigned inner_across, unsigned steps) {
  __shared__ uint4 ahead[kRound][kVectors][32];
  stream<false>(in, out, rows, cols, in_pitch, out_pitch, strips, inner_across, steps, ahead);
}

// For no time step at all: copies every cell.
extern "C" __global__ void __launch_bounds__(256)
    stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12_copy(
        const float* __restrict__ in, float* __restrict__ out,
        long long rows, long long cols, long long in_pitch, long long out_pitch) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows * cols) out[i / cols * out_pitch + i % cols] = in[i / cols * in_pitch + i % cols];
}

#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)  // for programs that nvcc compiles

// The bytes of spare, scratch memory for launch().
inline long long spare_bytes(long long rows, long long out_pitch, long long steps) {
  const long long launches = (steps + 11) / 12;
  return rows * out_pitch * 4 * (min(max(launches, 1LL), 2LL) - 1);
}

// The launches that the header tells of, on a stream.
inline cudaError_t launch(
    const float* in, float* out, void* spare, long long rows, long long cols, long long in_pitch,
    long long out_pitch, long long steps, long long multiprocessors, cudaStream_t stream) {
  const long long part_1 = multiprocessors * 12;
  const long long inner_across = (max(cols, 116LL) - 116) / 104;
  const long long across = (cols + 103) / 104;
  const long long part_2 = max(inner_across + (across - inner_across) * 3, 1LL);
  const long long strips = min(max(min(part_1 / part_2, rows / 24), 1LL), rows);
  const long long blocks = strips * (inner_across + (across - inner_across) * 3);
  const long long full_launches = steps / 12;
  const long long launches = (steps + 11) / 12;
  const long long part_3 = in_pitch * (1 - min(full_launches, 1LL));
  const long long part_4 = out_pitch * min(full_launches, 1LL);
  const long long last_in_pitch = part_3 + part_4;
  const long long blocks_copy = (rows * cols + 255) / 256;
  float* now_in = const_cast<float*>(in);  // it is only read
  float* now_out = out;
  float* now_spare = static_cast<float*>(spare);
  for (long long time = 0; time < min(full_launches, 1LL) * (launches % 2); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12<<<blocks, 32, 0, stream>>>(
          now_in, now_out, rows, cols, in_pitch, out_pitch, strips, inner_across);
    }
    std::swap(now_in, now_out);
    std::swap(now_out, now_spare);
  }
  for (long long time = 0; time < min(full_launches, 1LL) * (1 - launches % 2); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12<<<blocks, 32, 0, stream>>>(
          now_in, now_spare, rows, cols, in_pitch, out_pitch, strips, inner_across);
    }
    std::swap(now_in, now_spare);
  }
  for (long long time = 0; time < full_launches - min(full_launches, 1LL); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12<<<blocks, 32, 0, stream>>>(
          now_in, now_out, rows, cols, out_pitch, out_pitch, strips, inner_across);
    }
    std::swap(now_in, now_out);
  }
  for (long long time = 0; time < min(steps % 12, 1LL); ++time) {
    if (blocks > 0) {
      stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12_rest<<<blocks, 32, 0, stream>>>(
          now_in, now_out, rows, cols, last_in_pitch, out_pitch, strips, inner_across, steps % 12);
    }
  }
  for (long long time = 0; time < 1 - min(steps, 1LL); ++time) {
    if (blocks_copy > 0) {
      stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12_copy<<<blocks_copy, 256, 0, stream>>>(
          now_in, now_out, rows, cols, in_pitch, out_pitch);
    }
  }
  return cudaGetLastError();
}

#endif

}  // namespace stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12
