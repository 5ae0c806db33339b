"""Many small matrices that follow each other, of whole squares of elements: a thread turns squares in registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gen.arch import REGISTERS_PER_BLOCK
from gen.dtypes import I32, U32, LoadModifier, StoreModifier
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import Config, load_modifier, store_modifier, tunable
from gen.families.expr import ONE, Expr, constant, size
from gen.families.transpose.arranged import turned
from gen.families.transpose.blocks import StagedAlgorithm, arguments, between_vectors, matrices, only_turns
from gen.families.transpose.flat import Small, SmallConfig
from gen.families.transpose.packed import inverse
from gen.families.transpose.spec import TransposeSpec

MOST_BYTES = 32768  # of a matrix
_VECTOR = 16  # bytes
_OTHER_REGISTERS = 24  # about so many of a thread, beside its two squares


@dataclass(frozen=True, kw_only=True)
class SquaresConfig(Config):
    """How many squares a block of `squares` turns."""

    threads_per_block: int = tunable("tpb", (64, 128, 256, 512), base=256, help="threads of a block")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="squares of each thread")
    load_modifier: LoadModifier = load_modifier(LoadModifier.LDG, LoadModifier.EVICT_LAST)
    store_modifier: StoreModifier = store_modifier(StoreModifier.DEFAULT, StoreModifier.CS, StoreModifier.EVICT_LAST)


class Squares(StagedAlgorithm[SquaresConfig]):
    """Small matrices of whole squares."""

    name = "squares"
    template = "transpose/squares.cu.jinja"
    summary = (
        "A thread reads squares of elements by vectors, wherever they lie in as many small matrices as a block takes, "
        "and turns them in registers; the block writes the turned matrices in one piece."
    )
    config = SquaresConfig
    takes = TransposeSpec

    def illegal(self, spec: TransposeSpec, config: SquaresConfig) -> str | None:
        """Elements are moved in vectors."""
        return only_turns(spec)

    def unsearched(self, spec: TransposeSpec, config: SquaresConfig) -> str | None:
        """The squares of a thread, and one more, fit in registers."""
        words = (config.unroll + 1) * self.elements(spec) * 4
        if words > 160 or (words + _OTHER_REGISTERS) * config.threads_per_block > REGISTERS_PER_BLOCK:
            return f"{config.threads_per_block} threads with {words} words in squares need too many registers"
        return None

    def uncovered(self, spec: TransposeSpec, config: SquaresConfig, extents: Extents, limits: Limits) -> str | None:
        """A matrix must be made of whole squares, no more than a block's, and matrices must follow each other."""
        rows, cols, per = extents["rows"], extents["cols"], self.elements(spec)
        if rows % per or cols % per or rows * cols == 0:
            return f"the matrices are {rows} x {cols}: no whole squares of {per} x {per}"
        squares, most = rows * cols // per**2, config.threads_per_block * config.unroll
        if squares > most:
            return f"a matrix has {squares} squares; it takes {most} at most"
        apart = Small().uncovered(spec, SmallConfig(piece=MOST_BYTES), extents, limits)
        if apart is not None:
            return apart
        if matrices(spec).at(extents) >= 2**32:
            return f"there are {matrices(spec).at(extents)} matrices; it takes 2^32 - 1 at most"
        return super().uncovered(spec, config, extents, limits)

    def edge_cases(self, spec: TransposeSpec, config: SquaresConfig) -> Iterator[Extents]:
        """Few matrices, and of more blocks than one; a matrix of few squares, of many and of a whole block's."""
        per, most = self.elements(spec), config.threads_per_block * config.unroll
        widest = min(most, MOST_BYTES // (_VECTOR * per)) // 2
        for high, wide, many in ((3, 7, 2), (3, 2, most // 6 + 1), (2, 2, 1), (2, widest, 1), (5, 11, 1)):
            yield turned(spec, high * per, wide * per, many)

    def slow(self, spec: TransposeSpec, config: SquaresConfig, extents: Extents, alignment: int) -> str | None:
        """Matrices must begin at whole vectors."""
        return between_vectors(spec, extents, alignment, pitches=())

    def elements(self, spec: TransposeSpec) -> int:
        """Of a vector."""
        return _VECTOR // spec.dtype.size

    def staged_bytes(self, spec: TransposeSpec, config: SquaresConfig) -> int:
        """Shared memory of a block."""
        return config.threads_per_block * config.unroll * self.elements(spec) * _VECTOR

    def sides(self, spec: TransposeSpec) -> tuple[Expr, Expr]:
        """Squares down a matrix, and across it; 1 at least."""
        per = self.elements(spec)
        return (size("rows") // per).at_least(1), (size("cols") // per).at_least(1)

    def together(self, spec: TransposeSpec, config: SquaresConfig) -> Expr:
        """Matrices of a block."""
        high, wide = self.sides(spec)
        return (constant(config.threads_per_block * config.unroll) // (high * wide)).at_least(1)

    def grid(self, spec: TransposeSpec, config: SquaresConfig) -> Expr:
        """Blocks."""
        return matrices(spec).ceil_div(self.together(spec, config))

    def plan(self, spec: TransposeSpec, config: SquaresConfig) -> Plan:
        """One launch."""
        high, wide = self.sides(spec)
        area = high * wide
        told = (
            (I32, high),
            (I32, wide),
            (I32, area),
            (U32, inverse(wide)),
            (U32, inverse(area)),
        )
        launch = Launch(
            grid=(self.grid(spec, config), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=(*arguments(spec, self.together(spec, config), ONE), *told),
            shared_bytes=constant(self.dynamic_bytes(spec, config)),
        )
        return Plan((launch,))

    def bytes_in_flight(self, spec: TransposeSpec, config: SquaresConfig) -> int:
        """All squares of a thread."""
        return config.unroll * self.elements(spec) * _VECTOR
