"""A row of the table of trials: everything that was known when a trial ended. Fields are columns.

A field that is added later needs a default: rows of an older gen get that.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from math import inf
from statistics import median
from typing import Any, get_args, get_type_hints

from gen.gpu.trial import Status

Value = int | float | bool | str
_KINDS = {str: "TEXT", int: "INTEGER", float: "REAL"}  # all else is JSON, as a text


@dataclass(frozen=True, kw_only=True)
class Row:
    """A trial as it is kept.

    Attributes:
        key: the digest of all that decides what was measured.
        device, driver, compiler, options, protocol: where and how.
        spec, shape_class, extents, alignment: the problem.
        variant, algorithm, config: what was tried; the values of all tuning parameters by name.
        status: how it ended.
        times_us: of every sample; empty unless it ran and was right.
        reason: what was wrong, in words.
        others: processes of others on the GPU meanwhile.
        ended: when, as ISO 8601.
        source: the file it was imported from; empty for what was measured here.
    """

    key: str
    device: str
    driver: str
    compiler: str
    protocol: str
    spec: str
    shape_class: str
    extents: Mapping[str, int]
    variant: str
    status: Status
    times_us: tuple[float, ...]
    reason: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    ended: str
    options: str = ""
    alignment: int = 16
    algorithm: str = ""
    config: Mapping[str, Value] = field(default_factory=dict)
    compile_ms: float = 0.0
    others: tuple[str, ...] = ()
    source: str = ""
    sm_mhz: int = 0
    throttled: str = ""
    same_as: str = ""

    @property
    def median_us(self) -> float | None:
        """The median time; None without one."""
        return median(self.times_us) if self.times_us else None

    def columns(self) -> dict[str, Any]:
        """The values as SQLite keeps them, with the median for those who look with other tools."""
        found: dict[str, Any] = {"median_us": self.median_us}
        for one in fields(self):
            value = getattr(self, one.name)
            found[one.name] = value if _kind(one) in _KINDS.values() else _json(value)
        return found

    @classmethod
    def read(cls, row: sqlite3.Row) -> Row | None:
        """The inverse of `columns`; None if a hand has been at it."""
        return cls.checked({name: row[name] for name in row.keys()})  # noqa: SIM118  iterating gives its values

    @classmethod
    def checked(cls, columns: Mapping[str, Any]) -> Row | None:
        """A row of these values as SQLite keeps them; None for values that no trial has."""
        values: dict[str, Any] = {}
        for one in fields(cls):
            kind = _kind(one)
            value: Any = columns.get(one.name)
            if kind == "JSON":
                try:
                    value = json.loads(value, parse_constant=_refuse)
                except (TypeError, ValueError, RecursionError):
                    return None
                value = tuple(value) if isinstance(value, list) else value
            elif not _storable(value, kind):
                return None
            values[one.name] = value
        return cls(**values) if _sound(values) else None


def table() -> dict[str, str]:
    """The columns of the table by name, as SQL."""
    found = {"median_us": "REAL"}
    for one in fields(Row):
        kind = _kind(one)
        sql = f"{'TEXT' if kind == 'JSON' else kind} NOT NULL"
        if one.name == "key":
            sql = "TEXT PRIMARY KEY"
        else:
            factory: Any = one.default_factory
            value = one.default if factory is MISSING else factory()
            if value is not MISSING:
                text = _json(value) if kind == "JSON" else value
                sql += f" DEFAULT '{text}'" if isinstance(text, str) else f" DEFAULT {text}"
        found[one.name] = sql
    return found


def _sound(values: Mapping[str, Any]) -> bool:
    """Whether values of the right types are also those of a trial."""
    times, others, extents, config = (values[name] for name in ("times_us", "others", "extents", "config"))
    return (
        values["status"] in get_args(Status)
        and isinstance(times, tuple)
        and (values["status"] == "ok") == bool(times)
        and all(type(time) is float and 0 <= time < inf for time in (*times, values["compile_ms"]))
        and isinstance(others, tuple)
        and all(type(text) is str for text in others)
        and isinstance(extents, dict)
        and all(type(extent) is int for extent in extents.values())
        and isinstance(config, dict)
        and all(type(value) in (int, float, bool, str) for value in config.values())
    )


def _storable(value: object, kind: str) -> bool:
    """Whether a value is of a column's type, and SQLite can hold it."""
    if kind == "INTEGER":
        return type(value) is int and -(2**63) <= value < 2**63
    if kind == "REAL":
        return type(value) is float
    return type(value) is str and value.encode(errors="replace").decode() == value  # no half of a character


def _kind(one: Field[Any]) -> str:
    return _KINDS.get(_TYPES[one.name], "JSON")


def _json(value: object) -> str:
    return json.dumps(value)  # as it is: the order of sizes is that of people


def _refuse(constant: str) -> Any:
    raise ValueError(constant)  # NaN and the infinities: no JSON


_TYPES = {name: str if type_ is Status else type_ for name, type_ in get_type_hints(Row).items()}
