"""`gen compare`: a table, or JSON, of what a process says that drives a GPU; and what cannot be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.compare.process import LibrariesFactory
from gen.compare.results import FILE, read_compared
from gen.paths import output_home
from tests.fake_process import FakeProcess
from tests.host.cli.command import run

ONE = ("transpose_10_b32", "--shape", "512x512")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeProcess:
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))
    made = FakeProcess(missing={"jax": "The module jax is needed for this peer"})

    def begin(factory: LibrariesFactory) -> FakeProcess:
        assert (factory.compiled, factory.calibrate) == (None, False), "as the caller's libraries are"
        return made

    monkeypatch.setattr("gen.tune.device.IsolatedDevice", begin)
    return made


def test_ours_and_all_that_is_installed_are_shown_beside_the_limit(process: FakeProcess) -> None:
    process.note = "base: nothing is tuned for it on this device"
    ended = run("compare", *ONE)
    assert ended.status == 0, ended.err
    assert "transpose_10_b32 512x512 on Fake GPU, driver 1" in ended.out
    lines = {line.split()[0]: line for line in ended.out.splitlines()}
    assert " ".join(lines["torch.compile"].split()[1:]) == "cold 2 2.250 2.000 [2.000, 2.000] gen is faster"
    assert "gen: variant  " in ended.out
    assert "gen: base: nothing is tuned for it on this device" in ended.out
    assert "Without jax: The module jax is needed for this peer" in ended.err
    assert process.orders == [("transpose_10_b32 512x512", ("torch", "torch.compile", "cupy", "cupyx"))]
    assert process.closed == 1
    kept = read_compared(output_home(None))
    assert [one.contender for one in kept] == ["gen", "cupy", "cupyx", "torch", "torch.compile"]
    assert {(one.spec, one.device, one.us) for one in kept[1:]} == {("transpose_10_b32", "Fake GPU", 2.0)}


def test_a_damaged_file_of_comparisons_is_told_before_anything_runs(process: FakeProcess) -> None:
    home = output_home(None)
    home.mkdir(parents=True)
    (home / FILE).write_text("{}")
    ended = run("compare", *ONE)
    assert (ended.status, process.orders) == (1, [])
    assert "comparisons.json must have schema 1" in ended.err


@pytest.mark.usefixtures("process")
def test_json_has_every_row_and_nothing_else() -> None:
    stencil = ("stencil_heat_de794a2b_f32", "--shape", "64x64", "--param", "steps=3", "--peers", "cupy,torch")
    content = run("compare", *stencil, "--json").data
    assert (content["spec"], content["shape"], content["runtime_parameters"]) == (stencil[0], [64, 64], {"steps": 3})
    assert [row["peer"] for row in content["rows"]] == ["gen", "torch", "cupy"]
    assert content["limit_us"]["cold"] > content["limit_us"]["hot"] > 0


def test_a_peer_that_crashes_is_a_note_and_our_own_crash_an_exit_status(process: FakeProcess) -> None:
    process.crash = frozenset({"cupy"})
    ended = run("compare", *ONE)
    assert (ended.status, "cupy: crashed while timing" in ended.out) == (0, True)
    process.crash = frozenset({"gen"})
    ended = run("compare", *ONE)
    assert (ended.status, "gen: crashed while timing" in ended.out) == (1, True)
    process.crash, process.processes = frozenset({"torch"}), process.ended + 1
    ended = run("compare", *ONE)
    assert (ended.status, "gen: variant" in ended.out, "cannot be used" in ended.err) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ONE, "--peers", "torhc"), "Did you mean torch"),
        ((*ONE, "--peers", "cub"), "The peer must be one of torch, torch.compile, cupy, cupyx, jax"),
        (("transpose_10_b3", "--shape", "4x4"), "Did you mean transpose_10_b32"),
        (("reduceShfl", "--shape", "4x4"), "Its spec is reduction_sum_f32"),
        (("transpose_10_b32", "--shape", "4x4x4"), "in must have 2 axes"),
        (("transpose_10_b32", "--shape", "0x4"), "--shape must have elements to compare"),
        ((*ONE, "--param", "steps=3"), "--param must be left out"),
        (("transpose_10_b32",), "--shape"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(
    process: FakeProcess, arguments: tuple[str, ...], message: str
) -> None:  # fmt: skip
    ended = run("compare", *arguments)
    assert (ended.status, process.orders) == (2, [])
    assert message in ended.err


def test_a_machine_without_a_gpu_is_told_so_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ended = run("compare", *ONE)
    assert ended.status == 1
    assert ended.err.startswith("error: ")
    assert "Traceback" not in ended.err
    assert (tmp_path / ".cache" / "compare.log").read_text() == "", "what libraries print goes there"
