"""CuPy: its array functions, and its elementwise kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from bench.arrays import Shared
from bench.peers.base import Contender, NotOfferedError, Outputs, Place, check_squares, module, sweeps
from bench.peers.torch_arrays import inner, window
from bench.works import Case, Permute, Reduce, Sweep
from gen.runtime.results import cupy_stream

MOST_TAPS = 32  # arrays in an elementwise kernel: their shapes and strides are arguments, of 4 KiB at most


class Cupy:
    """CuPy's arrays. Where it can, it uses CUB for reductions."""

    name = "cupy"

    def version(self) -> str:
        """Of CuPy."""
        return str(module("cupy", "cupy-cuda13x").__version__)

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Reductions by method, transposes by copying a view, stencils as one expression over shifted views."""
        cupy = module("cupy", "cupy-cuda13x")
        x, work = array(cupy, source), case.work
        stream = partial(on_stream, cupy)
        if isinstance(work, Sweep):
            if work.boundary == "wrap":
                raise NotOfferedError("CuPy", "has no views of periodic neighbours; see cupyx")
            if len(work.taps) > MOST_TAPS:
                raise NotOfferedError("CuPy", f"takes at most {MOST_TAPS} arrays here", len(work.taps))
            kernel = _weighted_sum(cupy, work)
            arrays = [x, *(array(cupy, place.copy(source)) for _ in range(2))]

            def step(one: Any, other: Any) -> None:
                kernel(*(one[window(work, offset)] for offset, _ in work.taps), inner(work, other))

            return sweeps(place, stream, arrays, step, work.steps, "an ElementwiseKernel over shifted views")
        if isinstance(work, Permute):
            view = x.transpose(work.axes)
            out = Outputs(place, view.shape, case.dtype, partial(array, cupy))

            def copy() -> Sequence[Any]:
                cupy.copyto(out.now, view)
                return (out.now,)

            return Contender(copy, stream, places=out.places, use=out.use)
        check_squares("CuPy", case, work.ops)
        functions = [partial(_reduce, cupy, op, work) for op in work.ops]
        return Contender(lambda: tuple(function(x) for function in functions), stream)


def array(cupy: Any, shared: Shared) -> Any:
    """The array as CuPy's, in place. Raises NotOfferedError for bfloat16 where CuPy does not know it."""
    made = cupy.asarray(shared)
    if shared.dtype.name == "bf16":
        try:
            return made.view(shared.dtype.numpy)
        except (TypeError, ValueError) as error:
            raise NotOfferedError("CuPy", "does not know bfloat16", error) from error
    return made


def on_stream(cupy: Any, handle: int) -> AbstractContextManager[object]:
    """A foreign stream as the current one."""
    context: AbstractContextManager[object] = cupy_stream(cupy, handle)
    return context


def _reduce(cupy: Any, op: str, work: Reduce, x: Any) -> Any:
    if op in ("argmax", "argmin"):
        return getattr(cupy, op)(x, axis=None if work.axes is None else work.axes[0])
    if op == "sumsq":
        return cupy.sum(x * x, axis=work.axes)
    if op not in ("sum", "prod", "min", "max", "mean", "var", "std", "any", "all"):
        raise NotOfferedError("CuPy", "has no such reduction", op)
    return getattr(cupy, op)(x, axis=work.axes)


def _weighted_sum(cupy: Any, work: Sweep) -> Any:
    """A kernel that takes the neighbours' views, one a tap, and the array to write."""
    numbers = range(len(work.taps))
    terms = (f"T({weight!r}) * a{number}" for number, (_, weight) in enumerate(work.taps))
    return cupy.ElementwiseKernel(
        ", ".join(f"T a{number}" for number in numbers), "T out", f"out = {' + '.join(terms)}", f"gen_{work.label}"
    )


PEER = Cupy()
