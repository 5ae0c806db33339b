"""Checksums show each change; comparisons count the elements that differ or miss their bounds, and find the first."""

from __future__ import annotations

import numpy as np
import pytest

from gen.dtypes import BF16, F16, F32, F64, DType
from gen.gpu.service import ElementRows
from tests.host.service_kernels.given import NOT_FOUND, Service, each_grid, each_size, words

POISON = 0xFFC1A5B6


@each_size
def test_a_checksum_does_not_depend_on_grid_and_order(service: Service, n: int) -> None:
    content = words(n)
    found = {service.checksum(content, blocks=blocks, order=order) for blocks in (1, 2, 7) for order in (0, 1)}
    expected = sum((int(word) + 0x9E3779B97F4A7C15) * (2 * i + 1) for i, word in enumerate(content)) % 2**64
    assert found == {expected}


@pytest.mark.parametrize("place", [0, 1, 500, 998, 999])
def test_a_checksum_shows_one_changed_and_two_swapped_words(service: Service, place: int) -> None:
    content = words(1000)
    before = service.checksum(content)
    for bit in (0, 31):
        changed = content.copy()
        changed[place] ^= np.uint32(1 << bit)
        assert service.checksum(changed) != before
    swapped = content.copy()
    swapped[[place, 700]] = content[[700, place]]
    assert service.checksum(swapped) != before


def test_a_checksum_shows_a_missing_zero(service: Service) -> None:
    assert len({service.checksum(np.zeros(n, np.uint32)) for n in range(5)}) == 5


@each_size
@each_grid
def test_equal_words_do_not_differ(service: Service, n: int, blocks: int) -> None:
    assert service.differing(words(n), words(n), blocks=blocks) == (0, NOT_FOUND)


@pytest.mark.parametrize("places", [[0], [999], [0, 999], [400, 401, 768], [256], list(range(1000))])
def test_words_that_differ_are_counted_and_the_first_is_found(service: Service, places: list[int]) -> None:
    content, other = words(1000), words(1000)
    other[places] ^= np.uint32(1 << 31)
    for order in (0, 1):
        assert service.differing(content, other, order=order) == (len(places), places[0])


INF, NAN = np.inf, np.nan
FLOAT_MAX = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("got", "expected", "magnitude", "relative", "absolute", "wrong"),
    [
        (1.5, 1.5, 0.0, 0.0, 0.0, False),
        (0.0, -0.0, 0.0, 0.0, 0.0, False),
        (1.5, 1.25, 1.0, 0.25, 0.0, False),  # at the bound
        (1.25, 1.5, 1.0, 0.25, 0.0, False),
        (1.5, 1.2499999, 1.0, 0.25, 0.0, True),
        (1.2499999, 1.5, 1.0, 0.25, 0.0, True),
        (1.5, 1.25, 2.0, 0.125, 0.0, False),  # relative to the magnitude, not to the value
        (1.5, 1.25, 1.9, 0.125, 0.0, True),
        (1.5, 1.25, 0.0, 0.125, 0.25, False),
        (1.5, 1.25, 1.0, 0.125, 0.125, False),  # both together
        (1.5, 1.25, 1.0, 0.125, 0.12, True),
        (-1.5, 1.5, 1.0, 1.0, 1.0, True),
        (NAN, NAN, 1.0, 0.0, 0.0, False),
        (NAN, NAN, NAN, 0.5, 0.0, False),
        (NAN, 1.0, 1.0, 1e30, 0.0, True),
        (1.0, NAN, 1.0, 1e30, 0.0, True),
        (1.0, NAN, NAN, 1e30, 0.0, True),
        (INF, NAN, NAN, 0.0, 0.0, True),
        (NAN, INF, INF, 1.0, 0.0, True),
        (INF, INF, INF, 0.5, 0.0, False),
        (-INF, -INF, INF, 0.5, 0.0, False),
        (-INF, INF, INF, 0.5, 0.0, True),
        (INF, -INF, INF, 0.5, 0.0, True),
        (1.0, INF, INF, 0.5, 0.0, True),
        (0.0, -INF, INF, 0.5, 0.0, True),
        (FLOAT_MAX, INF, INF, 0.5, 0.0, True),
        (INF, 1.0, 1.0, 1e30, 0.0, True),
    ],
)  # fmt: skip
def test_an_element_lies_within_its_bound_or_not(
    service: Service, got: float, expected: float, magnitude: float, relative: float, absolute: float, wrong: bool
) -> None:
    found = service.beyond(got, expected, magnitude, relative, absolute)
    assert found == ((1, 0) if wrong else (0, NOT_FOUND))


