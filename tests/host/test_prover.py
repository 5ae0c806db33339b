"""The prover lets right kernels pass and says of every wrong one what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.base import Extents, Limits, Variant
from gen.families.extents import shape_of
from gen.families.names import base_variants, variant
from gen.families.reduction import Reduction, ReductionSpec, Shfl
from gen.families.transpose import NaiveConfig, Transpose, TransposeSpec
from gen.proof.cases import MOST_GAP, Case, Content, cases_of, edge_cases
from gen.proof.failures import AGAIN, BESIDE, CHANGED, REFUSED, WRONG
from gen.proof.prover import check, prove, unsupported_extents
from tests.host.numpy_kernel import Buffers, NumpyKernel, NumpyRunner, beside, flip, last
from tests.strategies import cases, variants

LIMITS = Limits.of("sm_90")
VARIANTS = [base_variants(family, spec)[0] for family in FAMILIES for spec in family.catalogue]
each_variant = pytest.mark.parametrize("made", VARIANTS, ids=lambda made: made.name)
# What is done to an output below is done to the one that is called so; systems have several.
each_with_out = pytest.mark.parametrize(
    "made",
    [m for m in VARIANTS if [o.name for o in m.spec.operands if o.role == "out"] == ["out"]],
    ids=lambda made: made.name,
)
# Rows of others follow each other: but for the last there is nothing beside them.
each_with_gaps = pytest.mark.parametrize(
    "made",
    [m for m in VARIANTS if all(o.pitch or len(o.axes) < 2 for o in m.spec.operands)],
    ids=lambda made: made.name,
)


def inputs(made: Variant) -> tuple[str, ...]:
    return tuple(operand.name for operand in made.spec.operands if operand.role == "in")


SEED = 2  # with which the last unit of a merge has elements, and so counts


def awkward(made: Variant, **sizes: int) -> Case:
    """A small problem with pitches, exact where numbers are added."""
    drawn: dict[str, int] = {}
    for operand in made.spec.operands:
        for place, axis in enumerate(operand.axes):
            if isinstance(axis, str):
                drawn.setdefault(axis, 5 + place)
    for operand in made.spec.operands:
        if operand.pitch:
            drawn[operand.pitch] = shape_of(operand, drawn)[-1] + MOST_GAP
    return Case({**drawn, **sizes}, Content.INTEGERS, seed=SEED, offset=1)


def reason(kernel: NumpyKernel, case: Case, kind: str = WRONG) -> str:
    failure = check(kernel, LIMITS, case)
    assert failure is not None, "the kernel passes"
    assert failure.case == case
    assert failure.kind == kind
    assert str(failure).startswith(f"{kind}: {kernel.variant.name}: ")
    assert str(case) in str(failure)
    assert failure.reason.startswith(kernel.variant.name)
    return failure.reason.removeprefix(kernel.variant.name + ": ")


@given(st.data())
def test_a_right_kernel_passes_every_case(data: st.DataObject) -> None:
    made = data.draw(variants())
    case = data.draw(cases(made.family, made.spec))
    assume(unsupported_extents(made, case, replace(LIMITS, multiprocessors=case.multiprocessors)) is None)
    kernel = NumpyKernel(made)
    assert check(kernel, replace(LIMITS, multiprocessors=case.multiprocessors), case) is None
    assert kernel.runs == 2


@each_variant
def test_a_right_kernel_passes_the_cases_of_its_family(made: Variant) -> None:
    for case in cases_of(made.family, made.spec):
        assert check(NumpyKernel(made), LIMITS, case) is None


@each_with_out
def test_a_kernel_that_drops_the_last_element_is_wrong_in_its_output(made: Variant) -> None:
    case = replace(awkward(made), seed=2)  # in which the last of the units that are merged has elements
    said = reason(NumpyKernel(made, drop_last=True), case)
    assert said.startswith("out")
    assert "exactly" in said or made.family.name == "merge"  # what it merges may have been rounded
    assert "elements are wrong" in said


def test_a_dropped_element_shows_at_any_length() -> None:
    made = base_variants(Reduction(), ReductionSpec())[0]
    for n in (1, 2, 31, 1000, 40_000):
        assert "must be" in reason(NumpyKernel(made, drop_last=True), Case({"n": n}, Content.INTEGERS, seed=n))


@each_with_out
def test_a_kernel_that_leaves_an_element_unwritten_is_wrong(made: Variant) -> None:
    case = awkward(made)
    (out,) = (operand for operand in made.spec.operands if operand.role == "out")
    index = [extent - 1 for extent in shape_of(out, case.extents)]
    assert reason(NumpyKernel(made, leave=True), case).startswith(f"out{index or ''} must be")


@each_with_out
def test_an_unwritten_element_that_held_the_right_value_by_luck_is_found(made: Variant) -> None:
    def leave(buffers: Buffers, run: int) -> None:
        if run == 2:  # the first time the memory held what NumPy says
            out = buffers["out"]
            out[last(out)] = np.frombuffer(b"\x5a" * out.itemsize, out.dtype)[0]

    assert reason(NumpyKernel(made, leave), awkward(made), AGAIN) == "a second run gives other bits in out"


@each_with_gaps
def test_a_kernel_that_writes_beside_its_rows_is_reported(made: Variant) -> None:
    def stray(buffers: Buffers, _run: int) -> None:
        wide = beside(buffers["out"])
        flip(wide, (0,) * (wide.ndim - 1) + (wide.shape[-1] - 1,))

    assert (
        reason(NumpyKernel(made, stray), awkward(made), BESIDE)
        == "bytes between the rows of out, or next to it, change"
    )


@each_with_out
def test_a_kernel_that_writes_behind_its_output_is_reported(made: Variant) -> None:
    def stray(buffers: Buffers, _run: int) -> None:
        wide = beside(buffers["out"])
        flip(wide, last(wide))

    dense = awkward(made)
    assert reason(NumpyKernel(made, stray), dense, BESIDE) == "bytes between the rows of out, or next to it, change"


@each_variant
def test_a_kernel_that_changes_its_input_is_reported(made: Variant) -> None:
    for name in inputs(made):

        def change(buffers: Buffers, _run: int, name: str = name) -> None:
            flip(buffers[name], (0,) * buffers[name].ndim)

        assert reason(NumpyKernel(made, change), awkward(made), CHANGED) == f"the input {name} is changed"


@each_variant
def test_a_kernel_that_changes_what_lies_beside_its_input_is_reported(made: Variant) -> None:
    for name in inputs(made):

        def change(buffers: Buffers, _run: int, name: str = name) -> None:
            wide = beside(buffers[name])
            flip(wide, last(wide))

        assert reason(NumpyKernel(made, change), awkward(made), CHANGED) == f"the input {name} is changed"


@each_with_out
def test_a_kernel_that_gives_other_bits_the_second_time_is_reported(made: Variant) -> None:
    def waver(buffers: Buffers, run: int) -> None:
        if run == 2:
            flip(buffers["out"], last(buffers["out"]))

    case = replace(awkward(made), content=Content.RANDOM)  # the last bit is within every bound
    assert reason(NumpyKernel(made, waver), case, AGAIN) == "a second run gives other bits in out"


@each_variant
def test_a_rule_broken_on_the_way_is_the_reason(made: Variant) -> None:
    def crash(_buffers: Buffers, _run: int) -> None:
        raise RunError(f"{made.name}: a barrier", "must be reached by all threads")

    assert reason(NumpyKernel(made, crash), awkward(made), REFUSED) == "a barrier must be reached by all threads"


@each_with_out
def test_both_runs_start_from_different_memory(made: Variant) -> None:
    seen: list[bytes] = []

    class Watching(NumpyKernel):
        def run(self, extents: Extents, buffers: Buffers) -> None:
            seen.append(buffers["out"].tobytes())
            super().run(extents, buffers)

    assert check(Watching(made), LIMITS, awkward(made)) is None
    assert len(seen) == 2
    assert all(one != other for one, other in zip(*seen, strict=True))


def test_proofs_come_in_order_with_the_number_of_cases() -> None:
    runner = NumpyRunner(LIMITS)
    proofs = list(prove(runner, VARIANTS))
    assert [proof.variant for proof in proofs] == VARIANTS
    for proof in proofs:
        assert proof.failure is None
        assert proof.skipped is None
        made = proof.variant
        known = (*cases_of(made.family, made.spec), *edge_cases(made))
        covered = [case for case in known if unsupported_extents(made, case, LIMITS) is None]
        assert proof.cases == len(covered) > 10


def test_each_device_gets_all_variants_at_once() -> None:
    runner = NumpyRunner(LIMITS)
    case = awkward(VARIANTS[1])
    both = [VARIANTS[1], variant(Transpose(), TransposeSpec(), "naive", NaiveConfig())]
    cases_on = [replace(case, multiprocessors=count) for count in (3, 1, 3)]
    assert [proof.cases for proof in prove(runner, both, cases_on)] == [3, 3]
    assert runner.loaded == [(1, [made.name for made in both]), (3, [made.name for made in both])]


def test_a_proof_ends_with_the_first_failure() -> None:
    sum_cases = [Case({"n": 0}, Content.INTEGERS), Case({"n": 7}, Content.INTEGERS), Case({"n": 9}, Content.INTEGERS)]

    class DropsUnlessEmpty(NumpyKernel):
        def run(self, extents: Extents, buffers: Buffers) -> None:
            self.drop_last = extents["n"] > 0
            super().run(extents, buffers)

    (proof,) = prove(NumpyRunner(LIMITS, DropsUnlessEmpty), VARIANTS[:1], sum_cases)
    assert proof.cases == 1
    assert proof.failure is not None
    assert proof.failure.case == sum_cases[1]


def test_what_the_cpu_cannot_run_is_skipped_with_the_reason() -> None:
    class OnGpuOnly(Shfl):
        not_on_host = "the CPU run has no tensor copies"

    family = Reduction()
    family.algorithms = {"shfl": OnGpuOnly()}
    made = variant(family, ReductionSpec(), "shfl", Shfl.config())
    runner = NumpyRunner(LIMITS)
    proofs = list(prove(runner, [made, VARIANTS[0]], [Case({"n": 3})]))
    assert [(proof.cases, proof.skipped) for proof in proofs] == [(0, "the CPU run has no tensor copies"), (1, None)]
    assert runner.loaded == [(132, [VARIANTS[0].name])]


def test_sizes_that_a_variant_does_not_take_are_left_out() -> None:
    class Small(Shfl):
        def unsupported_extents(self, spec: Any, config: Any, extents: Extents, limits: Limits) -> str | None:
            return "too long" if extents["n"] > 5 else None

    family = Reduction()
    family.algorithms = {"shfl": Small()}
    made = variant(family, ReductionSpec(), "shfl", Shfl.config())
    (proof,) = prove(NumpyRunner(LIMITS), [made], [Case({"n": 5}), Case({"n": 6})])
    assert (proof.cases, proof.failure) == (1, None)
