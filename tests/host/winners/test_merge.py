"""`gen tune --part` and `gen merge`: parts come to what the whole run comes to, in any order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

import gen
from gen.emit.render import render
from gen.errors import StoreError
from gen.families import FAMILIES
from gen.families.regions import Bound, Region
from gen.gpu.timing import Calibration
from gen.store.folder import read_calibrations, read_specs, remember, store_calibration
from gen.store.trials import Trials
from gen.store.winners import TUNED_FILE, Winner, read_winners, text_of_winners
from gen.tune.merge import Merged, merge
from tests.fake_tuning import FakeTuningDevice
from tests.host.cli.command import run
from tests.host.winners.given import EVERY, TALL, WIDE, kept

SHAPES = ("--shape", "64x96", "--shape", "96x64", "--shape", "128x32")
WINNER = Winner("Fake GPU", "transpose_10_b32", "any size", WIDE.name, {"date": "2026-11-24", "median_us": 10.0})
PART = Region((Bound("rows", 1, 64),))


def tuned(home: Path, *options: str) -> None:
    ended = run("tune", "transpose_10_b32", *SHAPES, "--home", home, *options)
    assert ended.status == 0, ended.err


def tried(home: Path) -> set[tuple[str, str]]:
    store = Trials(home)
    try:
        return {(row.variant, json.dumps(row.extents, sort_keys=True)) for row in store.rows()}
    finally:
        store.close()


def folder(place: Path, winners: Iterable[Winner]) -> Path:
    place.mkdir()
    (place / TUNED_FILE).write_text(text_of_winners(winners))
    return place


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("parts", [2, 3])
def test_parts_that_are_merged_are_the_whole_run(parts: int, home: Path, tmp_path: Path) -> None:
    tuned(home)
    folders = [tmp_path / f"part {number}" for number in range(1, parts + 1)]
    for number, one in enumerate(folders, 1):
        tuned(one, "--part", f"{number}/{parts}")
    assert sorted(len(kept(one)) for one in folders) == ([1, 2] if parts == 2 else [1, 1, 1])
    together = tmp_path / "together"
    ended = run("merge", *folders, "--home", together, "--json")
    assert ended.status == 0
    assert kept(together) == kept(home)
    assert tried(together) == tried(home)
    assert ended.data == {
        "folder": str(together),
        "winners": 3,
        "trials": len(tried(home)),
        "specs": 0,
        "comparisons": 0,
    }
    for name in set(kept(home).values()):
        assert (together / f"{name}.cu").read_bytes() == (home / f"{name}.cu").read_bytes()
    again = run("merge", folders[0], "--home", together)
    assert f"{together}: 0 winners, 0 trials, 0 comparisons, 0 specs came from 1 folder" in again.out


def test_a_part_of_more_than_there_are_problems_has_nothing_to_tune(gpu: FakeTuningDevice, home: Path) -> None:
    ended = run("tune", "transpose_10_b32", "--part", "2/2", "--home", home)
    assert (ended.status, gpu.seen) == (0, [])
    assert "Part 2/2 has nothing to tune: there are 1 problems." in ended.out


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "1/0", "1/2/3", "a/b", "-1/2", ""])
def test_a_part_is_one_of_several(part: str) -> None:
    ended = run("tune", "transpose_10_b32", "--part", part)
    assert ended.status == 2
    assert "error: --part must be K/N, a whole number from 1 to N and N" in ended.err


@pytest.mark.parametrize(
    ("evidence", "is_better"),
    [
        ({"date": "2026-11-25", "median_us": 99.0}, True),
        ({"date": "2026-11-23", "median_us": 1.0}, False),
        ({"date": "2026-11-24", "median_us": 9.0}, True),
        ({"date": "2026-11-24", "median_us": 11.0}, False),
        ({}, False),
    ],
)
def test_the_later_winner_stays_of_one_day_the_faster_in_any_order(
    evidence: Mapping[str, Any], is_better: bool, tmp_path: Path
) -> None:
    other = replace(WINNER, variant=TALL.name, evidence=evidence)
    elsewhere = replace(other, device="Other GPU")
    of_a_part = replace(other, region=PART)
    folders = [
        folder(tmp_path / str(place), winners)
        for place, winners in enumerate(([WINNER], [other], [elsewhere, of_a_part]))
    ]
    best = other if is_better else WINNER
    for place, order in enumerate(permutations(folders)):
        home = tmp_path / f"home {place}"
        merge(order[1:], FAMILIES, folder(home, read_winners(order[0])))
        assert text_of_winners(read_winners(home)) == text_of_winners([best, elsewhere, of_a_part])
        assert (home / f"{best.variant}.cu").read_text() == render(WIDE if best is WINNER else TALL)


def test_specs_and_calibrations_come_too_and_what_is_there_stays(tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    spec = gen.stencil([1.0, 2.0, 1.0], word="mine")
    remember(other, FAMILIES[2], spec)
    ours, theirs = (Calibration("Fake GPU", "1.0", *(figure,) * 5) for figure in (1.0, 2.0))
    for place, device in ((home, ours), (other, theirs), (other, replace(theirs, device="Other GPU"))):
        store_calibration(place, device)
    assert merge([other], FAMILIES, home) == Merged(winners=0, trials=0, specs=1)
    assert read_specs(home) == {FAMILIES[2].name_of(spec): spec.to_json()}
    assert read_calibrations(home) == [ours, replace(theirs, device="Other GPU")]


def test_what_is_no_folder_of_results_changes_nothing(tmp_path: Path) -> None:
    home = folder(tmp_path / "home", [WINNER])
    before = {path: path.read_bytes() for path in home.iterdir()}
    good = folder(tmp_path / "good", [replace(WINNER, variant=EVERY[3].name, evidence={"date": "2027-01-01"})])
    torn, missing = tmp_path / "torn", tmp_path / "missing"
    torn.mkdir()
    (torn / TUNED_FILE).write_text("{")
    ended = run("merge", good, missing, "--home", home)
    assert (ended.status, f"error: {missing} must be a folder of results" in ended.err) == (1, True)
    for bad in (missing, torn):
        with pytest.raises(StoreError, match=str(bad)):
            merge([good, bad], FAMILIES, home)
    assert {path: path.read_bytes() for path in home.iterdir()} == before
