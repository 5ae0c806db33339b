"""Matrices cut into tiles, one block each."""

from __future__ import annotations

from dataclasses import dataclass

from gen.families.base import Extents, beyond_grid
from gen.families.expr import ONE, Expr


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

    @property
    def across(self) -> Expr:
        """Tiles in a row of tiles."""
        return self.cols.ceil_div(self.tile_cols).called("tiles_across")

    @property
    def down(self) -> Expr:
        """Tiles in a column of tiles."""
        return self.rows.ceil_div(self.tile_rows).called("tiles_down")

    @property
    def count(self) -> Expr:
        """All tiles; 0 for an empty matrix."""
        tiles = self.down * self.across
        return tiles if self.matrices == ONE else tiles * self.matrices

    def uncovered(self, extents: Extents) -> str | None:
        """Why a grid cannot hold them, all folded into its x."""
        return beyond_grid(self.count.at(extents))

    def mostly_outside(self, extents: Extents) -> str | None:
        """What part of many tiles lies outside, if three quarters or more do; None if less."""
        count, inside = self.count.at(extents), self.matrices.at(extents)
        inside *= self.rows.at(extents) * self.cols.at(extents)
        area = count * self.tile_rows * self.tile_cols
        return f"{100 - 100 * inside // area} % of its tiles lie outside" if count > 1 and 4 * inside <= area else None
