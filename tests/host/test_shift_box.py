"""Boxes of small elements that are turned by squares: longer runs than those of packed, and fewer requests."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given

from gen.dtypes import B8, B16, B32
from gen.families import FAMILIES
from gen.families.base import Extents, Limits
from gen.families.config import pairwise
from gen.families.extents import extents_of
from gen.families.names import find_variant, illegal, search_space, variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.packed import boxes_of
from gen.families.transpose.algorithms.shift_box import ShiftBox, ShiftBoxConfig
from gen.proof.cases import OFFSETS, Case, Content
from gen.proof.host import HostKernel, HostRunner
from gen.proof.prover import check
from gen.proof.trace import traffic
from gen.runtime.dispatch import Chooser
from tests.host.test_packed import problem, problems

FAMILY, SHIFT_BOX = Transpose(), ShiftBox()
LIMITS = Limits.of("sm_90")


def boxed(spec: TransposeSpec, extents: Extents) -> bool:
    """Whether the problem has boxes with long columns."""
    config = ShiftBoxConfig(axes=max(len(spec.axes), 2))
    return SHIFT_BOX.unsupported_extents(spec, config, extents, LIMITS) is None


@given(problems())
def test_no_run_is_shorter_than_those_of_packed(drawn: tuple[TransposeSpec, Extents]) -> None:
    spec, extents = drawn
    if spec.dtype.size < 4 and boxed(spec, extents):
        runs = boxes_of(spec, extents).runs
        assert min(extents["wide_run"], extents["wide0_places"]) >= min(runs.read, runs.written)
        assert 16 <= extents["wide0_places"] <= extents["box0_extent"]
        for place in range(extents["box_axes"]):
            assert 1 <= extents[f"wide{place}_places"] <= max(extents[f"box{place}_extent"], 1)


def test_boxes_of_small_elements_equal_numpy(host_runner: HostRunner) -> None:
    """Several boxes along an axis, the last of them cut off; rows and columns that gaps end, or begin between words."""
    forms = cycle(
        (
            ((2, 1, 0), (130, 7, 67)), ((0, 3, 2, 1), (3, 300, 2, 45)), ((1, 0), (97, 203)), ((0, 2, 1), (3, 46, 161)),
            ((2, 0, 1), (19, 30, 77)), ((3, 1, 0, 2), (33, 3, 21, 5)),
        )
    )  # fmt: skip
    gaps = cycle(((0, 0), (1, 0), (0, 3), (5, 2), (0, 0)))
    covers = pairwise(tuple(search_space(SHIFT_BOX, TransposeSpec((2, 1, 0), B8))))
    chosen = list(zip((*covers, *covers), forms, cycle((B8, B16)), gaps, strict=False))
    tried = 0
    specs = [TransposeSpec(axes, dtype) for _, (axes, _), dtype, _ in chosen]
    made = [
        variant(FAMILY, spec, SHIFT_BOX, ShiftBoxConfig(**{**vars(one), "axes": len(spec.axes)}))
        for spec, (one, _, _, _) in zip(specs, chosen, strict=True)
    ]
    kernels = host_runner.load(made)
    for number, (spec, kernel, (_, (_, shape), _, gap)) in enumerate(zip(specs, kernels, chosen, strict=True)):
        extents = problem(spec, shape, *gap)
        if boxed(spec, extents):
            case = Case(extents, Content.RANDOM, number, offset=OFFSETS[number % len(OFFSETS)])
            failure = check(kernel, host_runner.limits, case)
            assert failure is None, str(failure)
            tried += 1
    assert tried > len(made) / 2


def test_odd_rows_take_half_the_sectors_of_packed(host_runner: HostRunner) -> None:
    """Those of requests, whatever a cache keeps between these."""
    spec = TransposeSpec((2, 1, 0), B8)
    extents = extents_of(FAMILY, spec, (129, 40, 97))
    shifted, packed = (f"transpose_210_b8__{tag}" for tag in ("shift_box_a3_tpb512", "packed_a3_tpb512_u4"))
    moved = []
    for kernel in host_runner.load([find_variant(FAMILIES, name, {}) for name in (shifted, packed)]):
        assert isinstance(kernel, HostKernel)
        found = traffic(kernel, host_runner.limits, extents)
        moved.append(sum(access.sectors for access in found.of("global")))
    assert 2 * moved[0] < moved[1]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (TransposeSpec((2, 1, 0), B32), "elements of 4 bytes are whole words: they need no shifting"),
        (TransposeSpec((0, 2, 1), B8, in_place=True), "it cannot work in place"),
        (TransposeSpec((1, 0), B8), "it is for 3 axes, and the array has 2"),
    ],
)
def test_shift_box_says_what_it_cannot_compute(spec: TransposeSpec, says: str) -> None:
    reason = illegal(SHIFT_BOX, spec, ShiftBoxConfig(axes=3))
    assert reason is not None
    assert says in reason


def test_what_has_no_long_columns_says_so() -> None:
    spec = TransposeSpec((0, 2, 1), B8)
    for shape, gap in (((1000, 3, 5), 0), ((7, 1, 1000), 0), ((7, 1, 1000), 2)):
        extents = problem(spec, shape, 0, gap)  # of which the output's columns do not follow each other
        reason = SHIFT_BOX.unsupported_extents(spec, ShiftBoxConfig(axes=3), extents, LIMITS)
        assert reason == "runs are too short, or lie along the same axis in both arrays, for boxes of 16 rows"


def test_untuned_odd_rows_of_bytes_are_turned_by_squares() -> None:
    spec = TransposeSpec((1, 0), B8)
    for shape, gap in (((129, 524289), 0), ((73896451, 9), 3)):  # of bench/estimates-words-h200.json
        found = Chooser(FAMILY, spec, (), "Some GPU", LIMITS).choose(dict(problem(spec, shape, gap)))
        assert found.variant.algorithm.name == "shift_box"
