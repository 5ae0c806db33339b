"""A plain program that stands for a research code: `foreign_plain.py EXTENTS... STEPS DTYPE INPUT OUTPUT`, by NumPy.

Computes the star of radius 1 with equal weights, 0 outside, prints its time, and writes its result unless OUTPUT is -.
"""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> None:
    """Each step adds all neighbours first: another order than gen's."""
    *extents, steps, dtype, source, target = sys.argv[1:]
    cells = np.fromfile(source, f"f{int(dtype[1:]) // 8}").reshape([int(extent) for extent in extents])
    start = time.perf_counter()
    for _ in range(int(steps)):
        around, inside = np.pad(cells, 1), (slice(1, -1),) * cells.ndim
        neighbours = sum(np.roll(around, way, axis)[inside] for axis in range(cells.ndim) for way in (-1, 1))
        cells = (cells + neighbours) * cells.dtype.type(1 / (2 * cells.ndim + 1))
    sys.stdout.write(f"setup took 3 s\nkernel: {(time.perf_counter() - start) * 1e3:.3f} ms, {steps} steps\n")
    if target != "-":
        cells.tofile(target)


main()
