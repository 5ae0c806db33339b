"""`gen tune` with --verify, --stale and --frozen: what it says, writes and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.store.winners import TUNED_FILE, first_calls_of, found_at_first_calls, read_winners, text_of_winners
from tests import documented
from tests.fake_tuning import FakeTuningDevice
from tests.host.winners.given import EVERY, TALL, WIDE, kept


def gen(*arguments: str | Path, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["tune", *map(str, arguments)], prog_name="gen")
    assert result.exit_code == status, result.output
    if "--json" in arguments:
        documented.check(["tune"], json.loads(result.stdout))
    return result.output


def tune_all_and_unaligned(home: Path) -> None:
    """Gives the class a winner, and one more for arrays that are not aligned."""
    for alignment in ("16", "8"):
        gen("transpose_10_b32", "--alignment", alignment, "--home", home)


def test_frozen_measures_nothing_and_fails_where_a_winner_is_missing(gpu: FakeTuningDevice, home: Path) -> None:
    said = gen("transpose_10_b32", "--frozen", "--home", home, status=1)
    assert "1 of 1 problems have no winner on Fake GPU (got transpose_10_b32, any size)" in said
    assert "Run gen tune without --frozen" in said
    gen("transpose_10_b32", "--home", home)
    before = (len(gpu.seen), (home / TUNED_FILE).read_text())
    assert WIDE.name.partition("__")[2] in gen("transpose_10_b32", "--frozen", "--json", "--home", home)
    shape = ("transpose_10_b32", "--shape", "64x96", "--frozen", "--home", home)
    assert "have no winner on Fake GPU (got transpose_10_b32, any size, cols 96, rows 64" in gen(*shape, status=1)
    assert before == (len(gpu.seen), (home / TUNED_FILE).read_text())


def test_verify_reports_each_winner_and_writes_nothing(gpu: FakeTuningDevice, home: Path) -> None:
    assert "Nothing is tuned for this GPU" in gen("--verify", "--home", home)
    tune_all_and_unaligned(home)
    before = (home / TUNED_FILE).read_text()
    said = gen("transpose_10_b32", "--verify", "--home", home)
    assert said.count("FASTER") == 2
    assert (home / TUNED_FILE).read_text() == before
    lines = [replace(winner, variant=EVERY[-1].name) for winner in read_winners(home)]
    assert EVERY[-1] not in (WIDE, TALL)
    gpu.time_us = lambda made: 30.0 if made == EVERY[-1] else 10.0
    (home / TUNED_FILE).write_text(text_of_winners(lines))
    assert [one["verdict"] for one in json.loads(gen("--verify", "--json", "--home", home, status=1))] == ["SLOWER"] * 2
    assert "Nothing is tuned" in gen("transpose_10_b32", "--shape", "64x96", "--verify", "--home", home)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    "options",
    [("--verify", "--frozen"), ("--shape", "4x4", "--class", "any size"),
     ("--class", "large"), ("--alignment", "3"), ("--frozen", "--budget", "5"),
     ("--verify", "--prune", "all"), ("--compiler", "clang"), ("--verify", "--alignment", "4"),
     ("--frozen", "--compiler", "nvcc"), ("--stale", "--frozen"), ("--stale", "--shape", "4x4")],
)  # fmt: skip
def test_options_that_make_no_sense_together_are_refused(options: tuple[str, ...], home: Path) -> None:
    assert "error: --" in gen("transpose_10_b32", *options, "--home", home, status=2)


def test_a_winner_for_one_shape_is_verified_at_the_alignment_that_is_asked_for(
    gpu: FakeTuningDevice, home: Path
) -> None:
    shape = ("transpose_10_b32", "--shape", "64x96")
    gen(*shape, "--alignment", "8", "--home", home)
    assert "Nothing is tuned" in gen(*shape, "--verify", "--home", home)
    gpu.seen.clear()
    assert json.loads(gen(*shape, "--alignment", "8", "--verify", "--json", "--home", home))[0]["verdict"] is not None
    assert {problem.alignment for problem, _ in gpu.seen} == {8}


def test_an_unknown_class_is_answered_with_those_there_are(gpu: FakeTuningDevice, home: Path) -> None:
    said = gen("transpose_10_b32", "--class", "any sise", "--home", home, status=2)
    assert "--class must be one of any size (got 'any sise'). Did you mean any size?" in said
    assert gpu.seen == []


def test_frozen_asks_for_winners_of_the_gpu_that_is_meant(
    gpu: FakeTuningDevice, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gen("transpose_10_b32", "--home", home)
    others = {0: gpu, 1: FakeTuningDevice(name="Other GPU")}
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda index=0: others[index])
    gen("transpose_10_b32", "--frozen", "--gpu", "0", "--home", home)
    said = gen("transpose_10_b32", "--frozen", "--gpu", "1", "--home", home, status=1)
    assert "have no winner on Other GPU" in said


def test_one_class_and_less_alignment_can_be_tuned(gpu: FakeTuningDevice, home: Path) -> None:
    gen("transpose_10_b32", "--class", "any size", "--alignment", "8", "--home", home)
    assert kept(home) == {"any size, aligned to 8 bytes at most": WIDE.name}
    assert [problem.alignment for problem, _ in gpu.seen] == [8]


@pytest.mark.usefixtures("gpu")
def test_what_is_stale_is_measured_again_and_nothing_else(home: Path) -> None:
    tune_all_and_unaligned(home)
    assert "No winner on Fake GPU is stale." in gen("--stale", "--home", home)
    whole, part = read_winners(home)
    changed = {**part.evidence, "text": "0123456789abcdef", "template": ""}
    (home / TUNED_FILE).write_text(
        text_of_winners([replace(whole, evidence={"kept": 1}), replace(part, evidence=changed)])
    )
    first_calls_of(home).parent.mkdir(exist_ok=True)
    first_calls_of(home).write_text(
        text_of_winners([replace(part, evidence=changed), replace(part, device="Another GPU")])
    )
    gen("transpose_10_b32", "--stale", "--home", home)
    again, anew = read_winners(home)
    assert (again.evidence, anew.region, anew.evidence["template"]) == (
        {"kept": 1}, part.region, part.evidence["template"]
    )  # fmt: skip
    assert [winner.device for winner in found_at_first_calls(home)] == ["Another GPU"]  # `gen tune` looks further
    assert "No winner" in gen("--stale", "--home", home)
