"""Cases on which a variant has failed, kept in a file and tried first on every variant of their spec.

`failed_cases.jsonl` holds a case a line, with the variant that failed and how. It is made to be read and to be
committed: a case stays until its line is removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gen.errors import StoreError
from gen.families.base import Variant
from gen.proof.cases import Case, Content
from gen.proof.failure import Failure

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
    known = {(kept.spec, str(kept.case)) for kept in read(home)}
    new = tuple(
        {(kept.spec, str(kept.case)): kept for kept in found if (kept.spec, str(kept.case)) not in known}.values()
    )
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
