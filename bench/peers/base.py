"""What a peer is: a library that computes a case on arrays which are on the device already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Protocol

from bench.arrays import Shared
from bench.works import Case, Shape
from gen.dtypes import DType
from gen.errors import GenError, MissingToolError

MOST_PLACES, MOST_OUTPUT_BYTES = 4, 1 << 32  # of one output, all its places together

Launch = Callable[[], Sequence[Any]]
OnStream = Callable[[int], AbstractContextManager[object]]


class NotOfferedError(GenError):
    """A case that a library has no way to compute; said in its row."""


class Replay(Protocol):
    """Launches that were captured in a graph."""

    def replay(self) -> None:
        """Queues all of them on the legacy default stream."""
        ...

    def close(self) -> None:
        """Gives back what the driver holds for it."""
        ...


class Place(Protocol):
    """The device, as peers use it."""

    arch: str
    index: int
    cache: Path

    def array(self, shape: Shape, dtype: DType) -> Shared:
        """New memory, full of NaN or large numbers."""
        ...

    def copy(self, source: Shared) -> Shared:
        """New memory with the same content."""
        ...

    def graph(self, queue: Callable[[int], None]) -> Replay:
        """Captures what `queue` queues on the stream whose handle it is given."""
        ...

    def time_us(self, launch: Callable[[], None]) -> float:
        """A quick time, to choose between launches."""
        ...

    def compile(self, name: str, source: str) -> Callable[..., None]:
        """Compiles CUDA C++ with one `extern "C"` kernel of that name.

        Gives `launch(stream, grid, block, arguments)`; arguments are addresses, or numbers with their `struct` letter.
        """
        ...


@dataclass(frozen=True)
class Contender:
    """A case made ready.

    Attributes:
        launch: queues one computation of the case on the library's current stream, which is the legacy default one
            unless `on_stream` says otherwise; gives the outputs.
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

    def __init__(self, place: Place, shape: Shape, dtype: DType, see: Callable[[Shared], Any] = lambda x: x) -> None:
        """Allocates them; as many as fit into MOST_OUTPUT_BYTES, for small ones MOST_PLACES.

        Args:
            place: where.
            shape: of each.
            dtype: of their elements.
            see: a library's view of one.
        """
        size = max(prod(shape) * dtype.size, 1)
        self._all = [see(place.array(shape, dtype)) for _ in range(max(min(MOST_OUTPUT_BYTES // size, MOST_PLACES), 1))]
        self.now = self._all[0]

    @property
    def places(self) -> int:
        """How many there are."""
        return len(self._all)

    def use(self, number: int) -> None:
        """Lets launches that follow write to this one; numbers go round."""
        self.now = self._all[number % len(self._all)]


class Peer(Protocol):
    """A library that gen is measured against."""

    name: str

    def version(self) -> str:
        """Of the library. Raises MissingToolError if it is not installed."""
        ...

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Makes a case ready; compiles what it compiles. Raises NotOfferedError if the library does not have it."""
        ...


def check_squares(library: str, case: Case, ops: Sequence[str]) -> None:
    """Raises NotOfferedError for sums of the squares of integers, as libraries write them: x * x does not fit."""
    if "sumsq" in ops and case.dtype.kind != "float":
        raise NotOfferedError(library, "squares integers in their own type, which most do not fit", case.dtype.name)


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


def sweeps(
    place: Place, on_stream: OnStream, arrays: Sequence[Any], sweep: Callable[[Any, Any], object], steps: int, note: str
) -> Contender:
    """Steps of a stencil: one launch of one, or a graph of many.

    Args:
        place: where.
        on_stream: of the library.
        arrays: the library's views of the input and of two arrays that begin as copies of it.
        sweep: queues one step from an array to another.
        steps: how many.
        note: on the library.
    """
    first, *others = arrays
    route = [first, *(others[step % 2] for step in range(steps))]
    sweep(first, others[0])  # compiles, if it must, before anything is captured, checked or timed
    if steps == 1:

        def once() -> Sequence[Any]:
            sweep(first, others[0])
            return (others[0],)

        return Contender(once, on_stream, note)

    def queue(stream: int) -> None:
        with on_stream(stream):
            for source, target in pairwise(route):
                sweep(source, target)

    graph = place.graph(queue)

    def launch() -> Sequence[Any]:
        graph.replay()
        return (route[-1],)

    return Contender(launch, note=note, is_graph=True, close=graph.close)
