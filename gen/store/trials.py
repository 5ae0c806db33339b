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
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import get_args

from gen.errors import StoreError
from gen.families.base import Variant
from gen.gpu.trial import Problem, Status, Trial

_log = logging.getLogger(__name__)
FILE = "trials.sqlite"
SCHEMA = 2
# By name; what is added later comes last, with a default for the rows that are there.
_COLUMNS = {
    "key": "TEXT PRIMARY KEY",
    "device": "TEXT NOT NULL", "driver": "TEXT NOT NULL", "compiler": "TEXT NOT NULL", "protocol": "TEXT NOT NULL",
    "spec": "TEXT NOT NULL", "shape_class": "TEXT NOT NULL", "extents": "TEXT NOT NULL", "variant": "TEXT NOT NULL",
    "status": "TEXT NOT NULL", "median_us": "REAL", "times_us": "TEXT NOT NULL", "reason": "TEXT NOT NULL",
    "registers": "INTEGER NOT NULL", "spill_bytes": "INTEGER NOT NULL", "shared_bytes": "INTEGER NOT NULL",
    "ended": "TEXT NOT NULL",
    "options": "TEXT NOT NULL DEFAULT ''",
    "alignment": "INTEGER NOT NULL DEFAULT 16",
    "algorithm": "TEXT NOT NULL DEFAULT ''",
    "config": "TEXT NOT NULL DEFAULT '{}'",
    "compile_ms": "REAL NOT NULL DEFAULT 0",
    "others": "TEXT NOT NULL DEFAULT '[]'",
    "source": "TEXT NOT NULL DEFAULT ''",
    "sm_mhz": "INTEGER NOT NULL DEFAULT 0",
    "throttled": "TEXT NOT NULL DEFAULT ''",
    "same_as": "TEXT NOT NULL DEFAULT ''",
}  # fmt: skip


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
        """Opens or makes the file. One that is torn is set aside, as `trials.sqlite.corrupt`, and begun anew."""
        self._path = home / FILE
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(str(home), "must be a folder that can be written", error.strerror) from error
        try:
            self._base = self._open()
        except sqlite3.OperationalError as error:
            raise StoreError(str(self._path), "cannot be opened", error) from error
        except sqlite3.DatabaseError:
            aside = self._path.with_name(FILE + ".corrupt")
            for suffix in ("-wal", "-shm"):
                self._path.with_name(FILE + suffix).unlink(missing_ok=True)
            self._path.replace(aside)
            _log.warning("%s cannot be read: it is kept as %s, and trials are recorded anew", self._path, aside)
            self._base = self._open()

    def record(self, setting: Setting, problem: Problem, text: str, trial: Trial) -> None:
        """Writes one trial, over an earlier one of the same key."""
        row = {
            "key": key(setting, problem, text), "device": setting.device, "driver": setting.driver,
            "compiler": setting.compiler, "options": setting.options, "protocol": setting.protocol,
            "spec": problem.spec_name, "shape_class": problem.shape_class, "extents": _json(problem.extents),
            "alignment": problem.alignment, "variant": trial.variant.name,
            "algorithm": trial.variant.algorithm.name, "config": _json(trial.variant.config.values()),
            "status": trial.status, "median_us": trial.median_us if trial.times_us else None,
            "times_us": json.dumps(trial.times_us), "reason": trial.reason, "registers": trial.registers,
            "spill_bytes": trial.spill_bytes, "shared_bytes": trial.shared_bytes, "compile_ms": trial.compile_ms,
            "others": json.dumps(trial.foreign), "sm_mhz": trial.sm_mhz, "throttled": trial.throttled,
            "same_as": trial.same_as, "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        }  # fmt: skip
        into = f"INSERT OR REPLACE INTO trials ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
        try:
            with self._base:
                self._base.execute(into, tuple(row.values()))
        except sqlite3.DatabaseError as error:
            raise StoreError(str(self._path), "cannot be written", error) from error

    def find(self, setting: Setting, problem: Problem, text: str, variant: Variant) -> Trial | None:
        """The trial of this variant that was recorded under the same conditions."""
        try:
            row = self._base.execute("SELECT * FROM trials WHERE key = ?", (key(setting, problem, text),)).fetchone()
        except sqlite3.DatabaseError as error:
            rule = "cannot be read"
            raise StoreError(
                str(self._path), rule, error, next_step="Move it away; trials are recorded anew"
            ) from error
        if row is None:
            return None
        found = _trial(variant, row)
        if found is None:
            _log.warning("%s holds a trial of %s that gen did not write: it is measured anew", self._path, variant.name)
        return found

    def count(self) -> int:
        """How many trials there are."""
        return int(self._base.execute("SELECT count(*) FROM trials").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        self._base.close()

    def _open(self) -> sqlite3.Connection:
        base = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        base.row_factory = sqlite3.Row
        try:
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

    def _bring_up_to_date(self, base: sqlite3.Connection) -> None:
        """Makes the table, or gives one of an older gen the columns that it lacks. One process at a time does so."""
        base.execute("BEGIN IMMEDIATE")
        try:
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if not 0 <= version <= SCHEMA:
                rule = f"must have schema {SCHEMA}"
                raise StoreError(str(self._path), rule, version, next_step="Move it away, or use a newer gen")
            columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
            base.execute(f"CREATE TABLE IF NOT EXISTS trials ({columns})")
            present = {row["name"] for row in base.execute("PRAGMA table_info(trials)")}
            if version > 0:
                for name in [name for name in _COLUMNS if name not in present]:
                    base.execute(f"ALTER TABLE trials ADD COLUMN {name} {_COLUMNS[name]}")
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


def _trial(variant: Variant, row: sqlite3.Row) -> Trial | None:
    """A row's trial; None if a hand has been at it."""
    try:
        times_us, others = tuple(json.loads(row["times_us"])), tuple(json.loads(row["others"]))
    except (TypeError, ValueError, RecursionError):
        return None
    numbers = {name: row[name] for name in ("registers", "spill_bytes", "shared_bytes", "sm_mhz")}
    texts = {name: row[name] for name in ("reason", "throttled", "same_as")}
    status, compile_ms = row["status"], row["compile_ms"]
    sound = (
        status in get_args(Status)
        and (status == "ok") == bool(times_us)
        and all(type(time) is float and 0 <= time < inf for time in (*times_us, compile_ms))
        and all(type(number) is int for number in numbers.values())
        and all(isinstance(text, str) for text in (*texts.values(), *others))
    )
    if not sound:
        return None
    return Trial(variant, status, times_us, compile_ms=compile_ms, foreign=others, **numbers, **texts)


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True)
