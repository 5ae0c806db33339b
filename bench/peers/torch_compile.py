"""torch.compile at its best: the fastest of several compilations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import FunctionType
from typing import Any

from bench.gpu import BenchGpu
from gen.compare.peers.base import module
from gen.compare.peers.torch import MODE, Compiled, TorchCompile, compile_once, on_stream
from gen.gpu.timing import GRAPH_LAUNCHES, LATENCY_US

COMPILATIONS = 3


class FastestTorchCompile(TorchCompile):
    """The case as one function, compiled several times.

    It chooses among kernels by a few timings, and chooses otherwise another time: the fastest choice of several counts.
    """

    def compiled(
        self, torch: Any, computation: Callable[..., Any], arguments: Sequence[Any], gpu: Any
    ) -> Compiled:  # fmt: skip
        """The fastest compilation, time after time anew."""
        return _fastest(_compilations(torch, computation, arguments), gpu, torch)


def _compilations(torch: Any, computation: Callable[..., Any], arguments: Sequence[Any]) -> list[Compiled]:
    """Several compilations, each with empty caches; one, where torch has no way to empty them."""
    empty_caches: Callable[[], AbstractContextManager[object]] | None
    empty_caches = getattr(module("torch._inductor.utils"), "fresh_cache", None)
    if empty_caches is None:
        return [compile_once(torch, computation, arguments)]
    note = f"{MODE}, the fastest of {COMPILATIONS} compilations"
    made = []
    for number in range(COMPILATIONS):
        with empty_caches():
            made.append(replace(compile_once(torch, _another(computation, number), arguments), note=note))
    return made


def _another(computation: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The same function with code of its own: torch keeps what it compiled with the code."""
    assert isinstance(computation, FunctionType)
    code = computation.__code__.replace(co_name=f"computation_{number}")
    return FunctionType(code, computation.__globals__, code.co_name, computation.__defaults__, computation.__closure__)


def _fastest(made: Sequence[Compiled], gpu: BenchGpu, torch: Any) -> Compiled:
    """The fastest, with the seconds that one took on average.

    Short ones are timed among many launches as well, where those can be captured: the least product of both times wins.
    """
    if len(made) == 1:
        return made[0]
    times = [gpu.time_us(one.launch) for one in made]
    if min(times) < LATENCY_US:
        with suppress(Exception):  # which is told where it is timed against ours
            times = [alone * _among_many_us(one, gpu, torch) for alone, one in zip(times, made, strict=True)]
    fastest = made[times.index(min(times))]
    return replace(fastest, seconds=sum(one.seconds for one in made) / len(made))


def _among_many_us(one: Compiled, gpu: BenchGpu, torch: Any) -> float:
    def queue(handle: int) -> None:
        with on_stream(torch, handle):
            for _ in range(GRAPH_LAUNCHES):
                one.launch()

    graph = gpu.graph(queue)
    try:
        return gpu.time_us(graph.replay) / GRAPH_LAUNCHES
    finally:
        graph.close()
