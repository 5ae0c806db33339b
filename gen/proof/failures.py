"""Problems on which a variant failed: the smallest that fails alike, and those that are kept to be tried first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gen.errors import ShapeError, StoreError
from gen.families.base import Extents, Family, Spec, Variant
from gen.families.extents import shape_of
from gen.proof.cases import Case, Content

WRONG, AGAIN, BESIDE, CHANGED, REFUSED, UNTOUCHED = (
    "wrong result", "other bits the second time", "write beside the output", "changed input", "refused launch",
    "far elements untouched",
)  # fmt: skip
"""What a failure can be, beside the kinds of a `HostFault`."""

UNTRIED = "no case"
"""The kind of a verdict on a variant that takes none of the problems."""


@dataclass(frozen=True)
class Failure:
    """A case in which a variant is wrong, and how.

    Attributes:
        kind: what found it: a `HostFault`'s kind, or one of the names above.
    """

    case: Case
    reason: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}\n  on {self.case}"


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
    runtime_parameters = family.runtime_parameters(spec).keys() & case.extents.keys()
    pitches = {o.pitch for o in spec.operands if o.pitch} & case.extents.keys()
    dense = _measured(case.extents, dict.fromkeys(pitches, 0), family, spec)
    if dense is not None:
        yield replace(case, extents=dense)
    for name in sorted(axes) + sorted(runtime_parameters):
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
    return {**measured, **{name: sizes[name] for name in family.runtime_parameters(spec)}}


FILE = "failed_cases.jsonl"


@dataclass(frozen=True)
class Kept:
    """A case that was kept.

    Attributes:
        spec: by name: `reduction_sum_f32`.
        case: the problem.
        variant: which failed there.
        kind: what found it.
    """

    spec: str
    case: Case
    variant: str
    kind: str

    @classmethod
    def of(cls, variant: Variant, failure: Failure) -> Kept:
        """What is kept of a failure."""
        return cls(variant.spec_name, failure.case, variant.name, failure.kind)

    @property
    def key(self) -> tuple[str, str]:
        """The same for the same case of the same spec."""
        return self.spec, str(self.case)

    def line(self) -> str:
        """As it stands in the file."""
        case = {**asdict(self.case), "extents": dict(self.case.extents), "content": self.case.content.value}
        return json.dumps({"spec": self.spec, "case": case, "variant": self.variant, "kind": self.kind})


def keep(home: Path, found: Iterable[Kept]) -> tuple[Kept, ...]:
    """Adds cases to the file in `home`, those that no line has yet; returns them.

    Raises StoreError if the file is not what gen writes, or cannot be written.
    """
    known = {kept.key for kept in read(home)}
    new = tuple({kept.key: kept for kept in found if kept.key not in known}.values())
    if new:
        try:
            home.mkdir(parents=True, exist_ok=True)
            with (home / FILE).open("a", encoding="utf-8") as file:
                file.write("".join(kept.line() + "\n" for kept in new))  # at once, should others write too
        except OSError as error:
            raise StoreError(str(home / FILE), "must be writable", error) from error
    return new


def read(home: Path) -> tuple[Kept, ...]:
    """The cases in `home`, in order; none if it has no such file. Raises StoreError naming a line that is none."""
    place = home / FILE
    if not place.is_file():
        return ()
    found = []
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise StoreError(str(place), "must be text", error) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(_read(json.loads(line)))
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise StoreError(
                    f"{place}:{number}", "must be a case that gen wrote", error, next_step="Remove the line"
                ) from error
    return tuple(found)


def cases_for(kept: Iterable[Kept], variant: Variant) -> tuple[Case, ...]:
    """Those of the variant's spec, each once."""
    return tuple({str(one.case): one.case for one in kept if one.spec == variant.spec_name}.values())


def _read(content: Mapping[str, Any]) -> Kept:
    case = dict(content["case"])
    if "sm_count" in case:  # what earlier releases called it
        case["multiprocessors"] = case.pop("sm_count")
    extents = {str(name): _whole(extent) for name, extent in case.pop("extents").items()}
    made = Case(
        extents, Content(case.pop("content")), _whole(case.pop("seed")), _whole(case.pop("offset")),
        _whole(case.pop("multiprocessors"), least=1), case.pop("sampled") is True,
    )  # fmt: skip
    if case:
        raise ValueError(f"nothing is called {', '.join(case)}")
    return Kept(str(content["spec"]), made, str(content["variant"]), str(content["kind"]))


def _whole(number: object, least: int = 0) -> int:
    if type(number) is not int or number < least:
        raise ValueError(f"{number!r} is no number from {least}")
    return number
