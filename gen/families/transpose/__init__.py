"""Transposes: the axes of an array in another order."""

from gen.families.transpose.family import Transpose
from gen.families.transpose.literature import MoveSpec
from gen.families.transpose.spec import TransposeSpec, transpose
from gen.families.transpose.tiled import Naive, NaiveConfig, Tiled, TiledConfig

__all__ = ["MoveSpec", "Naive", "NaiveConfig", "Tiled", "TiledConfig", "Transpose", "TransposeSpec", "transpose"]
