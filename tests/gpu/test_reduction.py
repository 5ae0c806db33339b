"""Reductions on the GPU: every operator and type along any axes, sizes beyond 2^31 bytes, and exact sums of 2^28."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gen
from gen.dtypes import DTYPES
from gen.emit.render import render
from gen.errors import SpecError
from gen.families.names import variant
from gen.families.reduction import Reduction
from gen.families.reduction.operators import OPERATORS, SEVERAL
from gen.gpu.device import CudaDevice
from gen.gpu.kernel import CudaRunner
from gen.proof.prover import check
from gen.toolchain.nvrtc import Nvrtc
from tests.strategies import cases

FAMILY = Reduction()
NUMBERS = [name for name, dtype in DTYPES.items() if dtype.kind != "bits"]


@given(
    st.sampled_from((*OPERATORS, *SEVERAL)),
    st.sampled_from(NUMBERS),
    st.sampled_from((None, (), 0, -1, 1, (0, 1), (0, 2))),
    st.booleans(),
    st.data(),
)
def test_any_reduction_equals_numpy(
    device: CudaDevice, compiler: Nvrtc, op: str, elements: str, axis: Any, keepdims: bool, data: st.DataObject
) -> None:
    try:
        spec = gen.reduction(op, elements, axis=axis, keepdims=keepdims)
    except SpecError:
        assume(False)
    case = data.draw(cases(FAMILY, spec))
    made = variant(FAMILY, spec, *FAMILY.base(spec, FAMILY.shape_class(spec, case.extents)))
    (kernel,) = CudaRunner(device, compiler, render).load([made])
    failure = check(kernel, device.limits, case)
    assert failure is None, str(failure)


def test_the_sum_of_more_than_2_31_bytes_is_exact(device: CudaDevice, tmp_path: Path) -> None:
    array = np.random.default_rng(1).integers(0, 256, 2**31 + 5, np.uint8)
    kernel = gen.load(gen.reduction("sum", "u8"), device=device, home=tmp_path)
    assert kernel(array) == array.sum(dtype=np.uint64)


@pytest.mark.parametrize("elements", ["f32", "i32"])
def test_the_sum_of_2_28_small_integers_is_exact(elements: str, device: CudaDevice, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    array = (random.integers(1, 9, 2**28, np.int8) * random.choice(np.array([-1, 1], np.int8), 2**28)).astype(
        DTYPES[elements].numpy
    )
    kernel = gen.load(gen.reduction("sum", elements), device=device, home=tmp_path)
    assert kernel(array) == array.sum(dtype=np.int64)


def test_the_first_of_2_26_equals_is_the_place(device: CudaDevice, tmp_path: Path) -> None:
    kernel = gen.load(gen.reduction("argmax", "u8"), device=device, home=tmp_path)
    assert kernel(np.full(2**26, 7, np.uint8)) == 0
