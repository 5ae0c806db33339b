"""The programs of `bench/`: results say by which call they were measured, and errors end in a message."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path

import pytest

from bench.program import as_called, ended, write_results
from gen.arch import Limits
from gen.errors import RunError, SpecError
from gen.gpu.device import GpuInfo

BENCH = Path(__file__).parents[2] / "bench"
PROGRAMS = sorted(path.stem for path in BENCH.glob("*.py") if "def main(" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "python bench/x.py"),
        (["--json", "a file"], "python bench/x.py"),
        (["--json=x", "--seconds", "5"], "python bench/x.py --seconds 5"),
        (["--only", "star2d1r f32", "--json", "x", "--plant"], "python bench/x.py --only 'star2d1r f32' --plant"),
        (["--json"], "python bench/x.py"),
    ],
)
def test_a_call_is_told_with_all_that_narrows_it(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x.py", *words])
    assert as_called("python bench/x.py") == said


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (RunError("The GPU", "must answer", "nothing"), 1, "error: The GPU must answer (got nothing)\n"),
        (SpecError("The spec", "must be one"), 2, "error: The spec must be one\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
        (FileNotFoundError(2, "No such file", "times.json"), 1, "error: times.json cannot be used: No such file\n"),
        (BrokenPipeError(32, "Broken pipe"), 141, ""),
    ],
    ids=str,
)
def test_a_program_ends_in_one_message(
    raised: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def program() -> int:
        raise raised

    monkeypatch.setattr("gen.cli.app._forget_output", lambda: None)  # stdout is pytest's
    assert ended(program) == status
    assert capsys.readouterr() == ("", said)
    assert ended(lambda: 3) == 3


NEED_NO_GPU = (
    "choices", "device_peers", "estimates", "foreign", "host", "notebook", "pages", "picture", "predict", "report",
    "wave",
)  # fmt: skip


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in NEED_NO_GPU])
def test_a_program_that_needs_a_gpu_says_so_before_all_else(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(*_: object) -> None:
        pytest.fail("It has begun already.")

    program = import_module(f"bench.{name}")
    for what in ("render", "Nvrtc", "find_sanitizer"):
        monkeypatch.setattr(program, what, begun, raising=False)
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    monkeypatch.setattr("sys.argv", [f"{name}.py"])
    assert ended(program.main) == 1
    out, err = capsys.readouterr()
    says = "needs an NVIDIA GPU with its driver (got none). Run it where there is one; here, gen doctor says what is"
    called = f"python -m bench.{name}" if name in ("depths", "potholes", "sanitize") else f"python bench/{name}.py"
    assert (out, err) == ("", f"error: {called} {says} missing\n")


@dataclass(frozen=True)
class Found:
    name: str
    us: tuple[float, ...]


def test_results_say_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["bench/x.py", "--only", "a b", "--json", "x.json"])
    gpu = GpuInfo("NVIDIA X", Limits.of("sm_90"), driver="1.2")
    write_results(tmp_path / "x.json", "python bench/x.py", gpu, {"steps": 3}, rows=[Found("a", (1.0, 2.0))])
    assert json.loads((tmp_path / "x.json").read_text()) == {
        "meta": {
            "command": "python bench/x.py --only 'a b'",
            "date": date.today().isoformat(),
            "device": "NVIDIA X",
            "driver": "1.2",
            "steps": 3,
        },
        "rows": [{"name": "a", "us": [1.0, 2.0]}],
    }
    write_results(None, "python bench/x.py", gpu, rows=[])
    assert [file.name for file in tmp_path.iterdir()] == ["x.json"]
