"""Stencils on simulated devices, for tests: random problems, and the modules for them with one line changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_loader
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

import gen
from gen.families.base import Array, Runner
from gen.families.stencil import StencilSpec
from gen.families.stencil.oracle import expected
from gen.families.stencil.spec import BOUNDARIES
from gen.families.stencil.split import most_steps
from gen.gpu.device import Peer
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner
from tests.stencils import DTYPES, ENDS

MODULES = ("gen.families.stencil.split", "gen.runtime.sharded", "gen.runtime.sharded_kernel")


@dataclass(frozen=True)
class Problem:
    """A spec, the ranks of each axis with the cells of each, the steps of three calls, and the cells.

    Attributes:
        together: ranks that share a device.
    """

    spec: StencilSpec
    extents: tuple[tuple[int, ...], ...]
    steps: tuple[int, int, int]
    steps_per_exchange: int | None
    together: int
    cells: Array

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(map(len, self.extents))


def drawn(seed: int) -> Problem:
    """One to eight ranks, split along any axes; some have fewer cells than weights reach."""
    random = np.random.default_rng(seed)
    axes = int(random.choice((1, 2, 2, 2, 3)))
    shape = tuple(int(n) for n in random.integers(1, (7, 5, 4)[axes - 1], axes))
    ends: list[Any] = [*BOUNDARIES, *ENDS]
    boundary = tuple(ends[random.integers(len(BOUNDARIES) if random.random() < 0.7 else len(ends))] for _ in shape)
    weights = tuple((random.integers(-8, 9, prod(shape)) / 16).tolist())
    origin = tuple(int(random.integers(-(n // 2), (n - 1) // 2 + 1)) for n in shape)
    dtype = DTYPES[random.integers(len(DTYPES))]
    spec = StencilSpec("shared", weights, shape, dtype, boundary, 2.0, origin)
    grids = ((n,) for n in range(1, 9)) if axes == 1 else _GRIDS if axes == 2 else ((*grid, 1) for grid in _GRIDS)
    known = [tuple(random.permutation(grid).tolist()) if random.random() < 0.3 else grid for grid in grids]
    grid = known[random.integers(len(known))]
    sizes = tuple(tuple(random.integers(1, int(random.choice((2, 4, 17))), ranks).tolist()) for ranks in grid)
    steps = tuple(random.integers(0, 8, 3).tolist())
    per_exchange = int(random.integers(1, (most_steps(spec, grid) or 4) + 1)) if random.random() < 0.8 else None
    whole = [sum(along) for along in sizes]
    cells = random.integers(0, 200, whole) if dtype.kind != "float" else random.random(whole)
    return Problem(spec, sizes, steps, per_exchange, int(random.integers(1, 4)), cells.astype(dtype.numpy))


_GRIDS = (*((n, 1) for n in range(1, 9)), (2, 2), (2, 3), (2, 4), (1, 3), (4, 2))


def computed(problem: Problem, seed: int, runner: Runner | None = None, load: Any = gen.load) -> list[Array]:
    """The cells after each of three calls in a row on simulated devices, of which several ranks share one."""
    ranks = prod(problem.grid)
    opened = Machine(seed=seed, runner=runner or OracleRunner()).devices(-(-ranks // problem.together))
    return computed_on([opened[rank // problem.together] for rank in range(ranks)], problem, load)


def computed_on(devices: Sequence[int | Peer], problem: Problem, load: Any = gen.load) -> list[Array]:
    """The cells after each of three calls in a row, of which the last one writes to the array that was the first."""
    kernel = load(
        problem.spec, devices=devices, shared=len(set(devices)) < len(devices), grid=problem.grid,
        steps_per_exchange=problem.steps_per_exchange,
    )  # fmt: skip
    first = kernel.scatter(problem.cells, problem.extents)
    second = kernel(first, steps=problem.steps[0])
    third = kernel(second, steps=problem.steps[1])
    kernel(third, out=first, steps=problem.steps[2])
    return [array.gather() for array in (second, third, first)]


def right(problem: Problem) -> list[Array]:
    """What NumPy computes."""
    found = [problem.cells]
    for steps in problem.steps:
        found.append(expected(problem.spec, found[-1], steps).value)
    return found[1:]


def same(found: list[Array], wanted: list[Array]) -> bool:
    """Whether all have the same bits."""
    return [one.tobytes() for one in found] == [one.tobytes() for one in wanted]


def changed(module: str, old: str, new: str) -> Any:
    """`gen.load` of modules in one of which a text, that stands there once, is replaced."""
    made: dict[str, ModuleType] = {}
    names = (*MODULES, "gen.runtime.load")
    with patch.dict(sys.modules):
        for name in names:
            path = Path(str(sys.modules[name].__file__))
            text = path.read_text()
            if name == f"gen.{module}":
                assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
                text = text.replace(old, new)
            spec = spec_from_loader(name, loader=None, origin=str(path))
            assert spec is not None
            made[name] = sys.modules[name] = module_from_spec(spec)
            made[name].__file__ = str(path)
            exec(compile(text, str(path), "exec"), made[name].__dict__)
    return made["gen.runtime.load"].load
