"""`python -m bench` from the command line, on processes that follow a script."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import run as run_module
from bench.cli import app
from bench.peers import PEERS
from bench.results import lock_of, read_results
from bench.run import Tune
from gen.cli import gpu as gpus
from gen.compare.process import LibrariesFactory
from gen.gpu.timing import METHOD
from tests.fake_process import LIMITS, FakeProcess
from tests.host.cli import command

ONE = ("transpose", "--case", "transpose f32 1024x1024")
run = partial(command.run, app=app, name="python -m bench")


class Script(FakeProcess):
    """What the process does that a run opens, and how it was opened."""

    def __init__(self) -> None:
        super().__init__(missing={"jax": "The module jax is needed for this peer"})
        self.factories: list[LibrariesFactory] = []

    @property
    def started(self) -> int:
        return len(self.factories)

    def open(self, factory: LibrariesFactory) -> Script:
        self.factories.append(factory)
        self.ended = 0
        return self


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Script:
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))
    made = Script()
    monkeypatch.setattr("gen.tune.device.IsolatedDevice", made.open)
    return made


def test_a_case_is_measured_printed_and_kept(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    ended = run(*ONE, "--json", file)
    assert ended.status == 0, ended.err
    assert "Fake GPU, driver 1; read 3200, write 3300, copy 3000 GB/s" in ended.out
    assert "Without jax: The module jax is needed" in ended.out
    assert "transpose f32 1024x1024  cold  1  0.500" in ended.out
    assert {row.peer for row in read_results(file).rows} == {"gen", *script.orders[0][1]}
    assert read_results(file).runs[0].calibration == asdict(LIMITS)


def test_there_is_no_gpu_below_the_first(script: Script) -> None:
    ended = run(*ONE, "--gpu", "-1")
    assert (ended.status, script.started) == (2, 0)
    assert "--gpu" in ended.err


def test_what_took_gen_the_time_is_said_as_it_was(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.seconds = 2.5
    ended = run(*ONE)
    assert "Loading, without tuning, took gen 2.5 s a case; torch.compile, whose caches were empty" in ended.out

    @contextmanager
    def tuning(*_: object) -> Iterator[Tune]:
        yield lambda _: 1.0

    monkeypatch.setattr(run_module, "tuning", tuning)
    assert "Tuning and loading took gen 2.5 s a case" in run(*ONE, "--tune", "1").out


def test_libraries_begin_each_run_with_empty_caches(script: Script) -> None:
    for _ in range(2):
        assert run(*ONE).status == 0
    one, other = (factory.compiled for factory in script.factories)
    assert one is not None
    assert one != other
    assert not one.exists()
    assert all(factory.calibrate for factory in script.factories)


def test_only_the_peers_and_cases_asked_for(script: Script) -> None:
    ended = run("--peers", "cub,torch", "--case", "sum f32 2^2?", "--case", "argmax u8")
    assert ended.status == 0
    assert [case for case, _ in script.orders] == ["sum f32 2^20", "sum f32 2^24", "sum f32 2^28", "argmax u8 2^26"]
    assert {peers for _, peers in script.orders} == {("torch", "cub")}


def test_cases_that_are_kept_already_are_not_measured_again(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    ended = run("transpose", "--case", "f32 1024x1024", "--case", "f32 4096x4096", "--json", file, "--missing")
    assert ended.status == 0
    assert [case for case, _ in script.orders] == ["transpose f32 1024x1024", "transpose f32 4096x4096"]
    assert len(read_results(file).cases()) == 2
    assert "Nothing is missing." in run(*ONE, "--json", file, "--missing", "--peers", "torch").out


def test_peers_and_protocols_that_were_not_measured_are_missing(script: Script, tmp_path: Path) -> None:
    missing = (*ONE, "--json", tmp_path / "h100.json", "--missing")
    for count, peers in ((1, "torch"), (1, "torch"), (2, "torch,cub"), (3, "torch,cub,plain")):
        assert run(*missing, "--peers", peers).status == 0
        assert len(script.orders) == count, peers
    assert len(script.orders) == 3
    run(*missing, "--protocol", "dirty", "--peers", "torch")
    assert len(script.orders) == 4


def test_what_an_older_method_timed_is_missing(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    missing = (*ONE, "--json", file, "--missing", "--peers", "torch")
    run(*missing)
    assert "Nothing is missing." in run(*missing).out
    file.write_text(file.read_text().replace(f'"method": "{METHOD}"', '"method": "cold 4"'))
    assert "Nothing is missing." not in run(*missing).out
    assert len(script.orders) == 2
    assert {run.method for run in read_results(file).runs} == {METHOD}


def test_peers_that_are_not_installed_are_not_missing(script: Script, tmp_path: Path) -> None:
    script.missing = dict.fromkeys([peer.name for peer in PEERS[1:]], "not installed")
    missing = (*ONE, "--json", tmp_path / "h100.json", "--missing")
    run(*ONE, "--json", tmp_path / "h100.json", "--peers", PEERS[0].name)
    ended = run(*missing)
    assert ended.status == 0
    assert len(script.orders) == 1
    assert ended.out.endswith("Nothing is missing.\n")
    assert script.closed == script.started


@pytest.mark.parametrize("how", ["crash", "hang", "lose"])
def test_what_failed_is_measured_again(script: Script, tmp_path: Path, how: str) -> None:
    setattr(script, how, frozenset({"torch"}))
    missing = (*ONE, "--json", tmp_path / "h100.json", "--missing", "--peers", "torch")
    run(*missing)
    setattr(script, how, frozenset())
    run(*missing)
    assert len(script.orders) == 3, "the case; what was left of it after torch; and the case again"
    run(*missing)
    assert len(script.orders) == 3


def test_parts_of_the_cases_make_the_whole_table(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    cases = ("transpose", "--case", "1024x1024", "--case", "1000x1000")
    for part in ("2/3", "1/3", "3/3"):
        assert run(*cases, "--peers", "torch", "--json", file, "--part", part).status == 0
    assert len(script.orders) == len({case for case, _ in script.orders}) == 8
    assert len(read_results(file).cases()) == 8
    assert len(read_results(file).runs) == 3


def test_what_another_run_keeps_meanwhile_stays(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    other = tmp_path / "other.json"
    assert run("reduction", "--case", "sum f32 2^10", "--json", other).status == 0
    script.meanwhile = lambda: other.exists() and other.replace(file)
    assert run(*ONE, "--json", file).status == 0
    assert {case for _, case in read_results(file).cases()} == {"sum f32 2^10", "transpose f32 1024x1024"}


@pytest.mark.parametrize(("before", "status", "word"), [(1.0, 0, "SAME"), (0.5, 1, "SLOWER"), (2.0, 0, "FASTER")])
def test_an_earlier_run_is_compared(script: Script, tmp_path: Path, before: float, status: int, word: str) -> None:
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    content = json.loads(file.read_text())
    for row in content["rows"]:
        row["ours_us"] = before
    file.write_text(json.dumps(content))
    ended = run(*ONE, "--against", file)
    assert (ended.status, word in ended.out) == (status, True), ended.out
    assert script.started == 2


def test_cases_without_an_earlier_time_are_counted(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    ended = run("transpose", "--case", "1024x1024", "--against", file)
    assert ended.status == 0
    assert "3 of 4 cases have no time there to compare with" in ended.out
    assert "no time there" not in run(*ONE, "--against", file).out
    assert script.closed == script.started


def test_what_ran_untuned_is_counted_among_what_was_measured(script: Script) -> None:
    script.note = "base: nothing is tuned for it on this device"
    script.lose, script.processes = frozenset({"sum f32 2^16 torch"}), 1
    cases = ("--case", "sum f32 2^10", "--case", "sum f32 2^16", "--case", "sum f32 2^20")
    assert "2 of 2 cases ran untuned" in run(*cases).out


def test_a_kernel_that_fails_now_is_worse_than_slow(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    script.crash = frozenset({"gen"})
    ended = run(*ONE, "--against", file)
    assert (ended.status, "BROKEN" in ended.out) == (1, True)
    assert "transpose f32 1024x1024 (cold): crashed while timing" in ended.out


def test_what_cannot_be_compared_is_told_before_anything_is_measured(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    for arguments in (["--case", "sum f32 2^10"], [*ONE, "--protocol", "dirty"]):
        ended = run(*arguments, "--against", file)
        assert (ended.status, script.started) == (2, 1)
        assert "--against must have a time of ours for one of these 1 cases" in ended.err
    script.name = "Another GPU"
    ended = run(*ONE, "--against", file)
    assert (ended.status, len(script.orders)) == (2, 1)
    assert "--against was measured on Fake GPU: nothing can be compared with it here (got Another GPU)" in ended.err
    assert script.closed == script.started


def test_results_that_could_not_be_kept_are_not_measured(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    script.name = "Another GPU"
    ended = run(*ONE, "--json", file)
    assert (ended.status, len(script.orders)) == (1, 1)
    assert "were measured on Fake GPU (got Another GPU). Give another file" in " ".join(ended.err.split())
    (tmp_path / "file").touch()
    for target, message in (
        (tmp_path / "file" / "x.json", "cannot be written"),
        (tmp_path, "Give a file that python -m bench"),
    ):
        ended = run(*ONE, "--json", target)
        assert (ended.status, script.started) == (1, 2)
        assert message in " ".join(ended.err.split())


def test_a_file_that_is_no_text_is_told_of_with_what_to_do(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe\x00")
    for option in ("--json", "--against"):
        for path in (file, tmp_path):
            ended = run(*ONE, option, path)
            assert (ended.status, script.started) == (1, 0)
            assert "Give a file that python -m bench --json wrote" in " ".join(ended.err.split())


def test_a_cache_that_cannot_be_written_is_told_of_before_anything_runs(script: Script, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".cache").touch()
    ended = run(*ONE)
    assert (ended.status, script.started) == (1, 0)
    assert "bench.log cannot be written" in ended.err
    assert "Name another folder with --home or $GEN_HOME" in " ".join(ended.err.split())


@pytest.mark.parametrize("tune", [(), ("--tune", "1")])
def test_winners_that_cannot_be_read_are_told_of_before_anything_runs(
    script: Script, tmp_path: Path, tune: tuple[str, ...]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "tuned.json").write_text('{"schema": 9}')
    ended = run(*ONE, *tune)
    assert (ended.status, script.started) == (1, 0)
    assert "tuned.json must have schema 1 (got 9)" in " ".join(ended.err.split())


def test_runs_of_several_homes_take_turns_at_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lock_of(Path("h100.json")) == lock_of(tmp_path / "x" / ".." / "h100.json")
    assert lock_of(tmp_path / "h100.json") != lock_of(tmp_path / "h200.json")
    assert tmp_path not in lock_of(tmp_path / "h100.json").parents


def test_rows_are_kept_and_the_status_says_so_when_the_device_is_lost(script: Script, tmp_path: Path) -> None:
    script.lose, script.processes = frozenset({"cub"}), 1
    file = tmp_path / "h100.json"
    ended = run("--case", "sum f32 2^10", "--case", "sum f32 2^16", "--json", file)
    assert ended.status == 1
    assert "no process could begin any more on sum f32 2^10" in ended.err
    assert "Left out as the device was lost: sum f32 2^16" in ended.out
    kept = {row.peer: row for row in read_results(file).rows}
    assert kept["gen"].verdict == kept["torch"].verdict == "WIN"
    assert kept["cub"].note.startswith("took the device down while timing")


def test_waiting_for_another_run_is_in_the_budget(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []

    @contextmanager
    def alone(_: int, seconds: float | None, __: str) -> Iterator[None]:
        waits.append(seconds)
        time.sleep(0.3)
        yield

    monkeypatch.setattr(gpus, "alone", alone)
    ended = run(*ONE, "--budget", "0.2")
    assert (ended.status, waits, script.orders) == (0, [0.2], [])
    assert "Left out for want of time: transpose f32 1024x1024" in ended.out


def test_cases_are_listed_and_read_back(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text(run(*ONE, "--list").out)
    assert script.started == 0
    assert [case["name"] for case in json.loads(file.read_text())["cases"]] == ["transpose f32 1024x1024"]
    assert run("--cases", file).status == 0
    assert [case for case, _ in script.orders] == ["transpose f32 1024x1024"]


def test_the_cases_that_are_listed_are_those_that_would_be_measured(script: Script, tmp_path: Path) -> None:
    script.missing = {}
    file = tmp_path / "h100.json"
    run(*ONE, "--json", file)
    asked = ("transpose", "--case", "f32 1024x1024", "--case", "f32 4096x4096", "--missing", "--list")
    listed = run(*asked, "--json", file).data["cases"]
    assert [case["name"] for case in listed] == ["transpose f32 4096x4096"]
    assert run(*ONE, "--missing", "--list", "--json", file).data["cases"] == []
    assert run(*ONE, "--list", "--json", tmp_path / "new" / "h.json").status == 0
    assert not (tmp_path / "new").exists()
    for options in (["--missing"], ["--against", "none.json"], ["--case", "sum f32 2^10", "--against", file]):
        ended = run("--list", *options)
        assert (ended.status, ended.err) == (2, run(*options).err)
    assert script.started == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "torhc"], "Did you mean torch"),
        (["sort"], "The family must be one of reduction, transpose, stencil"),
        (["--case", "nothing"], "--case must be a part of a case's name, or a pattern such as"),
        (["--protocol", "warm"], "--protocol must be cold, dirty or hot"),
        (["--budget", "0"], "--budget must be a positive number"),
        (["--part", "3/2"], "--part must be K/N"),
        (["--part", "half"], "--part must be K/N"),
        (["--tune", "-1"], "--tune must be a positive number"),
        (["--against", "none.json"], "--against must be a file that python -m bench --json wrote"),
        (["--missing"], "--missing needs --json FILE"),
        (["--part", "999/999"], "--part leaves nothing: there are 169 cases (got 999/999)"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(script: Script, arguments: list[str], message: str) -> None:
    ended = run(*arguments)
    assert (ended.status, script.started) == (2, 0)
    assert message in ended.err


def test_a_file_of_another_schema_is_told_before_anything_runs(script: Script, tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    file.write_text('{"schema": 9}')
    for option, schema in (("--json", 1), ("--against", 1), ("--cases", 3)):
        ended = run(option, file)
        assert (ended.status, script.started) == (1, 0)
        assert f"must have schema {schema}" in ended.err


def test_what_crashes_is_a_row_and_the_status_is_fine(script: Script, tmp_path: Path) -> None:
    script.crash = frozenset({"torch"})
    file = tmp_path / "h100.json"
    ended = run(*ONE, "--json", file)
    assert ended.status == 0
    notes: dict[str, Any] = {row.peer: row.note for row in read_results(file).rows}
    assert notes["torch"] == "crashed while timing: the process died of it"
    assert notes["cub"] == ""
