"""What a peer is: a library that computes a case on arrays which are on the GPU already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gen.compare.case import ComparisonCase, Shape
from gen.dtypes import DType
from gen.errors import GenError, MissingToolError
from gen.families.extents import byte_bounds
from gen.families.reduction import ReductionSpec
from gen.families.stencil import Boundary, StencilSpec
from gen.families.transpose import TransposeSpec

if TYPE_CHECKING:
    from gen.compare.gpu import ComparisonGpu

MAX_PLACES, MAX_OUTPUT_BYTES = 4, 1 << 32  # of one output, all its places together

Launch = Callable[[], Sequence[Any]]
OnStream = Callable[[int], AbstractContextManager[object]]


class NotOfferedError(GenError):
    """A case that a library has no way to compute; said in its row."""


@dataclass(frozen=True)
class SharedArray:
    """An array in the GPU's memory that every library reads in place.

    Attributes:
        address: of its first byte.
        element: the type of its elements.
        owner: what keeps the memory.
        strides: in bytes; None where elements follow each other.
    """

    address: int
    shape: Shape
    element: DType
    owner: Any = field(default=None, repr=False, compare=False)
    strides: tuple[int, ...] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's type of the elements; of bfloat16 the interface says the size alone."""
        return self.element.numpy

    @property
    def elements(self) -> int:
        """How many."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """From its first byte to its last."""
        if self.strides is None:
            return self.elements * self.element.size
        return byte_bounds(self.shape, self.strides, self.element.size)[1]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3."""
        return {
            "shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False),
            "strides": self.strides, "version": 3, "stream": None,
        }  # fmt: skip


@dataclass(frozen=True)
class Contender:
    """A case made ready.

    Attributes:
        launch: queues one computation of the case on the library's current stream, which is the legacy default one
            unless `on_stream` says otherwise; gives the results.
        on_stream: lets the library queue on the stream of this handle; None: it cannot be captured.
        note: what differs in meaning, in words.
        is_graph: each launch replays a graph already.
        close: gives memory back.
        places: how many arrays it can write its results to: how fast it is may depend on their addresses.
        use: chooses one of these for the launches that follow.
        seconds: what making it ready takes a user, where more was done; 0: what it took.
    """

    launch: Launch
    on_stream: OnStream | None = None
    note: str = ""
    is_graph: bool = False
    close: Callable[[], None] = lambda: None
    places: int = 1
    use: Callable[[int], None] = lambda _: None
    seconds: float = 0.0


