"""One run at a time has a GPU: others wait, say for whom, and go on when it ends, however it ends."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from gen.arch import Limits
from gen.cli.common import OptionError
from gen.cli.gpu import alone, alone_on_each, of_one_model, read_numbers
from gen.errors import DeviceError
from gen.gpu import lock
from gen.gpu.device import GpuInfo, find_gpu
from gen.gpu.lock import alone_on

BENCH = Path(__file__).parents[2] / "bench"
HOLD = """
import sys, time
from pathlib import Path
from gen.gpu.lock import alone_on
with alone_on("GPU-1", "gen tune\x01" if "rude" in sys.argv else "gen tune transpose", say=print, folder=Path(sys.argv[1])):
    print("have it", flush=True)
    time.sleep(60)
"""  # noqa: E501


class Other:
    """Another process that holds the lock."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-c", HOLD, str(folder), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "have it\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_second_waits_and_says_for_whom_and_gets_it_when_the_first_is_killed(tmp_path: Path) -> None:
    other, said = Other(tmp_path), list[str]()

    def say(line: str) -> None:
        said.append(line)
        threading.Timer(0.2, other.process.kill).start()

    with alone_on("GPU-1", "gen tune", say=say, folder=tmp_path):
        pass
    other.kill()
    assert other.process.returncode == -signal.SIGKILL
    (line,) = said
    assert f"process {other.process.pid} of " in line
    assert "(gen tune transpose, since " in line
    assert line.endswith("waiting for it to end.")


def test_a_wait_ends_with_its_time_and_names_the_holder(tmp_path: Path) -> None:
    other = Other(tmp_path)
    with (
        pytest.raises(DeviceError, match=rf"The GPU is in use by process {other.process.pid} .*--budget"),
        alone_on("GPU-1", "gen tune", say=lambda _: None, seconds=0.15, folder=tmp_path),
    ):
        pytest.fail("it is in use")
    other.kill()


def test_a_holder_that_has_not_said_yet_who_it_is_gets_a_moment_to_do_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, said = tmp_path / "gen-GPU-1.lock", list[str]()

    def other_goes_on(_seconds: float) -> None:
        place.write_text(json.dumps({"pid": 7, "user": "me", "doing": "gen tune", "since": "12:00"}))

    monkeypatch.setattr(time, "sleep", other_goes_on)
    with place.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with (
            pytest.raises(DeviceError, match=r"in use by process 7 of me \(gen tune, since 12:00\)"),
            alone_on("GPU-1", "gen tune", say=said.append, seconds=0, folder=tmp_path),
        ):
            pytest.fail("it is in use")
        place.write_text("")
        monkeypatch.setattr(lock, "NAME_SECONDS", 0.0)
        with (
            pytest.raises(DeviceError, match="in use by another process"),
            alone_on("GPU-1", "gen tune", say=said.append, seconds=0, folder=tmp_path),
        ):
            pytest.fail("it is in use")
    assert said == []


def test_another_gpu_is_another_lock(tmp_path: Path) -> None:
    with (
        alone_on("GPU-1", "a", say=pytest.fail, folder=tmp_path),
        alone_on("GPU-2", "b", say=pytest.fail, folder=tmp_path),
    ):
        pass


def test_it_is_free_again_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), alone_on("GPU-1", "a", say=pytest.fail, folder=tmp_path):
        raise ZeroDivisionError
    with alone_on("GPU-1", "b", say=pytest.fail, folder=tmp_path):
        pass


def test_what_a_holder_says_cannot_disturb_a_terminal(tmp_path: Path) -> None:
    other = Other(tmp_path, "rude")
    with (
        pytest.raises(DeviceError, match="in use by another process"),
        alone_on("GPU-1", "gen tune", say=lambda _: None, seconds=0, folder=tmp_path),
    ):
        pytest.fail("it is in use")
    other.kill()


@pytest.mark.parametrize("content", ["[", "[1]", "{}", '{"pid": 1}', "[" * 5000, "\x00"])
def test_a_file_that_says_nothing_names_nobody(tmp_path: Path, content: str) -> None:
    place = tmp_path / "gen-GPU-1.lock"
    place.write_text(content)
    with place.open("rb") as file:
        assert lock._holder(file) == "another process"


def test_every_user_may_take_the_lock_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with alone_on("GPU-1", "a", say=pytest.fail, folder=tmp_path):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "gen-GPU-1.lock").stat().st_mode & 0o777 == 0o666


def test_where_there_can_be_no_lock_that_is_said_and_work_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with alone_on("GPU-1", "a", say=pytest.fail, folder=tmp_path / "missing"):
        pass
    assert "No lock keeps other runs from the GPU" in caplog.text


def test_many_take_turns(tmp_path: Path) -> None:
    inside, most, turns = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, turns
        with alone_on("GPU-1", "a", say=lambda _: None, folder=tmp_path):
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            inside -= 1
            turns += 1

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, turns) == (1, 5)


def test_a_gpu_has_a_uuid() -> None:
    found = find_gpu(0)
    assert found is None or str(UUID(found.uuid[4:])) == found.uuid[4:]


