"""The smallest problem on which a variant is still wrong in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from gen.errors import ShapeError
from gen.families.base import Extents, Family, Spec
from gen.families.extents import shape_of
from gen.proof.cases import Case, Content
from gen.proof.failure import Failure

MOST_TRIALS = 200


def smallest(failure: Failure, family: Family[Any], spec: Spec, check: Callable[[Case], Failure | None]) -> Failure:
    """Tries simpler cases as long as one of them fails alike, at most MOST_TRIALS in all.

    Args:
        failure: what was found. A sampled case is as small as it can be.
        family: whose problem it is.
        spec: what is computed.
        check: what is wrong on a case; None where the variant is right, or does not take it.
    """
    if failure.case.sampled:
        return failure
    tried = {_key(failure.case)}
    progress = True
    while progress:
        progress = False
        for case in _simpler(failure.case, family, spec):
            if _key(case) in tried:
                continue
            if len(tried) > MOST_TRIALS:
                return failure
            tried.add(_key(case))
            found = check(case)
            if found is not None and found.kind == failure.kind:
                failure, progress = found, True
                break
    return failure


def _key(case: Case) -> str:
    return str(case)


def _simpler(case: Case, family: Family[Any], spec: Spec) -> Iterator[Case]:
    """Cases with one thing simpler, the greatest steps first."""
    if case.content is not Content.INTEGERS:
        yield replace(case, content=Content.INTEGERS)
    if case.offset:
        yield replace(case, offset=0)
    if case.seed:
        yield replace(case, seed=0)
    axes = {axis for o in spec.operands for axis in o.axes if isinstance(axis, str)} & case.extents.keys()
    counts = family.counts(spec).keys() & case.extents.keys()
    pitches = {o.pitch for o in spec.operands if o.pitch} & case.extents.keys()
    dense = _measured(case.extents, dict.fromkeys(pitches, 0), family, spec)
    if dense is not None:
        yield replace(case, extents=dense)
    for name in sorted(axes) + sorted(counts):
        extent = case.extents[name]
        less_by = (extent >> halvings for halvings in range(2, extent.bit_length()))  # down to 1
        for less in dict.fromkeys((0, 1, 2, extent // 4, extent // 2, *(extent - step for step in less_by))):
            if 0 <= less < extent:
                simpler = _measured(case.extents, {name: less}, family, spec)
                if simpler is not None:
                    yield replace(case, extents=simpler)


def _measured(extents: Extents, changes: Extents, family: Family[Any], spec: Spec) -> Extents | None:
    """Extents with changes, gaps after rows kept unless a pitch is set to 0; None if there is no such problem."""
    sizes = {**extents, **changes}
    try:
        for operand in spec.operands:
            if operand.pitch:
                gap = extents[operand.pitch] - shape_of(operand, extents)[-1] if operand.pitch not in changes else 0
                sizes[operand.pitch] = shape_of(operand, sizes)[-1] + gap
        measured = dict(family.extents(spec, family.layouts(spec, sizes)))
    except ShapeError:
        return None
    return {**measured, **{name: sizes[name] for name in family.counts(spec)}}
