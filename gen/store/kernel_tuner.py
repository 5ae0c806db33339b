"""Trials as a cache file of Kernel Tuner, version 1.1.0, so that its strategies can be simulated on them.

Such a file holds one kernel on one problem and one device: here, an algorithm of a spec at one size. Times are
milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gen.errors import StoreError
from gen.gpu.trial import Status
from gen.store.rows import Row, Value
from gen.store.spaces import shape_of

VERSION = "1.1.0"
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
        "schema_version": VERSION,
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
