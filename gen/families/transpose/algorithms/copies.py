"""Where the fastest axis stays the fastest: runs of neighbouring elements are copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from typing_extensions import override

from gen.dtypes import I32, I64, U32, U64, DType, LoadModifier, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan, beyond_grid
from gen.families.config import Config, choice, load_modifier, store_modifier, tunable
from gen.families.estimates import COLD_SECONDS, Demand, Least
from gen.families.expr import ONE, Expr, constant, made_once, size
from gen.families.plans import Tiles
from gen.families.transpose.algorithms.common import (
    MAX_DIVIDEND,
    MatrixAlgorithm,
    arguments,
    between_vectors,
    copied,
    extents_of_batch,
    inverse_of,
    inverses,
    matrices,
    only_apart,
    only_moves,
    spanned,
    stays,
)
from gen.families.transpose.algorithms.demands import PROLOGUE, copy_demand, memory, whole_vectors
from gen.families.transpose.spec import TransposeSpec


@dataclass(frozen=True, kw_only=True)
class RowCopyConfig(Config):
    """How `row_copy` lays threads over the runs."""

    lanes: int = tunable("x", (4, 16, 64, 256), base=64, help="threads per run of consecutive elements")
    threads_per_block: int = tunable("tpb", (256, 512), base=256, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4), base=2, help="vectors per thread")
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS)


class RowCopy(MatrixAlgorithm[TransposeSpec, RowCopyConfig]):
    """The fastest axis stays the fastest: its runs are copied."""

    name = "row_copy"
    template = "transpose/row_copy.cu.jinja"
    summary = (
        "Consecutive elements of the input stay consecutive in the output: runs of them are copied by 16-byte vectors. "
        "Where one of the two arrays is not aligned, elements of 1 or 2 bytes are copied by vectors that are shifted "
        "into place."
    )
    config = RowCopyConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: RowCopyConfig) -> str | None:
        """A thread reads what another may have written."""
        return only_apart(spec)

    def unsupported_extents(
        self, spec: TransposeSpec, config: RowCopyConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Nothing may move within a matrix."""
        if extents["rows"] * extents["cols"] and not stays(extents):
            return f"the {extents['rows']} x {extents['cols']} matrices are transposed: there are no runs to copy"
        runs = matrices(spec).at(extents)
        if runs > MAX_DIVIDEND:
            return f"there are {runs} runs; it supports at most {MAX_DIVIDEND}"
        return super().unsupported_extents(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: RowCopyConfig) -> Iterator[Extents]:
        """Runs shorter than a vector, and longer than a block's part; more of them than a block takes; of two axes."""
        vector = 16 // spec.dtype.size
        part, together = config.lanes * config.unroll * vector, config.threads_per_block // config.lanes
        yield copied(spec, 3, (together + 1,), gap=1)
        yield copied(spec, 2 * part, (2,), gap=vector)
        yield copied(spec, part + 1, (2,), gap=3)
        yield copied(spec, 4 * vector, (3, 5))
        yield copied(spec, 2 * vector + 1, (2, together))

    @made_once
    def tiles(self, spec: TransposeSpec, config: RowCopyConfig) -> Tiles:
        """Parts of runs: `down` counts groups of runs, `across` the parts of one."""
        span = config.lanes * config.unroll * (16 // spec.dtype.size)
        run = size("rows") * size("cols")
        return Tiles(matrices(spec), run, config.threads_per_block // config.lanes, span)

    def divisors(self, spec: TransposeSpec) -> tuple[str, ...]:
        """What numbers are divided by."""
        return ("tiles_across", *extents_of_batch(spec))

    def inputs(self, spec: TransposeSpec, config: RowCopyConfig) -> Mapping[str, object]:
        """By what a block multiplies to find its run."""
        return {"inverses": self.divisors(spec)}

    @override
    def plan(self, spec: TransposeSpec, config: RowCopyConfig) -> Plan:
        tiles = self.tiles(spec, config)
        launch = Launch(
            grid=(tiles.count, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*arguments(spec, tiles.down, tiles.across), *inverses(tiles, self.divisors(spec))),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: RowCopyConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand | None:
        if spec.values is not None:
            return None
        tiles, run = self.tiles(spec, config), extents["rows"] * extents["cols"]
        by_vectors = whole_vectors(spec, extents, alignment, 16) and run * spec.dtype.size % 16 == 0
        of_piece = config.lanes * config.unroll  # vectors
        whole = min(run * spec.dtype.size // 16, of_piece) - 2  # but for the ends
        of_vector, by_words = 2 * memory(16) + 8, 0.0 if by_vectors else 1.0  # the share of pieces that are
        if not by_vectors and spec.dtype.size < 4 and 2 * whole >= config.lanes:
            of_vector, by_words = 3 * memory(16) + 8, min(2 / (-(-run * spec.dtype.size // (16 * of_piece))), 1.0)
        elif not by_vectors:
            of_vector = 5 * memory(4) + memory(16) + 24
        return copy_demand(
            spec,
            extents,
            blocks=tiles.counted(extents),
            threads_per_block=config.threads_per_block,
            vectors=config.unroll * (1 - by_words) + 0.5 * by_words,  # two words
            of_thread=config.unroll * of_vector + 20,
            rounds=1 - by_words + 4.0 * config.unroll * by_words,  # a word after another
        )

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: RowCopyConfig) -> int:
        return 16 * config.unroll


_VECTOR_INDICES = 2**32  # vectors are counted in 32 bits


@dataclass(frozen=True, kw_only=True)
class FlatCopyConfig(Config):
    """How `flat_copy` lays threads over vectors."""

    threads_per_block: int = tunable("tpb", (128, 256, 512), base=256, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="vectors per thread")
    even: bool = choice(
        "even",
        (False, True),
        help="runs are 2^k vectors, and a block copies whole runs: shifts replace divisions",
    )
    load_modifier: LoadModifier = load_modifier(LoadModifier.LDG, LoadModifier.EVICT_LAST)
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS, StoreModifier.EVICT_LAST)


class FlatCopy(MatrixAlgorithm[TransposeSpec, FlatCopyConfig]):
    """The fastest axis stays the fastest: its runs are copied, a block those of several places of another axis."""

    name = "flat_copy"
    template = "transpose/flat_copy.cu.jinja"
    summary = (
        "Consecutive elements of the input stay consecutive in the output. The 16-byte vectors of the runs along one "
        "of the other axes are numbered one after another, so that also short runs keep all threads busy. With up to "
        "three other axes, a block finds its position along them without a division."
    )
    config = FlatCopyConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: FlatCopyConfig) -> str | None:
        """Elements are moved in vectors; runs are even if there are some."""
        if config.even and not spec.batches:
            return "there is only one run, so even has no effect: leave it out"
        return only_moves(spec)

    def unsupported_extents(
        self, spec: TransposeSpec, config: FlatCopyConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Nothing may move within a run, and the axes behind must fit in a grid."""
        if extents["rows"] * extents["cols"] and not stays(extents):
            return f"the {extents['rows']} x {extents['cols']} matrices are transposed: there are no runs to copy"
        vectors = self.vectors(spec).at(extents)
        if config.even and config.threads_per_block % max(vectors, 1):
            return (
                f"a block of {config.threads_per_block} threads does not copy whole runs of {vectors} vectors: their "
                "number must divide the threads"
            )
        blocks, *behind = (along.at(extents) for along in self.grid(spec, config))
        threads = blocks * config.threads_per_block * config.unroll
        if threads > MAX_DIVIDEND:
            return f"threads copy {threads} vectors; it supports at most {MAX_DIVIDEND}"
        if found := beyond_grid(blocks, *behind):
            return found
        apart = max(spanned(spec, extents, end) for end in ("_in", "_out"))
        furthest = vectors + apart * spec.dtype.size // 16
        if furthest > _VECTOR_INDICES:
            return f"a vector's index may be {furthest}; it supports at most {_VECTOR_INDICES}"
        return None

    def edge_cases(self, spec: TransposeSpec, config: FlatCopyConfig) -> Iterator[Extents]:
        """Runs of one vector, of whole vectors and not, and of a block's; runs of several blocks, along two axes.

        Of an array that is one run, runs of several blocks.
        """
        vector, threads = 16 // spec.dtype.size, config.threads_per_block
        if not spec.batches:
            several = (2 * threads * config.unroll + 1) * vector
            yield copied(spec, several, ())
            yield copied(spec, several + 1, ())
        yield copied(spec, max(vector, 2), (7,), gap=vector)
        yield copied(spec, 8 * vector, (3, 5))
        yield copied(spec, 4 * vector - (vector > 1), (5,), gap=1)
        yield copied(spec, 2 * vector, (2, threads * config.unroll // 2 + 1))
        yield copied(spec, threads * vector, (2,), gap=2 * vector)

    def slow_path_reason(
        self, spec: TransposeSpec, config: FlatCopyConfig, extents: Extents, alignment: int, limits: Limits
    ) -> str | None:
        """Runs must be made of whole vectors."""
        run, vector = extents["rows"] * extents["cols"], 16 // spec.dtype.size
        if run % vector:
            return f"runs have {run} elements, no multiple of the {vector} of its vectors"
        return between_vectors(spec, extents, alignment, pitches=())

    def wider(self, config: FlatCopyConfig) -> FlatCopyConfig | None:
        """For runs that are not even."""
        return replace(config, even=False) if config.even else None

    def runs(self, spec: TransposeSpec) -> Expr:
        """Runs along the last of the other axes."""
        return size(f"batch{spec.batches - 1}") if spec.batches else ONE

    @made_once
    def vectors(self, spec: TransposeSpec) -> Expr:
        """Vectors of a run, the last perhaps filled in part."""
        return (size("rows") * size("cols")).ceil_div(16 // spec.dtype.size)

    @made_once
    def grid(self, spec: TransposeSpec, config: FlatCopyConfig) -> tuple[Expr, Expr, Expr]:
        """Blocks along those runs, along the axis before, and along all others."""
        behind = [size(f"batch{place}") for place in range(spec.batches - 1)]
        rest = ONE
        for extent in behind[:-1]:
            rest = extent if rest == ONE else rest * extent
        vectors = self.vectors(spec) * self.runs(spec)
        blocks = vectors.ceil_div(config.threads_per_block * config.unroll)
        return blocks, behind[-1] if behind else ONE, rest

    def divisors(self, spec: TransposeSpec, config: FlatCopyConfig) -> tuple[str, ...]:
        """What numbers are divided by: a vector's by those of a run, a block's along z by axes' extents."""
        of_run = () if config.even or not spec.batches else ("run_vectors",)
        return (*of_run, *(f"batch{place}" for place in range(1, spec.batches - 2)))

    def extra_arguments(self, spec: TransposeSpec, config: FlatCopyConfig) -> tuple[tuple[DType, Expr], ...]:
        """Numbers, as the template declares them.

        First what every thread needs: inverses of divisors; vectors from place to place along every axis, and from one
        of a thread's to the next; divisors, but for a run's vectors; runs, and vectors of each; 1 if all are whole,
        else 0. Then what only those need that copy elements: those of a run, and from place to place.
        """
        vectors = self.vectors(spec)
        divisors = {name: vectors if name == "run_vectors" else size(name) for name in self.divisors(spec, config)}
        vector = 16 // spec.dtype.size
        steps = [size(f"batch{place}{end}") for place in range(spec.batches) for end in ("_in", "_out")]
        left = size("rows") * size("cols") % vector
        for step in steps:
            left = left + step % vector
        apart = [step // vector for step in steps]
        counts = (self.runs(spec), vectors) if spec.batches else (vectors,)
        numbers = (
            *apart,
            *(self.on(spec, config, *apart[-2:]) if spec.batches and config.unroll > 1 else ()),
            *(divisor for name, divisor in divisors.items() if name != "run_vectors"),
            *((self.shift(spec, config),) if config.even else ()),
            *counts,
        )
        return (
            *((U64, inverse_of(divisor).called(f"{name}_inverse")) for name, divisor in divisors.items()),
            *((U32, number) for number in numbers),
            (I32, (ONE - left.at_most(1)).called("all_vectors")),
            *((I64, number) for number in (size("rows") * size("cols"), *steps)),
        )

    def on(self, spec: TransposeSpec, config: FlatCopyConfig, in_step: Expr, out_step: Expr) -> tuple[Expr, ...]:
        """How far a thread's next vector lies on, modulo 2^32: in the input, the output, and its run unless it is even.

        Args:
            spec: the spec.
            config: with its threads.
            in_step: vectors from run to run in the input.
            out_step: in the output.
        """
        vectors, threads = self.vectors(spec).at_least(1), constant(config.threads_per_block)
        runs, within = threads // vectors, threads % vectors
        on = [(runs * step + within) % _VECTOR_INDICES for step in (in_step, out_step)]
        found = (on[0].called("in_on"), on[1].called("out_on"))
        return found if config.even else (*found, within.called("on"))

    def shift(self, spec: TransposeSpec, config: FlatCopyConfig) -> Expr:
        """The exponent of the power of two that the vectors of a run are."""
        vectors, power, exponent = self.vectors(spec), 2, constant(0)
        while power <= config.threads_per_block:
            exponent, power = exponent + (vectors // power).at_most(1), 2 * power
        return exponent.called("run_shift")

    def inputs(self, spec: TransposeSpec, config: FlatCopyConfig) -> Mapping[str, object]:
        """By what numbers are multiplied instead of divided."""
        return {"inverses": self.divisors(spec, config)}

    @override
    def plan(self, spec: TransposeSpec, config: FlatCopyConfig) -> Plan:
        launch = Launch(
            grid=self.grid(spec, config),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "out", *self.extra_arguments(spec, config)),
        )
        return Plan((launch,))

    @override
    def demand(
        self, spec: TransposeSpec, config: FlatCopyConfig, extents: Extents, alignment: int, limits: Limits
    ) -> Demand:
        slow = self.slow_path_reason(spec, config, extents, alignment, limits) is not None
        blocks = prod(along.at(extents) for along in self.grid(spec, config))
        return copy_demand(
            spec,
            extents,
            blocks=blocks,
            threads_per_block=config.threads_per_block,
            vectors=config.unroll,
            of_thread=config.unroll * self._of_vector(spec)[slow] + (0 if config.even else 10),
        )

    @override
    def least(self, spec: TransposeSpec, config: FlatCopyConfig, limits: Limits) -> Least:
        of_thread = PROLOGUE + config.unroll * min(self._of_vector(spec)) + (0 if config.even else 10)
        return Least(of_thread / (config.unroll * (16 // spec.dtype.size)), COLD_SECONDS * of_thread)

    def _of_vector(self, spec: TransposeSpec) -> tuple[float, float]:
        """Slots of a vector: whole, and in loops over its elements in which each load is waited for."""
        return 2 * memory(16) + 12, 16 // spec.dtype.size * (2 * memory(spec.dtype.size) + 40)

    @override
    def bytes_in_flight(self, spec: TransposeSpec, config: FlatCopyConfig) -> int:
        return 16 * config.unroll
