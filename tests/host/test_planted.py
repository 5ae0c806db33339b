"""The CPU run: each detector finds its planted fault, at its line, and passes the clean twin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gen.families.base import Launch, Plan, Scratch, Variant
from gen.families.expr import constant
from gen.proof import native
from gen.proof.host import HostFault, HostKernel, HostRunner
from tests import races
from tests.fake_family import fake_variant
from tests.faults import PLANTED
from tests.faults.fault import Planted
from tests.host import test_clusters
from tests.host.host_kernels import COUNT, H100, IN, OUT, N, arrays, grid


def planted_text(name: str, body: str, before: str) -> str:
    head = f'extern "C" __global__ void {name}(const float* in, float* out, float* scratch, int n) {{'
    return f"{before}{head}\n{body}\n}}\n"


def planted_variants(planted: Planted) -> tuple[Variant, Variant]:
    launch = Launch(
        grid(N.ceil_div(planted.threads)), (planted.threads, 1, 1), ("in", "out", "scratch", COUNT),
        shared_bytes=constant(planted.shared_bytes),
    )  # fmt: skip
    plan = Plan((launch,), (Scratch("scratch", N * 4),))
    return fake_variant(f"{planted.name}_faulty", (IN, OUT), plan), fake_variant(planted.name, (IN, OUT), plan)


@pytest.fixture(scope="module")
def planted_kernels(cache: Path) -> Mapping[str, tuple[HostKernel, HostKernel]]:
    """Every planted fault and its clean twin, built together."""
    pairs = {planted.name: planted_variants(planted) for planted in PLANTED}
    texts = {}
    for planted in PLANTED:
        faulty, clean = pairs[planted.name]
        texts[faulty.name] = planted_text(faulty.name, planted.faulty, planted.before)
        texts[clean.name] = planted_text(clean.name, planted.clean, planted.before)
    runner = HostRunner(H100, cache=cache, text=lambda variant: texts[variant.name])
    kernels = iter(runner.load([variant for pair in pairs.values() for variant in pair]))
    return {name: (next(kernels), next(kernels)) for name in pairs}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_fault_is_found(
    planted: Planted,
    planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, _ = planted_kernels[planted.name]
    monkeypatch.setattr(native, "ANY_STEPS", planted.steps)
    with pytest.raises(HostFault) as caught:
        kernel.run({"n": 100}, arrays())
    fault = caught.value
    assert fault.kind == planted.kind
    assert fault.kernel == kernel.variant.name
    assert fault.source.endswith("// here"), str(fault)
    assert fault.thread[0] < planted.threads
    if planted.buffer:
        assert fault.buffer == planted.buffer
    assert f"{kernel.variant.name}.cu:{fault.line}: `{fault.source}`" in str(fault)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_clean_twin_passes(
    planted: Planted,
    planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, kernel = planted_kernels[planted.name]
    monkeypatch.setattr(native, "ANY_STEPS", planted.steps)
    for _ in range(2):
        kernel.run({"n": 100}, arrays())


def test_an_access_near_no_buffer_is_reported_with_its_address(
    planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]],
) -> None:
    faulty, _ = planted_kernels["null_pointer"]
    with pytest.raises(HostFault, match="address 0x0: a null pointer"):
        faulty.run({"n": 100}, arrays())


def test_process_lives_on_after_a_fault(planted_kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    faulty, clean = planted_kernels["barrier_missing"]
    for _ in range(3):
        with pytest.raises(HostFault):
            faulty.run({"n": 100}, arrays())
        clean.run({"n": 100}, arrays())


def test_every_kind_that_the_runtime_reports_has_a_planted_fault_and_a_clean_twin() -> None:
    """Of the kinds that stand in its sources: those of `enum class Kind`, and those that a report is made of."""
    runtime = Path(native.__file__).parent / "cuda_on_host" / "runtime"
    declared = re.search(r"enum class Kind : int32_t \{([^}]*)\}", (runtime / "interface.h").read_text())
    assert declared is not None
    names = re.findall(r"\bk\w+", declared[1])
    reported = {name for path in runtime.iterdir() for name in re.findall(r"\bKind::(k\w+)", path.read_text())}
    assert reported == set(names), "each is declared, and each is reported somewhere"
    kinds = dict(zip(names, native.KINDS, strict=True))
    planted = {one.kind for table in (PLANTED, races.PLANTED, test_clusters.PLANTED) for one in table}
    assert planted == set(kinds.values()) - {kinds["kNone"]}
    assert set(native.RULES) == planted
