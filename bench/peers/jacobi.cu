// Five points on several GPUs, as anybody writes it first: one process, a thread a cell, rows split among the GPUs.
//
// Each GPU has a row of halo above and below its own rows. A step computes the first and the last row on a stream of
// their own and copies them to the neighbours' halos, while another stream computes the rows between. Streams wait for
// the neighbours' rows by events; the host waits for nothing until all steps are queued.
//
//     jacobi GPUS ROWS COLS STEPS TURNS FILE
//
// with ROWS of one GPU. Prints the milliseconds of each turn, and writes the four rows in the middle to FILE.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

constexpr int BLOCK_COLS = 128;
constexpr int BLOCK_ROWS = 4;
constexpr int SHOWN = 4;  // rows of the result

#define CHECK(call)                                                                              \
  do {                                                                                           \
    const cudaError_t status = (call);                                                           \
    if (status != cudaSuccess) {                                                                 \
      std::fprintf(stderr, "%s, line %d: %s\n", #call, __LINE__, cudaGetErrorString(status));    \
      std::exit(1);                                                                              \
    }                                                                                            \
  } while (0)

// Cells at the start, of the row `row` of the whole domain; those outside it are 0.
__global__ void fill(float* cells, long first, long rows, long all_rows, int cols) {
  const long at = blockIdx.x * static_cast<long>(blockDim.x) + threadIdx.x;
  if (at >= rows * cols) return;
  const long row = first + at / cols, col = at % cols;
  const bool inside = row >= 0 && row < all_rows;
  cells[at] = inside ? static_cast<float>((row * 7919 + col * 104729) % 1021) / 1021.0f : 0.0f;
}

// One step of the rows [first, end) of an array whose row 0 is the halo.
__global__ void step(const float* __restrict__ before, float* __restrict__ after, int first, int end, int cols) {
  const int col = blockIdx.x * BLOCK_COLS + threadIdx.x;
  const int row = first + blockIdx.y * BLOCK_ROWS + threadIdx.y;
  if (col >= cols || row >= end) return;
  const long at = static_cast<long>(row) * cols + col;
  const float west = col > 0 ? before[at - 1] : 0.0f;
  const float east = col < cols - 1 ? before[at + 1] : 0.0f;
  after[at] = 0.125f * (before[at - cols] + west + east + before[at + cols]) + 0.5f * before[at];
}

struct Gpu {
  float* cells[2];
  cudaStream_t inside, rims;
  cudaEvent_t computed, sent[2];  // the inside of a step; the rims, for steps of either parity
};

int main(int count, char** words) {
  if (count != 7) return std::fprintf(stderr, "jacobi GPUS ROWS COLS STEPS TURNS FILE\n"), 2;
  const int gpus = std::atoi(words[1]), rows = std::atoi(words[2]), cols = std::atoi(words[3]);
  const int steps = std::atoi(words[4]), turns = std::atoi(words[5]);
  const long cells = (rows + 2L) * cols, row_bytes = cols * sizeof(float);
  std::vector<Gpu> all(gpus);
  for (int g = 0; g < gpus; ++g) {
    Gpu& gpu = all[g];
    CHECK(cudaSetDevice(g));
    for (int other : {g - 1, g + 1}) {
      if (other >= 0 && other < gpus) CHECK(cudaDeviceEnablePeerAccess(other, 0));
    }
    int least, greatest;
    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(cudaStreamCreateWithPriority(&gpu.inside, cudaStreamNonBlocking, least));
    CHECK(cudaStreamCreateWithPriority(&gpu.rims, cudaStreamNonBlocking, greatest));
    for (cudaEvent_t* event : {&gpu.computed, &gpu.sent[0], &gpu.sent[1]}) {
      CHECK(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    for (float*& one : gpu.cells) CHECK(cudaMalloc(&one, cells * sizeof(float)));
  }
  const dim3 block(BLOCK_COLS, BLOCK_ROWS);
  const auto grid = [&](int high) { return dim3((cols + BLOCK_COLS - 1) / BLOCK_COLS, (high + BLOCK_ROWS - 1) / BLOCK_ROWS); };
  const auto wait = [&] {
    for (int g = 0; g < gpus; ++g) {
      CHECK(cudaSetDevice(g));
      CHECK(cudaDeviceSynchronize());
    }
  };
  for (int turn = -1; turn < turns; ++turn) {
    for (int g = 0; g < gpus; ++g) {
      CHECK(cudaSetDevice(g));
      for (float* one : all[g].cells) {
        fill<<<(cells + 255) / 256, 256>>>(one, g * static_cast<long>(rows) - 1, rows + 2, gpus * static_cast<long>(rows), cols);
        CHECK(cudaGetLastError());
      }
    }
    wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int number = 0; number < steps; ++number) {
      const int now = number % 2, then = 1 - now;
      for (int g = 0; g < gpus; ++g) {
        Gpu& gpu = all[g];
        CHECK(cudaSetDevice(g));
        if (number > 0) {
          for (int other : {g - 1, g, g + 1}) {  // their rows are here, and they have read what is overwritten now
            if (other < 0 || other >= gpus) continue;
            CHECK(cudaStreamWaitEvent(gpu.rims, all[other].sent[now], 0));
            if (other == g) CHECK(cudaStreamWaitEvent(gpu.inside, all[g].sent[now], 0));
          }
          CHECK(cudaStreamWaitEvent(gpu.rims, gpu.computed, 0));
        }
        step<<<grid(1), block, 0, gpu.rims>>>(gpu.cells[now], gpu.cells[then], 1, 2, cols);
        step<<<grid(1), block, 0, gpu.rims>>>(gpu.cells[now], gpu.cells[then], rows, rows + 1, cols);
        if (g > 0) {
          float* halo = all[g - 1].cells[then] + (rows + 1L) * cols;
          CHECK(cudaMemcpyPeerAsync(halo, g - 1, gpu.cells[then] + cols, g, row_bytes, gpu.rims));
        }
        if (g < gpus - 1) {
          const float* last = gpu.cells[then] + static_cast<long>(rows) * cols;
          CHECK(cudaMemcpyPeerAsync(all[g + 1].cells[then], g + 1, last, g, row_bytes, gpu.rims));
        }
        step<<<grid(rows - 2), block, 0, gpu.inside>>>(gpu.cells[now], gpu.cells[then], 2, rows, cols);
        CHECK(cudaGetLastError());
      }
      for (int g = 0; g < gpus; ++g) {
        CHECK(cudaSetDevice(g));
        CHECK(cudaEventRecord(all[g].sent[then], all[g].rims));
        CHECK(cudaEventRecord(all[g].computed, all[g].inside));
      }
    }
    wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (turn >= 0) std::printf("%.4f\n", took.count());
  }
  const long middle = gpus * static_cast<long>(rows) / 2 - SHOWN / 2;
  std::vector<float> shown(SHOWN * static_cast<long>(cols));
  for (int n = 0; n < SHOWN; ++n) {
    const int g = (middle + n) / rows;
    const long row = (middle + n) % rows + 1;
    CHECK(cudaSetDevice(g));
    CHECK(cudaMemcpy(&shown[n * static_cast<long>(cols)], all[g].cells[steps % 2] + row * cols, row_bytes, cudaMemcpyDeviceToHost));
  }
  std::FILE* file = std::fopen(words[6], "wb");
  if (!file || std::fwrite(shown.data(), sizeof(float), shown.size(), file) != shown.size()) return 1;
  std::fclose(file);
  return 0;
}
