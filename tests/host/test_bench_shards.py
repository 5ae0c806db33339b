"""`bench/shards.py` without a GPU: ranks that are simulated, and times that a test makes up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import shards
from bench.shards import WARM_UP, Row, Way, measured
from bench.timeline import Span, drawn, hidden


def test_simulated_ranks_have_the_bits_of_one_gpu_and_nothing_is_timed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "EXCHANGES", (None, 3))
    file = tmp_path / "shards.json"
    words = ["--simulated", "--seed", "7", "--shape", "40x33", "--steps", "5", "--json", str(file)]
    monkeypatch.setattr("sys.argv", ["shards.py", *words])
    assert shards.main() == 0
    content = json.loads(file.read_text())
    assert content["meta"]["command"] == f"python bench/shards.py {' '.join(words[:-2])}"
    assert (content["meta"]["seed"], content["meta"]["shape"]) == (7, [40, 33])
    found = [(row["ranks"], row["steps_per_exchange"], row["chosen"], row["equal"]) for row in content["rows"]]
    assert found == [
        (0, 0, False, True), (1, 5, True, True), (2, 1, True, True), (2, 3, False, True), (4, 1, True, True),
        (4, 3, False, True),
    ]  # fmt: skip
    assert all(row["ms"] == [] and row["overhead"] is None for row in content["rows"])
    out = capsys.readouterr().out
    assert "stencil_heat_de794a2b_f32, 40 x 33, 5 steps, simulated on the CPU, seed 7" in out
    assert "4 ranks                            3           -           -  equal\n" in out


def test_ways_are_timed_in_turns_and_compared_with_the_kernel_of_one_gpu() -> None:
    ran: list[int] = []
    rows = [Row(ranks, 4, chosen=True, equal=True) for ranks in (0, 2, 4)]
    found = [Way(row, lambda ranks=row.ranks: ran.append(ranks)) for row in rows]  # type: ignore[misc]

    def timed(run: object) -> float:
        assert callable(run)
        run()
        return 10.0 + ran[-1] / 4 + (100.0 if len(ran) <= 3 * WARM_UP else 0.0)

    one, two, four = measured(found, timed, turns=5)
    assert ran[:6] == [0, 2, 4, 2, 4, 0]
    assert (one.ms, one.overhead) == ((10.0,) * 5, 0.0)
    assert (two.ms, two.overhead, four.overhead) == ((10.5,) * 5, 0.05, 0.1)
    assert str(two) == "2 ranks                          4 *      10.500     +5.00 %  equal"
    assert "NOT EQUAL" in str(Row(2, 4, chosen=False, equal=False))


def test_a_timeline_shows_each_stream_and_what_is_hidden() -> None:
    spans = [
        Span("rank 0 rims", "kernel", True, 0.0, 20.0), Span("rank 0 rims", "80 bytes", False, 20.0, 30.0),
        Span("rank 0 inside", "kernel", True, 10.0, 70.0), Span("rank 0 inside", "9 bytes", False, 70.0, 80.0),
        Span("rank 1 rims", "kernel", True, 15.0, 25.0), Span("rank 1 inside", "kernel", True, 60.0, 65.0),
    ]  # fmt: skip
    assert drawn(spans, 8) == [
        "rank 0 inside  .######=",
        "rank 0 rims    ##=.....",
        "rank 1 inside  ......#.",
        "rank 1 rims    .#......",
    ]
    assert hidden(spans) == (30.0, 20.0)
    assert hidden(spans[2:4]) == (0.0, 0.0)
