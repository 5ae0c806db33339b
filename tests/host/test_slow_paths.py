"""What an algorithm says is slow is moved by elements, some or all of it, the rest by vectors: the CPU run counts."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gen.arch import Limits
from gen.dtypes import B8, B16, B64
from gen.families.base import Extents
from gen.families.config import Config
from gen.families.extents import layout_of
from gen.families.names import variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.copies import FlatCopyConfig, RowCopyConfig
from gen.families.transpose.algorithms.in_place import SwapTileConfig
from gen.families.transpose.algorithms.skinny import Few, InterleaveConfig, SquaresConfig
from gen.families.transpose.algorithms.tiled import TiledConfig
from gen.families.transpose.algorithms.vectors import ShiftTileConfig, VectorTileConfig, WindowTileConfig
from gen.proof.cases import Case
from gen.proof.host import HostKernel, HostRunner
from gen.proof.prover import check
from gen.proof.trace import traffic

FAMILY, H100 = Transpose(), Limits.of("sm_90")
TURN, EACH, RUNS = TransposeSpec(), TransposeSpec((0, 2, 1)), TransposeSpec((1, 0, 2), B16)
TILE = VectorTileConfig(lanes=8, groups=8)
HALF = VectorTileConfig(vec_bytes=8, lanes=8, groups=8, index_bits=32)
COLS, ROWS = InterleaveConfig(few=Few.COLS, count=3), InterleaveConfig(count=8)
IN_PLACE = TransposeSpec((0, 2, 1), in_place=True)


def problem(spec: TransposeSpec, shape: tuple[int, ...], *gaps: int) -> Extents:
    """Arrays whose rows lie so many elements apart."""
    operands = spec.operands
    known = dict(zip(dict.fromkeys(str(axis) for axis in operands[0].axes), shape, strict=True))
    for operand, gap in zip(operands, gaps or (0, 0), strict=False):
        if operand.pitch:
            known[operand.pitch] = known[str(operand.axes[-1])] + gap
    return FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in operands})


@pytest.mark.parametrize(
    ("spec", "config", "shape", "gaps"),
    [
        (TURN, TILE, (64, 96), (0, 0)),
        (TURN, TILE, (64, 96), (4, 8)),
        (TURN, TILE, (64, 96), (1, 0)),
        (TURN, TILE, (64, 96), (0, 2)),
        (TURN, HALF, (64, 96), (0, 2)),
        (TURN, HALF, (64, 96), (0, 1)),
        (TransposeSpec(dtype=B8), TILE, (256, 384), (0, 16)),
        (TransposeSpec(dtype=B8), TILE, (256, 384), (0, 8)),
        (EACH, TILE, (3, 64, 32), (0, 0)),
        (EACH, TILE, (3, 64, 32), (2, 0)),
        (TURN, COLS, (1024, 3), (0, 0)),
        (TURN, COLS, (1023, 3), (0, 0)),
        (TURN, COLS, (1024, 3), (0, 1)),
        (TURN, COLS, (1023, 3), (0, 1)),
        (TURN, ROWS, (8, 1024), (0, 0)),
        (TURN, ROWS, (8, 1024), (2, 0)),
        (TransposeSpec(dtype=B64), ROWS, (8, 1025), (1, 0)),
        (TransposeSpec(dtype=B64), ROWS, (8, 1025), (0, 0)),
        (EACH, InterleaveConfig(few=Few.COLS, count=3), (2, 512, 3), (0, 0)),
        (EACH, InterleaveConfig(few=Few.COLS, count=3), (2, 510, 3), (0, 2)),
        (EACH, SquaresConfig(), (40, 16, 16), (0, 0)),
        (RUNS, FlatCopyConfig(), (20, 30, 64), (0, 0)),
        (RUNS, FlatCopyConfig(), (20, 30, 64), (8, 0)),
        (RUNS, FlatCopyConfig(), (20, 30, 64), (0, 4)),
        (RUNS, FlatCopyConfig(), (20, 30, 60), (4, 4)),
        (IN_PLACE, SwapTileConfig(vec_bytes=16, lanes=8), (2, 64), (0,)),
        (IN_PLACE, SwapTileConfig(vec_bytes=16, lanes=8), (2, 64), (4,)),
        (IN_PLACE, SwapTileConfig(vec_bytes=16, lanes=8), (2, 64), (1,)),
        (IN_PLACE, SwapTileConfig(vec_bytes=4, lanes=32), (2, 64), (1,)),
    ],
)  # fmt: skip
def test_slow_is_what_moves_elements_instead_of_vectors(
    host_runner: HostRunner, spec: TransposeSpec, config: Config, shape: tuple[int, ...], gaps: tuple[int, ...]
) -> None:
    algorithm = next(one for one in FAMILY.algorithms.values() if isinstance(config, one.config))
    extents = problem(spec, shape, *gaps)
    made = variant(FAMILY, spec, algorithm, config)
    (kernel,) = host_runner.load([made])
    assert isinstance(kernel, HostKernel)
    found = traffic(kernel, host_runner.limits, extents).of("global")
    wide = sum(access.requested_bytes for access in found) / sum(access.lanes for access in found)
    vector = getattr(config, "vec_bytes", 16)
    reason = algorithm.slow_path_reason(spec, config, extents, 16, H100)
    assert wide > 0.98 * vector if reason is None else wide < 0.6 * vector or vector == spec.dtype.size


@pytest.mark.parametrize("offset", [1, 4, 5])
@pytest.mark.parametrize(
    ("spec", "config", "shape"),
    [
        (TURN, TILE, (64, 96)), (TURN, HALF, (64, 96)), (TURN, COLS, (1024, 3)), (TURN, ROWS, (8, 1024)),
        (EACH, SquaresConfig(), (40, 16, 16)), (RUNS, FlatCopyConfig(), (20, 30, 64)),
        (TransposeSpec((0, 1), B16), RowCopyConfig(lanes=256, unroll=1), (4, 512)),
    ],
    ids=lambda one: type(one).__name__.removesuffix("Config") if isinstance(one, Config) else "",
)  # fmt: skip
def test_either_array_may_begin_between_vectors_whatever_the_other_does(
    host_runner: HostRunner, spec: TransposeSpec, config: Config, shape: tuple[int, ...], offset: int
) -> None:
    algorithm = next(one for one in FAMILY.algorithms.values() if isinstance(config, one.config))
    (kernel,) = host_runner.load([variant(FAMILY, spec, algorithm, config)])
    assert check(kernel, host_runner.limits, Case(problem(spec, shape), offset=offset)) is None


@pytest.mark.parametrize("config", [TILE, HALF, COLS, SquaresConfig()], ids=lambda config: type(config).__name__)
def test_what_moves_vectors_is_slow_where_an_address_is_not_aligned_to_them(config: Config) -> None:
    algorithm = next(one for one in FAMILY.algorithms.values() if isinstance(config, one.config))
    sizes = (64, 16, 16) if isinstance(config, SquaresConfig) else (4, 1024, 32)
    extents = problem(EACH, sizes)
    vector = getattr(config, "vec_bytes", 16)
    for alignment in (4, 8, 16):
        reason = algorithm.slow_path_reason(EACH, config, extents, alignment, H100)
        assert (reason is None) == (alignment >= vector), reason
        if reason is not None:
            assert reason == f"addresses are aligned to {alignment} bytes only, and its vectors need {vector}"


def test_what_swaps_vectors_in_place_is_slow_where_the_address_is_not_aligned_to_them() -> None:
    algorithm, extents = FAMILY.algorithms["swap_tile"], problem(IN_PLACE, (2, 64), 0)
    for vec_bytes, alignment in ((16, 16), (8, 8), (8, 16), (4, 4)):
        config = SwapTileConfig(vec_bytes=vec_bytes)
        assert algorithm.slow_path_reason(IN_PLACE, config, extents, alignment, H100) is None
    reason = "the address is a multiple of 8 bytes, and its vectors have 16"
    assert algorithm.slow_path_reason(IN_PLACE, SwapTileConfig(vec_bytes=16), extents, 8, H100) == reason


@pytest.mark.parametrize(
    "config",
    [
        TILE, TiledConfig(), WindowTileConfig(tile_rows=64, tile_cols=32, warps=8),
        ShiftTileConfig(groups=64, chunks=2, warps=8),
    ],
    ids=lambda config: type(config).__name__,
)  # fmt: skip
def test_tiles_that_lie_outside_but_for_a_quarter_are_slow(config: Config) -> None:
    algorithm: Any = next(one for one in FAMILY.algorithms.values() if isinstance(config, one.config))
    tile = algorithm.tiles(TURN, config)
    rows, cols = tile.tile_rows, tile.tile_cols
    assert algorithm.slow_path_reason(TURN, config, problem(TURN, (100 * rows, cols * 3 // 8)), 16, H100) is None
    single_tile = problem(TURN, (rows // 4, cols // 4))
    assert algorithm.slow_path_reason(TURN, config, single_tile, 16, H100) is None
    for spec, shape in (
        (TURN, (100 * rows, cols // 4)), (TURN, (rows // 8, 100 * cols)), (EACH, (1000, rows // 4, cols // 2)),
    ):  # fmt: skip
        reason = algorithm.slow_path_reason(spec, config, problem(spec, shape), 16, H100)
        assert reason is not None
        assert re.fullmatch(r"[78]\d % of the area of its tiles lies outside the array", reason)
