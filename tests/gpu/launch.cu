// Calls launch() of three emitted files, and compares what it computes with plain loops.

#include <cstdio>
#include <vector>

#include "heat.cu"
#include "naive.cu"
#include "sum.cu"
#include "transpose.cu"

// Device memory that is filled with one byte.
static void* filled(long long bytes, int value) {
  void* memory = nullptr;
  if (bytes > 0) {
    cudaMalloc(&memory, bytes);
    cudaMemset(memory, value, bytes);
  }
  return memory;
}

static int count_of_wrong(const std::vector<float>& found, const std::vector<float>& wanted) {
  int wrong = 0;
  for (size_t i = 0; i < wanted.size(); ++i) wrong += !(found[i] == wanted[i]);
  return wrong;
}

int main() {
  const long long rows = 1021, cols = 1537, count = rows * cols;
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  std::vector<float> numbers(count), turned(count), found(count), other(count);
  double sum = 0;
  for (long long i = 0; i < count; ++i) {
    numbers[i] = static_cast<float>((i * 7919 + 13) % 31 - 15);  // whole: sums are exact
    turned[i % cols * rows + i / cols] = numbers[i];
    sum += numbers[i];
  }
  const auto in = static_cast<float*>(filled(count * sizeof(float), 0));
  const auto out = static_cast<float*>(filled(count * sizeof(float), 0xff));
  cudaMemcpy(in, numbers.data(), count * sizeof(float), cudaMemcpyHostToDevice);
  const auto fetch = [&](std::vector<float>& to, long long many) {
    cudaMemcpy(to.data(), out, many * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemset(out, 0xff, count * sizeof(float));
  };

  void* const partials = filled(SUM::partials_bytes(count, multiprocessors), 0xff);
  void* const ticket = filled(SUM::ticket_bytes(count, multiprocessors), 0);
  int wrong = 0;
  for (int time = 0; time < 2; ++time) {  // a launch leaves the ticket 0 for the next
    wrong += SUM::launch(in, out, partials, ticket, count, multiprocessors, nullptr) != cudaSuccess;
    fetch(found, 1);
    wrong += !(found[0] == static_cast<float>(sum));
  }
  std::printf("sum: %d wrong\n", wrong);

  wrong = TRANSPOSE::launch(in, out, rows, cols, cols, rows, nullptr) != cudaSuccess;
  fetch(found, count);
  wrong += count_of_wrong(found, turned);
  std::printf("transpose: %d wrong\n", wrong);

  for (const long long steps : {0, 1, 5, 12, 13, 24, 36, 41}) {
    void* const spare = filled(HEAT::spare_bytes(rows, cols, steps), 0xff);
    void* const second = filled(NAIVE::spare_bytes(rows, cols, steps), 0xff);
    wrong = HEAT::launch(in, out, spare, rows, cols, cols, cols, steps, multiprocessors, nullptr) != cudaSuccess;
    fetch(found, count);
    wrong += NAIVE::launch(in, out, second, rows, cols, cols, cols, steps, nullptr) != cudaSuccess;
    fetch(other, count);
    wrong += count_of_wrong(found, other) + (steps == 0 ? count_of_wrong(found, numbers) : 0);
    std::printf("heat, %lld steps: %d wrong\n", steps, wrong);
    cudaFree(spare);
    cudaFree(second);
  }
  return cudaDeviceSynchronize() != cudaSuccess;
}
