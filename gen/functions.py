"""Functions on arrays with the signatures of the array API standard, of NumPy and of SciPy.

`gen.sum(x, axis=-1)` makes the spec, loads its kernel and calls it. The kernel is kept, so that a second call with the
same kind of array only calls it. Arrays are those that kernels take: of torch, CuPy and others on a GPU, used in place
on the caller's stream, or of NumPy, which are copied. The result is of the kind of the input.

Every function takes `device`, as `gen.load` does, and `stream`, as kernels do, by keyword.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from builtins import all as _all
from builtins import min as _least
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod as _product
from numbers import Real
from typing import Any, Generic, TypeVar

import numpy as np

from gen.dtypes import numpy_dtype, python_int
from gen.errors import ArgumentError, ShapeError, SpecError
from gen.families.base import Spec
from gen.families.reduction import ReductionSpec, reduction
from gen.families.reduction.spec import MOST_DDOF
from gen.families.stencil.builder import stencil
from gen.families.transpose import permutation
from gen.runtime.arrays import read
from gen.runtime.kernel import Kernel
from gen.runtime.load import load

A = TypeVar("A")  # an array of a library
MOST_KERNELS = 4096  # that are kept, by spec and device
Modes = str | Sequence[str | Sequence[str]]
"""What lies outside: one for all axes, or one for each, which may be a pair: one for each end."""
_MODES = {"grid-constant": "constant", "grid-mirror": "reflect", "grid-wrap": "wrap"}  # SciPy's other words


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The sum over axes. Integers are added in 64 bits, unless `dtype` says otherwise.

    Args:
        x: bool, integers or floating-point numbers.
        axis: None for all, an axis or a tuple of axes.
        dtype: of the result, in which the kernel also adds; None: NumPy's choice.
        keepdims: whether the result keeps the reduced axes, with extent 1.
        out: where the result goes; None: a new array.
        stream: of torch or CuPy, or the driver's handle; None: the current one of the array's library.
        device: a GPU by number, or opened, or "cpu"; None: as for `gen.load`.

    Raises:
        GenError: an argument is not what the function takes. Nothing was launched.
    """
    return _reduced("sum", x, axis, keepdims, out, stream, device, dtype)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False, out: Any = None,
         stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The product over axes. Arguments and errors are those of `sum`."""
    return _reduced("prod", x, axis, keepdims, out, stream, device, dtype)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The greatest element over axes, NaN where there is one. Arguments and errors are those of `sum`."""
    return _reduced("max", x, axis, keepdims, out, stream, device)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The least element over axes, NaN where there is one. Arguments and errors are those of `sum`."""
    return _reduced("min", x, axis, keepdims, out, stream, device)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """Whether any element over axes is not 0. Arguments and errors are those of `sum`."""
    return _reduced("any", x, axis, keepdims, out, stream, device)


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """Whether no element over axes is 0. Arguments and errors are those of `sum`."""
    return _reduced("all", x, axis, keepdims, out, stream, device)


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False, out: Any = None,
           stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The index of the first greatest element, of the flattened array without `axis`; i64.

    Arguments and errors are those of `sum`, but that at most one axis may be named.
    """
    return _reduced("argmax", x, axis, keepdims, out, stream, device)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False, out: Any = None,
           stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The index of the first least element, of the flattened array without `axis`; i64.

    Arguments and errors are those of `sum`, but that at most one axis may be named.
    """
    return _reduced("argmin", x, axis, keepdims, out, stream, device)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False, out: Any = None,
                  stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """How many elements over axes are not 0; i64. Arguments and errors are those of `sum`."""
    return _reduced("count_nonzero", x, axis, keepdims, out, stream, device)


def mean(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False, out: Any = None,
         stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The mean over axes, f64 of integers. Arguments and errors are those of `sum`."""
    _warn("mean", x, axis, 0)
    return _reduced("mean", x, axis, keepdims, out, stream, device, dtype)


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The variance over axes: squares of differences from the mean, divided by their number less `correction`.

    Arguments and errors are those of `sum`. `correction` is a whole number from 0 to 99.
    """
    ddof = _whole("correction", correction, MOST_DDOF)
    _warn("var", x, axis, ddof)
    return _reduced("var", x, axis, keepdims, out, stream, device, None, ddof)


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False, out: Any = None,
        stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The standard deviation over axes: the square root of `var`, whose arguments and errors it has."""
    ddof = _whole("correction", correction, MOST_DDOF)
    _warn("std", x, axis, ddof)
    return _reduced("std", x, axis, keepdims, out, stream, device, None, ddof)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2, out: Any = None,
                stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The Euclidean norm over axes. Arguments and errors are those of `sum`; `ord` must be 2."""
    given: object = ord  # a caller may give anything
    if not isinstance(given, Real) or given != 2:
        raise ArgumentError("ord", "must be 2, the Euclidean norm", repr(ord))
    return _reduced("norm", x, axis, keepdims, out, stream, device)


def permute_dims(x: Any, /, axes: Sequence[int], *, out: Any = None, stream: Any = None, device: Any = None) -> Any:
    """A copy of an array with its axes permuted: axis i of the result is axis `axes[i]` of `x`.

    Args:
        x: elements of 1, 2, 4, 8 or 16 bytes, 8 axes at most.
        axes: each axis once; those from the end are negative.
        out: where the result goes; None: a new array.
        stream: as for `sum`.
        device: as for `sum`.

    Raises:
        GenError: an argument is not what the function takes. Nothing was launched.
    """
    return _permuted(_order, x, axes, out, stream, device)


def transpose(x: Any, /, axes: Sequence[int] | None = None, *, out: Any = None, stream: Any = None,
              device: Any = None) -> Any:  # fmt: skip
    """As `permute_dims`; without `axes` their order is reversed, as in `numpy.transpose`."""
    return _permuted(_reversed if axes is None else _order, x, axes, out, stream, device)


def matrix_transpose(x: Any, /, *, out: Any = None, stream: Any = None, device: Any = None) -> Any:
    """A copy of a matrix, or of a stack of matrices, with its last two axes exchanged; errors as of `permute_dims`."""
    return _permuted(_last_two, x, None, out, stream, device)


def correlate(input: Any, weights: Any, output: Any = None, mode: Modes = "reflect", cval: float = 0.0,
              origin: int | Sequence[int] = 0, *, axes: int | Sequence[int] | None = None, stream: Any = None,
              device: Any = None) -> Any:  # fmt: skip
    """The correlation with weights, as `scipy.ndimage.correlate` has it: a weighted sum of neighbours for each cell.

    Cells of f64 are added in f64, all others in f32, where SciPy adds all in f64. Sums of integers are rounded to the
    nearest, half-way cases to even, and saturate; SciPy cuts off what follows the point, and wraps.

    Args:
        input: cells of f16, bf16, f32, f64, u8, i16 or u16.
        weights: an array with as many axes as `input`, or as `axes` names.
        output: where the result goes; None: a new array.
        mode: what lies outside, for all axes or for each: `reflect`, `constant`, `nearest`, `mirror`, `wrap`; in place
            of that of an axis, a pair names one for each end.
        cval: the value outside where the mode is `constant`.
        origin: shifts the weights, for all axes or for each.
        axes: that or those along which the weights lie; None: all.
        stream: as for `sum`.
        device: as for `sum`.

    Raises:
        GenError: an argument is not what the function takes. Nothing was launched.
    """
    array = _weights(weights)
    if isinstance(output, type | str | np.dtype):
        given = read("input", input)
        if numpy_dtype(output) != given.dtype:
            rule, next_step = f"must be an array, or the dtype of input, {given.dtype}", "Convert what comes back"
            raise ArgumentError("output", rule, repr(output), next_step=next_step)
        output = None
    content = array.tobytes(), array.dtype, array.shape
    try:
        kernel = _kernels["correlate", type(input), input.dtype, input.ndim, *content, mode, cval, origin, axes,
                          device, type(device)]  # fmt: skip
    except (KeyError, AttributeError, TypeError, ValueError):
        kernel = None  # what cannot be done then is said without this error
    if kernel is None:
        given = read("input", input)
        kernel = _correlation(
            given.dtype, len(given.shape), *content, _hashable("mode", mode), _hashable("cval", cval),
            _hashable("origin", origin), _hashable("axes", axes), _hashable("device", device),
        )  # fmt: skip
        _keep(kernel, "correlate", input, *content, mode, cval, origin, axes, device, type(device))
    return kernel(input, out=output, stream=stream)


def convolve(input: Any, weights: Any, output: Any = None, mode: Modes = "reflect", cval: float = 0.0,
             origin: int | Sequence[int] = 0, *, axes: int | Sequence[int] | None = None, stream: Any = None,
             device: Any = None) -> Any:  # fmt: skip
    """The convolution with weights, as `scipy.ndimage.convolve` has it. Arguments and errors: those of `correlate`."""
    array = _weights(weights)
    turned = turned_origin(_ndim(input), array.shape, _hashable("origin", origin), _hashable("axes", axes))
    backwards = array[(slice(None, None, -1),) * array.ndim]
    return correlate(input, backwards, output, mode, cval, turned, axes=axes, stream=stream, device=device)


def laplace(input: Any, output: Any = None, mode: Modes = "reflect", cval: float = 0.0, *,
            axes: int | Sequence[int] | None = None, stream: Any = None, device: Any = None) -> Any:  # fmt: skip
    """The sum of second differences along axes, as `scipy.ndimage.laplace` has it; errors as of `correlate`."""
    ndim = len(_along(_hashable("axes", axes), _ndim(input)))
    weights = np.array(second_differences(ndim)).reshape((3,) * ndim)
    return correlate(input, weights, output, mode, cval, axes=axes, stream=stream, device=device)


_kernels: dict[tuple[Any, ...], Kernel] = {}
"""Found once for arrays of one class, dtype and number of axes, which the kernels will read themselves."""


def _reduced(op: str, x: Any, axis: Any, keepdims: bool, out: Any, stream: Any, device: Any, dtype: Any = None,
             ddof: int = 0) -> Any:  # fmt: skip
    try:  # types too: 1, 1.0 and True are the same key
        kernel = _kernels[op, type(x), x.dtype, x.ndim, axis, type(axis), keepdims, dtype, ddof, device, type(device)]
    except (KeyError, AttributeError, TypeError, ValueError):
        kernel = None  # not found yet, or it says less of itself, or cannot be looked up
    if kernel is None:
        given = read("x", x)
        named = _hashable("axis", axis)
        if op in ("argmax", "argmin") and isinstance(named, tuple):
            raise ShapeError("axis", f"must be one axis, or None for all of them together, for {op}", repr(axis))
        spec = reduction_of(op, given.dtype, len(given.shape), named, keepdims, dtype, ddof)
        kernel = loaded(spec, _hashable("device", device))
        _keep(kernel, op, x, axis, type(axis), keepdims, dtype, ddof, device, type(device))
    return kernel(x, out=out, stream=stream)


def _permuted(
    order_of: Callable[[Any, int], tuple[Any, ...]], x: Any, axes: Any, out: Any, stream: Any, device: Any
) -> Any:  # fmt: skip
    """An array whose axes have another order, which a function tells from what is named and how many there are."""
    try:
        kernel = _kernels[order_of, type(x), x.dtype, x.ndim, axes, device, type(device)]
    except (KeyError, AttributeError, TypeError, ValueError):
        kernel = None
    if kernel is None:
        if isinstance(axes, list):
            return _permuted(order_of, x, tuple(axes), out, stream, device)
        given = read("x", x)
        with _named_as(dtype="The dtype of x"):
            spec = permutation(order_of(axes, len(given.shape)), given.dtype)
        kernel = loaded(spec, _hashable("device", device))
        _keep(kernel, order_of, x, axes, device, type(device))
    return kernel(x, out=out, stream=stream)


def _order(axes: Any, ndim: int) -> tuple[Any, ...]:
    if isinstance(axes, range | np.ndarray):
        axes = _hashable("axes", axes)
    found = tuple(map(python_int, axes)) if isinstance(axes, tuple) else ()
    if len(found) != ndim or ndim == 0:
        raise ShapeError("axes", f"must name each of the {ndim} axes of x once, and there must be one", repr(axes))
    return found


def _reversed(_: None, ndim: int) -> tuple[int, ...]:
    return _order(tuple(range(ndim))[::-1], ndim)


def _last_two(_: None, ndim: int) -> tuple[int, ...]:
    if ndim < 2:
        raise ShapeError("x", "must have two axes or more", f"{ndim}")
    return (*range(ndim - 2), ndim - 1, ndim - 2)


def _keep(kernel: Kernel, function: Hashable, x: Any, *arguments: Any) -> None:
    """Remembers the kernel of a call, where such a call can be looked up."""
    try:
        key = (function, type(x), x.dtype, x.ndim, *arguments)
        hash(key)
    except (AttributeError, TypeError, ValueError):
        return
    if len(_kernels) >= MOST_KERNELS:
        _kernels.clear()
    _kernels[key] = kernel


def _warn(op: str, x: Any, axis: Any, ddof: int) -> None:
    """Warns as NumPy does where a statistic of so few elements is not defined: the result is NaN or infinite."""
    shape = x.shape if hasattr(x, "shape") else read("x", x).shape
    if shape and not (type(axis) is tuple and not axis) and _least(shape) > ddof:
        return
    axes = _axes(_hashable("axis", axis), len(shape))
    count = _product(shape if axes is None else [shape[one] for one in axes])
    if count <= ddof:
        few = f"{op} of {count} elements" + (f" with a correction of {ddof}" if ddof else "")
        warnings.warn(f"{few} is not defined: the result holds NaN or infinities", RuntimeWarning, stacklevel=3)


def reduction_of(
    op: str, elements: np.dtype[Any], ndim: int, axis: Any, keepdims: bool, dtype: Any, ddof: int
) -> ReductionSpec:
    """The spec of a reduction of an array with so many axes, one for all calls that mean the same."""
    with _named_as(elements="The dtype of x", ddof="correction"):
        return reduction(op, elements, axis=_axes(axis, ndim), keepdims=keepdims, dtype=dtype, ddof=ddof)


@lru_cache(MOST_KERNELS, typed=True)
def _correlation(
    dtype: np.dtype[Any], ndim: int, content: bytes, weights_dtype: np.dtype[Any], weights_shape: tuple[int, ...],
    mode: Any, cval: float, origin: Any, axes: Any, device: Any,
) -> Kernel:  # fmt: skip
    """The kernel of a correlation; `content` holds the weights in row-major order."""
    shape, modes, origins = laid_out(ndim, weights_shape, mode, origin, axes)
    weights = np.frombuffer(content, weights_dtype).reshape(shape)
    boundary: Any = modes
    with _named_as(boundary="mode", dtype="The dtype of input"):
        spec = stencil(weights, boundary=boundary, dtype=dtype, cval=cval, origin=origins, word="correlate")
    return loaded(spec, device)


def turned_origin(
    ndim: int, extents: Sequence[int], origin: Any, axes: int | Sequence[int] | None
) -> list[int]:  # fmt: skip
    """The origins of weights that are reversed, so that a correlation is a convolution."""
    along = _along(axes, ndim)
    origins = _one_an_axis("origin", origin, len(along))
    if not _all(type(python_int(shift)) is int for shift in origins):
        raise ArgumentError("origin", "must be a whole number, or one for each axis", repr(origin))
    lengths = dict(zip(sorted(along), extents, strict=False))
    # The centre of an even number of weights lies on the other side once they are reversed.
    return [-shift - (lengths.get(axis, 1) % 2 == 0) for axis, shift in zip(along, origins, strict=True)]


def second_differences(ndim: int) -> list[float]:
    """Weights of the sum of second differences along so many axes, three along each, in row-major order.

    Along none it is what SciPy makes of it: the array itself.
    """
    if ndim == 0:
        return [1.0]
    weights, middle = [0.0] * 3**ndim, 3**ndim // 2
    weights[middle] = -2.0 * ndim
    for axis in range(ndim):
        weights[middle - 3**axis] = weights[middle + 3**axis] = 1.0
    return weights


def laid_out(
    ndim: int, extents: Sequence[int], mode: Any, origin: Any, axes: int | Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    """Shape, boundaries and origins of weights for all axes of an array, from those along some of them.

    Raises ShapeError where they do not fit each other.
    """
    along = _along(axes, ndim)
    if len(extents) != len(along):
        raise ShapeError("weights", f"must have {len(along)} axes, one for each that is meant", len(extents))
    shape, origins = [1] * ndim, [0] * ndim
    modes: list[Any] = ["constant"] * ndim
    given = zip(_one_an_axis("mode", mode, len(along)), _one_an_axis("origin", origin, len(along)), strict=True)
    for axis, (one, shift) in zip(along, given, strict=True):
        ends = tuple(_MODES.get(end, end) for end in one) if isinstance(one, tuple | list) else _MODES.get(one, one)
        modes[axis], origins[axis] = ends, shift
    for axis, extent in zip(sorted(along), extents, strict=True):  # as SciPy: in the order of the input's axes
        shape[axis] = extent
    return tuple(shape), tuple(modes), tuple(origins)


@lru_cache(MOST_KERNELS)
def loaded(spec: Spec, device: Any) -> Kernel:
    """The kernel of a spec, one for all calls that come to the same."""
    return load(spec, device=device)


@contextmanager
def _named_as(**arguments: str) -> Iterator[None]:
    """Names the argument of a function where the field of a spec that it became is refused."""
    try:
        yield
    except SpecError as error:
        field = error.subject.rpartition(".")[2]
        raise SpecError(arguments.get(field, field), error.rule, error.value, next_step=error.next_step) from None


def _axes(axis: Any, ndim: int) -> tuple[int, ...] | None:
    """Axes in one spelling, so that calls that mean the same share a kernel: None for all, the last as -1."""
    if axis is None:
        return None
    named = tuple(map(python_int, axis)) if isinstance(axis, tuple) else (python_int(axis),)
    if named and ndim == 0:
        raise ShapeError("axis", "must be None or () for an array without axes", repr(axis))
    if not _all(type(one) is int and -ndim <= one < ndim for one in named):
        raise ShapeError("axis", f"must be a whole number from {-ndim} to {ndim - 1}, or None for all axes", repr(axis))
    positive = sorted(one % ndim for one in named)
    if len(set(positive)) < len(positive):
        raise ShapeError("axis", "must name each axis once", repr(axis))
    if len(positive) == ndim:
        return None
    from_end = bool(positive) and positive[-1] == ndim - 1
    return tuple(one - ndim if from_end else one for one in positive)


def _weights(weights: Any) -> Any:
    try:
        array = np.asarray(weights)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged, or on a GPU
        next_step = "They stand in the text of the kernel: pass numbers on the host"
        raise ArgumentError("weights", "must be an array of numbers", error, next_step=next_step) from error
    if array.dtype.kind == "O":
        raise ArgumentError("weights", "must be an array of numbers", repr(array.dtype))
    return array


def _ndim(input: Any) -> int:
    found = getattr(input, "ndim", None)
    return found if type(found) is int else len(read("input", input).shape)


def _along(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """The axes that are filtered. SciPy ignores their order where all are named."""
    if axes is None:
        return tuple(range(ndim))
    named = [python_int(axis) for axis in (axes if isinstance(axes, tuple | list) else (axes,))]
    along = tuple(axis + ndim if type(axis) is int and axis < 0 else axis for axis in named)
    if not _all(type(axis) is int and 0 <= axis < ndim for axis in along) or len(set(along)) < len(along):
        raise ShapeError("axes", f"must name axes of an array of {ndim} once each", repr(axes))
    return along if len(along) < ndim else tuple(range(ndim))


def _whole(name: str, number: Any, most: int) -> int:
    whole = isinstance(number, int | np.integer) or (isinstance(number, float | np.floating) and number % 1 == 0)
    if not whole or not 0 <= number <= most:  # nor is a number whole that is not finite
        raise ArgumentError(name, f"must be a whole number from 0 to {most}", repr(number))
    return int(number)


def _one_an_axis(name: str, given: Any, axes: int) -> Sequence[Any]:
    if not isinstance(given, tuple | list):
        return (given,) * axes
    if len(given) != axes:
        raise ShapeError(name, f"must be one for all axes, or {axes}", repr(given))
    return given


def _hashable(name: str, given: Any) -> Any:
    """A tuple of what is several; anything else as it is. Raises ArgumentError for what no cache can find again."""
    if isinstance(given, np.ndarray) and not given.ndim:
        given = given[()]
    elif isinstance(given, list | range | np.ndarray):
        given = tuple(given)
    try:
        hash(given)
    except (TypeError, ValueError) as error:  # ValueError of a time without a unit
        raise ArgumentError(name, "must be one value for all axes, or a tuple", repr(given)) from error
    return given


class ArrayFunctions(ABC, Generic[A]):
    """The functions of this module, for a library whose arrays have gradients, as methods.

    A subclass says how its arrays are reduced, permuted and correlated. What they share is made here, without a trace
    of NumPy's arrays, so that a compiler of the library can follow it.
    """

    @abstractmethod
    def reduced(self, op: str, x: Any, axes: list[int], dtype: Any, ddof: int) -> A:
        """The statistic over axes, positive and in order."""

    @abstractmethod
    def expanded(self, y: A, axes: list[int]) -> A:
        """The array with further axes of extent 1 at these places."""

    @abstractmethod
    def permuted(self, x: Any, order: list[int]) -> A:
        """A dense copy, of whose axes each is the axis of `x` that stands in its place in `order`."""

    @abstractmethod
    def correlated(
        self, x: Any, weights: list[float], shape: Sequence[int], modes: tuple[Any, ...], cval: float,
        origins: Sequence[int], steps: int,
    ) -> A:  # fmt: skip
        """The correlation with weights in row-major order; shape, modes and origins are those of all axes."""

    @abstractmethod
    def ndim(self, x: Any) -> int:
        """How many axes an array has."""

    def sum(self, x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> A:
        """The sum over axes. Integers are added in the library's widest integer type, unless `dtype` says otherwise.

        Args:
            x: bool, integers or floating-point numbers, with any strides.
            axis: None for all, an axis or a tuple of axes.
            dtype: of the result, in which the kernel also adds; None: NumPy's choice.
            keepdims: whether the result keeps the reduced axes, with extent 1.

        Raises:
            GenError: an argument is not what the function takes. Nothing was launched.
        """
        return self.along("sum", x, axis, keepdims, dtype)

    def prod(self, x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> A:
        """The product over axes. Arguments and errors are those of `sum`."""
        return self.along("prod", x, axis, keepdims, dtype)

    def max(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> A:
        """The greatest element over axes; elements that are equally great share its gradient. Otherwise as `sum`."""
        return self.along("max", x, axis, keepdims)

    def min(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> A:
        """The least element over axes; elements that are equally small share its gradient. Otherwise as `sum`."""
        return self.along("min", x, axis, keepdims)

    def any(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> A:
        """Whether any element over axes is not 0. Arguments and errors are those of `sum`."""
        return self.along("any", x, axis, keepdims)

    def all(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> A:
        """Whether no element over axes is 0. Arguments and errors are those of `sum`."""
        return self.along("all", x, axis, keepdims)

    def argmax(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> A:
        """The index of the first greatest element, of the flattened array without `axis`. Otherwise as `sum`."""
        return self.along("argmax", x, axis, keepdims)

    def argmin(self, x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> A:
        """The index of the first least element, of the flattened array without `axis`. Otherwise as `sum`."""
        return self.along("argmin", x, axis, keepdims)

    def count_nonzero(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> A:
        """How many elements over axes are not 0. Arguments and errors are those of `sum`."""
        return self.along("count_nonzero", x, axis, keepdims)

    def mean(self, x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> A:
        """The mean over axes, of integers in the library's widest floating-point type. Otherwise as `sum`."""
        return self.along("mean", x, axis, keepdims, dtype)

    def var(self, x: Any, /, *, axis: Any = None, correction: int = 0, keepdims: bool = False) -> A:
        """The variance over axes, divided by their number less `correction`. Otherwise as `sum`."""
        return self.along("var", x, axis, keepdims, ddof=correction)

    def std(self, x: Any, /, *, axis: Any = None, correction: int = 0, keepdims: bool = False) -> A:
        """The standard deviation over axes, the root of `var`; its gradient is 0 where it is 0."""
        return self.along("std", x, axis, keepdims, ddof=correction)

    def vector_norm(self, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> A:
        """The Euclidean norm over axes; its gradient is 0 where it is 0. Otherwise as `sum`; `ord` must be 2."""
        if ord != 2:
            raise ArgumentError("ord", "must be 2, the Euclidean norm", repr(ord))
        return self.along("norm", x, axis, keepdims)

    def permute_dims(self, x: Any, /, axes: Sequence[int]) -> A:
        """A dense copy with axes permuted: axis i of the result is axis `axes[i]` of `x`.

        Args:
            x: elements of 1, 2, 4, 8 or 16 bytes, 8 axes at most.
            axes: each axis once; those from the end are negative.

        Raises:
            GenError: an argument is not what the function takes. Nothing was launched.
        """
        ndim, named = self.ndim(x), _listed(axes)
        order = [axis + ndim if axis < 0 else axis for axis in named or ()]
        if named is None or sorted(order) != list(range(ndim)):
            raise ShapeError("axes", f"must name each of the {ndim} axes of x once", repr(axes))
        return self.permuted(x, order)

    def transpose(self, x: Any, /, axes: Sequence[int] | None = None) -> A:
        """As `permute_dims`; without `axes` their order is reversed, as in `numpy.transpose`."""
        return self.permute_dims(x, list(range(self.ndim(x)))[::-1] if axes is None else axes)

    def matrix_transpose(self, x: Any, /) -> A:
        """A dense copy of a matrix, or of a stack of matrices, with its last two axes exchanged."""
        return self.permute_dims(x, _last_two(None, self.ndim(x)))

    def correlate(self, input: Any, weights: Any, mode: Modes = "reflect", cval: float = 0.0,
                  origin: int | Sequence[int] = 0, *, axes: int | Sequence[int] | None = None,
                  steps: int = 1) -> A:  # fmt: skip
        """The correlation with weights, as `scipy.ndimage.correlate` has it, which are constants and get no gradient.

        Args:
            input: cells of f16, bf16, f32, f64, u8, i16 or u16.
            weights: numbers that are known while a program is traced, with as many axes as `input`, or as `axes` names;
                within a function that torch compiles, lists.
            mode: what lies outside, for all axes or for each: `reflect`, `constant`, `nearest`, `mirror`, `wrap`,
                `frozen`; in place of that of an axis, a pair names one for each end.
            cval: the value outside where the mode is `constant`.
            origin: shifts the weights, for all axes or for each.
            axes: that or those along which the weights lie; None: all.
            steps: how often the correlation is applied.

        Raises:
            GenError: an argument is not what the function takes. Nothing was launched.
        """
        flat, extents = flat_weights(weights)
        return self._laid_out(input, flat, extents, mode, cval, origin, axes, steps)

    def convolve(self, input: Any, weights: Any, mode: Modes = "reflect", cval: float = 0.0,
                 origin: int | Sequence[int] = 0, *, axes: int | Sequence[int] | None = None,
                 steps: int = 1) -> A:  # fmt: skip
        """The convolution with weights, as `scipy.ndimage.convolve` has it; arguments and errors of `correlate`."""
        flat, extents = flat_weights(weights)
        turned = turned_origin(self.ndim(input), extents, origin, axes)
        return self._laid_out(input, flat[::-1], extents, mode, cval, turned, axes, steps)

    def laplace(self, input: Any, mode: Modes = "reflect", cval: float = 0.0, *,
                axes: int | Sequence[int] | None = None) -> A:  # fmt: skip
        """The sum of second differences along axes, as `scipy.ndimage.laplace` has it; errors as of `correlate`."""
        ndim = len(_along(axes, self.ndim(input)))
        return self._laid_out(input, second_differences(ndim), [3] * ndim, mode, cval, 0, axes, 1)

    def along(self, op: str, x: Any, axis: Any, keepdims: bool, dtype: Any = None, ddof: int = 0) -> A:
        """A statistic over axes as a caller names them, of results that keep these axes or not."""
        ndim = self.ndim(x)
        named = list(range(ndim)) if axis is None else _listed(axis, alone=True)
        axes = sorted(one + ndim if one < 0 else one for one in named or ())
        if named is None or len(set(axes)) < len(axes) or (axes and not 0 <= axes[0] <= axes[-1] < ndim):
            raise ShapeError("axis", f"must name axes from {-ndim} to {ndim - 1} once each, or be None", repr(axis))
        result = self.reduced(op, x, axes, dtype, ddof)
        return self.expanded(result, axes) if keepdims else result

    def _laid_out(self, x: Any, flat: list[float], extents: list[int], mode: Any, cval: float, origin: Any,
                  axes: int | Sequence[int] | None, steps: int) -> A:  # fmt: skip
        shape, modes, origins = laid_out(self.ndim(x), extents, mode, origin, axes)
        return self.correlated(x, flat, shape, modes, float(cval), origins, steps)


def _listed(given: Any, *, alone: bool = False) -> list[int] | None:
    """Whole numbers that a sequence or an array holds, or `alone` one that is none; None if they are none."""
    several = isinstance(given, tuple | list | range) or (not isinstance(given, int) and getattr(given, "ndim", 0) == 1)
    if not several and not alone:
        return None
    found = [python_int(one) for one in (given if several else (given,))]
    return found if _all(type(one) is int for one in found) else None


def flat_weights(weights: Any) -> tuple[list[float], list[int]]:
    """Weights in row-major order, and their extents; in Python alone, so that it can be traced."""
    rows = _rows_of(weights) if hasattr(weights, "tolist") else weights
    extents: list[int] = []
    while isinstance(rows, list | tuple):
        extents.append(len(rows))
        if not rows or not isinstance(rows[0], list | tuple):
            break
        if len({len(row) for row in rows}) > 1:
            raise SpecError("weights", "must be an array whose rows are equally long", repr(weights))
        rows = [value for row in rows for value in row]
    # Each length is that of all rows of its depth together.
    lengths = [length // (extents[place - 1] if place else 1) for place, length in enumerate(extents)]
    return [float(value) for value in rows], lengths


def _rows_of(weights: Any) -> Any:
    try:
        return weights.tolist()
    except TypeError as error:  # of an array that is traced
        next_step = "They stand in the text of the kernel: pass numbers, or an array of NumPy"
        raise ArgumentError("weights", "must be known while a program is traced", next_step=next_step) from error


def gradient_through(
    xp: Any, op: str, x: Any, y: Any, gradient: Any, axes: Sequence[int], ddof: int,
    along: Callable[[Any, str], Any],
) -> Any:  # fmt: skip
    """The gradient by `x` of a statistic; the result `y` and its gradient have the axes of `x`.

    Args:
        xp: the library's functions, which have the names of the array API standard.
        op: the statistic.
        x: what was reduced.
        y: the result.
        gradient: by the result.
        axes: over which it was.
        ddof: of `var` and `std`.
        along: a statistic of an array over the same axes, which it keeps.
    """
    count = _product(x.shape[axis] for axis in axes)
    match op:
        case "sum":
            return gradient
        case "mean":
            return gradient / count
        case "sumsq":
            return 2 * x * gradient
        case "norm":
            return xp.where(y == 0, 0, gradient * x / xp.where(y == 0, 1, y))
        case "var" | "std":
            from_mean = x - along(x, "mean")
            divisor = count - ddof if count > ddof else float("nan")
            if op == "var":
                return gradient * (2 / divisor) * from_mean
            return xp.where(y == 0, 0, gradient * from_mean / (divisor * xp.where(y == 0, 1, y)))
        case "prod":
            return gradient * _product_of_others(xp, x, axes)
    shares = x == y  # of a least or a greatest element
    return xp.where(shares, gradient / along(shares, "count_nonzero"), 0)


def _product_of_others(xp: Any, x: Any, axes: Sequence[int]) -> Any:
    """For each element the product of the others along axes: right where some are 0, and twice differentiable."""
    kept = x.ndim - len(axes)
    last = tuple(range(kept, x.ndim))
    moved = xp.moveaxis(x, tuple(axes), last)
    rows = moved.reshape(*moved.shape[:kept], -1)
    one = xp.ones_like(rows[..., :1])
    before = xp.cumprod(xp.concatenate([one, rows[..., :-1]], -1), -1)
    after = xp.flip(xp.cumprod(xp.concatenate([one, xp.flip(rows, (-1,))[..., :-1]], -1), -1), (-1,))
    return xp.moveaxis((before * after).reshape(moved.shape), last, tuple(axes))
