"""Trials for other programs: T4 results, caches of Kernel Tuner, and recorded search spaces as tables."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from gen.errors import StoreError
from gen.store.trials import Row, Status, Value

T4_VERSION = "1.0.0"
_INVALIDITY: dict[Status, str] = {
    "ok": "correct", "wrong_result": "correctness", "launch_failed": "runtime", "compile_failed": "compile",
    "infeasible": "constraints", "pruned": "constraints", "timeout": "timeout",
}  # fmt: skip
# The columns that a result has no place for; what no result says is a trial's default.
_MEASURED = (
    "key", "device", "driver", "compiler", "options", "protocol", "spec", "shape_class", "extents", "alignment",
    "variant", "status", "reason", "registers", "spill_bytes", "shared_bytes", "others", "source", "sm_mhz",
    "throttled", "same_as",
)  # fmt: skip
_UNITS = {"registers": "registers", "spill_bytes": "B", "shared_bytes": "B", "alignment": "B", "sm_mhz": "MHz"}
_ONLY_T4 = (
    "Of what gen trials --export writes, T4 alone is read: not tables (.csv, .csv.gz), which hold medians alone, "
    "nor caches of Kernel Tuner"
)
_MAX_NUMBER = 1e300  # JSON holds numbers of any length
_ALGORITHM = "algorithm"  # the first parameter of a configuration


def text_of_t4(rows: Iterable[Row]) -> str:
    """The rows as a T4 results file, one result a line."""
    lines = ",\n".join(f"    {json.dumps(_result(row), allow_nan=False)}" for row in rows)
    return f'{{\n  "schema_version": "{T4_VERSION}",\n  "results": [\n{lines}\n  ]\n}}\n'


def rows_of_t4(text: str | bytes, source: str) -> tuple[Row, ...]:
    """The rows that a T4 results file holds.

    Args:
        text: the file's content.
        source: its name, which stands in rows that gen did not write.

    Raises:
        StoreError: it is no such file; or a result is not one, by its number.
    """
    try:
        content = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        got = "what is no text" if isinstance(error, UnicodeDecodeError) else error
        raise StoreError(source, "must be JSON, T4 results", got, next_step=_ONLY_T4) from error
    if not isinstance(content, dict) or not isinstance(content.get("results"), list):
        rule = "must be an object with a list of results, as T4 has it"
        raise StoreError(source, rule, next_step=_ONLY_T4)
    version = content.get("schema_version")
    if not isinstance(version, str) or version.partition(".")[0] != T4_VERSION.partition(".")[0]:
        raise StoreError(source, f"must have schema_version {T4_VERSION}", repr(version))
    return tuple(_row(result, f"{source}: result {number}", source) for number, result in enumerate(content["results"]))


def _result(row: Row) -> dict[str, Any]:
    columns = row.columns()
    measurements: list[dict[str, Any]] = []
    if row.median_us is not None:
        measurements.append({"name": "time", "value": row.median_us / 1000, "unit": "ms"})
    measurements += [{"name": name, "value": columns[name], "unit": _UNITS.get(name, "")} for name in _MEASURED]
    return {
        "timestamp": row.ended,
        "configuration": {_ALGORITHM: row.algorithm, **row.config},
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


def _row(result: object, subject: str, source: str) -> Row:
    if not isinstance(result, dict):
        raise StoreError(subject, "must be an object", type(result).__name__)
    configuration, times = _mapping(result, "configuration", subject), _mapping(result, "times", subject)
    invalidity = result.get("invalidity")
    if invalidity not in _INVALIDITY.values():
        rule = "must have an invalidity of " + ", ".join(dict.fromkeys(_INVALIDITY.values()))
        raise StoreError(subject, rule, repr(invalidity))
    if not _is_number(result.get("correctness")):
        raise StoreError(subject, "must have a number as correctness", repr(result.get("correctness")))
    measured = _measurements(result.get("measurements", []), subject)
    runtimes = _runtimes(times, measured, subject) if invalidity == "correct" else ()
    if all(name in measured for name in ("key", "spec", "variant", "status", "extents")):
        columns = {name: measured[name] for name in _MEASURED if name in measured}
    else:
        columns = _foreign(result, measured, source)
    config = {name: value for name, value in configuration.items() if name != _ALGORITHM or "key" not in measured}
    columns |= {
        "algorithm": str(configuration.get(_ALGORITHM, "")),
        "config": _json({name: _plain(value) for name, value in config.items()}),
        "times_us": _json([_micro(time) for time in runtimes]),
        "compile_ms": _compilation(times),
        "ended": result["timestamp"] if isinstance(result.get("timestamp"), str) else "",
    }
    columns["source"] = columns.get("source") or source
    row = Row.checked({**_empty(), **columns})
    if row is None or _INVALIDITY[row.status] != invalidity:
        raise StoreError(subject, "must hold what a trial holds", _short(result))
    return row


def _foreign(result: Mapping[str, Any], measured: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The columns of a result that another tuner wrote: what it says, under a key of its content."""
    content = _json([source, result])
    statuses = {invalidity: status for status, invalidity in reversed(_INVALIDITY.items())}
    known = {name: measured[name] for name in ("device", "reason") if isinstance(measured.get(name), str)}
    return {
        "key": f"t4 {hashlib.sha256(content.encode()).hexdigest()}",
        "spec": source.rpartition("/")[2].partition(".")[0],
        "variant": ",".join(f"{name}={value}" for name, value in result["configuration"].items()),
        "status": statuses[result["invalidity"]],
        **known,
    }


