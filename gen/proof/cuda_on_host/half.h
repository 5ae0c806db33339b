// What cuda_fp16.h offers on a GPU only.
#pragma once
#include "narrow.h"

CUDA_ON_HOST_NARROW(__half, __half2, __half2float, __double2half, half)
