"""`gen ladder`: the kernels of the literature in order, and what explains each step."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gen.arch import Limits
from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.names import find_algorithm, find_variant
from gen.families.reduction import Reduction
from gen.families.transpose import Transpose
from gen.gpu.device import GpuInfo
from gen.paths import output_home
from gen.report.ladder import Rung
from gen.tune.device import IsolatedDevice
from tests import documented
from tests.fake_tuning import DyingBench, Misdeed, time_of
from tests.fakes import FakeCompiler

OUT = str(output_home())
SIDE = "128x128"  # every block runs


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "240"}).invoke(
        app, ["ladder", *arguments, "--arch", "sm_90", "--home", OUT], prog_name="gen"
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def rungs(*arguments: str) -> dict[str, Any]:
    status, out, err = run(*arguments, "--json")
    assert status == 0, err
    found = json.loads(out)
    documented.check(["ladder"], found)
    assert (found["arch"], found["measured"], found["device"]) == ("sm_90", False, None)
    return {rung["name"]: rung for rung in found["rungs"]}


SHOWN = (
    "copyRow", "copyCol", "transposeNaiveRow", "copy", "transposeSmem", "transposeSmemPad", "transposeCoarseGrained",
    "output_pitch_padding", "copyNrepsLaunches",
)  # fmt: skip


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """The ladder of some transposes, of which none but the last is like another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transpose, "named", tuple(one for one in Transpose.named if one.name in SHOWN))
        return rungs("transpose", "--shape", SIDE)


@pytest.mark.exhaustive
def test_steps_are_ratios_of_speeds_in_the_order_of_the_literature(found: dict[str, Any]) -> None:
    assert tuple(found) == SHOWN
    ranks = [rung["rank"] for rung in found.values()]
    assert ranks == sorted(ranks)
    for rung in found.values():
        over = found.get(rung["over"] or "")
        assert rung["step"] == (over and pytest.approx(rung["gb_per_s"] / over["gb_per_s"]))
        assert rung["cumulative"] == (pytest.approx(over["cumulative"] * rung["step"]) if over else 1)
    assert found["transposeNaiveRow"]["over"] == "copyRow"
    assert found["transposeSmemPad"]["published"] == pytest.approx(121.83 / 116.82)
    assert not any(rung["measured"] for rung in found.values())


