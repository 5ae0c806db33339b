"""Boxes of several axes: they cover every array once, their runs are long, and both arrays move in whole sectors."""

from __future__ import annotations

from itertools import cycle
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128
from gen.families import FAMILIES
from gen.families.base import Extents, Limits
from gen.families.config import pairwise
from gen.families.extents import extents_of, layout_of
from gen.families.names import find_variant, illegal, search_space, variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.packed import (
    FILLED_BYTES,
    FILLED_UNITS,
    Packed,
    PackedConfig,
    Reads,
    base_config,
    boxes_of,
)
from gen.families.transpose.algorithms.vectors import WindowTileConfig
from gen.families.transpose.values import BITS
from gen.proof.cases import OFFSETS, Case, Content
from gen.proof.host import HostKernel, HostRunner
from gen.proof.prover import check
from gen.proof.trace import traffic

FAMILY, PACKED = Transpose(), Packed()
ELEMENTS = (B8, B16, B32, B64, B128)
LENGTHS = (0, 1, 2, 3, 5, 7, 8, 11, 16, 32, 63, 64, 65, 100, 128, 1000, 5000, 100_000)


def problem(spec: TransposeSpec, shape: tuple[int, ...], in_gap: int = 0, out_gap: int = 0) -> Extents:
    """Arrays whose rows are so many elements apart."""
    known = dict(zip(map(str, spec.operands[0].axes), shape, strict=True))
    for operand, gap in zip(spec.operands, (in_gap, out_gap), strict=True):
        known[operand.pitch] = known[str(operand.axes[-1])] + gap
    return FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})


@st.composite
def problems(draw: st.DrawFn) -> tuple[TransposeSpec, Extents]:
    """Of three to five axes, some of them long, dense or pitched."""
    axes = tuple(draw(st.permutations(range(draw(st.integers(3, 5))))))
    shape = tuple(draw(st.sampled_from(LENGTHS)) for _ in axes)
    gaps = st.sampled_from((0, 0, 1, 3, 16))
    spec = TransposeSpec(axes, draw(st.sampled_from(tuple(BITS.values()))))
    return spec, problem(spec, shape, draw(gaps), draw(gaps))


@given(problems())
def test_boxes_cover_each_axis_and_fill_what_they_may(drawn: tuple[TransposeSpec, Extents]) -> None:
    spec, extents = drawn
    found = boxes_of(spec, extents)
    assert all(1 <= places <= max(axis.extent, 1) for axis, places in zip(found.axes, found.box, strict=True))
    elements, units = prod(found.box), found.units
    assert elements % found.runs.read == elements % found.runs.written == 0
    assert units.elements == elements <= FILLED_BYTES // spec.dtype.size
    assert elements * min(spec.dtype.size, 4) / 4 <= min(units.read, units.written)
    assert max(units.read, units.written) <= FILLED_UNITS