class Outputs:
    """An output in several places, of which one is in use.

    Attributes:
        now: the one in use.
    """

    def __init__(
        self, gpu: ComparisonGpu, shape: Shape, element: DType, view: Callable[[SharedArray], Any] = lambda x: x
    ) -> None:
        """Allocates them; as many as fit into MAX_OUTPUT_BYTES, for small ones MAX_PLACES.

        Args:
            gpu: where.
            shape: of each.
            element: the type of the elements.
            view: makes a library's view of one.
        """
        size = max(prod(shape) * element.size, 1)
        count = max(min(MAX_OUTPUT_BYTES // size, MAX_PLACES), 1)
        self._all = [view(gpu.array(shape, element)) for _ in range(count)]
        self.now = self._all[0]

    @property
    def places(self) -> int:
        """How many there are."""
        return len(self._all)

    def use(self, number: int) -> None:
        """Lets launches that follow write to this one; numbers go round."""
        self.now = self._all[number % len(self._all)]


class Peer(Protocol):
    """A library that gen is compared with."""

    @property
    def name(self) -> str:
        """What the user calls it."""
        ...

    def version(self) -> str:
        """Of the library. Raises MissingToolError if it is not installed."""
        ...

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: Any) -> Contender:
        """Makes a case ready; compiles what it compiles.

        Args:
            case: of a spec with one input.
            source: that input; it is never written.
            gpu: where.

        Raises:
            NotOfferedError: the library has no way to compute it.
        """
        ...


def module(name: str, package: str = "") -> Any:
    """A library's module. Raises MissingToolError if it cannot be imported."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingToolError(
            f"The module {name}", "is needed for this peer", error, next_step=f"Install {package or name}"
        ) from error


class Handle:
    """The stream of a library that takes it with every call."""

    def __init__(self) -> None:
        self.stream = 0

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Uses another one for a while."""
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before


def stepped(
    gpu: ComparisonGpu, on_stream: OnStream, arrays: Sequence[Any], step: Callable[[Any, Any], object], steps: int,
    note: str,
) -> Contender:  # fmt: skip
    """Time steps of a stencil: one launch of one, or a graph of many.

    Args:
        gpu: where.
        on_stream: of the library.
        arrays: the library's views of the input and of two arrays that begin as copies of it.
        step: queues one step from an array to another.
        steps: how many.
        note: on the library.
    """
    first, *others = arrays
    route = [first, *(others[number % 2] for number in range(steps))]
    step(first, others[0])  # compiles, if it must, before anything is captured, checked or timed
    if steps == 1:

        def once() -> Sequence[Any]:
            step(first, others[0])
            return (others[0],)

        return Contender(once, on_stream, note)

    def queue(stream: int) -> None:
        with on_stream(stream):
            for source, target in pairwise(route):
                step(source, target)

    graph = gpu.graph(queue)

    def launch() -> Sequence[Any]:
        graph.replay()
        return (route[-1],)

    return Contender(launch, note=note, is_graph=True, close=graph.close)


# What the specs mean to libraries whose functions are called as NumPy's.


def check_permutation(library: str, spec: TransposeSpec) -> None:
    """Raises NotOfferedError for what is more than a permutation, and perhaps another type of the elements."""
    if spec.in_place:
        raise NotOfferedError(library, "is not asked here to work in place")
    values = spec.values
    if values is not None and (values.alpha is not None or values.conjugate or values.saturate):
        raise NotOfferedError(library, "is asked here to convert elements, not to compute with them")


def reductions(
    library: str, functions: Any, spec: ReductionSpec, renamed: dict[str, str] | None = None, axis_word: str = "axis"
) -> Callable[[Any], Sequence[Any]]:
    """The statistics of a spec, each by the library's own function.

    Args:
        library: its name, for errors.
        functions: a module whose functions have NumPy's names.
        spec: what is computed.
        renamed: functions that have another name there.
        axis_word: the keyword for the axes.

    Raises:
        NotOfferedError: the library has no such function.
    """
    names = {"argmin": "argmin", "argmax": "argmax", "sumsq": "sum", **(renamed or {})}
    if "sumsq" in spec.op and spec.dtype.kind != "float":
        raise NotOfferedError(library, "squares integers in their own type, which most do not fit", spec.dtype.name)
    if spec.axis == ():
        raise NotOfferedError(library, "is not asked here to reduce each element by itself")

    def one(op: str) -> Callable[[Any], Any]:
        reduce = getattr(functions, names.get(op, op), None)
        if reduce is None or op == "norm":
            raise NotOfferedError(library, "has no such reduction", op)
        options: dict[str, Any] = {}
        if spec.axis is not None:
            options[axis_word] = spec.axis[0] if op.startswith("arg") else spec.axis
        if op in ("var", "std"):
            options["correction" if axis_word == "dim" else "ddof"] = spec.ddof
        if spec.dtype_of_result is not None:
            if op not in ("sum", "prod", "mean"):
                raise NotOfferedError(library, "takes no dtype for the result", op)
            options["dtype"] = getattr(functions, spec.dtype_of_result.numpy.name)
        return (lambda x: reduce(x * x, **options)) if op == "sumsq" else (lambda x: reduce(x, **options))

    statistics = [one(op) for op in spec.op]
    return lambda x: tuple(statistic(x) for statistic in statistics)


def boundary_of(library: str, spec: StencilSpec) -> Boundary:
    """What lies outside along every axis. Raises NotOfferedError where ends differ, and for cells of integers."""
    if spec.dtype.kind != "float":
        raise NotOfferedError(library, "rounds sums of integers in other ways, or not at all", spec.dtype.name)
    if spec.differ:
        raise NotOfferedError(library, "takes one boundary for all axes")
    return spec.ends[0][0]


def window(spec: StencilSpec, offset: Sequence[int]) -> tuple[slice, ...]:
    """The neighbours at an offset of all cells whose neighbours lie within an array, or in one that was padded."""
    return tuple(
        slice(before + step, (step - after) or None)
        for before, after, step in zip(spec.before, spec.after, offset, strict=True)
    )


def inner(spec: StencilSpec, target: Any) -> Any:
    """What a step writes of an array: all of it, or all but a frozen rim."""
    return target[window(spec, (0,) * len(spec.axes))] if spec.boundaries[0] == "frozen" else target


def neighbours(
    spec: StencilSpec, source: Any, roll: Callable[..., Any], pad: Callable[[Any], Any]
) -> Iterator[tuple[float, Any]]:
    """Each weight with the cells that it is multiplied by: shifted views of the array, or shifted copies.

    Args:
        spec: of one boundary.
        source: the array.
        roll: moves all cells around the ends, as `numpy.roll`.
        pad: gives the array with what lies outside around it.
    """
    boundary, axes = spec.boundaries[0], tuple(range(len(spec.axes)))
    seen = source if boundary in ("wrap", "frozen") else pad(source)
    for offset, weight in spec.taps:
        if boundary == "wrap":
            yield weight, roll(source, tuple(-step for step in offset), axes)
        else:
            yield weight, seen[window(spec, offset)]


def weighted_sum(terms: Iterator[tuple[float, Any]]) -> Any:
    """The sum of weights times arrays, one after another."""
    total = None
    for weight, cells in terms:
        total = weight * cells if total is None else total + weight * cells
    return total
