"""A case on a device of host memory: what is checked, what is timed, and what the rows say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import meeting, ours
from bench.arena import Arena
from bench.arrays import Shared
from bench.meeting import in_parts
from bench.messages import Begun, Found, Message
from bench.offers import problem_of
from bench.ours import NOTHING_BASE, NOTHING_OFTEN
from bench.peers import find
from bench.peers.base import MOST_PLACES, Contender, NotOfferedError, Peer, Place
from bench.ring import LostError
from bench.rows import OURS, Row
from bench.verdicts import BLOCK, FEWEST, MOST, turns
from bench.works import Case, Permute, Reduce, Sweep
from gen.dtypes import F16, F32, I32, DType
from gen.errors import CompileError, RunError
from gen.families import FAMILIES
from gen.families.names import base_variants, space, variant
from gen.gpu.timing import Protocol, Sample
from gen.store.tuned import Winner, text_of_winners
from tests import fake_libraries
from tests.fake_ring import FakeRing, view
from tests.fakes import OracleRunner

MATRIX = Case(Permute((1, 0)), F32, (700, 600))  # large enough to be compared on the device
SMALL = Case(Permute((1, 0)), F32, (7, 6))
SUM = Case(Reduce(("sum",)), F32, (1000,))


class FakePeer:
    """Transposes or adds as it is told to.

    Attributes:
        spoil: changes the result.
        fail: raised when it is made ready.
    """

    def __init__(
        self, name: str = "other", spoil: Callable[[Any], None] = lambda _: None, fail: Exception | None = None,
        *, captured: bool = True, dtype: DType = F32, late: Exception | None = None, shut: Exception | None = None,
    ) -> None:  # fmt: skip
        self.name, self.spoil, self.fail, self.captured = name, spoil, fail, captured
        self.dtype, self.late, self.shut = dtype, late, shut
        self.launches = self.closed = 0

    def version(self) -> str:
        return "1"

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        if self.fail is not None:
            raise self.fail
        matrix = isinstance(case.work, Permute)
        out = place.array(case.shape[::-1] if matrix else (), self.dtype)

        def launch() -> Sequence[Any]:
            self.launches += 1
            if self.late is not None and self.launches > 3:
                raise self.late
            view(out)[...] = view(source).T if matrix else view(source).sum()
            self.spoil(view(out))
            return (out,)

        def close() -> None:
            self.closed += 1
            if self.shut is not None:
                raise self.shut

        return Contender(launch, nullcontext if self.captured else None, "adds backwards", close=close)


@pytest.fixture(autouse=True)
def _cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "WARM_UP_US", 100.0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tuned.json").write_text('{"schema": 1, "winners": []}', encoding="utf-8")
    return tmp_path


def run(
    home: Path, case: Case, *peers: Peer, ring: FakeRing | None = None, protocol: Protocol = Protocol.COLD,
) -> tuple[list[Row], list[Message]]:  # fmt: skip
    told: list[Message] = []
    Arena(ring or FakeRing(), FAMILIES, home, protocol, told.append).run(case, peers)
    return [message.row for message in told if isinstance(message, Found)], told


@pytest.mark.parametrize("case", [MATRIX, SMALL, SUM], ids=lambda case: case.name)
def test_a_right_peer_is_timed_against_ours(home: Path, case: Case) -> None:
    peer = FakePeer()
    ring = FakeRing(times=(40.0, 50.0))
    (ours, row), told = run(home, case, peer, ring=ring)
    assert (ours.peer, ours.verdict, ours.note) == (OURS, "-", NOTHING_BASE)
    assert (row.peer, row.ours_us, row.peer_us, row.ratio, row.verdict) == ("other", 40, 50, 1.25, "WIN")
    assert row.of_limit == pytest.approx(5 / 40)
    assert row.note == "adds backwards"
    assert row.pairs == ours.pairs == MOST
    assert row.variant == ours.variant
    assert row.seconds is not None
    assert peer.closed == 1
    assert [message.who for message in told if isinstance(message, Begun)] == [OURS] * 3 + ["other"] * 3
    assert not ring.graphs


def test_under_20_us_a_launch_in_a_graph_is_timed_too(home: Path) -> None:
    ring = FakeRing(times=(10.0, 9.0))
    rows, told = run(home, SUM, FakePeer(), ring=ring)
    assert [(row.peer, row.protocol) for row in rows] == [
        (OURS, "cold"), (OURS, "hot"), ("other", "cold"), ("other", "hot")
    ]  # fmt: skip
    assert rows[3].ours_us == 10
    assert rows[3].verdict == "LOSS"
    steps = [(step.who, step.protocol) for step in told if isinstance(step, Begun) and step.what == "timing"]
    assert steps == [(row.peer, row.protocol) for row in rows]
    assert {protocol for protocol, _ in ring.turns} == {Protocol.COLD, Protocol.HOT}
    assert not ring.graphs, "a graph was not closed"


@pytest.mark.parametrize("captures", [6, 7, 9])
def test_a_graph_of_torch_compile_that_fails_leaves_what_was_timed_cold(
    home: Path, captures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_libraries.install(monkeypatch)
    rows, _ = run(home, SUM, find("torch.compile"), ring=FakeRing(times=(10.0, 9.0), captures=captures))
    found = {(row.peer, row.protocol): row for row in rows}
    assert found["torch.compile", "cold"].verdict == "LOSS"
    assert found["torch.compile", "hot"].note.startswith("failed: cuGraphInstantiate failed")


@pytest.mark.parametrize(("call_us", "seconds"), [(1e6, 120), (8e6, 312), (2e7, 600)])
def test_timing_slow_calls_may_take_as_long_as_they_do(home: Path, call_us: float, seconds: float) -> None:
    _, told = run(home, SUM, FakePeer(), ring=FakeRing(times=(30.0, call_us)))
    begun = [step for step in told if isinstance(step, Begun)]
    allowed = [step.seconds for step in begun if (step.who, step.what) == ("other", "timing")]
    assert allowed[0] == 120
    assert allowed[-1] == pytest.approx(seconds, rel=1e-3)


def test_a_peer_that_is_made_ready_several_times_says_how_long_one_took(home: Path) -> None:
    class Thrice(FakePeer):
        def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
            return replace(super().prepare(case, source, place), seconds=41.5)

    (_, row), _ = run(home, SUM, Thrice(), ring=FakeRing(times=(40.0, 50.0)))
    assert row.seconds == 41.5


def test_a_difference_within_the_noise_is_a_tie(home: Path) -> None:
    for again, word in ((1.0, "WIN"), (1.2, "WIN"), (0.75, "TIE"), (1.3, "TIE")):
        rows, _ = run(home, SUM, FakePeer(), ring=FakeRing(times=(40.0, 50.0), again=again))
        assert rows[0].noise == pytest.approx(abs(again - 1))
        assert rows[1].verdict == word
        assert rows[1].against(rows[0].noise) == word


def test_a_time_of_ours_beside_a_peer_that_is_not_the_one_beside_itself_is_noted(home: Path) -> None:
    (_, steady), _ = run(home, SUM, FakePeer(), ring=FakeRing(times=(40.0, 50.0), beside=0.96))
    assert steady.note == "adds backwards"
    (_, moody), _ = run(home, SUM, FakePeer(), ring=FakeRing(times=(40.0, 50.0), beside=0.9))
    assert moody.note == "adds backwards; gen took 36 us beside it, 40 us beside itself"


def test_results_go_to_several_places_in_turn_and_graphs_are_several(home: Path) -> None:
    ring = FakeRing(times=(10.0, 9.0))
    before = ring.captures
    run(home, SUM, FakePeer(), ring=ring)
    assert before - ring.captures == 3 * meeting.CAPTURES, "ours, ours again, and the peer's"
    outputs = {launched.addresses["out"] for launched in ring.backend.launched}
    assert len(outputs) == 2 * MOST_PLACES


def test_each_block_of_pairs_meets_in_other_memory() -> None:
    mine, others = ([Sample(lambda: None) for _ in range(count)] for count in (3, 3))
    timed = [sample for part in in_parts(mine, others, 200) for sample in part]
    assert len(timed) == 400
    assert [sample in others for sample in timed] == list(turns(200))
    meetings = set()
    for start in range(0, 400, 2 * BLOCK):
        block = timed[start : start + 2 * BLOCK]
        (one,) = {mine.index(sample) for sample in block if sample in mine}
        (other,) = {others.index(sample) for sample in block if sample in others}
        meetings.add((one, other))
    assert len(meetings) == 9, "everyone meets everyone"


@pytest.mark.parametrize("captures", [0, 1, 3, 5])
def test_a_graph_of_ours_that_fails_leaves_what_was_timed_cold(home: Path, captures: int) -> None:
    ring = FakeRing(times=(10.0, 9.0), captures=captures)
    rows, _ = run(home, SUM, FakePeer(), ring=ring)
    found = {(row.peer, row.protocol): row for row in rows}
    assert found[OURS, "cold"].ours_us == 10
    assert found["other", "cold"].verdict == "LOSS"
    assert found[OURS, "hot"].note.startswith("failed: cuGraphInstantiate failed")
    assert ("other", "hot") not in found
    assert not ring.graphs


def test_a_graph_of_a_peer_that_fails_leaves_what_was_timed_cold(home: Path) -> None:
    ring = FakeRing(times=(10.0, 9.0), captures=2 * meeting.CAPTURES + 1)
    rows, _ = run(home, SUM, FakePeer(), FakePeer("next", captured=False), ring=ring)
    found = {(row.peer, row.protocol): row for row in rows}
    assert found["other", "cold"].verdict == "LOSS"
    assert found["other", "hot"].note.startswith("failed: cuGraphInstantiate failed")
    assert found["next", "cold"].verdict == "LOSS"
    assert not ring.graphs


@pytest.mark.parametrize("fault", [RunError("cublasDestroy", "failed"), ValueError("double free")])
def test_a_fault_in_closing_is_a_note_of_that_peer(home: Path, fault: Exception) -> None:
    ring = FakeRing(times=(40.0, 50.0))
    rows, _ = run(home, SUM, FakePeer("bad", shut=fault), FakePeer("good"), ring=ring)
    found = {row.peer: row for row in rows}
    assert found[OURS].ours_us == 40
    assert (found["bad"].verdict, found["good"].verdict) == ("WIN", "WIN")
    assert found["bad"].note.startswith("adds backwards; closing it failed: ")
    assert found["good"].note == "adds backwards"


def test_who_cannot_be_captured_is_timed_cold_and_says_so(home: Path) -> None:
    rows, _ = run(home, SUM, FakePeer(captured=False))
    assert [(row.protocol, row.verdict, row.note) for row in rows[2:]] == [
        ("cold", "WIN", "adds backwards"), ("hot", "-", "cannot be captured in a graph")
    ]  # fmt: skip


@pytest.mark.parametrize("protocol", list(Protocol))
def test_the_protocol_asked_for_is_used(home: Path, protocol: Protocol) -> None:
    ring = FakeRing(times=(30.0, 30.0))
    rows, _ = run(home, SUM, FakePeer(), ring=ring, protocol=protocol)
    assert {row.protocol for row in rows} == {protocol.value}
    assert {used for used, _ in ring.turns} == {protocol}


LOG = "a.cu(2): warning: what\n\na.cu(3): error: no\n    int x\n"


def _one_element(out: Any) -> None:
    out[(0,) * out.ndim] += 1


@pytest.mark.parametrize("case", [MATRIX, SMALL, SUM], ids=lambda case: case.name)
def test_a_wrong_peer_is_not_timed(home: Path, case: Case) -> None:
    rows, told = run(home, case, FakePeer(spoil=_one_element))
    row = rows[-1]
    assert row.note.startswith("wrong: out")
    assert (row.verdict, row.ratio, row.peer_us) == ("-", None, None)
    assert [message.what for message in told if isinstance(message, Begun) and message.who == "other"] == [
        "getting ready", "checking"
    ]  # fmt: skip


def test_a_result_of_another_shape_is_wrong(home: Path) -> None:
    class Flat(FakePeer):
        def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
            made = super().prepare(case, source, place)
            return replace(made, launch=lambda: [place.array((5,), F32)])

    rows, _ = run(home, SMALL, Flat())
    assert rows[-1].note.startswith("wrong: out: its shape is (5,), not (6, 7)")


def test_another_type_of_the_same_value_is_said(home: Path) -> None:
    rows, _ = run(home, SUM, FakePeer(dtype=I32))
    assert rows[-1].verdict == "WIN"
    assert rows[-1].note == "adds backwards; gives int32, gen f32"


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (NotOfferedError("It", "has no such thing"), "not offered: It has no such thing"),
        (RuntimeError("no kernel\nimage"), "failed: RuntimeError: no kernel"),
        (RunError("CUB", "failed", "status 3"), "failed: CUB failed (got status 3)"),
        (MemoryError(), "failed: MemoryError: "),
        (
            CompileError("CUB's sum", LOG, Path("/kept/cub.cu")),
            "failed: CUB's sum does not compile: a.cu(3): error: no",
        ),
    ],
)
def test_a_peer_that_cannot_is_a_row_and_the_next_has_its_turn(home: Path, error: Exception, note: str) -> None:
    ring = FakeRing(times=(30.0, 33.0))
    rows, _ = run(home, SUM, FakePeer("bad", fail=error), FakePeer("good"), ring=ring)
    assert [(row.peer, row.verdict) for row in rows[1:]] == [("bad", "-"), ("good", "WIN")]
    assert rows[1].note == note


def test_a_peer_that_fails_while_it_is_timed_is_closed(home: Path) -> None:
    peer = FakePeer(late=ValueError("gone"))
    rows, _ = run(home, SUM, peer)
    assert rows[-1].note == "failed: ValueError: gone"
    assert peer.closed == 1


def test_a_lost_device_is_not_taken_for_an_error_of_the_peer(home: Path) -> None:
    ring = FakeRing()

    def lose(_: Any) -> None:
        ring.lost = True

    with pytest.raises(LostError, match="an illegal address"):
        run(home, SUM, FakePeer(spoil=lose), ring=ring)


def test_a_case_that_gen_does_not_have_is_a_row(home: Path) -> None:
    (row,), _ = run(home, Case(Reduce(("kurtosis",)), F32, (64,)), FakePeer())
    assert row.peer == OURS
    assert row.note.startswith("not offered: ")
    assert "kurtosis" in row.note


def test_our_own_wrong_result_is_a_row_and_nobody_is_timed(home: Path) -> None:
    problem = problem_of(SMALL, FAMILIES)
    base = variant(problem.family, problem.spec, *problem.family.base(problem.spec, problem.shape_class))
    runner = OracleRunner(wrong=(base.name,))
    (row,), told = run(home, SMALL, FakePeer(), ring=FakeRing(runner=runner))
    assert row.note.startswith("wrong: out")
    assert not any(isinstance(message, Begun) and message.who == "other" for message in told)


def test_an_error_of_many_lines_is_a_note_of_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CompileError("base", LOG, home / "base.cu")

    monkeypatch.setattr(ours, "load", fail)
    (row,), _ = run(home, SMALL, FakePeer())
    assert row.note == "failed: base does not compile: a.cu(3): error: no"


def test_what_is_often_fast_is_not_called_base(home: Path) -> None:
    problem = problem_of(ONE_STEP, FAMILIES)
    told: list[Message] = []
    Arena(FakeRing(), FAMILIES, home, Protocol.COLD, told.append).run(ONE_STEP, [])
    row = next(message.row for message in told if isinstance(message, Found))
    assert row.variant not in {made.name for made in base_variants(problem.family, problem.spec)}
    assert (row.note, row.untuned) == (NOTHING_OFTEN, "untuned")


def test_the_tuned_variant_is_what_is_measured(home: Path) -> None:
    problem = problem_of(SMALL, FAMILIES)
    algorithm = problem.family.algorithms["naive"]
    made = variant(problem.family, problem.spec, algorithm, space(algorithm, problem.spec)[0])
    assert made not in base_variants(problem.family, problem.spec)
    winner = Winner("Fake GPU", problem.spec_name, problem.shape_class, made.name, {}, problem.region)
    (home / "tuned.json").write_text(text_of_winners([winner]), encoding="utf-8")
    told: list[Message] = []
    Arena(FakeRing(), FAMILIES, home, Protocol.COLD, told.append).run(SMALL, [], 12.0)
    row = next(message.row for message in told if isinstance(message, Found))
    assert (row.variant, row.note) == (made.name, "")
    assert row.seconds is not None
    assert row.seconds > 12


def test_slow_contenders_are_timed_less_often(home: Path) -> None:
    ring = FakeRing(times=(300_000.0, 700_000.0))
    rows, _ = run(home, SUM, FakePeer(), ring=ring)
    assert rows[-1].pairs == FEWEST


def test_a_clock_that_moved_is_looked_at_again_and_then_noted(home: Path) -> None:
    steady, jumping = [1980, 1980], [1980, 1700]
    ring = FakeRing(times=(900.0, 900.0), clocks=[*steady * 2, *jumping, *steady, *jumping, *jumping])
    (ours, row), _ = run(home, SUM, FakePeer(), ring=ring)
    assert ours.note == NOTHING_BASE
    assert row.note == "adds backwards; the clock moved from 1980 to 1700 MHz while this was timed"


STEPS = Case(Sweep("star", 2, 1, "frozen", 30), F32, (12, 15))  # more steps than NumPy is asked for
HALVES = Case(Sweep("box", 2, 1, "wrap", 5), F16, (40, 30))
ONE_STEP = Case(Sweep("star", 2, 1, "wrap"), F32, (12, 15))


@pytest.mark.parametrize("case", [STEPS, HALVES, ONE_STEP], ids=lambda case: case.name)
def test_stencils_of_any_number_of_steps_are_checked(home: Path, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_libraries.install(monkeypatch)
    ring = FakeRing(times=(40.0, 50.0))
    told: list[Message] = []
    Arena(ring, FAMILIES, home, Protocol.COLD, told.append).run(case, [find("torch")])
    ours, row = [message.row for message in told if isinstance(message, Found)]
    assert row.verdict == "WIN", row.note
    assert ours.variant.startswith(f"stencil_{case.work.label}_")
    assert ("in windows after 16 steps" in row.note) == (case is STEPS)
    assert not ring.graphs


@pytest.mark.parametrize("case", [STEPS, ONE_STEP], ids=lambda case: case.name)
def test_a_wrong_stencil_is_found_wherever_it_is_checked(
    home: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_libraries.install(monkeypatch)
    monkeypatch.setattr(sys.modules["torch"], "mul", lambda x, weight, out: np.multiply(x, 1.01 * weight, out=out))
    told: list[Message] = []
    Arena(FakeRing(), FAMILIES, home, Protocol.COLD, told.append).run(case, [find("torch")])
    row = [message.row for message in told if isinstance(message, Found)][-1]
    assert row.note.startswith("wrong: out: ")
    assert "cells are wrong" in row.note
