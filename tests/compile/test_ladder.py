"""`gen ladder`: the kernels of the literature in order, and what explains each step."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.families.base import Absent
from gen.families.transpose import Transpose
from gen.paths import output_home

OUT = str(output_home())
SIDE = "128x128"  # every block runs


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "240"}).invoke(
        app, ["ladder", *arguments, "--arch", "sm_90", "--out", OUT], prog_name="gen"
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def rungs(*arguments: str) -> dict[str, Any]:
    status, out, err = run(*arguments, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert (found["arch"], found["measured"], found["device"]) == ("sm_90", False, None)
    return {rung["name"]: rung for rung in found["rungs"]}


SHOWN = (
    "copyRow", "copyCol", "transposeNaiveRow", "copy", "transposeSmem", "transposeSmemPad", "transposeCoarseGrained",
    "output_pitch_padding", "copyNrepsLaunches",
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> Iterator[dict[str, Any]]:
    """The ladder of some transposes, of which none but the last is like another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transpose, "named", tuple(one for one in Transpose.named if one.name in SHOWN))
        yield rungs("transpose", "--shape", SIDE)


def test_steps_are_ratios_of_speeds_in_the_order_of_the_literature(found: dict[str, Any]) -> None:
    assert tuple(found) == SHOWN
    ranks = [rung["rank"] for rung in found.values()]
    assert ranks == sorted(ranks)
    speeds = [rung["gb_per_s"] for rung in found.values() if rung["gb_per_s"]]
    steps = [rung["step"] for rung in found.values() if rung["gb_per_s"]]
    cumulative = [rung["cumulative"] for rung in found.values() if rung["gb_per_s"]]
    assert steps[0] is None
    assert steps[1:] == pytest.approx([now / was for was, now in pairwise(speeds)])
    assert cumulative == pytest.approx([speed / speeds[0] for speed in speeds])
    assert not any(rung["measured"] for rung in found.values())


def test_every_step_whose_kernel_moves_otherwise_is_explained(found: dict[str, Any]) -> None:
    assert "bank conflict degree 16.5 -> 1" in found["transposeSmemPad"]["causes"]
    assert "bound by load and store units, no longer by memory" not in found["transposeSmemPad"]["causes"]
    assert "load efficiency 100.0% -> 25.0%" in found["copyCol"]["causes"]
    # Ten repetitions are predicted to take longer than one, and no more than ten times as long.
    once, often = found["copy"]["us"], found["copyNrepsLaunches"]["us"]
    assert once < often < 10 * once


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of three rungs, the first of which cannot be built."""
    few = tuple(one for one in Transpose.named if one.name in ("transposeSmem", "transposeSmemPad"))
    monkeypatch.setattr(Transpose, "named", few)
    monkeypatch.setattr(Transpose, "absent", (Absent("transposeByMagic", "it takes a wand", rank=0),))


@pytest.mark.usefixtures("short")
def test_a_ladder_is_a_table_with_what_changed_and_why_a_kernel_is_not_there() -> None:
    status, out, _ = run("transpose", "--shape", SIDE)
    assert status == 0
    assert "predicted for sm_90: nothing was measured" in out
    rows = [line.split() for line in out.splitlines()[2:]]
    assert [row[0] for row in rows] == ["transposeByMagic", "transposeSmem", "transposeSmemPad"]
    assert " ".join(rows[0][1:]) == "- - - - it takes a wand"
    assert rows[1][3:] == ["-", "1.00x"]
    assert "bank conflict degree 16.5 -> 1" in " ".join(rows[2])


@pytest.mark.usefixtures("short")
def test_a_kernel_that_cannot_be_built_says_so_everywhere() -> None:
    listed = CliRunner().invoke(app, ["list", "transpose"]).stdout
    assert "transposeByMagic" in listed
    assert "none: it takes a wand" in listed
    refused = CliRunner().invoke(app, ["render", "transposeByMagic"])
    assert refused.exit_code == 2
    assert "it takes a wand" in refused.stderr


def test_an_unknown_family_is_bad_usage() -> None:
    status, _, err = run("transpos")
    assert status == 2
    assert "Did you mean transpose?" in err
