"""Problems, winners and runs that the tests share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.store.trials import Problem
from gen.store.winners import Winner
from gen.tune.several_problems import Run, run
from gen.tune.targets import problems
from tests import documented
from tests.fake_tuning import FakeFarm, FakeTuningDevice

TRANSPOSE = problems(FAMILIES, "transpose", {})[:1]
ALL = tuple(p for p in problems(FAMILIES, None, {}) if p.family != TRANSPOSE[0].family or p == TRANSPOSE[0])
EVIDENCE = {
    "median_us", "of_limit", "floor_us", "limit", "gb_per_s", "over_base", "extents", "trials", "protocol", "driver",
    "compiler", "registers", "interval_us", "samples", "noise", "hot_us", "settled", "sm_mhz", "throttled",
    "beside", "text", "template", "algorithms",
}  # fmt: skip
FOREIGN = Winner("Other GPU", "transpose_10_b32", "any size", "transpose_10_b32__tiled_t16_r4_p0_u1", {"median_us": 1})


def by_length(made: Variant) -> float:
    """A time for each variant, whatever it is: none is base's."""
    return 5.0 + len(made.name) % 7 + sum(made.name.encode()) % 101 / 100


def tuned(home: Path, wanted: tuple[Problem, ...] = ALL, device: FakeTuningDevice | None = None, **options: Any) -> Run:
    return run(wanted, FAMILIES, device or FakeTuningDevice(by_length), FakeFarm(), home, **options)


def gen(*arguments: str | Path) -> tuple[int, str]:
    """Exit status and all that a command printed."""
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, [str(argument) for argument in arguments], prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if "--json" in arguments and result.stdout:
        documented.check([str(argument) for argument in arguments], json.loads(result.stdout))
    return result.exit_code, result.output
