"""The report on what bench/ holds: every public case that was timed, every configuration that gen still has."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.predict import TRIALS, spaces
from bench.report import COMPARED, DEVICES, comparisons, trials
from bench.results import read_results
from gen.compare.row import OURS


@pytest.mark.parametrize("file", COMPARED, ids=lambda file: file.stem)
def test_comparisons_are_those_of_the_file_with_their_limits(file: Path) -> None:
    results = read_results(file)
    timed = [row for row in results.rows if row.ours_us is not None and (row.peer == OURS or row.peer_us is not None)]
    found = list(comparisons(results))
    assert len(found) == len(timed)
    assert sorted((one.contender, one.us) for one in found) == sorted(
        (row.peer, row.ours_us if row.peer == OURS else row.peer_us) for row in timed
    )
    shares = {(row.variant, row.protocol, row.ours_us): row.of_limit for row in timed if row.peer == OURS}
    for one in found:
        if one.contender == OURS:
            assert one.limit_us / one.us == pytest.approx(shares[one.variant, one.protocol, one.us], rel=2e-3)


@pytest.mark.parametrize("name", DEVICES)
def test_trials_are_those_of_the_table(name: str) -> None:
    file = TRIALS / f"{name}.csv.gz"
    recorded = [one for space in spaces(file).values() for one in space]
    found = list(trials(file))
    assert len(found) >= 0.9 * len(recorded)  # parameters have changed since, of few
    assert {row.device for row in found} == {DEVICES[name]}
    times = {1000 * one.time_ms for one in recorded if one.time_ms is not None}
    assert {row.median_us for row in found} <= times
    assert len({(row.variant, str(row.extents)) for row in found}) == len(found)
