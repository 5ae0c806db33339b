"""Transposes on the GPU: any axes, element sizes, shapes and pitches; in place; with values; very large ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gen
from bench.runner import CudaRunner
from gen.emit.render import render
from gen.errors import GenError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family, variant
from gen.families.transpose import TransposeSpec, permutation
from gen.families.transpose.values import BITS
from gen.gpu.cuda import CudaDevice
from gen.proof.prover import check, unsupported_extents
from gen.toolchain.nvrtc import Nvrtc
from tests.strategies import cases, transposes_that_change

FAMILY = find_family(FAMILIES, "transpose")


@pytest.fixture(scope="session")
def runner(device: CudaDevice, compiler: Nvrtc) -> CudaRunner:
    return CudaRunner(device, compiler, render)


@pytest.fixture(scope="session")
def load(home: Path, device: CudaDevice) -> Callable[[TransposeSpec], Any]:
    return lambda spec: gen.load(spec, home=home, device=device)


@st.composite
def moving(draw: st.DrawFn) -> TransposeSpec:
    axes = tuple(draw(st.permutations(range(draw(st.integers(1, 5))))))
    return TransposeSpec(axes, draw(st.sampled_from(tuple(BITS.values()))))


@st.composite
def in_place(draw: st.DrawFn) -> TransposeSpec:
    others = tuple(range(draw(st.integers(0, 2))))
    last = len(others)
    dtype = draw(st.sampled_from(tuple(BITS.values())))
    return TransposeSpec((*others, last + 1, last), dtype, in_place=True)


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_every_form_equals_numpy(runner: CudaRunner, data: st.DataObject) -> None:
    spec = data.draw(st.one_of(moving(), in_place(), transposes_that_change()))
    case = data.draw(cases(FAMILY, spec))
    found = FAMILY.base(spec, FAMILY.shape_class(spec, case.extents))
    made: Variant = variant(FAMILY, spec, *found)
    if unsupported_extents(made, case, runner.limits) is None:
        (kernel,) = runner.load([made])
        failure = check(kernel, runner.limits, case)
        assert failure is None, str(failure)


@pytest.mark.parametrize("axes", [(1, 0), (2, 0, 1), (0, 2, 1), (3, 1, 0, 2)], ids=str)
@pytest.mark.parametrize("dtype", ["u1", "f2", "f4", "c8", "c16"])
def test_there_and_back_is_the_input(axes: tuple[int, ...], dtype: str, load: Any) -> None:
    shape = {2: (1021, 515), 3: (33, 130, 67), 4: (5, 64, 7, 66)}[len(axes)]
    random = np.random.default_rng(1)
    before = random.integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8).view(dtype)[..., 0]
    back = tuple(int(place) for place in np.argsort(axes))
    after = load(permutation(back, dtype))(load(permutation(axes, dtype))(before))
    assert after.tobytes() == before.tobytes()


def test_a_matrix_in_place_is_the_same_array(load: Any, torch: Any) -> None:
    matrix = torch.randn(1025, 1025, device="cuda", dtype=torch.float32)
    expected = matrix.T.contiguous()
    assert load(permutation(dtype="f4", in_place=True))(matrix) is matrix
    assert torch.equal(matrix, expected)
    array = np.arange(63 * 63, dtype=np.int16).reshape(63, 63)
    turned = array.T.copy()
    assert load(permutation(dtype="i2", in_place=True))(array) is array
    assert np.array_equal(array, turned)


def test_output_rows_may_be_pitched_and_begin_at_any_element(load: Any, torch: Any) -> None:
    for dtype, name in ((torch.uint8, "u1"), (torch.float16, "f2"), (torch.float32, "f4")):
        source = torch.randint(0, 100, (301, 517), device="cuda").to(dtype)[:, 3:]
        room = torch.zeros(514, 331, device="cuda", dtype=dtype)
        load(permutation(dtype=name))(source, out=room[:, 5:306])
        assert torch.equal(room[:, 5:306], source.T)
        assert not room[:, :5].any()
        assert not room[:, 306:].any()


def test_what_cannot_be_is_refused_before_anything_is_launched(load: Any, torch: Any) -> None:
    source = torch.zeros(64, 65, device="cuda")
    kernel = load(permutation())
    with pytest.raises(GenError, match="must not overlap"):
        kernel(source, out=source.view(65, 64))
    with pytest.raises(GenError, match="must have 65 cols"):
        kernel(source, out=torch.zeros(64, 65, device="cuda"))
    with pytest.raises(GenError, match="must hold"):
        kernel(source, out=torch.zeros(65, 64, device="cuda", dtype=torch.float64))
    with pytest.raises(GenError, match="must be where in is"):
        kernel(source, out=np.zeros((65, 64), np.float32))
    with pytest.raises(GenError, match="must have 64 rows"):
        load(permutation(in_place=True))(source)


def test_65536_x_65536_bytes(load: Any, torch: Any) -> None:
    side = 65536
    source = torch.randint(0, 256, (side, side), device="cuda", dtype=torch.uint8)
    turned = load(permutation(dtype="u1"))(source)
    for start in range(0, side, 8192):
        assert torch.equal(turned[start : start + 8192], source[:, start : start + 8192].T)
    assert load(permutation(dtype="u1", in_place=True))(turned) is turned
    assert torch.equal(turned, source)
