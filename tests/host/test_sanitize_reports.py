"""What compute-sanitizer says is read, kept and shown."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bench import sanitize
from bench.sanitize import drive, parse
from bench.sanitizer.faults import TOOLS
from bench.sanitizer.jobs import Job
from bench.sanitizer.process import find_sanitizer, run_one, version_of, wait
from bench.sanitizer.report import Outcome, Report, digest_of, evidence, evidence_file, read_report
from gen.errors import DeviceError, MissingToolError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.gpu.device import GpuInfo
from tests.host.sanitizer_says import CLEAN, CLEAN_RACES, DONE, FOUND, HANGING, OVERRUN, RACE, WARNING, outcome


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


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine that seems to have a GPU and the tool."""
    monkeypatch.setattr(sanitize, "find_sanitizer", lambda: "/opt/compute-sanitizer")
    monkeypatch.setattr(sanitize, "version_of", lambda _: "2025.3.0.0")
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda: GpuInfo("NVIDIA H100 80GB HBM3", Limits.of("sm_90")))
    monkeypatch.setattr(sanitize, "texts_of", lambda *_: {"kernel": "text"})
    monkeypatch.setattr(sanitize, "compile_all", lambda *_: None)
    monkeypatch.setattr(sanitize, "evidence_file", lambda _: tmp_path / "evidence.json")
    return tmp_path


def run_clean(_: str, job: Job, __: argparse.Namespace) -> Outcome:
    if job.planted:
        status = None if job.tool == "synccheck" else 9
        return outcome(job.tool, job.family, FOUND[job.tool], status=status, job=str(job), planted=True)
    return outcome(job.tool, job.family, CLEAN_RACES if job.tool == "racecheck" else CLEAN, job=str(job))


