"""Matrices of as few rows or columns as a text says: every element is where NumPy has it, whatever lies around it."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128, DType
from gen.families.base import Kernel
from gen.families.extents import layout_of
from gen.families.names import variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.skinny import Few, Interleave, InterleaveConfig
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check

FAMILY, INTERLEAVE = Transpose(), Interleave()
COUNTS = sorted({config.count for config in InterleaveConfig.space()})


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> dict[tuple[int, Few, int], Kernel]:
    """Of batches of matrices, by bytes of an element, what there is little of, and how many."""
    keys = [(dtype, few, count) for dtype in (B8, B16, B32, B64, B128) for few in Few for count in COUNTS]
    made = [
        variant(FAMILY, batched(dtype), INTERLEAVE, InterleaveConfig(few=few, count=count, threads_per_block=64))
        for dtype, few, count in keys
    ]
    named = [(dtype.size, few, count) for dtype, few, count in keys]
    return dict(zip(named, host_runner.load(made), strict=True))


@cache
def batched(dtype: DType) -> TransposeSpec:
    """Matrices, each turned."""
    return TransposeSpec((0, 2, 1), dtype)


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(
    st.sampled_from((1, 2, 4, 8, 16)), st.sampled_from(tuple(Few)), st.sampled_from(COUNTS), st.integers(1, 3),
    st.integers(0, 40) | st.integers(0, 2500), st.sampled_from((0, 0, 0, 1, 16)), st.sampled_from((0, 0, 0, 1, 4)),
)  # fmt: skip
def test_few_rows_and_columns_of_any_element_are_where_numpy_has_them(
    kernels: dict[tuple[int, Few, int], Kernel],
    host_runner: HostRunner,
    bytes_each: int,
    few: Few,
    count: int,
    matrices: int,
    length: int,
    gap: int,
    offset: int,
) -> None:
    kernel = kernels[bytes_each, few, count]
    spec, config = kernel.variant.spec, kernel.variant.config
    assert isinstance(spec, TransposeSpec)
    assert isinstance(config, InterleaveConfig)
    rows, cols = (length, count) if few is Few.COLS else (count, length)
    known = {"axis0": matrices, "axis1": rows, "axis2": cols, "in_row": cols, "out_row": rows}
    known["out_row" if few is Few.COLS else "in_row"] += gap
    extents = FAMILY.extents(spec, {o.name: layout_of(o, known) for o in spec.operands})
    if INTERLEAVE.unsupported_extents(spec, config, extents, host_runner.limits) is None:
        failure = check(kernel, host_runner.limits, Case(extents, offset=offset))
        assert failure is None, str(failure)


def test_it_takes_just_the_matrices_that_its_text_is_for(host_runner: HostRunner) -> None:
    spec = TransposeSpec()
    for config in InterleaveConfig.space():
        rows, cols = (1000, config.count) if config.few is Few.COLS else (config.count, 1000)
        for more in (0, 1):
            known = {"rows": rows + more, "cols": cols + more, "in_pitch": cols + more, "out_pitch": rows + more}
            takes = INTERLEAVE.unsupported_extents(spec, config, known, host_runner.limits) is None
            assert takes == (more == 0)
        apart = {"rows": rows, "cols": cols, "in_pitch": cols + 1, "out_pitch": rows + 1}
        assert "must be the number of" in str(INTERLEAVE.unsupported_extents(spec, config, apart, host_runner.limits))
