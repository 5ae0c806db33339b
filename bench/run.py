"""A run over many cases: a process measures, and is replaced when a library takes it down."""

from __future__ import annotations

import atexit
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Protocol

from bench.tuning import Tune
from bench.worker import Begun, Finished, Found, Lost, Message, Opened, Order, Refused, Setup, serve
from gen.compare.case import ComparisonCase
from gen.compare.row import FAILED, OURS, Row, said
from gen.errors import DeviceError, GenError, MissingToolError, StoreError
from gen.tune.outcome import LostError

OPEN_SECONDS = 240.0  # opening the device, and calibrating
MOST_STRIKES = 2  # crashes and hangs, after which a peer is left out of the run
_BEGINNING = Begun(OURS, "beginning", OPEN_SECONDS)


class Line(Protocol):
    """A line to a process that measures."""

    @property
    def ended(self) -> str:
        """How the process ended, in words."""
        ...

    def send(self, order: Order | None) -> None:
        """Orders a case; None ends the process."""
        ...

    def receive(self, seconds: float) -> Message | None:
        """The next message; None if none comes in time. Raises EOFError if the process has ended."""
        ...

    def kill(self) -> None:
        """Ends the process."""
        ...


class ChildLine:
    """A line to a child process of this one."""

    def __init__(self, setup: Setup, target: Callable[..., None] = serve) -> None:
        """Starts it.

        Args:
            setup: what it is for.
            target: what it runs, with its end of the line and the setup.
        """
        context = get_context("spawn")  # a driver that was opened does not survive a fork
        self._connection, theirs = context.Pipe()
        # No daemon, which could have no processes of its own: tuning has.
        self._process = context.Process(target=target, args=(theirs, setup))
        self._process.start()
        theirs.close()
        atexit.register(self.kill)

    def send(self, order: Order | None) -> None:
        """Orders a case; None ends the process."""
        self._connection.send(order)

    def receive(self, seconds: float) -> Message | None:
        """The next message; None if none comes in time. Raises EOFError if the process has ended."""
        if not self._connection.poll(seconds):
            return None
        message: Message = self._connection.recv()
        return message

    def kill(self) -> None:
        """Ends the process."""
        atexit.unregister(self.kill)
        self._process.kill()
        self._process.join(10)
        self._connection.close()

    @property
    def ended(self) -> str:
        """How the process ended, in words."""
        self._process.join(10)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"


