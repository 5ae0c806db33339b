"""Runs kernels that tests bring as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gen.dtypes import F32, I32, DType
from gen.families.base import Launch, Limits, Operand, Plan
from gen.families.expr import ONE, Expr, size
from gen.proof.host import HostRunner
from tests.fake_family import fake_variant

H100 = Limits.of("sm_90")
N = size("n")
IN = Operand("in", "in", F32, ("n",))
OUT = Operand("out", "out", F32, ("n",))
COUNT = (I32, N)


def grid(blocks: Expr) -> tuple[Expr, Expr, Expr]:
    return (blocks, ONE, ONE)


def arrays(n: int = 100) -> dict[str, Any]:
    return {"in": np.arange(n, dtype=np.float32), "out": np.zeros(n, np.float32)}


def run_text(
    cache: Path, text: str, operands: Sequence[Operand], plan: Plan, extents: Mapping[str, int],
    buffers: Mapping[str, Any], *, limits: Limits = H100, seed: int = 0, label: str = "made", runs: int = 1,
) -> None:  # fmt: skip
    """Builds `text`, in which NAME is the kernel's name, and runs it."""
    made = fake_variant(label, tuple(operands), plan)
    runner = HostRunner(limits, cache=cache, text=lambda variant: text.replace("NAME", variant.name), seed=seed)
    (kernel,) = runner.load([made])
    for _ in range(runs):
        kernel.run(extents, buffers)


def one_launch(threads: int = 64, blocks: Expr = ONE, *arguments: str | tuple[DType, Expr], **others: Any) -> Plan:
    return Plan((Launch(grid(blocks), (threads, 1, 1), arguments or ("in", "out", COUNT), **others),))


COPY = """
extern "C" __global__ void NAME(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
"""
COPY_PLAN = one_launch(64, N.ceil_div(64))
