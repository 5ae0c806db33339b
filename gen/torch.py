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
from typing_extensions import override

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
from gen.functions import MOST_KERNELS, ArrayFunctions, gradient_through, loaded, reduction_of
from gen.runtime.dlpack import named_dtype
from gen.runtime.kernel import Kernel
from gen.runtime.load import CPU

_INDICES = ("argmax", "argmin")
_LINEAR = ("sum", "mean")  # whose gradients depend on neither the input nor the output


class _Functions(ArrayFunctions[Tensor]):
    """Of tensors of torch."""

    @override
    def reduced(self, op: str, x: Tensor, axes: list[int], dtype: Any, ddof: int) -> Tensor:
        return REDUCE(x, op, axes, ddof, dtype)

    @override
    def expanded(self, y: Tensor, axes: Sequence[int]) -> Tensor:
        for axis in axes:
            y = y.unsqueeze(axis)
        return y

    @override
    def permuted(self, x: Tensor, order: list[int]) -> Tensor:
        return PERMUTE(x, order)

    @override
    def correlated(
        self, x: Tensor, weights: list[float], shape: Sequence[int], modes: tuple[Any, ...], cval: float,
        origins: Sequence[int], steps: int,
    ) -> Tensor:  # fmt: skip
        return CORRELATE(x, weights, list(shape), _joined(modes), cval, list(origins), steps)

    @override
    def ndim(self, x: Tensor) -> int:
        return int(x.dim())


_FUNCTIONS = _Functions()
sum, prod, max, min = _FUNCTIONS.sum, _FUNCTIONS.prod, _FUNCTIONS.max, _FUNCTIONS.min
any, all, argmax, argmin = _FUNCTIONS.any, _FUNCTIONS.all, _FUNCTIONS.argmax, _FUNCTIONS.argmin
count_nonzero, vector_norm = _FUNCTIONS.count_nonzero, _FUNCTIONS.vector_norm
mean, var, std = _FUNCTIONS.mean, _FUNCTIONS.var, _FUNCTIONS.std
permute_dims, transpose, matrix_transpose = (
    _FUNCTIONS.permute_dims, _FUNCTIONS.transpose, _FUNCTIONS.matrix_transpose
)  # fmt: skip
correlate, convolve, laplace = _FUNCTIONS.correlate, _FUNCTIONS.convolve, _FUNCTIONS.laplace


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
        return lambda x: _FUNCTIONS.along(name, x, axis, keepdims, dtype, ddof)
    if isinstance(spec, TransposeSpec) and spec.values is None and not spec.in_place:
        order = spec.axes
        return lambda x: permute_dims(x, order)
    if isinstance(spec, StencilSpec):
        weights, shape, modes = list(spec.weights), list(spec.shape), _joined(spec.boundaries)
        cval, origin = spec.cval, [before - extent // 2 for before, extent in zip(spec.before, spec.shape, strict=True)]
        return lambda x, steps=1: CORRELATE(x, weights, shape, modes, cval, origin, steps)
    rule = "must be a reduction to one statistic, a permutation that changes no values, or a stencil"
    raise SpecError("spec", rule, getattr(spec, "label", repr(spec)))


def _joined(modes: Sequence[Any]) -> str:
    """Boundaries of all axes as one text: commas between axes, a slash between ends that differ."""
    return ",".join(mode if isinstance(mode, str) else "/".join(mode) for mode in modes)


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
    expanded, axes = _FUNCTIONS.expanded, ctx.axes
    given = expanded(gradient, axes)
    if ctx.op in _LINEAR:
        found = given if ctx.op == "sum" else given / _product(ctx.shape[axis] for axis in axes)
        return found.expand(ctx.shape).to(ctx.dtype), None, None, None, None
    x, output = ctx.saved_tensors

    def along(x: Tensor, op: str) -> Tensor:
        return expanded(REDUCE(x, op, axes, 0, None), axes)

    found = gradient_through(torch, ctx.op, x, expanded(output, axes), given, axes, ctx.ddof, along)
    return found.to(ctx.dtype), None, None, None, None


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
        torch.library.register_vmap(full, batched, lib=_library)
        self.defined: Any = getattr(torch.ops.gen, name).default
        defined, self._run = self.defined, run
        _library.impl(name, _recording(defined, run, context, backward), "Autograd", with_keyset=True)
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


_BACKENDS = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)


def _recording(defined: Any, run: Any, context: Any, backward: Any) -> Callable[..., Tensor]:
    """What torch calls for an operator before its kernel: it records the gradient where one is asked for.

    As `torch.library.register_autograd` makes it, which goes back to torch to find the kernel. Here the kernel is
    called at once where nothing else wants to see the call, which takes a third of the time.

    Args:
        defined: the operator.
        run: its kernel.
        context: keeps what the gradient needs.
        backward: the gradients of all arguments.
    """

    def below(keys: Any, given: tuple[Any, ...]) -> Tensor:
        found: Tensor
        if (keys & torch._C._after_ADInplaceOrView_keyset).highestPriorityTypeId() in _BACKENDS:
            found = run(*given)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                found = defined.redispatch(keys & torch._C._after_autograd_keyset, *given)
        return found

    def forward(ctx: Any, keys: Any, *given: Any) -> Tensor:
        found = below(keys, given)
        context(ctx, given, found)
        return found

    members = {"forward": forward, "backward": lambda ctx, gradient: (None, *backward(ctx, gradient))}
    recorded: Any = type(
        f"{defined}", (torch.autograd.Function,), {key: staticmethod(value) for key, value in members.items()}
    )

    def called(keys: Any, *given: Any) -> Tensor:
        if torch.is_grad_enabled() and given[0].requires_grad:
            found: Tensor = recorded.apply(keys, *given)
            return found
        return below(keys, given)

    return called


def _is_plain(x: Tensor) -> bool:
    """Whether torch would do nothing with a call but make it: no gradient, no mode, no subclass."""
    return (
        type(x) is Tensor
        and not (x.requires_grad and torch.is_grad_enabled())
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._len_torch_function_stack() == 0
        and not (x.is_conj() or x.is_neg() or x.is_meta)
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
