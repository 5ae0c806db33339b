"""`gen tune` on a GPU: what it shows and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gen.compare.results import read_compared
from gen.emit.folder import base_of_catalogue
from gen.families import FAMILIES
from gen.gpu.timing import Calibration, Instruments
from gen.store.folder import CALIBRATION_FILE, read_calibrations
from gen.store.winners import TUNED_FILE, read_winners
from gen.tune import several_problems as tuning
from tests.fake_process import FakeProcess
from tests.fake_tuning import FakeFarm, FakeSession, FakeTuningDevice
from tests.host.cli.command import CHECKOUT, run
from tests.host.several_problems.given import ALL, TRANSPOSE, gen
from tests.host.several_problems.test_winners import _names


def test_the_command_shows_a_line_for_each_problem(gpu: FakeTuningDevice, home: Path) -> None:
    bad = next(made for made in base_of_catalogue(FAMILIES) if made.family.name == "transpose").name
    crashing = next(name for name in _names(TRANSPOSE[0]) if name != bad)
    gpu.bad = {crashing: "launch_failed"}
    status, said = gen("tune", "--home", home)
    assert status == 0
    for problem in ALL:
        assert str(problem) in said
    assert f"{crashing}: launch_failed: made to: launch_failed" in said
    for winner in read_winners(home):
        assert winner.variant.partition("__")[2] in said
    assert "a second, proven and timed." in said
    assert "Next: gen tune again refines this" in said


def test_without_a_name_winners_are_timed_beside_torch_where_it_is_installed(
    gpu: FakeTuningDevice, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = FakeProcess()
    monkeypatch.setattr("gen.tune.device.IsolatedDevice", lambda _: process)
    monkeypatch.setattr("gen.cli.tune.find_spec", lambda name: name == "torch" or None)
    status, said = gen("tune", "--home", home)
    assert status == 0
    compared = [case.split()[0] for case, _ in process.orders]
    assert compared == ["reduction_sum_f32", "transpose_10_b32", "stencil_heat_de794a2b_f32"]
    assert {peers for _, peers in process.orders} == {("torch",)}
    lines = [line for line in said.splitlines() if line.startswith("torch")]
    assert len(lines) == 3
    assert all("gen is faster" in line for line in lines)
    assert {one.contender for one in read_compared(home)} == {"gen", "torch"}
    assert len(read_compared(home)) == 6
    asked = len(process.orders)
    for more in (("transpose",), ("--part", "9/9")):
        gen("tune", *more, "--home", home)
    assert len(process.orders) == asked
    assert gpu.attempts


def test_in_a_checkout_users_write_to_out_local_alone_and_maintainers_name_out(
    gpu: FakeTuningDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "templates").symlink_to(CHECKOUT / "templates", target_is_directory=True)
    shipped = {name: (CHECKOUT / "out" / name).read_bytes() for name in (TUNED_FILE, CALIBRATION_FILE)}
    for name, content in shipped.items():
        (out / name).write_bytes(content)
    monkeypatch.setattr("gen.paths._checkout", lambda: tmp_path)
    monkeypatch.delenv("GEN_HOME")
    figures = Calibration("Fake GPU", "1.0", 3200.0, 3300.0, 3000.0, 3.8, 0.8)
    monkeypatch.setattr(Instruments, "open", lambda *_: SimpleNamespace(calibrate=lambda: figures))
    monkeypatch.setattr("gen.cli.gpu.compiler_of", lambda *_: None)
    weights = ("--weights", "[1, 2, 1]", "--word", "mine")
    for command in (
        ["calibrate", "--json"],
        ["tune", "transpose"],
        ["spec", "stencil", *weights],
        ["lock"],
        ["lock", "--off"],
    ):
        assert gen(*command)[0] == 0, command
    gen("tune", "transpose", "--home", tmp_path / "other")
    assert gen("merge", tmp_path / "other")[0] == 0
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == shipped
    ignored = (CHECKOUT / ".gitignore").read_text().splitlines()
    assert ("/out/*" in ignored, [line for line in ignored if line.startswith("!/out/local")]) == (True, [])
    (winner,) = read_winners(out / "local")
    assert [found.device for found in read_calibrations(out / "local")] == ["Fake GPU"]
    assert gen("tune", "transpose", "--home", out)[0] == 0
    assert winner.variant in {one.variant for one in read_winners(out) if one.device == "Fake GPU"}
    assert gpu.attempts


def test_winners_stay_where_torch_takes_the_gpu_down(
    gpu: FakeTuningDevice, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gen.tune.device.IsolatedDevice", lambda _: FakeProcess(processes=0))
    monkeypatch.setattr("gen.cli.tune.find_spec", lambda name: name == "torch" or None)
    ended = run("tune", "--home", home)
    assert (ended.status, "Not compared with torch: The GPU cannot be used" in ended.err) == (0, True), ended.err
    assert read_winners(home)
    assert gpu.attempts


def test_the_command_says_who_else_was_on_the_gpu(
    gpu: FakeTuningDevice, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = FakeSession.rounds
    others = ("process 7 (python, 400 MiB)", "process 9")
    monkeypatch.setattr(FakeSession, "rounds", lambda *those, **how: replace(rounds(*those, **how), foreign=others))
    _, said = gen("tune", "transpose", "--home", home)
    assert f"process 7 (python, 400 MiB), process 9 were on the GPU while {TRANSPOSE[0]} was tuned" in said
    _, told = gen("tune", "transpose", "--json", "--home", home)
    assert json.loads(told)["outcomes"][0]["beside"] == list(others)
    _, verified = gen("tune", "transpose", "--verify", "--home", home)
    assert "process 9 were on the GPU: its times may be off" in verified
    assert gpu.attempts


def test_the_command_tunes_what_it_is_given_and_says_what_it_left_out(gpu: FakeTuningDevice, home: Path) -> None:
    status, said = gen("tune", "transpose", "--shape", "64x96", "--shape", "32x32", "--budget", "1e-9", "--home", home)
    assert status == 1
    assert "Nothing was measured: the budget of 1e-09 s was over when the GPU and the compilers were ready" in said
    assert "The winners so far stay, and base where there is none. Give --budget more than that." in said
    assert not (home / TUNED_FILE).exists()
    assert "Left out for want of time: transpose_10_b32 64 x 96." in said
    assert "Left out for want of time: transpose_10_b32 32 x 32." in said
    assert gpu.attempts == []


def test_the_command_prints_json_that_any_reader_takes(gpu: FakeTuningDevice, home: Path) -> None:
    """Also where nothing won: JSON has no infinity."""
    gpu.bad = dict.fromkeys(_names(TRANSPOSE[0]), "launch_failed")
    status, said = gen("tune", "transpose", "--json", "--home", home)
    assert status == 1
    found = json.loads(said, parse_constant=pytest.fail)
    (outcome,) = found["outcomes"]
    assert (outcome["winner"], outcome["median_us"]) == (None, None)
    assert outcome["statuses"].pop("infeasible") > 0  # never launched: the order of blocks needs a square of tiles
    assert outcome["statuses"] == {"launch_failed": len(gpu.bad)}
    gpu.bad = {}
    gpu.driver = "2.0"
    status, said = gen("tune", "transpose", "--json", "--home", home)
    assert status == 0
    (outcome,) = json.loads(said)["outcomes"]
    (winner,) = read_winners(home)
    assert outcome["winner"] == winner.variant


def test_the_command_ends_with_1_where_nothing_won(gpu: FakeTuningDevice, home: Path) -> None:
    gpu.bad = dict.fromkeys(_names(TRANSPOSE[0]), "wrong_result")
    status, said = gen("tune", "transpose", "--home", home)
    assert status == 1
    assert "none" in said
    assert not (home / TUNED_FILE).exists()


def test_the_command_tries_variants_on_all_gpus_unless_it_is_told_which(
    gpu: FakeTuningDevice, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[tuple[int, ...]] = []

    @contextmanager
    def parallel_tuning(
        numbers: tuple[int, ...], _compiler: str, families: Any, folder: Path, problems: int
    ) -> Iterator[SimpleNamespace]:
        assert problems == 1
        taken.append(numbers)
        gpu.width = len(numbers)
        yield SimpleNamespace(run=partial(tuning.run, families=families, device=gpu, farm=FakeFarm(), home=folder))

    monkeypatch.setattr("gen.gpu.device.count_gpus", lambda: 3)
    monkeypatch.setattr("gen.cli.gpu.parallel_tuning", parallel_tuning)
    _, said = gen("tune", "transpose", "--home", home)
    assert "3 x Fake GPU, driver 1.0" in said
    assert json.loads(gen("tune", "transpose", "--gpu", "2,1", "--json", "--home", home)[1])["gpus"] == 2
    gpu.width = 1
    assert gen("tune", "transpose", "--gpu", "1", "--home", home)[1].splitlines()[0] == "Fake GPU, driver 1.0"
    assert taken == [(0, 1, 2), (2, 1)]
    assert gen("tune", "transpose", "--gpu", "1,1", "--home", home)[0] == 2
    status, said = gen("tune", "transpose", "--gpu", "0,1", "--verify", "--home", home)
    assert (status, "error: --gpu and --verify do not go together but for one GPU" in said) == (2, True)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("budget", ["0", "-5", "nan", "60x", "1h30"])
def test_the_command_refuses_a_budget_that_is_none(home: Path, budget: str) -> None:
    status, said = gen("tune", "transpose", "--budget", budget, "--home", home)
    assert (status, "must be a positive time such as 60s" in said) == (2, True)


@pytest.mark.usefixtures("gpu")
def test_the_command_refuses_a_bad_shape_and_an_unknown_compiler(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert gen("tune", "transpose", "--shape", "axb", "--home", home)[0] == 2
    monkeypatch.undo()
    with monkeypatch.context() as patch:
        patch.setattr("gen.gpu.device.find_gpu", lambda _index: FakeTuningDevice())
        status, said = gen("tune", "transpose", "--compiler", "clang", "--home", home)
    assert (status, "must be nvrtc or nvcc" in said) == (2, True)
