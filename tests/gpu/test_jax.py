"""gen's functions in programs of JAX on the GPU, called through XLA's foreign function interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import gen  # noqa: E402
import gen.jax  # noqa: E402
from tests.jax_functions import *  # noqa: E402, F403

pytestmark = pytest.mark.filterwarnings("default")  # JAX warns of its own


@pytest.fixture(autouse=True)
def place(device: Any) -> str:  # noqa: ARG001  opened before JAX makes its context
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    return "cuda"


@pytest.mark.parametrize("size", [1000, 2**20, 2**24])
def test_sums_of_every_size_in_one_program(size: int) -> None:
    def program(x: Any) -> Any:
        return gen.jax.sum(x * 2) + gen.jax.sum(x)

    x = jax.numpy.asarray(np.random.default_rng(0).integers(-8, 9, size).astype(np.float32))
    compiled = jax.jit(program)
    for _ in range(3):  # what scratch memory must be 0 is so every time
        assert compiled(x) == 3 * np.asarray(x).sum()


def test_arrays_of_jax_are_used_in_place_and_given_back() -> None:
    x = jax.numpy.arange(6.0).reshape(2, 3)
    found = gen.permute_dims(x, (1, 0))
    assert isinstance(found, jax.Array)
    assert found.devices() == x.devices()
    np.testing.assert_array_equal(found, np.asarray(x).T)
    half = gen.permute_dims(x.astype(jax.numpy.bfloat16), (1, 0))
    assert half.dtype == jax.numpy.bfloat16