def _empty() -> dict[str, Any]:
    """What stands in the columns that a result says nothing of."""
    return Row(
        key="", device="", driver="", compiler="", protocol="", spec="", shape_class="", extents={}, variant="",
        status="infeasible", times_us=(), reason="", registers=0, spill_bytes=0, shared_bytes=0, ended="",
    ).columns()  # fmt: skip


def _mapping(result: Mapping[str, Any], name: str, subject: str) -> Mapping[str, Any]:
    found = result.get(name)
    if not isinstance(found, dict):
        raise StoreError(subject, f"must have an object {name!r}", repr(found))
    return found


def _measurements(listed: object, subject: str) -> dict[str, Any]:
    if not isinstance(listed, list):
        raise StoreError(subject, "must have a list of measurements", repr(listed))
    found: dict[str, Any] = {}
    for one in listed:
        if not (isinstance(one, dict) and isinstance(one.get("name"), str) and "value" in one):
            raise StoreError(subject, "must have measurements with a name and a value", _short(one))
        found[one["name"]] = one["value"]
    return found


def _runtimes(times: Mapping[str, Any], measured: Mapping[str, Any], subject: str) -> Sequence[float]:
    """The times of one that was right, in milliseconds: of each run, else the one that stands for all."""
    runtimes = times.get("runtimes", [])
    if not runtimes and _is_number(measured.get("time")):
        runtimes = [measured["time"]]
    if not isinstance(runtimes, list) or not runtimes or not all(_is_number(time) and time >= 0 for time in runtimes):
        raise StoreError(subject, "must have runtimes, since it is correct", _short(runtimes))
    return runtimes


def _compilation(times: Mapping[str, Any]) -> float:
    for name in ("compilation_time", "compilation"):
        if _is_number(times.get(name)) and times[name] >= 0:
            return float(times[name])
    return 0.0


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER


def _micro(milliseconds: float) -> float:
    """Microseconds of which these are the thousandth part, to the last bit where there are any."""
    near = milliseconds * 1000
    return float(
        min((near, round(near, 3), round(near, 6), round(near, 9)), key=lambda us: abs(us / 1000 - milliseconds))
    )


def _plain(value: object) -> int | float | bool | str:
    """A parameter's value; what is no number, text or truth value is kept as JSON."""
    return value if isinstance(value, int | float | bool | str) else _json(value)


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


FIRST_COLUMNS, LAST_COLUMNS = ("spec", "shape", "algorithm"), ("time_ms", "compile_ms")


def table_of(rows: Iterable[Row]) -> str:
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


def write_table(place: Path, rows: Iterable[Row]) -> None:
    """Writes the rows as CSV; compressed, and the same for the same rows, where the name ends in `.gz`."""
    content = table_of(rows).encode()
    place.write_bytes(gzip.compress(content, mtime=0) if place.suffix == ".gz" else content)


def shape_of(row: Row) -> str:
    """A problem's sizes in a table's cell."""
    sizes = dict(row.extents) | ({} if row.alignment == 16 else {"alignment": row.alignment})
    return " ".join(f"{name}={size}" for name, size in sorted(sizes.items()))


def _words(row: Row) -> str:
    return " ".join(f"{name}={_word(row.config[name])}" for name in sorted(row.config))


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


KERNEL_TUNER_VERSION = "1.1.0"
_ERRORS: dict[Status, str] = {
    "wrong_result": "RuntimeFailedConfig", "launch_failed": "RuntimeFailedConfig", "timeout": "RuntimeFailedConfig",
    "compile_failed": "CompilationFailedConfig", "infeasible": "InvalidConfig", "pruned": "InvalidConfig",
}  # fmt: skip


def text_of_cache(rows: Sequence[Row]) -> str:
    """The rows as a cache file.

    Raises StoreError if they are of several devices, specs, algorithms or problems, or none: it has a place for one.
    """
    subjects = sorted({(row.device, row.spec, shape_of(row), row.algorithm) for row in rows})
    if len(subjects) != 1:
        rule = "must be of one device, spec, shape and algorithm"
        found = "; ".join(", ".join(subject) for subject in subjects[:8]) or "none"
        raise StoreError("The trials of a Kernel Tuner cache", rule, found, next_step="Filter them: see gen trials -h")
    first = rows[0]
    names = list(first.config)
    space = {name: sorted({row.config[name] for row in rows}, key=_order) for name in names}
    content = {
        "schema_version": KERNEL_TUNER_VERSION,
        "device_name": first.device,
        "kernel_name": f"{first.spec}__{first.algorithm}",
        "problem_size": [extent for _, extent in sorted(first.extents.items())],
        "tune_params_keys": names,
        "tune_params": space,
        "objective": "time",
        "cache": {",".join(str(row.config[name]) for name in names): _entry(row) for row in rows},
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _order(value: Value) -> tuple[bool, float, str]:
    """Numbers by size, then texts."""
    return (True, 0.0, value) if isinstance(value, str) else (False, float(value), "")


def _entry(row: Row) -> dict[str, Any]:
    times = [time / 1000 for time in row.times_us]
    return {
        **row.config,
        "time": _ERRORS[row.status] if row.median_us is None else row.median_us / 1000,
        **({"times": times} if times else {}),
        "compile_time": row.compile_ms,
        # Not kept apart from one another: all of it happens while something else compiles.
        "verification_time": 0.0,
        "benchmark_time": sum(times),
        "strategy_time": 0.0,
        "framework_time": 0.0,
        "timestamp": row.ended,
    }
