"""Tiles whose rows and columns run along several axes: groups cover every array once, and all elements get there."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from math import gcd, prod
from operator import itemgetter

import pytest
from hypothesis import given

from gen.dtypes import B8, B16, B32
from gen.families.base import Extents, Limits
from gen.families.config import pairwise
from gen.families.names import illegal, search_space, variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.grouped_tile import GroupedTile, GroupedTileConfig
from gen.families.transpose.values import BITS
from gen.proof.cases import OFFSETS, Case, Content
from gen.proof.host import HostRunner
from gen.proof.prover import check
from tests.host.test_packed import problem, problems

FAMILY, GROUPED = Transpose(), GroupedTile()
LIMITS = Limits.of("sm_90")


def grouped(spec: TransposeSpec, extents: Extents, **config: int) -> str | None:
    """Why the problem has no groups that 32 bits are enough for; None if it has."""
    made = GroupedTileConfig(axes=max(len(spec.axes), 2), index_bits=32, **config)  # type: ignore[arg-type]
    return GROUPED.unsupported_extents(spec, made, extents, LIMITS)


@given(problems())
def test_groups_cover_each_axis_once_and_begin_with_the_fastest(drawn: tuple[TransposeSpec, Extents]) -> None:
    _, extents = drawn
    of_rows, of_cols, axes = (extents[f"group_{what}"] for what in ("row_axes", "col_axes", "axes"))
    if extents["group_cols"] == 0:
        fastest = extents["box0_in"] == min(extents[f"box{place}_in"] for place in range(extents["box_axes"]))
        assert fastest or extents["box0_extent"] == 0
        return
    groups = [tuple(extents[f"group{place}_{what}"] for what in ("extent", "in", "out")) for place in range(axes)]
    boxes = [tuple(extents[f"box{place}_{what}"] for what in ("extent", "in", "out")) for place in range(axes)]
    assert sorted(groups) == sorted(boxes)
    rows, cols = groups[:of_rows], groups[of_rows : of_rows + of_cols]
    assert rows == sorted(groups, key=lambda axis: axis[2])[:of_rows]
    assert cols == sorted(groups, key=lambda axis: axis[1])[:of_cols]
    numbers = [prod(axis[0] for axis in group) for group in (rows, cols, groups[of_rows + of_cols :])]
    assert numbers == [extents[f"group_{what}"] for what in ("rows", "cols", "others")]
    # Vectors of as many elements begin and end where rows do, in both arrays.
    steps = [axis[1] for axis in groups if axis is not cols[0]] + [axis[2] for axis in groups if axis is not rows[0]]
    has_runs = cols[0][1] == rows[0][2] == 1
    assert extents["group_grain"] == (gcd(16, rows[0][0], cols[0][0], *steps) if has_runs else 1)
    # The longer of two groups takes no axis that the shorter one could have.
    if of_rows + of_cols < axes:
        by_out, by_in = (sorted(groups, key=itemgetter(at)) for at in (2, 1))
        assert by_out[of_rows] in cols
        assert by_in[of_cols] in rows


def test_tiles_of_groups_equal_numpy(host_runner: HostRunner) -> None:
    """Of vectors and of elements, in rows and columns that one axis has, or several; of the other axes too."""
    forms = cycle(
        (
            ((2, 1, 0), (13, 7, 66)), ((0, 3, 2, 1), (3, 24, 6, 40)), ((1, 0), (97, 203)), ((3, 2, 1, 0), (5, 6, 7, 8)),
            ((2, 4, 3, 1, 0), (8, 5, 3, 4, 16)), ((2, 0, 3, 1), (6, 16, 5, 8)), ((1, 0), (64, 48)),
        )
    )  # fmt: skip
    gaps = cycle(((0, 0), (1, 0), (0, 16), (16, 0), (0, 0), (0, 3)))
    covers = [
        one for dtype in (B8, B32) for one in pairwise(tuple(search_space(GROUPED, TransposeSpec((1, 0), dtype))))
    ]
    made, cases = [], []
    for number, (config, (axes, shape), gap) in enumerate(zip(covers, forms, gaps, strict=False)):
        assert isinstance(config, GroupedTileConfig)
        # The widest elements of which vectors hold two, or those that they hold one of.
        dtype = BITS[max(config.vec_bytes // (1 + number % 2), 1) if config.vec_bytes > 4 else config.vec_bytes]
        spec = TransposeSpec(axes, dtype)
        found = replace(config, axes=len(axes), index_bits=(32, 64)[number % 2])
        if illegal(GROUPED, spec, found) is None:
            made.append(variant(FAMILY, spec, GROUPED, found))
            cases.append(
                Case(problem(spec, shape, *gap), Content.RANDOM, number, offset=OFFSETS[number % len(OFFSETS)])
            )
    assert len(made) > len(covers) / 2
    for kernel, case in zip(host_runner.load(made), cases, strict=True):
        failure = check(kernel, host_runner.limits, case)
        assert failure is None, str(failure)


def test_elements_with_gaps_after_each_are_moved_one_by_one(host_runner: HostRunner) -> None:
    """Of one column in rows that lie apart, no vector holds two elements."""
    spec = TransposeSpec((1, 0, 2), B32)
    made = variant(FAMILY, spec, GROUPED, GroupedTileConfig(axes=3))
    (kernel,) = host_runner.load([made])
    for gaps in ((15, 0), (0, 3), (15, 3)):
        failure = check(kernel, host_runner.limits, Case(problem(spec, (64, 48, 1), *gaps), Content.RANDOM))
        assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("spec", "config", "says"),
    [
        (TransposeSpec((2, 1, 0), B32), {"vec_bytes": 2}, "vec_bytes 2 is smaller than one b32"),
        (TransposeSpec((2, 1, 0), B8), {"vec_bytes": 2}, "a vector of 2 bytes is smaller than a 4-byte word"),
        (TransposeSpec((0, 2, 1), B16, in_place=True), {}, "it cannot work in place"),
        (TransposeSpec((1, 0), B16), {}, "it is for 3 axes, and the array has 2"),
        (TransposeSpec((0, 1, 2), B16), {}, "it transposes, and here the axes keep their order"),
        (TransposeSpec((2, 1, 0), B16), {"unroll": 16, "vectors_down": 8}, "unroll 16 is too large for a tile"),
        (TransposeSpec((2, 1, 0), B16), {"vectors_across": 64, "vectors_down": 64, "unroll": 8}, "the tile needs"),
    ],
)
def test_grouped_tile_says_what_it_cannot_compute(spec: TransposeSpec, config: dict[str, int], says: str) -> None:
    reason = illegal(GROUPED, spec, GroupedTileConfig(**{"axes": 3, **config}))  # type: ignore[arg-type]
    assert reason is not None
    assert says in reason


def test_runs_that_both_arrays_have_are_no_groups() -> None:
    reason = grouped(TransposeSpec((1, 0, 2), B16), problem(TransposeSpec((1, 0, 2), B16), (30, 20, 10)))
    assert reason == "the fastest axes of input and output are the same, or the array is empty"


def test_what_32_bits_do_not_reach_says_so() -> None:
    spec = TransposeSpec((2, 1, 0), B8)
    assert grouped(spec, problem(spec, (5, 1 << 20, 1 << 10))) == (
        "an element's index may be 5368709119; with 32 bits it is 4294967295 at most"
    )
