"""Plans: every launch of a call as expressions over sizes, what they come to at given sizes, and limits of launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gen.arch import MAX_GRID_X, MAX_GRID_YZ, MAX_THREADS_PER_BLOCK, Limits
from gen.dtypes import DType
from gen.families.expr import ONE, ZERO, Expr, Sizes, size

_OF_MULTIPROCESSORS = 32  # one of so many may be without a block

TIME = size("time")
"""How often a launch ran before, where it runs several times: for its arguments."""


@dataclass(frozen=True)
class Launch:
    """One kernel launch, as expressions over extents and limits: Python evaluates them, an export prints them as C.

    Attributes:
        grid: blocks along x, y, z; where one of them is 0 nothing is launched.
        block: threads along x, y, z.
        arguments: an operand or scratch by name, or a number with its type.
        entry: what the kernel's symbol adds to the variant's name: `_finish`.
        shared_bytes: dynamic shared memory.
        cluster: blocks in a cluster.
        times: how often it runs: `steps // 4`.
        follows: it runs each time after the launch before it, whose `times` counts for both.
        swap: pairs of buffers that change places after each time.
        setup: it prepares private copies; it is not part of what is timed.
        waiting: launches by the kernels themselves, of which so many may wait at once.
        across: blocks in a row, where grid.x is rows of blocks one after the other; those at the ends may do less.
        cooperative: blocks wait for each other, so all must run at the same time (CUDA).
    """

    grid: tuple[Expr, Expr, Expr]
    block: tuple[int, int, int]
    arguments: tuple[str | tuple[DType, Expr], ...]
    entry: str = ""
    shared_bytes: Expr = ZERO
    cluster: tuple[int, int, int] = (1, 1, 1)
    times: Expr = ONE
    follows: bool = False
    swap: tuple[tuple[str, str], ...] = ()
    setup: bool = False
    waiting: Expr = ZERO
    across: Expr = ONE
    cooperative: bool = False


@dataclass(frozen=True)
class Scratch:
    """Device memory that a kernel object owns.

    Attributes:
        name: of the kernel's argument.
        bytes: its size.
        zeroed: zeroed once; every run leaves it zero.
        awaited: blocks wait until others have written to it.
    """

    name: str
    bytes: Expr
    zeroed: bool = False
    awaited: bool = False


@dataclass(frozen=True)
class Plan:
    """All launches of one call, in order, for every shape; every runner interprets the same plan."""

    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...] = ()
    constants: tuple[tuple[str, bytes], ...] = ()

    @cached_property
    def grids(self) -> tuple[tuple[Expr, ...], ...]:
        """Blocks along x, y and z of its launches, each grid once; along y and z only where there may be more than one.

        Launches that differ in their arrays have one and the same grid.
        """
        found = dict.fromkeys(launch.grid for launch in self.launches)
        return tuple((across, *(one for one in behind if one != ONE)) for across, *behind in found)

    @cached_property
    def shared_bytes(self) -> tuple[Expr, ...]:
        """The shared memory of its launches, each number of bytes once, if they take any."""
        found = dict.fromkeys(launch.shared_bytes for launch in self.launches)
        return tuple(one for one in found if one != ZERO)

    def turns(self) -> Iterator[tuple[Launch, ...]]:
        """The launches that are repeated together: each with those that follow it."""
        starts = [place for place, launch in enumerate(self.launches) if not launch.follows]
        for start, end in zip(starts, [*starts, len(self.launches)][1:], strict=True):
            yield self.launches[start:end]


def with_limits(extents: Mapping[str, int], limits: Limits) -> Mapping[str, int]:
    """All that a plan's expressions may name: the extents, and sizes of the device."""
    return extents if type(extents) is Sizes else {**extents, **limits.sizes()}


def beyond_block(threads: int) -> str | None:
    """Why a block cannot have so many threads; None if it can."""
    if threads > MAX_THREADS_PER_BLOCK:
        return f"a block would have {threads} threads; CUDA allows at most {MAX_THREADS_PER_BLOCK}"
    return None


def beyond_shared(needed: int, limits: Limits) -> str | None:
    """Why a block cannot have so many bytes of shared memory on such a device; None if it can."""
    most = limits.shared_bytes_per_block
    return (
        f"a block needs {needed} bytes of shared memory; the device gives it at most {most}" if needed > most else None
    )


def idle_multiprocessors(blocks: int, limits: Limits) -> str | None:
    """Why so many blocks are few for a device; None where at most one in 32 of its multiprocessors has none.

    As many were as fast as twice as many on an H100, where a few of its 132 multiprocessors had none.
    """
    if blocks * _OF_MULTIPROCESSORS < (_OF_MULTIPROCESSORS - 1) * limits.multiprocessors:
        return f"{blocks} blocks are too few: some of the {limits.multiprocessors} multiprocessors would be idle"
    return None


