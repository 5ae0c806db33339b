"""torch: its eager functions, and what torch.compile makes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
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
    neighbours,
    reductions,
    stepped,
    weighted_sum,
)
from gen.dtypes import BF16, I16
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.families.transpose import TransposeSpec

if TYPE_CHECKING:
    from gen.compare.gpu import ComparisonGpu

# Kernels are compared: both sides are launched one by one, or both from a graph; never one alone.
MODE = "max-autotune-no-cudagraphs"
_RENAMED = {"min": "amin", "max": "amax"}
_PAD_MODES = {"constant": "constant", "nearest": "replicate", "mirror": "reflect"}


class Torch:
    """torch's eager functions."""

    name = "torch"

    def version(self) -> str:
        """Of torch."""
        return str(module("torch").__version__)

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: ComparisonGpu) -> Contender:
        """Reductions by function, transposes by copying a permuted view, stencils a pass for each weight."""
        torch, spec = module("torch"), case.spec
        stream, x = partial(on_stream, torch), tensor(torch, source)
        if isinstance(spec, StencilSpec):
            pad = _padding(torch, spec)

            def step(one: Any, other: Any) -> None:
                cells = inner(spec, other)
                if cells is not other:
                    other.copy_(one)  # the rim is a part of the result
                for number, (weight, around) in enumerate(neighbours(spec, one, torch.roll, pad)):
                    if number == 0:
                        torch.mul(around, weight, out=cells)
                    else:
                        cells.add_(around, alpha=weight)

            arrays = [x, *(tensor(torch, gpu.copy(source)) for _ in range(2))]
            return stepped(gpu, stream, arrays, step, case.runtime_parameters.get("steps", 1), "a pass for each weight")
        if isinstance(spec, TransposeSpec):
            check_permutation(self.name, spec)
            view = x.permute(spec.axes)
            out = Outputs(gpu, tuple(view.shape), case.result_dtypes[0], partial(tensor, torch))
            return Contender(lambda: (out.now.copy_(view),), stream, places=out.places, use=out.use)
        compute = _reduction(torch, case)
        return Contender(lambda: compute(x), stream)


class TorchCompile:
    """The case as one function, compiled for its shape by torch.compile, its own graphs left out."""

    name = "torch.compile"

    def version(self) -> str:
        """Of torch, and of Triton."""
        triton = module("triton")
        return f"{module('torch').__version__}, triton {triton.__version__}"

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: ComparisonGpu) -> Contender:
        """Compiles and runs it."""
        torch, spec = module("torch"), case.spec
        stream, x = partial(on_stream, torch), tensor(torch, source)
        torch.compiler.reset()  # so that no earlier shape makes this one dynamic
        if isinstance(spec, StencilSpec):
            pad = _padding(torch, spec)

            def update(one: Any, other: Any) -> Any:
                cells = weighted_sum(neighbours(spec, one, torch.roll, pad))
                if spec.boundaries[0] != "frozen":
                    return other.copy_(cells)
                whole = one.clone()  # of which the compiler makes one kernel, that writes the rim too
                inner(spec, whole).copy_(cells)
                return other.copy_(whole)

            arrays = [x, *(tensor(torch, gpu.copy(source)) for _ in range(2))]
            compiled = self.compiled(torch, update, (x, arrays[1]), gpu)

            def step(one: Any, other: Any) -> None:
                compiled.function(one, other)

            steps = case.runtime_parameters.get("steps", 1)
            return replace(stepped(gpu, stream, arrays, step, steps, compiled.note), seconds=compiled.seconds)
        if isinstance(spec, TransposeSpec):
            check_permutation(self.name, spec)
            dtype = getattr(torch, case.result_dtypes[0].numpy.name)

            def permute(one: Any) -> Sequence[Any]:
                # Where axes of one element alone move, contiguous() returns its input, and nothing would be timed.
                return (one.permute(spec.axes).to(dtype).clone(memory_format=torch.contiguous_format),)

            compiled = self.compiled(torch, permute, (x,), gpu)
        else:
            compiled = self.compiled(torch, _reduction(torch, case), (x,), gpu)
        return Contender(compiled.launch, stream, compiled.note, seconds=compiled.seconds)

    def compiled(
        self, torch: Any, computation: Callable[..., Any], arguments: Sequence[Any], _gpu: ComparisonGpu
    ) -> Compiled:  # fmt: skip
        """Compiles a function of tensors as a user does: once."""
        return compile_once(torch, computation, arguments)


def tensor(torch: Any, array: SharedArray) -> Any:
    """The array as a tensor, in place. Its interface has no bfloat16: such a tensor is made of short integers."""
    if array.element == BF16:
        return torch.as_tensor(replace(array, element=I16), device="cuda").view(torch.bfloat16)
    return torch.as_tensor(array, device="cuda")


def on_stream(torch: Any, handle: int) -> AbstractContextManager[object]:
    """A foreign stream as the current one."""
    context: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.ExternalStream(handle))
    return context


def _reduction(torch: Any, case: ComparisonCase) -> Callable[[Any], Sequence[Any]]:
    if not isinstance(case.spec, ReductionSpec):
        raise NotOfferedError("torch", "is not asked here for such a spec", case.name)
    return reductions("torch", torch, case.spec, _RENAMED, "dim")


def _padding(torch: Any, spec: StencilSpec) -> Callable[[Any], Any]:
    """What puts cells around an array. Raises NotOfferedError for a boundary that torch does not have."""
    boundary = boundary_of("torch", spec)
    if boundary not in (*_PAD_MODES, "wrap", "frozen"):
        raise NotOfferedError("torch", "pads by constant, replicate and reflect, which SciPy calls mirror", boundary)
    if boundary in ("wrap", "frozen"):
        return lambda x: x
    widths = [n for pair in zip(reversed(spec.before), reversed(spec.after), strict=True) for n in pair]
    pad, mode = torch.nn.functional.pad, _PAD_MODES[boundary]
    if mode == "constant":
        return lambda x: pad(x, widths, value=spec.cval)
    return lambda x: pad(x[None, None], widths, mode=mode)[0, 0]


@dataclass(frozen=True)
class Compiled:
    """One compilation.

    Attributes:
        function: what came of it.
        launch: calls it as it was called first.
        seconds: how long it took.
        note: how it was made.
    """

    function: Callable[..., Any]
    launch: Callable[[], Any]
    seconds: float
    note: str = MODE


def compile_once(torch: Any, computation: Callable[..., Any], arguments: Sequence[Any]) -> Compiled:
    """Compiles a function, and calls it."""
    start = time.monotonic()
    compiled = torch.compile(computation, mode=MODE, fullgraph=True, dynamic=False)
    launch = partial(compiled, *arguments)
    launch()
    return Compiled(compiled, launch, time.monotonic() - start)
