"""Which cases `gen bench` measures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from gen.cli.common import OptionError

if TYPE_CHECKING:
    from gen.bench.rows import Results
    from gen.bench.works import Case


def missing_in(
    cases: Sequence[Case], kept: Results, protocol: str, peers: Sequence[str]
) -> tuple[Case, ...]:  # fmt: skip
    """The cases of which our row or a peer's is not there under a protocol, has failed, or is of an older method."""
    from gen.bench.rows import NOT_OFFERED, OURS

    found = []
    for case in cases:
        rows = [row for row in kept.rows if (row.family, row.case) == (case.family, case.name)]
        there = {row.peer: row for row in rows if row.protocol == protocol}
        ours = there.get(OURS)
        if ours is not None and ours.note.startswith(NOT_OFFERED):
            continue
        if not {OURS, *peers} <= there.keys() or not all(row.is_done and not kept.is_old(row) for row in rows):
            found.append(case)
    return tuple(found)


def check_common(before: Results, cases: Sequence[Case], protocol: str) -> None:
    """Raises OptionError if an earlier run has none of these cases."""
    from gen.bench.rows import OURS

    known = {
        (row.family, row.case) for row in before.rows if row.peer == OURS and row.ours_us and row.protocol == protocol
    }
    if not any((case.family, case.name) in known for case in cases):
        rule = f"must have a time of ours for one of these {len(cases)} cases, {protocol}"
        raise OptionError("--against", rule, before.path, next_step="gen bench --json FILE writes it")


def select_cases(cases: Sequence[Case], family: str | None, filters: Sequence[str] | None) -> tuple[Case, ...]:
    """The cases meant. Raises UnknownNameError if there are none."""
    from gen.errors import UnknownNameError
    from gen.families.names import unknown

    families = list(dict.fromkeys(case.family for case in cases))
    if family is not None and family not in families:
        raise unknown("The family", family, families)
    found = tuple(case for case in cases if family in (None, case.family))
    if filters:
        found = tuple(
            case for case in found if any(text in case.name or fnmatchcase(case.name, text) for text in filters)
        )
    if not found:
        raise UnknownNameError(
            "--case",
            "must be a part of a case's name, or a pattern such as 'sum f32*' that all of one matches",
            ", ".join(filters or ()),
            next_step="gen bench --list has the names",
        )
    return found


def part_of(cases: Sequence[Case], part: str) -> tuple[Case, ...]:
    """Every N-th case, from the K-th. Raises OptionError for what is no part."""
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise OptionError("--part", "must be K/N, K from 1 to N", part)
    chosen = tuple(cases[int(found[1]) - 1 :: int(found[2])])
    if not chosen:
        raise OptionError("--part", f"leaves nothing: there are {len(cases)} cases", part)
    return chosen
