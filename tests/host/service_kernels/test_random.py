"""Random inputs on the device: whole numbers that add up exactly, by seed and place alone."""

from __future__ import annotations

import numpy as np
import pytest

from gen.dtypes import BF16, F16, F32, F64, DType
from tests.host.service_kernels.given import Service, each_grid, each_size


@each_size
@each_grid
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=lambda dtype: dtype.name)
def test_random_floats_are_whole_numbers_from_1_to_8_with_either_sign(
    service: Service, n: int, blocks: int, dtype: DType
) -> None:
    n += n % 2  # an f64 takes two words
    floats = service.random(n, 1, dtype=dtype, blocks=blocks).view(dtype.numpy).astype(np.float64)
    numbers = {float(number) for magnitude in range(1, 9) for number in (-magnitude, magnitude)}
    assert set(floats.tolist()) <= numbers
    if n > 200:
        found, counts = np.unique(floats, return_counts=True)
        assert set(found.tolist()) == numbers
        assert counts.min() > len(floats) / 16 / 3
        assert counts.max() < len(floats) / 16 * 3


def test_random_halves_of_a_word_differ(service: Service) -> None:
    for dtype in (F16, BF16):
        pairs = service.random(4096, 1, dtype=dtype).view(dtype.numpy).reshape(-1, 2).astype(np.float64)
        assert len(np.unique(pairs, axis=0)) == 16 * 16


@each_size
def test_random_truth_values_are_0_and_1(service: Service, n: int) -> None:
    found = service.random(n, 1, dtype=DType("bool", "bool", 1, "bool")).view(np.uint8)
    assert set(found.tolist()) <= {0, 1}
    assert n < 200 or 0.4 < found.mean() < 0.6


def test_random_words_depend_on_seed_and_place_alone(service: Service) -> None:
    one = service.random(1000, 1)
    assert np.array_equal(one, service.random(1000, 1, blocks=1, order=1))
    assert np.array_equal(one[:300], service.random(300, 1))
    assert not np.array_equal(one, service.random(1000, 2))
    assert len(np.unique(one)) > 990
    ones = np.unpackbits(one.view(np.uint8)).reshape(1000, 32).mean(axis=0)
    assert ((ones > 0.4) & (ones < 0.6)).all()  # every bit is as often 1 as 0


def test_random_is_the_finalizer_of_murmur_hash_3(service: Service) -> None:
    """Its value for 1, 0 and all ones, worked out by hand from the published code."""

    def mixed(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        return h ^ h >> 16

    assert mixed(1) == 0x514E28B7
    assert service.random(3, 0xFFFFFFFE).tolist() == [mixed(0xFFFFFFFE), mixed(0xFFFFFFFF), mixed(0xFFFFFFFC)]
