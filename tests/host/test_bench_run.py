"""A run survives every library: processes that crash, hang or lose the device are replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import worker
from bench.cases import reduce
from bench.peers import PEERS as LIBRARIES
from bench.run import MOST_STRIKES, Bench, ChildLine
from bench.worker import (
    Begun,
    Finished,
    Found,
    Lost,
    Message,
    Opened,
    Order,
    Refused,
    Setup,
    keep_compiled_in,
    show_only,
)
from gen.compare.case import ComparisonCase as Case
from gen.compare.row import OURS, Row
from gen.dtypes import F32
from gen.errors import CompileError, DeviceError, RunError, StoreError
from gen.gpu.timing import Protocol
from gen.tune.outcome import LostError

CASES = tuple(reduce(("sum",), F32, (n,)) for n in (10, 20, 30, 40))
PEERS = ("torch", "cub", "jax")
OPENED = Opened("Fake GPU", "1", {}, {}, {})


@pytest.mark.parametrize(
    ("gpu", "visible", "shown", "number"),
    [
        (0, None, "0", 0), (3, None, "3", 0), (1, "GPU-a,GPU-b", "GPU-b", 0), (0, "5", "5", 0),
        (0, "", "", 0), (1, "", "", 1), (2, "GPU-a,GPU-b", "GPU-a,GPU-b", 2),  # there is none of this number
    ],
)  # fmt: skip
def test_libraries_see_only_the_gpu_that_is_measured(gpu: int, visible: str | None, shown: str, number: int) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert show_only(gpu, environment) == number
    assert environment == {"CUDA_VISIBLE_DEVICES": shown}


def test_libraries_compile_into_a_folder_of_the_run(tmp_path: Path) -> None:
    environment = {"TORCHINDUCTOR_CACHE_DIR": "/warm", "HOME": "/home"}
    keep_compiled_in(tmp_path, environment)
    assert environment.pop("HOME") == "/home"
    assert set(environment) == {"TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUPY_CACHE_DIR"}
    assert {Path(value).parent for value in environment.values()} == {tmp_path}


def setup_in(folder: Path) -> Setup:
    return Setup(0, folder, PEERS, Protocol.COLD, folder / "bench.log", folder)


@dataclass
class Script:
    """What fake processes do.

    Attributes:
        crash, hang, lose: pairs of a case and a contender, or a contender alone.
        started: how many processes there were.
        killed: how many of them were killed.
        orders: every order.
        seconds: what went into tuning, by order.
        meanwhile: called at every order.
        setups: of every process.
        ready: seconds that every contender took to get ready.
        processes: how many can begin; None: any number.
        note: of our rows.
        later: what a contender begins and crashes at when its row is there.
        idle: cases before which the process has ended; each is taken out as it happens.
    """

    crash: frozenset[str] = frozenset()
    hang: frozenset[str] = frozenset()
    lose: frozenset[str] = frozenset()
    opening: Message = OPENED
    started: int = 0
    killed: int = 0
    orders: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None
    setups: list[Setup] = field(default_factory=list)
    ready: float | None = None
    processes: int | None = None
    note: str = ""
    later: dict[str, Begun] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)

    def start(self, setup: Setup) -> FakeLine:
        self.setups.append(setup)
        self.started += 1
        return FakeLine(self)


class FakeLine:
    """A line to a process that follows a script."""

    ended = "signal 11"

    def __init__(self, script: Script) -> None:
        self._script = script
        comes_back = script.processes is None or script.started <= script.processes
        self._messages: Iterator[Message | None] = iter([script.opening if comes_back else Refused("no GPU")])

    def send(self, order: Order | None) -> None:
        if order is not None:
            self._script.meanwhile()
            self._script.orders.append((order.case.name, order.peers))
            self._script.seconds.append(order.seconds)
            self._messages = self._follow(order)

    def receive(self, seconds: float) -> Message | None:
        assert seconds > 0
        return next(self._messages)

    def kill(self) -> None:
        self._script.killed += 1

    def _follow(self, order: Order) -> Iterator[Message | None]:
        case = order.case
        if case.name in self._script.idle:
            self._script.idle.remove(case.name)
            raise EOFError
        for name in (OURS, *order.peers):
            yield Begun(name, "timing", 5.0)
            for what in (name, f"{case.name} {name}"):
                if what in self._script.crash:
                    raise EOFError
                if what in self._script.hang:
                    yield None
                if what in self._script.lose:
                    yield Lost("an illegal address")
            ratio = 1.0 if name == OURS else 2.0
            row = Row(case.family.name, case.name, name, "cold", 1.0, ratio, ratio, ratio, ratio, 0.5, "WIN", pairs=30)
            note = self._script.note if name == OURS else ""
            yield Found(replace(row, seconds=self._script.ready, note=note))
            if name in self._script.later:
                yield self._script.later[name]
                raise EOFError
        yield Finished()


def rows_of(script: Script, folder: Path, **options: Any) -> tuple[dict[tuple[str, str], Row], Bench]:
    bench = Bench(setup_in(folder), script.start)
    bench.open()
    rows = {(row.case, row.peer): row for _, found in bench.rows(CASES, **options) for row in found}
    return rows, bench


def test_one_process_measures_everything(tmp_path: Path) -> None:
    script = Script()
    rows, _ = rows_of(script, tmp_path)
    assert script.started == script.killed == 1
    assert len(rows) == len(CASES) * (1 + len(PEERS))
    assert all(row.verdict == "WIN" for row in rows.values())


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ("crash", "crashed while timing: signal 11"),
        ("hang", "hung for 5 s while timing"),
        ("lose", "took the device down while timing: an illegal address"),
    ],
)
def test_the_run_goes_on_in_a_new_process_without_the_peer(tmp_path: Path, how: str, note: str) -> None:
    script = Script()
    setattr(script, how, frozenset({f"{CASES[1].name} cub"}))
    rows, _ = rows_of(script, tmp_path)
    assert script.started == script.killed == 2
    row = rows[CASES[1].name, "cub"]
    assert (row.verdict, row.note) == ("-", note)
    assert all(row.verdict == "WIN" for key, row in rows.items() if key != (CASES[1].name, "cub"))
    assert len(rows) == len(CASES) * (1 + len(PEERS))
    assert script.orders[2] == (CASES[1].name, ("jax",))  # torch had its turn


def test_a_peer_that_crashes_again_and_again_is_left_out(tmp_path: Path) -> None:
    script = Script(crash=frozenset({"torch"}))
    rows, _ = rows_of(script, tmp_path)
    assert script.started == 1 + MOST_STRIKES
    notes = [rows[case.name, "torch"].note for case in CASES]
    assert [note.startswith("crashed") for note in notes] == [True] * MOST_STRIKES + [False] * 2
    assert notes[-1] == f"left out: it took its process down {MOST_STRIKES} times before in this run"
    assert all(rows[case.name, "jax"].verdict == "WIN" for case in CASES)


def test_rows_stay_where_the_device_does_not_come_back(tmp_path: Path) -> None:
    script = Script(lose=frozenset({f"{CASES[1].name} cub"}), processes=1)
    rows, bench = rows_of(script, tmp_path)
    case = CASES[1].name
    assert rows[case, OURS].verdict == rows[case, "torch"].verdict == "WIN"
    assert rows[case, "cub"].note == (
        "took the device down while timing: an illegal address; after that the device did not come back"
    )
    assert (case, "jax") not in rows
    assert bench.left_out == list(CASES[2:])
    assert "cub took the device down while timing: an illegal address on sum f32 20" in str(bench.lost)


def test_a_device_that_our_own_kernel_took_down_is_told_of_after_its_row(tmp_path: Path) -> None:
    script = Script(crash=frozenset({f"{CASES[1].name} {OURS}"}), processes=1)
    rows, bench = rows_of(script, tmp_path)
    assert rows[CASES[1].name, OURS].note == "crashed while timing: signal 11"
    assert {case for case, _ in rows} == {CASES[0].name, CASES[1].name}
    assert bench.left_out == list(CASES[2:])
    assert f"gen crashed while timing: signal 11 on {CASES[1].name}" in str(bench.lost)


def test_our_own_crash_is_a_row_and_the_next_case_has_its_turn(tmp_path: Path) -> None:
    script = Script(crash=frozenset({f"{CASES[0].name} {OURS}"}))
    rows, _ = rows_of(script, tmp_path)
    assert rows[CASES[0].name, OURS].note.startswith("crashed")
    assert (CASES[0].name, "torch") not in rows
    assert rows[CASES[1].name, OURS].verdict == "WIN"


@pytest.mark.parametrize("who", [OURS, "torch"])
def test_a_crash_under_another_protocol_leaves_what_was_timed_under_this_one(tmp_path: Path, who: str) -> None:
    script = Script(later={who: Begun(who, "timing", 5.0, "hot")})
    bench = Bench(setup_in(tmp_path), script.start)
    bench.open()
    ((_, found),) = bench.rows(CASES[:1])
    rows = {(row.peer, row.protocol): row for row in found}
    assert (rows[who, "cold"].verdict, rows[who, "cold"].note) == ("WIN", "")
    assert (rows[who, "hot"].verdict, rows[who, "hot"].note) == ("-", "crashed while timing: signal 11")


def test_a_crash_after_it_was_timed_is_a_note(tmp_path: Path) -> None:
    rows, _ = rows_of(Script(later={"torch": Begun("torch", "timing", 5.0, "cold")}), tmp_path)
    row = rows[CASES[0].name, "torch"]
    assert (row.verdict, row.note) == ("WIN", "crashed while timing: signal 11")
    assert rows[CASES[0].name, "cub"].verdict == "WIN"


def test_nobody_is_blamed_for_a_process_that_ended_between_cases(tmp_path: Path) -> None:
    script = Script(idle={CASES[1].name})
    rows, _ = rows_of(script, tmp_path)
    assert script.started == 2
    assert len(rows) == len(CASES) * (1 + len(PEERS))
    assert all(row.verdict == "WIN" for row in rows.values())
    lost, bench = rows_of(Script(idle={CASES[1].name}, processes=1), tmp_path)
    assert {case for case, _ in lost} == {CASES[0].name}
    assert bench.left_out == list(CASES[1:])
    assert f"its process crashed while beginning: signal 11 on {CASES[1].name}" in str(bench.lost)


def test_what_the_budget_does_not_reach_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 10))  # every look at the clock is 10 s later
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    rows, bench = rows_of(Script(), tmp_path, budget=45)
    assert {case for case, _ in rows} == {CASES[0].name, CASES[1].name}
    assert bench.left_out == list(CASES[2:])


def test_each_case_is_tuned_right_before_it_is_measured(tmp_path: Path) -> None:
    script = Script()
    seen: list[tuple[str, int]] = []

    def tune(case: Case) -> float:
        seen.append((case.name, len(script.orders)))
        if case == CASES[1]:
            raise CompileError("base", "a.cu(3): error: no\n    int x", tmp_path / "base.cu")
        return 2.5

    rows, _ = rows_of(script, tmp_path, tune=tune)
    assert seen == [(CASES[0].name, 0), (CASES[1].name, 1), (CASES[2].name, 1), (CASES[3].name, 2)]
    assert script.seconds == [2.5] * 3
    assert rows[CASES[1].name, OURS].note == "failed: base does not compile: a.cu(3): error: no"
    assert len(rows) == 3 * (1 + len(PEERS)) + 1


def test_a_device_that_is_lost_while_a_case_is_tuned_ends_the_run_and_breaks_no_row(tmp_path: Path) -> None:
    outcome: Any = None

    def tune(case: Case) -> float:
        if case == CASES[1]:
            raise LostError(RunError("The GPU", "answers no more"), outcome)
        return 1.0

    rows, bench = rows_of(Script(), tmp_path, tune=tune)
    assert {case for case, _ in rows} == {CASES[0].name}
    assert bench.left_out == list(CASES[1:])
    assert f"ended early: the GPU was lost while {CASES[1].name} was tuned (got The GPU answers no" in str(bench.lost)


def test_winners_that_cannot_be_kept_are_no_fault_of_a_case(tmp_path: Path) -> None:
    def tune(_: Case) -> float:
        raise StoreError("tuned.json", "must have schema 1")

    with pytest.raises(StoreError):
        rows_of(Script(), tmp_path, tune=tune)


@pytest.mark.parametrize("opening", [Refused("there is no GPU"), Finished()])
def test_a_process_that_cannot_begin_is_an_error(tmp_path: Path, opening: Message) -> None:
    script = Script(opening=opening)
    with pytest.raises(DeviceError, match=r"The benchmark cannot begin: "):
        Bench(setup_in(tmp_path), script.start).open()
    assert script.killed == 1


def test_the_log_is_named_where_the_process_that_could_not_begin_printed_to_it(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    script = Script(opening=Refused("there is no GPU"))

    def start(setup: Setup) -> FakeLine:
        with setup.log.open("a") as file:
            file.write("a library's own words\n")
        return script.start(setup)

    for begin, ends in ((script.start, "there is no GPU"), (start, f"See {setup.log}"), (script.start, "is no GPU")):
        with pytest.raises(DeviceError) as caught:
            Bench(setup, begin).open()
        assert str(caught.value).endswith(ends)


def _obeys(connection: Any, _: Setup) -> None:
    connection.send(OPENED)
    while (order := connection.recv()) is not None:
        for name in order.peers:
            connection.send(Begun(name, "timing", 0.5))
            if name == "cub":
                os.kill(os.getpid(), signal.SIGSEGV)
            if name == "jax":
                time.sleep(60)
            row = Row(order.case.family.name, order.case.name, name, "cold", verdict="WIN")
            connection.send(Found(row))
        connection.send(Finished())


def test_real_processes_crash_hang_and_end(tmp_path: Path) -> None:
    lines: list[ChildLine] = []

    def start(setup: Setup) -> ChildLine:
        lines.append(ChildLine(setup, _obeys))
        return lines[-1]

    bench = Bench(setup_in(tmp_path), start)
    bench.open()
    begun = time.monotonic()
    ((_, rows),) = bench.rows(CASES[:1])
    assert {row.peer: row.note for row in rows} == {
        "torch": "", "cub": "crashed while timing: signal 11", "jax": "hung for 0 s while timing"
    }  # fmt: skip
    assert time.monotonic() - begun < 50, "it waited for a process that hangs"
    assert len(lines) == 3


def _imports(connection: Any, setup: Setup) -> None:
    for name in setup.peers:
        connection.send(Begun(name, "importing it", 0.5))
        if name == "torch":
            time.sleep(60)
        if name == "cub":
            os.kill(os.getpid(), signal.SIGSEGV)
    connection.send(replace(OPENED, missing={"plain": "no"}))
    _follows(connection)


def _follows(connection: Any) -> None:
    while (order := connection.recv()) is not None:
        for name in order.peers:
            connection.send(Found(Row(order.case.family.name, order.case.name, name, "cold", verdict="WIN")))
        connection.send(Finished())


def test_a_peer_that_takes_its_process_down_as_it_is_imported_is_missing(tmp_path: Path) -> None:
    bench = Bench(setup_in(tmp_path), partial(ChildLine, target=_imports))
    assert bench.open().missing == {
        "torch": "its process hung for 0 s while importing it",
        "cub": "its process crashed while importing it: signal 11",
        "plain": "no",
    }  # fmt: skip
    ((_, rows),) = bench.rows(CASES[:1])
    assert [row.peer for row in rows] == ["jax"]


def test_whose_library_is_imported_is_told_first(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Message] = []
    known = tuple(peer.name for peer in LIBRARIES)

    def version(name: str) -> str:
        assert isinstance(told[-1], Begun)
        assert (told[-1].who, told[-1].what) == (name, "importing it")
        if name == known[1]:
            raise OSError("libcublas.so.13: undefined symbol")
        return "1"

    monkeypatch.setattr(worker, "PEERS", [SimpleNamespace(name=name, version=partial(version, name)) for name in known])
    peers, versions, missing = worker.import_peers(known, told.append)
    assert list(versions) == list(peers) == [name for name in known if name != known[1]]
    assert missing == {known[1]: "OSError: libcublas.so.13: undefined symbol"}
    assert isinstance(told[-1], Begun)
    assert told[-1].who == OURS, "what follows is no peer's"


HANGING = """
import os, sys, time
from pathlib import Path
from bench.run import ChildLine
from bench.worker import Begun, end_with_parent

def hangs(connection, _):
    end_with_parent()
    connection.send(Begun(str(os.getpid()), "", 1.0))
    time.sleep(300)

if __name__ == "__main__":
    print(ChildLine(None, hangs).receive(60).who, flush=True)
    time.sleep(300)
"""


def test_a_process_that_hangs_does_not_outlive_a_run_that_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "hanging.py"
    program.write_text(HANGING)
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        child = int(run.stdout.readline())
        run.terminate()
    end = time.monotonic() + 60
    while _runs(child) and time.monotonic() < end:
        time.sleep(0.05)
    left = _runs(child)
    if left:
        os.kill(child, signal.SIGKILL)
    assert not left


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_machine_without_a_gpu_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(DeviceError, match="The benchmark cannot begin: An NVIDIA GPU with its driver"):
        Bench(setup_in(tmp_path)).open()