@given(problems())
def test_untuned_every_problem_gets_a_kernel_that_takes_it_on_any_device(drawn: tuple[TransposeSpec, Extents]) -> None:
    spec, extents = drawn
    shape_class = FAMILY.shape_class(spec, extents)
    made = variant(FAMILY, spec, *FAMILY.base(spec, shape_class))
    reason = made.algorithm.unsupported_extents(spec, made.config, extents, Limits.of("sm_75"))
    assert reason is None or "at most 2147483647" in reason or "runs; it supports" in reason


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((0, 3, 2, 1), (1000, 1000, 3, 5)), ((2, 1, 0), (1_000_000, 7, 11)), ((0, 3, 2, 1), (4096, 4, 4, 8)),
        ((3, 2, 1, 0), (128, 128, 128, 12)), ((1, 0, 3, 2), (100, 100, 4, 8)), ((0, 2, 1, 3), (100_000, 4, 5, 3)),
        ((5, 4, 3, 2, 1, 0), (20, 20, 20, 20, 20, 20)),
    ],
)  # fmt: skip
def test_untuned_short_runs_are_packed_into_longer_ones(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    spec = TransposeSpec(axes, B32)
    extents = extents_of(FAMILY, spec, shape)
    shape_class = FAMILY.shape_class(spec, extents)
    assert FAMILY.base(spec, shape_class) == ("packed", PackedConfig(axes=len(axes)))
    runs = boxes_of(spec, extents).runs
    assert min(runs.read, runs.written) * spec.dtype.size >= 128 > min(extents["rows"], extents["cols"])


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((0, 3, 1, 2), (64, 224, 224, 3)), ((0, 2, 3, 1), (64, 3, 224, 224)), ((0, 2, 1), (4096, 32, 32)),
        ((0, 2, 1, 3), (32, 128, 16, 64)), ((0, 2, 1), (16, 1000, 1000)),
    ],
)  # fmt: skip
def test_what_has_long_runs_is_not_packed(axes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    for dtype in ELEMENTS:
        spec = TransposeSpec(axes, dtype)
        found = FAMILY.shape_class(spec, extents_of(FAMILY, spec, shape))
        assert FAMILY.base(spec, found)[0] != "packed"


def test_what_no_box_makes_longer_is_left_to_tiles() -> None:
    """Rows of 100 bytes on both sides: a second axis along would take the box beyond what it may hold."""
    spec = TransposeSpec((2, 1, 0), B8)
    for middle in (2, 100, 5000):
        found = FAMILY.shape_class(spec, extents_of(FAMILY, spec, (100, middle, 100)))
        assert FAMILY.base(spec, found)[0] != "packed"


def test_aligned_runs_of_whole_sectors_are_left_to_tiles() -> None:
    shape = (128, 128, 128, 16)
    found = [TransposeSpec((3, 2, 1, 0), dtype) for dtype in ELEMENTS]
    names = [FAMILY.base(spec, FAMILY.shape_class(spec, extents_of(FAMILY, spec, shape)))[0] for spec in found]
    assert names == ["packed", "packed", "vector_tile", "vector_tile", "vector_tile"]


def test_boxes_of_every_kind_equal_numpy(host_runner: HostRunner) -> None:
    """Several boxes along an axis, the last of them cut off; runs that a gap ends; rows that begin between words."""
    forms = cycle(
        (
            ((0, 3, 2, 1), (3, 700, 3, 5)), ((2, 1, 0), (130, 7, 67)), ((1, 0, 2), (90, 80, 5)),
            ((1, 0, 3, 2), (11, 37, 4, 9)), ((4, 3, 2, 1, 0), (7, 6, 5, 9, 4)), ((0, 2, 1), (5, 46, 16)),
            ((1, 0), (97, 203)),
        )
    )  # fmt: skip
    gaps = cycle(((0, 0), (1, 0), (0, 3), (5, 2)))
    covers = pairwise(tuple(search_space(PACKED, TransposeSpec((2, 1, 0), B8))))
    words, singly = ([one for one in covers if ("_rwords" in one.tag) == by_words] for by_words in (True, False))
    chosen = [*zip(singly, forms, cycle(ELEMENTS), strict=False), *zip(words, forms, cycle((B8, B16)), strict=False)]
    specs = [TransposeSpec(axes, dtype) for _, (axes, _), dtype in chosen]
    made = [variant(FAMILY, spec, PACKED, one) for spec, (one, _, _) in zip(specs, chosen, strict=True)]
    kernels = host_runner.load(made)
    for number, (spec, one, kernel, (_, (_, shape), _)) in enumerate(zip(specs, made, kernels, chosen, strict=True)):
        extents = problem(spec, shape, *next(gaps))
        if one.algorithm.unsupported_extents(spec, one.config, extents, host_runner.limits) is None:
            case = Case(extents, Content.RANDOM, number, offset=OFFSETS[number % len(OFFSETS)])
            failure = check(kernel, host_runner.limits, case)
            assert failure is None, str(failure)


@pytest.mark.parametrize("tag", ["tpb512_u4", "tpb512_u4_rwords"])
def test_full_boxes_of_whole_words_are_written_between_words_too(tag: str, host_runner: HostRunner) -> None:
    """They have a word more for each run then, which no thread has kept."""
    made = find_variant(FAMILIES, f"transpose_021_b16__packed_a3_{tag}", {})
    spec = TransposeSpec((0, 2, 1), B16)
    (kernel,) = host_runner.load([made])
    for offset in (0, 14):
        failure = check(kernel, host_runner.limits, Case(problem(spec, (129, 8, 33)), Content.RANDOM, 3, offset=offset))
        assert failure is None, str(failure)


def test_packed_moves_whole_sectors_where_a_tile_is_mostly_empty(host_runner: HostRunner) -> None:
    spec = TransposeSpec((0, 3, 2, 1), B32)
    extents = extents_of(FAMILY, spec, (8, 512, 3, 5))
    least = 2 * prod((8, 512, 3, 5)) * spec.dtype.size
    tile = WindowTileConfig(tile_rows=128, tile_cols=64, warps=32)
    variants = [variant(FAMILY, spec, PACKED, base_config(spec)), variant(FAMILY, spec, "window_tile", tile)]
    moved = []
    for kernel in host_runner.load(variants):
        assert isinstance(kernel, HostKernel)
        moved.append(traffic(kernel, host_runner.limits, extents).moved_bytes() / least)
    assert moved[0] < 1.01
    assert moved[1] > 1.5


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (TransposeSpec((0,)), "it is for arrays of two axes or more"),
        (TransposeSpec((0, 2, 1), in_place=True), "it cannot work in place"),
    ],
)
def test_packed_says_what_it_cannot_compute(spec: TransposeSpec, says: str) -> None:
    reason = illegal(PACKED, spec, PackedConfig())
    assert reason is not None
    assert says in reason
    whole = illegal(PACKED, TransposeSpec(), PackedConfig(reads=Reads.WORDS))
    assert whole == "elements of 4 bytes are whole words: reads has no effect"
    bytes_of = TransposeSpec((2, 1, 0), B8)
    gaps = PACKED.unsupported_extents(
        bytes_of, PackedConfig(axes=3, reads=Reads.WORDS), problem(bytes_of, (9, 8, 7), in_gap=3), Limits.of("sm_90")
    )
    assert gaps == "rows of 7 elements have gaps between them, which its word loads may not touch"
    less = illegal(PACKED, TransposeSpec(), PackedConfig(unroll=4))
    assert less == "a block moves 1024 elements or words, and a box may have 2048"


def test_what_lies_too_far_apart_for_32_bits_says_so() -> None:
    spec = TransposeSpec((2, 1, 0), B8)
    extents = extents_of(FAMILY, spec, (100, 100, 100_000))
    assert PACKED.unsupported_extents(spec, PackedConfig(axes=3, index_bits=32), extents, Limits.of("sm_90")) is None
    extents = extents_of(FAMILY, spec, (100, 10_000, 100_000))
    reason = PACKED.unsupported_extents(spec, PackedConfig(axes=3, index_bits=32), extents, Limits.of("sm_90"))
    assert reason is not None
    assert "with 32 bits it is 4294967296 at most" in reason
    assert PACKED.unsupported_extents(spec, PackedConfig(axes=3), extents, Limits.of("sm_90")) is None
