"""What a reduction gets untuned: the stated default of every shape class."""

from __future__ import annotations

from gen.dtypes import LoadModifier
from gen.families.config import Config
from gen.families.reduction.classes import ShapeClass
from gen.families.reduction.columns import ColumnsConfig
from gen.families.reduction.finish import Finish
from gen.families.reduction.flags import FlagsConfig
from gen.families.reduction.grid import GridConfig
from gen.families.reduction.rows import RowsConfig
from gen.families.reduction.single import SingleConfig
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.stream import StreamConfig
from gen.families.reduction.strided import StridedConfig
from gen.families.reduction.text import state_bytes


def base(spec: ReductionSpec, name: str) -> tuple[str, Config]:
    """The stated default: what is fast on an H200, and nearly so on an H100, for most operators and types.

    Vectors are as wide as is fast, narrower where a thread's columns would take more than its registers hold.
    """
    one, size = ShapeClass(name), spec.dtype.size
    per_column, single = state_bytes(spec), max(size, 4)
    narrow = max((v for v in (4, 8, 16) if v >= size and v // size * per_column <= 64), default=single)
    match one:
        case ShapeClass.FEW:
            return "single", SingleConfig()
        case ShapeClass.SMALL:
            return "grid", GridConfig(threads_per_block=1024, unroll=8, blocks_per_sm=1)
        case ShapeClass.MIDDLE:
            return "flags", FlagsConfig(threads_per_block=256, unroll=2 if size >= 4 else 4, blocks_per_sm=8)
        case ShapeClass.LARGE | ShapeClass.FEW_LONG_ROWS:
            streaming = LoadModifier.CS
            return "flags", FlagsConfig(threads_per_block=512, unroll=8, blocks_per_sm=2, load_modifier=streaming)
        case ShapeClass.LONG_ROWS:
            return "grid", GridConfig(threads_per_block=256, unroll=8, blocks_per_sm=2)
        case ShapeClass.TINY_ROWS:
            return "rows", RowsConfig(threads_per_block=128, group=1, unroll=4, vec_bytes=single)
        case ShapeClass.SHORT_ROWS:
            group = min(2 ** (max(64 * size // 64, 1).bit_length() - 1), 32)
            streaming = LoadModifier.CS
            return "rows", RowsConfig(threads_per_block=128, group=group, unroll=4, load_modifier=streaming)
        case ShapeClass.ROWS:
            return "rows", RowsConfig(threads_per_block=256, group=32, unroll=8, vec_bytes=single)
        case ShapeClass.TALL_COLUMNS:
            threads = 512 if narrow // size * per_column <= 64 else 256  # as many as shared memory has states for
            return "stream", StreamConfig(
                threads_per_block=threads, unroll=4, vec_bytes=narrow, blocks_per_sm=2, finish=Finish.FLAGS
            )
        case ShapeClass.COLUMNS:
            rows = 32 if single // size * per_column <= 64 else 16  # the same
            return "columns", ColumnsConfig(
                columns_x=16, rows_y=rows, unroll=8, vec_bytes=single, blocks_per_sm=2, finish=Finish.FLAGS
            )
        case ShapeClass.WIDE_COLUMNS:
            return "columns", ColumnsConfig(
                columns_x=32, rows_y=8, unroll=8, vec_bytes=narrow, blocks_per_sm=2, finish=Finish.FLAGS
            )
    return "strided", StridedConfig()
