"""Runs copied one after another: every element is where NumPy has it, however runs begin, end and follow each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128
from gen.emit.render import render
from gen.families.base import Kernel, Limits
from gen.families.layout import extents_of, layout_of
from gen.families.names import variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.flat_copy import FlatCopy, FlatCopyConfig
from gen.proof.cases import Case
from gen.proof.host import HostRunner
from gen.proof.prover import check

FAMILY, FLAT_COPY = Transpose(), FlatCopy()
AXES = ((0,), (0, 1), (1, 0, 2), (0, 2, 1, 3), (2, 0, 1, 3), (2, 1, 0, 3), (3, 1, 2, 0, 4), (2, 1, 4, 3, 0, 5))


@pytest.fixture(scope="module")
def kernels(host_runner: HostRunner) -> list[Kernel]:
    """Of several permutations, each of elements of another size."""
    specs = [TransposeSpec(axes, (B8, B16, B32, B64, B128)[place % 5]) for place, axes in enumerate(AXES)]
    configs = [FlatCopyConfig(threads_per_block=128, unroll=(1, 2, 4)[place % 3]) for place in range(len(specs))]
    made = [variant(FAMILY, spec, FLAT_COPY, config) for spec, config in zip(specs, configs, strict=True)]
    return list(host_runner.load(made))


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(st.data(), st.sampled_from((0, 0, 1, 4)), st.sampled_from((0, 0, 1, 16)), st.sampled_from((0, 0, 3, 16)))
def test_runs_are_where_numpy_has_them(
    kernels: list[Kernel], host_runner: HostRunner, data: st.DataObject, offset: int, in_gap: int, out_gap: int
) -> None:
    kernel = data.draw(st.sampled_from(kernels))
    spec, config = kernel.variant.spec, kernel.variant.config
    assert isinstance(spec, TransposeSpec)
    assert isinstance(config, FlatCopyConfig)
    run = data.draw(st.integers(1, 40) | st.integers(1, 8).map(lambda vectors: vectors * 16))
    shape = [data.draw(st.integers(0, 5)) for _ in spec.axes[:-1]] + [run]
    known = {str(axis): extent for axis, extent in zip(spec.operands[0].axes, shape, strict=True)}
    for operand, gap in zip(spec.operands, (in_gap, out_gap), strict=True):
        if operand.pitch:
            known[operand.pitch] = known[str(operand.axes[-1])] + gap
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    if FLAT_COPY.uncovered(spec, config, extents, host_runner.limits) is None:
        failure = check(kernel, host_runner.limits, Case(extents, offset=offset))
        assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((65535, 4, 3, 8), None),
        ((3, 4, 65536, 8), "65536 blocks along y or z"),
        ((65536, 4, 3, 8), "65536 blocks along y or z"),
        ((2, 2**30, 2, 8), "vectors; it takes 2147483646 at most"),
        ((2, 128, 512, 2**17), None),
        ((2, 129, 512, 2**17), "a vector's place may be 4328521728; it takes 4294967296 at most"),
    ],
)
def test_the_axes_behind_must_fit_in_a_grid(shape: tuple[int, ...], says: str | None) -> None:
    spec = TransposeSpec((0, 2, 1, 3), B32)
    extents = extents_of(FAMILY, spec, shape)
    found = FLAT_COPY.uncovered(spec, FlatCopyConfig(), extents, Limits.of("sm_90"))
    assert found == says if says is None else says in str(found)


@pytest.mark.parametrize(("in_row", "out_row", "fits"), [(8, 2**32, False), (2**32, 8, False), (2**26, 8, True)])
def test_neither_array_may_lie_further_apart_than_its_vectors_are_numbered(
    in_row: int, out_row: int, fits: bool
) -> None:
    spec = TransposeSpec((0, 2, 1, 3), B32)
    known = {"axis0": 2, "axis1": 4, "axis2": 4, "axis3": 8, "in_row": in_row, "out_row": out_row}
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    found = FLAT_COPY.uncovered(spec, FlatCopyConfig(), extents, Limits.of("sm_90"))
    assert (found is None) == fits
    assert fits or "a vector's place may be" in str(found)


@pytest.mark.parametrize("axes", [(0, 1), (0, 2, 1), (0, 2, 1, 3), (1, 0, 3, 2, 4), (2, 1, 0, 4, 3, 5)])
def test_where_vectors_are_whole_nothing_waits_for_the_numbers_of_elements(axes: tuple[int, ...]) -> None:
    made = variant(FAMILY, TransposeSpec(axes, B16), FLAT_COPY, FlatCopyConfig())
    head, body = render(made).rpartition(f"    {made.name}(")[2].split(") {", 1)
    numbers, of_elements = head.split("int whole")
    by_vectors = body.partition("if (!whole")[0] + body.partition("return;")[2]
    assert "long long" not in numbers.replace("unsigned long long", "")
    names = re.findall(r"long long (\w+)", of_elements)
    assert names[0] == "run_elements"
    assert not [name for name in names if re.search(rf"\b{name}\b", by_vectors)]
