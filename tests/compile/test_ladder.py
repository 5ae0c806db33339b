"""`gen ladder`: the kernels of the literature in order, and what explains each step."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.transpose import Transpose
from gen.paths import output_home

OUT = str(output_home())
SIDE = "1024x1024"


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


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The ladder of the transposes."""
    return rungs("transpose", "--shape", SIDE)


def test_steps_are_ratios_of_speeds_in_the_order_of_the_literature(found: dict[str, Any]) -> None:
    (family,) = [family for family in FAMILIES if family.name == "transpose"]
    ranks = {one.name: one.rank for one in family.named} | {one.name: one.rank for one in family.absent}
    assert list(found) == sorted(ranks, key=lambda name: ranks[name])
    speeds = [rung["gb_per_s"] for rung in found.values() if rung["gb_per_s"]]
    steps = [rung["step"] for rung in found.values() if rung["gb_per_s"]]
    cumulative = [rung["cumulative"] for rung in found.values() if rung["gb_per_s"]]
    assert steps[0] is None
    assert steps[1:] == pytest.approx([now / was for was, now in pairwise(speeds)])
    assert cumulative == pytest.approx([speed / speeds[0] for speed in speeds])
    assert not any(rung["measured"] for rung in found.values())


def test_a_step_is_explained_by_what_changed(found: dict[str, Any]) -> None:
    assert "bank conflict degree 16.5 -> 1" in found["transposeSmemPad"]["causes"]
    _, out, _ = run("transpose", "--shape", SIDE)
    assert "predicted for sm_90: nothing was measured" in out
    assert "bank conflict degree 16.5 -> 1" in out


def test_a_kernel_that_cannot_be_built_stands_there_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.families.base import Absent

    monkeypatch.setattr(Transpose, "absent", (Absent("transposeByMagic", "it takes a wand", rank=0),))
    found = rungs("transpose", "--shape", SIDE)
    assert (found["transposeByMagic"]["us"], found["transposeByMagic"]["reason"]) == (None, "it takes a wand")
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
