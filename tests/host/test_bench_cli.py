"""`gen bench` from the command line, on processes that follow a script."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gen.bench import run as run_module
from gen.bench import tuning as tuning_module
from gen.bench.rows import read_results
from gen.bench.run import Bench
from gen.bench.tuning import Tune
from tests.host.cli.command import run
from tests.host.test_bench_run import OPENED, Script

LIMITS = {"read": 3200.0, "write": 3300.0, "copy": 3000.0, "empty_pair_us": 3.8, "empty_node_us": 0.8}
ONE = ("transpose", "--case", "transpose f32 1024x1024")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Script:
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))
    opening = replace(OPENED, calibration=LIMITS, missing={"jax": "The module jax is needed for this peer"})
    made = Script(opening=opening)
    monkeypatch.setattr(run_module, "Bench", partial(Bench, start=made.start))
    return made


def test_a_case_is_measured_printed_and_kept(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    ended = run("bench", *ONE, "--json", file)
    assert ended.status == 0, ended.err
    assert "Fake GPU, driver 1; read 3200, write 3300, copy 3000 GB/s" in ended.out
    assert "Without jax: The module jax is needed" in ended.out
    assert "transpose f32 1024x1024  cold  1  0.500" in ended.out
    assert {row.peer for row in read_results(file).rows} == {"gen", *script.orders[0][1]}
    assert read_results(file).runs[0].calibration == LIMITS


def test_what_took_gen_the_time_is_said_as_it_was(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.ready = 2.5
    ended = run("bench", *ONE)
    assert "Loading what was tuned before took gen 2.5 s a case; torch.compile, whose caches were empty" in ended.out

    @contextmanager
    def tuning(*_: object) -> Iterator[Tune]:
        yield lambda _: 1.0

    monkeypatch.setattr(tuning_module, "tuning", tuning)
    assert "Tuning and loading took gen 2.5 s a case" in run("bench", *ONE, "--tune", "1").out


def test_libraries_begin_each_run_with_empty_caches(script: Script) -> None:
    for _ in range(2):
        assert run("bench", *ONE).status == 0
    one, other = script.setups
    assert one.compiled != other.compiled
    assert not one.compiled.exists()


def test_only_the_peers_and_cases_asked_for(script: Script) -> None:
    ended = run("bench", "--peers", "cub,torch", "--case", "sum f32 2^2?", "--case", "argmax u8")
    assert ended.status == 0
    assert [case for case, _ in script.orders] == ["sum f32 2^20", "sum f32 2^24", "sum f32 2^28", "argmax u8 2^26"]
    assert {peers for _, peers in script.orders} == {("torch", "cub")}


def test_cases_that_are_kept_already_are_not_measured_again(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    run("bench", *ONE, "--json", file)
    ended = run("bench", "transpose", "--case", "f32 1024x1024", "--case", "f32 4096x4096", "--json", file, "--missing")
    assert ended.status == 0
    assert [case for case, _ in script.orders] == ["transpose f32 1024x1024", "transpose f32 4096x4096"]
    assert len(read_results(file).cases()) == 2
    assert "Nothing is missing." in run("bench", *ONE, "--json", file, "--missing").out


def test_parts_of_the_cases_make_the_whole_table(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    cases = ("transpose", "--case", "1024x1024", "--case", "1000x1000")
    for part in ("2/3", "1/3", "3/3"):
        assert run("bench", *cases, "--peers", "torch", "--json", file, "--part", part).status == 0
    assert len(script.orders) == len({case for case, _ in script.orders}) == 8
    assert len(read_results(file).cases()) == 8
    assert len(read_results(file).runs) == 3


def test_what_another_run_keeps_meanwhile_stays(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    other = tmp_path / "other.json"
    assert run("bench", "reduction", "--case", "sum f32 2^10", "--json", other).status == 0
    script.meanwhile = lambda: other.exists() and other.replace(file)
    assert run("bench", *ONE, "--json", file).status == 0
    assert {case for _, case in read_results(file).cases()} == {"sum f32 2^10", "transpose f32 1024x1024"}


@pytest.mark.parametrize(("before", "status", "word"), [(1.0, 0, "SAME"), (0.5, 1, "SLOWER"), (2.0, 0, "FASTER")])
def test_an_earlier_run_is_compared(script: Script, tmp_path: Path, before: float, status: int, word: str) -> None:
    file = tmp_path / "h100.json"
    run("bench", *ONE, "--json", file)
    content = json.loads(file.read_text())
    for row in content["rows"]:
        row["ours_us"] = before
    file.write_text(json.dumps(content))
    ended = run("bench", *ONE, "--against", file)
    assert (ended.status, word in ended.out) == (status, True), ended.out
    assert script.started == 2


def test_cases_are_listed_and_read_back(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text(run("bench", *ONE, "--list").out)
    assert script.started == 0
    assert run("bench", "--cases", file).status == 0
    assert [case for case, _ in script.orders] == ["transpose f32 1024x1024"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "torhc"], "Did you mean torch"),
        (["sort"], "The family must be one of reduction, transpose, stencil"),
        (["--case", "nothing"], "--case must be in the name of a case"),
        (["--protocol", "warm"], "--protocol must be cold, dirty or hot"),
        (["--budget", "0"], "--budget must be a positive number"),
        (["--part", "3/2"], "--part must be K/N"),
        (["--part", "half"], "--part must be K/N"),
        (["--tune", "-1"], "--tune must be a positive number"),
        (["--against", "none.json"], "--against must be a file that gen bench --json wrote"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(script: Script, arguments: list[str], message: str) -> None:
    ended = run("bench", *arguments)
    assert (ended.status, script.started) == (2, 0)
    assert message in ended.err


def test_a_file_of_another_schema_is_told_before_anything_runs(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    file.write_text('{"schema": 9}')
    for option in ("--json", "--against", "--cases"):
        ended = run("bench", option, file)
        assert (ended.status, script.started) == (1, 0)
        assert "must have schema 1" in ended.err


def test_what_crashes_is_a_row_and_the_status_is_fine(script: Script, tmp_path: Path) -> None:
    script.crash = frozenset({"torch"})
    file = tmp_path / "h100.json"
    ended = run("bench", *ONE, "--json", file)
    assert ended.status == 0
    notes: dict[str, Any] = {row.peer: row.note for row in read_results(file).rows}
    assert notes["torch"] == "crashed while timing: signal 11"
    assert notes["cub"] == ""
