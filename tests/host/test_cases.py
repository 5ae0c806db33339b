"""Problems to prove on: where arrays lie, what they hold, what is around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import B128, DTYPES, F32, DType
from gen.families import FAMILIES
from gen.families.base import Family, Layout, Spec
from gen.proof.cases import (
    DRAWN,
    MARGIN,
    MULTIPROCESSOR_COUNTS,
    OFFSETS,
    Case,
    Content,
    RandomDraw,
    allocate,
    awkward,
    cases_of,
    draw_extents,
    fill,
)
from tests.strategies import cases

SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]
each_spec = pytest.mark.parametrize(
    ("family", "spec"), SPECS, ids=lambda part: getattr(part, "name", getattr(part, "label", ""))
)


def filled(content: Content, *shape: int, dtype: DType = F32, seed: int = 0) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.zeros(shape, dtype.numpy)
    fill(array, dtype, content, seed)
    return array


@each_spec
@given(data=st.data())
def test_arrays_lie_where_a_case_says_with_a_margin_around(
    family: Family[Any], spec: Spec, data: st.DataObject
) -> None:
    case = data.draw(cases(family, spec))
    for layout in family.layouts(spec, case.extents).values():
        block = allocate(layout, case.offset, 0xA5)
        first, memory = block.array.ctypes.data, block.memory.ctypes.data
        assert (first - case.offset * layout.dtype.itemsize) % 256 == 0
        assert first - memory >= MARGIN
        assert block.array.shape == layout.shape
        assert block.array.dtype == layout.dtype
        if block.array.size:
            assert block.array.strides == layout.strides
            last = first + sum((n - 1) * step for n, step in zip(layout.shape, layout.strides, strict=True))
            assert memory + block.memory.size - last - layout.dtype.itemsize >= MARGIN
        assert (block.memory == 0xA5).all()


@each_spec
@given(data=st.data())
def test_what_is_outside_is_all_but_the_array(family: Family[Any], spec: Spec, data: st.DataObject) -> None:
    case = data.draw(cases(family, spec))
    for layout in family.layouts(spec, case.extents).values():
        block = allocate(layout, case.offset, 0xA5)
        before = block.outside()
        assert np.count_nonzero(before == 0) == block.array.nbytes
        block.array[...] = np.zeros((), layout.dtype)
        assert np.array_equal(block.outside(), before)
        assert np.array_equal(block.outside(), block.memory)
        block.memory[block.memory == 0xA5] = 0
        assert not np.array_equal(block.outside(), before)


def test_a_gap_between_rows_is_outside() -> None:
    block = allocate(Layout((2, 3), (20, 4), np.dtype("f4")), 1, 0)
    outside = block.outside()
    start = block.array.ctypes.data - block.memory.ctypes.data
    block.memory[start + 12 : start + 20] = 1
    assert np.count_nonzero(block.outside() != outside) == 8


@given(st.integers(0, 2**20), st.tuples(st.integers(0, 20), st.integers(0, 20)))
def test_integers_are_whole_small_and_never_zero(seed: int, shape: tuple[int, int]) -> None:
    array = filled(Content.INTEGERS, *shape, seed=seed)
    assert np.array_equal(array, np.rint(array))
    assert np.all((np.abs(array) >= 1) & (np.abs(array) <= 8))


def test_integers_take_every_value_of_either_sign() -> None:
    assert set(filled(Content.INTEGERS, 2000).tolist()) == {*range(-8, 0), *range(1, 9)}


each_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)
INTEGERS = [dtype for dtype in DTYPES.values() if dtype.numpy.kind in "iu" and dtype.kind != "bits"]
FLOATS = [dtype for dtype in DTYPES.values() if dtype.kind == "float"]


ONE_VALUE = (Content.ZEROS, Content.GREATEST, Content.LEAST, Content.NANS)
MIXED = tuple(content for content in Content if content not in ONE_VALUE)


@pytest.mark.parametrize("content", MIXED)
@each_dtype
def test_no_array_of_random_numbers_holds_a_zero(content: Content, dtype: DType) -> None:
    array = filled(content, 40, 50, dtype=dtype)
    if dtype.kind == "bits":  # read as numbers they may be signalling NaN, which are not to be compared
        assert np.all(array.view(np.uint8) != 0)
    elif array.dtype.kind != "b":
        assert np.all(array != 0)


@pytest.mark.parametrize("dtype", INTEGERS, ids=lambda dtype: dtype.name)
def test_integers_of_every_type(dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    small, any_, spread, special, extreme = (
        filled(content, 3000, dtype=dtype).astype(object)
        for content in (Content.INTEGERS, Content.RANDOM, Content.SPREAD, Content.SPECIAL, Content.EXTREME)
    )
    signs = (-1, 1) if info.min < 0 else (1,)
    assert set(small) == {sign * size for sign in signs for size in range(1, 9)}
    assert max(any_) > info.max // 2
    assert len({int(value).bit_length() for value in any_}) > 3
    lengths = {abs(int(value)).bit_length() for value in spread}
    assert lengths >= set(range(1, 8 * dtype.size - 1))
    assert {max(special), min(special)} == {info.max, info.min or 1}
    assert np.count_nonzero((special == info.max) | ((special == info.min) & (info.min < 0))) <= 2
    assert {info.max, info.min or 1} <= set(extreme) <= {info.min, info.min + 1, 1, info.max - 1, info.max}


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: dtype.name)
def test_numbers_of_every_type(dtype: DType) -> None:
    spread = filled(Content.SPREAD, 3000, dtype=dtype).astype(np.float64)
    half = int(np.frexp(dtype.largest)[1]) // 2 - 1
    assert set((np.frexp(np.abs(spread))[1] // 8).tolist()) == set(range((1 - half) // 8, half // 8 + 1))
    assert np.abs(spread).max() ** 2 < dtype.largest
    extreme = np.abs(filled(Content.EXTREME, 300, dtype=dtype).astype(np.float64))
    assert {dtype.largest, dtype.smallest, dtype.smallest_normal, 1 + 2.0 ** (1 - dtype.precision)} <= set(extreme)
    for content in MIXED:
        assert np.isfinite(filled(content, 300, dtype=dtype).astype(np.float64)).all() == (content != Content.SPECIAL)


@each_dtype
def test_arrays_of_one_value_hold_zero_the_ends_of_the_range_and_nan(dtype: DType) -> None:
    if dtype.kind == "bits":
        return  # always random
    zero, greatest, least, nan = (filled(content, 3, 7, dtype=dtype).astype(object) for content in ONE_VALUE)
    assert set(zero.flat) == {0}
    if dtype.kind == "float":
        assert set(greatest.flat) == {np.inf}
        assert set(least.flat) == {-np.inf}
        assert all(value != value for value in nan.flat)
    else:
        info = None if dtype.numpy.kind == "b" else np.iinfo(dtype.numpy)
        assert set(greatest.flat) == {info.max if info else True}
        assert set(least.flat) == {info.min if info else False}
        assert set(nan.flat) == {1}


@pytest.mark.parametrize("content", MIXED)
def test_booleans_decide_any_and_all(content: Content) -> None:
    dtype = DType("bool", "bool", 1, "uint")
    values: np.ndarray[Any, Any] = np.zeros((7, 50), np.bool_)
    fill(values, dtype, content, 1)
    true = np.count_nonzero(values)
    assert true == {Content.SPREAD: 1, Content.SPECIAL: 349, Content.EXTREME: 349}.get(content, true)
    assert 0 < true < 350
    fill(np.zeros((0, 3), np.bool_), dtype, content, 1)


def test_spread_covers_many_magnitudes() -> None:
    exponents = np.frexp(np.abs(filled(Content.SPREAD, 2000)))[1]
    assert exponents.min() < -50
    assert exponents.max() > 50
    assert np.all(np.isfinite(filled(Content.SPREAD, 2000)))


@given(st.integers(0, 2**20), st.lists(st.integers(1, 9), max_size=2))
def test_special_has_nan_or_infinities_among_deviates(seed: int, shape: list[int]) -> None:
    array = filled(Content.SPECIAL, *shape, seed=seed)
    odd = np.count_nonzero(~np.isfinite(array))
    assert 1 <= odd <= 2


def test_special_takes_nan_and_infinities_of_either_sign() -> None:
    arrays = [filled(Content.SPECIAL, 50, seed=seed) for seed in range(20)]
    assert any(np.isnan(array).any() for array in arrays)
    assert any((array == np.inf).any() for array in arrays)
    assert any((array == -np.inf).any() for array in arrays)


def test_bits_are_random_whatever_the_content() -> None:
    for content in Content:
        array = filled(content, 50, dtype=B128)
        assert len(np.unique(array.view(np.uint8))) > 200


@given(st.sampled_from(MIXED), st.sampled_from(("f32", "bf16", "b32", "i8", "u64")), st.integers(0, 2**20))
def test_the_seed_says_all(content: Content, name: str, seed: int) -> None:
    dtype = DTYPES[name]
    assert (
        filled(content, 7, 9, dtype=dtype, seed=seed).tobytes()
        == filled(content, 7, 9, dtype=dtype, seed=seed).tobytes()
    )
    assert (
        filled(content, 7, 9, dtype=dtype, seed=seed).tobytes()
        != filled(content, 7, 9, dtype=dtype, seed=seed + 1).tobytes()
    )


def test_a_pitched_array_is_filled_like_a_dense_one() -> None:
    for dtype in (F32, DTYPES["b32"]):
        pitched = allocate(Layout((5, 7), (64, 4), dtype.numpy), 3, 0)
        fill(pitched.array, dtype, Content.RANDOM, 3)
        assert pitched.array.tobytes() == filled(Content.RANDOM, 5, 7, dtype=dtype, seed=3).tobytes()


@each_spec
def test_every_awkward_size_is_proven_exactly_and_otherwise(family: Family[Any], spec: Spec) -> None:
    all_cases = list(cases_of(family, spec))
    assert all_cases == list(cases_of(family, spec))
    for sizes in family.cases(spec):
        assert Content.INTEGERS in [case.content for case in all_cases if case.extents == sizes]
    assert {case.content for case in all_cases} == set(Content)
    assert {case.multiprocessors for case in all_cases} == set(MULTIPROCESSOR_COUNTS)
    assert {case.offset for case in all_cases} == set(OFFSETS)
    assert len(all_cases) == 2 * (len(list(family.cases(spec))) + DRAWN)


@each_spec
def test_another_seed_draws_other_sizes_and_keeps_the_familys(family: Family[Any], spec: Spec) -> None:
    of_family = [dict(sizes) for sizes in family.cases(spec)]
    drawn = []
    for seed in range(5):
        sizes = [dict(case.extents) for case in cases_of(family, spec, seed)][::2]
        assert sizes[:-DRAWN] == of_family
        drawn += [str(one) for one in sizes[-DRAWN:]]
    assert len(set(drawn)) > DRAWN


@given(st.integers(0, 50_000))
def test_awkward_sizes(largest: int) -> None:
    sizes = awkward(largest)
    assert sizes[0] == 0
    assert sizes[-1] == largest
    assert list(sizes) == sorted(set(sizes))
    assert {size for size in (1, 31, 32, 33, 127, 128, 129, 1021, 4095, 4096, 4097) if size <= largest} <= set(sizes)


@each_spec
def test_what_a_seed_draws_hypothesis_may_draw_too(family: Family[Any], spec: Spec) -> None:
    for seed in range(20):
        extents = draw_extents(family, spec, RandomDraw(seed))
        assert extents == draw_extents(family, spec, RandomDraw(seed))
        measured = family.extents(spec, family.layouts(spec, extents))
        assert {**measured, **{name: extents[name] for name in family.runtime_parameters(spec)}} == extents


def test_a_case_says_what_it_is() -> None:
    case = Case({"rows": 3, "cols": 4}, Content.SPREAD, seed=5, offset=1, multiprocessors=2)
    assert str(case) == "rows 3, cols 4; spread seed 5; offset 1; 2 multiprocessors"


def test_equal_elements_come_in_vectors_too() -> None:
    family = FAMILIES[0]
    zeros = [case for case in cases_of(family, family.catalogue[0]) if case.content is Content.ZEROS]
    assert {case.offset == 0 for case in zeros} == {False, True}
