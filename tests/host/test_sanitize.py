"""The driver of compute-sanitizer, without one: what it starts, what it reads, what it keeps, when it fails."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import sanitize
from bench.sanitize import command_of, drive, jobs_of, parse
from bench.sanitizer.exact import ExactKernel, bytes_of, gaps_of
from bench.sanitizer.faults import FAULTS, TOOLS, Fault
from bench.sanitizer.process import arguments_of, find_sanitizer, run_one, version_of, wait
from bench.sanitizer.report import Outcome, Report, digest_of, evidence, evidence_file, read_report
from bench.sanitizer.worker import chosen, sizes_of
from gen.emit.render import render
from gen.errors import DeviceError, MissingToolError, RunError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.cover import pairs
from gen.families.names import find_variant, space
from gen.paths import cache_home, output_home
from gen.proof.cases import DRAWN, Case
from gen.proof.host import HostRunner
from gen.proof.prover import check, prove
from gen.tune.device import Device
from tests.fake_gpu import TRANSPOSE, FakeGpu, FakeKernel

CLEAN = """\
========= COMPUTE-SANITIZER
the program's own words
========= ERROR SUMMARY: 0 errors
"""
CLEAN_RACES = """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
OVERRUN = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at reduction_sum_f32__shfl_tpb128_u1+0x190 in reduction_sum_f32__shfl_tpb128_u1.cu:52
=========     by thread (1,0,0) in block (0,0,0)
=========     Access at 0x7f3a2e000104 is out of bounds
=========
========= ERROR SUMMARY: 25 errors
========= ERROR SUMMARY: 5 errors were not printed because the print limit has been reached
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at tiled+0x310 in tiled.cu:48
=========     and Read access at tiled+0x590 in tiled.cu:60 [4096 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARNING = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at k+0x310
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
UNINITIALISED = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at reduction_sum_f32__interleaved_tpb128_u1+0x1f0 in reduction_sum_f32__interleaved_tpb128_u1.cu:61
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
HANGING = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at reduction_sum_f32__interleaved_tpb128_u1+0x250 in reduction_sum_f32__interleaved_tpb128_u1.cu:60
"""
FOUND = {"memcheck": OVERRUN, "racecheck": RACE, "initcheck": UNINITIALISED, "synccheck": HANGING}
DONE = {
    "device": "NVIDIA H100 80GB HBM3", "driver": "580.1, CUDA 13.0", "compiler": "nvrtc 13.0.88", "variants": 3,
    "skipped": 0, "sizes": 18, "sizes_available": 18, "cases": 54, "wrong": [],
}  # fmt: skip


def outcome(tool: str = "memcheck", family: str = "reduction", output: str = CLEAN, **changes: Any) -> Outcome:
    return replace(Outcome(tool, family, 0, read_report(output), DONE, output, 2.0), **changes)


# Options


def test_options_that_make_no_sense_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--tool", "leakcheck"], ["--family", "scan"], ["--cases", "0"], ["--jobs", "0"],
        ["--plant", "--family", "reduction"], ["--plant", "--name", "reduceShfl"],
        ["--name", "reduceShfl", "--family", "reduction"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            parse(arguments)
        assert caught.value.code == 2, arguments
    assert "memcheck, racecheck, initcheck, synccheck, not leakcheck" in capsys.readouterr().err


def test_every_tool_runs_on_every_family_unless_told_otherwise() -> None:
    families = [family.name for family in FAMILIES]
    assert list(jobs_of(parse([]))) == [(tool, family) for tool in TOOLS for family in families]
    assert list(jobs_of(parse(["--tool", "initcheck,memcheck", "--family", "stencil"]))) == [
        ("initcheck", "stencil"), ("memcheck", "stencil"),
    ]  # fmt: skip
    assert list(jobs_of(parse(["--tool", "memcheck", "--name", "transposeSmem"]))) == [("memcheck", "transpose")]
    assert dict(jobs_of(parse(["--plant"]))) == {
        "memcheck": "reduction", "racecheck": "transpose", "initcheck": "reduction", "synccheck": "reduction",
    }  # fmt: skip


def test_the_command_that_is_kept_runs_the_same_again() -> None:
    assert command_of(parse(["--json", "x.json"])) == "python -m bench.sanitize"
    words = ["--tool", "memcheck", "--family", "stencil", "--cases", "4"]
    assert command_of(parse(words)) == " ".join(["python -m bench.sanitize", *words])
    assert command_of(parse(["--plant"])) == "python -m bench.sanitize --plant"


def test_the_worker_is_started_under_the_tool() -> None:
    words = arguments_of("/opt/compute-sanitizer", "racecheck", ["--tool", "racecheck"])
    assert words[:3] == ["/opt/compute-sanitizer", "--tool", "racecheck"]
    assert words[words.index("--error-exitcode") + 1] == "9"
    assert words[words.index(sys.executable) + 1 :][:2] == ["-m", "bench.sanitize"]
    assert words[-3:] == ["--worker", "--tool", "racecheck"]
    assert "--padding" not in words
    assert "--padding" in arguments_of("cs", "memcheck", [])


# What runs


def test_every_pair_of_parameters_of_every_algorithm_is_run() -> None:
    limits = Limits.of("sm_90")
    for family in FAMILIES:
        variants = chosen(family.name, limits, None)
        for spec in family.catalogue:
            for algorithm in family.algorithms.values():
                run = [made.config for made in variants if made.algorithm is algorithm and made.spec == spec]
                assert frozenset().union(*map(pairs, run)) == frozenset().union(
                    *map(pairs, space(algorithm, spec, limits))
                )
    assert [made.algorithm.name for made in chosen("reduction", limits, "reduceShfl")] == ["shfl"]


def test_every_awkward_size_is_run_once() -> None:
    made = find_variant(FAMILIES, "reduceShfl", {})
    cases, count = sizes_of(made, sanitize.ALL)
    sizes = [case.extents["n"] for case in cases]
    awkward = [extents["n"] for extents in made.family.cases(made.spec)]
    assert sizes[: len(awkward)] == awkward
    assert len(sizes) == len(awkward) + DRAWN
    assert count == len(sizes)
    assert {case.offset for case in cases} == {0, 1, 2, 3}
    few, count = sizes_of(made, 5)
    assert (len(few), count) == (5, len(sizes))
    assert few[0] == cases[0]
    assert sizes_of(made, 1)[0] == cases[:1]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_planted_fault_changes_the_text_in_one_place(tool: str) -> None:
    fault = FAULTS[tool]
    made = find_variant(FAMILIES, fault.variant, {})
    assert fault.text(made) == render(made).replace(fault.old, fault.new) != render(made)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_cpu_run_finds_a_planted_fault_too(tool: str) -> None:
    made = find_variant(FAMILIES, FAULTS[tool].variant, {})
    cases, _ = sizes_of(made, sanitize.ALL)
    for text, right in ((render, True), (FAULTS[tool].text, False)):
        (proof,) = prove(HostRunner(Limits.of("sm_90"), cache=cache_home(output_home()), text=text), [made], cases)
        assert (proof.failure is None) is right, str(proof.failure)


def test_a_fault_that_no_longer_fits_is_an_error() -> None:
    made = find_variant(FAMILIES, "reduceShfl", {})
    with pytest.raises(RunError, match="The fault for memcheck must fit reduceShfl once"):
        Fault("memcheck", "reduceShfl", "Invalid", "what the template says no more", "").text(made)


# Arrays on the device


@pytest.mark.parametrize("blank", [False, True])
def test_a_kernel_runs_on_arrays_with_nothing_behind_them(blank: bool) -> None:
    cases = [case for case in sizes_of(TRANSPOSE, sanitize.ALL)[0] if size_of(case) < 2200]
    assert any(case.extents["out_pitch"] > case.extents["rows"] for case in cases)
    for case in cases:
        gpu = FakeGpu()
        inner = FakeKernel(TRANSPOSE, gpu)
        assert check(exact(inner, blank), gpu.limits, case) is None
        assert inner.discarded == 1  # the same scratch for both runs of a case
        if size_of(case):
            assert all(memory.written[-1] for memory in gpu.allocations)  # the array ends where its allocation ends


def test_an_output_that_is_not_written_shows_when_it_is_copied_back() -> None:
    case = next(case for case in sizes_of(TRANSPOSE, sanitize.ALL)[0] if case.extents["rows"] == 2)
    inner = FakeKernel(TRANSPOSE, FakeGpu(), skip=True)
    with pytest.raises(AssertionError, match="never written"):
        check(exact(inner, True), inner.gpu.limits, case)
    failure = check(exact(inner, False), inner.gpu.limits, case)
    assert failure is not None


def exact(inner: FakeKernel, blank: bool) -> ExactKernel:
    kernel: Any = inner
    device: Any = inner.gpu
    return ExactKernel(inner.variant, kernel, device, blank)


def size_of(case: Case) -> int:
    return case.extents["rows"] * case.extents["cols"]


def test_gaps_are_the_bytes_between_elements() -> None:
    block = np.zeros((3, 8), np.float32)
    assert gaps_of(block) == gaps_of(block[:, :0]) == gaps_of(np.zeros((), np.float32)) == []
    assert gaps_of(block[:, :6]) == [(24, 32), (56, 64)]
    assert gaps_of(block[:2, ::4]) == [(4, 16), (20, 32), (36, 48)]
    assert bytes_of(block[:, :6]).size == 2 * 32 + 24
    bytes_of(block[1:, :6])[0] = 255
    assert block.view(np.uint8)[1, 0] == 255


# What the tool says


@pytest.mark.parametrize(
    ("output", "errors", "lines"),
    [
        (CLEAN, 0, 0),
        (CLEAN_RACES, 0, 0),
        (OVERRUN, 25, 4),
        (RACE, 1, 2),
        (WARNING, 1, 1),
        (HANGING, None, 2),
        ("", None, 0),
    ],
)
def test_a_report_is_read(output: str, errors: int | None, lines: int) -> None:
    report = read_report(output)
    assert report.errors == errors
    assert len(report.lines) == lines


def test_only_what_ran_was_right_and_reported_nothing_is_clean() -> None:
    assert outcome().clean
    assert outcome("racecheck", output=CLEAN_RACES).clean
    spoilt = [
        outcome(output=OVERRUN, status=9),
        outcome("racecheck", output=WARNING),
        outcome(output="Segmentation fault", status=139),
        outcome(status=None),
        outcome(status=1),
        outcome(done=None),
        outcome(done={**DONE, "wrong": ["out is wrong"]}),
        outcome(done={**DONE, "variants": 0}),
        outcome(done={**DONE, "cases": 0}),
        outcome(output="========= Internal Sanitizer Warning\n" + CLEAN),
    ]
    assert not any(one.clean for one in spoilt)


def test_evidence_says_what_was_run_where_and_what_was_found() -> None:
    both = [outcome(), outcome(family="stencil", output=OVERRUN, status=9), outcome("racecheck", output=CLEAN_RACES)]
    found = evidence(both, "2025.3.0.0", "python -m bench.sanitize", "0123abcd", 12.34)
    meta = found["meta"]
    assert (meta["device"], meta["driver"]) == (DONE["device"], DONE["driver"])
    assert (meta["compute_sanitizer"], meta["command"]) == ("2025.3.0.0", "python -m bench.sanitize")
    assert meta["texts"] == "0123abcd"
    assert meta["date"]
    assert not found["clean"]
    assert found["seconds"] == 12.3
    memcheck = found["tools"]["memcheck"]
    assert (memcheck["variants"], memcheck["cases"], memcheck["errors"]) == (6, 108, 25)
    assert memcheck["families"]["stencil"]["clean"] is False
    assert memcheck["families"]["stencil"]["reported"] == 4
    assert found["tools"]["racecheck"]["errors"] == 0
    json.dumps(found)
    unknown = evidence([outcome(done=None, output="")], "1", "x", "", 1.0)
    assert unknown["tools"]["memcheck"]["errors"] is None
    assert not evidence([], "1", "x", "", 1.0)["clean"]


def test_evidence_tells_whether_it_is_of_the_kernels_of_today() -> None:
    texts = sanitize.texts_of(["stencil"], Limits.of("sm_90"), parse([]))
    assert {made.partition("__")[0] for made in texts} >= {"stencil_heat_de794a2b_f32"}
    first = next(iter(texts))
    assert digest_of(texts) == digest_of(dict(reversed(texts.items())))
    assert digest_of(texts) != digest_of({**texts, first: texts[first] + "\n"})
    assert digest_of(texts) != digest_of({**texts, "another": ""})


def test_the_file_of_a_device_is_called_after_it() -> None:
    assert evidence_file("NVIDIA H100 80GB HBM3").name == "sanitize-nvidia-h100-80gb-hbm3.json"
    assert evidence_file("NVIDIA H200").parent.name == "bench"


# The driver


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that seems to have a GPU and the tool."""
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: "/opt/compute-sanitizer")
    monkeypatch.setattr(sanitize, "version_of", lambda _: "2025.3.0.0")
    monkeypatch.setattr(sanitize, "find_device", lambda: Device("NVIDIA H100 80GB HBM3", "sm_90"))
    monkeypatch.setattr(sanitize, "texts_of", lambda *_: {"kernel": "text"})
    monkeypatch.setattr(sanitize, "compile_all", lambda *_: None)
    monkeypatch.setattr(sanitize, "evidence_file", lambda _: tmp_path / "evidence.json")
    return tmp_path


