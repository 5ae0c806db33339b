"""What reductions divide by an inverse is what NumPy divides, up to the largest numbers, which no proven array has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gen.dtypes import I32, U32, U64
from gen.emit.render import environment_of
from gen.families.base import Operand
from gen.families.expr import constant
from gen.families.reduction.algorithms.common import inverse
from tests.host.host_kernels import N, one_launch, run_text
from tests.host.reductions import FAMILY

LARGEST = 2**31 - 1
QUOTIENTS = '{% from "reduction/_quotients.cu.jinja" import quotients %}{{ quotients() }}'
KERNEL = """
extern "C" __global__ void NAME(
    const unsigned* numbers, const unsigned long long* inverses, unsigned* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = quotient(numbers[i], inverses[i]);
}
"""


def test_a_quotient_by_an_inverse_is_that_of_a_division(cache: Path) -> None:
    random = np.random.default_rng(3)
    powers = [2**bits + step for bits in range(1, 31) for step in (-1, 0, 1)]
    divisors = sorted({1, LARGEST, LARGEST - 1, *powers, *random.integers(1, LARGEST, 100).tolist()})
    pairs = []
    for divisor in divisors:
        most = LARGEST // divisor
        for times in {1, 2, most // 2, most - 1, most}:
            pairs += [(times * divisor + step, divisor) for step in (-1, 0, 1)]
        pairs += [(0, divisor), (LARGEST, divisor)]
    numbers, by = np.array([pair for pair in pairs if 0 <= pair[0] <= LARGEST], np.uint64).T
    inverses = np.array([inverse(constant(int(divisor)))[1].at({}) for divisor in by], np.uint64)
    text = environment_of(FAMILY).from_string(QUOTIENTS).render() + KERNEL
    operands = (
        Operand("numbers", "in", U32, ("n",)), Operand("inverses", "in", U64, ("n",)),
        Operand("out", "out", U32, ("n",)),
    )  # fmt: skip
    buffers = {"numbers": numbers.astype(np.uint32), "inverses": inverses, "out": np.zeros(len(by), np.uint32)}
    plan = one_launch(256, N.ceil_div(256), "numbers", "inverses", "out", (I32, N))
    run_text(cache, text, operands, plan, {"n": len(by)}, buffers)
    np.testing.assert_array_equal(buffers["out"], numbers // by)
