"""Elements one by one: any permutation is NumPy's, up to the largest that 32 bits find, and little problems get it."""

from __future__ import annotations

from functools import cache
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128, DType
from gen.families.base import Kernel, Limits
from gen.families.extents import extents_of, layout_of
from gen.families.names import variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.common import MAX_DIVIDEND
from gen.families.transpose.algorithms.gather import Gather, GatherConfig
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check
from gen.proof.sampled import check_sampled
from gen.runtime.dispatch import Chooser

FAMILY, GATHER, LIMITS = Transpose(), Gather(), Limits.of("sm_90")
ORDERS = ((1, 0), (0, 1), (2, 0, 1), (0, 3, 1, 2), (4, 3, 2, 1, 0), (5, 0, 6, 2, 1, 4, 3))


@cache
def specs() -> tuple[TransposeSpec, ...]:
    dtypes = (B8, B16, B32, B64, B128)
    return tuple(TransposeSpec(axes, dtypes[place % 5]) for place, axes in enumerate(ORDERS))


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> tuple[Kernel, ...]:
    """One of each order of axes; of elements of which a vector holds several another by vectors."""
    made = [
        variant(FAMILY, spec, GATHER, GatherConfig(threads_per_block=128, unroll=2, vec_bytes=wide))
        for spec in specs()
        for wide in (0, min(4 * spec.dtype.size, 16))
        if wide != spec.dtype.size
    ]
    return host_runner.load(made)


@settings(max_examples=max(settings().max_examples // 2, 1))
@given(st.sampled_from(ORDERS), st.data())
def test_any_permutation_of_any_view_is_numpys(
    kernels: tuple[Kernel, ...], host_runner: HostRunner, axes: tuple[int, ...], data: st.DataObject
) -> None:
    (spec,) = (one for one in specs() if one.axes == axes)
    most = 40 if len(axes) < 4 else 5
    source, result = spec.operands
    known = {str(name): data.draw(st.integers(0, most) | st.just(1)) for name in source.axes}
    for operand in (source, result):
        known[operand.pitch] = known[str(operand.axes[-1])] + data.draw(st.sampled_from((0, 0, 1, 7)))
    extents = FAMILY.extents(spec, {one.name: layout_of(one, known) for one in spec.operands})
    case = Case(extents, offset=data.draw(st.sampled_from((0, 1))))
    for kernel in kernels:
        made = kernel.variant
        if made.spec == spec and made.algorithm.unsupported_extents(spec, made.config, extents, LIMITS) is None:
            failure = check(kernel, host_runner.limits, case)
            assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("axes", "shape", "gap"),
    [
        ((1, 0), (46_340, 46_341), 0), ((1, 0), (3, 715_827_000), 700_000_000), ((2, 0, 1), (1289, 1289, 1291), 0),
        ((1, 0, 2), (65_537, 5, 6551), 6550),
    ],
    ids=str,
)  # fmt: skip
def test_the_largest_that_it_takes_is_right_wherever_it_is_looked_at(
    host_runner: HostRunner, axes: tuple[int, ...], shape: tuple[int, ...], gap: int
) -> None:
    spec = TransposeSpec(axes, B8)
    configs = (GatherConfig(), GatherConfig(vec_bytes=8)) if shape[axes[-1]] >= 8 else (GatherConfig(),)
    kernels = host_runner.load([variant(FAMILY, spec, GATHER, config) for config in configs])
    known = dict(zip(map(str, spec.operands[0].axes), shape, strict=True))
    pitches = {one.pitch: known[str(one.axes[-1])] + (gap if one.role == "in" else 0) for one in spec.operands}
    extents = FAMILY.extents(spec, {one.name: layout_of(one, known | pitches) for one in spec.operands})
    assert 2**30 < prod(shape) < 2**31
    for kernel, config in zip(kernels, configs, strict=True):
        assert GATHER.unsupported_extents(spec, config, extents, LIMITS) is None
        failure = check_sampled(kernel, host_runner.limits, Case(extents))
        assert failure is None, str(failure)


def test_it_says_what_32_bits_do_not_find() -> None:
    spec = TransposeSpec((1, 0), B8)
    for rows, cols, gap, says in (
        (1 << 16, 1 << 15, 0, f"there are {2**31} elements; it supports at most {MAX_DIVIDEND - 256}"),
        (
            5,
            1 << 20,
            1 << 30,
            f"an element's index may be {4 * ((1 << 20) + (1 << 30)) + (1 << 20)}; it supports at most {2**32}",
        ),
    ):
        extents = {"rows": rows, "cols": cols, "in_pitch": cols + gap, "out_pitch": rows}
        found = GATHER.unsupported_extents(spec, GatherConfig(), extents, LIMITS)
        assert found is not None
        assert says in found


@pytest.mark.parametrize(
    ("axes", "dtype", "shape"),
    [
        ((1, 0), B8, (5, 3256)), ((1, 0), B16, (331, 64)), ((2, 1, 0), B16, (2, 174, 32)),
        ((0, 3, 2, 1), B32, (13, 4, 3, 256)), ((5, 3, 2, 4, 0, 1, 6), B32, (3, 4, 8, 5, 4, 3, 1)),
    ],
)  # fmt: skip
def test_little_problems_of_pieces_get_it_untuned_and_large_ones_only_by_vectors(
    axes: tuple[int, ...], dtype: DType, shape: tuple[int, ...]
) -> None:
    spec = TransposeSpec(axes, dtype)
    chooser = Chooser(FAMILY, spec, (), "", LIMITS)
    little = extents_of(FAMILY, spec, shape)
    chosen = chooser.choose(little).variant
    assert chosen.algorithm.name == "gather"
    places = [place for place, extent in enumerate(shape) if extent == max(shape)]
    large = extents_of(FAMILY, spec, tuple(n * 1000 if place in places else n for place, n in enumerate(shape)))
    config = chooser.choose(large).variant.config
    assert not isinstance(config, GatherConfig) or config.vec_bytes > 0


def test_large_odd_rows_get_tiles_unless_these_would_lie_mostly_outside() -> None:
    for axes, shape, tiled in (
        ((0, 2, 1), (4, 4095, 4095), True),
        ((3, 4, 2, 6, 5, 1, 0), (23, 32, 4, 6, 5, 128, 2), False),
    ):
        spec = TransposeSpec(axes, B16)
        names = [str(axis) for axis in spec.operands[0].axes]
        known = dict(zip(names, shape, strict=True))
        pitches = {one.pitch: known[str(one.axes[-1])] + (one.role == "in") for one in spec.operands}
        extents = FAMILY.extents(spec, {one.name: layout_of(one, known | pitches) for one in spec.operands})
        assert FAMILY.shape_class(spec, extents) == "odd rows"
        chosen = Chooser(FAMILY, spec, (), "", LIMITS).choose(extents).variant
        assert (chosen.algorithm.name == "shift_tile") == tiled, chosen.name
