"""JAX: the case as a jitted function."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gen.compare.case import ComparisonCase
from gen.compare.peers.base import (
    Contender,
    NotOfferedError,
    SharedArray,
    boundary_of,
    check_permutation,
    module,
    neighbours,
    reductions,
    weighted_sum,
    window,
)
from gen.compare.peers.torch import tensor
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.families.transpose import TransposeSpec

if TYPE_CHECKING:
    from gen.compare.gpu import ComparisonGpu

MAX_STEPS = 32
NOTE = "on a stream of its own: the hand-over there and back is in its time"
_PAD_MODES = {"constant": "constant", "nearest": "edge", "reflect": "symmetric", "mirror": "reflect"}


class Jax:
    """`jax.jit`. JAX has a stream of its own and shows no handle of it: DLPack orders it before and after ours."""

    name = "jax"

    def version(self) -> str:
        """Of JAX."""
        return str(_jax().__version__)

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: ComparisonGpu) -> Contender:
        """Compiles, and runs once."""
        if case.runtime_parameters.get("steps", 1) > MAX_STEPS:
            rule = f"repeats more than {MAX_STEPS} steps in a loop that its host drives, which cannot be queued ahead"
            raise NotOfferedError("JAX", rule, case.runtime_parameters["steps"])
        jax, numpy, torch = _jax(), module("jax.numpy"), module("torch")
        compute = jax.jit(_function(numpy, case))
        x = tensor(torch, source)

        def launch() -> Sequence[Any]:
            outputs = compute(jax.dlpack.from_dlpack(x))
            return tuple(torch.from_dlpack(output) for output in outputs)  # the current stream waits for them

        launch()
        return Contender(launch, note=NOTE)


def _jax() -> Any:
    # Else it takes three quarters of the GPU's memory, and reads 64-bit numbers as 32.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("JAX_ENABLE_X64", "1")
    return module("jax")


def _function(numpy: Any, case: ComparisonCase) -> Callable[[Any], Sequence[Any]]:
    spec = case.spec
    if isinstance(spec, TransposeSpec):
        check_permutation("JAX", spec)
        dtype = case.result_dtypes[0].numpy
        return lambda x: (numpy.transpose(x, spec.axes).astype(dtype),)
    if isinstance(spec, ReductionSpec):
        return reductions("JAX", numpy, spec)
    if not isinstance(spec, StencilSpec):
        raise NotOfferedError("JAX", "is not asked here for such a spec", case.name)
    boundary = boundary_of("JAX", spec)
    widths = tuple(zip(spec.before, spec.after, strict=True))

    def pad(x: Any) -> Any:
        mode = _PAD_MODES[boundary]
        options = {"constant_values": spec.cval} if mode == "constant" else {}
        return numpy.pad(x, widths, mode=mode, **options)

    def steps(x: Any) -> Sequence[Any]:
        for _ in range(case.runtime_parameters.get("steps", 1)):
            cells = weighted_sum(neighbours(spec, x, numpy.roll, pad))
            x = x.at[window(spec, (0,) * len(spec.axes))].set(cells) if boundary == "frozen" else cells
        return (x,)

    return steps
