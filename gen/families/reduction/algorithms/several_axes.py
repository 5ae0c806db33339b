"""Reductions along axes with kept ones between them, whose fastest axis has neighbouring elements.

Sums over batch, height and width of images, say, whose channels stay: `multi_rows` where the fastest axis in memory is
reduced (NCHW), `multi_columns` where it is kept (NHWC). Whatever has gaps along its fastest axis is for `strided`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product
from math import gcd

from typing_extensions import override

from gen.arch import WARP, Limits
from gen.dtypes import I64, U32, DType
from gen.families.base import Extents, Launch, Plan, beyond_grid, with_limits
from gen.families.config import Config, choice, tunable
from gen.families.estimates import Demand, Least
from gen.families.expr import ONE, Expr, constant, made_once, size
from gen.families.plans import beyond_block
from gen.families.reduction.algorithms.columns import no_registers, no_shared_room
from gen.families.reduction.algorithms.common import (
    AXES,
    ROUNDS_ALONE,
    Combine,
    ReductionAlgorithm,
    block_roundings,
    combine_roundings,
    holds_no_element,
    inverse,
    outputs,
    shared_plan,
    split_after,
    taken,
)
from gen.families.reduction.algorithms.demands import columns_demand, columns_least, demand_of, least_of
from gen.families.reduction.algorithms.flat import MOST_SPAN, beyond_span
from gen.families.reduction.oracle import Share, chain, loads_of_thread, roundings, tree
from gen.families.reduction.shapes import MOST_GROUPS, Form, ShapeClass, apart, edges, form, several_axes
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.state import state_of

THREADS_PER_BLOCK = 256
MOST_COUNTED_ROWS = 4096  # whose ends are counted by thread; of more a bound is taken
MERGE_INSTRUCTIONS, END_INSTRUCTIONS = 100, 12
"""Of a warp that adds elements beside vectors: moments are merged, with a quotient."""
MULTI_ROWS_INSTRUCTIONS = {64: (35, 600), 32: (25, 350)}
MULTI_COLUMNS_INSTRUCTIONS = {64: (25, 500), 32: (13, 250)}
"""From row to row over several axes, and to find the first place and the way by quotients, for bits of an index."""
_INDEX_HELP = "bits of element indices; 32: for small arrays only"
_FEW_WIDE = "64-bit indices are for the largest arrays, and are tried with unroll 4 alone"
_FEW_ROWS_Y = 16  # threads below each other: an edge case is not too large for more blocks than these
BLOCKS_PER_SM = 8  # that share results, for each multiprocessor


def _most_of_slots(own: int, of_row: int, some: int, threads: int) -> int:
    """How many of a thread's slots are at most among `some` neighbouring ones of a row.

    Args:
        own: slots of the thread, each so many `threads` behind the one before.
        of_row: slots of a row.
        some: of these, those that are counted.
        threads: that share the rows.
    """
    if of_row == 0:
        return 0
    apart = gcd(of_row, threads)  # between the places in a row that a thread meets
    period, of_period = of_row // apart, -(-some // apart)
    periods, more = divmod(own, period)
    return periods * of_period + min(more, of_period)


def _index(config: MultiRowsConfig | MultiColumnsConfig) -> DType:
    return U32 if config.index_bits == 32 else I64


def _ends(length: int, items: int) -> int:
    """Elements of a row that at most lie before its first vector of so many, and behind its last."""
    rest = length % items
    return rest + items if rest < items - 1 else rest


@dataclass(frozen=True, kw_only=True)
class MultiRowsConfig(Config):
    """How `multi_rows` divides the rows of a result between threads and blocks."""

    group: int = tunable("g", (8, WARP, THREADS_PER_BLOCK), base=THREADS_PER_BLOCK, help="threads per result")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    blocks_per_sm: int = tunable(
        "bpm",
        (4, BLOCKS_PER_SM),
        base=BLOCKS_PER_SM,
        help="most blocks per multiprocessor; more split each result further",
    )
    tiles: bool = choice("tiles", (False, True), help="read each row in tiles of one block's vectors, for long rows")
    index_bits: int = choice("i", (64, 32), help=_INDEX_HELP)

    def illegal(self) -> str | None:
        """Only whole blocks share a result, or read tiles."""
        if self.group < THREADS_PER_BLOCK and self.blocks_per_sm != BLOCKS_PER_SM:
            return f"groups of {self.group} threads share no result with other blocks: blocks_per_sm has no effect"
        if self.group < THREADS_PER_BLOCK and self.tiles:
            return f"groups of {self.group} threads are not whole blocks, which tiles need"
        return None

    def unsearched(self) -> str | None:
        """Indices of 64 bits are for arrays that others do not take."""
        return _FEW_WIDE if self.index_bits == 64 and self.unroll != 4 else None


class MultiRows(ReductionAlgorithm[MultiRowsConfig]):
    """Many rows of neighbouring elements make one result."""

    name = "multi_rows"
    template = "reduction/multi_rows.cu.jinja"
    summary = (
        "For several reduced axes with kept axes between them, where the fastest axis is reduced. Every result has "
        "several rows of consecutive elements. A part of a warp, a warp, or one or more blocks read them with vector "
        "loads: short rows as one sequence of vectors, long rows in tiles."
    )
    config = MultiRowsConfig

    def illegal(self, spec: ReductionSpec, config: MultiRowsConfig) -> str | None:
        """There are rows; a vector holds at least one element."""
        if spec.axis == ():
            return "no axis is reduced: there are no rows"
        return holds_no_element(spec, config.vec_bytes)

    def unsupported_extents(
        self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Neighbouring elements along the fastest reduced axis."""
        if form(extents) is not Form.STRIDED or extents["rs3"] != 1:
            return "it is for arrays whose axes do not merge to a matrix, contiguous along the last reduced axis"
        if config.index_bits == 32:
            items, length = config.vec_bytes // spec.dtype.size, extents["r3"]
            if found := beyond_span(spec, extents):
                return found
            if extents["n"] // max(length, 1) * (length // items + _ends(length, items)) >= MOST_SPAN:
                return f"its rows have {MOST_SPAN} vectors or more, which 32-bit indices cannot count"
        return beyond_grid(self.blocks_of_plan(spec, config, extents, limits))

    def inputs(self, spec: ReductionSpec, config: MultiRowsConfig) -> Mapping[str, object]:
        """The threads of a block, the same for all."""
        return {"threads_per_block": THREADS_PER_BLOCK}

    @override
    def edge_cases(self, spec: ReductionSpec, config: MultiRowsConfig) -> Iterator[Extents]:
        """Rows of which a group's last slots, or the last tile, have 1, 2, all but 1 and all of their elements.

        Results of several blocks, and rows so long that blocks share a result.
        """
        tile, extent = min(config.group, WARP) * max(config.vec_bytes // spec.dtype.size, 2), 3
        if config.tiles:
            tile, extent = THREADS_PER_BLOCK * config.unroll * (config.vec_bytes // spec.dtype.size), 2
        sizes = [(extent, last) for last in edges(tile)]
        results = THREADS_PER_BLOCK // config.group
        if results == 1:
            block = THREADS_PER_BLOCK * config.unroll * (config.vec_bytes // spec.dtype.size)
            sizes.append((2, (ROUNDS_ALONE + 1) * block))
        elif results >= extent:
            sizes.append((results + 1, 3))
        found = (several_axes(spec, ShapeClass.MULTI_ROWS, *one) for one in sizes)
        yield from (one for one in found if one is not None)
        yield from islice(taken(self, spec, config, apart(spec, WARP + 1, reduced=True)), 1)

    @made_once
    def splits(self, spec: ReductionSpec, config: MultiRowsConfig) -> Expr:
        """Blocks of a result."""
        if config.group < THREADS_PER_BLOCK:
            return ONE
        most = (size("multiprocessors") * config.blocks_per_sm) // size("outer").at_least(1)
        if config.tiles:
            return split_after(size("n") // size("r3") * self.tiles_of_row(spec, config), 1, most)
        per_block = THREADS_PER_BLOCK * config.unroll * (config.vec_bytes // spec.dtype.size)
        return split_after(size("n"), per_block, most)

    @made_once
    def tiles_of_row(self, spec: ReductionSpec, config: MultiRowsConfig) -> Expr:
        """Tiles in which a row is read."""
        vectors = size("r3") // (config.vec_bytes // spec.dtype.size)
        return vectors.ceil_div(THREADS_PER_BLOCK * config.unroll).at_least(1)

    def _axes(self, spec: ReductionSpec, config: MultiRowsConfig) -> tuple[tuple[DType, Expr], ...]:
        """Extents and strides; with indices of 32 bits also the inverses of all extents but the slowest.

        In the place of its elements the last axis has tiles, or slots: of vectors, and with those beside them.
        """
        index, items, length = _index(config), config.vec_bytes // spec.dtype.size, size("r3")
        known = tuple((index, size(name)) for name in AXES)
        if config.index_bits == 64:
            return known
        vectors, rest = length // items, length % items
        last = self.tiles_of_row(spec, config) if config.tiles else vectors
        axes = [size(name) for name in ("k1", "k2", "k3", "r1", "r2")]
        inverses = tuple(map(inverse, (*axes, last)))
        if config.tiles or items == 1:
            return *known, *inverses
        most_ends = rest + constant(items) - (rest + 1) // items * items  # as `_ends` has it
        return inverse(vectors + most_ends), *known, *inverses

    @override
    def plan(self, spec: ReductionSpec, config: MultiRowsConfig) -> Plan:
        index, block = _index(config), (THREADS_PER_BLOCK, 1, 1)
        n, axes = (index, size("n")), self._axes(spec, config)
        if config.group < THREADS_PER_BLOCK:
            blocks = size("outer").ceil_div(THREADS_PER_BLOCK // config.group)
            return Plan((Launch((blocks, ONE, ONE), block, ("in", *outputs(spec), (index, size("outer")), n, *axes)),))
        splits, most = self.splits(spec, config), size("multiprocessors") * config.blocks_per_sm
        numbers = ((U32, splits), *([inverse(splits)] if config.index_bits == 32 else ()), n, *axes)
        return shared_plan(
            spec, Combine.TICKET, block, numbers, splits=splits, states=most, groups=size("outer"),
            tickets=most,
        )  # fmt: skip

    @override
    def roundings(self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, limits: Limits) -> int:
        n, items, team = extents["n"], config.vec_bytes // spec.dtype.size, config.group
        splits = self.splits(spec, config).at(with_limits(extents, limits))
        run = state_of(spec).run(config.unroll, config.vec_bytes)
        if config.tiles:
            loads, folds, partial = self._most_of_tiles(spec, config, extents, splits, run)
            share, ends = Share.of_vectors(spec, config.vec_bytes, loads, folds, 0, run), chain(partial)
            team = min(team, max(extents["r3"] // items, items - 1, 1))  # threads of a block that read anything
        else:
            vectors, beside = extents["r3"] // items, _ends(extents["r3"], items)
            rows, threads = n // max(extents["r3"], 1), splits * config.group
            own = -(-(vectors + beside) * rows // threads)
            loads = max(
                _most_of_slots(own, vectors + beside, vectors, threads),
                -(-vectors * rows // threads),  # of rows that have no other slots
            )
            share = Share.of_vectors(spec, config.vec_bytes, loads, loads, 0, run)
            ends = chain(_most_of_slots(own, vectors + beside, beside, threads))
        if items > 1:  # elements that no vector of their row holds are added one by one, to a state of their own
            joined = int(loads > (0 if config.tiles else 1))
            share = Share(max(share.additions, ends) + joined, max(share.merges, ends) + joined, share.run)
        reduce = block_roundings if config.group > WARP else tree
        combined = combine_roundings(Combine.TICKET, splits, THREADS_PER_BLOCK, block_roundings)
        return roundings(spec, n, share, reduce(min(team, n)) + combined)

    def _most_of_tiles(
        self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, splits: int, run: int
    ) -> tuple[int, int, int]:
        """Loads, folds of them, and elements beside vectors, of a thread of the block that has most of each.

        Wherever the first row begins; from there on its place tells where the others do.
        """
        rows, items = extents["n"] // extents["r3"], config.vec_bytes // spec.dtype.size
        tiles, whole = self.tiles_of_row(spec, config).at(extents), THREADS_PER_BLOCK * config.unroll
        if rows * tiles > MOST_COUNTED_ROWS:
            own = -(-rows * tiles // splits)
            return own * config.unroll, own * config.unroll, 2 * min(own, rows)
        axes = [[place * extents[f"rs{axis}"] for place in range(extents[f"r{axis}"])] for axis in range(3)]
        begins = [sum(place) for place in product(*axes)]
        most = (0, 0, 0)
        for first, block in product(range(items), range(splits)):
            loads = folds = beside = 0
            for tile in range(block, rows * tiles, splits):
                head = min(-(first + begins[tile // tiles]) % items, extents["r3"])
                vectors, tail = divmod(extents["r3"] - head, items)
                left = max(min(vectors - tile % tiles * whole, whole), 0)
                own, all_runs = loads_of_thread(left, config.unroll, THREADS_PER_BLOCK, run=run)
                loads, folds = loads + own, folds + all_runs
                beside += (tile % tiles == 0 and head > 0) + (tile % tiles == tiles - 1 and tail > 0)
            most = (max(most[0], loads), max(most[1], folds), max(most[2], beside))
        return most

    @override
    def demand(
        self, spec: ReductionSpec, config: MultiRowsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        length, rows, items = extents["r3"], extents["n"] // max(extents["r3"], 1), config.vec_bytes // spec.dtype.size
        splits = self.splits(spec, config).at(with_limits(extents, limits))
        blocks = -(-extents["outer"] * splits * config.group // THREADS_PER_BLOCK)
        combine = Combine.TICKET if splits > 1 else None
        if config.tiles:
            tiles = self.tiles_of_row(spec, config).at(extents)
            filled = length / items / (tiles * THREADS_PER_BLOCK * config.unroll)  # of a tile
            own = rows * tiles / splits
            return demand_of(
                spec, extents, blocks=blocks, threads_per_block=THREADS_PER_BLOCK,
                busy=min(filled * config.unroll, 1.0),
                vectors=max(own * filled * config.unroll, 1.0), at_once=max(config.unroll * min(filled, 1.0), 1.0),
                vec_bytes=config.vec_bytes, walk=60 / max(config.unroll * filled, 1.0), more_rounds=0.3 * own,
                more_instructions=700, combine=combine,
            )  # fmt: skip
        strides = [extents[f"rs{axis}"] for axis in range(MOST_GROUPS - 1)] + [length]
        partial = items > 1 and gcd(gcd(*strides) * spec.dtype.size, alignment) % config.vec_bytes != 0
        vectors, ends = max(length // items, 1), partial * _ends(length, items)
        own = rows * (vectors + ends) / (splits * config.group)
        walk, before = MULTI_ROWS_INSTRUCTIONS[config.index_bits]
        mixed = partial * min(WARP * config.unroll / (vectors + ends), 1.0)  # loads at once that are not all vectors
        of_end = 2 * MERGE_INSTRUCTIONS if state_of(spec).moments else END_INSTRUCTIONS
        return demand_of(
            spec, extents, blocks=blocks, threads_per_block=THREADS_PER_BLOCK,
            busy=min(own, 1.0) * vectors / (vectors + ends), issuing=min(own, 1.0), vectors=max(own, 1.0),
            at_once=config.unroll, vec_bytes=config.vec_bytes, walk=walk + 15 * partial + mixed * of_end,
            more_instructions=before, combine=combine, reduces=config.group > WARP,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: MultiRowsConfig, limits: Limits) -> Least:
        if config.tiles:
            return least_of(spec, THREADS_PER_BLOCK, config.vec_bytes, more_instructions=700)._replace(instructions=0.0)
        walk, before = MULTI_ROWS_INSTRUCTIONS[config.index_bits]
        at_once = config.group * config.unroll * (config.vec_bytes // spec.dtype.size)
        sharing = limits.multiprocessors * config.blocks_per_sm if config.group == THREADS_PER_BLOCK else 0
        return least_of(
            spec, THREADS_PER_BLOCK, config.vec_bytes, walk=walk, more_instructions=before, reduces=config.group > WARP,
            threads=config.group, at_once=at_once, shared=sharing * at_once,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: MultiRowsConfig) -> int:
        return config.unroll * config.vec_bytes


@dataclass(frozen=True, kw_only=True)
class MultiColumnsConfig(Config):
    """How `multi_columns` divides columns and rows between threads and blocks."""

    columns_x: int = tunable(
        "x", (2, 4, 8, 16, 32, 64, 128), base=32, help="threads along a row (x), one vector of columns each"
    )
    rows_y: int = tunable("y", (1, 4, 8, 16, 32, 64), base=8, help="threads per column, down the rows (y)")
    unroll: int = tunable("u", (2, 4, 8), base=4, help="vector loads in flight per thread")
    vec_bytes: int = tunable("v", (4, 8, 16), base=16, help="bytes per vector load")
    index_bits: int = choice("i", (64, 32), help=_INDEX_HELP)

    def illegal(self) -> str | None:
        """A block holds the threads."""
        return beyond_block(self.columns_x * self.rows_y)

    def unsearched(self) -> str | None:
        """Blocks are neither small nor thin."""
        threads = self.columns_x * self.rows_y
        least, most = (64, 256) if self.columns_x < 16 else (128, 512)
        if not least <= threads <= most:
            return f"a block of {self.columns_x} x {self.rows_y} has {threads} threads; tuning tries {least} to {most}"
        if self.index_bits == 64 and self.unroll != 4:
            return _FEW_WIDE
        return None


class MultiColumns(ReductionAlgorithm[MultiColumnsConfig]):
    """Strips of neighbouring columns, whose rows lie along several axes."""

    name = "multi_columns"
    template = "reduction/multi_columns.cu.jinja"
    summary = (
        "For several reduced axes with kept axes between them, where the fastest axis is kept. A thread computes a "
        "vector of neighbouring columns and goes from row to row over all reduced axes. Several blocks may share the "
        "rows of a strip."
    )
    config = MultiColumnsConfig

    def illegal(self, spec: ReductionSpec, config: MultiColumnsConfig) -> str | None:
        """There are columns; their states fit into shared memory."""
        if not spec.axis:
            return "there are no columns where all axes or no axis is reduced"
        return holds_no_element(spec, config.vec_bytes) or no_shared_room(
            spec, config.vec_bytes, config.columns_x * config.rows_y
        )

    def unsearched(self, spec: ReductionSpec, config: MultiColumnsConfig) -> str | None:
        """The states of a thread's columns stay in registers."""
        return no_registers(spec, config.vec_bytes)

    def unsupported_extents(
        self, spec: ReductionSpec, config: MultiColumnsConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Neighbouring elements along the fastest kept axis."""
        if form(extents) is not Form.STRIDED or extents["ks3"] != 1:
            return "it is for arrays whose axes do not merge to a matrix, contiguous along the last kept axis"
        if config.index_bits == 32 and (found := beyond_span(spec, extents)):
            return found
        return beyond_grid(self.blocks_of_plan(spec, config, extents, limits))

    @override
    def edge_cases(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Iterator[Extents]:
        """Columns of which the last strip has 1, 2, all but 1 and all.

        Blocks share rows of the first, as many as threads go round twice over what they know, if those are few; and go
        round twice over rows of another: two strips have a half of the blocks each.
        """
        strip, tile = config.columns_x * max(config.vec_bytes // spec.dtype.size, 1), config.rows_y * config.unroll
        one, two, all_but_one, whole = edges(strip)
        blocks = config.rows_y + 1 if config.rows_y <= _FEW_ROWS_Y else 2
        sizes = ((one, blocks * tile), (two, 3), (whole, BLOCKS_PER_SM // 2 * tile + 2), (all_but_one, 2 * tile - 1))
        found = (several_axes(spec, ShapeClass.MULTI_COLUMNS, 2, last, rows) for last, rows in sizes)
        yield from (one for one in found if one is not None)
        yield from islice(taken(self, spec, config, apart(spec, WARP + 1, reduced=False)), 1)

    @made_once
    def strips(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Expr:
        """Strips of a matrix of columns."""
        return size("k3").ceil_div(config.columns_x * (config.vec_bytes // spec.dtype.size))

    def groups(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Expr:
        """Strips of all matrices."""
        return size("k0") * size("k1") * size("k2") * self.strips(spec, config)

    @made_once
    def splits(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Expr:
        """Blocks that share the rows of a strip: as many as the device wants, and a round's rows for each."""
        most = (size("multiprocessors") * BLOCKS_PER_SM) // self.groups(spec, config).at_least(1)
        return most.at_most(size("n").ceil_div(config.rows_y * config.unroll)).at_least(1)

    @override
    def plan(self, spec: ReductionSpec, config: MultiColumnsConfig) -> Plan:
        strips, splits, index = self.strips(spec, config), self.splits(spec, config), _index(config)
        most = size("multiprocessors") * BLOCKS_PER_SM  # blocks, where strips are shared at all
        columns = config.columns_x * (config.vec_bytes // spec.dtype.size)
        axes = ("k0", "k1", "k2", "r1", "r2", "r3") if config.index_bits == 32 else ()
        numbers = (
            (U32, strips), (U32, splits), inverse(strips), inverse(splits), (index, size("n")),
            *(inverse(size(name)) for name in axes), *((index, size(name)) for name in AXES),
        )  # fmt: skip
        return shared_plan(
            spec, Combine.TICKET, (config.columns_x, config.rows_y, 1), numbers, splits=splits,
            states=most * columns, groups=self.groups(spec, config), tickets=most,
        )  # fmt: skip

    @override
    def roundings(self, spec: ReductionSpec, config: MultiColumnsConfig, extents: Extents, limits: Limits) -> int:
        n, threads = extents["n"], config.rows_y
        splits = self.splits(spec, config).at(with_limits(extents, limits))
        own = -(-n // (splits * threads))
        share = Share(chain(own), chain(-(-own // config.unroll)), config.unroll)
        combined = combine_roundings(Combine.TICKET, splits, threads, tree)
        return roundings(spec, n, share, tree(min(threads, n)) + combined)

    @override
    def demand(
        self, spec: ReductionSpec, config: MultiColumnsConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        sizes = with_limits(extents, limits)
        walk, before = MULTI_COLUMNS_INSTRUCTIONS[config.index_bits]
        strides = [extents[f"rs{axis}"] for axis in range(MOST_GROUPS)]
        strides += [extents[f"ks{axis}"] for axis in range(MOST_GROUPS - 1)]
        return columns_demand(
            spec, extents, (config.columns_x, config.rows_y), unroll=config.unroll, vec_bytes=config.vec_bytes,
            combine=Combine.TICKET, columns=extents["k3"], matrices=extents["outer"] // max(extents["k3"], 1),
            strips=self.strips(spec, config).at(sizes), splits=self.splits(spec, config).at(sizes),
            aligned=gcd(gcd(*strides) * spec.dtype.size, alignment) % config.vec_bytes == 0,
            walk=walk, before=before,
        )  # fmt: skip

    @override
    def least(self, spec: ReductionSpec, config: MultiColumnsConfig, limits: Limits) -> Least:
        walk, before = MULTI_COLUMNS_INSTRUCTIONS[config.index_bits]
        return columns_least(
            spec, (config.columns_x, config.rows_y), config.unroll, config.vec_bytes,
            limits.multiprocessors * BLOCKS_PER_SM, walk=walk, before=before,
        )  # fmt: skip

    @override
    def bytes_in_flight(self, spec: ReductionSpec, config: MultiColumnsConfig) -> int:
        return config.unroll * config.vec_bytes
