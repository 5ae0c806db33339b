"""CuPy: its array functions and elementwise kernels, and its counterpart of scipy.ndimage."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gen.compare.case import ComparisonCase
from gen.compare.peers.base import (
    Contender,
    NotOfferedError,
    Outputs,
    SharedArray,
    boundary_of,
    check_permutation,
    inner,
    module,
    reductions,
    stepped,
    window,
)
from gen.dtypes import BF16, I16
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.families.transpose import TransposeSpec
from gen.runtime.arrays import cupy_stream

if TYPE_CHECKING:
    from gen.compare.gpu import ComparisonGpu

MAX_VIEWS = 32  # arrays in an elementwise kernel: their shapes and strides are arguments, of 4 KiB at most
_PACKAGE = "cupy-cuda13x"


class Cupy:
    """CuPy's arrays. Where it can, it uses CUB for reductions."""

    name = "cupy"

    def version(self) -> str:
        """Of CuPy."""
        return str(module("cupy", _PACKAGE).__version__)

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: ComparisonGpu) -> Contender:
        """Reductions by function, transposes by copying a view, stencils as one expression over shifted views."""
        cupy, spec = module("cupy", _PACKAGE), case.spec
        x, stream = array(cupy, source), partial(on_stream, cupy)
        if isinstance(spec, StencilSpec):
            if boundary_of("CuPy", spec) != "frozen":
                raise NotOfferedError("CuPy", "has no views of what lies outside an array; see cupyx")
            if len(spec.taps) > MAX_VIEWS:
                raise NotOfferedError("CuPy", f"takes at most {MAX_VIEWS} arrays here", len(spec.taps))
            kernel = _weighted_sum(cupy, spec)
            arrays = [x, *(array(cupy, gpu.copy(source)) for _ in range(2))]

            def step(one: Any, other: Any) -> None:
                other[...] = one  # the rim is a part of the result
                kernel(*(one[window(spec, offset)] for offset, _ in spec.taps), inner(spec, other))

            note = "an ElementwiseKernel over shifted views"
            return stepped(gpu, stream, arrays, step, case.runtime_parameters.get("steps", 1), note)
        if isinstance(spec, TransposeSpec):
            check_permutation("CuPy", spec)
            view = x.transpose(spec.axes)
            out = Outputs(gpu, view.shape, case.result_dtypes[0], partial(array, cupy))

            def copy() -> Sequence[Any]:
                cupy.copyto(out.now, view, casting="unsafe")
                return (out.now,)

            return Contender(copy, stream, places=out.places, use=out.use)
        if not isinstance(spec, ReductionSpec):
            raise NotOfferedError("CuPy", "is not asked here for such a spec", case.name)
        compute = reductions("CuPy", cupy, spec)
        return Contender(lambda: compute(x), stream)


class CupyxNdimage:
    """`cupyx.scipy.ndimage.correlate`."""

    name = "cupyx"

    def version(self) -> str:
        """Of CuPy."""
        return str(module("cupy", _PACKAGE).__version__)

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: ComparisonGpu) -> Contender:
        """Stencils only; a frozen rim is copied back after each step."""
        spec, library = case.spec, "cupyx.scipy.ndimage"
        if not isinstance(spec, StencilSpec):
            raise NotOfferedError(library, "has stencils only", case.name)
        boundary = boundary_of(library, spec)
        cupy, ndimage = module("cupy", _PACKAGE), module(library, _PACKAGE)
        x = array(cupy, source)
        arrays = [x, *(array(cupy, gpu.copy(source)) for _ in range(2))]
        weights = cupy.asarray(spec.weights, dtype=x.dtype).reshape(spec.shape)
        mode = "constant" if boundary == "frozen" else boundary
        rim = _rim(spec) if boundary == "frozen" else []

        def step(one: Any, other: Any) -> None:
            ndimage.correlate(one, weights, output=other, mode=mode, cval=spec.cval, origin=spec.origin)
            for cells in rim:
                other[cells] = x[cells]

        note = "the rim is copied back after each step" if rim else ""
        return stepped(gpu, partial(on_stream, cupy), arrays, step, case.runtime_parameters.get("steps", 1), note)


def array(cupy: Any, shared: SharedArray) -> Any:
    """The array as CuPy's, in place. Raises NotOfferedError for bfloat16 where CuPy does not know it."""
    if shared.element != BF16:
        return cupy.asarray(shared)
    try:
        return cupy.asarray(replace(shared, element=I16)).view(shared.dtype)
    except (TypeError, ValueError) as error:
        raise NotOfferedError("CuPy", "does not know bfloat16", error) from error


def on_stream(cupy: Any, handle: int) -> AbstractContextManager[object]:
    """A foreign stream as the current one."""
    context: AbstractContextManager[object] = cupy_stream(cupy, handle)
    return context


def _weighted_sum(cupy: Any, spec: StencilSpec) -> Any:
    """A kernel that takes the neighbours' views, one for each weight, and the array to write."""
    numbers = range(len(spec.taps))
    terms = (f"T({weight!r}) * a{number}" for number, (_, weight) in enumerate(spec.taps))
    return cupy.ElementwiseKernel(
        ", ".join(f"T a{number}" for number in numbers), "T out", f"out = {' + '.join(terms)}", f"gen_{spec.word}"
    )


def _rim(spec: StencilSpec) -> list[tuple[slice, ...]]:
    """The cells at either end of each axis whose neighbours lie outside."""
    found: list[tuple[slice, ...]] = []
    for axis, (before, after) in enumerate(zip(spec.before, spec.after, strict=True)):
        sides = ((before, slice(0, before)), (after, slice(-after, None)))
        found += [(slice(None),) * axis + (side,) for width, side in sides if width]
    return found
