"""Runs copied one after another: every element is where NumPy has it, however runs begin, end and follow each other."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.dtypes import B8, B16, B32, B64, B128, I32
from gen.emit.launch import HOST_ONLY
from gen.emit.render import render
from gen.errors import ConfigError
from gen.families.base import Kernel, Limits
from gen.families.expr import constant
from gen.families.extents import extents_of, layout_of
from gen.families.names import variant
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.algorithms.copies import FlatCopy, FlatCopyConfig
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
    even = [
        variant(FAMILY, spec, FLAT_COPY, FlatCopyConfig(threads_per_block=128, unroll=(4, 1, 2)[place % 3], even=True))
        for place, spec in enumerate(specs)
        if spec.batches
    ]
    return list(host_runner.load([*made, *even]))


@settings(max_examples=max(settings().max_examples // 4, 1))
@given(st.data(), st.sampled_from((0, 0, 1, 4)), st.sampled_from((0, 0, 1, 16)), st.sampled_from((0, 0, 3, 16)))
def test_runs_are_where_numpy_has_them(
    kernels: list[Kernel], host_runner: HostRunner, data: st.DataObject, offset: int, in_gap: int, out_gap: int
) -> None:
    kernel = data.draw(st.sampled_from(kernels))
    spec, config = kernel.variant.spec, kernel.variant.config
    assert isinstance(spec, TransposeSpec)
    assert isinstance(config, FlatCopyConfig)
    powers = st.integers(0, 7).map(lambda power: max(2**power * 16 // spec.dtype.size, 1))
    run = data.draw(powers if config.even else st.integers(1, 40) | st.integers(1, 8).map(lambda count: count * 16))
    shape = [data.draw(st.integers(0, 5)) for _ in spec.axes[:-1]] + [run]
    known = {str(axis): extent for axis, extent in zip(spec.operands[0].axes, shape, strict=True)}
    for operand, gap in zip(spec.operands, (in_gap, out_gap), strict=True):
        if operand.pitch:
            known[operand.pitch] = known[str(operand.axes[-1])] + gap
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    if FLAT_COPY.unsupported_extents(spec, config, extents, host_runner.limits) is None:
        failure = check(kernel, host_runner.limits, Case(extents, offset=offset))
        assert failure is None, str(failure)


@pytest.mark.parametrize("vectors", [1, 8, 128])
def test_whole_runs_of_many_blocks_are_where_numpy_has_them(
    kernels: list[Kernel], host_runner: HostRunner, vectors: int
) -> None:
    """Not by elements: arrays, runs and steps begin at vectors, and there are several vectors a thread."""
    for kernel in kernels:
        spec, config = kernel.variant.spec, kernel.variant.config
        assert isinstance(spec, TransposeSpec)
        assert isinstance(config, FlatCopyConfig)
        behind, run = len(spec.axes) - 1, vectors * 16 // spec.dtype.size
        many = max(config.threads_per_block * (config.unroll + 1) // vectors, 2)
        for long in range(max(behind - 2, 0), behind):
            shape = (*(many if place == long else 2 if place > behind - 4 else 1 for place in range(behind)), run)
            known = {str(axis): extent for axis, extent in zip(spec.operands[0].axes, shape, strict=True)}
            pitches = {o.pitch: run + gap for o, gap in zip(spec.operands, (16, 48), strict=True) if o.pitch}
            layouts = {operand.name: layout_of(operand, known | pitches) for operand in spec.operands}
            failure = check(kernel, host_runner.limits, Case(FAMILY.extents(spec, layouts)))
            assert failure is None, str(failure)


@pytest.mark.parametrize("vectors", [256, 512])
def test_even_runs_may_take_as_many_vectors_as_a_block_has_threads(host_runner: HostRunner, vectors: int) -> None:
    made = variant(FAMILY, TransposeSpec((1, 0, 2), B128), FLAT_COPY, FlatCopyConfig(threads_per_block=512, even=True))
    (kernel,) = host_runner.load([made])
    failure = check(kernel, host_runner.limits, Case(extents_of(FAMILY, made.spec, (3, 5, vectors))))
    assert failure is None, str(failure)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((65535, 4, 3, 8), None),
        ((3, 4, 65536, 8), "65536 blocks along y or z"),
        ((65536, 4, 3, 8), "65536 blocks along y or z"),
        ((2, 2**30, 2, 8), "vectors; it supports at most 2147483646"),
        ((2, 128, 512, 2**17), None),
        ((2, 129, 512, 2**17), "a vector's index may be 4328521728; it supports at most 4294967296"),
    ],
)
def test_the_axes_behind_must_fit_in_a_grid(shape: tuple[int, ...], says: str | None) -> None:
    spec = TransposeSpec((0, 2, 1, 3), B32)
    extents = extents_of(FAMILY, spec, shape)
    found = FLAT_COPY.unsupported_extents(spec, FlatCopyConfig(), extents, Limits.of("sm_90"))
    assert found == says if says is None else says in str(found)


@pytest.mark.parametrize(("in_row", "out_row", "fits"), [(8, 2**32, False), (2**32, 8, False), (2**26, 8, True)])
def test_neither_array_may_lie_further_apart_than_its_vectors_are_numbered(
    in_row: int, out_row: int, fits: bool
) -> None:
    spec = TransposeSpec((0, 2, 1, 3), B32)
    known = {"axis0": 2, "axis1": 4, "axis2": 4, "axis3": 8, "in_row": in_row, "out_row": out_row}
    extents = FAMILY.extents(spec, {operand.name: layout_of(operand, known) for operand in spec.operands})
    found = FLAT_COPY.unsupported_extents(spec, FlatCopyConfig(), extents, Limits.of("sm_90"))
    assert (found is None) == fits
    assert fits or "a vector's index may be" in str(found)


@pytest.mark.parametrize("axes", [(0, 1), (0, 2, 1), (0, 2, 1, 3), (1, 0, 3, 2, 4), (2, 1, 0, 4, 3, 5)])
@pytest.mark.parametrize(("unroll", "even"), [(1, False), (4, False), (4, True)])
def test_where_vectors_are_whole_nothing_waits_for_the_numbers_of_elements(
    axes: tuple[int, ...], unroll: int, even: bool
) -> None:
    config = FlatCopyConfig(unroll=unroll, even=even)
    if FLAT_COPY.illegal(TransposeSpec(axes, B16), config):
        return
    made = variant(FAMILY, TransposeSpec(axes, B16), FLAT_COPY, config)
    head, body = render(made).partition(HOST_ONLY)[0].rpartition(f"    {made.name}(")[2].split(") {", 1)
    numbers, of_elements = head.split("int all_vectors")
    by_vectors = body.partition("if (!all_vectors")[0] + body.partition("return;")[2]
    assert "long long" not in numbers.replace("unsigned long long", "")
    names = re.findall(r"long long (\w+)", of_elements)
    assert names[0] == "run_elements"
    assert not [name for name in names if re.search(rf"\b{name}\b", by_vectors)]


@given(
    st.integers(1, 600),
    st.tuples(st.integers(0, 2**28), st.integers(0, 2**28)),
    st.sampled_from((128, 256, 512)),
    st.integers(0, 2**31),
)
def test_a_next_vector_is_where_its_number_says(vectors: int, gaps: tuple[int, int], threads: int, number: int) -> None:
    """Of any run, also where places have more than 32 bits on the way."""
    config = FlatCopyConfig(threads_per_block=threads, unroll=2)
    spec = TransposeSpec((1, 0, 2), B128)
    steps = [vectors + gap for gap in gaps]
    known = {"rows": 1, "cols": vectors, "batch0": 1, "batch1": 1}
    on = [told.at(known) for told in FLAT_COPY.on(spec, config, *map(constant, steps))]
    assert max(on) < 2**32
    runs, part = divmod(number, vectors)
    next_runs, next_part = divmod(number + threads, vectors)
    ends = part + on[2] >= vectors
    assert next_part == part + on[2] - ends * vectors
    for step, told in zip(steps, on, strict=False):
        far = next_runs * step + next_part - (runs * step + part)
        assert (told + ends * (step - vectors) - far) % 2**32 == 0


@given(st.lists(st.sampled_from((8, 16, 24, 4, 9)), min_size=7, max_size=7))
def test_one_step_or_run_between_vectors_makes_nothing_whole(sizes: list[int]) -> None:
    spec, config = TransposeSpec((0, 2, 1, 3), B16), FlatCopyConfig()
    steps = [f"batch{place}{end}" for place in range(spec.batches) for end in ("_in", "_out")]
    known = {"rows": 1, "cols": sizes[0], **dict(zip(steps, sizes[1:], strict=True))}
    known |= {f"batch{place}": 2 for place in range(spec.batches)}
    (whole,) = (number.at(known) for dtype, number in FLAT_COPY.extra_arguments(spec, config) if dtype == I32)
    assert whole == all(size % 8 == 0 for size in sizes)


@given(st.integers(0, 9), st.sampled_from((128, 256, 512)))
def test_even_runs_are_told_by_their_exponent(power: int, threads: int) -> None:
    config, spec = FlatCopyConfig(threads_per_block=threads, even=True), TransposeSpec((1, 0, 2), B64)
    extents = extents_of(FAMILY, spec, (3, 5, 2 * 2**power))
    says = FLAT_COPY.unsupported_extents(spec, config, extents, Limits.of("sm_90"))
    assert (says is None) == (2**power <= threads)
    if says is None:
        assert FLAT_COPY.shift(spec, config).at(extents) == power


@pytest.mark.parametrize("vectors", [3, 24, 96, 512])
def test_even_runs_fill_the_threads_of_a_block(vectors: int) -> None:
    config, spec = FlatCopyConfig(threads_per_block=256, even=True), TransposeSpec((1, 0, 2), B128)
    says = FLAT_COPY.unsupported_extents(spec, config, extents_of(FAMILY, spec, (3, 5, vectors)), Limits.of("sm_90"))
    assert str(says).startswith(f"a block of 256 threads does not copy whole runs of {vectors} vectors: ")


def test_even_runs_are_several() -> None:
    with pytest.raises(ConfigError, match="leave it out"):
        variant(FAMILY, TransposeSpec((0,), B32), FLAT_COPY, FlatCopyConfig(even=True))
