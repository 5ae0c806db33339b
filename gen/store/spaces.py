"""Measured search spaces as tables: one row a configuration, to replay searches on without a GPU.

Columns: spec, shape and algorithm; every tuning parameter by name, empty where an algorithm has none of that name; then
`time_ms`, empty where the configuration failed, and `compile_ms`. Such a file, `bench/trials/DEVICE.csv.gz`, keeps the
trials of one device that are worth keeping.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gen.errors import StoreError
from gen.store.rows import Row

_FIRST, _LAST = ("spec", "shape", "algorithm"), ("time_ms", "compile_ms")


@dataclass(frozen=True)
class Measured:
    """A configuration of a search space.

    Attributes:
        shape: sizes by name, and the alignment where it is less than 16: `cols=8192 rows=8192`.
        config: the values of the tuning parameters by name, as texts.
        time_ms: the median; None if the configuration failed.
    """

    spec: str
    shape: str
    algorithm: str
    config: Mapping[str, str]
    time_ms: float | None
    compile_ms: float


def table_of(rows: Iterable[Row]) -> str:
    """The rows as CSV, sorted, so that the same trials give the same text."""
    found = sorted(rows, key=lambda row: (row.spec, shape_of(row), row.algorithm, _words(row)))
    names = sorted({name for row in found for name in row.config})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*_FIRST, *names, *_LAST))
    for row in found:
        time = "" if row.median_us is None else f"{row.median_us / 1000:.6g}"
        values = (_word(row.config[name]) if name in row.config else "" for name in names)
        writer.writerow((row.spec, shape_of(row), row.algorithm, *values, time, f"{row.compile_ms:.4g}"))
    return text.getvalue()


def read_table(place: Path) -> Iterator[Measured]:
    """The configurations of a CSV file, compressed or not. Raises StoreError, with the line, for anything else."""
    try:
        content = place.read_bytes()
        text = (gzip.decompress(content) if place.suffix == ".gz" else content).decode()
        yield from _measured(csv.reader(io.StringIO(text, newline="")), str(place))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(str(place), "must be a table of trials", error) from error


def write_table(place: Path, rows: Iterable[Row]) -> None:
    """Writes the rows as CSV; compressed, and the same for the same rows, where the name ends in `.gz`."""
    content = table_of(rows).encode()
    place.write_bytes(gzip.compress(content, mtime=0) if place.suffix == ".gz" else content)


def file_of_device(device: str) -> str:
    """The file of a device's trials: `nvidia-h100-80gb-hbm3.csv.gz`."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-") + ".csv.gz"


def shape_of(row: Row) -> str:
    """A problem's sizes in a table's cell."""
    sizes = dict(row.extents) | ({} if row.alignment == 16 else {"alignment": row.alignment})
    return " ".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def _measured(lines: Iterator[list[str]], place: str) -> Iterator[Measured]:
    head = next(lines, [])
    if tuple(head[:3]) != _FIRST or tuple(head[-2:]) != _LAST or len(set(head)) != len(head):
        columns = ", ".join((*_FIRST, "...", *_LAST))
        raise StoreError(place, f"must begin with the columns {columns}", ", ".join(head)[:200])
    for number, line in enumerate(lines, 2):
        try:
            values = dict(zip(head, line, strict=True))
            config = {name: value for name, value in values.items() if value and name not in (*_FIRST, *_LAST)}
            time = float(values["time_ms"]) if values["time_ms"] else None
            compile_ms = float(values["compile_ms"])
            yield Measured(values["spec"], values["shape"], values["algorithm"], config, time, compile_ms)
        except ValueError as error:
            raise StoreError(f"{place}: line {number}", "must have a value for each column", error) from error


def _words(row: Row) -> str:
    return " ".join(f"{name}={_word(row.config[name])}" for name in sorted(row.config))


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
