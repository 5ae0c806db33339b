"""What the checks let pass: right results in any order of additions, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import gen
from bench.cases import STATISTICS, permute, public_cases, reduce, sweep
from gen.compare.case import ComparisonCase
from gen.compare.checks import MAX_ROUNDINGS, Checks, bounded, random_inputs
from gen.compare.peers.base import Contender, SharedArray
from gen.dtypes import F16, F32, DType
from gen.families import FAMILIES
from gen.families.base import Array
from gen.families.names import find_family
from gen.families.stencil import Boundary, StencilSpec
from gen.families.stencil.oracle import expected
from gen.families.stencil.spec import BOUNDARIES
from gen.proof.error_bounds import gamma
from tests.fake_comparison import FakeGpu, view


def checked(gpu: FakeGpu, case: ComparisonCase) -> tuple[Checks, Array]:
    """The checks of a case, and its input."""
    inputs = random_inputs(gpu, case, 1)
    return Checks(gpu, case, inputs), view(inputs[0]).copy()


def given(gpu: FakeGpu, value: Any, dtype: DType = F32) -> SharedArray:
    made = gpu.array(np.shape(value), dtype)
    view(made)[...] = value
    return made


def wrong(checks: Checks, results: Sequence[Any], *, ours: int | None = None) -> str | None:
    """What is wrong with results, of a peer or of ours."""

    def prepare(*_: object) -> Contender:
        return Contender(lambda: results)

    return checks.wrong(Contender(lambda: results), prepare, roundings=ours)


def test_every_public_sum_is_bounded() -> None:
    assert gamma(MAX_ROUNDINGS, F32.unit_roundoff) < 2.0**-11
    assert 2**26 * F32.unit_roundoff > 1, "the bound for any order is infinite"


@pytest.mark.parametrize("factor", [0.0, np.nan, np.inf, -1.0, 0.99, 1.001])
def test_a_wrong_sum_of_squares_of_very_many_is_found(factor: float) -> None:
    gpu = FakeGpu()
    checks, x = checked(gpu, reduce(STATISTICS, F32, (1 << 16,)))
    right = [x.sum(dtype=np.float64), (x.astype(np.float64) ** 2).sum(), x.min(), x.max()]
    assert wrong(checks, [given(gpu, value) for value in right]) is None
    for place in range(len(right)):
        spoiled = [given(gpu, value * factor if place == at else value) for at, value in enumerate(right)]
        if place != 0 or right[0] != 0:
            assert wrong(checks, spoiled) is not None, STATISTICS[place]


def test_a_sum_of_halves_in_halves_is_a_difference_of_meaning_of_peers_alone() -> None:
    gpu = FakeGpu()
    checks, x = checked(gpu, reduce(("sum",), F16, (1 << 20,)))
    right = float(x.sum(dtype=np.float64))
    unit = np.spacing(np.float16(right)).astype(np.float64)
    assert checks.differences([given(gpu, right, F16)]) == []
    off = [given(gpu, right + 2 * unit, F16)]
    assert wrong(checks, off, ours=1000) is not None, "ours adds in f32"
    assert wrong(checks, off) is None
    (note,) = checks.differences(off)
    assert note == f"adds in f16: off by {2 * unit:.3g}, of 20.2 that this may cost"
    for value in (right + 30, np.nan, np.inf):
        spoiled = [given(gpu, value, F16)]
        assert wrong(checks, spoiled) is not None
        assert checks.differences(spoiled) == []


def test_no_other_operator_or_type_may_be_narrow() -> None:
    gpu = FakeGpu()
    for op, dtype in (("sum", F32), ("max", F16)):
        checks, x = checked(gpu, reduce((op,), dtype, (1 << 12,)))
        value = float(getattr(x.astype(np.float64), op)())
        assert wrong(checks, [given(gpu, value, dtype)]) is None
        assert wrong(checks, [given(gpu, value + 1, dtype)]) is not None


def test_what_numpy_says_of_a_large_case_is_brought_to_the_gpu_once(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    checks, x = checked(gpu, permute((1, 0), F32, (600, 500)))
    out = given(gpu, x.T)
    uploads: list[int] = []
    upload = gpu.upload

    def counted(content: Array) -> SharedArray:
        uploads.append(content.size)
        return upload(content)

    monkeypatch.setattr(gpu, "upload", counted)
    assert wrong(checks, [out]) is None
    view(out)[7, 9] += 1
    assert wrong(checks, [out]) == "out: 1 elements are wrong"
    assert uploads == [x.size]


@pytest.mark.parametrize("steps", [1, 5])
def test_halves_that_are_stepped_in_halves_are_right_of_peers_and_a_step_too_few_is_not(steps: int) -> None:
    gpu, case = FakeGpu(), sweep("box", 2, F16, (40, 30), "wrap", steps)
    checks, x = checked(gpu, case)
    assert case.provable is case
    spec: Any = case.spec
    cells = x.copy()
    last = cells
    for _ in range(steps):
        last = cells
        terms = [np.float16(w) * np.roll(cells, [-step for step in offset], (0, 1)) for offset, w in spec.taps]
        cells = terms[0]
        for term in terms[1:]:
            cells = cells + term
    assert cells.dtype == np.float16
    assert steps > 1 or wrong(checks, [given(gpu, cells, F16)], ours=10) is not None, "ours adds in f32"
    assert wrong(checks, [given(gpu, cells, F16)]) is None
    assert wrong(checks, [given(gpu, last, F16)]) is not None


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("dtype", [F16, F32], ids=lambda dtype: dtype.name)
def test_what_a_spec_fixes_lies_within_the_bound_of_peers_and_a_step_too_few_does_not(
    boundary: Boundary, dtype: DType
) -> None:
    spec = StencilSpec("s", (0.3, -0.2, 0.7, 0.1, 0.0, 0.25), (2, 3), dtype, boundary, cval=2.0, origin=(0, -1))
    cells = np.random.default_rng(1).integers(-8, 9, (13, 17)).astype(dtype.numpy)
    for steps in (1, 4):
        value, off = bounded(spec, cells, steps)
        here, before = (expected(spec, cells, taken).value.astype(np.float64) for taken in (steps, steps - 1))
        assert (np.abs(here - value) <= off).all()
        assert (np.abs(before - value) > off).any()
        assert not np.isnan(value).any()
        assert off.max() < 1e-2 if dtype is F32 else off.max() < 1


def test_a_case_that_numpy_needs_too_long_for_is_checked_on_a_smaller_one() -> None:
    gpu, case = FakeGpu(), sweep("star", 1, F32, (3000, 3000), "wrap", 100)
    checks = Checks(gpu, case, random_inputs(gpu, replace(case, shape=(4, 4)), 1))
    less = case.provable
    assert checks.note == f"checked on {less.name}"
    assert less.runtime_parameters["steps"] <= 20
    assert less.elements <= 10**6
    prepared: list[ComparisonCase] = []

    def prepare(smaller: ComparisonCase, inputs: Sequence[SharedArray]) -> Contender:
        prepared.append(smaller)
        value = smaller.family.oracle(smaller.spec, {"in": view(inputs[0])}, smaller.extents)["out"].value
        return Contender(lambda: [given(gpu, value * (1 + 1e-3 * (len(prepared) > 1)))])

    assert checks.wrong(Contender(list), prepare) is None
    assert str(checks.wrong(Contender(list), prepare)).startswith(f"on {less.name}: out")


def test_inputs_of_several_operands_are_all_compared_with() -> None:
    family, gpu = find_family(FAMILIES, "probe"), FakeGpu()
    case = ComparisonCase(family, family.catalogue[0], (1000,))
    assert [operand.name for operand in case.inputs] == ["a", "b"]
    inputs = random_inputs(gpu, case, 1)
    assert not np.array_equal(view(inputs[0]), view(inputs[1]))
    value = family.oracle(case.spec, {"a": view(inputs[0]), "b": view(inputs[1])}, case.extents)["out"].value
    checks = Checks(gpu, case, inputs)
    assert wrong(checks, [given(gpu, value)], ours=1) is None
    assert wrong(checks, [given(gpu, value + 1)], ours=1) is not None


def test_a_case_knows_what_follows_from_its_family() -> None:
    matrix = ComparisonCase(find_family(FAMILIES, "transpose"), gen.permutation((1, 0), "f4"), (30, 40))
    assert (matrix.name, matrix.dtype, matrix.nbytes) == ("transpose_10_b32 30x40", F32, 4800)
    assert matrix.layouts["out"].shape == (40, 30)
    for case in public_cases():
        assert len(case.inputs) == 1
        assert case.provable is case or case.family.name == "stencil"
