"""Proves variants: runs them on cases, twice each on the same scratch, and compares with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from gen.errors import RunError
from gen.families.base import Expected, Kernel, Limits, Runner, Variant
from gen.proof.cases import Case, Content, allocate, begins, cases_of, edge_cases, fill, has_elements, numbers_of
from gen.proof.error_bounds import disagreement, sharpened
from gen.proof.failures import AGAIN, BESIDE, CHANGED, REFUSED, WRONG, Failure, smallest
from gen.proof.sampled import can_sample, check_sampled, far_cases, sampled_cases, too_long

CasesOf = Callable[[Variant], Sequence[Case]]
"""Says on which cases a variant is proven."""

# Two different fills: an element that a kernel does not write differs between the two runs.
_FILLS = (0xA5, 0x5A)


@dataclass(frozen=True)
class Proof:
    """What is known of a variant: on how many cases it was right, or the first on which it was not.

    Attributes:
        skipped: why it cannot be run here; None if it can.
        untried: why it was proven on nothing: it takes none of the problems that have elements and are run whole.
    """

    variant: Variant
    cases: int
    failure: Failure | None = None
    skipped: str | None = None
    untried: str | None = None


class AdjustableRunner(Runner, Protocol):
    """A runner that can play a device of other limits, on which grids are smaller."""

    def on(self, limits: Limits) -> Self:
        """The same kernels on such a device."""
        ...


def prove(
    runner: AdjustableRunner,
    variants: Sequence[Variant],
    cases: Sequence[Case] | CasesOf | None = None,
    *,
    shrink: bool = False,
) -> Iterator[Proof]:
    """Proves variants in order, on `cases`, or else on those of their families and their edge cases.

    With `shrink` a failure comes with the smallest problem that was found to fail alike. Kernels are made ready before
    the first proof comes out; hand in as many variants as should be built together.
    """
    refused = {variant: reason for variant in variants if (reason := runner.cannot_run(variant)) is not None}
    runnable = [variant for variant in variants if variant not in refused]
    tried = {variant: _cases(variant, cases) for variant in runnable}
    counts = {case.multiprocessors for variant in runnable for case in tried[variant]}
    devices = {count: replace(runner.limits, multiprocessors=count) for count in sorted(counts)}
    kernels = {count: load(runner, runnable, limits) for count, limits in devices.items()}
    for variant in variants:
        if variant in refused:
            yield Proof(variant, 0, skipped=refused[variant])
            continue
        proven, failure = 0, None
        for case in tried[variant]:
            kernel = kernels[case.multiprocessors][variant]
            if unsupported_extents(variant, case, devices[case.multiprocessors]) or (
                case.sampled and not can_sample(kernel)
            ):
                continue
            failure = check(kernel, devices[case.multiprocessors], case)
            if failure is not None:
                if shrink:
                    failure = _smallest(kernel, devices[case.multiprocessors], failure)
                break
            proven += 1
        untried = why_untried(variant, tried[variant], runner.limits) if failure is None else None
        yield Proof(variant, proven, failure, untried=untried)


def why_untried(variant: Variant, cases: Sequence[Case], limits: Limits) -> str | None:
    """Why a variant takes none of the cases that have elements and are run whole; None if it takes one."""
    reason = None
    for case in cases:
        if not case.sampled and has_elements(variant.family, variant.spec, case.extents):
            found = unsupported_extents(variant, case, replace(limits, multiprocessors=case.multiprocessors))
            if found is None:
                return None
            reason = reason or found
    return reason or "none of them has elements"


def load(runner: AdjustableRunner, variants: Sequence[Variant], limits: Limits) -> dict[Variant, Kernel]:
    """Kernels of these variants, ready to run on a device of these limits."""
    return dict(zip(variants, runner.on(limits).load(variants), strict=True))


def unsupported_extents(variant: Variant, case: Case, limits: Limits) -> str | None:
    """Why the variant cannot take this case."""
    reason = variant.algorithm.unsupported_extents(variant.spec, variant.config, case.extents, limits)
    return reason or too_long(variant, limits, case)


def check(kernel: Kernel, limits: Limits, case: Case) -> Failure | None:
    """Runs a kernel on a case, twice on the same scratch; the first thing that is wrong, or None.

    Of a case that is sampled chosen blocks run, once.

    Right means: every output within its bound of NumPy's, the same bits in both runs, no byte written outside the
    outputs, no input changed, and no rule broken on the way.
    """
    if case.sampled:
        return check_sampled(kernel, limits, case)
    variant = kernel.variant
    family, spec = variant.family, variant.spec
    layouts = family.layouts(spec, case.extents)
    arrays = [operand for operand in spec.operands if operand.role != "number"]
    results: list[dict[str, Any]] = []
    expected: Mapping[str, Expected] = {}
    for byte in _FILLS:
        blocks = {
            operand.name: allocate(layouts[operand.name], begins(case.offset, place), byte)
            for place, operand in enumerate(arrays)
        }
        for place, operand in enumerate(arrays):
            if operand.role != "out":
                array, are_places = blocks[operand.name].array, family.holds_places(spec, operand)
                fill(array, operand.dtype, Content.INTEGERS if are_places else case.content, case.seed * 101 + place)
                if are_places:
                    array //= 3  # -3 to 2: many lie in the same cells, the first one too, and some outside
        numbers = numbers_of(spec, case.content, case.seed)
        inputs = {operand.name: blocks[operand.name].array.copy() for operand in arrays if operand.role != "out"}
        inputs |= numbers
        expected = expected or {
            name: sharpened(one, random_signs=case.content is Content.INTEGERS)
            for name, one in family.oracle(spec, inputs, case.extents).items()
        }
        before = {name: (block.memory.copy(), block.outside()) for name, block in blocks.items()}
        try:
            kernel.run(case.extents, {**{name: block.array for name, block in blocks.items()}, **numbers})
        except RunError as error:
            return Failure(case, str(error), getattr(error, "kind", REFUSED))
        for operand in arrays:
            memory, outside = before[operand.name]
            if operand.role == "in" and not np.array_equal(blocks[operand.name].memory, memory):
                return Failure(case, f"{variant.name}: the input {operand.name} is changed", CHANGED)
            if not np.array_equal(blocks[operand.name].outside(), outside):
                reason = f"{variant.name}: bytes between the rows of {operand.name}, or next to it, change"
                return Failure(case, reason, BESIDE)
        results.append({o.name: blocks[o.name].array.copy() for o in arrays if o.role in ("out", "inout")})
    roundings = variant.algorithm.roundings(spec, variant.config, case.extents, limits)
    for operand in arrays:
        if operand.name not in results[0]:
            continue
        got, again = results[0][operand.name], results[1][operand.name]
        wrong = disagreement(expected[operand.name], got, roundings, operand.dtype)
        if wrong is not None:
            return Failure(case, f"{variant.name}: {operand.name}{wrong}{_undefined(kernel)}", WRONG)
        if got.tobytes() != again.tobytes():
            reason = f"{variant.name}: a second run gives other bits in {operand.name}{_undefined(kernel)}"
            return Failure(case, reason, AGAIN)
    return None


def _smallest(kernel: Kernel, limits: Limits, failure: Failure) -> Failure:
    variant = kernel.variant

    def again(case: Case) -> Failure | None:
        return None if unsupported_extents(variant, case, limits) else check(kernel, limits, case)

    return smallest(failure, variant.family, variant.spec, again)


def _undefined(kernel: Kernel) -> str:
    """What may be behind a wrong result: a value that is undefined, where the CPU run has seen one."""
    seen = getattr(kernel, "undefined", "")
    return f"; a value was undefined at {seen}" if seen else ""


def _cases(variant: Variant, cases: Sequence[Case] | CasesOf | None) -> Sequence[Case]:
    if cases is not None:
        return cases(variant) if callable(cases) else cases
    family, spec = variant.family, variant.spec
    return (*cases_of(family, spec), *edge_cases(variant), *sampled_cases(family, spec), *far_cases(family, spec))
