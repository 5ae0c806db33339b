"""When floating-point addition does not round."""

from __future__ import annotations

import numpy as np

from gen.dtypes import DType
from gen.families.base import Array

_PART = 1 << 18  # values looked at together, which a cache holds


def sums_are_exact(accumulator: DType, magnitude: float, *factors: Array) -> bool:
    """Whether every partial sum of products of the factors' elements is exact in `accumulator`, in any order.

    That holds if all products are multiples of one power of two, and their magnitudes add up to less than
    2^precision of it: then each partial sum is an integer times that power, and fits.
    """
    if not np.isfinite(magnitude):
        return False
    grain = float(np.prod([_grain(factor) for factor in factors]))
    return grain > 0 and magnitude <= grain * 2.0**accumulator.precision


def _grain(values: Array) -> float:
    """The largest power of two, at most 1, that divides every value; 0 if none above 2^-20 does."""
    grain = 1.0
    for part in np.array_split(values.reshape(-1), max(values.size // _PART, 1)):
        if grain:
            grain = min(grain, _grain_of_part(part))
    return grain


def _grain_of_part(values: Array) -> float:
    wide = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(wide)):
        return 0.0
    for exponent in (0, 4, 10, 20):
        scaled = np.ldexp(wide, exponent) if exponent else wide
        if np.array_equal(scaled, np.rint(scaled)):
            return 2.0**-exponent
    return 0.0
