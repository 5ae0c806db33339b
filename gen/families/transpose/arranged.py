"""Sizes at which a permutation is what an algorithm is made for: matrices that it turns, or runs that it copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from gen.families.base import Extents
from gen.families.transpose.spec import TransposeSpec


def turns(spec: TransposeSpec) -> bool:
    """Whether any two axes change their order: else the permutation turns no matrix."""
    return spec.axes != tuple(range(len(spec.axes)))


def turned(
    spec: TransposeSpec, rows: int, cols: int, matrices: int = 1, *, in_gap: int = 0, out_gap: int = 0
) -> Extents:
    """Axes and pitches of an array of matrices, each of rows x cols, that the permutation turns.

    Args:
        spec: one that `turns`.
        rows: of a matrix; each is a column of the output.
        cols: of a matrix.
        matrices: how many follow each other in both arrays; a single one where no axis comes before both of the
            matrix in both arrays.
        in_gap: elements after each row of the input, where its rows are those of the matrix.
        out_gap: the same in the output.
    """
    last = len(spec.axes) - 1
    there = _places(spec)
    found: list[tuple[tuple[bool, bool, bool], dict[int, int]]] = []
    for row, col in combinations(range(last + 1), 2):
        if there[row] > there[col]:
            before = next((axis for axis in range(row) if there[axis] < there[col]), None)
            many = {} if before is None or matrices == 1 else {before: matrices}
            wishes = (before is not None or matrices == 1, col == last or not in_gap, there[row] == last or not out_gap)
            found.append((wishes, {row: rows, col: cols, **many}))
    wishes, shape = max(found, key=lambda one: one[0])
    return _known(spec, shape, in_gap * wishes[1], out_gap * wishes[2])


def copied(spec: TransposeSpec, run: int, runs: Sequence[int] = (), *, gap: int = 1) -> Extents:
    """Axes and pitches of an array whose elements stay neighbours, in runs that do not follow each other.

    Args:
        spec: what is computed.
        run: elements of a run.
        runs: how many there are, along one axis between whose runs there is a gap, or along two axes that change their
            order. Where the spec has no such axes, along fewer.
        gap: elements between the runs of one axis, in the array, or both, whose rows they are.
    """
    last, there = len(spec.axes) - 1, _places(spec)
    for axes in combinations(range(last + 1), len(runs) + 1):
        *others, along = axes
        places = [there[axis] for axis in axes]
        gaps = (gap * (along == last), gap * (there[along] == last))
        apart = not others or (any(gaps) if len(others) == 1 else places[0] > places[1])
        if apart and max(places) == there[along]:
            pitched = gaps if len(others) == 1 else (0, 0)
            return _known(spec, {**dict(zip(others, runs, strict=True)), along: run}, *pitched)
    return copied(spec, run, runs[1:], gap=gap)


def _places(spec: TransposeSpec) -> Mapping[int, int]:
    """Where each axis of the input is among those of the output."""
    return {axis: place for place, axis in enumerate(spec.axes)}


def _known(spec: TransposeSpec, shape: Mapping[int, int], in_gap: int, out_gap: int) -> Extents:
    """The extents of every axis, those not named 1, and the pitches."""
    one, two = spec.operands
    known = {str(name): shape.get(axis, 1) for axis, name in enumerate(one.axes)}
    pitches = {o.pitch: known[str(o.axes[-1])] + gap for o, gap in ((one, in_gap), (two, out_gap)) if o.pitch}
    return known | pitches
