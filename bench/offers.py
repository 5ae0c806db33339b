"""What gen has for a case: its spec at its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.works import Case, Permute, Reduce, Sweep
from gen.errors import SpecError
from gen.families.base import Family, Spec
from gen.families.counts import counted
from gen.families.layout import extents_of
from gen.families.names import find_family
from gen.families.reduction import ReductionSpec, reduction
from gen.families.regions import Region, sizes_of
from gen.families.stencil import StencilSpec
from gen.families.stencil.spec import MOST_AXES, MOST_WEIGHTS
from gen.families.transpose import TransposeSpec, transpose
from gen.gpu.trial import Problem


def problem_of(case: Case, families: Sequence[Family[Any]]) -> Problem:
    """The case as a problem whose winner is for its shape alone. Raises GenError with the reason if there is none."""
    family = find_family(families, case.family)
    spec = spec_of(case)
    extents = {**extents_of(family, spec, case.shape), **counted(family, spec, counts_of(case))}
    return Problem(family, spec, extents, region=Region.exactly(sizes_of(family, spec, extents)))


def counts_of(case: Case) -> dict[str, int]:
    """What a call states by name."""
    return {"steps": case.work.steps} if isinstance(case.work, Sweep) else {}


def spec_of(case: Case) -> Spec:
    """The case's spec. Raises GenError with the reason if no family has it."""
    work = case.work
    if isinstance(work, Reduce):
        return _reduction(case, work)
    return _transpose(case, work) if isinstance(work, Permute) else _stencil(case, work)


def _reduction(case: Case, work: Reduce) -> ReductionSpec:
    return reduction(work.ops, case.dtype, axis=work.axes)


def _transpose(case: Case, work: Permute) -> TransposeSpec:
    return transpose(work.axes, case.dtype)


def _stencil(case: Case, work: Sweep) -> StencilSpec:
    wide = 2 * work.radius + 1
    if wide > MOST_WEIGHTS or work.ndim > MOST_AXES:  # before they are counted up: there may be very many
        rule = f"must be 1 to {MOST_WEIGHTS} along each of 1 or {MOST_AXES} axes"
        raise SpecError("stencil.weights", rule, f"{wide} along each of {work.ndim}")
    shape = (wide,) * work.ndim
    return StencilSpec(work.label, work.weights, shape, case.dtype, work.boundary)