def _opens_a_gpu(node: ast.AST) -> bool:
    opening = ("IsolatedDevice", "Instruments.open", "find_sanitizer")
    return isinstance(node, ast.Call) and ast.unparse(node.func) in opening


def _takes_the_lock(node: ast.AST) -> bool:
    called = [one.func for one in ast.walk(node) if isinstance(one, ast.Call)]
    return any((isinstance(one, ast.Name) and one.id == "alone")
               or (isinstance(one, ast.Attribute) and ast.unparse(one) == "gpus.alone")
               for one in called)  # fmt: skip


@pytest.mark.parametrize("script", sorted(path.name for path in BENCH.glob("*.py")))
def test_scripts_keep_the_gpu_that_they_open_to_themselves(script: str) -> None:
    """What opens it stands in a function that takes the lock, or is called from such a one."""
    functions = [node for node in ast.parse((BENCH / script).read_text()).body if isinstance(node, ast.FunctionDef)]
    locked = [node for node in functions if _takes_the_lock(node)]
    within = {one.func.id for node in locked for one in ast.walk(node)
              if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}  # fmt: skip
    for function in functions:
        if any(map(_opens_a_gpu, ast.walk(function))):
            assert function in locked or function.name in within


def test_a_run_says_who_else_is_on_the_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _: GpuInfo("A GPU", Limits.of("sm_90"), "GPU-none"))
    monkeypatch.setattr("gen.gpu.nvml.others_on", lambda _: ("process 7 (python)",))
    with alone(0, 0.0):
        pass
    assert "Beside this run, process 7 (python) is on the GPU: times may be off." in capsys.readouterr().err


MODELS = ("NVIDIA H100", "NVIDIA A100", "NVIDIA H100", "NVIDIA H100")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[int, tuple[str, ...]]:
    """Four GPUs, the second of another model, whose locks lie in the test's folder; who is on them, by number."""
    others: dict[int, tuple[str, ...]] = {}
    gpus = [GpuInfo(model, Limits.of("sm_90"), f"GPU-{number}") for number, model in enumerate(MODELS)]
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("gen.gpu.device.count_gpus", lambda: len(gpus))
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda number: gpus[number])
    monkeypatch.setattr("gen.gpu.nvml.others_on", lambda uuid: others.get(int(uuid[-1]), ()))
    return others


@pytest.mark.usefixtures("machine")
def test_a_run_takes_all_gpus_of_the_first_ones_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert of_one_model(None) == (0, 2, 3)
    said = "Tunes on 3 of 4 GPUs, those of the first one's model: 1 is NVIDIA A100."
    assert said in " ".join(capsys.readouterr().err.split())
    assert of_one_model((3, 2)) == (3, 2)
    assert of_one_model((1,)) == (1,)
    assert capsys.readouterr().err == ""
    with pytest.raises(OptionError, match=r"GPUs of one model: 2 is NVIDIA H100 \(got 1 is NVIDIA A100\)"):
        of_one_model((2, 1))


@pytest.mark.parametrize("text", ["", "x", "0,", "0,0", "-1", "1.5", "0 1"])
def test_numbers_of_gpus_are_read(text: str) -> None:
    assert (read_numbers("0"), read_numbers("3,1")) == ((0,), (3, 1))
    with pytest.raises(OptionError, match="--gpu must be numbers of GPUs, each once, from 0 on, such as 0 or 0,1"):
        read_numbers(text)


def test_a_run_leaves_out_gpus_that_others_use(
    machine: dict[int, tuple[str, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    def taken(**how: bool) -> tuple[int, ...]:
        with alone_on_each((0, 2, 3), 0.0, **how) as numbers:
            return numbers

    assert taken(any_of_them=True) == taken() == (0, 2, 3)
    machine[2] = ("process 7 (python)",)
    with alone(0, 0.0):
        assert taken(any_of_them=True) == (3,)
        said = " ".join(capsys.readouterr().err.split())
        assert "GPU 0 is left out: it is in use by process" in said
        assert "GPU 2 is left out: it is in use by process 7 (python). With --gpu it is taken all the same." in said
        with pytest.raises(DeviceError, match="is in use by"):  # those that are named are waited for
            taken()
    machine.update(dict.fromkeys((0, 2, 3), ("process 7 (python)",)))
    capsys.readouterr()
    with alone(0, 0.0), alone(2, 0.0):
        assert taken(any_of_them=True) == (3,)
        assert "Beside this run, process 7 (python) is on the GPU" in capsys.readouterr().err
        with alone(3, 0.0), pytest.raises(DeviceError, match="is in use by"):  # the first is waited for
            taken(any_of_them=True)
    assert taken(any_of_them=True) == (0, 2, 3)  # each lock was given back


def test_a_run_keeps_what_it_takes(machine: dict[int, tuple[str, ...]]) -> None:
    machine[2] = ("process 7 (python)",)
    with alone_on_each((0, 2, 3), 0.0, any_of_them=True), alone(2, 0.0):  # it let this one go
        for number in (0, 3):
            with pytest.raises(DeviceError, match="is in use by"), alone(number, 0.0):
                pass