def beyond_grid(blocks: int, *behind: int) -> str | None:
    """Why a grid cannot hold so many blocks along x, and so many along y and z; None if it can."""
    if blocks > MAX_GRID_X:
        return f"it needs {blocks} blocks; a grid has at most {MAX_GRID_X}"
    if not behind:
        return None
    most = max(behind)
    return f"it needs {most} blocks along y or z; a grid has at most {MAX_GRID_YZ}" if most > MAX_GRID_YZ else None


@dataclass(frozen=True)
class Tiles:
    """Tiles of `tile_rows` x `tile_cols` that cover `rows` x `cols`; block b has tile (b / across, b % across).

    Attributes:
        matrices: how many there are of such a matrix; the blocks of each follow those of the one before.
    """

    rows: Expr
    cols: Expr
    tile_rows: int
    tile_cols: int
    matrices: Expr = ONE

    @cached_property
    def across(self) -> Expr:
        """Tiles in a row of tiles."""
        return self.cols.ceil_div(self.tile_cols).called("tiles_across")

    @cached_property
    def down(self) -> Expr:
        """Tiles in a column of tiles."""
        return self.rows.ceil_div(self.tile_rows).called("tiles_down")

    @cached_property
    def count(self) -> Expr:
        """All tiles; 0 for an empty matrix."""
        tiles = self.down * self.across
        return tiles if self.matrices == ONE else tiles * self.matrices

    def counted(self, extents: Mapping[str, int]) -> int:
        """How many there are at some sizes: `count`, without its expression."""
        down, across = -(-self.rows.at(extents) // self.tile_rows), -(-self.cols.at(extents) // self.tile_cols)
        return down * across * self.matrices.at(extents)

    def unsupported_extents(self, extents: Mapping[str, int]) -> str | None:
        """Why a grid cannot hold them, all folded into its x."""
        return beyond_grid(self.counted(extents))

    def mostly_outside(self, extents: Mapping[str, int]) -> str | None:
        """What part of many tiles lies outside, if three quarters or more do; None if less."""
        count, inside = self.counted(extents), self.matrices.at(extents)
        inside *= self.rows.at(extents) * self.cols.at(extents)
        area = count * self.tile_rows * self.tile_cols
        return (
            f"{100 - 100 * inside // area} % of the area of its tiles lies outside the array"
            if count > 1 and 4 * inside <= area
            else None
        )


Argument = str | tuple[DType, int | float]
"""An operand or scratch by name, or a number with its type."""


@dataclass(frozen=True)
class Step:
    """One launch of one call, all expressions evaluated and all exchanges of buffers carried out.

    Attributes:
        time: how often the same launch of the plan ran before, where its arguments say so; else None.
        cooperative: all blocks must run at the same time.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int
    cluster: tuple[int, int, int]
    setup: bool
    waiting: int = 0
    across: int = 1
    time: int | None = None
    cooperative: bool = False


def steps(plan: Plan, sizes: Mapping[str, int]) -> Iterator[Step]:
    """Every launch of a call, in order; `sizes` are the extents and the device's limits.

    A launch with a 0 in its grid is left out. Buffers that a launch swaps stay swapped for those after it. Launches of
    the same buffers, of which a call of many steps has few, are one and the same object.
    """
    now: dict[str, str] = {}
    for turn in plan.turns():
        planned = [_Planned(launch, sizes) for launch in turn]
        for time in range(turn[0].times.at(sizes)):
            for launch, one in zip(turn, planned, strict=True):
                if 0 not in one.grid:
                    yield one.step(time, now)
                for first, other in launch.swap:
                    now[first], now[other] = now.get(other, other), now.get(first, first)


class _Planned:
    """A launch at some sizes, to be repeated."""

    def __init__(self, launch: Launch, sizes: Mapping[str, int]) -> None:
        self.grid = (launch.grid[0].at(sizes), launch.grid[1].at(sizes), launch.grid[2].at(sizes))
        self._launch, self._sizes = launch, sizes
        self._shared_bytes, self._waiting = launch.shared_bytes.at(sizes), launch.waiting.at(sizes)
        self._across = launch.across.at(sizes)
        self._counts = any(not isinstance(a, str) and TIME.name in a[1].names() for a in launch.arguments)
        self._numbers = self._at(0)
        self._made: dict[tuple[str, ...], Step] = {}

    def step(self, time: int, now: Mapping[str, str]) -> Step:
        """Its launch after so many before, where buffers have changed places so."""
        launch = self._launch
        if self._counts:
            self._numbers = self._at(time)
            self._made.clear()
        buffers = tuple([now.get(a, a) for a in self._numbers if isinstance(a, str)])
        if buffers not in self._made:
            arguments = tuple(now.get(a, a) if isinstance(a, str) else a for a in self._numbers)
            self._made[buffers] = Step(
                launch.entry, self.grid, launch.block, arguments, self._shared_bytes, launch.cluster, launch.setup,
                self._waiting, self._across, time if self._counts else None, launch.cooperative,
            )  # fmt: skip
        return self._made[buffers]

    def _at(self, time: int) -> list[Argument]:
        sizes = {**self._sizes, TIME.name: time}
        return [a if isinstance(a, str) else (a[0], a[1].at(sizes)) for a in self._launch.arguments]
