"""gen's functions as operators of torch: with gradients, under `vmap`, in `torch.compile` and `torch.export`.

`gen.torch.sum(x, axis=-1)` has the array API standard's signature, as `gen.sum` has, and goes through the operator
`torch.ops.gen.reduce`, of which torch knows the shape of the result, the gradient and what `vmap` makes of it. So it is
one node of a traced graph. Where torch neither records gradients nor traces, the kernel is called at once. Results are
those of NumPy: the sum of integers has 64 bits, their mean is f64.

Tensors lie on a GPU. Those of the host are taken where $GEN_DEVICE is `cpu`, by the CPU run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod as _product
from typing import Any

import numpy as np

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "gen.torch needs torch, which is not installed. pip install torch installs it", name=error.name
    ) from error

from gen.errors import ArgumentError, ShapeError, SpecError
from gen.families.base import Spec
from gen.families.reduction import ReductionSpec
from gen.families.stencil.adjoint import Adjoint, adjoint, computed_cells, folded_places
from gen.families.stencil.builder import stencil
from gen.families.stencil.spec import MAX_AXES, StencilSpec
from gen.families.transpose import TransposeSpec, permutation
from gen.functions import MOST_KERNELS, Modes, laid_out, loaded, reduction_of, second_differences, turned_origin
from gen.runtime.dlpack import named_dtype
from gen.runtime.kernel import Kernel
from gen.runtime.load import CPU

_INDICES = ("argmax", "argmin")
_LINEAR = ("sum", "mean")  # whose gradients depend on neither the input nor the output


def sum(x: Tensor, /, *, axis: Any = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    """The sum over axes. Integers are added in 64 bits, unless `dtype` says otherwise.

    Args:
        x: bool, integers or floating-point numbers, with any strides.
        axis: None for all, an axis or a tuple of axes.
        dtype: of the result, in which the kernel also adds; None: NumPy's choice.
        keepdims: whether the result keeps the reduced axes, with extent 1.

    Raises:
        GenError: an argument is not what the function takes. Nothing was launched.
    """
    return _reduced("sum", x, axis, keepdims, dtype=dtype)


def prod(x: Tensor, /, *, axis: Any = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    """The product over axes. Arguments and errors are those of `sum`."""
    return _reduced("prod", x, axis, keepdims, dtype=dtype)


def max(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The greatest element over axes; elements that are equally great share its gradient. Otherwise as `sum`."""
    return _reduced("max", x, axis, keepdims)


