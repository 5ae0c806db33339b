"""Probes: what a pattern of accesses costs, the work itself being next to nothing."""

from gen.families.probe.algorithms import Offset, Records, Tile
from gen.families.probe.family import Probes
from gen.families.probe.spec import BITS, OffsetSpec, ProbeSpec, RecordSpec, TileSpec

__all__ = ["BITS", "Offset", "OffsetSpec", "ProbeSpec", "Probes", "RecordSpec", "Records", "Tile", "TileSpec"]
