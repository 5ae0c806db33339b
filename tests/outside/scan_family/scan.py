"""Scans: every element becomes the sum of itself and all before it. A family that gen does not bring.

All of it is this module and the folder `templates/scan`. With both in a folder on PYTHONPATH,
`gen --family scan:Scan list scan` shows it, and `gen --family scan:Scan prove scan` proves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gen.dtypes import F32, I64, DType, LoadModifier, read_dtype
from gen.errors import SpecError
from gen.families.base import (
    MAX_GRID_X,
    WIDEST,
    Algorithm,
    Array,
    Expected,
    Extents,
    Launch,
    Limits,
    Operand,
    Plan,
    Scratch,
)
from gen.families.config import Config, choice, tunable
from gen.families.exact import sums_are_exact
from gen.families.expr import ONE, Expr, size
from gen.families.extents import DenseFamily


@dataclass(frozen=True)
class ScanSpec:
    """The running sum of contiguous elements.

    Attributes:
        op: `sum`.
        dtype: of the input and the result.
    """

    op: str = "sum"
    dtype: DType = F32

    def __post_init__(self) -> None:
        if self.op != "sum":
            raise SpecError("scan.op", "must be 'sum'", repr(self.op))
        if self.dtype != F32:
            raise SpecError("scan.dtype", "must be f32", getattr(self.dtype, "name", repr(self.dtype)))

    @property
    def operands(self) -> tuple[Operand, ...]:
        """As many elements out as in."""
        return (Operand("in", "in", self.dtype, ("n",)), Operand("out", "out", self.dtype, ("n",)))

    @property
    def label(self) -> str:
        """For instance `sum_f32`."""
        return f"{self.op}_{self.dtype.name}"

    @property
    def summary(self) -> str:
        """What is computed."""
        return f"Each of n {self.dtype.cuda}s becomes the {self.op} of itself and all before it."

    def to_json(self) -> dict[str, Any]:
        """All fields."""
        return {"op": self.op, "dtype": self.dtype.name}


@dataclass(frozen=True, kw_only=True)
class BlockConfig(Config):
    """How `block` divides each round."""

    threads_per_block: int = tunable("tpb", (64, 256, 1024), base=1024, help="threads in the block, elements a round")


class Block(Algorithm[ScanSpec, BlockConfig]):
    """One block takes all, from left to right."""

    name = "block"
    template = "scan/block.cu.jinja"
    summary = (
        "One block goes through the array, an element a thread each round: every warp scans with shuffles, one warp "
        "scans the warps' sums, and a carry takes the total on to the next round."
    )
    config = BlockConfig

    def plan(self, spec: ScanSpec, config: BlockConfig) -> Plan:
        """One launch of one block."""
        n = size("n")
        launch = Launch(
            grid=(ONE.at_most(n), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "out", (I64, n)),
        )
        return Plan((launch,))

    def roundings(self, spec: ScanSpec, config: BlockConfig, extents: Extents, limits: Limits) -> int:
        """The block's scan, and the oracle's."""
        return _block_scan_roundings(extents["n"], config.threads_per_block) + _oracle_roundings(extents["n"])


@dataclass(frozen=True, kw_only=True)
class TotalsConfig(Config):
    """How `totals` divides the array between blocks and threads."""

    threads_per_block: int = tunable("tpb", (64, 128), base=128, help="threads in a block")
    items_per_thread: int = tunable("i", (1, 2, 4), base=4, help="elements of each thread, 32 apart")
    load_modifier: LoadModifier = choice(
        "ld", (LoadModifier.DEFAULT, LoadModifier.CS), help="cache operator of the second, last reading"
    )


class Totals(Algorithm[ScanSpec, TotalsConfig]):
    """Sums of shares first, so that every block can then begin where the one before it ends."""

    name = "totals"
    template = "scan/totals.cu.jinja"
    summary = (
        "Three launches: the blocks add up their shares, one block scans these totals, and every block scans its share "
        "from the total of all shares before it. The array is read twice and written once."
    )
    config = TotalsConfig

    def unsupported_extents(self, spec: ScanSpec, config: TotalsConfig, extents: Extents, limits: Limits) -> str | None:
        """One block for each share: the grid must hold them all."""
        blocks = self.blocks(config).at(extents)
        return f"it needs {blocks} blocks; a grid has at most {MAX_GRID_X}" if blocks > MAX_GRID_X else None

    def blocks(self, config: TotalsConfig) -> Expr:
        """One block for each share of the array."""
        return size("n").ceil_div(self.share(config))

    def before_last(self, config: TotalsConfig) -> Expr:
        """All shares but the last."""
        return (size("n").at_least(1) - 1) // self.share(config)

    def share(self, config: TotalsConfig) -> int:
        """Elements of a block."""
        return config.threads_per_block * config.items_per_thread

    def plan(self, spec: ScanSpec, config: TotalsConfig) -> Plan:
        """Totals of every share but the last, which nobody needs; their scan, in place; the scan of the shares."""
        block = (config.threads_per_block, 1, 1)
        before_last = self.before_last(config)
        reduce = Launch((before_last, ONE, ONE), block, ("in", "totals"), entry="_reduce")
        scan_totals = Launch(
            (before_last.at_most(1), ONE, ONE), block, ("totals", "totals", (I64, before_last)), entry="_scan_totals"
        )
        scan = Launch((self.blocks(config), ONE, ONE), block, ("in", "totals", "out", (I64, size("n"))))
        return Plan((reduce, scan_totals, scan), (Scratch("totals", before_last * spec.dtype.size),))

    def roundings(self, spec: ScanSpec, config: TotalsConfig, extents: Extents, limits: Limits) -> int:
        """From a first element to the last sum: its share's total, the totals' scan, two additions; or its own share.

        Within a share: one addition a row of its warp, the shuffles in it and over the warps, the same two additions.
        """
        share = config.items_per_thread + 5 + 5
        before_last = self.before_last(config).at(extents)
        totals = _block_scan_roundings(before_last, config.threads_per_block) if before_last else 0
        return share + totals + 2 + _oracle_roundings(extents["n"])


def _block_scan_roundings(n: int, threads_per_block: int) -> int:
    """Roundings of the partial `block_scan`: shuffles in each warp and over the warps, the carry, two additions."""
    return 5 + 5 + -(-n // threads_per_block) + 2


def _oracle_roundings(n: int) -> int:
    """The oracle adds one after the other in float64: n roundings of 2^-53, one of 2^-24 for every 2^29."""
    return -(-n // 2**29)


# The shape classes.
_SMALL, _LARGE = "at most 2^12 elements", "more than 2^12 elements"


class Scan(DenseFamily[ScanSpec]):
    """The family of scans."""

    name = "scan"
    summary = "running sums"
    algorithms: Mapping[str, Algorithm[ScanSpec, Any]] = {a.name: a for a in (Block(), Totals())}
    catalogue = (ScanSpec(),)
    templates = Path(__file__).parent / "templates"

    def from_json(self, content: Mapping[str, Any]) -> ScanSpec:
        """The inverse of `ScanSpec.to_json`."""
        return ScanSpec(content.get("op", ""), read_dtype(content.get("dtype"), "scan.dtype"))

    def oracle(self, spec: ScanSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """The running sum in float64; what its own roundings allow, `roundings` counts."""
        wide = inputs["in"].astype(np.float64)
        with np.errstate(invalid="ignore"):
            value = np.cumsum(wide)
        magnitude = np.cumsum(np.where(np.isfinite(wide), np.abs(wide), 0.0))
        if sums_are_exact(spec.dtype, float(magnitude.max(initial=0.0)), wide):
            return {"out": Expected(value.astype(spec.dtype.numpy))}
        return {"out": Expected(value, magnitude, spec.dtype)}

    def shape_classes(self, spec: ScanSpec) -> tuple[str, ...]:
        """By the number of elements."""
        return (_SMALL, _LARGE)

    def shape_class(self, spec: ScanSpec, extents: Extents, alignment: int = WIDEST) -> str:
        """By the number of elements: a block's work, or more."""
        return _SMALL if extents["n"] <= 2**12 else _LARGE

    def representative(self, spec: ScanSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        return {"n": 2**12 if shape_class == _SMALL else 2**26}

    def cases(self, spec: ScanSpec) -> Iterator[Extents]:
        """Nothing, one, one off a warp and a share; more shares than the block that scans their totals has threads."""
        for n in (0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 129, 511, 513, 1025, 128 * 130 + 3):
            yield {"n": n}

    def base(self, spec: ScanSpec, shape_class: str) -> tuple[str, Config]:
        """`block` where a second launch would cost more than the work; else `totals`."""
        return ("block", BlockConfig()) if shape_class == _SMALL else ("totals", TotalsConfig())
