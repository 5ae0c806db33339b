"""Small matrices of whole squares: turned as NumPy turns them, however many there are, wherever they begin."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128
from gen.families.base import Kernel
from gen.families.extents import extents_of
from gen.families.names import illegal, variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.skinny import Squares, SquaresConfig
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check

FAMILY, SQUARES = Transpose(), Squares()
SPECS = {dtype.size: TransposeSpec((0, 2, 1), dtype) for dtype in (B8, B16, B32, B64, B128)}


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> list[Kernel]:
    """Of every element, with one square a thread and with several."""
    configs = [SquaresConfig(threads_per_block=64, unroll=unroll) for unroll in (1, 2, 4)]
    legal = [(spec, one) for spec in SPECS.values() for one in configs if illegal(SQUARES, spec, one) is None]
    return list(host_runner.load([variant(FAMILY, spec, SQUARES, one) for spec, one in legal]))


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(st.data(), st.integers(1, 20), st.integers(1, 16), st.integers(1, 16), st.sampled_from((0, 0, 1, 4)))
def test_small_matrices_of_whole_squares_are_where_numpy_has_them(
    kernels: list[Kernel],
    host_runner: HostRunner,
    data: st.DataObject,
    matrices: int,
    high: int,
    wide: int,
    offset: int,
) -> None:
    kernel = data.draw(st.sampled_from(kernels))
    spec, config = kernel.variant.spec, kernel.variant.config
    assert isinstance(spec, TransposeSpec)
    assert isinstance(config, SquaresConfig)
    per = 16 // spec.dtype.size
    extents = extents_of(FAMILY, spec, (matrices, high * per, wide * per))
    if SQUARES.unsupported_extents(spec, config, extents, host_runner.limits) is None:
        failure = check(kernel, host_runner.limits, Case(extents, offset=offset))
        assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((100, 32, 32), None),
        ((100, 30, 32), "not made of whole squares of 4 x 4"),
        ((100, 64, 128), "a matrix has 512 squares; it supports at most 256"),
        ((100, 4, 1), "not made of whole squares"),
    ],
)
def test_it_takes_matrices_of_whole_squares_alone(
    shape: tuple[int, ...], says: str | None, host_runner: HostRunner
) -> None:
    spec = SPECS[4]
    found = SQUARES.unsupported_extents(spec, SquaresConfig(), extents_of(FAMILY, spec, shape), host_runner.limits)
    assert found == says if says is None else says in str(found)
