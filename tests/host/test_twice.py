"""Which lines of a kernel call a function with a barrier in it twice, so that one report may mean either call."""

from __future__ import annotations

import pytest

from gen.proof.faults import called_twice


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("if (c) meet(); else meet();", "meet"),
        ("if (a) { if (b) meet(); }  // meet()", None),
        ("meet(load(p), load(q));", None),
        ("both(load(p)); /* both() */ min(min(1, 2), 3);", None),
        ("c ? both<4>(p) : both<4>(q);", "both"),
        ("MEET(1)", "meet"),
        ("tell(1); tell(2);", "tell"),
    ],
)
def test_which_lines_call_a_barrier_twice(line: str, found: str | None) -> None:
    text = f"""#define MEET(c) \\
  if (c) meet();  \\
  else meet();
__device__ void meet() {{ if (true) {{ __syncthreads(); }} }}
__device__ float load(const float* p) {{ return *p; }}
template <int n> __device__ void both(float x) {{ for (;;) {{ meet(); }} }}
__global__ void k() {{ const auto tell = [&](int) {{ both<2>(1.0f); }}; if (1) {{ {line} }} }}
"""
    assert called_twice(text, line) == found
