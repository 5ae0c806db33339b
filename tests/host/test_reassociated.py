"""Terms in an order that takes fewer operations: how many are left, and how far a sum may be from the exact one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gen
from gen.errors import SpecError
from gen.families.base import Array
from gen.families.names import illegal
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.oracle import expected

DISTINCT = [[1, 2, 3, 2, 1], [4, 5, 6, 5, 4], [7, 8, 9, 8, 7], [4, 5, 6, 5, 4], [1, 2, 3, 2, 1]]
NORMAL = np.exp(-(np.linspace(-1.3, 1.3, 5) ** 2))


@pytest.mark.parametrize(
    ("weights", "operations", "roundings"),
    [
        (gen.box(2, 1), 6, 6),  # 3 terms of a row, and 3 rows
        (gen.box(2, 2), 10, 10),
        (np.outer(NORMAL, NORMAL), 10, 12),  # factors and bases do not give all weights: two roundings more
        (DISTINCT, 15, 11),  # 2 pairs, 3 terms of each base and of the row between, 4 rows: 1 + 3 + 3 + 4 roundings
        ([[1, 2, 4], [3, 5, 7], [2, 4, 8]], 8, 8),  # no row is symmetric
    ],
)
def test_rows_that_are_alike_and_cells_of_a_pair_are_added_once(weights: Any, operations: int, roundings: int) -> None:
    spec = gen.stencil(weights, reassociate=True)
    assert (spec.operations, spec.roundings) == (operations, roundings)
    plain = gen.stencil(weights)
    assert (plain.operations, plain.roundings) == (len(plain.taps),) * 2
    assert spec.label != plain.label
    assert StencilSpec.from_json(spec.to_json()) == spec != plain
    assert "reassociate" not in plain.to_json()


@pytest.mark.parametrize("weights", [gen.star(2, 1), gen.star(2, 4), gen.star(1, 3), gen.box(1, 2), [[1.0, 2.0]]])
def test_a_spec_of_which_nothing_is_saved_is_the_plain_one(weights: Any) -> None:
    assert gen.stencil(weights, reassociate=True) == gen.stencil(weights)


def test_weights_over_planes_are_refused() -> None:
    with pytest.raises(SpecError, match="reassociate must be False where weights reach over planes"):
        gen.stencil(gen.box(3, 1), reassociate=True)
    assert gen.stencil(gen.box(2, 1)[np.newaxis], reassociate=True).operations == 6  # a batch of images
    given: Any = "yes"
    with pytest.raises(SpecError, match="reassociate must be True or False"):
        gen.stencil(gen.box(2, 1), reassociate=given)


def test_only_algorithms_that_add_so_have_variants() -> None:
    family, spec = Stencil(), gen.stencil(gen.box(2, 1), reassociate=True)
    found = {name for name, one in family.algorithms.items() if illegal(one, spec, one.config()) is None}
    assert found == {name for name, made, _ in family.proof_cover() if made.reassociate}
    assert found == {"naive", "stream", "temporal", "pipelined"}


def exact(spec: StencilSpec, cells: Array, row: int, col: int) -> tuple[Fraction, Fraction]:
    """The sum of a cell, and that of its terms' magnitudes."""
    terms = [Fraction(weight) * Fraction(float(cells[row + y, col + x])) for (y, x), weight in spec.taps]
    return sum(terms, Fraction()), sum(map(abs, terms), Fraction())


ROWS = st.lists(st.integers(-4, 9), min_size=5, max_size=5)
FACTORS = st.lists(st.sampled_from([1.0, 1.0, 2.0, -0.75, 1 / 3, 0.1]), min_size=5, max_size=5)


@given(ROWS, ROWS, FACTORS, st.booleans(), st.sampled_from(["f4", "f8"]), st.integers(0, 2**32))
def test_a_sum_is_within_its_bound(
    one: list[int], other: list[int], factors: list[float], mirrored: bool, dtype: str, seed: int
) -> None:
    """Of weights that are multiples of two rows, exactly or nearly, and of cells of all magnitudes."""
    bases = [np.asarray(row) / 7 for row in (one, other)]
    if mirrored:
        bases = [base + base[::-1] for base in bases]
    weights = [factor * bases[place % 2] for place, factor in enumerate(factors)]
    spec = gen.stencil(weights, dtype=dtype, reassociate=True)
    random = np.random.default_rng(seed)
    cells = (random.standard_normal((5, 7)) * 2.0 ** random.integers(-12, 12, (5, 7))).astype(dtype)
    (found,) = expected(spec, cells, 1).value[2:-2, 2:-2]
    unit = Fraction(spec.accumulator.unit_roundoff)
    gamma = spec.roundings * unit / (1 - spec.roundings * unit)
    for col, got in enumerate(found):
        value, magnitude = exact(spec, cells, 2, col + 2)
        assert abs(Fraction(float(got)) - value) <= gamma * magnitude


def by_hand(cells: Array) -> Any:
    """The cell in the middle of five rows, pairs first: no sum that is rounded here needs more than a double."""

    def of_row(y: int, weights: list[int], total: Any) -> Any:
        near, far = cells[y, 1] + cells[y, 3], cells[y, 0] + cells[y, 4]
        for weight, cell in zip(weights, (far, near, cells[y, 2]), strict=False):
            total = np.float32(float(weight) * float(cell) + float(total))
        return total

    total = np.float32(0)
    for y in range(5):
        total = of_row(y, DISTINCT[2], total) if y == 2 else total + of_row(y, DISTINCT[y], np.float32(0))
    return total


def test_pairs_come_first_and_rows_of_a_base_share_its_sum() -> None:
    spec, plain = gen.stencil(DISTINCT, reassociate=True), gen.stencil(DISTINCT)
    several = np.random.default_rng(5).standard_normal((16, 5, 5)).astype(np.float32)
    assert all(expected(spec, cells, 1).value[2, 2] == by_hand(cells) for cells in several)
    assert any(expected(plain, cells, 1).value[2, 2] != by_hand(cells) for cells in several)
