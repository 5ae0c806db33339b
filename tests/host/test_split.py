"""Domains split among ranks: what parts compute from the cells that they are sent has the bits of the whole domain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.families.base import Array
from gen.families.stencil import StencilSpec
from gen.families.stencil.oracle import expected
from gen.families.stencil.spec import BOUNDARIES, Boundary
from gen.families.stencil.split import (
    Box,
    Cuts,
    Part,
    Share,
    boxes_of,
    even_cuts,
    extents_of_box,
    halos_of,
    most_steps,
    shares_of,
)
from tests.stencils import ENDS, origins


@dataclass(frozen=True)
class Problem:
    """A spec, where its domain is cut, and how many steps a rank computes alone."""

    spec: StencilSpec
    cuts: Cuts
    steps: int
    cells: Array


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(begin, end) for begin, end in box)


def seeded(seed: int) -> Problem:
    """One to eight ranks along each axis but not too many in all; many have fewer cells than weights reach."""
    random = np.random.default_rng(seed)
    axes = int(random.choice((1, 2, 2, 3)))
    shape = tuple(int(n) for n in random.integers(1, (10, 6, 4)[axes - 1], axes))
    ends: list[Any] = [*BOUNDARIES, *ENDS]
    boundary = tuple(ends[random.integers(len(BOUNDARIES) if random.random() < 0.5 else len(ends))] for _ in shape)
    weights = tuple((random.integers(-8, 9, prod(shape)) / 8).tolist())
    origin = tuple(int(random.integers(-(n // 2), (n - 1) // 2 + 1)) for n in shape)
    spec = StencilSpec("split", weights, shape, boundary=boundary, cval=1.5, origin=origin)
    most = (8, 4, 3)[axes - 1]
    grid = [int(random.integers(1, most + 1)) if random.random() < 0.7 else 1 for _ in shape]
    sizes = [random.integers(1, int(random.choice((2, 4, 13))), ranks).tolist() for ranks in grid]
    cuts = tuple((0, *accumulate(along)) for along in sizes)
    steps = int(random.integers(1, (most_steps(spec, grid) or 4) + 1))
    cells = random.random([along[-1] for along in cuts], np.float32)
    return Problem(spec, cuts, steps, cells)


def parts_of(share: Share) -> Iterator[Part]:
    yield from share.rims
    if share.inside is not None:
        yield share.inside


def read_by(part: Part, cells: Array) -> Array:
    """The cells that a part has when it has got all its pieces; those that nobody sends are no numbers."""
    found = np.full(extents_of_box(part.cells), np.nan, cells.dtype)
    for piece in (*part.own, *part.others):
        into = tuple(slice(at, at + n) for at, n in zip(piece.at, extents_of_box(piece.cells), strict=True))
        assert np.isnan(found[into]).all(), "sent twice"
        found[into] = cells[slices(piece.cells)]
    return found


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.exhaustive)], ids=("few", "many")
)
def test_parts_have_the_bits_of_the_whole_and_cover_it_once(seeds: range) -> None:
    for seed in seeds:
        problem = seeded(seed)
        want = expected(problem.spec, problem.cells, problem.steps).value
        found, covered = np.zeros_like(want), np.zeros(want.shape, int)
        for share in shares_of(problem.spec, problem.cuts, problem.steps):
            for part in parts_of(share):
                computed = expected(problem.spec, read_by(part, problem.cells), problem.steps).value
                valid = slices(
                    tuple((a - at, b - at) for (a, b), (at, _) in zip(part.valid, part.cells, strict=True))
                )  # fmt: skip
                found[slices(part.valid)] = computed[valid]
                covered[slices(part.valid)] += 1
        assert (covered == 1).all(), seed
        assert found.tobytes() == want.tobytes(), seed


@pytest.mark.parametrize("problem", [seeded(seed) for seed in range(12)])
def test_what_a_rank_reads_of_its_own_stays_in_place_and_the_rest_is_of_those_named(problem: Problem) -> None:
    boxes = boxes_of(problem.cuts)
    for rank, share in enumerate(shares_of(problem.spec, problem.cuts, problem.steps)):
        assert share.own == boxes[rank]
        assert share.inside is None or not share.inside.others
        for part in parts_of(share):
            for piece in part.own:
                begins = tuple(begin for begin, _ in part.cells)
                assert piece.owner == rank
                assert tuple(a + b for a, b in zip(begins, piece.at, strict=True)) == tuple(b for b, _ in piece.cells)
            for piece in part.others:
                assert piece.owner in share.owners
                for (begin, end), (low, high) in zip(piece.cells, boxes[piece.owner], strict=True):
                    assert low <= begin < end <= high


@pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 1000), marks=pytest.mark.exhaustive)], ids=("few", "many")
)
def test_what_others_read_of_a_rank_is_in_its_rims(seeds: range) -> None:
    for problem in map(seeded, seeds):
        shares = shares_of(problem.spec, problem.cuts, problem.steps)
        computed = [np.zeros(problem.cells.shape, bool) for _ in shares]
        for inside, share in zip(computed, shares, strict=True):
            for rim in share.rims:
                inside[slices(rim.valid)] = True
        for share in shares:
            for part in parts_of(share):
                assert all(computed[piece.owner][slices(piece.cells)].all() for piece in part.others)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 8)), min_size=1, max_size=3))
def test_even_cuts_are_those_of_array_split(axes: list[tuple[int, int]]) -> None:
    for along, (extent, ranks) in zip(even_cuts(*zip(*axes, strict=True)), axes, strict=True):
        sizes = [len(part) for part in np.array_split(np.arange(extent), ranks)]
        assert along == (0, *accumulate(sizes))


@given(st.data(), st.sampled_from(BOUNDARIES))
def test_halos_are_as_wide_as_steps_reach_and_none_where_an_axis_is_whole(data: st.DataObject, end: Boundary) -> None:
    extent, steps = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 5))
    spec = StencilSpec("halo", (1.0,) * extent, (1, extent), boundary=end, origin=(0, data.draw(origins(extent))))
    wide = steps * max(spec.before[1], spec.after[1])
    assert halos_of(spec, ((0, 7), (0, 40, 80)), steps) == (0, wide)
    assert halos_of(spec, ((0, 3, 7), (0, 80)), steps) == (0, 0)


def test_steps_are_not_joined_where_one_end_alone_wraps() -> None:
    spec = StencilSpec("ends", (1.0,) * 3, (3,), boundary=(("wrap", "mirror"),))
    assert most_steps(spec, (2,)) == 1
    assert most_steps(spec, (1,)) is None  # the axis is not split
    assert most_steps(StencilSpec("ends", (1.0,) * 3, (3,), boundary="wrap"), (2,)) is None
