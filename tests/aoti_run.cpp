// Runs a package of AOTInductor without Python: aoti_run OPERATORS PACKAGE cpu|cuda prints how far the result is from
// what torch computes, or the error.

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/torch.h>

#include <cstdio>
#include <string>

int main(int, char** arguments) {
  if (dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::puts(dlerror());
    return 2;
  }
  const at::Device place{std::string{arguments[3]}};
  try {
    torch::inductor::AOTIModelPackageLoader model(arguments[2]);
    const at::Tensor x = torch::rand({64, 32}, place);
    const at::Tensor y = model.run({x})[0];
    std::printf("%g\n", (y - (x - x.mean(1, true)).t()).abs().max().item<double>());
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
}
