"""Who else is on a GPU, told from what NVML lists; on a stand-in for its library."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gen.errors import MissingToolError
from gen.gpu import nvml
from gen.gpu.nvml import Nvml, others_on
from gen.paths import how_to_install

GONE = 2**22 + 1  # more than Linux numbers processes to


class NVMLError(Exception):
    """As the library's."""


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A library that lists `processes`: their numbers, with their memory."""
    made: Any = ModuleType("pynvml")
    made.processes, made.graphics, made.names, made.asked = {}, {}, {}, 0
    made.NVMLError, made.NVML_CLOCK_SM = NVMLError, 1

    def by_uuid(uuid: str) -> str:
        if uuid != "GPU-1":
            raise NVMLError("Not Found")
        return uuid

    def compute(_: str) -> list[SimpleNamespace]:
        made.asked += 1
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in made.processes.items()]

    def graphics(_: str) -> list[SimpleNamespace]:
        if made.graphics is None:
            raise NVMLError("Not Supported")
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in made.graphics.items()]

    def name(pid: int) -> bytes | str:
        if pid not in made.names:
            raise NVMLError("Not Found")
        found: bytes | str = made.names[pid]
        return found

    made.nvmlInit = made.nvmlShutdown = lambda: None
    made.nvmlDeviceGetHandleByUUID, made.nvmlSystemGetProcessName = by_uuid, name
    made.nvmlDeviceGetComputeRunningProcesses, made.nvmlDeviceGetGraphicsRunningProcesses = compute, graphics
    made.nvmlDeviceGetClockInfo = lambda _, kind: {1: 1980}[kind]
    made.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _: 0x4 | 0x20
    made.nvmlDeviceGetTotalEnergyConsumption = lambda _: made.millijoules
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


@pytest.fixture
def child() -> Iterator[int]:
    """A process that this one started."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process.pid
    process.kill()
    process.wait()


def test_processes_of_others_are_named_and_own_ones_are_not(library: Any, child: int) -> None:
    library.processes = {os.getpid(): 2**30, child: 2**29, 1: 5 << 20}
    library.graphics = {os.getppid(): None}
    library.names = {1: b"/usr/bin/python3 train.py", os.getppid(): "/usr/bin/Xorg"}
    found = Nvml("GPU-1").others()
    assert set(found) == {"process 1 (python3), 5 MiB", f"process {os.getppid()} (Xorg)"}


def test_a_name_that_could_disturb_a_terminal_is_left_out(library: Any) -> None:
    library.processes, library.names = {1: 0}, {1: b"/bin/a\x1b[2J"}
    assert Nvml("GPU-1").others() == ("process 1, 0 MiB",)


def test_others_on_a_gpu_are_none_where_nobody_can_tell(library: Any) -> None:
    library.processes = {1: None}
    assert others_on("GPU-1") == ("process 1",)
    assert others_on("GPU-2") == ()


def test_an_idle_gpu_has_no_others(library: Any) -> None:
    library.graphics = None
    assert Nvml("GPU-1").others() == ()


def test_of_processes_outside_a_container_one_is_taken_to_be_this(library: Any) -> None:
    library.processes = {GONE: 1 << 30}
    assert Nvml("GPU-1").others() == ()
    library.processes = {GONE + place: 1 << 30 for place in range(3)}
    assert Nvml("GPU-1").others() == ("2 processes outside this container",)


def test_processes_are_listed_once_a_second(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(nvml, "time", SimpleNamespace(monotonic=lambda: now))
    seen = Nvml("GPU-1")
    seen.others()
    now = 100.9
    seen.others()
    assert library.asked == 1
    now, library.processes = 101.5, {1: 1 << 20}
    assert seen.others() == ("process 1, 1 MiB",)


def test_clocks_come_with_the_reasons_why_they_are_low(library: Any) -> None:
    found = Nvml("GPU-1").clocks()
    assert found is not None
    assert (found.sm_mhz, found.reasons) == (1980, ("power limit", "heat"))

    def refuse(*_: object) -> int:
        raise NVMLError("Not Supported")

    library.nvmlDeviceGetClockInfo = refuse
    assert Nvml("GPU-1").clocks() is None


def test_energy_is_told_in_joules(library: Any) -> None:
    library.millijoules = 12_500
    assert Nvml("GPU-1").joules() == 12.5

    def refuse(_: object) -> int:
        raise NVMLError("Not Supported")

    library.nvmlDeviceGetTotalEnergyConsumption = refuse
    assert Nvml("GPU-1").joules() is None


@pytest.mark.usefixtures("library")
def test_a_missing_library_and_an_unknown_gpu_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingToolError, match="NVML does not know the GPU GPU-2"):
        Nvml("GPU-2")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingToolError, match=rf"nvidia-ml-py is needed .*Run: {re.escape(how_to_install('gpu'))}"):
        Nvml("GPU-1")