@each_size
def test_elements_beyond_their_bounds_are_counted(service: Service, n: int) -> None:
    expected = np.linspace(1, 2, n)
    got = expected.astype(np.float32)
    magnitude = np.full(n, 2.0**-24)
    assert service.beyond(got, expected, 2 * magnitude, relative=1.0) == (0, NOT_FOUND)
    places = sorted({n // 2, n - 1}) if n else []
    got[places] += np.float32(1e-3)
    assert service.beyond(got, expected, 2 * magnitude, relative=1.0) == (len(places), places[0] if n else NOT_FOUND)


@pytest.mark.parametrize(
    ("got", "expected", "magnitude", "unit", "largest", "wrong"),
    [
        (1.5, 1.25, 0.0, 0.2, INF, False),  # a fifth of the value
        (-1.5, -1.25, 0.0, 0.2, INF, False),
        (1.5, 1.25, 0.0, 0.19, INF, True),
        (NAN, 1.25, 8.0, 0.0, 7.0, False),  # beyond the accumulator's range
        (NAN, 1.25, 8.0, 0.0, 8.0, True),
        (1.0, INF, INF, 0.0, 7.0, False),
    ],
)
def test_a_rounding_of_the_result_and_an_overflow_are_allowed(
    service: Service, got: float, expected: float, magnitude: float, unit: float, largest: float, wrong: bool
) -> None:
    found = service.beyond(got, expected, magnitude, unit=unit, largest=largest)
    assert found == ((1, 0) if wrong else (0, NOT_FOUND))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=lambda dtype: dtype.name)
def test_elements_of_every_floating_type_are_read_as_numpy_reads_them(service: Service, dtype: DType) -> None:
    if dtype.size == 2:
        got = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)  # all there are
    else:
        got = np.ldexp(np.linspace(-2, 2, 1001), np.arange(1001) % 200 - 150).astype(dtype.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaN
        value = got.astype(np.float64)
    assert service.beyond(got, value, dtype=dtype) == (0, NOT_FOUND)
    value[7] = np.nextafter(value[7], 9.0)
    assert service.beyond(got, value, dtype=dtype) == (1, 7)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("gap", [0, 3])
def test_elements_between_gaps_are_compared_and_gaps_are_not(service: Service, size: int, gap: int) -> None:
    rows = ElementRows(5, 7, size, (7 + gap) * size)
    one = words(rows.span // 4 + 4).view(np.uint8)[: rows.span].copy()
    other = one.copy()
    assert service.differing_elements(one, other, rows) == (0, NOT_FOUND)
    for row in range(4):
        other[row * rows.pitch + 7 * size : (row + 1) * rows.pitch] ^= 0xFF
    assert service.differing_elements(one, other, rows) == (0, NOT_FOUND)
    other[2 * rows.pitch + 3 * size - 1] ^= 0x80  # the last byte of an element
    other[-size] ^= 1  # the first byte of the last
    assert service.differing_elements(one, other, rows) == (2, 2 * 7 + 2)


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_a_byte_that_is_written_between_rows_is_found(service: Service, size: int) -> None:
    rows = ElementRows(5, 7, size, 10 * size)
    memory = np.full(rows.span // 4 + 1, POISON, np.uint32).view(np.uint8)[: rows.span].copy()
    for row in range(5):
        memory[row * rows.pitch : row * rows.pitch + 7 * size] = 0
    assert service.gaps_written(memory, rows, POISON) == (0, NOT_FOUND)
    for place in (7 * size, rows.pitch - 1, 3 * rows.pitch + 8 * size):
        spoilt = memory.copy()
        spoilt[place] ^= 0x10
        assert service.gaps_written(spoilt, rows, POISON) == (1, place)
