"""gen's functions in programs of JAX: under `jit`, `grad` and `vmap`.

`gen.jax.sum(x, axis=-1)` has the array API standard's signature, as `gen.sum` has. On a GPU the compiled program calls
the kernel through XLA's foreign function interface, on XLA's stream, with XLA's memory and without Python; on the CPU,
where $GEN_DEVICE is `cpu`, it calls back into Python, which takes the CPU run. Gradients are by reverse mode.

Results are those of NumPy, of the type that JAX makes of it: while `jax_enable_x64` is off, integers have 32 bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
from typing_extensions import override

try:
    import jax
    import jax.numpy as jnp
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "gen.jax needs jax, which is not installed. pip install 'jax[cuda13]' installs it", name=error.name
    ) from error

from gen.errors import ArgumentError, DeviceError, ShapeError, SpecError
from gen.families.base import Spec
from gen.families.stencil.adjoint import adjoint, computed_cells, folded_places
from gen.families.stencil.builder import stencil
from gen.families.stencil.spec import MAX_AXES, StencilSpec
from gen.families.transpose import permutation
from gen.functions import MOST_KERNELS, ArrayFunctions, gradient_through, loaded, reduction_of
from gen.runtime import xla
from gen.runtime.load import CPU

Array = Any
_WIDE = ("argmax", "argmin", "count_nonzero")  # of 64 bits always


class _Functions(ArrayFunctions[Array]):
    """Of arrays of JAX, and what JAX makes arrays of."""

    @override
    def reduced(self, op: str, x: Array, axes: list[int], dtype: Any, ddof: int) -> Array:
        x = _array(x)
        usual = reduction_of(op, x.dtype, x.ndim, tuple(axes), False, dtype, ddof).result.numpy
        asked = None if dtype is None else usual
        if dtype is None and op not in _WIDE:
            narrow = jax.dtypes.canonicalize_dtype(usual)
            asked = None if narrow == usual else narrow
        return _reduce(x, op, tuple(axes), ddof, asked)

    @override
    def expanded(self, y: Array, axes: Sequence[int]) -> Array:
        return jnp.expand_dims(y, tuple(axes))

    @override
    def permuted(self, x: Array, order: list[int]) -> Array:
        return _permute(_array(x), tuple(order))

    @override
    def correlated(
        self, x: Array, weights: list[float], shape: Sequence[int], modes: tuple[Any, ...], cval: float,
        origins: Sequence[int], steps: int,
    ) -> Array:  # fmt: skip
        x, array = _array(x), np.array(weights).reshape(shape)
        spec = stencil(array, boundary=modes, dtype=x.dtype, cval=cval, origin=tuple(origins), word="correlate")
        return _stencil(x, spec, _known(steps))

    @override
    def ndim(self, x: Array) -> int:
        return int(_array(x).ndim)


_FUNCTIONS = _Functions()
sum, prod, max, min = _FUNCTIONS.sum, _FUNCTIONS.prod, _FUNCTIONS.max, _FUNCTIONS.min
any, all, argmax, argmin = _FUNCTIONS.any, _FUNCTIONS.all, _FUNCTIONS.argmax, _FUNCTIONS.argmin
count_nonzero, vector_norm = _FUNCTIONS.count_nonzero, _FUNCTIONS.vector_norm
mean, var, std = _FUNCTIONS.mean, _FUNCTIONS.var, _FUNCTIONS.std
permute_dims, transpose, matrix_transpose = (
    _FUNCTIONS.permute_dims, _FUNCTIONS.transpose, _FUNCTIONS.matrix_transpose
)  # fmt: skip
correlate, convolve, laplace = _FUNCTIONS.correlate, _FUNCTIONS.convolve, _FUNCTIONS.laplace


def operator(spec: StencilSpec) -> Callable[..., Array]:
    """A stencil as a function of an array and of `steps`, which is 1 unless it is given.

    Raises SpecError if it is none.
    """
    given: object = spec  # a caller may give anything
    if not isinstance(given, StencilSpec):
        next_step = "gen.jax.sum and gen.jax.permute_dims, say, are functions of arrays"
        raise SpecError("spec", "must be a stencil", getattr(given, "label", repr(given)), next_step=next_step)

    def call(x: Array, steps: int = 1) -> Array:
        array = _array(x)
        if not spec.dtype.holds(array.dtype):
            next_step = "Convert it first, or make a stencil of its type"
            raise ShapeError("x", f"must hold {spec.dtype.name} elements", array.dtype, next_step=next_step)
        return _stencil(array, spec, _known(steps))

    return call


def _array(x: Any) -> Array:
    """What a caller gives, as an array of JAX. Raises ArgumentError for what no kernel can read."""
    try:
        array = jnp.asarray(x)
    except (TypeError, ValueError) as error:
        raise ArgumentError("x", "must be what JAX makes an array of", error) from error
    if not isinstance(array.dtype, np.dtype):  # keys of random numbers
        raise ArgumentError("x", "must hold numbers", array.dtype)
    if _bits(array.dtype) % 8:
        next_step = "Convert it first: XLA keeps several in a byte"
        raise ArgumentError("x", "must hold elements of whole bytes", array.dtype, next_step=next_step)
    return array


def _bits(dtype: Any) -> int:
    if jnp.issubdtype(dtype, jnp.integer):
        return int(jnp.iinfo(dtype).bits)
    return int(jnp.finfo(dtype).bits) if jnp.issubdtype(dtype, jnp.floating) else 8 * int(dtype.itemsize)


def _known(steps: Any) -> Any:
    """Raises ArgumentError for steps that are traced."""
    if isinstance(steps, jax.core.Tracer):
        next_step = "Name it in static_argnames of jax.jit"
        raise ArgumentError("steps", "must be known while a program is traced", "a tracer", next_step=next_step)
    return steps


# What runs a kernel: a custom call where the program is for a GPU, else a call of Python


def _run(spec: Spec, x: Array, shape: tuple[int, ...], dtype: np.dtype[Any], **parameters: int) -> Array:
    if jax.default_backend() == "cpu":
        if os.environ.get("GEN_DEVICE") != CPU:
            next_step = "Install JAX for CUDA, or set GEN_DEVICE=cpu, for the CPU run"
            raise DeviceError("gen.jax", "needs a GPU that JAX sees", "the CPU", next_step=next_step)

        loaded(spec, CPU).variant_for(x.shape, **parameters)  # raises here what in a callback would be JAX's error

        def call(content: Any) -> Any:
            found = np.asarray(loaded(spec, CPU)(np.asarray(content), **parameters))
            return found.astype(dtype, copy=False)

        return jax.pure_callback(call, jax.ShapeDtypeStruct(shape, dtype), x, vmap_method="sequential")
    planned = _call(spec, x.shape, np.dtype(x.dtype), tuple(sorted(parameters.items())))
    results = [*planned.results, *(((size,), np.dtype(np.uint8)) for size in planned.scratch)]
    # JAX knows no type of 64 bits while those are switched off: two words stand for each, the lower one first.
    seen = [
        jax.ShapeDtypeStruct(found, kind)
        if jax.dtypes.canonicalize_dtype(kind) == kind
        else jax.ShapeDtypeStruct((*found, 2), np.uint32)
        for found, kind in results
    ]
    made = jax.ffi.ffi_call(xla.TARGET, seen, vmap_method="sequential")(x, plan=np.int64(planned.number))[0]
    return made if made.shape == shape and made.dtype == dtype else made[..., 0].astype(dtype)


@lru_cache(MOST_KERNELS)
def _call(
    spec: Spec, shape: tuple[int, ...], dtype: np.dtype[Any], parameters: tuple[tuple[str, int], ...]
) -> xla.Call:
    kernel = loaded(spec, _gpu())
    return xla.keep(_library(), kernel, shape, dtype, dict(parameters), xla.driver_addresses())


@cache
def _library() -> Any:
    found = xla.library(jax.ffi.include_dir())
    jax.ffi.register_ffi_target(xla.TARGET, jax.ffi.pycapsule(found.gen_launch), platform="CUDA")
    return found


def _gpu() -> int:
    """The driver's number of JAX's first GPU."""
    number: int = jax.devices()[0].local_hardware_id
    return number


def _mapped(function: Callable[[Array], Array], batched: Callable[[Array], Array]) -> Any:
    """A function of an array, and what it is under `vmap`: a function of an array with one more axis in front."""
    made: Any = jax.custom_batching.custom_vmap(function)
    made.def_vmap(lambda _, mapped, x: (batched(x) if mapped[0] else function(x), mapped[0]))
    return made


# Reductions


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3, 4))
def _reduce(x: Array, op: str, axes: tuple[int, ...], ddof: int, dtype: np.dtype[Any] | None) -> Array:
    shape = tuple(extent for axis, extent in enumerate(x.shape) if axis not in axes)

    def call(x: Array) -> Array:
        spec = reduction_of(op, x.dtype, x.ndim, axes, False, dtype, ddof)
        return _run(spec, x, shape, jax.dtypes.canonicalize_dtype(spec.result.numpy))

    def batched(x: Array) -> Array:
        if op.startswith("arg") and len(axes) != 1:  # of all elements of each
            return _reduce(x.reshape(x.shape[0], -1), op, (1,), ddof, dtype)
        return _reduce(x, op, tuple(axis + 1 for axis in axes), ddof, dtype)

    return _mapped(call, batched)(x)


def _reduce_forward(x: Array, op: str, axes: tuple[int, ...], ddof: int, dtype: Any) -> tuple[Array, Any]:
    y = _reduce(x, op, axes, ddof, dtype)
    return y, (x, y)


def _reduce_backward(op: str, axes: tuple[int, ...], ddof: int, _: Any, kept: Any, gradient: Array) -> tuple[Array]:
    def along(x: Array, op: str) -> Array:
        return jnp.expand_dims(_reduce(x, op, axes, 0, None), axes)

    x, y = kept[0], jnp.expand_dims(kept[1], axes)
    found = gradient_through(jnp, op, x, y, jnp.expand_dims(gradient, axes), axes, ddof, along)
    return (jnp.broadcast_to(found, x.shape).astype(x.dtype),)


_reduce.defvjp(_reduce_forward, _reduce_backward)


# Permutations


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _permute(x: Array, axes: tuple[int, ...]) -> Array:
    def call(x: Array) -> Array:
        if not axes:
            return x
        shape = tuple(x.shape[axis] for axis in axes)
        return _run(permutation(axes, np.dtype(x.dtype)), x, shape, np.dtype(x.dtype))

    return _mapped(call, lambda x: _permute(x, (0, *(axis + 1 for axis in axes))))(x)


def _permute_forward(x: Array, axes: tuple[int, ...]) -> tuple[Array, None]:
    return _permute(x, axes), None


def _permute_backward(axes: tuple[int, ...], _: None, gradient: Array) -> tuple[Array]:
    return (_permute(gradient, tuple(sorted(range(len(axes)), key=axes.__getitem__))),)


_permute.defvjp(_permute_forward, _permute_backward)


# Stencils


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _stencil(x: Array, spec: StencilSpec, steps: int) -> Array:
    return _mapped(
        lambda x: _run(spec, x, x.shape, np.dtype(x.dtype), steps=steps),
        lambda x: _each(lambda x, spec: _stencil(x, spec, steps), x, spec),
    )(x)


def _stencil_forward(x: Array, spec: StencilSpec, steps: int) -> tuple[Array, None]:
    return _stencil(x, spec, steps), None


def _stencil_backward(spec: StencilSpec, steps: int, _: None, gradient: Array) -> tuple[Array]:
    turned = adjoint(spec)
    if turned.closed:
        return (_stencil(gradient, turned.spec, steps),)
    for _step in range(steps if gradient.size else 0):
        gradient = _adjoint_step(gradient, spec)
    return (gradient,)


def _adjoint_step(x: Array, spec: StencilSpec) -> Array:
    turned = adjoint(spec)
    box = computed_cells(x.shape, turned.kept)
    inner = jnp.zeros_like(x).at[box].set(x[box])
    found = _stencil(jnp.pad(inner, turned.margins), turned.spec, 1)
    for axis, (boundary, (before, after)) in enumerate(zip(turned.folds, turned.margins, strict=True)):
        if boundary is None:
            continue
        margin = jnp.moveaxis(found, axis, 0)
        within = margin[before : before + x.shape[axis]]
        for place, cell in folded_places(x.shape[axis], before, after, boundary):
            within = within.at[cell].add(margin[place])
        found = jnp.moveaxis(within, 0, axis)
    return found + x.at[box].set(0)


def _each(function: Callable[[Array, StencilSpec], Array], x: Array, spec: StencilSpec) -> Array:
    """A stencil of each part along the first axis: one more axis, with one weight; where there are three, in turn."""
    if x.ndim > MAX_AXES:
        return jnp.stack([function(one, spec) for one in x])
    weights = np.asarray(spec.weights).reshape(1, *spec.shape)
    origin = tuple(before - extent // 2 for before, extent in zip(spec.before, spec.shape, strict=True))
    wider = stencil(
        weights, boundary=("constant", *spec.boundaries), dtype=spec.dtype, cval=spec.cval, origin=(0, *origin),
        word=spec.word,
    )  # fmt: skip
    return function(x, wider)


_stencil.defvjp(_stencil_forward, _stencil_backward)
