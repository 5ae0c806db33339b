"""The committed ladder's causes are what is counted now: where the code has gone on, the file is to be made anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.names import find_family
from gen.paths import output_home
from gen.report.ladder import Time, as_json, climb, listed, looked_at

FILE = Path(__file__).parents[2] / "bench" / "ladder-h200.json"
# Of each family a step or two that are counted in a second.
CHEAP = {
    "reduction": ("reduceGmem", "reduceSmem"),
    "transpose": ("transposeSmem", "transposeSmemPad", "output_pitch_padding"),
    "stencil": ("stencil_1d", "stencil_1d_gmem"),
    "probe": ("AoS", "SoA"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", CHEAP)
def test_the_causes_in_the_committed_file_are_those_that_are_counted_now(family: str) -> None:
    content = json.loads(FILE.read_text(encoding="utf-8"))
    limits = Limits.of(content["meta"]["arch"])
    recorded = {rung["name"]: rung for rung in content["families"][family]}
    rungs = [
        replace(rung, timed=Time(recorded[rung.name]["us"]))
        for rung in listed(find_family(FAMILIES, family), limits)
        if rung.name in CHEAP[family]
    ]
    for step in climb(looked_at(rungs, limits, output_home())):
        if step.before is None or step.before.name != recorded[step.rung.name]["over"]:
            continue  # the one that begins here
        now, then = as_json(step), recorded[step.rung.name]
        again = "the file is older than the code: python bench/ladder.py --explain bench/ladder-h200.json"
        assert now["causes"] == then["causes"], again
        assert (now["problem"], now["published"]) == (then["problem"], then["published"]), again
