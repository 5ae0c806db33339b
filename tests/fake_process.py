"""A process that drives a GPU, made of a script: what each contender does to it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from gen.compare.case import ComparisonCase
from gen.compare.comparison import ContenderStep
from gen.compare.gpu import LostError
from gen.compare.peers.base import Peer
from gen.compare.process import import_peer
from gen.compare.row import OURS, Row
from gen.errors import DeviceError
from gen.gpu.timing import Calibration, Protocol
from gen.workers import Ended

LIMITS = Calibration("Fake GPU", "1", 3200.0, 3300.0, 3000.0, 3.8, 0.8)


@dataclass(frozen=True)
class FakePeer:
    """A library of which nothing but the name matters."""

    name: str

    def version(self) -> str:
        return "1"

    def prepare(self, case: ComparisonCase, source: Any, gpu: Any) -> Any:
        raise NotImplementedError


@dataclass
class FakeProcess:
    """Runs jobs as `gen.tune.device.IsolatedDevice` does, by a script.

    Attributes:
        crash, hang, lose: contenders that do this to it, or texts of a case's name, a blank, and a contender.
        processes: how many may begin; None: any number.
        missing: why libraries cannot be imported, by name.
        late: a step that a contender begins after its row, and crashes at.
        note: of our rows.
        seconds: that every contender took to get ready.
        meanwhile: called at every case.
        orders: the case and the peers of every job.
        tuned: the seconds of tuning that each was told of.
    """

    name: str = "Fake GPU"
    driver: str = "1"
    about: Calibration = LIMITS
    crash: frozenset[str] = frozenset()
    hang: frozenset[str] = frozenset()
    lose: frozenset[str] = frozenset()
    processes: int | None = None
    missing: dict[str, str] = field(default_factory=dict)
    late: dict[str, ContenderStep] = field(default_factory=dict)
    note: str = ""
    seconds: float | None = None
    meanwhile: Callable[[], object] = lambda: None
    orders: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    tuned: list[float] = field(default_factory=list)
    ended: int = 0
    closed: int = 0

    def __enter__(self) -> FakeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def run(
        self, job: Callable[..., Any], *arguments: Any, seconds: float, ended: Callable[[Ended], Any],
        reported: Callable[[Any], object],
    ) -> Future[Any]:  # fmt: skip
        assert seconds > 0
        if self.processes is not None and self.ended >= self.processes:
            raise DeviceError("The GPU", "cannot be used", "gone")
        future: Future[Any] = Future()
        if job is import_peer:
            (peer,) = arguments
            future.set_result(("", self.missing[peer.name]) if peer.name in self.missing else ("1", ""))
            return future
        case, peers, caches, _, tuned_seconds = arguments
        self.meanwhile()
        self.orders.append((case.name, tuple(peer.name for peer in peers)))
        self.tuned.append(tuned_seconds)
        outcome = self._follow(case, peers, caches, reported)
        if isinstance(outcome, LostError):
            future.set_exception(outcome)
        else:
            future.set_result(None if outcome is None else ended(outcome))
        self.ended += outcome is not None
        return future

    def _follow(
        self, case: ComparisonCase, peers: tuple[Peer, ...], caches: Protocol, report: Callable[[Any], object]
    ) -> Ended | LostError | None:
        for name in (OURS, *(peer.name for peer in peers)):
            names = {name, f"{case.name} {name}"}
            report(ContenderStep(name, "timing", caches.value))
            if names & self.crash:
                return Ended("crashed", "the process died of it")
            if names & self.hang:
                return Ended("hung", "it did not end within 5 s")
            if names & self.lose:
                return LostError("The GPU", "no longer answers", "an illegal address")
            ratio = 1.0 if name == OURS else 2.0
            note = self.note if name == OURS else ""
            report(
                Row(
                    case.family.name, case.name, name, caches.value, 1.0, ratio, ratio, ratio, ratio, 0.5, "WIN",
                    "spec__variant", 30, self.seconds, note,
                )
            )  # fmt: skip
            if name in self.late:
                report(self.late[name])
                return Ended("crashed", "the process died of it")
        return None
