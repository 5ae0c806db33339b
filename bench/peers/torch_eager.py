"""torch, one call after another."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench.arrays import Shared
from bench.peers.base import Contender, Outputs, Place, module, sweeps
from bench.peers.torch_arrays import function, inner, on_stream, tensor, window
from bench.works import Case, Permute, Sweep


class Torch:
    """torch's eager functions."""

    name = "torch"

    def version(self) -> str:
        """Of torch."""
        return str(module("torch").__version__)

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Reductions by function, transposes by copying a permuted view, stencils tap by tap."""
        torch = module("torch")
        stream, x = partial(on_stream, torch), tensor(torch, source)
        if isinstance(case.work, Sweep):
            arrays = [x, *(tensor(torch, place.copy(source)) for _ in range(2))]
            return sweeps(place, stream, arrays, partial(_sweep, torch, case.work), case.work.steps, "a pass a tap")
        if isinstance(case.work, Permute):
            view = x.permute(case.work.axes)
            out = Outputs(place, tuple(view.shape), case.dtype, partial(tensor, torch))
            return Contender(lambda: (out.now.copy_(view),), stream, places=out.places, use=out.use)
        compute = function(torch, case)
        return Contender(lambda: compute(x), stream)


def _sweep(torch: Any, work: Sweep, source: Any, target: Any) -> None:
    cells = inner(work, target)
    axes = tuple(range(work.ndim))
    for place, (offset, weight) in enumerate(work.taps):
        if work.boundary == "wrap":
            neighbours = torch.roll(source, tuple(-step for step in offset), axes)
        else:
            neighbours = source[window(work, offset)]
        if place == 0:
            torch.mul(neighbours, weight, out=cells)
        else:
            cells.add_(neighbours, alpha=weight)


PEER = Torch()
