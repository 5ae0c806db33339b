"""Problems that are tuned at their first call, on the GPU, in the process of the caller, whose device PyCUDA times."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gen

if TYPE_CHECKING:
    from gen.gpu.cuda import CudaDevice

CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...], str, dict[str, int]]] = {
    "sum": (lambda: gen.reduction("sum", "float32"), (1048579,), "f4", {}),
    "variance": (lambda: gen.reduction("var", "float16", axis=0), (50000, 15), "f2", {}),
    "permutation": (lambda: gen.permutation((2, 1, 0, 4, 3), "float32"), (13, 30, 23, 46, 16), "f4", {}),
    "stencil": (lambda: gen.stencil(gen.star(2, 1), boundary="reflect"), (1001, 1003), "f4", {"steps": 3}),
}


@pytest.mark.alone  # of several processes one tunes, and the others do not wait
@pytest.mark.parametrize("name", CASES)
def test_a_first_call_is_tuned_and_right_and_its_winner_is_found(name: str, device: CudaDevice, tmp_path: Path) -> None:
    make, shape, dtype, runtime_parameters = CASES[name]
    array = np.random.default_rng(0).integers(-8, 9, shape).astype(dtype)
    untuned = gen.load(make(), device=device, home=tmp_path)(array, **runtime_parameters)
    kernel = gen.load(make(), device=device, home=tmp_path, tune="2s")
    tuned = kernel(array, **runtime_parameters)
    assert kernel.why_for(shape, **runtime_parameters).startswith(f"tuned on {device.name}")
    if name == "variance":  # which rounds by its algorithm
        np.testing.assert_allclose(tuned, untuned, rtol=2**-9)
    else:
        np.testing.assert_array_equal(tuned, untuned)
    later = gen.load(make(), shape=shape, device=device, home=tmp_path, **runtime_parameters)
    assert (later.tuned, later.variant) == (True, kernel.variant_for(shape, **runtime_parameters))
