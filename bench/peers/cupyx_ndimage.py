"""CuPy's counterpart of scipy.ndimage."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.arrays import Shared
from bench.peers.base import Contender, NotOfferedError, Place, module, sweeps
from bench.peers.cupy_arrays import array, on_stream
from bench.works import Case, Sweep


class CupyxNdimage:
    """`cupyx.scipy.ndimage.correlate`."""

    name = "cupyx"

    def version(self) -> str:
        """Of CuPy."""
        return str(module("cupy", "cupy-cuda13x").__version__)

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Stencils only; a frozen rim is copied back after each step."""
        work = case.work
        if not isinstance(work, Sweep):
            raise NotOfferedError("cupyx.scipy.ndimage", "has stencils only", work.label)
        cupy = module("cupy", "cupy-cuda13x")
        ndimage: Any = module("cupyx.scipy.ndimage", "cupy-cuda13x")
        x = array(cupy, source)
        arrays = [x, *(array(cupy, place.copy(source)) for _ in range(2))]
        weights = cupy.asarray(work.weights, dtype=x.dtype).reshape((2 * work.radius + 1,) * work.ndim)
        mode = "wrap" if work.boundary == "wrap" else "constant"

        def step(one: Any, other: Any) -> None:
            ndimage.correlate(one, weights, output=other, mode=mode)
            if work.boundary == "frozen":
                for rim in _rim(work):
                    other[rim] = x[rim]

        note = "the rim is copied back after each step" if work.boundary == "frozen" else ""
        return sweeps(place, partial(on_stream, cupy), arrays, step, work.steps, note)


def _rim(work: Sweep) -> list[tuple[slice, ...]]:
    """What lies within the radius of either end of each axis."""
    everything = slice(None)
    return [
        (everything,) * axis + (side,) + (everything,) * (work.ndim - axis - 1)
        for axis in range(work.ndim)
        for side in (slice(0, work.radius), slice(-work.radius, None))
    ]


PEER = CupyxNdimage()
