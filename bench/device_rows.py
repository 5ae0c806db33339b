"""What the parts of `bench/devices.py` share: results, how these are timed and kept, and processes of children."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gen.families.base import Array
from gen.gpu.device import Peer
from gen.runtime.simulated import Machine

ROOT = Path(__file__).resolve().parent.parent
COUNTS = (1, 2, 4, 8)  # of GPUs, as far as there are
WARM_UP, TURNS = 2, 7  # the second call with the same arrays is captured, later ones are replayed
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Row:
    """One result.

    Attributes:
        part: of this program.
        case: what is computed.
        how: by which way.
        gpus: on how many.
        equal: whether the bits are those of one GPU, or the numbers of another library those of NumPy; None: not asked.
        ms: of each turn, until all GPUs are done; empty if nothing was timed.
        queued_ms: the median of the part of it in which the host queued.
        value, unit: what follows from it.
        goal: of the value.
        note: what else there is to say.
        lines: a picture.
    """

    part: str
    case: str
    how: str
    gpus: int
    equal: bool | None = None
    ms: tuple[float, ...] = ()
    queued_ms: float | None = None
    value: float | None = None
    unit: str = ""
    goal: float | None = None
    note: str = ""
    lines: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int]:
        """What it is a result of."""
        return self.part, self.case, self.how, self.gpus

    def __str__(self) -> str:
        bits = "" if self.equal is None else "equal" if self.equal else "NOT EQUAL"
        time = f"{statistics.median(self.ms):.3f}" if self.ms else ""
        queued = "" if self.queued_ms is None else f"{self.queued_ms:.3f}"
        value = "" if self.value is None else f"{self.value:.4g} {self.unit}"
        goal = "" if self.goal is None else f"goal {self.goal:g}"
        what = f"{self.case:42.42} {self.how:34.34} {self.gpus:2} {bits:9} {time:>9} {queued:>8}"
        return f"{what}  {value:26} {goal} {self.note}".rstrip()


HEAD = f"{'':42} {'':34} {'n':>2} {'bits':9} {'ms':>9} {'queued':>8}"


@dataclass(frozen=True)
class Place:
    """Where a part runs.

    Attributes:
        devices: all of them.
        timed: whether it is timed; else bits are compared.
        machine: that simulates the devices; None for GPUs.
        folder: for files of this run.
    """

    devices: tuple[Peer, ...]
    timed: bool
    machine: Machine | None
    folder: Path

    @property
    def counts(self) -> list[int]:
        """Of devices, more than one."""
        return [count for count in COUNTS if 1 < count <= len(self.devices)]


@dataclass(frozen=True)
class Way:
    """What computes, and the row that it becomes.

    Attributes:
        row: without times.
        run: queues all of it.
        result: gives the bits that it has computed, to be compared.
        base: which of the ways it is measured against; None: itself.
        times: how many times as much it computes as that does.
    """

    row: Row
    run: Callable[[], object]
    result: Callable[[], Array] | None = None
    base: int | None = None
    times: int = 1


def synchronize(devices: Sequence[Peer]) -> None:
    """Waits for all of them."""
    for device in devices:
        entered = device.enter()
        try:
            device.synchronize()
        finally:
            device.leave(entered)


def timed(devices: Sequence[Peer], run: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds until all is done, and until all was queued."""
    synchronize(devices)
    begin = time.perf_counter()
    run()
    queued = time.perf_counter()
    synchronize(devices)
    return 1000 * (time.perf_counter() - begin), 1000 * (queued - begin)


def measured(ways: Sequence[Way], devices: Sequence[Peer], turns: int = TURNS) -> list[tuple[list[float], float]]:
    """Of each way all times, and the median of those of queueing; each way once a turn, another first each time."""
    ms: list[list[tuple[float, float]]] = [[] for _ in ways]
    for turn in range(WARM_UP + turns):
        for place in range(len(ways)):
            number = (place + turn) % len(ways)
            took = timed(devices, ways[number].run)
            if turn >= WARM_UP:
                ms[number].append(took)
    return [([one for one, _ in took], statistics.median([queued for _, queued in took])) for took in ms]


def speedups(ways: Sequence[Way], devices: Sequence[Peer]) -> Iterator[Row]:
    """The rows with times, and how many times as much a second as the base computes."""
    found = measured(ways, devices)
    medians = [statistics.median(ms) for ms, _ in found]
    for way, (ms, queued), median in zip(ways, found, medians, strict=True):
        value = None if way.base is None else round(way.times * medians[way.base] / median, 4)
        yield replace(way.row, ms=rounded(ms), queued_ms=round(queued, 4), value=value, unit="times one GPU")


def same_bits(one: Array, other: Array) -> bool:
    """Whether they are equal, NaN and signs of zeros too."""
    bits = f"u{one.dtype.itemsize}"
    return one.shape == other.shape and bool((one.view(bits) == other.view(bits)).all())


def ran(words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """A command that has ended, or that took too long (124), or that is not there (127)."""
    try:
        return subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, check=False, env=environment(), cwd=ROOT
        )
    except subprocess.TimeoutExpired as error:
        kept: tuple[Any, Any] = (error.stdout, error.stderr)  # bytes or text, by the version of Python
        said = [one.decode(errors="replace") if isinstance(one, bytes) else one or "" for one in kept]
        return subprocess.CompletedProcess(words, 124, *said)
    except OSError as error:
        return subprocess.CompletedProcess(words, 127, "", str(error))


def shape_text(shape: Sequence[int]) -> str:
    """For a reader."""
    return " x ".join(map(str, shape))


def rounded(ms: Sequence[float]) -> tuple[float, ...]:
    """As they are written."""
    return tuple(round(one, 4) for one in ms)


def environment() -> dict[str, str]:
    """That of children: without multicast of NVLink."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, **QUIET, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "NCCL_DEBUG": "WARN"}


def program_words() -> list[str]:
    """By which this program is called."""
    return [sys.executable, "-u", str(ROOT / "bench" / "devices.py")]


def free_address() -> str:
    """Where nobody listens yet."""
    with socket.create_server((HOST, 0)) as found:
        return f"{HOST}:{found.getsockname()[1]}"


def write_row(file: Path, row: Row) -> None:
    """Adds a line to a file."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(asdict(row)) + "\n")
    print(row, flush=True)


def read_rows(file: Path) -> list[Row]:
    """The rows of a file; none where there is none."""
    if not file.is_file():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):  # a line that a killed process has not finished
            content = json.loads(line)
            found.append(Row(**{**content, "ms": tuple(content["ms"]), "lines": tuple(content["lines"])}))
    return found


@contextmanager
def current(device: Peer) -> Iterator[None]:
    """Makes a device the calling thread's current one."""
    entered = device.enter()
    try:
        yield
    finally:
        device.leave(entered)
