"""Every trial of every tuning run: one row in SQLite, written the moment the trial ends.

A row's key is content: the kernel's text, the compiler, the device, its driver, the problem and the protocol. A rerun
finds what was measured before and measures what is missing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any, get_args

from gen.errors import StoreError
from gen.families.base import Variant
from gen.gpu.trial import Problem, Status, Trial

_log = logging.getLogger(__name__)
FILE = "trials.sqlite"
SCHEMA = 1
_TABLE = """
CREATE TABLE IF NOT EXISTS trials (
    key TEXT PRIMARY KEY,
    device TEXT NOT NULL, driver TEXT NOT NULL, compiler TEXT NOT NULL, protocol TEXT NOT NULL,
    spec TEXT NOT NULL, shape_class TEXT NOT NULL, extents TEXT NOT NULL, variant TEXT NOT NULL,
    status TEXT NOT NULL, median_us REAL, times_us TEXT NOT NULL, reason TEXT NOT NULL,
    registers INTEGER NOT NULL, spill_bytes INTEGER NOT NULL, shared_bytes INTEGER NOT NULL,
    ended TEXT NOT NULL
)
"""


@dataclass(frozen=True)
class Setting:
    """Where and how trials are measured: all of it stands in a row's key."""

    device: str
    driver: str
    compiler: str
    protocol: str


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
        row = (
            key(setting, problem, text), setting.device, setting.driver, setting.compiler, setting.protocol,
            problem.spec_name, problem.shape_class, _json(problem.extents), trial.variant.name,
            trial.status, trial.median_us if trial.times_us else None, json.dumps(trial.times_us), trial.reason,
            trial.registers, trial.spill_bytes, trial.shared_bytes,
            datetime.now(UTC).isoformat(timespec="seconds"),
        )  # fmt: skip
        try:
            with self._base:
                self._base.execute(f"INSERT OR REPLACE INTO trials VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.DatabaseError as error:
            raise StoreError(str(self._path), "cannot be written", error) from error

    def find(self, setting: Setting, problem: Problem, text: str, variant: Variant) -> Trial | None:
        """The trial of this variant that was recorded under the same conditions."""
        columns = "status, times_us, registers, spill_bytes, shared_bytes, reason"
        try:
            row = self._base.execute(
                f"SELECT {columns} FROM trials WHERE key = ?", (key(setting, problem, text),)
            ).fetchone()
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
        base = sqlite3.connect(self._path, timeout=30)
        try:
            base.execute("PRAGMA journal_mode = WAL")
            sound = base.execute("PRAGMA quick_check(1)").fetchone()[0]
            if sound != "ok":
                raise sqlite3.DatabaseError(sound)
            base.execute("PRAGMA synchronous = NORMAL")
            version = base.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, SCHEMA):
                rule = f"must have schema {SCHEMA}"
                raise StoreError(str(self._path), rule, version, next_step="Move it away, or use a newer gen")
            base.execute(_TABLE)
            base.execute(f"PRAGMA user_version = {SCHEMA}")
        except BaseException:
            base.close()
            raise
        return base


def key(setting: Setting, problem: Problem, text: str) -> str:
    """The digest of all that decides what a trial measures."""
    parts = [
        setting.device, setting.driver, setting.compiler, setting.protocol, problem.spec_name,
        _json(problem.spec.to_json()), _json(problem.extents), text,
    ]  # fmt: skip
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode()
        digest.update(b"%d:" % len(content) + content)
    return digest.hexdigest()


def _trial(variant: Variant, row: Sequence[Any]) -> Trial | None:
    """A row's trial; None if a hand has been at it."""
    status, times, registers, spilled, shared, reason = row
    try:
        times_us = tuple(json.loads(times))
    except (TypeError, ValueError, RecursionError):
        return None
    sound = (
        status in get_args(Status)
        and (status == "ok") == bool(times_us)
        and all(type(time) is float and 0 <= time < inf for time in times_us)
        and all(type(number) is int for number in (registers, spilled, shared))
        and isinstance(reason, str)
    )
    return Trial(variant, status, times_us, registers, spilled, shared, reason) if sound else None


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, sort_keys=True)
