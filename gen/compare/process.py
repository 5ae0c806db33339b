"""Comparisons in the process that drives the GPU: what a library does to it costs that library, and one restart."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gen.compare.case import ComparisonCase
from gen.compare.comparison import PREPARE_SECONDS, Comparison, ContenderStep
from gen.compare.gpu import ComparisonGpu, LostError
from gen.compare.peers.base import Peer
from gen.compare.row import CRASHED, HUNG, LEFT_OUT, OURS, TOOK_DOWN, Row
from gen.errors import GenError, MissingToolError
from gen.gpu.timing import Protocol as Caches
from gen.workers import Ended, Report, result_of

if TYPE_CHECKING:
    from gen.tune.gpu_session import CalibratedGpu

IMPORT_SECONDS = 120.0  # after which a library that is imported is taken for hung
MAX_STRIKES = 2  # crashes and hangs, after which a peer is left out of further cases


@dataclass(frozen=True)
class LibrariesFactory:
    """Makes a GPU ready in a process that libraries share with gen.

    Attributes:
        gpu: the number of the GPU.
        home: of winners, of the calibration and of the cache.
        log: takes what libraries print.
        compiled: what libraries compile is kept here; None: where they keep it.
        calibrate: measure what the GPU can do anew, and keep nothing; else take what is kept.
    """

    gpu: int
    home: Path
    log: Path
    compiled: Path | None = None
    calibrate: bool = False

    def __call__(self) -> CalibratedGpu:
        """Opens the GPU. Raises DeviceError or MissingToolError if there is none to use."""
        print_to(self.log)
        from gen.paths import cache_home
        from gen.toolchain.nvrtc import Nvrtc
        from gen.tune.gpu_session import GpuFactory

        if self.compiled is not None:
            keep_compiled_in(self.compiled, os.environ)
        number, compiler = show_only(self.gpu, os.environ), Nvrtc(cache_home(self.home))
        return GpuFactory(number, compiler, None if self.calibrate else self.home)()


def compare(
    gpu: CalibratedGpu, report: Report, case: ComparisonCase, peers: Sequence[Peer], caches: Caches, home: Path,
    tuned_seconds: float,
) -> None:  # fmt: skip
    """A job of that process: one case."""
    Comparison(ComparisonGpu(gpu), case, caches, report).run(peers, home, tuned_seconds)


def import_peer(_gpu: CalibratedGpu, _report: Report, peer: Peer) -> tuple[str, str]:
    """A job of that process: gives the version of a peer's library, or why it cannot be imported."""
    try:
        return peer.version(), ""
    except MissingToolError as error:
        return "", str(error)
    except Exception as error:  # noqa: BLE001  an installation may be broken in any way
        return "", f"{type(error).__name__}: {error}"


class JobRunner(Protocol):
    """The process that drives the GPU, as `gen.tune.device.IsolatedDevice` has it."""

    def run(
        self, job: Callable[..., Any], *arguments: Any, seconds: float, ended: Callable[[Ended], Any],
        reported: Callable[[Any], object],
    ) -> Future[Any]:  # fmt: skip
        """Queues a job."""
        ...


class Comparisons:
    """Comparisons on one GPU. A peer that takes the process down is left out: of the case, after two such of all.

    Attributes:
        peers: those whose libraries can be imported.
        versions: of their libraries, by name.
        missing: why the others cannot, by name.
        lost: why no process can begin any more; None while one can.
    """

    def __init__(
        self, device: JobRunner, peers: Sequence[Peer], caches: Caches, home: Path, job: Callable[..., None] = compare
    ) -> None:
        """Imports the libraries.

        Args:
            device: the process.
            peers: whom to compare with.
            caches: what they hold before a launch.
            home: where winners are looked up.
            job: compares one case, as `compare` does.
        """
        self._device, self._caches, self._home, self._job = device, caches, home, job
        self._strikes: Counter[str] = Counter()
        self.lost: GenError | None = None
        found = {peer: self._import(peer) for peer in peers}
        self.peers = tuple(peer for peer, (_, reason) in found.items() if not reason)
        self.versions = {peer.name: version for peer, (version, reason) in found.items() if not reason}
        self.missing = {peer.name: reason for peer, (_, reason) in found.items() if reason}

    def rows(self, case: ComparisonCase, tuned_seconds: float = 0.0) -> list[Row]:
        """The rows of a case; what there is of them where the GPU is lost for good, and `lost` then says why.

        Args:
            case: what is computed.
            tuned_seconds: that went into tuning it.
        """
        rows: dict[tuple[str, ...], Row] = {}
        remaining = []
        for peer in self.peers:
            if self._strikes[peer.name] < MAX_STRIKES:
                remaining.append(peer)
                continue
            note = f"{LEFT_OUT}it took its process down {MAX_STRIKES} times before in this run"
            row = self._row(case, ContenderStep(peer.name, ""), note)
            rows[row.key] = row
        while True:
            try:
                step, reason = self._attempt(case, remaining, tuned_seconds, rows)
            except GenError as error:
                self.lost = error
                return list(rows.values())
            if not reason:
                return list(rows.values())
            self._strikes[step.who] += 1
            row = self._row(case, step, reason)
            known = None if step.who == OURS else rows.get(row.key)  # of a peer what is known stays
            notes = [] if known is None else [known.note]
            rows[row.key] = replace(known or row, note="; ".join(filter(None, [*notes, reason])))
            if step.who == OURS:
                return list(rows.values())
            done = {row.peer for row in rows.values()}
            remaining = [peer for peer in remaining if peer.name not in done]

    def _attempt(
        self, case: ComparisonCase, peers: Sequence[Peer], tuned_seconds: float, rows: dict[tuple[str, ...], Row]
    ) -> tuple[ContenderStep, str]:
        """Takes the rows of a case. Gives the last step, and how it took the process down; empty if it did not.

        Raises GenError if no process can begin.
        """
        step = ContenderStep(OURS, "beginning")

        def reported(message: ContenderStep | Row) -> None:
            nonlocal step
            if isinstance(message, Row):
                rows[message.key] = message
            else:
                step = message

        def ended(how: Ended) -> str:
            if how.how == "hung":
                return f"{HUNG}while {step.what}: {how.reason}"
            return f"{CRASHED}while {step.what}: {how.reason}"

        future = self._device.run(
            self._job, case, tuple(peers), self._caches, self._home, tuned_seconds,
            seconds=PREPARE_SECONDS, ended=ended, reported=reported,
        )  # fmt: skip
        try:
            reason = result_of(future)
        except LostError as error:
            reason = f"{TOOK_DOWN}while {step.what}: {error}"
        return step, reason or ""

    def _import(self, peer: Peer) -> tuple[str, str]:
        def ended(how: Ended) -> tuple[str, str]:
            return "", f"importing it ended its process: {how.reason}"

        future = self._device.run(
            import_peer, peer, seconds=IMPORT_SECONDS, ended=ended, reported=lambda _: None
        )  # fmt: skip
        found: tuple[str, str] = result_of(future)
        return found

    def _row(self, case: ComparisonCase, step: ContenderStep, note: str) -> Row:
        protocol = step.protocol or self._caches.value
        return Row(case.family.name, case.name, step.who, protocol, note=note)


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


def print_to(log: Path) -> None:
    """Lets this process, with all that it loads, print to a file: our own output is a table."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
