"""Sums of terms in another order, which takes fewer operations where weights are symmetric.

Rows of weights that are multiples of one another share a sum of cells, their base: a box of equal weights is a pass
along the rows and one across them. Where several of the sums that are left are symmetric, cells at the same distance
before and after the centre are added first, once for all of them. 25 operations become 15, or 10.

Each row of weights still comes after the one above it, so kernels that take rows one by one can add so. The order
depends on the weights alone: all variants give the same bits.

The error: a cell takes part in at most `roundings` roundings of unit u, those of the product with its weight among
them, so a sum is within gamma_h = h u / (1 - h u) times the sum of the magnitudes of its terms (Higham, Accuracy and
Stability of Numerical Algorithms, section 3.1). A weight that its factor and base give with an error of 2 u at most,
which is checked in exact arithmetic, counts as two roundings more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gen.dtypes import DType

Row = Mapping[int, float]
"""Weights of a row, those of 0 left out, by the offset of the column."""

_INEXACT = 2  # roundings that a weight counts as, if its factor and base give it with an error


@dataclass(frozen=True)
class RowSum:
    """What the cells of a row add to a sum.

    Attributes:
        base: the number of the base that is multiplied by `factor`; None: the row's own weights count.
        factor: of the base.
    """

    base: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class Terms:
    """How the terms of a sum are added.

    Attributes:
        rows: weights by row, from the first offset to the last.
        bases: weights of rows that several are multiples of.
        sums: what each row adds, by its offset, in order.
        pairs: distances of cells that are added to those as far on the other side first.
        exact: whether factors and bases give all weights.
    """

    rows: Mapping[int, Row]
    bases: tuple[Row, ...]
    sums: Mapping[int, RowSum]
    pairs: frozenset[int]
    exact: bool

    @classmethod
    def of(cls, taps: Sequence[tuple[tuple[int, ...], float]], accumulator: DType) -> Terms:
        """Those of weights that lie in rows, by offset: what saves operations is shared."""
        rows: dict[int, dict[int, float]] = {}
        for (*_, down, along), weight in taps:
            rows.setdefault(down, {})[along] = weight
        bases: list[Row] = []
        sums: dict[int, RowSum] = {}
        exact = True
        for down, row in rows.items():
            if down in sums:
                continue
            alike = {other: _factor(row, rows[other], accumulator) for other in rows if other not in sums}
            found = {other: factor for other, factor in alike.items() if factor is not None}
            if len(found) * len(row) > len(found) + len(row):
                sums |= {other: RowSum(len(bases), factor) for other, factor in found.items()}
                exact = exact and all(_error(row, rows[other], factor) == 0 for other, factor in found.items())
                bases.append(row)
            else:
                sums[down] = RowSum()
        summed = [*bases, *(rows[down] for down, one in sums.items() if one.base is None)]
        return cls(rows, tuple(bases), {down: sums[down] for down in rows}, frozenset(_pairs(summed)), exact)

    @property
    def operations(self) -> int:
        """Additions and fused multiply-adds of a cell."""
        return len(self.pairs) + sum(map(self._terms, self.bases)) + self._last

    @property
    def roundings(self) -> int:
        """The most on the way from a cell to its sum."""
        before = max(map(self._terms, self.bases), default=0) + (0 if self.exact else _INEXACT)
        return (1 if self.pairs else 0) + before + self._last

    @property
    def _last(self) -> int:
        """Terms of the sum of all rows."""
        return sum(self._terms(self.rows[down]) if one.base is None else 1 for down, one in self.sums.items())

    def _terms(self, row: Row) -> int:
        return len(row) - sum(distance in row for distance in self.pairs)


def _factor(base: Row, row: Row, accumulator: DType) -> float | None:
    """What the weights of a base are multiplied by to be those of a row, but for 2 u; None if nothing does."""
    if base.keys() != row.keys():
        return None
    largest = max(base, key=lambda along: abs(base[along]))
    number = accumulator.numpy.type
    factor = float(number(number(row[largest]) / number(base[largest])))
    allowed = 2 * Fraction(accumulator.unit_roundoff)
    return factor if factor and _error(base, row, factor) <= allowed else None


def _error(base: Row, row: Row, factor: float) -> Fraction:
    """The largest relative error of a weight that a base and a factor give."""
    return max(abs(Fraction(base[along]) * Fraction(factor) / Fraction(row[along]) - 1) for along in row)


def _pairs(rows: Sequence[Row]) -> Iterator[int]:
    """Distances at which all rows that read there are symmetric, if they are two or more."""
    for distance in sorted({abs(along) for row in rows for along in row} - {0}):
        there = [row for row in rows if distance in row or -distance in row]
        if len(there) > 1 and all(row.get(distance) == row.get(-distance) for row in there):
            yield distance
