"""A kernel that widens what a contender gave, for others to be compared with."""

from __future__ import annotations

from gen.dtypes import F64, DType

_TEXT = """\
#include <cuda_fp16.h>
extern "C" __global__ void gen_widen(
    const ELEMENT* in, double* value, double* size, double magnitude, long long n) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    value[i] = static_cast<NUMBER>(in[i]);
    size[i] = magnitude;
  }
}
"""


def widening(dtype: DType) -> str:
    """The text of `gen_widen`: the elements as doubles, and one number everywhere.

    Only f64 is read as a double: from f16 there is no conversion but to float.
    """
    # By value: a dtype that came from another process is equal to F64, and not the same object.
    return _TEXT.replace("ELEMENT", dtype.cuda).replace("NUMBER", "double" if dtype == F64 else "float")
