"""What hangs on the order of atomics is found: in every second run of a small grid other blocks run before an atomic.

Each planted fault is made of atomics and volatile loads alone, so that no two accesses race, and right as long as
blocks run one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32
from gen.families.base import Launch, Operand, Plan, Scratch
from gen.families.expr import ONE, constant, size
from gen.proof import host
from gen.proof.host import HostKernel, HostRunner
from tests.fake_family import fake_variant
from tests.host.reductions import H100

BLOCKS, RUNS = 8, 120  # twice each; a proof has half as many runs, and finds rare orders in some proofs only
HEAD = (
    'extern "C" __global__ void NAME(float* out, float* part, unsigned* flag, int n) {\nif (threadIdx.x > 0) return;\n'
)

COUNT = "atomicExch(out, atomicAdd(out, 0.0f) + 1.0f);"
LOCKED = "while (atomicCAS(flag, 0u, 1u) != 0u) {}\natomicExch(part, float(blockIdx.x));\n"
FREE, READ = "atomicExch(flag, 0u);\n", "const float mine = atomicAdd(part, 0.0f);\n"
# A list of 16 free slots: flag[0] names the first, flag[1 + slot] how far behind its neighbour the one behind it
# is, so that zeros are a list of all. `kTag` counts changes of the first, above its number.
LIST = """
const auto pop = [&] {
  for (;;) {
    const unsigned head = atomicAdd(flag, 0u), slot = head % 16u;
    const unsigned next = (atomicAdd(flag + 1 + slot, 0u) + slot + 1u) % 16u;
    if (atomicCAS(flag, head, (head / 16u + kTag) * 16u + next) == head) return slot;
  }
};
const auto push = [&](unsigned slot) {
  for (;;) {
    const unsigned head = atomicAdd(flag, 0u);
    atomicExch(flag + 1 + slot, (head - slot - 1u) % 16u);
    if (atomicCAS(flag, head, (head / 16u + kTag) * 16u + slot) == head) return;
  }
};
const auto take = [&](unsigned slot) { if (atomicAdd(part + slot, 1.0f) != 0.0f) atomicAdd(out, 1.0f); };
const auto leave = [&](unsigned slot) { atomicAdd(part + slot, -1.0f); };
const unsigned first = pop();
take(first);
const unsigned second = pop();
take(second);
leave(first);
push(first);
leave(second);
push(second);
"""
# By name: a faulty text, the same without the fault, and what the output then holds.
PLANTED: Mapping[str, tuple[str, str, float]] = {
    "an update that is lost": (COUNT, "atomicAdd(out, 1.0f);", BLOCKS),
    "a slot that is freed before it is read": (
        LOCKED + FREE + READ + "if (mine != blockIdx.x) atomicAdd(out, 1.0f);",
        LOCKED + READ + FREE + "if (mine != blockIdx.x) atomicAdd(out, 1.0f);",
        0,
    ),
    "a list of free slots whose head comes back (ABA)": (
        "constexpr unsigned kTag = 0;" + LIST, "constexpr unsigned kTag = 1;" + LIST, 0,
    ),
    "a volatile load that another block overtakes": (
        "const float seen = *(volatile float*)out;\natomicExch(out, seen + 1.0f);", "atomicAdd(out, 1.0f);", BLOCKS,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def kernels(cache: Path) -> Mapping[str, tuple[HostKernel, HostKernel]]:
    launch = Launch((constant(BLOCKS), ONE, ONE), (32, 1, 1), ("out", "part", "flag", (I32, size("n"))))
    plan = Plan((launch,), (Scratch("part", size("n") * 64, zeroed=True), Scratch("flag", size("n") * 64, zeroed=True)))
    texts = {}
    for number, (faulty, clean, _) in enumerate(PLANTED.values()):
        for word, body in (("faulty", faulty), ("clean", clean)):
            made = fake_variant(f"preempted{number}_{word}", (Operand("out", "inout", F32, ("n",)),), plan)
            texts[made] = HEAD.replace("NAME", made.name) + body + "\n}\n"
    loaded = iter(HostRunner(H100, cache=cache, text=lambda made: texts[made]).load(list(texts)))
    return {name: (next(loaded), next(loaded)) for name in PLANTED}


def outcomes(kernel: HostKernel) -> list[float]:
    found = []
    for n in range(1, RUNS + 1):
        for _ in range(2):
            out = np.zeros(n, np.float32)
            kernel.run({"n": n}, {"out": out})
            found.append(float(out[0]))
    return found


@pytest.mark.parametrize("name", PLANTED)
def test_what_hangs_on_the_order_of_atomics_is_found(
    name: str, kernels: Mapping[str, tuple[HostKernel, HostKernel]]
) -> None:
    assert any(found != PLANTED[name][2] for found in outcomes(kernels[name][0]))


@pytest.mark.parametrize("name", PLANTED)
def test_without_the_fault_every_order_is_right(
    name: str, kernels: Mapping[str, tuple[HostKernel, HostKernel]]
) -> None:
    assert all(found == PLANTED[name][2] for found in outcomes(kernels[name][1]))


@pytest.mark.parametrize("name", list(PLANTED)[:2])
def test_blocks_that_run_one_after_another_hide_it(
    name: str, kernels: Mapping[str, tuple[HostKernel, HostKernel]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "PREEMPTIONS", 0)
    assert all(found == PLANTED[name][2] for found in outcomes(kernels[name][0]))