def min(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The least element over axes; elements that are equally small share its gradient. Otherwise as `sum`."""
    return _reduced("min", x, axis, keepdims)


def any(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether any element over axes is not 0. Arguments and errors are those of `sum`."""
    return _reduced("any", x, axis, keepdims)


def all(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether no element over axes is 0. Arguments and errors are those of `sum`."""
    return _reduced("all", x, axis, keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first greatest element, of the flattened tensor without `axis`. Otherwise as `sum`."""
    return _reduced("argmax", x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the first least element, of the flattened tensor without `axis`. Otherwise as `sum`."""
    return _reduced("argmin", x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Any = None, keepdims: bool = False) -> Tensor:
    """How many elements over axes are not 0. Arguments and errors are those of `sum`."""
    return _reduced("count_nonzero", x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Any = None, dtype: torch.dtype | None = None, keepdims: bool = False) -> Tensor:
    """The mean over axes, f64 of integers. Arguments and errors are those of `sum`."""
    return _reduced("mean", x, axis, keepdims, dtype=dtype)


def var(x: Tensor, /, *, axis: Any = None, correction: int = 0, keepdims: bool = False) -> Tensor:
    """The variance over axes, divided by their number less `correction`. Otherwise as `sum`."""
    return _reduced("var", x, axis, keepdims, ddof=correction)


def std(x: Tensor, /, *, axis: Any = None, correction: int = 0, keepdims: bool = False) -> Tensor:
    """The standard deviation over axes, the root of `var`; its gradient is 0 where it is 0, as torch has it."""
    return _reduced("std", x, axis, keepdims, ddof=correction)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """The Euclidean norm over axes; its gradient is 0 where it is 0. Otherwise as `sum`; `ord` must be 2."""
    if ord != 2:
        raise ArgumentError("ord", "must be 2, the Euclidean norm", repr(ord))
    return _reduced("norm", x, axis, keepdims)


def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """A dense copy with axes permuted: axis i of the result is axis `axes[i]` of `x`.

    Args:
        x: elements of 1, 2, 4, 8 or 16 bytes, 8 axes at most.
        axes: each axis once; those from the end are negative.

    Raises:
        GenError: an argument is not what the function takes. Nothing was launched.
    """
    order = [axis + x.dim() if axis < 0 else axis for axis in axes]
    if sorted(order) != list(range(x.dim())):
        raise ShapeError("axes", f"must name each of the {x.dim()} axes of x once", repr(axes))
    return PERMUTE(x, order)


def transpose(x: Tensor, /, axes: Sequence[int] | None = None) -> Tensor:
    """As `permute_dims`; without `axes` their order is reversed, as in `numpy.transpose`."""
    return permute_dims(x, list(range(x.dim()))[::-1] if axes is None else axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """A dense copy of a matrix, or of a stack of matrices, with its last two axes exchanged."""
    if x.dim() < 2:
        raise ShapeError("x", "must have two axes or more", f"{x.dim()}")
    return permute_dims(x, [*range(x.dim() - 2), x.dim() - 1, x.dim() - 2])


def correlate(input: Tensor, weights: Any, mode: Modes = "reflect", cval: float = 0.0,
              origin: int | Sequence[int] = 0, *, axes: Sequence[int] | None = None,
              steps: int = 1) -> Tensor:  # fmt: skip
    """The correlation with weights, as `scipy.ndimage.correlate` has it, which are constants and get no gradient.

    Args:
        input: cells of f16, bf16, f32, f64, u8, i16 or u16.
        weights: numbers, with as many axes as `input`, or as `axes` names; within a function that is compiled, lists.
        mode: what lies outside, for all axes or for each: `reflect`, `constant`, `nearest`, `mirror`, `wrap`, `frozen`;
            in place of that of an axis, a pair names one for each end.
        cval: the value outside where the mode is `constant`.
        origin: shifts the weights, for all axes or for each.
        axes: those along which the weights lie; None: all.
        steps: how often the correlation is applied.

    Raises:
        GenError: an argument is not what the function takes. Nothing was launched.
    """
    flat, extents = _flat(weights)
    return _correlated(input, flat, extents, mode, cval, origin, axes, steps)


def convolve(input: Tensor, weights: Any, mode: Modes = "reflect", cval: float = 0.0,
             origin: int | Sequence[int] = 0, *, axes: Sequence[int] | None = None,
             steps: int = 1) -> Tensor:  # fmt: skip
    """The convolution with weights, as `scipy.ndimage.convolve` has it. Arguments and errors: those of `correlate`."""
    flat, extents = _flat(weights)
    turned = turned_origin(input.dim(), extents, origin, axes)
    return _correlated(input, flat[::-1], extents, mode, cval, turned, axes, steps)


def laplace(input: Tensor, mode: Modes = "reflect", cval: float = 0.0, *,
            axes: Sequence[int] | None = None) -> Tensor:  # fmt: skip
    """The sum of second differences along axes, as `scipy.ndimage.laplace` has it; errors as of `correlate`."""
    ndim = input.dim() if axes is None else len(axes)
    return _correlated(input, second_differences(ndim), [3] * ndim, mode, cval, 0, axes, 1)


def operator(spec: Spec) -> Callable[..., Tensor]:
    """A spec as a function of a tensor, such as `operator(gen.stencil(weights, boundary="wrap"))(x, steps=100)`.

    Args:
        spec: of a reduction to one statistic, a permutation that changes no values, or a stencil.

    Returns:
        A function that can be compiled; that of a stencil takes `steps`.

    Raises:
        SpecError: there is no operator of such a spec.
    """
    if isinstance(spec, ReductionSpec) and len(spec.op) == 1:
        name, axis, keepdims, ddof = spec.op[0], spec.axis, spec.keepdims, spec.ddof
        dtype = None if spec.dtype_of_result is None else _torch_dtype(spec.dtype_of_result.numpy)
        return lambda x: _reduced(name, x, axis, keepdims, dtype=dtype, ddof=ddof)
    if isinstance(spec, TransposeSpec) and spec.values is None and not spec.in_place:
        order = spec.axes
        return lambda x: permute_dims(x, order)
    if isinstance(spec, StencilSpec):
        weights, shape, modes = list(spec.weights), list(spec.shape), _joined(spec.boundaries)
        cval, origin = spec.cval, [before - extent // 2 for before, extent in zip(spec.before, spec.shape, strict=True)]
        return lambda x, steps=1: CORRELATE(x, weights, shape, modes, cval, origin, steps)
    rule = "must be a reduction to one statistic, a permutation that changes no values, or a stencil"
    raise SpecError("spec", rule, getattr(spec, "label", repr(spec)))


def _reduced(op: str, x: Tensor, axis: Any, keepdims: bool, *, dtype: Any = None, ddof: int = 0) -> Tensor:
    axes = _axes(axis, x.dim())
    result = REDUCE(x, op, axes, ddof, dtype)
    return _unsqueezed(result, axes) if keepdims else result


def _correlated(input: Tensor, weights: list[float], extents: list[int], mode: Any, cval: float, origin: Any,
                axes: Sequence[int] | None, steps: int) -> Tensor:  # fmt: skip
    shape, modes, origins = laid_out(input.dim(), extents, mode, origin, axes)
    return CORRELATE(input, weights, list(shape), _joined(modes), float(cval), list(origins), steps)


def _joined(modes: Sequence[Any]) -> str:
    """Boundaries of all axes as one text: commas between axes, a slash between ends that differ."""
    return ",".join(mode if isinstance(mode, str) else "/".join(mode) for mode in modes)


def _axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    found = sorted(one + ndim if one < 0 else one for one in ((axis,) if isinstance(axis, int) else axis))
    if len(set(found)) < len(found) or (found and not 0 <= found[0] <= found[-1] < ndim):
        raise ShapeError("axis", f"must name axes from {-ndim} to {ndim - 1} once each, or be None", repr(axis))
    return found


def _flat(weights: Any) -> tuple[list[float], list[int]]:
    """Weights in row-major order, and their extents; in Python alone, so that it can be traced."""
    rows = weights.tolist() if hasattr(weights, "tolist") else weights
    extents: list[int] = []
    while isinstance(rows, list | tuple):
        extents.append(len(rows))
        if not rows or not isinstance(rows[0], list | tuple):
            break
        if len({len(row) for row in rows}) > 1:
            raise SpecError("weights", "must be an array whose rows are equally long", repr(weights))
        rows = [value for row in rows for value in row]
    return [float(value) for value in rows], _extents_of(extents)


def _extents_of(lengths: list[int]) -> list[int]:
    """Extents from the lengths of all rows of each depth together."""
    return [length // (lengths[place - 1] if place else 1) for place, length in enumerate(lengths)]


def _unsqueezed(y: Tensor, axes: Sequence[int]) -> Tensor:
    """A result with the reduced axes, of extent 1."""
    for axis in axes:
        y = y.unsqueeze(axis)
    return y


def _device(x: Tensor) -> int | str:
    if x.is_cuda:
        number: int = x.get_device()
        return number
    if x.device.type == "cpu" and os.environ.get("GEN_DEVICE") == CPU:
        return CPU
    next_step = "Move it with x.cuda(), or set GEN_DEVICE=cpu, for the CPU run"
    raise ArgumentError("x", "must lie on a GPU", f"a torch tensor on {x.device}", next_step=next_step)


def _run(kernel: Kernel, x: Tensor, **parameters: int) -> Tensor:
    if x.requires_grad:
        x = x.detach()
    try:
        found: Tensor = kernel(x, **parameters)
    except ShapeError:  # of strides that this kernel does not take
        if x.is_contiguous():
            raise
        found = kernel(x.contiguous(), **parameters)
    return found


def _torch_dtype(dtype: np.dtype[Any]) -> Any:
    return getattr(torch, dtype.name)


@lru_cache(MOST_KERNELS)
def _elements(dtype: Any) -> np.dtype[Any]:
    return named_dtype(str(dtype).removeprefix("torch."))


# Reductions: (x, op, axes, ddof, dtype), all axes positive and in order


@lru_cache(MOST_KERNELS)
def _reduction(op: str, elements: Any, ndim: int, axes: tuple[int, ...], ddof: int, dtype: Any) -> ReductionSpec:
    result = None if dtype is None else _elements(dtype)
    return reduction_of(op, _elements(elements), ndim, axes, False, result, ddof)


@lru_cache(MOST_KERNELS)
def _reducing(device: int | str, *arguments: Any) -> Kernel:
    return loaded(_reduction(*arguments), device)


def _reduce(x: Tensor, op: str, axes: list[int], ddof: int, dtype: Any) -> Tensor:
    return _run(_reducing(_device(x), op, x.dtype, x.dim(), tuple(axes), ddof, dtype), x)


def _reduce_shape(x: Tensor, op: str, axes: list[int], ddof: int, dtype: Any) -> Tensor:
    spec = _reduction(op, x.dtype, x.dim(), tuple(axes), ddof, dtype)
    kept = [extent for axis, extent in enumerate(x.shape) if axis not in axes]
    return x.new_empty(kept, dtype=_torch_dtype(spec.result.numpy))


def _reduce_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.op, ctx.axes, ctx.ddof, _ = inputs
    ctx.shape, ctx.dtype = x.shape, x.dtype
    ctx.save_for_backward(*(() if ctx.op in _LINEAR else (x, output)))


def _reduce_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    along = _unsqueezed(gradient, ctx.axes)
    count = _product(ctx.shape[axis] for axis in ctx.axes)
    if ctx.op == "sum":
        found = along.expand(ctx.shape)
    elif ctx.op == "mean":
        found = (along / count).expand(ctx.shape)
    else:
        x, output = ctx.saved_tensors
        found = _through(ctx.op, x, _unsqueezed(output, ctx.axes), along, ctx.axes, count, ctx.ddof)
    return found.to(ctx.dtype), None, None, None, None


def _through(op: str, x: Tensor, y: Tensor, gradient: Tensor, axes: list[int], count: int, ddof: int) -> Tensor:
    """The gradient of what is not linear; the output `y` and its gradient have the axes of `x`."""
    if op == "sumsq":
        return 2 * x * gradient
    if op == "norm":
        return torch.where(y == 0, 0, gradient * x / torch.where(y == 0, 1, y))
    if op in ("var", "std"):
        from_mean = x - _unsqueezed(REDUCE(x, "mean", axes, 0, None), axes)
        if op == "var":
            return gradient * (2 / (count - ddof) if count > ddof else float("nan")) * from_mean
        slope = from_mean / ((count - ddof) * torch.where(y == 0, 1, y))
        return torch.where(y == 0, 0, gradient * slope)
    if op == "prod":
        return gradient * _product_of_others(x, axes)
    shares = x == y  # of a least or a greatest element
    sharing = _unsqueezed(REDUCE(shares, "count_nonzero", axes, 0, None), axes)
    return torch.where(shares, gradient / sharing, 0)


def _product_of_others(x: Tensor, axes: list[int]) -> Tensor:
    """For each element the product of the others along axes: right where some are 0, and twice differentiable."""
    kept = x.dim() - len(axes)
    last = list(range(kept, x.dim()))
    moved = x.movedim(axes, last)
    rows = moved.reshape(*moved.shape[:kept], -1)
    one = torch.ones_like(rows[..., :1])
    before = torch.cat([one, rows[..., :-1]], -1).cumprod(-1)
    after = torch.cat([one, rows.flip(-1)[..., :-1]], -1).cumprod(-1).flip(-1)
    return (before * after).reshape(moved.shape).movedim(last, axes)


def _reduce_batched(_: Any, dims: tuple[Any, ...], x: Tensor, op: str, axes: list[int], ddof: int,
                    dtype: Any) -> tuple[Tensor, int]:  # fmt: skip
    x = x.movedim(dims[0], 0)
    if op in _INDICES and len(axes) != 1:  # of all elements of each
        x, axes = x.reshape(x.shape[0], -1), [0]
    return REDUCE(x, op, [axis + 1 for axis in axes], ddof, dtype), 0


# Permutations: (x, axes)


@lru_cache(MOST_KERNELS)
def _permuting(device: int | str, axes: tuple[int, ...], elements: Any) -> Kernel:
    return loaded(permutation(axes, _elements(elements)), device)


def _permute(x: Tensor, axes: list[int]) -> Tensor:
    if not axes:
        return x.clone()
    if not x.is_contiguous():  # what is permuted already is seen as it lies, and not copied first
        order = sorted(range(x.dim()), key=x.stride, reverse=True)
        x, axes = x.permute(order), [order.index(axis) for axis in axes]
    return _run(_permuting(_device(x), tuple(axes), x.dtype), x)


def _permute_shape(x: Tensor, axes: list[int]) -> Tensor:
    return x.new_empty([x.shape[axis] for axis in axes])


def _permute_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    ctx.axes = inputs[1]


def _permute_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    inverse = sorted(range(len(ctx.axes)), key=lambda place: int(ctx.axes[place]))
    return PERMUTE(gradient, inverse), None


def _permute_batched(_: Any, dims: tuple[Any, ...], x: Tensor, axes: list[int]) -> tuple[Tensor, int]:
    return PERMUTE(x.movedim(dims[0], 0), [0, *(axis + 1 for axis in axes)]), 0


# Stencils: (x, weights, shape, modes, cval, origin, steps), modes as `_joined` has them; their adjoints have no cval


@lru_cache(MOST_KERNELS)
def _stencil(
    elements: Any, weights: tuple[float, ...], shape: tuple[int, ...], modes: str, cval: float, origin: tuple[int, ...]
) -> StencilSpec:
    array = np.array(weights).reshape(shape)
    boundary: Any = [mode.split("/") if "/" in mode else mode for mode in modes.split(",")]
    return stencil(array, boundary=boundary, dtype=_elements(elements), cval=cval, origin=origin, word="correlate")


def _correlate(x: Tensor, weights: list[float], shape: list[int], modes: str, cval: float, origin: list[int],
               steps: int) -> Tensor:  # fmt: skip
    spec = _stencil(x.dtype, tuple(weights), tuple(shape), modes, cval, tuple(origin))
    return _run(loaded(spec, _device(x)), x, steps=steps)


def _correlate_adjoint(x: Tensor, weights: list[float], shape: list[int], modes: str, origin: list[int],
                       steps: int) -> Tensor:  # fmt: skip
    turned = adjoint(_stencil(x.dtype, tuple(weights), tuple(shape), modes, 0.0, tuple(origin)))
    kernel = loaded(turned.spec, _device(x))
    if turned.closed:
        return _run(kernel, x, steps=steps)
    result = x.contiguous()
    for _ in range(steps if x.numel() else 0):
        result = _adjoint_step(turned, kernel, result)
    return result.clone() if result.data_ptr() == x.data_ptr() else result


def _adjoint_step(turned: Adjoint, kernel: Kernel, x: Tensor) -> Tensor:
    box, widths = computed_cells(tuple(x.shape), turned.kept), turned.margins[::-1]
    inner = torch.zeros_like(x)
    inner[box] = x[box]
    found = _run(kernel, torch.nn.functional.pad(inner, [width for pair in widths for width in pair]))
    for axis, (boundary, (before, after)) in enumerate(zip(turned.folds, turned.margins, strict=True)):
        if boundary is None:
            continue
        within = found.narrow(axis, before, x.shape[axis]).clone()
        for place, cell in folded_places(x.shape[axis], before, after, boundary):
            within.select(axis, cell).add_(found.select(axis, place))
        found = within
    kept = x.clone()
    kept[box] = 0
    return (found + kept).contiguous()


def _correlate_shape(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _correlate_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    _, ctx.weights, ctx.shape, ctx.modes, _, ctx.origin, ctx.steps = inputs


def _correlate_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = CORRELATE_ADJOINT(gradient, ctx.weights, ctx.shape, ctx.modes, ctx.origin, ctx.steps)
    return found, None, None, None, None, None, None


def _adjoint_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001
    _, ctx.weights, ctx.shape, ctx.modes, ctx.origin, ctx.steps = inputs


def _adjoint_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    found = CORRELATE(gradient, ctx.weights, ctx.shape, ctx.modes, 0.0, ctx.origin, ctx.steps)
    return found, None, None, None, None, None


def _correlate_batched(_: Any, dims: tuple[Any, ...], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
    return _each(CORRELATE, x.movedim(dims[0], 0), *rest), 0


def _adjoint_batched(_: Any, dims: tuple[Any, ...], x: Tensor, *rest: Any) -> tuple[Tensor, int]:
    return _each(CORRELATE_ADJOINT, x.movedim(dims[0], 0), *rest), 0


def _each(function: Any, x: Tensor, weights: list[float], shape: list[int], modes: str, *rest: Any) -> Tensor:
    """A stencil of each part along the first axis: one more axis, with one weight; where there are three, in turn."""
    *cval, origin, steps = rest
    if x.dim() <= MAX_AXES:
        result: Tensor = function(x, weights, [1, *shape], f"constant,{modes}", *cval, [0, *origin], steps)
        return result
    return torch.stack([function(one, weights, shape, modes, *cval, origin, steps) for one in x.unbind(0)])


_library: Any = torch.library.Library("gen", "DEF")  # torch forgets its operators when it goes


class Operator:
    """An operator of torch, to be called.

    Attributes:
        defined: the operator itself, as `torch.library.opcheck` takes it.
    """

    def __init__(
        self, name: str, arguments: str, run: Any, shape: Any, context: Any, backward: Any, batched: Any
    ) -> None:
        """Defines it in torch.

        Args:
            name: behind `torch.ops.gen.`.
            arguments: as a schema spells them.
            run: computes it.
            shape: gives an empty result.
            context: keeps what the gradient needs.
            backward: the gradients of all arguments.
            batched: what `vmap` makes of it.
        """
        # Not `custom_op`, whose checks of every call take the host half as long again.
        _library.define(f"{name}({arguments}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CPU", "CUDA"):
            _library.impl(name, run, key)
        full = f"gen::{name}"
        torch.library.register_fake(full, shape, lib=_library)
        torch.library.register_autograd(full, backward, setup_context=context, lib=_library)
        torch.library.register_vmap(full, batched, lib=_library)
        self.defined: Any = getattr(torch.ops.gen, name).default
        defined, self._run = self.defined, run
        # `torch.func.grad` does not look into operators (torch 2.13), but knows the rules of a function.
        members = {
            "forward": defined, "setup_context": context, "backward": backward, "vmap": batched,
        }  # fmt: skip
        self._function: Any = type(
            name.title(), (torch.autograd.Function,), {key: staticmethod(value) for key, value in members.items()}
        )  # fmt: skip

    def __call__(self, *given: Any) -> Tensor:
        """Calls it, under whatever transformations are active; where there is none, at once."""
        if torch.compiler.is_compiling():
            call = self.defined
        elif torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
            call = self._function.apply  # which refuses tangents; an operator would lose them
        else:
            call = self._run if _is_plain(given[0]) else self.defined
        found: Tensor = call(*given)
        return found


def _is_plain(x: Tensor) -> bool:
    """Whether torch would do nothing with a call but make it: no gradient, no mode, no subclass."""
    return (
        type(x) is Tensor
        and not (x.requires_grad and torch.is_grad_enabled())
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and not (x.is_conj() or x.is_neg())
    )


_STENCIL = "Tensor x, float[] weights, int[] shape, str modes, {}int[] origin, int steps"
REDUCE = Operator(
    "reduce", "Tensor x, str op, int[] axes, int ddof, ScalarType? dtype", _reduce, _reduce_shape, _reduce_context,
    _reduce_backward, _reduce_batched,
)  # fmt: skip
PERMUTE = Operator(
    "permute", "Tensor x, int[] axes", _permute, _permute_shape, _permute_context, _permute_backward, _permute_batched
)
CORRELATE = Operator(
    "correlate", _STENCIL.format("float cval, "), _correlate, _correlate_shape, _correlate_context,
    _correlate_backward, _correlate_batched,
)  # fmt: skip
CORRELATE_ADJOINT = Operator(
    "correlate_adjoint", _STENCIL.format(""), _correlate_adjoint, _correlate_shape, _adjoint_context,
    _adjoint_backward, _adjoint_batched,
)  # fmt: skip
