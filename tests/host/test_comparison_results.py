"""Comparisons stay in the folder of results: of each problem the last one, of merged folders the latest."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gen.compare.case import ComparisonCase
from gen.compare.results import FILE, Compared, compared, keep, merge, read_compared
from gen.compare.row import OURS, Row
from gen.errors import StoreError
from gen.families import FAMILIES
from gen.gpu.timing import Calibration

TRANSPOSE = FAMILIES[1]
CASE = ComparisonCase(TRANSPOSE, TRANSPOSE.catalogue[0], (512, 256))
ABOUT = Calibration("Fake GPU", "1", 3200.0, 3300.0, 3000.0, 3.8, 0.8)
ROWS = (
    Row("transpose", CASE.name, OURS, "cold", 10.0, 10.0, 1.0, 0.99, 1.01, 0.4, "-", "transpose_10_b32__tiled", 30),
    Row("transpose", CASE.name, "torch", "cold", 10.0, 20.123456, 2.0123456, 2.0, 2.1, 0.4, "WIN", "spec__tiled", 30),
    Row("transpose", CASE.name, "torch", "hot", 10.0, 20.0, 2.0, 2.0, 2.1, 0.4, "WIN", "spec__tiled", 30),
    Row("transpose", CASE.name, "cupy", "cold", 10.0, 30.0, 3.0, None, None, 0.4, "-", "spec__tiled", 3),
    Row("transpose", CASE.name, "jax", "cold", note="not offered: too large"),
)


def found(date: str = "2026-11-26", case: ComparisonCase = CASE) -> tuple[Compared, ...]:
    return compared(case, ROWS, ABOUT, "Fake GPU", "1", date)


def test_contenders_that_were_timed_are_kept_with_what_they_must_move() -> None:
    ours, torch, hot, cupy = found()
    assert (ours.contender, ours.us, ours.gen_us) == (OURS, 10.0, 10.0)
    assert (torch.us, torch.gen_us, torch.ratio) == (20.123, 10.0, 2.0123)
    assert (cupy.ratio, cupy.low, cupy.high) == (3.0, None, None)
    assert {one.least_bytes for one in found()} == {2 * 4 * 512 * 256}
    assert torch.limit == "copy"
    bytes_us = torch.least_bytes / ABOUT.copy / 1e3
    assert torch.limit_us == pytest.approx(ABOUT.empty_pair_us + bytes_us, rel=1e-4)
    assert hot.limit_us == pytest.approx(ABOUT.empty_node_us + bytes_us, rel=1e-4)


def test_a_later_comparison_takes_the_place_of_one_of_the_same_problem_alone(tmp_path: Path) -> None:
    other = found(case=ComparisonCase(TRANSPOSE, TRANSPOSE.catalogue[0], (256, 512)))
    keep(tmp_path, found())
    keep(tmp_path, other)
    assert set(map(repr, read_compared(tmp_path))) == set(map(repr, (*found(), *other)))
    later = found("2026-11-27")[:2]
    keep(tmp_path, later)
    assert set(map(repr, read_compared(tmp_path))) == set(map(repr, (*later, *other)))


def test_of_merged_folders_the_latest_stays_whatever_their_order(tmp_path: Path) -> None:
    early, late = tmp_path / "early", tmp_path / "late"
    keep(early, found("2026-11-25"))
    keep(late, found("2026-11-27")[:2])
    for number, folders in enumerate(((early, late), (late, early))):
        home = tmp_path / str(number)
        keep(home, found("2026-11-26"))
        assert merge(folders, home) == 2
        assert set(map(repr, read_compared(home))) == set(map(repr, found("2026-11-27")[:2]))
        assert merge((early,), home) == 0


@pytest.mark.parametrize(
    "change",
    [{"us": "fast"}, {"us": -1.0}, {"us": None}, {"least_bytes": 1.5}, {"extents": [512]}, {"ratio": "2"}, {"more": 1}],
    ids=str,
)
def test_what_gen_does_not_write_is_refused_with_the_file(tmp_path: Path, change: dict[str, object]) -> None:
    keep(tmp_path, found())
    content = json.loads((tmp_path / FILE).read_text())
    content["comparisons"][0].update(change)
    (tmp_path / FILE).write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"comparisons.json is not what gen writes"):
        read_compared(tmp_path)


def test_a_problem_is_its_sizes_in_any_order() -> None:
    one, other = (replace(found()[0], extents=dict(sizes)) for sizes in ((("a", 1), ("b", 2)), (("b", 2), ("a", 1))))
    assert one.problem == other.problem
