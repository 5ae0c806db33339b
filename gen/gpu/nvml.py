"""What NVML sees of a GPU: other processes, clocks, and why they are low. Looks only; sets nothing.

Through nvidia-ml-py, where it is installed; without it nothing is seen, and that is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gen.errors import MissingToolError
from gen.paths import how_to_install

REFRESH_SECONDS = 1.0  # listing processes takes milliseconds: not for each trial
_REASONS = {
    0x1: "idle", 0x2: "set by somebody", 0x4: "power limit", 0x8: "slowed down by the hardware", 0x10: "in step",
    0x20: "heat", 0x40: "heat, by the hardware", 0x80: "power brake", 0x100: "display",
}  # fmt: skip


@dataclass(frozen=True)
class Clocks:
    """How fast a GPU runs at this moment.

    Attributes:
        sm_mhz: of the multiprocessors.
        reasons: why it is not faster.
    """

    sm_mhz: int
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class _Process:
    pid: int
    text: str


class Nvml:
    """NVML's view of one GPU."""

    def __init__(self, uuid: str) -> None:
        """Finds the GPU.

        Args:
            uuid: as NVML spells it: `GPU-4d6f...`.

        Raises:
            MissingToolError: nvidia-ml-py is not installed, or NVML does not know the GPU.
        """
        try:
            self._library: Any = import_module("pynvml")
        except ImportError as error:
            raise MissingToolError(
                "nvidia-ml-py", "is needed to see who else uses the GPU", error,
                next_step=f"Run: {how_to_install('gpu')}",
            ) from error  # fmt: skip
        try:
            self._library.nvmlInit()
            self._gpu = self._library.nvmlDeviceGetHandleByUUID(uuid)
        except self._library.NVMLError as error:
            raise MissingToolError("NVML", f"does not know the GPU {uuid}", error) from error
        self._seen: tuple[str, ...] = ()
        self._looked = float("-inf")

    def others(self) -> tuple[str, ...]:
        """Processes on the GPU that are neither this one nor started by it, as of the last second."""
        now = time.monotonic()
        if now - self._looked >= REFRESH_SECONDS:
            self._looked = now
            self._seen = foreign(self._processes(), os.getpid())
        return self._seen

    def clocks(self) -> Clocks | None:
        """Clocks, and why they are no higher; None where NVML does not tell."""
        library = self._library
        try:
            sm = library.nvmlDeviceGetClockInfo(self._gpu, library.NVML_CLOCK_SM)
            bits = library.nvmlDeviceGetCurrentClocksThrottleReasons(self._gpu)
        except library.NVMLError:
            return None
        return Clocks(int(sm), tuple(text for bit, text in _REASONS.items() if bits & bit))

    def joules(self) -> float | None:
        """What the GPU has used since its driver was loaded; None where NVML does not tell."""
        try:
            return float(self._library.nvmlDeviceGetTotalEnergyConsumption(self._gpu)) / 1000
        except self._library.NVMLError:
            return None

    def close(self) -> None:
        """Lets NVML go."""
        with suppress(self._library.NVMLError):
            self._library.nvmlShutdown()

    def _processes(self) -> list[_Process]:
        found = {}
        library = self._library
        for ask in (library.nvmlDeviceGetComputeRunningProcesses, library.nvmlDeviceGetGraphicsRunningProcesses):
            try:
                listed = ask(self._gpu)
            except library.NVMLError:
                continue
            for one in listed:
                memory = "" if one.usedGpuMemory is None else f", {one.usedGpuMemory >> 20} MiB"
                found[one.pid] = _Process(int(one.pid), f"process {one.pid}{self._name(one.pid)}{memory}")
        return [found[pid] for pid in sorted(found)]

    def _name(self, pid: int) -> str:
        try:
            name = self._library.nvmlSystemGetProcessName(pid)
        except self._library.NVMLError:
            return ""
        text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        file = Path(text.split(" ")[0]).name
        return f" ({file})" if file.isprintable() and file else ""


def others_on(uuid: str) -> tuple[str, ...]:
    """Processes of others on a GPU, a text each; none where NVML is not there."""
    try:
        seen = Nvml(uuid)
    except MissingToolError:
        return ()
    try:
        return seen.others()
    finally:
        seen.close()


def foreign(processes: Iterable[_Process], own: int) -> tuple[str, ...]:
    """Those that are not `own` and have not come from it.

    In a container NVML numbers processes as the host does, and /proc does not know them: one of those is taken to be
    our own, the others are counted.
    """
    found, unknown = [], 0
    for process in processes:
        family = _ancestry(process.pid)
        if not family:
            unknown += 1
        elif own not in family:
            found.append(process.text)
    if unknown > 1:
        found.append(f"{unknown - 1} processes outside this container")
    return tuple(found)


def _ancestry(pid: int) -> list[int]:
    """A process, its parent, and so on; empty if there is no such process here."""
    found = []
    while pid > 0:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        found.append(pid)
        pid = int(stat.rpartition(")")[2].split()[1])  # after the name, which may hold anything: state, parent
    return found
