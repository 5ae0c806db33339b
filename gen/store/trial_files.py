"""Trials for other programs: T4 results, and recorded search spaces as tables."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gen.store.trials import Status, StoredTrial

T4_VERSION = "1.0.0"
_INVALIDITY: dict[Status, str] = {
    "ok": "correct", "wrong_result": "correctness", "launch_failed": "runtime", "compile_failed": "compile",
    "infeasible": "constraints", "pruned": "constraints", "timeout": "timeout",
}  # fmt: skip
# The columns that a result has no place for.
_MEASURED = (
    "key", "device", "driver", "compiler", "options", "protocol", "spec", "shape_class", "extents", "alignment",
    "variant", "status", "reason", "registers", "spill_bytes", "shared_bytes", "others", "sm_mhz", "throttled",
    "same_as",
)  # fmt: skip
_UNITS = {"registers": "registers", "spill_bytes": "B", "shared_bytes": "B", "alignment": "B", "sm_mhz": "MHz"}


def text_of_t4(rows: Iterable[StoredTrial]) -> str:
    """The rows as a T4 results file, one result a line."""
    lines = ",\n".join(f"    {json.dumps(_result(row), allow_nan=False)}" for row in rows)
    return f'{{\n  "schema_version": "{T4_VERSION}",\n  "results": [\n{lines}\n  ]\n}}\n'


def _result(row: StoredTrial) -> dict[str, Any]:
    columns = row.columns()
    measurements: list[dict[str, Any]] = []
    if row.median_us is not None:
        measurements.append({"name": "time", "value": row.median_us / 1000, "unit": "ms"})
    measurements += [{"name": name, "value": columns[name], "unit": _UNITS.get(name, "")} for name in _MEASURED]
    return {
        "timestamp": row.ended,
        "configuration": {"algorithm": row.algorithm, **row.config},
        "objectives": ["time"],
        # The schema's name for the time of compiling, and the one that most writers use.
        "times": {
            "compilation_time": row.compile_ms,
            "compilation": row.compile_ms,
            "runtimes": [time / 1000 for time in row.times_us],
        },
        "invalidity": _INVALIDITY[row.status],
        "correctness": 1.0 if row.status == "ok" else 0.0,
        "measurements": measurements,
    }


FIRST_COLUMNS, LAST_COLUMNS = ("spec", "shape", "algorithm"), ("time_ms", "compile_ms")


def table_of(rows: Iterable[StoredTrial]) -> str:
    """The rows as CSV, sorted, so that the same trials give the same text."""
    found = sorted(rows, key=lambda row: (row.spec, shape_of(row), row.algorithm, _words(row)))
    names = sorted({name for row in found for name in row.config})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*FIRST_COLUMNS, *names, *LAST_COLUMNS))
    for row in found:
        time = "" if row.median_us is None else f"{row.median_us / 1000:.6g}"
        values = (_word(row.config[name]) if name in row.config else "" for name in names)
        writer.writerow((row.spec, shape_of(row), row.algorithm, *values, time, f"{row.compile_ms:.4g}"))
    return text.getvalue()


def write_table(place: Path, rows: Iterable[StoredTrial]) -> None:
    """Writes the rows as CSV; compressed, and the same for the same rows, where the name ends in `.gz`."""
    content = table_of(rows).encode()
    place.write_bytes(gzip.compress(content, mtime=0) if place.suffix == ".gz" else content)


def shape_of(row: StoredTrial) -> str:
    """A problem's sizes in a table's cell."""
    sizes = dict(row.extents) | ({} if row.alignment == 16 else {"alignment": row.alignment})
    return " ".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def _words(row: StoredTrial) -> str:
    return " ".join(f"{name}={_word(row.config[name])}" for name in sorted(row.config))


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
