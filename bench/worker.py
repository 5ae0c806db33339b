"""The process that measures: it holds the device, and may be taken down by a library."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import gen
from bench.gpu import BenchGpu
from bench.peers import PEERS
from bench.stencils import checks_of
from gen.compare.case import ComparisonCase
from gen.compare.comparison import Comparison, Report, Step
from gen.compare.gpu import LostError
from gen.compare.peers import find_peers
from gen.compare.peers.base import Peer
from gen.compare.row import OURS, Row
from gen.errors import GenError, MissingToolError
from gen.gpu.timing import Protocol

_PR_SET_PDEATHSIG = 1
IMPORT_SECONDS, CALIBRATE_SECONDS = 120.0, 120.0  # after which that is taken for hung


@dataclass(frozen=True)
class Opened:
    """The device is ready, the limits are measured, the peers are imported.

    Attributes:
        missing: why a peer cannot take part, by name.
    """

    device: str
    driver: str
    calibration: Mapping[str, Any]
    versions: Mapping[str, str]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Begun:
    """A step begins that may crash or hang; or it turned out that it needs longer, from now on.

    Attributes:
        who: the contender at work.
        what: in words.
        seconds: after which it is taken for hung.
        protocol: under which it is timed; empty for all else.
    """

    who: str
    what: str
    seconds: float
    protocol: str = ""


@dataclass(frozen=True)
class Found:
    """A row is there."""

    row: Row


@dataclass(frozen=True)
class Refused:
    """The process cannot begin: there is no device, or what was asked for makes no sense. It ends."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """The device no longer answers: whoever was at work took it down. The process ends."""

    reason: str


@dataclass(frozen=True)
class Finished:
    """The case is done."""


Message = Opened | Begun | Found | Refused | Lost | Finished


@dataclass(frozen=True)
class Setup:
    """What a process is started for.

    Attributes:
        gpu: the device's number.
        home: of winners and of the cache.
        peers: names of those to import.
        protocol: what the caches hold before a launch.
        log: takes what libraries print.
        compiled: what libraries compile is kept here, for the processes of this run alone: another run compiles anew.
    """

    gpu: int
    home: Path
    peers: tuple[str, ...]
    protocol: Protocol
    log: Path
    compiled: Path


@dataclass(frozen=True)
class Order:
    """A case to measure, against these peers; `seconds` went into tuning it."""

    case: ComparisonCase
    peers: tuple[str, ...]
    seconds: float = 0.0


def serve(connection: Connection[Message, Order | None], setup: Setup) -> None:
    """Opens the device, then measures what is ordered until None comes."""
    end_with_parent()
    _print_to(setup.log)
    try:
        opened, gpu, peers = _open(setup, connection.send)
    except GenError as error:
        connection.send(Refused(str(error)))
        return
    connection.send(opened)
    while (order := connection.recv()) is not None:
        try:
            comparison = Comparison(gpu, order.case, setup.protocol, _report_to(connection.send), checks_of)
            comparison.run([peers[name] for name in order.peers if name in peers], setup.home, order.seconds)
        except LostError as error:
            connection.send(Lost(str(error)))
            os._exit(1)  # libraries that tidy up would wait for it
        connection.send(Finished())


def _report_to(tell: Callable[[Message], None]) -> Report:
    """Turns what a comparison reports into messages."""

    def report(message: Step | Row, seconds: float | None = None) -> None:
        if isinstance(message, Row):
            tell(Found(message))
        else:
            tell(Begun(message.who, message.what, seconds or 0.0, message.protocol))

    return report


def _open(setup: Setup, tell: Callable[[Message], None]) -> tuple[Opened, BenchGpu, Mapping[str, Peer]]:
    from gen.gpu.open import open_instruments
    from gen.paths import cache_home
    from gen.toolchain.nvrtc import Nvrtc

    keep_compiled_in(setup.compiled, os.environ)
    number = show_only(setup.gpu, os.environ)
    compiler = Nvrtc(cache_home(setup.home))
    instruments = open_instruments(number, compiler)
    peers, versions, missing = import_peers(setup.peers, tell)
    calibration = instruments.calibrate()
    gpu = BenchGpu(instruments.bench(calibration), compiler, cache_home(setup.home))
    versions = {
        "python": sys.version.split()[0], "gen": gen.__version__, "numpy": np.__version__,
        "compiler": compiler.version, **versions,
    }  # fmt: skip
    opened = Opened(instruments.device.name, instruments.device.driver, asdict(calibration), versions, missing)
    return opened, gpu, peers


def end_with_parent() -> None:
    """Lets the system kill this process with the one that started it: a library that hangs would stay on the GPU."""
    with suppress(AttributeError):  # where no Linux is
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def keep_compiled_in(folder: Path, environment: MutableMapping[str, str]) -> None:
    """Lets libraries keep there what they compile: what an earlier run left would make them look quick at it."""
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"):
        environment[name] = str(folder / name.partition("_")[0].lower())


def show_only(gpu: int, environment: MutableMapping[str, str]) -> int:
    """Hides every other GPU from this process, before a driver is opened: libraries take the first that they see.

    Gives the number by which to open it: 0. A number beyond those that are visible stays one of no GPU.
    """
    visible, shown = environment.get("CUDA_VISIBLE_DEVICES"), str(gpu)
    if visible is not None:
        seen = list(filter(None, visible.split(",")))
        if gpu >= len(seen):
            return gpu
        shown = seen[gpu]
    environment["CUDA_VISIBLE_DEVICES"] = shown
    return 0


def import_peers(
    names: Sequence[str], tell: Callable[[Message], None]
) -> tuple[dict[str, Peer], dict[str, str], dict[str, str]]:
    """The peers whose libraries can be imported, their versions, and why the others cannot, each by name."""
    peers, versions, missing = {}, {}, {}
    for name in names:
        tell(Begun(name, "importing it", IMPORT_SECONDS))
        (peer,) = find_peers([name], PEERS)
        try:
            versions[name] = peer.version()
        except MissingToolError as error:
            missing[name] = str(error)
        except Exception as error:  # noqa: BLE001  an installation may be broken in any way
            missing[name] = f"{type(error).__name__}: {error}"
        else:
            peers[name] = peer
    tell(Begun(OURS, "calibrating", CALIBRATE_SECONDS))
    return peers, versions, missing


def _print_to(log: Path) -> None:
    """Lets this process, with all that it loads, print to a file: our own output is a table."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
