"""torch.compile with max-autotune, its own graphs left out."""

from __future__ import annotations

from functools import partial
from typing import Any

from gen.bench.arrays import Shared
from gen.bench.peers.base import Contender, Place, module, sweeps
from gen.bench.peers.torch_arrays import function, inner, on_stream, sweep, tensor
from gen.bench.works import Case, Sweep

# Kernels are compared: both sides are launched one by one, or both from a graph; never one alone.
MODE = "max-autotune-no-cudagraphs"


class TorchCompile:
    """The case as one function, compiled for its shape."""

    name = "torch.compile"

    def version(self) -> str:
        """Of torch, and of Triton."""
        triton = module("triton")
        return f"{module('torch').__version__}, triton {triton.__version__}"

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Compiles, and runs once."""
        torch = module("torch")
        stream, x = partial(on_stream, torch), tensor(torch, source)
        torch.compiler.reset()  # so that no earlier shape makes this one dynamic
        work = case.work
        if isinstance(work, Sweep):
            compiled = _compile(torch, sweep(torch, work))
            arrays = [x, *(tensor(torch, place.copy(source)) for _ in range(2))]

            def step(one: Any, other: Any) -> None:
                compiled(one, inner(work, other))

            return sweeps(place, stream, arrays, step, work.steps, MODE)
        compute = _compile(torch, function(torch, case))
        compute(x)
        return Contender(lambda: compute(x), stream, MODE)


def _compile(torch: Any, computation: Any) -> Any:
    return torch.compile(computation, mode=MODE, fullgraph=True, dynamic=False)


PEER = TorchCompile()