def test_a_clean_run_of_everything_is_kept_as_evidence(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert drive(parse(["--jobs", "1"]), run_clean) == 0
    kept = json.loads((machine / "evidence.json").read_text())
    assert kept["clean"]
    assert list(kept["tools"]) == list(TOOLS)
    assert kept["meta"]["command"] == "python -m bench.sanitize"
    assert kept["meta"]["texts"] == digest_of({"kernel": "text"})
    out = capsys.readouterr().out
    assert out.count("3 variants on 18 of 18 sizes, 54 cases: 0 errors") == len(TOOLS) * len(FAMILIES)
    assert "nothing was reported" in out
    assert "every planted fault was found" in out
    assert kept["planted"]["memcheck"] == {"variant": "reduceShfl", "found": True, "status": 9}
    assert list(kept["planted"]) == list(TOOLS)


@pytest.mark.parametrize("option", ["--cases=8", "--tool=memcheck", "--family=probe"])
def test_a_part_is_no_evidence_for_all(machine: Path, option: str) -> None:
    assert drive(parse(["--jobs", "1", option]), run_clean) == 0
    assert not (machine / "evidence.json").exists()


def test_the_parts_of_a_family_are_kept_as_one() -> None:
    some = outcome(job="memcheck reduction 1/2")
    more = {**DONE, "algorithms": ["grid"], "sizes": {"sum_f32": (18, 18), "max_u8": (4, 9)}, "variants": 2}
    for other, clean in (
        (outcome(done=more), True),
        (outcome(done=more, status=9, output=OVERRUN), False),
        (outcome(done=more, status=-9), False),
        (outcome(done=None, status=None, output=""), False),
    ):
        found = evidence([some, outcome("racecheck", output=CLEAN_RACES), other], "1", "x", "", 1.0)
        assert found["clean"] is clean
        row = found["tools"]["memcheck"]["families"]["reduction"]
        assert row["clean"] is clean
        assert (row["variants"], row["sizes"], row["sizes_available"]) == ((5, 22, 27) if other.done else (None, 0, 0))
        assert row["algorithms"] == (["grid", "shfl"] if other.done else None)
        assert row["seconds"] == 4.0


@pytest.mark.parametrize("end", [KeyboardInterrupt(), MissingToolError("compute-sanitizer", "is gone")])
def test_a_run_that_is_ended_early_says_what_remained(
    machine: Path, capsys: pytest.CaptureFixture[str], end: BaseException
) -> None:
    def run(sanitizer: str, job: Job, options: argparse.Namespace) -> Outcome:
        if job.tool in ("racecheck", "synccheck"):
            raise end
        return run_clean(sanitizer, job, options)

    arguments = ["--family", "probe", "--jobs", "1", "--json", str(machine / "part.json")]
    with pytest.raises(type(end)):
        drive(parse(arguments), run)
    out = capsys.readouterr().out
    assert "remained: racecheck probe, " in out
    kept = json.loads((machine / "part.json").read_text())
    assert (kept["clean"], "synccheck probe" in kept["remained"]) == (False, True)
    assert not (machine / "evidence.json").exists()


def test_a_run_of_a_part_is_no_evidence(machine: Path) -> None:
    for arguments in (["--tool", "memcheck"], ["--family", "stencil"], ["--name", "reduceShfl"]):
        assert drive(parse([*arguments, "--json", str(machine / "part.json")]), run_clean) == 0
        assert json.loads((machine / "part.json").read_text())["clean"]
    assert not (machine / "evidence.json").exists()


def test_what_is_reported_is_shown_and_fails(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def found(sanitizer: str, job: Job, options: argparse.Namespace) -> Outcome:
        if (job.tool, job.family) == ("memcheck", "transpose"):
            return outcome(job.tool, job.family, OVERRUN, status=9, job=str(job))
        if (job.tool, job.family) == ("synccheck", "stencil"):
            return outcome(job.tool, job.family, "Traceback: no GPU left", status=1, done=None, job=str(job))
        return run_clean(sanitizer, job, options)

    assert drive(parse(["--jobs", "1"]), found) == 1
    assert not json.loads((machine / "evidence.json").read_text())["clean"]
    out = capsys.readouterr().out
    assert "Invalid __global__ read of size 4 bytes" in out
    assert "no GPU left" in out
    assert out.count("NOT CLEAN") == 3


def test_planted_faults_must_be_found(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def find_one(sanitizer: str, job: Job, options: argparse.Namespace) -> Outcome:
        found = run_clean(sanitizer, job, options)
        missed = job.planted and job.tool != "racecheck"
        return replace(found, report=read_report(CLEAN), status=0) if missed else found

    part = machine / "part.json"
    assert drive(parse(["--plant", "--json", str(part)]), run_clean) == 0
    out = capsys.readouterr().out
    assert "every planted fault was found" in out
    assert "memcheck reduction planted: 3 variants" in out
    assert "nothing was reported" not in out
    assert all(planted["found"] for planted in json.loads(part.read_text())["planted"].values())

    assert drive(parse(["--plant", "--json", str(part)]), find_one) == 1
    assert "planted faults missed by: memcheck, initcheck, synccheck" in capsys.readouterr().out
    planted = json.loads(part.read_text())["planted"]
    assert [tool for tool in TOOLS if planted[tool]["found"]] == ["racecheck"]
    assert not (machine / "evidence.json").exists()

    # A tool that finds no fault where there is one says nothing where it finds none.
    assert drive(parse(["--jobs", "1"]), find_one) == 1
    out = capsys.readouterr().out
    assert "nothing was reported" in out
    assert "planted faults missed by: memcheck, initcheck, synccheck" in out


def test_a_machine_without_a_gpu_is_told(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda: None)
    with pytest.raises(DeviceError, match=r"bench\.sanitize needs an NVIDIA GPU"):
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
    found = run_one(str(tool), Job("racecheck", "transpose", planted=True), parse([]))
    assert found.status == 9
    assert found.report == Report(1, read_report(RACE).lines)
    assert found.done == json.loads(json.dumps(DONE))
    assert not found.clean
    assert found.found
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
    # A GPU is looked for before the tool is.
    assert done.stderr.startswith(
        ("error: compute-sanitizer must be on the PATH", "error: python -m bench.sanitize needs")
    )
    assert done.stderr.count("\n") == 1
