"""A plan at given sizes: the launches one after another, as every runner carries them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gen.dtypes import DType
from gen.families.base import Plan

Argument = str | tuple[DType, int]
"""An operand or scratch by name, or a number with its type."""


@dataclass(frozen=True)
class Step:
    """One launch of one call, all expressions evaluated and all exchanges of buffers carried out."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int
    cluster: tuple[int, int, int]
    setup: bool
    waiting: int = 0
    across: int = 1


def steps(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Step]:
    """Every launch of a call, in order; `sizes` are the extents and the device's limits.

    A launch with a 0 in its grid is left out. Buffers that a launch swaps stay swapped for those after it. Launches of
    the same buffers, of which a call of many steps has few, are one and the same object.
    """
    now: dict[str, str] = {}
    for launch in plan.launches:
        grid = (launch.grid[0].at(sizes), launch.grid[1].at(sizes), launch.grid[2].at(sizes))
        numbers = [a if isinstance(a, str) else (a[0], a[1].at(sizes)) for a in launch.arguments]
        shared_bytes, waiting = launch.shared_bytes.at(sizes), launch.waiting.at(sizes)
        across = launch.across.at(sizes)
        made: dict[tuple[str, ...], Step] = {}
        for _ in range(launch.times.at(sizes)):
            if 0 not in grid:
                buffers = tuple([now.get(a, a) for a in numbers if isinstance(a, str)])
                if buffers not in made:
                    arguments = tuple(now.get(a, a) if isinstance(a, str) else a for a in numbers)
                    made[buffers] = Step(
                        launch.entry, grid, launch.block, arguments, shared_bytes, launch.cluster, launch.setup,
                        waiting, across,
                    )  # fmt: skip
                yield made[buffers]
            for one, other in launch.swap:
                now[one], now[other] = now.get(other, other), now.get(one, one)
