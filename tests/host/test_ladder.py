"""The ladder of the literature on a GPU, which is a fake: what is timed with what, and what goes wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import ladder
from bench.ladder import full, short
from gen.errors import MissingToolError, ShapeError, UnknownNameError
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_family
from gen.report.ladder import ROUNDS, Rung, as_json, climb, listed, said_of_problems, timed
from tests.fake_tuning import FakeTuningDevice
from tests.fakes import FakeCompiler

TRANSPOSE = find_family(FAMILIES, "transpose")
LIMITS = Limits.of("sm_90")
PADDED = "transpose_10_b32__tiled_t32_r8_p1_u1"


def rungs(shape: str | None = "64x64") -> list[Rung]:
    return listed(TRANSPOSE, LIMITS, shape)


def by_name(found: list[Rung]) -> dict[str, Rung]:
    return {rung.name: rung for rung in found}


def test_kernels_of_one_problem_are_timed_in_turns_and_each_problem_is_opened_once() -> None:
    device = FakeTuningDevice(time_us=lambda made: 40.0 if "naive" in made.name else 20.0)
    found = by_name(timed(device, FakeCompiler(), rungs()))
    problems = [(problem.spec_name, problem.extents) for problem, _ in device.seen]
    assert len(problems) == len({str(problem) for problem in problems})
    assert {rung.problem for rung in found.values()} == {
        f"{name} {sorted(extents.items())}" for name, extents in problems
    }
    assert {turns for _, turns in device.finals} == {ROUNDS}
    assert device.open_sessions == 0
    assert (found["naiveGmem"].us, found["transposeSmem"].us) == (40, 20)
    # Names that mean the same kernel and problem have one time; base is timed only where it is a rung.
    together = max((names for names, _ in device.finals), key=len)
    assert len(together) == len(set(together))
    assert found["cartesian"].timed is found["transposeSmemPad"].timed
    assert found["output_pitch_padding"].problem != found["cartesian"].problem
    assert found["cartesian"].timed is not None
    assert found["cartesian"].timed.of_limit == device.floor / 20


def test_steps_are_ratios_of_the_bytes_a_second_that_were_measured() -> None:
    device = FakeTuningDevice(time_us=lambda made: 5.0 * len(made.name))
    steps = list(climb(timed(device, FakeCompiler(), rungs())))
    speeds = {step.rung.name: step.rung.gb_per_s or 0 for step in steps}
    assert all(speeds.values())
    for step in steps:
        speed = speeds[step.rung.name]
        if step.before is None:
            assert (step.step, step.cumulative) == (None, 1)
        else:
            (began,) = [one for one in steps if one.rung is step.before]
            assert step.step == pytest.approx(speed / speeds[step.before.name])
            assert step.cumulative == pytest.approx((began.cumulative or 0) * (step.step or 0))
    # Ten repetitions move ten times the bytes.
    once, often = (next(s.rung for s in steps if s.rung.name == name) for name in ("copy", "copyNrepsLaunches"))
    assert once.us == often.us
    assert often.gb_per_s == pytest.approx(10 * (once.gb_per_s or 0))


def test_what_is_wrong_or_fails_stands_there_with_its_reason_and_no_time() -> None:
    device = FakeTuningDevice(
        bad={PADDED: "wrong_result"}, spoilt={"transpose_10_b32__tiled_t32_r8_p0_u1": "launch_failed"}
    )
    steps = {step.rung.name: step for step in climb(timed(device, FakeCompiler(), rungs()))}
    padded, smem = steps["transposeSmemPad"], steps["transposeSmem"]
    assert (padded.rung.us, padded.rung.why_not, padded.step) == (None, "made to: wrong_result", None)
    assert (smem.rung.us, smem.rung.why_not) == (None, "among the finalists: launch_failed")
    # The next step is over the last kernel that has a time.
    assert steps["transposeSmemUnrollPad"].step == pytest.approx(1)
    assert as_json(padded)["reason"] == "made to: wrong_result"
    assert as_json(padded)["measured"] is False


def test_where_base_is_wrong_nothing_of_the_problem_is_timed() -> None:
    device = FakeTuningDevice(base_wrong=True)
    found = timed(device, FakeCompiler(), rungs())
    assert {rung.us for rung in found} == {None}
    assert all("is wrong: out must be 1.0, is 2.0" in rung.why_not for rung in found)
    assert device.open_sessions == 0


def test_what_cannot_be_compiled_is_told_and_the_others_are_timed() -> None:
    refusing = FakeCompiler(refused=("transpose_10_b32__tiled_t32_r8_p1_u1_odiagonal",))
    found = by_name(timed(FakeTuningDevice(), refusing, rungs()))
    assert "error: expected a ';'" in found["transposeDiagonal"].why_not
    assert found["transposeSmemPad"].us == 10


def test_a_kernel_that_does_not_take_the_shape_says_why() -> None:
    found = by_name(rungs("64x96"))
    assert (found["diagonal-square"].reason, found["diagonal-square"].extents) == (
        "its block order needs as many tiles down as across, and these are 2 x 3", None,
    )  # fmt: skip
    assert found["transposeFineGrained"].reason == ""
    assert "cols must be a multiple of the tile extent 32" in by_name(rungs("64x80"))["transposeFineGrained"].reason
    device = FakeTuningDevice()
    again = by_name(timed(device, FakeCompiler(), list(found.values())))
    assert again["diagonal-square"].why_not == found["diagonal-square"].reason
    assert not any("osquare" in name for names, _ in device.finals for name in names)


def test_a_step_to_another_problem_says_which() -> None:
    steps = {step.rung.name: step for step in climb(timed(FakeTuningDevice(), FakeCompiler(), rungs()))}
    assert steps["copySharedMem"].causes == ("direct yes -> no",)
    assert steps["output_pitch_padding"].causes == ("out_pitch 64 -> 128",)
    assert steps["copyNrepsLaunches"].causes == ("nreps 1 -> 10",)
    assert steps["transposeSmemNrepsLaunches"].causes == ("nreps 1 -> 10",)
    found = timed(FakeTuningDevice(), FakeCompiler(), listed(find_family(FAMILIES, "reduction"), LIMITS))
    steps = {step.rung.name: step for step in climb(found)}
    assert steps["gpuRecursiveReduce"].causes == ()
    assert steps["gpuRecursiveReduceNosync"].causes == ("children sync -> nosync",)
    # 256 times the elements: size, and no kernel, would make the step.
    assert (steps["gpuRecursiveReduce2"].before, steps["gpuRecursiveReduce2"].step) == (None, None)


def test_a_step_is_over_the_kernel_that_the_literature_compares_with() -> None:
    steps = {
        step.rung.name: step
        for family in FAMILIES
        for step in climb(timed(FakeTuningDevice(), FakeCompiler(), listed(family, LIMITS)))
    }

    def over(name: str) -> str | None:
        before = steps[name].before
        return before.name if before else None

    assert over("reduceUnrollWarps8") == "reduceUnrolling8"
    assert (over("reduceGmem"), over("reduceSmem")) == (None, "reduceGmem")
    assert (over("AoS"), over("SoA")) == (None, "AoS")
    assert over("transposeUnroll4Row") == "transposeNaiveRow"
    assert over("kernel_2dfd") is None
    assert steps["reduceShfl"].rung.published == 1.40
    assert steps["reduceSmem"].rung.published == pytest.approx(1.906, abs=1e-3)
    assert as_json(steps["reduceUnrollWarps8"])["over"] == "reduceUnrolling8"
    # Where nothing else changes it is said what is written otherwise, if anything.
    assert steps["diagonal-square"].causes == ("block_order row -> square",)
    assert steps["setRowReadCol"].causes == ("spec layout set_row_read_row -> set_row_read_col",)
    assert steps["cartesian"].causes == ("the same kernel as transposeSmemPad",)
    assert not any(step.before and not step.causes for step in steps.values())


def test_problems_are_told_with_their_sizes_and_type() -> None:
    found = {rung.name: rung.sizes for rung in listed(find_family(FAMILIES, "reduction"), LIMITS)}
    assert said_of_problems(found) == (
        "At f32, n 2^28; f32, n 2^20: gpuRecursiveReduce, gpuRecursiveReduceNosync."
    )  # fmt: skip
    found = {rung.name: rung.sizes for rung in rungs("100x64")}
    assert found["copyRow"] == "b32, rows 100, cols 64"
    assert found["copyNrepsKernel"] == "b32, rows 100, cols 64, nreps 10"
    assert found["output_pitch_padding"] == "b32, rows 100, cols 64, out_pitch 164"
    assert found["diagonal-square"] == ""
    assert said_of_problems({"one": ""}) == ""


def test_what_a_call_counts_holds_for_the_kernels_that_count_it() -> None:
    often = by_name(listed(TRANSPOSE, LIMITS, "64x64", {"nreps": 3}))
    plain = by_name(rungs())
    for name, rung in often.items():
        extents = plain[name].extents
        assert rung.extents == ({**extents, "nreps": 3} if extents and "nreps" in extents else extents)
    assert (plain["copyNrepsKernel"].extents or {})["nreps"] == 10
    assert "nreps" not in (often["transposeSmem"].extents or {})
    with pytest.raises(UnknownNameError, match=r"--param must be one of nreps \(got 'steps'\)"):
        listed(TRANSPOSE, LIMITS, "64x64", {"steps": 3})


def test_a_shape_that_no_kernel_takes_is_refused() -> None:
    with pytest.raises(ShapeError, match="in must have 2 axes"):
        rungs("64")
    mixed = by_name(listed(find_family(FAMILIES, "probe"), LIMITS, "4096"))
    assert mixed["readOffset"].reason == ""
    assert "in must have 3 axes" in mixed["setRowReadCol"].reason


def slow(made: Variant) -> float:
    return 12.345 if "naive" in made.name else 10.0


def measured() -> dict[str, Any]:
    """What a file holds before its steps are explained."""
    steps = [as_json(step) for step in climb(timed(FakeTuningDevice(time_us=slow), FakeCompiler(), rungs("64x96")))]
    meta: dict[str, Any] = {
        "command": "python bench/ladder.py", "date": "2026-11-22", "turns": ROUNDS,
        "calibration": {"device": "Fake GPU", "driver": "1.0", "copy": 4000.0},
    }  # fmt: skip
    return {"meta": meta, "families": {"transpose": steps, "stencil": []}}


def explained(content: dict[str, Any], _: Path | None) -> dict[str, Any]:
    steps = [{**step, "causes": ["counted"]} for step in content["families"]["transpose"]]
    return {**content, "families": {"transpose": steps}}


def test_the_program_measures_and_shows_unless_it_is_told_to_show_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ladder.json"
    file.write_text(json.dumps(measured()))
    begun: list[Path | None] = []

    def measure(file: Path | None) -> dict[str, Any]:
        begun.append(file)
        return measured()

    monkeypatch.setattr(ladder, "measure", measure)
    monkeypatch.setattr(ladder, "explain", explained)
    for options, of, counted in (
        ([], None, True), (["--json", str(file)], file, True), (["--show", str(file)], file, False),
        (["--explain", str(file)], file, True),
    ):  # fmt: skip
        monkeypatch.setattr("sys.argv", ["ladder.py", *options])
        assert ladder.main() == 0
        content = explained(measured(), of) if counted else measured()
        assert capsys.readouterr().out == full(content, of)
    assert begun == [None, file]


def test_times_are_shown_where_nothing_can_explain_the_steps(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> dict[str, Any]:
        raise MissingToolError("g++", "must be installed")

    monkeypatch.setattr(ladder, "measure", lambda _: measured())
    monkeypatch.setattr(ladder, "explain", missing)
    monkeypatch.setattr("sys.argv", ["ladder.py"])
    assert ladder.main() == 0
    assert capsys.readouterr() == (full(measured()), "Nothing explains the steps: g++ must be installed\n")


def test_the_tables_of_a_file_say_what_makes_it() -> None:
    for table in (full, short):
        assert "by `python bench/ladder.py`" in table(measured())
        assert "by `python bench/ladder.py --json 'my file'`" in table(measured(), Path("my file"))


def test_the_tables_of_a_file_show_what_was_measured() -> None:
    shown = full(measured())
    assert "Measured on one Fake GPU (driver 1.0), 2026-11-22, by `python bench/ladder.py`" in shown
    assert "it copies 4000 GB/s. GB/s: the least bytes of the problem over the time. Where a kernel repeats" in shown
    assert "At b32, rows 64, cols 96; b32, rows 64, cols 96, out_pitch 128: output_pitch_padding; b32," in shown
    assert "| naiveGmem | 12.35 | 4 | 1.00x | 0.39x | 1.00x | spec copy_b32 -> 10_b32 |" in shown
    assert "| transposeSmem | 10.00 | 5 | 1.23x over naiveGmem | 1.69x |" in shown
    assert (
        "| diagonal-square | | | | | | its block order needs as many tiles down as across, and these are 2 x 3 |"
        in shown
    )
    assert "stencil" not in shown
