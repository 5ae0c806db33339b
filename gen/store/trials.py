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
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gen.emit.files import alone
from gen.errors import StoreError
from gen.families.base import Variant
from gen.gpu.trial import Problem, Trial
from gen.paths import cache_home
from gen.store.rows import Row, table

_log = logging.getLogger(__name__)
FILE = "trials.sqlite"
SCHEMA = 2
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
        """Opens or makes the file. One that is torn is set aside, as `trials.sqlite.corrupt`, and begun anew."""
        self._path = home / FILE
        self._lock = cache_home(home) / "trials.lock"
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(str(home), "must be a folder that can be written", error.strerror) from error
        with alone(self._lock):
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
        variant = trial.variant
        self._write(
            Row(
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

    def add(self, rows: Iterable[Row]) -> int:
        """Takes rows from elsewhere, all or none, but for those whose key is there; returns how many it took."""
        before = self.count()
        with self._together():
            for row in rows:
                self._write(row, "IGNORE")
        return self.count() - before

    def rows(self, **wanted: str) -> Iterator[Row]:
        """Every row that has these values in these columns, as they were recorded; a torn one is left out."""
        where = " AND ".join(f"{column} = ?" for column in wanted) or "TRUE"
        try:
            for found in self._base.execute(f"SELECT * FROM trials WHERE {where} ORDER BY rowid", (*wanted.values(),)):
                row = Row.read(found)
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
        found = Row.read(row)
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
        with alone(self._lock):
            self._base.close()

    def _write(self, row: Row, conflict: str) -> None:
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
            wanted = table()
            columns = ", ".join(f"{name} {kind}" for name, kind in wanted.items())
            base.execute(f"CREATE TABLE IF NOT EXISTS trials ({columns})")
            present = {row["name"] for row in base.execute("PRAGMA table_info(trials)")}
            if version > 0:
                for name in [name for name in wanted if name not in present]:
                    base.execute(f"ALTER TABLE trials ADD COLUMN {name} {wanted[name]}")
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
