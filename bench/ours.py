"""Our side of a case: the kernel that `gen.load` gives anybody on this device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.arrays import Shared
from bench.offers import counts_of
from bench.peers.base import Contender, Handle, Outputs, Place, module
from bench.rows import BASE, UNTUNED
from bench.works import Case
from gen.dtypes import DType
from gen.families.backend import LEGACY_STREAM
from gen.families.names import base_variants
from gen.gpu.trial import Problem
from gen.runtime.kernel import Kernel
from gen.runtime.load import load

_NOTHING = "nothing is tuned for it on this device"
NOTHING_BASE = f"{BASE}{_NOTHING}"
NOTHING_OFTEN = f"{UNTUNED}what is often fast: {_NOTHING}"


class Home(Place, Protocol):
    """The device, as loading needs it."""

    backend: Any


@dataclass(frozen=True)
class Ours:
    """Our kernel, loaded for a case.

    Attributes:
        kernel: as `gen.load` gave it.
        variant: its name.
        note: says so if it is not tuned.
    """

    kernel: Kernel
    variant: str
    note: str

    @classmethod
    def load(cls, case: Case, problem: Problem, place: Home, home: Path) -> Ours:
        """Loads it."""
        kernel = load(problem.spec, shape=case.shape, device=place.backend, home=home, **counts_of(case))
        return cls(kernel, kernel.variant, "" if kernel.tuned else _untuned(kernel, problem))

    def contender(self, case: Case, problem: Problem, source: Shared, place: Home) -> Contender:
        """The kernel with results of its own, for arrays of a case's size; many steps are a graph."""
        layouts = problem.family.layouts(problem.spec, problem.extents)
        operands = [operand for operand in problem.spec.operands if operand.role == "out"]
        outputs = [Outputs(place, layouts[x.name].shape, _dtype_of(x.dtype, source.dtype), _readable) for x in operands]
        given, stream, counts = _readable(source), Handle(), counts_of(case)

        def launch() -> Sequence[Any]:
            results = tuple(output.now for output in outputs)
            out = results if len(results) > 1 else results[0]
            self.kernel(given, out=out, stream=stream.stream or LEGACY_STREAM, **counts)
            return results

        def use(number: int) -> None:
            for output in outputs:
                output.use(number)

        if counts.get("steps", 1) == 1:
            return Contender(launch, stream.on, places=max(output.places for output in outputs), use=use)

        def queue(handle: int) -> None:
            with stream.on(handle):
                launch()

        graph = place.graph(queue)

        def replay() -> Sequence[Any]:
            graph.replay()
            return tuple(output.now for output in outputs)

        return Contender(replay, is_graph=True, close=graph.close)


def _untuned(kernel: Kernel, problem: Problem) -> str:
    """Whether that is base, or what the family expects to be fast."""
    base = {made.name for made in base_variants(problem.family, problem.spec)}
    return NOTHING_BASE if kernel.variant in base else NOTHING_OFTEN


def _dtype_of(operand: DType, source: DType) -> DType:
    """Elements that are only moved keep their type."""
    return source if operand.kind == "bits" else operand


def _readable(array: Shared) -> Any:
    """The array as `gen.load` takes it: bfloat16 needs a library that can say it."""
    if array.dtype.name != "bf16":
        return array
    from bench.peers.torch_arrays import tensor

    return tensor(module("torch"), array)
