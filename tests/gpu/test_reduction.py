"""Reductions on the GPU: every operator and type along any axes, sizes beyond 2^31 bytes, and exact sums of 2^28."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import gen
from bench.runner import CudaRunner
from gen.dtypes import DTYPES, DType
from gen.emit.render import render
from gen.errors import SpecError
from gen.families.names import illegal, variant
from gen.families.reduction import Reduction
from gen.families.reduction.operators import OPERATORS, SEVERAL
from gen.gpu.cuda import CudaDevice
from gen.proof.prover import check, unsupported_extents
from gen.toolchain.nvrtc import Nvrtc
from tests.strategies import cases, variants_of

FAMILY = Reduction()
NUMBERS = [dtype for dtype in DTYPES.values() if dtype.kind != "bits"]


@given(
    st.sampled_from((*OPERATORS, *SEVERAL)),
    st.sampled_from(NUMBERS),
    st.sampled_from((None, (), 0, -1, 1, (0, 1), (0, 2))),
    st.booleans(),
    st.data(),
)
def test_any_reduction_equals_numpy(
    device: CudaDevice, compiler: Nvrtc, op: str, elements: DType, axis: Any, keepdims: bool, data: st.DataObject
) -> None:
    try:
        spec = gen.reduction(op, elements, axis=axis, keepdims=keepdims)
    except SpecError:
        assume(False)
    case = data.draw(cases(FAMILY, spec))
    made = variant(FAMILY, spec, *FAMILY.base(spec, FAMILY.shape_class(spec, case.extents)))
    others = [
        one for one in FAMILY.algorithms.values() if any(illegal(one, spec, c) is None for c in one.config.space())
    ]
    other = data.draw(variants_of(FAMILY, spec, data.draw(st.sampled_from(others))))
    if other.algorithm.infeasible(spec, other.config, device.limits) is None:
        made = made if unsupported_extents(other, case, device.limits) else other
    (kernel,) = CudaRunner(device, compiler, render).load([made])
    failure = check(kernel, device.limits, case)
    assert failure is None, str(failure)


def test_the_sum_of_more_than_2_31_bytes_is_exact(device: CudaDevice, tmp_path: Path) -> None:
    array = np.random.default_rng(1).integers(0, 256, 2**31 + 5, np.uint8)
    kernel = gen.load(gen.reduction("sum", "uint8"), device=device, home=tmp_path)
    assert kernel(array) == array.sum(dtype=np.uint64)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2**31 + 5,), None), ((1, 2**31 + 5), 1), ((2**30 + 3, 2), 0), ((2**12, 2**19 + 3), 0)],
    ids=str,
)
def test_a_place_beyond_2_31_elements_is_found(
    shape: tuple[int, ...], axis: int | None, device: CudaDevice, tmp_path: Path
) -> None:
    array = np.zeros(shape, np.uint8)
    array.reshape(-1)[-2:] = 2, 1
    for op in ("argmax", "count_nonzero"):
        got = gen.load(gen.reduction(op, "uint8", axis=axis), device=device, home=tmp_path)(array)
        assert np.array_equal(got, getattr(np, op)(array, axis=axis)), op


@pytest.mark.parametrize("elements", ["f32", "i32"])
def test_the_sum_of_2_28_small_integers_is_exact(elements: str, device: CudaDevice, tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    array = (random.integers(1, 9, 2**28, np.int8) * random.choice(np.array([-1, 1], np.int8), 2**28)).astype(
        DTYPES[elements].numpy
    )
    kernel = gen.load(gen.reduction("sum", elements), device=device, home=tmp_path)
    assert kernel(array) == array.sum(dtype=np.int64)


@pytest.mark.parametrize("elements", ["uint8", "float32", "float16"])
@pytest.mark.parametrize(("shape", "axis"), [((2**26,), None), ((64, 2**20), 1), ((2**20, 64), 1), ((2**20, 64), 0)])
def test_the_first_of_equals_is_the_place(
    elements: str, shape: tuple[int, ...], axis: int | None, device: CudaDevice, tmp_path: Path
) -> None:
    dtype = np.dtype(elements)
    kernel = gen.load(gen.reduction("argmax", elements, axis=axis), device=device, home=tmp_path)
    for value in (7, 0 if elements == "uint8" else -np.inf):  # the second is where the search begins
        assert not kernel(np.full(shape, value, dtype)).any()


@pytest.mark.parametrize(("shape", "axis"), [((2**24,), None), ((4, 2**22), 1), ((2**15, 512), 1), ((512, 2**15), 0)])
def test_the_first_nan_wins_and_infinities_stay(
    shape: tuple[int, ...], axis: int | None, device: CudaDevice, tmp_path: Path
) -> None:
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    rows = array if axis == 0 else array.reshape(-1, shape[-1])
    along = rows if axis == 0 else rows.T  # what is reduced lies along axis 0
    length = along.shape[0]
    along[length // 3], along[length // 5] = np.inf, -np.inf

    def result(op: str) -> Any:
        return gen.load(gen.reduction(op, "f32", axis=axis), device=device, home=tmp_path)(array)

    for op, right in (("argmax", length // 3), ("argmin", length // 5), ("max", np.inf), ("min", -np.inf)):
        assert (result(op) == right).all()
    assert np.isnan(result("sum")).all()  # infinities of both signs
    assert np.isnan(result("var")).all()
    along[length // 2] = along[length - 1] = np.nan
    for op in ("argmax", "argmin"):
        assert (result(op) == length // 2).all()
    for op in ("max", "min", "sum", "mean", "norm", "std"):
        assert np.isnan(result(op)).all()


def test_blocks_that_wait_for_others_always_end(torch: Any, device: CudaDevice, tmp_path: Path) -> None:
    """Many launches side by side, each stream with scratch of its own: all end, with one and the same result."""
    spec, variant_name = "reduction_sum_f32", "reduction_sum_f32__flags_tpb1024_u4_v16_bpm2"
    winner = {"device": device.name, "spec": spec, "shape": "more than 2^20 elements", "variant": variant_name}
    (tmp_path / "tuned.json").write_text(json.dumps({"schema": 1, "winners": [winner]}), encoding="utf-8")
    kernel = gen.load(spec, device=device, home=tmp_path)
    array = torch.randn(2**22, device="cuda")
    assert kernel.variant_for(array.shape) == variant_name
    streams, results = [torch.cuda.Stream() for _ in range(8)], torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    for _ in range(300):
        for stream, result in zip(streams, results, strict=True):
            kernel(array, out=result, stream=stream)
    torch.cuda.synchronize()
    assert len(set(results.tolist())) == 1
    assert abs(float(results[0]) - float(array.sum(dtype=torch.float64))) < 0.1
