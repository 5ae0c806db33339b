"""Races over global memory on the CPU run: each planted one is found at its line, each clean twin passes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32
from gen.families.base import Launch, Limits, Operand, Plan, Scratch, Variant
from gen.families.expr import ONE, constant, size
from gen.proof.host import HostFault, HostKernel, HostRunner
from tests.fake_family import fake_variant
from tests.races import PLANTED
from tests.races.race import HEAD, Planted

N = size("n")
THREADS, COUNT = 64, 256


def variants(planted: Planted) -> tuple[Variant, Variant]:
    launch = Launch(
        (constant(planted.blocks), ONE, ONE), (THREADS, 1, 1),
        ("in", "out", "part", "flag", *(("part",) if planted.again else ()), (I32, N)),
    )  # fmt: skip
    plan = Plan((launch,), (Scratch("part", N * 16, zeroed=True), Scratch("flag", constant(256), zeroed=True)))
    operands = (Operand("in", "in", F32, ("n",)), Operand("out", "inout", F32, ("n",)))
    return fake_variant(f"{planted.name}_faulty", operands, plan), fake_variant(planted.name, operands, plan)


@pytest.fixture(scope="module")
def kernels(cache: Path) -> Mapping[str, tuple[HostKernel, HostKernel]]:
    pairs = {planted.name: variants(planted) for planted in PLANTED}
    texts = {}
    for planted in PLANTED:
        faulty, clean = pairs[planted.name]
        clean_head = planted.clean_head or HEAD
        texts[faulty.name] = f'extern "C" __global__ void {faulty.name}{planted.head} {{\n{planted.faulty}\n}}\n'
        texts[clean.name] = f'extern "C" __global__ void {clean.name}{clean_head} {{\n{planted.clean}\n}}\n'
    runner = HostRunner(Limits.of("sm_90"), cache=cache, text=lambda variant: texts[variant.name])
    made = iter(runner.load([variant for pair in pairs.values() for variant in pair]))
    return {name: (next(made), next(made)) for name in pairs}


def run(kernel: HostKernel) -> None:
    kernel.run({"n": COUNT}, {"in": np.arange(COUNT, dtype=np.float32), "out": np.zeros(COUNT, np.float32)})


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_race_is_found(planted: Planted, kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    kernel, _ = kernels[planted.name]
    with pytest.raises(HostFault) as caught:
        run(kernel)
    fault = caught.value
    assert fault.kind == planted.kind, str(fault)
    assert fault.buffer == planted.buffer
    assert fault.kernel == kernel.variant.name
    assert fault.source.endswith("// here"), str(fault)
    assert planted.says in str(fault)
    assert f"thread {fault.thread} of block {fault.block}" in str(fault)
    assert f"{kernel.variant.name}.cu:{fault.line}: `{fault.source}`" in str(fault)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_clean_twin_of_a_race_passes(planted: Planted, kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    _, kernel = kernels[planted.name]
    for _ in range(planted.runs):
        run(kernel)
