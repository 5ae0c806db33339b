"""Tiles of small elements that move by words: they fit shared memory and cover what they must, whatever the axes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32
from gen.families import FAMILIES
from gen.families.base import Extents, Limits
from gen.families.names import find_variant, illegal, search_space
from gen.families.transpose import TransposeSpec
from gen.families.transpose.algorithms.word_tile import WordTile, WordTileConfig
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from tests.host.test_packed import problem, problems

WORD_TILE, SPEC = WordTile(), TransposeSpec((1, 0), B8)
LIMITS = Limits.of("sm_90")


def arguments(spec: TransposeSpec, config: WordTileConfig, extents: Extents) -> dict[str, int]:
    """What the kernel is given, by the words of its expressions."""
    (launch,) = WORD_TILE.plan(spec, config).launches
    given = [one[1] for one in launch.arguments if not isinstance(one, str)]
    return {one.word: one.at(extents) for one in given if one.word}


@given(problems(), st.data())
def test_tiles_fit_and_cover_all_rows_and_columns(
    drawn: tuple[TransposeSpec, Extents], data: st.DataObject
) -> None:  # fmt: skip
    spec, extents = TransposeSpec(drawn[0].axes, data.draw(st.sampled_from((B8, B16)))), drawn[1]
    if WORD_TILE.illegal(spec, WordTileConfig(axes=len(spec.axes))):
        return
    drawn_config = data.draw(st.sampled_from(search_space(WORD_TILE, spec)))
    assert isinstance(drawn_config, WordTileConfig)
    config = replace(drawn_config, axes=len(spec.axes))
    if WORD_TILE.unsupported_extents(spec, config, extents, LIMITS):
        return
    grain, given = 4 // spec.dtype.size, arguments(spec, config, extents)
    high, wide, pitch, dense = (given[name] for name in ("tile_rows", "tile_cols", "vectors_of_a_row", "dense"))
    read = high + grain - 1
    assert 1 <= high <= config.row_words * grain
    assert high % grain == 0
    assert 1 <= wide <= 256
    if dense:
        assert wide == given["col_run"] == extents["group_cols"]
        assert (4 * grain - 1 + read * wide + 2 * grain - 1) // (4 * grain) < config.tile_words // 4
    else:
        # A square may begin at the last column, in the midst of a vector, and reaches into the next word.
        assert 4 * pitch > ((4 * grain - 1) + (wide - 1)) // grain + 1
        assert read * pitch + read // grain <= config.tile_words // 4
        assert pitch <= config.threads_per_block
    runs = extents["group_cols"] // given["col_run"]
    assert runs * given["col_run"] == extents["group_cols"]
    tiles = -(-extents["group_rows"] // high) * -(-given["col_run"] // wide) * runs * extents["group_others"]
    assert WORD_TILE.tiles(spec, config).at(extents) == tiles


def test_shared_memory_meets_most_banks_and_rows_of_17_bytes_move_once(host_runner: HostRunner) -> None:
    """Where boxes of the same elements read sectors again, and lanes wait for each other."""
    extents = problem(SPEC, (4001, 17))
    names = [f"transpose_10_b8__{tag}" for tag in ("word_tile_a2_r120_w8192_tpb256_ocol", "packed_a2_tpb512_u4")]
    wavefronts, sectors = [], []
    for kernel in host_runner.load([find_variant(FAMILIES, name, {}) for name in names]):
        accesses = traffic(kernel, host_runner.limits, extents).accesses
        shared = [one for one in accesses if one.space == "shared"]
        wavefronts.append(sum(one.wavefronts for one in shared) / sum(one.least_wavefronts for one in shared))
        sectors.append(sum(one.sectors for one in accesses if one.space == "global"))
    assert wavefronts[0] < 1.15 < wavefronts[1]
    assert sectors[0] < 0.9 * sectors[1]


@pytest.mark.parametrize(
    ("spec", "config", "says"),
    [
        (TransposeSpec((2, 1, 0), B32), {}, "elements of 4 bytes are whole words"),
        (TransposeSpec((0, 2, 1), B16, in_place=True), {}, "it cannot work in place"),
        (TransposeSpec((1, 0), B16), {}, "it is for 3 axes, and the array has 2"),
        (TransposeSpec((0, 1, 2), B16), {}, "it transposes, and here the axes keep their order"),
        (
            TransposeSpec((2, 1, 0), B8),
            {"row_words": 120, "threads_per_block": 64},
            "64 threads do not write 120",
        ),
    ],
)
def test_word_tile_says_what_it_cannot_compute(spec: TransposeSpec, config: dict[str, int], says: str) -> None:
    reason = illegal(WORD_TILE, spec, WordTileConfig(**{"axes": 3, **config}))  # type: ignore[arg-type]
    assert reason is not None
    assert says in reason


@pytest.mark.parametrize(
    ("shape", "gaps", "says"),
    [
        ((40, 30), (0, 3), "rows of the output have gaps between them"),
        ((40, 7, 1), (1, 0), "elements of the input have gaps between them"),
        ((600, 600), (0, 0), "the tile holds fewer than 8 columns of as many rows"),
    ],
)
def test_word_tile_says_what_sizes_it_does_not_support(
    shape: tuple[int, ...], gaps: tuple[int, int], says: str
) -> None:
    spec = TransposeSpec(tuple(reversed(range(len(shape)))), B8)
    config = WordTileConfig(axes=len(shape), row_words=120, tile_words=2048, threads_per_block=128)
    assert WORD_TILE.unsupported_extents(spec, config, problem(spec, shape, *gaps), LIMITS) == says
