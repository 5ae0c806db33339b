"""Tiles on a grid of three axes: each has the block that its place says, and every element is where NumPy has it."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128
from gen.emit.launch import HOST_ONLY
from gen.emit.render import MARK, render
from gen.families.base import Kernel, Limits
from gen.families.extents import extents_of, layout_of, told_extents
from gen.families.names import variant
from gen.families.plans import steps
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.common import Order
from gen.families.transpose.algorithms.vectors import VectorTile, VectorTileConfig
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check

FAMILY, VECTOR_TILE, LIMITS = Transpose(), VectorTile(), Limits.of("sm_90")
AXES = ((1, 0), (0, 2, 1), (2, 1, 0), (0, 3, 2, 1), (4, 2, 1, 3, 0), (4, 1, 2, 0, 3), (0, 5, 2, 3, 4, 1))
DTYPES = (B8, B16, B32, B64, B128)
ORDERS = (Order.COL, Order.ROW)


def config_of(place: int) -> VectorTileConfig:
    """One of those with places of 32 bits, of vectors that hold an element of any type."""
    return VectorTileConfig(lanes=8, groups=8, block_order=ORDERS[place % 2], index_bits=32)


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> list[Kernel]:
    """Of several permutations, each of elements of another size, in both orders."""
    made = [
        variant(FAMILY, TransposeSpec(axes, DTYPES[place % 5]), VECTOR_TILE, config_of(place))
        for place, axes in enumerate(AXES)
    ]
    return list(host_runner.load(made))


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(st.data(), st.sampled_from((0, 0, 1, 4)), st.sampled_from((0, 0, 1, 16)), st.sampled_from((0, 0, 3, 16)))
def test_elements_are_where_numpy_has_them(
    kernels: list[Kernel], host_runner: HostRunner, data: st.DataObject, offset: int, in_gap: int, out_gap: int
) -> None:
    kernel = data.draw(st.sampled_from(kernels))
    spec = kernel.variant.spec
    assert isinstance(spec, TransposeSpec)
    known = {str(axis): data.draw(st.integers(0, 3)) for axis in spec.operands[0].axes}
    per = VECTOR_TILE.elements(spec, VectorTileConfig())
    for operand in spec.operands:  # the axis that is the last of either array is more than a tile
        known[str(operand.axes[-1])] = data.draw(
            st.integers(0, 200 // spec.dtype.size + 9) | st.integers(1, 25).map(lambda vectors: vectors * per)
        )
    for operand, gap in zip(spec.operands, (in_gap, out_gap), strict=True):
        if operand.pitch:
            known[operand.pitch] = known[str(operand.axes[-1])] + gap
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    failure = check(kernel, host_runner.limits, Case(extents, offset=offset))
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("axes", "known"),
    [
        ((1, 0), {"rows": 256, "cols": 256, "in_pitch": 257, "out_pitch": 256}),
        ((1, 0), {"rows": 256, "cols": 256, "in_pitch": 256, "out_pitch": 257}),
        ((2, 1, 0), {"axis0": 64, "axis1": 2, "axis2": 38, "in_row": 38, "out_row": 64}),
        ((2, 1, 0), {"axis0": 38, "axis1": 2, "axis2": 64, "in_row": 64, "out_row": 38}),
        ((0, 3, 2, 1), {"axis0": 2, "axis1": 32, "axis2": 2, "axis3": 32, "in_row": 33, "out_row": 32}),
        ((0, 3, 2, 1), {"axis0": 2, "axis1": 32, "axis2": 2, "axis3": 32, "in_row": 32, "out_row": 33}),
    ],
    ids=["pitch of the input", "of the output", "matrices of the input", "of the output", "inner of two", "outputs"],
)
def test_no_tile_is_whole_where_one_step_is_no_multiple_of_a_vector(
    kernels: list[Kernel], host_runner: HostRunner, axes: tuple[int, ...], known: dict[str, int]
) -> None:
    kernel = kernels[AXES.index(axes)]
    spec = kernel.variant.spec
    assert isinstance(spec, TransposeSpec)
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    steps_of = [step for name, step in told_extents(extents).items() if name.endswith(("_pitch", "_in", "_out"))]
    assert len([step for step in steps_of if step * spec.dtype.size % 16]) == 1
    failure = check(kernel, host_runner.limits, Case(extents))
    assert failure is None, str(failure)


# Of axes of one place there are none: those beside them are merged.
@given(*[st.just(0) | st.integers(2, 3000)] * 2, st.integers(0, 9), st.sampled_from(ORDERS))
def test_a_grid_has_an_axis_for_tiles_along_the_order_for_those_across_it_and_for_matrices(
    rows: int, cols: int, matrices: int, order: Order
) -> None:
    spec = TransposeSpec((0, 2, 1), B32)
    extents = extents_of(FAMILY, spec, (matrices, rows, cols))
    made = variant(FAMILY, spec, VECTOR_TILE, VectorTileConfig(block_order=order, index_bits=32))
    down, across = -(-rows // 64), -(-cols // 64)
    found = [step.grid for step in steps(made.plan, {**extents, **LIMITS.sizes()})]
    grid = (across, down, matrices) if order is Order.ROW else (down, across, matrices)
    assert found == ([grid] if prod(grid) else [])


@pytest.mark.parametrize(("axes", "order"), list(product(AXES, ORDERS)))
def test_only_a_place_among_several_axes_of_matrices_is_divided_for(axes: tuple[int, ...], order: Order) -> None:
    spec = TransposeSpec(axes, B32)
    made = variant(FAMILY, spec, VECTOR_TILE, VectorTileConfig(block_order=order, index_bits=32))
    text = render(made).partition(MARK)[2].partition(HOST_ONLY)[0]
    # The definition, and one use less than there are such axes.
    assert text.count(" divided(") == (spec.batches if spec.batches > 1 else 0)
    assert " tiles_down" not in text
    assert " tiles_across" not in text


@pytest.mark.parametrize(
    ("shape", "order", "blocks"),
    [
        ((1, 16, 65535 * 64), Order.COL, None),
        ((1, 16, 65535 * 64 + 1), Order.COL, 65536),
        ((1, 16, 65535 * 64 + 1), Order.ROW, None),
        ((1, 65535 * 64, 16), Order.ROW, None),
        ((1, 65535 * 64 + 1, 16), Order.ROW, 65536),
        ((1, 65535 * 64 + 1, 16), Order.COL, None),
        ((65535, 64, 64), Order.COL, None),
        ((65536, 64, 64), Order.COL, 65536),
        ((70000, 64, 64), Order.ROW, 70000),
    ],
)
def test_two_axes_of_a_grid_are_short(shape: tuple[int, ...], order: Order, blocks: int | None) -> None:
    spec = TransposeSpec((0, 2, 1), B32)
    extents = extents_of(FAMILY, spec, shape)
    found = VECTOR_TILE.unsupported_extents(spec, VectorTileConfig(block_order=order, index_bits=32), extents, LIMITS)
    assert found == (blocks and f"it needs {blocks} blocks along y or z; a grid has at most 65535")
    assert VECTOR_TILE.unsupported_extents(spec, VectorTileConfig(block_order=order), extents, LIMITS) is None
