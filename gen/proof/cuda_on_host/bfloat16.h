// What cuda_bf16.h offers on a GPU only.
#pragma once
#include "narrow.h"

CUDA_ON_HOST_NARROW(__nv_bfloat16, __nv_bfloat162, __bfloat162float, __double2bfloat16, bfloat16)