@dataclass
class Bench:
    """A run.

    Attributes:
        setup: for each process.
        start: starts one.
        opened: what the first process said of the device and the peers.
        strikes: how often each peer took its process down.
        left_out: cases that the budget did not reach, or that came after the device was lost.
        lost: why the run ended early: the device was lost as a case was tuned, or did not come back after a contender.
        broken: how a peer took its process down as it was imported, by name.
    """

    setup: Setup
    start: Callable[[Setup], Line] = ChildLine
    opened: Opened | None = None
    strikes: Counter[str] = field(default_factory=Counter)
    left_out: list[ComparisonCase] = field(default_factory=list)
    lost: DeviceError | None = None
    broken: dict[str, str] = field(default_factory=dict)
    _line: Line | None = None
    _last: str = ""

    def open(self) -> Opened:
        """Starts a process, anew without each peer that takes it down as it is imported.

        Raises DeviceError if there is nothing to measure on.
        """
        while True:
            there = tuple(name for name in self.setup.peers if name not in self.broken)
            printed = _size(self.setup.log)  # by earlier runs, too
            self._line = self.start(replace(self.setup, peers=there))
            message, step, reason = _first(self._line)
            if message is not None:
                found = replace(message, missing={**self.broken, **message.missing})
                self.opened = self.opened or found
                return found
            self._line.kill()
            self._line = None
            if step.who not in there:
                log = f"See {self.setup.log}" if _size(self.setup.log) > printed else ""
                raise DeviceError("The benchmark", f"cannot begin: {reason}", next_step=log)
            self.broken[step.who] = reason

    def rows(
        self, cases: Sequence[ComparisonCase], budget: float | None = None, tune: Tune | None = None
    ) -> Iterator[tuple[ComparisonCase, list[Row]]]:
        """The rows of one case after another, each tuned first; what the budget, in seconds, bars is `left_out`.

        Where the device is lost, and does not come back, the rows so far are the last.
        """
        start, longest = time.monotonic(), 0.0
        for place, case in enumerate(cases):
            begun = time.monotonic()
            if budget is not None and begun - start + longest > budget:
                self.left_out += cases[place:]
                break
            found = self._tuned(case, tune)
            if found:
                yield case, found
            if self.lost is not None:
                self.left_out += cases[place + bool(found) :]
                break
            longest = max(longest, time.monotonic() - begun)
        self.close()

    def close(self) -> None:
        """Ends the process."""
        if self._line is not None:
            self._line.send(None)
            self._line.kill()
            self._line = None

    def _tuned(self, case: ComparisonCase, tune: Tune | None) -> list[Row]:
        """The rows of a case; only why, if its base is wrong or does not compile. Raises what is no fault of a case."""
        try:
            seconds = 0.0 if tune is None else tune(case)
        except (StoreError, MissingToolError):
            raise
        except LostError as error:
            self.lost = DeviceError(
                "The benchmark", f"ended early: the GPU was lost while {case.name} was tuned", error,
                next_step="Let --missing measure the rest",
            )  # fmt: skip
            return []
        except GenError as error:
            return [self._row(case, OURS, f"{FAILED}{said(error)}")]
        return self._case(case, seconds)

    def _case(self, case: ComparisonCase, seconds: float) -> list[Row]:
        rows: dict[tuple[str, ...], Row] = {}
        there = [name for name in self.setup.peers if name not in self.broken]
        remaining = [name for name in there if self.strikes[name] < MOST_STRIKES]
        for name in there:
            if name not in remaining:
                note = f"left out: it took its process down {MOST_STRIKES} times before in this run"
                row = self._row(case, name, note)
                rows[row.key] = row
        culprit = None
        begun_anew = False
        while True:
            if self._line is None and not self._reopened():
                if culprit is not None:
                    row = replace(culprit, note=f"{culprit.note}; after that the device did not come back")
                    rows[row.key] = row
                return [] if culprit is None else list(rows.values())
            assert self._line is not None
            order = Order(case, tuple(remaining), seconds)
            step, reason = self._one(self._line, order, rows)
            if not reason:
                return list(rows.values())
            self._line.kill()
            self._line = None
            if step == _BEGINNING and not begun_anew:  # whoever ended it was at work on an earlier case, if anybody
                begun_anew, self._last = True, f"its process {reason} on {case.name}"
                continue
            who = step.who
            self.strikes[who] += 1
            culprit = self._blamed(rows, case, step, reason)
            self._last = f"{who} {reason} on {case.name}"
            rows[culprit.key] = culprit
            if who == OURS:
                return list(rows.values())
            done = {key[2] for key in rows}
            remaining = [name for name in remaining if name not in done]

    def _blamed(self, rows: Mapping[tuple[str, ...], Row], case: ComparisonCase, step: Begun, reason: str) -> Row:
        """The row of who took the process down; what is known of a peer under this protocol already stays there."""
        row = self._row(case, step.who, reason)
        if step.protocol:
            row = replace(row, protocol=step.protocol)
        there = None if step.who == OURS else rows.get(row.key)
        return row if there is None else replace(there, note="; ".join(filter(None, [there.note, reason])))

    def _reopened(self) -> bool:
        """Whether a process took the place of one that was taken down; if not, `lost` says after whom."""
        try:
            self.open()
        except DeviceError as error:
            if not self._last:
                raise
            self.lost = DeviceError(
                "The benchmark", f"ended early: {self._last}, and no other process could begin", error,
                next_step="Leave that peer out, and let --missing measure the rest",
            )  # fmt: skip
            return False
        return True

    def _one(self, line: Line, order: Order, rows: dict[tuple[str, ...], Row]) -> tuple[Begun, str]:
        """Takes the rows of a case. Gives the last step, and how it took the process down; nothing if it did not."""
        step = _BEGINNING
        try:
            line.send(order)
            while True:
                message = line.receive(step.seconds)
                if message is None:
                    return step, f"hung for {step.seconds:.0f} s while {step.what}"
                if isinstance(message, Found):
                    rows[message.row.key] = message.row
                elif isinstance(message, Begun):
                    step = message
                elif isinstance(message, Lost | Refused):
                    return step, f"took the device down while {step.what}: {message.reason}"
                elif isinstance(message, Finished):
                    return step, ""
        except (EOFError, OSError):
            return step, f"crashed while {step.what}: {line.ended}"

    def _row(self, case: ComparisonCase, name: str, note: str) -> Row:
        return Row(case.family.name, case.name, name, self.setup.protocol.value, note=note)


def _size(log: Path) -> int:
    """Of what was printed there; 0 if nothing was."""
    try:
        return log.stat().st_size
    except OSError:
        return 0


def _first(line: Line) -> tuple[Opened | None, Begun, str]:
    """What a new process says first; else None, the step that it did not survive, and why."""
    step = _BEGINNING
    try:
        while isinstance(message := line.receive(step.seconds), Begun):
            step = message
    except (EOFError, OSError):
        return None, step, f"its process crashed while {step.what}: {line.ended}"
    if isinstance(message, Opened):
        return message, step, ""
    hung = f"its process hung for {step.seconds:.0f} s while {step.what}"
    return None, step, message.reason if isinstance(message, Refused) else hung
