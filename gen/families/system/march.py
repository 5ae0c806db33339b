"""Blocks that march through planes of three axes: each plane is brought to shared memory once, in vectors.

A plane adds its terms to the sums of all planes that read it. Those that are not complete stay in registers, so the
terms of a sum come in the same order as in `naive`, and each plane is looked at once. A ring of planes of each field of
which cells around are read lies in shared memory: from the one that is written to the last that it reads, and some that
are on their way. There is one barrier a plane. What is only read at the own cell comes straight from global memory, a
plane ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from typing_extensions import override

from gen.arch import MAX_SHARED_BYTES_PER_BLOCK, MAX_THREADS_PER_MULTIPROCESSOR, WARP, max_registers_per_thread
from gen.dtypes import U32, StoreModifier
from gen.families.base import Algorithm, Extents, Launch, Limits, Plan
from gen.families.config import Config, store_modifier, tunable
from gen.families.expr import ONE, constant, size
from gen.families.plans import Tiles, beyond_block, beyond_shared, idle_multiprocessors
from gen.families.stencil.algorithms.common import VECTOR_BYTES, literal
from gen.families.stencil.algorithms.march import planes_of_blocks
from gen.families.stencil.shapes import edge_extents
from gen.families.system.launches import extents_of, shape_numbers, stepping
from gen.families.system.spec import SystemSpec
from gen.families.system.text import Tap, inputs_of, reach_of, text_of_system

WORD_BITS = 32
_LEAST_PLANES = 8  # of a block
_LEAST_THREADS, _MOST_PLANE_CELLS = 256, 1 << 13  # of a multiprocessor; of a block
_OTHER_REGISTERS = 48  # beside sums, cells around and vectors of other fields


@dataclass(frozen=True, kw_only=True)
class MarchConfig(Config):
    """How large a block's part of a plane is, how many blocks share the planes, how many planes are on their way."""

    block_x: int = tunable("x", (8, 16, 32), base=16, help="threads of a block along a row (x), one vector each")
    block_y: int = tunable("y", (4, 8, 16, 32), base=8, help="threads of a block down the rows (y)")
    rows: int = tunable("u", (1, 2, 4), base=1, help="rows per thread in each plane; more need more registers")
    blocks_per_sm: int = tunable(
        "n", (1, 2, 3, 4), base=4, help="resident blocks per multiprocessor; more leave fewer registers per thread"
    )
    waves: int = tunable(
        "r", (1, 2, 3, 4, 6, 8), base=8, help="waves of blocks in a launch; with more, a block gets fewer planes"
    )
    ahead: int = tunable("s", (1, 2, 3), base=3, help="planes in flight to shared memory; more need more of it")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)

    def illegal(self) -> str | None:
        """A block can have at most 1024 threads."""
        return beyond_block(self.block_x * self.block_y)

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.block_x * self.block_y


@dataclass(frozen=True)
class PlaneFunction:
    """A stencil sum as a function that adds a plane's terms.

    Attributes:
        held: sums that are not complete when it is called.
        planes: its terms for each sum, the one that becomes complete first.
    """

    name: str
    held: int
    planes: tuple[tuple[Tap, ...], ...]


@dataclass(frozen=True)
class PassedReading:
    """A value found from cells around, of a plane's cells while the block passes.

    Attributes:
        function: that adds a plane's terms; of a cell as it is none.
        offset: of that cell within its plane.
        window: the cells of a plane that are looked at.
        held: numbers that wait in registers until their plane is written.
    """

    name: str
    function: str
    offset: str
    window: str
    held: int

    @property
    def is_cell(self) -> bool:
        """Whether it is one cell as it is."""
        return not self.function


@dataclass(frozen=True)
class Window:
    """What a thread looks at of a plane of a field.

    Attributes:
        behind: planes between it and the last one that has come.
        sides: of every row how many neighbours are read on each side; -1 if not the row either.
    """

    name: str
    field: str
    behind: int
    sides: tuple[int, ...]


