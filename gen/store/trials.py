"""Every trial of every tuning run: one row in SQLite, written the moment the trial ends.

A row's key is content: the kernel's text, the compiler and its options, the device, its driver, the problem with its
alignment, and the protocol. A rerun finds what was measured before and measures what is missing; a value added to a
parameter changes no other variant's text, and so no other row.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from datetime import UTC, datetime
from itertools import count
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args, get_type_hints

from gen.emit.folder import holding
from gen.errors import StoreError
from gen.families.base import WIDEST, Extents, Family, Spec, Variant
from gen.families.extents import told_extents
from gen.families.regions import WHOLE, Region, sizes_of
from gen.paths import cache_home

Value = int | float | bool | str
Status = Literal["ok", "wrong_result", "launch_failed", "compile_failed", "infeasible", "timeout", "pruned"]
_KINDS = {str: "TEXT", int: "INTEGER", float: "REAL"}  # all else is JSON, as a text


@dataclass(frozen=True)
class Problem:
    """A spec at one size.

    Attributes:
        alignment: the most bytes, up to 16, that divide the address of every array.
        region: the part of its shape class that gets what wins.
    """

    family: Family[Any]
    spec: Spec
    extents: Extents
    alignment: int = WIDEST
    region: Region = WHOLE

    @property
    def spec_name(self) -> str:
        """For instance `reduction_sum_f32`."""
        return self.family.name_of(self.spec)

    @property
    def shape_class(self) -> str:
        """The class of sizes that shares the winner."""
        return self.family.shape_class(self.spec, self.extents, self.alignment)

    @property
    def sizes(self) -> Mapping[str, int]:
        """All that may bound a part of its shape class."""
        return sizes_of(self.family, self.spec, self.extents, self.alignment)

    def __str__(self) -> str:
        shown = map(str, told_extents(self.extents, pitches=False).values())
        sizes = " x ".join(shown)
        return f"{self.spec_name} {sizes}" + (f" at {self.alignment} bytes" if self.alignment < WIDEST else "")


@dataclass(frozen=True)
class Trial:
    """One variant tried on one problem on one device.

    Attributes:
        times_us: of every sample, in order; empty unless it ran and was right.
        reason: what was wrong, in words.
        compile_ms: what compiling took; 0 where it was compiled before.
        foreign: processes of others on the GPU meanwhile, a text each.
        sm_mhz: the clock of the multiprocessors when it had been timed; 0 where nobody looked.
        throttled: why the GPU held that clock down, in words; empty if it did not.
        same_as: another variant that has the same machine code and plan, whose times these are.
        outside: it ended by what others did: says nothing of the variant, and is never recorded.
    """

    variant: Variant
    status: Status
    times_us: tuple[float, ...] = ()
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    reason: str = ""
    compile_ms: float = 0.0
    foreign: tuple[str, ...] = ()
    sm_mhz: int = 0
    throttled: str = ""
    same_as: str = ""
    outside: bool = False

    @property
    def median_us(self) -> float:
        """The median time; infinite without one."""
        return median(self.times_us) if self.times_us else inf

    @property
    def is_full_time(self) -> bool:
        """Whether its times are all that a caller waits for: not where a call makes a private copy first, untimed."""
        return not any(launch.setup for launch in self.variant.plan.launches)


@dataclass(frozen=True, kw_only=True)
class StoredTrial:
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
            found[one.name] = value if _kind(one) in _KINDS.values() else _as_json(value)
        return found

    @classmethod
    def read(cls, row: sqlite3.Row) -> StoredTrial | None:
        """The inverse of `columns`; None if a hand has been at it."""
        values: dict[str, Any] = {}
        for one in fields(cls):
            kind = _kind(one)
            value: Any = row[one.name]
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
    for one in fields(StoredTrial):
        kind = _kind(one)
        sql = f"{'TEXT' if kind == 'JSON' else kind} NOT NULL"
        if one.name == "key":
            sql = "TEXT PRIMARY KEY"
        else:
            factory: Any = one.default_factory
            value = one.default if factory is MISSING else factory()
            if value is not MISSING:
                text = _as_json(value) if kind == "JSON" else value
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


def _as_json(value: object) -> str:
    return json.dumps(value)  # as it is: the order of sizes is that of people


def _refuse(constant: str) -> Any:
    raise ValueError(constant)  # NaN and the infinities: no JSON


_TYPES = {name: str if type_ is Status else type_ for name, type_ in get_type_hints(StoredTrial).items()}


_log = logging.getLogger(__name__)
FILE = "trials.sqlite"
SCHEMA = 3
_RENAMED_PARAMETERS = {"finish": "combine", "ending": "block_reduce"}  # since schema 2, in the configs of trials
# What a trial tells by the names of its fields; everything else in a row says what was tried, where and how.
_OF_A_TRIAL = (
    "status", "times_us", "reason", "registers", "spill_bytes", "shared_bytes", "compile_ms", "sm_mhz", "throttled",
    "same_as",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """Where and how trials are measured: all of it stands in a row's key.

    Attributes:
        compiler: with its version.
        protocol: how times come about.
        options: the compiler's, but for the architecture, which is the device's.
    """

    device: str
    driver: str
    compiler: str
    protocol: str
    options: str = ""


class Trials:
    """The trials in one folder. Several processes may use it at once."""

    def __init__(self, home: Path) -> None:
        """Opens or makes the file. One that is torn is set aside, as `trials.sqlite.corrupt`, and begun anew.

        Raises:
            StoreError: it cannot be opened, or is a database of another program or of a newer gen.
        """
        self._path = home / FILE
        self._lock = cache_home(home) / "trials.lock"
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(str(home), "must be a folder that can be written", error.strerror) from error
        with holding(self._lock):
            try:
                self._base = self._open()
            except sqlite3.OperationalError as error:
                raise StoreError(str(self._path), "cannot be opened", error) from error
            except sqlite3.DatabaseError:
                aside = self._path.with_name(FILE + ".corrupt")
                for number in count(2):  # what an earlier one holds stays too
                    if not aside.exists():
                        break
                    aside = self._path.with_name(f"{FILE}.corrupt-{number}")
                for suffix in ("-wal", "-shm"):
                    self._path.with_name(FILE + suffix).unlink(missing_ok=True)
                self._path.replace(aside)
                _log.warning("%s cannot be read: it is kept as %s, and trials are recorded anew", self._path, aside)
                self._base = self._open()

    def record(self, setting: Setting, problem: Problem, text: str, trial: Trial) -> None:
        """Writes one trial, over an earlier one of the same key."""
        variant = trial.variant
        self._write(
            StoredTrial(
                key=key(setting, problem, text),
                device=setting.device,
                driver=setting.driver,
                compiler=setting.compiler,
                options=setting.options,
                protocol=setting.protocol,
                spec=problem.spec_name,
                shape_class=problem.shape_class,
                extents=dict(problem.extents),
                alignment=problem.alignment,
                variant=variant.name,
                algorithm=variant.algorithm.name,
                config=variant.config.values(),
                ended=datetime.now(UTC).isoformat(timespec="seconds"),
                others=trial.foreign,
                **{name: getattr(trial, name) for name in _OF_A_TRIAL},
            ),
            "REPLACE",
        )

    def add(self, rows: Iterable[StoredTrial]) -> int:
        """Takes rows from elsewhere, all or none, but for those whose key is there; returns how many it took."""
        before = self.count()
        with self._together():
            for row in rows:
                self._write(row, "IGNORE")
        return self.count() - before

    def rows(self, **wanted: str) -> Iterator[StoredTrial]:
        """Every row that has these values in these columns, as they were recorded; a torn one is left out."""
        where = " AND ".join(f"{column} = ?" for column in wanted) or "TRUE"
        try:
            for found in self._base.execute(f"SELECT * FROM trials WHERE {where} ORDER BY rowid", (*wanted.values(),)):
                row = StoredTrial.read(found)
                if row is not None:
                    yield row
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error

    def find(self, setting: Setting, problem: Problem, text: str, variant: Variant) -> Trial | None:
        """The trial of this variant that was recorded under the same conditions."""
        try:
            row = self._base.execute("SELECT * FROM trials WHERE key = ?", (key(setting, problem, text),)).fetchone()
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error
        if row is None:
            return None
        found = StoredTrial.read(row)
        if found is None:
            _log.warning("%s holds a trial of %s that gen did not write: it is measured anew", self._path, variant.name)
            return None
        return Trial(variant, foreign=found.others, **{name: getattr(found, name) for name in _OF_A_TRIAL})

    def names(self, setting: Setting, problem: Problem) -> list[str]:
        """The variants that were tried under these conditions, fastest first; their texts may have changed since."""
        where = {
            "spec": problem.spec_name, "alignment": problem.alignment, "device": setting.device,
            "driver": setting.driver, "compiler": setting.compiler, "options": setting.options,
            "protocol": setting.protocol,
        }  # fmt: skip
        query = (
            f"SELECT variant, extents FROM trials WHERE {' AND '.join(f'{column} = ?' for column in where)} "
            "ORDER BY median_us IS NULL, median_us, variant"
        )
        sizes = _json(problem.extents)
        try:
            found = self._base.execute(query, (*where.values(),)).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._unreadable(error) from error
        alike = {text for text in {row["extents"] for row in found} if _sorted(text) == sizes}
        return [str(row["variant"]) for row in found if row["extents"] in alike]

    def count(self) -> int:
        """How many trials there are."""
        return int(self._base.execute("SELECT count(*) FROM trials").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        # SQLite does not wait for whoever begins a file, nor for the last one who leaves it: they answer "locked".
        with holding(self._lock):
            self._base.close()

    def _write(self, row: StoredTrial, conflict: str) -> None:
        values = row.columns()
        places = ", ".join("?" * len(values))
        try:
            self._base.execute(
                f"INSERT OR {conflict} INTO trials ({', '.join(values)}) VALUES ({places})", (*values.values(),)
            )
        except sqlite3.DatabaseError as error:
            raise StoreError(str(self._path), "cannot be written", error) from error

    @contextmanager
    def _together(self) -> Iterator[None]:
        """All that is written within, or nothing."""
        self._base.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._base.execute("ROLLBACK")
            raise
        self._base.execute("COMMIT")

    def _unreadable(self, error: sqlite3.DatabaseError) -> StoreError:
        again = "Move it away; trials are recorded anew"
        return StoreError(str(self._path), "cannot be read", error, next_step=again)

    def _open(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        base.row_factory = sqlite3.Row
        try:
            self._refuse_foreign(base)  # before anything is written to it
            base.execute("PRAGMA journal_mode = WAL")
            sound = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if sound != "ok":
                raise sqlite3.DatabaseError(sound)
            base.execute("PRAGMA synchronous = NORMAL")
            self._bring_up_to_date(base)
        except BaseException:
            base.close()
            raise
        return base

    def _refuse_foreign(self, base: sqlite3.Connection) -> None:
        tables = [
            row["name"]
            for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        ]
        columns = {row["name"] for row in base.execute("PRAGMA table_info(trials)")}
        version = base.execute("PRAGMA user_version").fetchone()[0]  # gen numbers its own
        if tables and (tables != ["trials"] or version == 0 or "key" not in columns):
            got = "the tables " + ", ".join(tables)
            raise StoreError(str(self._path), "must be a database of gen's trials", got, next_step="Move it away")

    def _bring_up_to_date(self, base: sqlite3.Connection) -> None:
        """Makes the table, or gives one of an older gen what it lacks: columns, and the new names of parameters.

        One process at a time does so.
        """
        base.execute("BEGIN IMMEDIATE")
        try:
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= version <= SCHEMA:
                rule = f"must have schema {SCHEMA}"
                raise StoreError(str(self._path), rule, version, next_step="Move it away, or use a newer gen")
            wanted = table()
            columns = ", ".join(f"{name} {kind}" for name, kind in wanted.items())
            base.execute(f"CREATE TABLE IF NOT EXISTS trials ({columns})")
            present = {row["name"] for row in base.execute("PRAGMA table_info(trials)")}
            if version > 0:
                for name in [name for name in wanted if name not in present]:
                    base.execute(f"ALTER TABLE trials ADD COLUMN {name} {wanted[name]}")
            if 0 < version < 3:
                for old, new in _RENAMED_PARAMETERS.items():
                    quoted = (f'"{old}":', f'"{new}":')
                    base.execute("UPDATE trials SET config = replace(config, ?, ?)", quoted)
            base.execute(f"PRAGMA user_version = {SCHEMA}")
            base.execute("COMMIT")
        except BaseException:
            base.execute("ROLLBACK")
            raise


def key(setting: Setting, problem: Problem, text: str) -> str:
    """The digest of all that decides what a trial measures."""
    parts = [
        setting.device, setting.driver, setting.compiler, setting.options, setting.protocol, problem.spec_name,
        _json(problem.spec.to_json()), _json(problem.extents), str(problem.alignment), text,
    ]  # fmt: skip
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode()
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True)


def _sorted(text: object) -> str:
    """The same JSON with its names in order; none for what is no JSON."""
    try:
        return json.dumps(json.loads(str(text)), sort_keys=True)
    except (ValueError, RecursionError):
        return ""
