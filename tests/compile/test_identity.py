"""Machine code is told apart by what runs, not by what it is called."""

from __future__ import annotations

from gen.toolchain.compiled import code_digest
from gen.toolchain.nvrtc import Nvrtc

TEXT = """
__constant__ float factor = %s;
extern "C" __global__ void %s(float* out, int n) {
  __shared__ float held[%d];
  held[threadIdx.x] = factor;
  __syncthreads();
  if (threadIdx.x < n) out[threadIdx.x] = held[n - 1 - threadIdx.x] * %s;
}
"""


def digest(name: str, factor: str = "2.0f", held: int = 32, by: str = "3.0f") -> str:
    found = Nvrtc(None).compile(name, TEXT % (factor, name, held, by), "sm_90")
    return code_digest(found.cubin, name)


def test_a_name_changes_nothing_and_everything_else_does() -> None:
    same = digest("one")
    assert digest("another_name") == same
    others = [digest("one", factor="4.0f"), digest("one", held=64), digest("one", by="5.0f")]
    assert len({same, *others}) == 4


def test_what_is_no_cubin_is_compared_whole() -> None:
    assert code_digest(b"ab", "k") == code_digest(b"ab", "k") != code_digest(b"ac", "k")