class March(Algorithm[SystemSpec, MarchConfig]):
    """Every cell of what is read around is brought to shared memory by each block that reads it, once."""

    name = "march"
    template = "system/march.cu.jinja"
    summary = (
        "Each block marches through planes and loads several of them ahead into shared memory. Every thread reads the "
        "cells around from there, and computes the new values of all fields for some rows of each plane."
    )
    config = MarchConfig

    def illegal(self, spec: SystemSpec, config: MarchConfig) -> str | None:
        """The spec must have three axes and read cells around, and a block's planes fit in shared memory."""
        if spec.ndim != 3:
            return f"it marches through the planes of three axes, and the fields have {spec.ndim}"
        if not spec.sums:
            return "the spec reads no neighbouring cells"
        if (cells := config.rows * _vector_cells(spec)) > WORD_BITS:
            return f"a thread has {cells} cells of a plane; its bit mask has {WORD_BITS} bits"
        if (brought := -(-_plane_vectors(spec, config) // config.threads)) > WORD_BITS:
            return f"a thread loads {brought} vectors of a plane; its bit mask has {WORD_BITS} bits"
        needed, most = config.blocks_per_sm * _shared_bytes(spec, config), MAX_SHARED_BYTES_PER_BLOCK
        if needed > most:
            return f"the planes of its resident blocks need {needed} bytes of shared memory; there are at most {most}"
        return None

    def unsearched(self, spec: SystemSpec, config: MarchConfig) -> str | None:
        """Threads enough for a multiprocessor, with registers for all sums, and several blocks for a plane."""
        threads = config.threads * config.blocks_per_sm
        if not _LEAST_THREADS <= threads <= MAX_THREADS_PER_MULTIPROCESSOR:
            tried = f"{_LEAST_THREADS} to {MAX_THREADS_PER_MULTIPROCESSOR}"
            return f"a multiprocessor would have {threads} threads; tuning tries {tried}"
        needed, allowed = _registers(spec, config), max_registers_per_thread(threads // WARP)
        if needed > allowed:
            return f"it needs about {needed} registers per thread, and {threads} threads leave {allowed}"
        if config.threads * config.rows * _vector_cells(spec) > _MOST_PLANE_CELLS:
            return "its blocks are so large that a device would have few"
        return None

    def infeasible(self, spec: SystemSpec, config: MarchConfig, limits: Limits) -> str | None:
        """It needs asynchronous copies to shared memory, and a block's planes must fit there."""
        if not limits.has_asynchronous_copies:
            return f"{limits.arch} has no asynchronous copies"
        return beyond_shared(_shared_bytes(spec, config), limits)

    def slow_path_reason(
        self, spec: SystemSpec, config: MarchConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Its blocks need planes to march through, rows to fill, and a device so many blocks."""
        deep = reach_of(spec).deep
        if extents["planes"] < deep:
            return f"{extents['planes']} planes are too few: each cell reads from {deep}"
        wide = config.block_x * _vector_cells(spec)
        if 2 * extents["cols"] < wide or 2 * extents["rows"] < config.block_y * config.rows:
            return "most threads of its blocks would have no cell"
        blocks = _tiles(spec, config).count.at(extents) * max(extents["planes"] // _least_planes(spec), 1)
        return idle_multiprocessors(blocks, limits)

    @override
    def edge_cases(self, spec: SystemSpec, config: MarchConfig) -> Iterator[Extents]:
        across, down = (
            edge_extents(config.block_x * _vector_cells(spec)),
            edge_extents(config.block_y * config.rows)[::-1],
        )
        two_blocks = 2 * _least_planes(spec) - 1
        planes = (3, two_blocks, 1, reach_of(spec).deep)
        for place, shape in enumerate(zip(planes, down, across, strict=True)):
            yield extents_of(spec, shape, (1, 1, 2, 1)[place])

    @override
    def spec_inputs(self, spec: SystemSpec) -> Mapping[str, object]:
        return {**inputs_of(spec), "far": _far(spec), "lanes_beside": _lanes_beside(spec)}

    def inputs(self, spec: SystemSpec, config: MarchConfig) -> Mapping[str, object]:
        """Sums by planes, and the cells that each looks at."""
        functions, passed, windows = passed_by(spec, config.rows)
        return {"functions": functions, "passed": passed, "windows": windows}

    @override
    def plan(self, spec: SystemSpec, config: MarchConfig) -> Plan:
        tiles, shared_bytes = _tiles(spec, config), constant(_shared_bytes(spec, config))
        block_planes = planes_of_blocks(tiles.count, config.blocks_per_sm, config.waves, _least_planes(spec))
        blocks = tiles.count * size("planes").ceil_div(block_planes.at_least(1))
        numbers = (*shape_numbers(spec), (U32, tiles.across), (U32, tiles.down), (U32, block_planes))

        def sweep(targets: Sequence[str]) -> Launch:
            return Launch(
                grid=(blocks, ONE, ONE),
                block=(config.block_x, config.block_y, 1),
                arguments=(*spec.fields, *targets, *spec.scalars, *numbers),
                shared_bytes=shared_bytes,
                across=tiles.across,
            )

        return stepping(spec, sweep)

    def bytes_in_flight(self, spec: SystemSpec, config: MarchConfig) -> int:
        """The thread's share of the planes on their way, and its vectors of other fields."""
        return VECTOR_BYTES * config.rows * (len(text_of_system(spec).near) * config.ahead + len(_far(spec)))


def passed_by(
    spec: SystemSpec, rows: int
) -> tuple[tuple[PlaneFunction, ...], tuple[PassedReading, ...], tuple[Window, ...]]:
    """The stencil sums of a spec by planes, the values that come of them, and what a thread of so many rows looks at.

    A sum is complete when the last plane has passed that it reads, or at the plane itself if that is later.
    """
    text, reach = text_of_system(spec), reach_of(spec)
    functions: dict[str, PlaneFunction] = {}
    passed, windows = [], dict[tuple[str, int], Window]()
    for one, reading in zip(spec.sums, text.readings, strict=True):
        depths = [offset[0] for offset, _ in one.taps]
        back = max(*depths, 0)
        held = back - min(depths)
        function = "" if one.is_neighbour else reading.call.partition("(")[0]
        if function and function not in functions:
            by_plane = tuple(
                tuple(
                    Tap(f"{y}, {x}", literal(weight, spec.accumulator)) for (z, y, x), weight in one.taps if z == depth
                )
                for depth in range(back, back - held - 1, -1)
            )
            functions[function] = PlaneFunction(function, held, by_plane)
        behind = reach.back - back
        name = f"{one.field}_{behind}" if behind else one.field
        known = windows.get((one.field, behind))
        sides = list(known.sides if known else [-1] * (rows + reach.high - 1))
        for (_, y, x), _ in one.taps:
            for row in range(reach.up + y, reach.up + y + rows):
                sides[row] = max(sides[row], abs(x))
        windows[one.field, behind] = Window(name, one.field, behind, tuple(sides))
        _, y, x = one.taps[0][0]
        passed.append(PassedReading(reading.name, function, f"{y}, {x}", name, held))
    return tuple(functions.values()), tuple(passed), tuple(windows.values())


def _far(spec: SystemSpec) -> tuple[str, ...]:
    """The fields that are read at the own cell alone."""
    text = text_of_system(spec)
    return tuple(name for name in text.own if name not in text.near)


def _vector_cells(spec: SystemSpec) -> int:
    return VECTOR_BYTES // spec.dtype.size


def _tiles(spec: SystemSpec, config: MarchConfig) -> Tiles:
    """The cells that a block writes of each plane."""
    return Tiles(size("rows"), size("cols"), config.block_y * config.rows, config.block_x * _vector_cells(spec))


def _least_planes(spec: SystemSpec) -> int:
    """That a block writes, where there are as many: twice those that its ends use up, which are read twice."""
    return max(_LEAST_PLANES, 2 * (reach_of(spec).deep - 1))


def _shared_bytes(spec: SystemSpec, config: MarchConfig) -> int:
    """What the rings of all fields take of which cells around are read."""
    fields = len({one.field for one in spec.sums})
    return fields * (reach_of(spec).back + 1 + config.ahead) * _plane_vectors(spec, config) * VECTOR_BYTES


def _lanes_beside(spec: SystemSpec) -> int:
    """Vectors of a row on each side of a block's."""
    reach = reach_of(spec)
    return -(-max(reach.left, reach.right) // _vector_cells(spec))


def _plane_vectors(spec: SystemSpec, config: MarchConfig) -> int:
    """A block's vectors of a plane, with those around."""
    rows = config.block_y * config.rows + reach_of(spec).high - 1
    return rows * (config.block_x + 2 * _lanes_beside(spec))


def _registers(spec: SystemSpec, config: MarchConfig) -> int:
    """How many a thread needs, roughly: for sums, for half of a window, for vectors of other fields, for addresses."""
    reach, cells, words = reach_of(spec), _vector_cells(spec), spec.accumulator.size // 4
    held = sum(max(0, *(offset[0] for offset, _ in one.taps)) - one.taps[0][0][0] for one in spec.sums)
    window = (config.rows + reach.high - 1) * cells // 2
    far = len(_far(spec)) * VECTOR_BYTES // 4
    return _OTHER_REGISTERS + (config.rows * cells * held + window) * words + config.rows * far
