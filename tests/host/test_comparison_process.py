"""Comparisons survive every library: a process that crashes, hangs or loses the GPU costs that library its row."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.cases import reduce
from gen.compare.case import ComparisonCase
from gen.compare.comparison import ContenderStep
from gen.compare.gpu import LostError
from gen.compare.peers.base import Peer
from gen.compare.process import (
    MAX_STRIKES,
    Comparisons,
    import_peer,
    keep_compiled_in,
    print_to,
    show_only,
)
from gen.compare.row import OURS, Row
from gen.dtypes import F32
from gen.errors import MissingToolError
from gen.families.base import Limits
from gen.gpu.timing import Protocol
from gen.tune.device import IsolatedDevice
from gen.workers import Report
from tests.fake_process import FakePeer, FakeProcess

CASES = tuple(reduce(("sum",), F32, (n,)) for n in (10, 20, 30, 40))
PEERS = tuple(map(FakePeer, ("torch", "cub", "jax")))
FIRST = CASES[0].name


def rows_of(process: FakeProcess, cases: Sequence[ComparisonCase] = CASES) -> tuple[dict[Any, Row], Comparisons]:
    """The rows by case, peer and protocol."""
    comparisons = Comparisons(process, PEERS, Protocol.COLD, Path())
    return {row.key[1:]: row for case in cases for row in comparisons.rows(case)}, comparisons


@pytest.mark.parametrize(
    ("how", "note"),
    [
        ("crash", "crashed while timing: the process died of it"),
        ("hang", "hung while timing: it did not end within 5 s"),
        ("lose", "took the device down while timing: The GPU no longer answers (got an illegal address)"),
    ],
)
def test_the_case_goes_on_without_the_peer_and_the_others_are_as_they_were(how: str, note: str) -> None:
    process = FakeProcess(**{how: frozenset({f"{FIRST} cub"})})  # type: ignore[arg-type]
    rows, _ = rows_of(process)
    assert (rows[FIRST, "cub", "cold"].verdict, rows[FIRST, "cub", "cold"].note) == ("-", note)
    assert all(row.verdict == "WIN" for key, row in rows.items() if key != (FIRST, "cub", "cold"))
    assert len(rows) == len(CASES) * (1 + len(PEERS))
    assert process.orders[:2] == [(FIRST, ("torch", "cub", "jax")), (FIRST, ("jax",))]
    assert not rows[FIRST, "cub", "cold"].is_done


def test_a_peer_that_crashes_again_and_again_is_left_out() -> None:
    rows, _ = rows_of(FakeProcess(crash=frozenset({"torch"})))
    notes = [rows[case.name, "torch", "cold"].note for case in CASES]
    assert [note.startswith("crashed") for note in notes] == [True] * MAX_STRIKES + [False] * 2
    assert notes[-1] == f"left out: it took its process down {MAX_STRIKES} times before in this run"
    assert all(rows[case.name, "jax", "cold"].verdict == "WIN" for case in CASES)


def test_our_own_crash_is_a_row_and_the_next_case_has_its_turn() -> None:
    rows, _ = rows_of(FakeProcess(crash=frozenset({f"{FIRST} {OURS}"})))
    assert rows[FIRST, OURS, "cold"].note.startswith("crashed")
    assert (FIRST, "torch", "cold") not in rows
    assert rows[CASES[1].name, OURS, "cold"].verdict == "WIN"


@pytest.mark.parametrize("who", [OURS, "torch"])
def test_a_crash_under_another_protocol_leaves_what_was_timed_under_this_one(who: str) -> None:
    rows, _ = rows_of(FakeProcess(late={who: ContenderStep(who, "timing", "hot")}), CASES[:1])
    assert (rows[FIRST, who, "cold"].verdict, rows[FIRST, who, "cold"].note) == ("WIN", "")
    assert rows[FIRST, who, "hot"].note == "crashed while timing: the process died of it"


def test_a_crash_after_it_was_timed_is_a_note() -> None:
    rows, _ = rows_of(FakeProcess(late={"torch": ContenderStep("torch", "timing", "cold")}), CASES[:1])
    row = rows[FIRST, "torch", "cold"]
    assert (row.verdict, row.note) == ("WIN", "crashed while timing: the process died of it")
    assert rows[FIRST, "cub", "cold"].verdict == "WIN"


def test_rows_stay_where_no_process_can_begin_any_more() -> None:
    rows, comparisons = rows_of(FakeProcess(lose=frozenset({f"{FIRST} cub"}), processes=1), CASES[:1])
    assert rows[FIRST, OURS, "cold"].verdict == rows[FIRST, "torch", "cold"].verdict == "WIN"
    assert rows[FIRST, "cub", "cold"].note.startswith("took the device down")
    assert (FIRST, "jax", "cold") not in rows
    assert "cannot be used" in str(comparisons.lost)


def test_a_peer_that_cannot_be_imported_is_missing() -> None:
    _, comparisons = rows_of(FakeProcess(missing={"cub": "no nvcc"}))
    assert comparisons.missing == {"cub": "no nvcc"}
    assert comparisons.versions == {"torch": "1", "jax": "1"}


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MissingToolError("nvcc", "is needed"), "nvcc is needed"),
        (OSError("undefined symbol"), "OSError: undefined symbol"),
    ],
)
def test_whatever_goes_wrong_as_a_library_is_imported_is_told(error: Exception, reason: str) -> None:
    class Broken(FakePeer):
        def version(self) -> str:
            raise error

    bench: Any = None
    assert import_peer(bench, bench, Broken("x")) == ("", reason)
    assert import_peer(bench, bench, FakePeer("y")) == ("1", "")


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


class NoBench:
    """What a process of the test below holds."""

    name, driver, about = "Fake GPU", "1", None
    limits = Limits.of("sm_90")

    def __init__(self, log: Path) -> None:
        self.log = log

        self.lost = False

    def __call__(self) -> NoBench:
        print_to(self.log)
        return self

    def alive(self) -> bool:
        return not self.lost


def misbehaves(
    bench: NoBench,
    report: Report,
    case: ComparisonCase,
    peers: Sequence[Peer],
    caches: Protocol,
    *_home_and_seconds: Any,
) -> None:
    """A job that prints, crashes and hangs."""
    for name in (OURS, *(peer.name for peer in peers)):
        report(ContenderStep(name, "timing"), 1.0)
        os.write(1, b"a library's own words\n")
        if name == "cub":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "cupy":
            bench.lost = True
            raise LostError("The GPU", "no longer answers")
        if name == "jax":
            time.sleep(60)
        report(Row(case.family.name, case.name, name, caches.value, verdict="WIN"))


def test_real_processes_crash_hang_and_print_elsewhere(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    factory: Any = NoBench(tmp_path / "log")
    begun = time.monotonic()
    with IsolatedDevice(factory) as device:
        comparisons = Comparisons(device, (*PEERS, FakePeer("cupy")), Protocol.COLD, tmp_path, misbehaves)
        notes = {row.peer: row.note for row in comparisons.rows(CASES[0])}
        assert device.restarts == 3, "each of them costs the process"
    assert notes[OURS] == notes["torch"] == ""
    assert notes["cub"].startswith("crashed while timing: ")
    assert notes["jax"] == "hung while timing: it did not end within 1 s"
    assert notes["cupy"] == "took the device down while timing: The GPU no longer answers"
    assert time.monotonic() - begun < 50, "it waited for a process that hangs"
    assert capfd.readouterr().out == ""
    assert (tmp_path / "log").read_text().count("own words") == 8
