"""What a judge lets pass: right results in any order of additions, and nothing else."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from bench.arrays import Shared
from bench.cases import STATISTICS, public_cases
from bench.judge import Judge, roundings
from bench.offers import problem_of
from bench.works import Case, Permute, Reduce
from gen.dtypes import F16, F32, DType
from gen.families import FAMILIES
from gen.families.base import Array
from gen.proof.oracle import gamma
from tests.fake_ring import FakeRing, view


def judged(ring: FakeRing, case: Case) -> tuple[Judge, Array]:
    """A judge of a case, and its input."""
    problem = problem_of(case, FAMILIES)
    source = ring.random(case.shape, case.dtype, 1)
    x = view(source).copy()
    return Judge(ring, case, problem.spec, problem.family.oracle(problem.spec, {"in": x}, problem.extents)), x


def given(ring: FakeRing, value: float, dtype: DType = F32) -> Shared:
    made = ring.array((), dtype)
    view(made)[...] = value
    return made


@pytest.mark.parametrize("case", [one for one in public_cases() if isinstance(one.work, Reduce)], ids=lambda x: x.name)
def test_every_public_sum_is_bounded(case: Case) -> None:
    if case.dtype.kind == "float":
        assert gamma(roundings(case), F32.unit_roundoff) < 2.0**-11


@pytest.mark.parametrize("factor", [0.0, np.nan, np.inf, -1.0, 0.99, 1.001])
def test_a_wrong_sum_of_squares_of_very_many_is_found(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = FakeRing()
    case = Case(Reduce(STATISTICS), F32, (1 << 16,))
    judge, x = judged(ring, case)
    # As many roundings as the public case of 2^26 elements has terms: what it is judged by, but for the memory.
    large = Case(case.work, F32, (1 << 26,))
    monkeypatch.setattr(judge, "_roundings", roundings(large))
    right = [x.sum(dtype=np.float64), (x.astype(np.float64) ** 2).sum(), x.min(), x.max()]
    assert judge.wrong([given(ring, value) for value in right]) is None
    for place in range(len(right)):
        spoiled = [given(ring, value * factor if place == at else value) for at, value in enumerate(right)]
        if place != 0 or right[0] != 0:
            assert judge.wrong(spoiled) is not None, STATISTICS[place]
    assert prod(large.shape) * F32.unit_roundoff > 1, "the bound for any order is infinite"


def test_a_sum_of_halves_in_halves_is_a_difference_of_meaning_of_peers_alone() -> None:
    ring = FakeRing()
    case = Case(Reduce(("sum",)), F16, (1 << 20,))
    judge, x = judged(ring, case)
    right = float(x.sum(dtype=np.float64))
    unit = np.spacing(np.float16(right)).astype(np.float64)
    assert judge.differences([given(ring, right, F16)]) == []
    off = [given(ring, right + 2 * unit, F16)]
    assert judge.wrong(off) is not None, "ours adds in f32"
    assert judge.wrong(off, narrow=True) is None
    (note,) = judge.differences(off)
    assert note == f"adds in f16: off by {2 * unit:.3g}, of 20.2 that this may cost"
    for value in (right + 30, np.nan, np.inf):
        wrong = [given(ring, value, F16)]
        assert judge.wrong(wrong, narrow=True) is not None
        assert judge.differences(wrong) == []


def test_no_other_operator_or_type_may_be_narrow() -> None:
    ring = FakeRing()
    for op, dtype in (("sum", F32), ("max", F16)):
        judge, x = judged(ring, Case(Reduce((op,)), dtype, (1 << 12,)))
        value = float(getattr(x.astype(np.float64), op)())
        assert judge.wrong([given(ring, value, dtype)], narrow=True) is None
        assert judge.wrong([given(ring, value + 1, dtype)], narrow=True) is not None


def test_what_numpy_says_of_a_large_case_is_brought_to_the_device_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = FakeRing()
    judge, x = judged(ring, Case(Permute((1, 0)), F32, (600, 500)))
    out = ring.array((500, 600), F32)
    view(out)[...] = x.T
    made: list[int] = []
    contiguous = np.ascontiguousarray

    def counted(array: Array, *rest: Any) -> Array:
        made.append(array.size)
        return contiguous(array, *rest)

    monkeypatch.setattr(np, "ascontiguousarray", counted)
    assert judge.wrong([out]) is None
    assert made.count(x.size) == 1
    view(out)[7, 9] += 1
    assert judge.wrong([out]) is not None
    assert made.count(x.size) == 1
