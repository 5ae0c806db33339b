"""Stencils on simulated devices, for tests: random problems, and the modules for them with one line changed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_loader
from itertools import product
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

import gen
from gen.families.base import Array, Runner
from gen.families.stencil import Stencil, StencilSpec
from gen.families.stencil.spec import BOUNDARIES, Outside
from gen.families.stencil.split import most_steps
from gen.families.system import System, SystemSpec, fields, scalars, system
from gen.families.system.terms import Field, Term
from gen.gpu.device import Peer
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner
from tests.stencils import DTYPES, ENDS

MODULES = (
    "gen.families.stencil.split", "gen.families.transpose.pairs", "gen.runtime.transport", "gen.runtime.sharded",
    "gen.runtime.sharded_points", "gen.runtime.sharded_kernel", "gen.runtime.sharded_reduction",
    "gen.runtime.sharded_transpose",
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """A spec, the ranks of each axis with the cells of each, the steps of three calls, and the cells of each field.

    Attributes:
        together: how many ranks share a device.
        scalars: of a system, by name.
    """

    spec: StencilSpec | SystemSpec
    extents: tuple[tuple[int, ...], ...]
    steps: tuple[int, int, int]
    steps_per_exchange: int | None
    together: int
    cells: tuple[Array, ...]
    scalars: tuple[tuple[str, float], ...] = ()

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(map(len, self.extents))


def drawn(seed: int) -> Problem:
    """One to eight ranks, as many as eight seeds in a row, on devices of their own at first; split along any axes.

    Some have fewer cells than weights reach.
    """
    random = np.random.default_rng(seed)
    axes = int(random.choice((1, 2, 2, 2, 3)))
    shape = tuple(int(n) for n in random.integers(1, (7, 5, 4)[axes - 1], axes))
    weights = tuple((random.integers(-8, 9, prod(shape)) / 16).tolist())
    origin = tuple(int(random.integers(-(n // 2), (n - 1) // 2 + 1)) for n in shape)
    dtype = DTYPES[random.integers(len(DTYPES))]
    return _split(random, seed, StencilSpec("shared", weights, shape, dtype, _boundary(random, axes), 2.0, origin))


def drawn_system(seed: int) -> Problem:
    """The same of two fields and a coefficient, or of one field."""
    random = np.random.default_rng(seed)
    axes = int(random.choice((1, 2, 2, 3)))
    (u, v, m), (k,) = fields("u v m", ndim=axes), scalars("k")

    def beside(field: Field) -> Term:
        offset = tuple(random.integers(-2, 3, axes).tolist())
        return field[offset if axes > 1 else offset[0]]

    updates = (
        {u: 2 * u - v + 0.125 * m * u.laplace(order=int(random.choice((2, 4)))), v: u},
        {u: u + 0.25 * beside(u) * v - beside(m), v: v - k * beside(u)},
        {u: 0.5 * u.laplace() + 0.25 * beside(m)},
    )[random.integers(3)]
    dtype = str(random.choice(("float16", "float32", "float64")))
    spec = system(updates, dtype=dtype, boundary=list(_boundary(random, axes)), cval=0.5)
    return _split(random, seed, spec)


def _boundary(random: np.random.Generator, axes: int) -> tuple[Outside, ...]:
    ends: list[Any] = [*BOUNDARIES, *ENDS]
    return tuple(
        ends[random.integers(len(BOUNDARIES) if random.random() < 0.7 else len(ends))] for _ in range(axes)
    )  # fmt: skip


def _split(random: np.random.Generator, seed: int, spec: StencilSpec | SystemSpec) -> Problem:
    axes, dtype = len(spec.axes), spec.dtype
    ranks = seed % 8 + 1
    grids = [grid for grid in product(range(1, ranks + 1), repeat=axes) if prod(grid) == ranks]
    grid = grids[random.integers(len(grids))]
    sizes = tuple(tuple(random.integers(1, int(random.choice((2, 4, 17))), ranks).tolist()) for ranks in grid)
    steps = tuple(random.integers(0, 8, 3).tolist())
    per_exchange = int(random.integers(1, (most_steps(spec, grid) or 4) + 1)) if random.random() < 0.8 else None
    whole = [sum(along) for along in sizes]
    count = sum(operand.role == "in" for operand in spec.operands)
    drawn = [random.random(whole) if dtype.kind == "float" else random.integers(0, 200, whole) for _ in range(count)]
    cells = tuple(one.astype(dtype.numpy) for one in drawn)
    numbers = tuple((operand.name, 0.375) for operand in spec.operands if operand.role == "number")
    return Problem(spec, sizes, steps, per_exchange, seed // 8 % 3 + 1, cells, numbers)


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
    scattered = [kernel.scatter(field, problem.extents) for field in problem.cells]
    outs = len(changed_fields(problem.spec))
    first, others = tuple(scattered[:outs]), scattered[outs:]
    calls = [first]
    numbers = dict(problem.scalars)
    for steps, out in zip(problem.steps, (None, None, first), strict=True):
        found = kernel(*calls[-1], *others, out=out, steps=steps, **numbers)
        calls.append(found if isinstance(found, tuple) else (found,))
    return [array.gather() for arrays in calls[1:] for array in arrays]


def right(problem: Problem) -> list[Array]:
    """What NumPy computes."""
    family: Any = Stencil() if isinstance(problem.spec, StencilSpec) else System()
    names = [operand.name for operand in problem.spec.operands if operand.role == "in"]
    given = {name: problem.spec.accumulator.numpy.type(value) for name, value in problem.scalars}
    now, found = dict(zip(names, problem.cells, strict=True)) | given, list[Array]()
    for steps in problem.steps:
        outs = family.oracle(problem.spec, now, {"steps": steps})
        now |= dict(zip(changed_fields(problem.spec), (one.value for one in outs.values()), strict=True))
        found += [one.value for one in outs.values()]
    return found


def changed_fields(spec: StencilSpec | SystemSpec) -> tuple[str, ...]:
    """The inputs that a step changes."""
    return ("in",) if isinstance(spec, StencilSpec) else spec.updated


def same(found: list[Array], wanted: list[Array]) -> bool:
    """Whether all have the same bits."""
    return [one.tobytes() for one in found] == [one.tobytes() for one in wanted]


def changed(module: str, old: str, new: str) -> Any:
    """`gen.load` of modules in one of which a text, that stands there once, is replaced."""
    made: dict[str, ModuleType] = {}
    names = (*MODULES, "gen.runtime.load")
    assert f"gen.{module}" in MODULES
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
