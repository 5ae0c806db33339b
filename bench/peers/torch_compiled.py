"""torch.compile with max-autotune, its own graphs left out: the fastest of several compilations."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import FunctionType
from typing import Any

from bench.arrays import Shared
from bench.peers.base import Contender, OnStream, Place, module, sweeps
from bench.peers.torch_arrays import function, inner, on_stream, sweep, tensor
from bench.works import Case, Sweep
from gen.gpu.timing import GRAPH_LAUNCHES, LATENCY_US

# Kernels are compared: both sides are launched one by one, or both from a graph; never one alone.
MODE = "max-autotune-no-cudagraphs"
COMPILATIONS = 3


class TorchCompile:
    """The case as one function, compiled for its shape.

    It chooses among kernels by a few timings, and chooses otherwise another time: the fastest choice of several counts.
    """

    name = "torch.compile"

    def version(self) -> str:
        """Of torch, and of Triton."""
        triton = module("triton")
        return f"{module('torch').__version__}, triton {triton.__version__}"

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Compiles and runs it, time after time."""
        torch = module("torch")
        stream, x = partial(on_stream, torch), tensor(torch, source)
        torch.compiler.reset()  # so that no earlier shape makes this one dynamic
        work = case.work
        if isinstance(work, Sweep):
            arrays = [x, *(tensor(torch, place.copy(source)) for _ in range(2))]
            best = _best(_compiled(torch, sweep(torch, work), (x, inner(work, arrays[1]))), place, stream)

            def step(one: Any, other: Any) -> None:
                best.function(one, inner(work, other))

            return replace(sweeps(place, stream, arrays, step, work.steps, best.note), seconds=best.seconds)
        best = _best(_compiled(torch, function(torch, case), (x,)), place, stream)
        return Contender(best.launch, stream, best.note, seconds=best.seconds)


@dataclass(frozen=True)
class _Compiled:
    """One compilation.

    Attributes:
        function: what came of it.
        launch: calls it as it was called first.
        seconds: how long one takes.
        note: says how many there were.
    """

    function: Callable[..., Any]
    launch: Callable[[], Any]
    seconds: float
    note: str


def _compiled(torch: Any, computation: Callable[..., Any], arguments: Sequence[Any]) -> list[_Compiled]:
    """Several compilations, each with empty caches; one, where torch has no way to empty them."""
    empty_caches: Callable[[], AbstractContextManager[object]] | None
    empty_caches = getattr(module("torch._inductor.utils"), "fresh_cache", None)
    if empty_caches is None:
        return [_compile(torch, computation, arguments, MODE)]
    note = f"{MODE}, the fastest of {COMPILATIONS} compilations"
    made = []
    for number in range(COMPILATIONS):
        with empty_caches():
            made.append(_compile(torch, _another(computation, number), arguments, note))
    return made


def _compile(torch: Any, computation: Callable[..., Any], arguments: Sequence[Any], note: str) -> _Compiled:
    start = time.monotonic()
    compiled = torch.compile(computation, mode=MODE, fullgraph=True, dynamic=False)
    launch = partial(compiled, *arguments)
    launch()
    return _Compiled(compiled, launch, time.monotonic() - start, note)


def _another(computation: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same function with code of its own: torch keeps what it compiled with the code."""
    assert isinstance(computation, FunctionType)
    code = computation.__code__.replace(co_name=f"computation_{number}")
    return FunctionType(code, computation.__globals__, code.co_name, computation.__defaults__, computation.__closure__)


def _best(made: Sequence[_Compiled], place: Place, stream: OnStream) -> _Compiled:
    """The fastest, with the seconds that one took on average.

    Short ones are timed among many launches as well, where those can be captured: the least product of both times wins.
    """
    if len(made) == 1:
        return made[0]
    times = [place.time_us(one.launch) for one in made]
    if min(times) < LATENCY_US:
        with suppress(Exception):  # which is told where it is timed against ours
            times = [alone * _among_many_us(one, place, stream) for alone, one in zip(times, made, strict=True)]
    fastest = made[times.index(min(times))]
    return replace(fastest, seconds=sum(one.seconds for one in made) / len(made))


def _among_many_us(one: _Compiled, place: Place, stream: OnStream) -> float:
    def queue(handle: int) -> None:
        with stream(handle):
            for _ in range(GRAPH_LAUNCHES):
                one.launch()

    graph = place.graph(queue)
    try:
        return place.time_us(graph.replay) / GRAPH_LAUNCHES
    finally:
        graph.close()


PEER = TorchCompile()
