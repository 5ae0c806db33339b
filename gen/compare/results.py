"""Comparisons with other libraries that were made: `comparisons.json` in the folder of results, a contender a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite
from pathlib import Path
from types import NoneType
from typing import Any

from gen.compare.case import ComparisonCase
from gen.compare.row import OURS, Row
from gen.emit.folder import holding, write_if_changed
from gen.errors import StoreError
from gen.gpu.timing import Calibration, Protocol
from gen.paths import lock_of
from gen.store.winners import read_json

FILE = "comparisons.json"
SCHEMA = 1
_AGAIN = "Remove it, and run gen compare again"


@dataclass(frozen=True)
class Compared:
    """One contender on one problem, under one protocol.

    Attributes:
        extents: the problem's sizes, runtime parameters included.
        protocol: what the caches held: `cold` or `hot`.
        contender: `gen`, or the name of a peer.
        us: its median.
        gen_us: the median of our kernel, in turns with it.
        ratio, low, high: its time over ours, with the 95 % interval; None where too few were timed for one.
        verdict: WIN, TIE or LOSS for gen; `-` where there is none.
        variant: of ours.
        least_bytes: that must move, read and written.
        limit: the bandwidth it is scored against: `read`, `write` or `copy`.
        limit_us: the least time that this device allows such work.
    """

    device: str
    driver: str
    date: str
    spec: str
    extents: Mapping[str, int]
    protocol: str
    contender: str
    us: float
    gen_us: float
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    variant: str
    least_bytes: int
    limit: str
    limit_us: float

    @property
    def problem(self) -> tuple[str, str, str]:
        """What a later comparison takes the place of: all contenders of a device, a spec and sizes."""
        return self.device, self.spec, json.dumps(dict(self.extents), sort_keys=True)


def compared(
    case: ComparisonCase, rows: Iterable[Row], about: Calibration, device: str, driver: str, date: str
) -> tuple[Compared, ...]:
    """The contenders of a case that were timed.

    Args:
        case: what was computed.
        rows: what came of it.
        about: what the device can do.
        device: where it was.
        driver: its driver's version.
        date: when, as 2026-11-26.
    """
    work = case.family.work(case.spec, case.extents)
    found = []
    for row in rows:
        us = row.ours_us if row.peer == OURS else row.peer_us
        if us is None or row.ours_us is None:
            continue
        floor = about.floor_us(work, Protocol(row.protocol))
        found.append(
            Compared(
                device, driver, date, case.family.name_of(case.spec), dict(case.extents), row.protocol, row.peer,
                _short(us), _short(row.ours_us), _digits(row.ratio), _digits(row.low), _digits(row.high),
                row.verdict, row.variant, work.bytes_read + work.bytes_written, work.limit, _short(floor),
            )
        )  # fmt: skip
    return tuple(found)


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _digits(value: float | None) -> float | None:
    return None if value is None else _short(value)


def keep(home: Path, new: Sequence[Compared]) -> None:
    """Writes comparisons into `home`, in the place of earlier ones of the same device, spec and sizes.

    Raises StoreError if the file there is not what gen writes.
    """
    if not new:
        return
    again = {one.problem for one in new}
    with holding(lock_of(home)):
        stay = [one for one in read_compared(home) if one.problem not in again]
        write_if_changed(home / FILE, _text([*stay, *new]))


def read_compared(home: Path) -> tuple[Compared, ...]:
    """All that `home` holds. Raises StoreError if the file is not what gen writes."""
    place = home / FILE
    if not place.is_file():
        return ()
    entries = read_json(place, SCHEMA, "comparisons", list, _AGAIN)
    try:
        return tuple(_sound(Compared(**entry)) for entry in entries)
    except (TypeError, ValueError) as error:
        raise StoreError(str(place), "is not what gen writes", error, next_step=_AGAIN) from error


def merge(folders: Sequence[Path], home: Path) -> int:
    """Takes the comparisons of other folders into `home`, of the same problem the latest; says how many came."""
    latest: dict[tuple[str, str, str], list[Compared]] = {}
    had = read_compared(home)
    for group in (had, *(read_compared(folder) for folder in folders)):
        own: dict[tuple[str, str, str], list[Compared]] = {}
        for one in group:
            own.setdefault(one.problem, []).append(one)
        for problem, rows in own.items():
            if problem not in latest or rows[0].date > latest[problem][0].date:
                latest[problem] = rows
    new = [one for rows in latest.values() for one in rows if one not in had]
    keep(home, new)
    return len(new)


def _text(found: Iterable[Compared]) -> str:
    lines = ",\n".join(f"    {json.dumps(asdict(one))}" for one in sorted(found, key=_place))
    return f'{{\n  "schema": {SCHEMA},\n  "comparisons": [\n{lines}\n  ]\n}}\n'


def _place(one: Compared) -> tuple[object, ...]:
    return *one.problem, one.protocol, one.contender != OURS, one.contender


def _sound(one: Compared) -> Compared:
    """One that was stored. Raises ValueError for what no comparison gives."""
    kinds: Mapping[str, Any] = {"str": str, "float": (int, float), "int": int, "float | None": (int, float, NoneType)}
    for known in fields(Compared):
        value = getattr(one, known.name)
        if known.name == "extents":
            sound = isinstance(value, dict) and all(type(size) is int for size in value.values())
        else:
            sound = isinstance(value, kinds[str(known.type)]) and not isinstance(value, bool)
        if not sound or (isinstance(value, float) and not (isfinite(value) and value >= 0)):
            raise ValueError(f"{known.name} {value!r}")
    return one