def test_every_step_whose_kernel_moves_otherwise_is_explained(found: dict[str, Any]) -> None:
    assert "bank conflict degree 16.5 -> 1" in found["transposeSmemPad"]["causes"]
    assert "bound by load and store units, no longer by memory" not in found["transposeSmemPad"]["causes"]
    assert "load efficiency 100.0% -> 25.0%" in found["copyCol"]["causes"]
    # Ten repetitions are predicted to take longer than one, and no more than ten times as long.
    once, often = found["copy"]["us"], found["copyNrepsLaunches"]["us"]
    assert once < often < 10 * once


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of three rungs, the first of which no CPU runs."""
    few = tuple(one for one in Transpose.named if one.name in ("naiveGmem", "transposeSmem", "transposeSmemPad"))
    monkeypatch.setattr(Transpose, "named", few)
    monkeypatch.setattr(type(find_algorithm(FAMILIES[1], "naive")), "not_on_host", "it takes a wand")


@pytest.mark.usefixtures("short")
def test_a_ladder_is_a_table_with_what_changed_and_why_a_kernel_is_not_there() -> None:
    status, out, _ = run("transpose", "--shape", SIDE)
    assert status == 0
    assert "predicted for sm_90: nothing was measured" in out
    assert "At b32, rows 128, cols 128." in out
    assert "Published: the literature's own step" in out
    rows = [line.split() for line in out.splitlines()[3:6]]
    assert [row[0] for row in rows] == ["naiveGmem", "transposeSmem", "transposeSmemPad"]
    assert " ".join(rows[0][1:]) == "- - - 0.39x - it takes a wand"
    assert rows[1][3:] == ["-", "1.69x", "1.00x"]
    assert "bank conflict degree 16.5 -> 1" in " ".join(rows[2])


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Misdeed]:
    """A GPU that runs nothing, in a process of its own as a real one; gives what to misdo to which variant."""
    misdeeds: dict[str, Misdeed] = {}

    def device_of(index: int, compiler: str, home: Path) -> IsolatedDevice:
        assert (index, compiler, home) == (0, "nvrtc", output_home())
        return IsolatedDevice(DyingBench(misdeeds, tmp_path / "starts"))

    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: GpuInfo("NVIDIA H200", Limits.of("sm_90")))
    monkeypatch.setattr("gen.cli.gpu.alone", lambda *_: nullcontext())
    monkeypatch.setattr("gen.cli.gpu.device_of", device_of)
    return misdeeds


def unexplained(rungs: list[Rung], *_: object) -> list[Rung]:
    """The CPU run takes seconds."""
    return rungs


def on_gpu(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "240"}).invoke(app, ["ladder", *arguments, "--home", OUT], prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_a_family_of_which_no_book_has_kernels_has_no_ladder() -> None:
    status, _, err = on_gpu("merge")
    assert (status, "must have kernels of the literature: reduction" in err) == (2, True)


@pytest.mark.usefixtures("short")
def test_on_a_gpu_times_are_measured_and_steps_explained_by_what_is_counted(gpu: dict[str, Misdeed]) -> None:
    crashing = find_variant(FAMILIES, "naiveGmem", {}).name
    gpu[crashing] = "crash"
    status, out, err = on_gpu("transpose", "--shape", "64x64", "--json")
    assert (status, err.partition(":")[0]) == (0, "Kernels to build for the CPU, and to count")
    found = json.loads(out)
    assert (found["device"], found["arch"], found["measured"]) == ("NVIDIA H200", "sm_90", True)
    naive, plain, padded = found["rungs"]
    assert (naive["us"], naive["measured"], naive["step"]) == (None, False, None)
    assert naive["reason"] == "the process that drives the GPU died of it"
    for rung in (plain, padded):
        assert rung["measured"]
        assert rung["us"] == time_of(rung["variant"]) != rung["predicted_us"]
        assert rung["of_limit"] == pytest.approx(5.0 / rung["us"])
        assert rung["gb_per_s"] == pytest.approx(2 * 4 * 64 * 64 / rung["us"] * 1e-3)
    assert padded["step"] == pytest.approx(plain["us"] / padded["us"])
    assert "bank conflict degree 16.5 -> 1" in padded["causes"]


@pytest.mark.usefixtures("gpu")
def test_what_no_cpu_runs_is_measured_and_what_is_not_linked_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("gpuRecursiveReduce", "gpuRecursiveReduce2", "reduceShfl")
    monkeypatch.setattr(Reduction, "named", tuple(one for one in Reduction.named if one.name in names))
    measured, unlinked, shfl = (find_variant(FAMILIES, name, {}).name for name in names)
    compiler = FakeCompiler(unlinked=(unlinked,))
    monkeypatch.setattr("gen.cli.gpu.compiler_of", lambda *_: compiler)
    monkeypatch.setattr("gen.report.ladder.looked_at", unexplained)
    status, out, err = on_gpu("reduction", "--shape", "4096")
    assert (status, err.partition(":")[0]) == (0, "Kernels to build for the CPU, and to count")
    assert "reduction, measured on NVIDIA H200" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines()[3:6]}
    assert rows["gpuRecursiveReduce"][1] == f"{time_of(measured):.5g}"
    assert rows["reduceShfl"][1] == f"{time_of(shfl):.5g}"
    assert rows["reduceShfl"][3].endswith("x")
    assert " ".join(rows["gpuRecursiveReduce2"][1:]) == (
        f"- - - 73.75x - {unlinked} compiles, but is not linked: A linker must be installed. Run: pip install it"
    )


def test_what_is_not_repeated_is_said_to_be_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(one for one in Transpose.named if one.name in ("copyRow", "transposeSmem"))
    monkeypatch.setattr(Transpose, "named", few)
    monkeypatch.setattr("gen.report.ladder.looked_at", unexplained)
    status, _, err = run("transpose", "--shape", SIDE, "--param", "nreps=3")
    assert status == 0, err
    assert "nreps=3 holds for copyRow; the others count no such thing, and do their work once." in err


def test_an_unknown_family_is_bad_usage() -> None:
    status, _, err = run("transpos")
    assert status == 2
    assert "Did you mean transpose?" in err