def run_clean(_: str, tool: str, family: str, __: argparse.Namespace) -> Outcome:
    return outcome(tool, family, CLEAN_RACES if tool == "racecheck" else CLEAN)


def test_a_clean_run_of_everything_is_kept_as_evidence(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drive(parse([]), run_clean) == 0
    kept = json.loads((machine / "evidence.json").read_text())
    assert kept["clean"]
    assert list(kept["tools"]) == list(TOOLS)
    assert kept["meta"]["command"] == "python -m bench.sanitize"
    assert kept["meta"]["texts"] == digest_of({"kernel": "text"})
    out = capsys.readouterr().out
    assert out.count("3 variants on 18 of 18 sizes, 54 cases: 0 errors") == len(TOOLS) * len(FAMILIES)
    assert "nothing was reported" in out


def test_a_run_of_a_part_is_no_evidence(machine: Path) -> None:
    for arguments in (["--tool", "memcheck"], ["--family", "stencil"], ["--name", "reduceShfl"]):
        assert drive(parse([*arguments, "--json", str(machine / "part.json")]), run_clean) == 0
        assert json.loads((machine / "part.json").read_text())["clean"]
    assert not (machine / "evidence.json").exists()


def test_what_is_reported_is_shown_and_fails(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def found(sanitizer: str, tool: str, family: str, options: argparse.Namespace) -> Outcome:
        if (tool, family) == ("memcheck", "transpose"):
            return outcome(tool, family, OVERRUN, status=9)
        if (tool, family) == ("synccheck", "stencil"):
            return outcome(tool, family, "Traceback: no GPU left", status=1, done=None)
        return run_clean(sanitizer, tool, family, options)

    assert drive(parse([]), found) == 1
    assert not json.loads((machine / "evidence.json").read_text())["clean"]
    out = capsys.readouterr().out
    assert "Invalid __global__ read of size 4 bytes" in out
    assert "no GPU left" in out
    assert out.count("NOT CLEAN") == 3


def test_planted_faults_fail_and_those_missed_are_named(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def find_all(_: str, tool: str, family: str, __: argparse.Namespace) -> Outcome:
        return outcome(tool, family, FOUND[tool], status=None if tool == "synccheck" else 9)

    def find_one(sanitizer: str, tool: str, family: str, options: argparse.Namespace) -> Outcome:
        return (find_all if tool == "racecheck" else run_clean)(sanitizer, tool, family, options)

    assert drive(parse(["--plant"]), find_all) == 1
    assert "every planted fault was found" in capsys.readouterr().out
    assert drive(parse(["--plant"]), find_one) == 1
    assert "planted faults missed by: memcheck, initcheck, synccheck" in capsys.readouterr().out
    assert not (machine / "evidence.json").exists()


def test_a_machine_without_a_gpu_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setattr(sanitize, "find_device", lambda: None)
    with pytest.raises(DeviceError, match="A GPU is needed"):
        drive(parse([]), run_clean)


def test_without_compute_sanitizer_the_error_says_where_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(name, str(tmp_path))
    if not Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        with pytest.raises(MissingToolError, match=r"compute-sanitizer must be on the PATH.*CUDA toolkit"):
            find_sanitizer()
    tool = tmp_path / "bin" / "compute-sanitizer"
    script(tool, "echo 'NVIDIA (R) Compute Sanitizer'; echo 'Version 2025.3.0.0 (build 1) (public-release)'")
    assert find_sanitizer() == str(tool)
    assert version_of(str(tool)) == "2025.3.0.0"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def test_a_run_is_started_waited_for_and_read(tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    # Stands in for the tool and the worker: says what it was started with, writes what the worker would.
    script(
        tool,
        f"""echo "$@" > {tmp_path}/words
for word; do result=$word; [ "$before" = --result ] && break; before=$word; done
cat > "$result" <<'END'
{json.dumps(DONE)}
END
cat <<'END'
{RACE}END
exit 9""",
    )
    found = run_one(str(tool), "racecheck", "transpose", parse(["--plant"]))
    assert found.status == 9
    assert found.report == Report(1, read_report(RACE).lines)
    assert found.done == DONE
    assert not found.clean
    words = (tmp_path / "words").read_text().split()
    assert words[words.index("--name") + 1] == "transposeSmemPad"
    assert "--plant" in words


def test_a_run_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    tool = tmp_path / "compute-sanitizer"
    script(tool, f"sleep 1000 & echo $! > {tmp_path}/child; wait")
    start = time.monotonic()
    assert wait([str(tool)], dict(os.environ), tmp_path / "log", timeout=1.0) is None
    assert time.monotonic() - start < 30
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        state = Path(f"/proc/{child}/stat")
        if not state.exists() or state.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the child goes on")


def test_an_error_is_one_line_and_status_1(tmp_path: Path) -> None:
    if Path("/usr/local/cuda/bin/compute-sanitizer").exists():
        pytest.skip("this machine has compute-sanitizer where it is looked for")
    done = subprocess.run(
        [sys.executable, "-m", "bench.sanitize"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": "", "PYTHONPATH": str(Path(sanitize.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("error: compute-sanitizer must be on the PATH")
    assert "Traceback" not in done.stderr
