"""A case on a GPU of host memory: what is checked, what is timed, and what the rows say."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cases import permute, reduce, sweep
from bench.peers import PEERS
from bench.stencils import checks_of
from gen.compare import comparison
from gen.compare.case import ComparisonCase
from gen.compare.comparison import Comparison, ContenderStep, in_parts
from gen.compare.gpu import LostError
from gen.compare.peers import find_peers
from gen.compare.peers.base import MAX_PLACES, Contender, NotOfferedError, Peer, SharedArray
from gen.compare.row import MAX_PAIRS, MIN_PAIRS, OURS, PAIRS_PER_BLOCK, Row, abba
from gen.dtypes import F16, F32, I32, DType
from gen.errors import CompileError, RunError
from gen.families import FAMILIES
from gen.families.names import base_variants, find_family, search_space, variant
from gen.families.transpose import TransposeSpec, permutation
from gen.gpu.timing import Protocol, Sample
from gen.store.winners import Winner, text_of_winners
from tests import fake_libraries
from tests.fake_comparison import FakeGpu, view
from tests.fakes import OracleRunner
from tests.outside.scan_family.scan import Scan

MATRIX = permute((1, 0), F32, (700, 600))  # large enough to be compared on the GPU
SMALL = permute((1, 0), F32, (7, 6))
SUM = reduce(("sum",), F32, (1000,))
BASE_NOTE = "base: nothing is tuned for it on this device"


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

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: FakeGpu) -> Contender:
        if self.fail is not None:
            raise self.fail
        matrix = isinstance(case.spec, TransposeSpec)
        out = gpu.array(case.shape[::-1] if matrix else (), self.dtype)

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
    monkeypatch.setattr(comparison, "WARM_UP_US", 100.0)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "tuned.json").write_text('{"schema": 1, "winners": []}', encoding="utf-8")
    return tmp_path


def run(
    home: Path, case: ComparisonCase, *peers: Peer, gpu: FakeGpu | None = None, protocol: Protocol = Protocol.COLD,
    tuned_seconds: float = 0.0,
) -> tuple[list[Row], list[tuple[ContenderStep, float]]]:  # fmt: skip
    """The rows of a case, and every step with the seconds that it may take."""
    rows: list[Row] = []
    steps: list[tuple[ContenderStep, float]] = []

    def report(message: ContenderStep | Row, seconds: float | None = None) -> None:
        if isinstance(message, Row):
            rows.append(message)
        else:
            assert seconds is not None
            steps.append((message, seconds))

    Comparison(gpu or FakeGpu(), case, protocol, report, checks_of).run(peers, home, tuned_seconds)
    return rows, steps


@pytest.mark.parametrize("case", [MATRIX, SMALL, SUM], ids=lambda case: case.name)
def test_a_right_peer_is_timed_against_ours(home: Path, case: ComparisonCase) -> None:
    peer = FakePeer()
    gpu = FakeGpu(times=(40.0, 50.0))
    (ours, row), steps = run(home, case, peer, gpu=gpu)
    assert (ours.peer, ours.verdict) == (OURS, "-")
    assert ours.note.endswith("nothing is tuned for it on this device")
    assert (row.peer, row.ours_us, row.peer_us, row.ratio, row.verdict) == ("other", 40, 50, 1.25, "WIN")
    assert row.of_limit == pytest.approx(5 / 40)
    assert row.note == "adds backwards"
    assert row.pairs == ours.pairs == MAX_PAIRS
    assert row.variant == ours.variant
    assert row.seconds is not None
    assert peer.closed == 1
    assert [step.who for step, _ in steps] == [OURS] * 3 + ["other"] * 3
    assert not gpu.graphs


def test_under_20_us_a_launch_in_a_graph_is_timed_too(home: Path) -> None:
    gpu = FakeGpu(times=(10.0, 9.0))
    rows, told = run(home, SUM, FakePeer(), gpu=gpu)
    assert [(row.peer, row.protocol) for row in rows] == [
        (OURS, "cold"), (OURS, "hot"), ("other", "cold"), ("other", "hot")
    ]  # fmt: skip
    assert rows[3].ours_us == 10
    assert rows[3].verdict == "LOSS"
    steps = [(step.who, step.protocol) for step, _ in told if step.what == "timing"]
    assert steps == [(row.peer, row.protocol) for row in rows]
    assert {protocol for protocol, _ in gpu.orders} == {Protocol.COLD, Protocol.HOT}
    assert not gpu.graphs, "a graph was not closed"


@pytest.mark.parametrize("captures", [6, 7, 9])
def test_a_graph_of_torch_compile_that_fails_leaves_what_was_timed_cold(
    home: Path, captures: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_libraries.install(monkeypatch)
    (torch_compile,) = find_peers(["torch.compile"], PEERS)
    rows, _ = run(home, SUM, torch_compile, gpu=FakeGpu(times=(10.0, 9.0), captures=captures))
    found = {(row.peer, row.protocol): row for row in rows}
    assert found["torch.compile", "cold"].verdict == "LOSS"
    assert found["torch.compile", "hot"].note.startswith("failed: cuGraphInstantiate failed")


@pytest.mark.parametrize(("call_us", "seconds"), [(1e6, 120), (8e6, 312), (2e7, 600)])
def test_timing_slow_calls_may_take_as_long_as_they_do(home: Path, call_us: float, seconds: float) -> None:
    _, steps = run(home, SUM, FakePeer(), gpu=FakeGpu(times=(30.0, call_us)))
    allowed = [most for step, most in steps if (step.who, step.what) == ("other", "timing")]
    assert allowed[0] == 120
    assert allowed[-1] == pytest.approx(seconds, rel=1e-3)


def test_a_peer_that_is_made_ready_several_times_says_how_long_one_took(home: Path) -> None:
    class Thrice(FakePeer):
        def prepare(self, case: ComparisonCase, source: SharedArray, gpu: FakeGpu) -> Contender:
            return replace(super().prepare(case, source, gpu), seconds=41.5)

    (_, row), _ = run(home, SUM, Thrice(), gpu=FakeGpu(times=(40.0, 50.0)))
    assert row.seconds == 41.5


def test_a_difference_within_the_noise_is_a_tie(home: Path) -> None:
    for again, word in ((1.0, "WIN"), (1.2, "WIN"), (0.75, "TIE"), (1.3, "TIE")):
        rows, _ = run(home, SUM, FakePeer(), gpu=FakeGpu(times=(40.0, 50.0), again=again))
        assert rows[0].noise == pytest.approx(abs(again - 1))
        assert rows[1].verdict == word
        assert rows[1].against(rows[0].noise) == word


def test_a_time_of_ours_beside_a_peer_that_is_not_the_one_beside_itself_is_noted(home: Path) -> None:
    (_, steady), _ = run(home, SUM, FakePeer(), gpu=FakeGpu(times=(40.0, 50.0), beside=0.96))
    assert steady.note == "adds backwards"
    (_, moody), _ = run(home, SUM, FakePeer(), gpu=FakeGpu(times=(40.0, 50.0), beside=0.9))
    assert moody.note == "adds backwards; gen took 36 us beside it, 40 us beside itself"


def test_results_go_to_several_places_in_turn_and_graphs_are_several(home: Path) -> None:
    gpu = FakeGpu(times=(10.0, 9.0))
    before = gpu.captures
    run(home, SUM, FakePeer(), gpu=gpu)
    assert before - gpu.captures == 3 * comparison.CAPTURES, "ours, ours again, and the peer's"
    outputs = {launched.addresses["out"] for launched in gpu.backend.launched}
    assert len(outputs) == 2 * MAX_PLACES


def test_each_block_of_pairs_meets_in_other_memory() -> None:
    mine, others = ([Sample(lambda: None) for _ in range(count)] for count in (3, 3))
    timed = [sample for part in in_parts(mine, others, 200) for sample in part]
    assert len(timed) == 400
    assert [sample in others for sample in timed] == list(abba(200))
    together = set()
    for start in range(0, 400, 2 * PAIRS_PER_BLOCK):
        block = timed[start : start + 2 * PAIRS_PER_BLOCK]
        (one,) = {mine.index(sample) for sample in block if sample in mine}
        (other,) = {others.index(sample) for sample in block if sample in others}
        together.add((one, other))
    assert len(together) == 9, "each of ours is timed beside each of theirs"


@pytest.mark.parametrize("captures", [0, 1, 3, 5])
def test_a_graph_of_ours_that_fails_leaves_what_was_timed_cold(home: Path, captures: int) -> None:
    gpu = FakeGpu(times=(10.0, 9.0), captures=captures)
    rows, _ = run(home, SUM, FakePeer(), gpu=gpu)
    found = {(row.peer, row.protocol): row for row in rows}
    assert found[OURS, "cold"].ours_us == 10
    assert found["other", "cold"].verdict == "LOSS"
    assert found[OURS, "hot"].note.startswith("failed: cuGraphInstantiate failed")
    assert ("other", "hot") not in found
    assert not gpu.graphs


def test_a_graph_of_a_peer_that_fails_leaves_what_was_timed_cold(home: Path) -> None:
    gpu = FakeGpu(times=(10.0, 9.0), captures=2 * comparison.CAPTURES + 1)
    rows, _ = run(home, SUM, FakePeer(), FakePeer("next", captured=False), gpu=gpu)
    found = {(row.peer, row.protocol): row for row in rows}
    assert found["other", "cold"].verdict == "LOSS"
    assert found["other", "hot"].note.startswith("failed: cuGraphInstantiate failed")
    assert found["next", "cold"].verdict == "LOSS"
    assert not gpu.graphs


@pytest.mark.parametrize("fault", [RunError("cublasDestroy", "failed"), ValueError("double free")])
def test_a_fault_in_closing_is_a_note_of_that_peer(home: Path, fault: Exception) -> None:
    gpu = FakeGpu(times=(40.0, 50.0))
    rows, _ = run(home, SUM, FakePeer("bad", shut=fault), FakePeer("good"), gpu=gpu)
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
    gpu = FakeGpu(times=(30.0, 30.0))
    rows, _ = run(home, SUM, FakePeer(), gpu=gpu, protocol=protocol)
    assert {row.protocol for row in rows} == {protocol.value}
    assert {used for used, _ in gpu.orders} == {protocol}


LOG = "a.cu(2): warning: what\n\na.cu(3): error: no\n    int x\n"


def _one_element(out: Any) -> None:
    out[(0,) * out.ndim] += 1


@pytest.mark.parametrize("case", [MATRIX, SMALL, SUM], ids=lambda case: case.name)
def test_a_wrong_peer_is_not_timed(home: Path, case: ComparisonCase) -> None:
    rows, told = run(home, case, FakePeer(spoil=_one_element))
    row = rows[-1]
    assert row.note.startswith("wrong: out")
    assert (row.verdict, row.ratio, row.peer_us) == ("-", None, None)
    assert [step.what for step, _ in told if step.who == "other"] == ["getting ready", "checking"]


def test_a_result_of_another_shape_is_wrong(home: Path) -> None:
    class Flat(FakePeer):
        def prepare(self, case: ComparisonCase, source: SharedArray, gpu: FakeGpu) -> Contender:
            made = super().prepare(case, source, gpu)
            return replace(made, launch=lambda: [gpu.array((5,), F32)])

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
    gpu = FakeGpu(times=(30.0, 33.0))
    rows, _ = run(home, SUM, FakePeer("bad", fail=error), FakePeer("good"), gpu=gpu)
    assert [(row.peer, row.verdict) for row in rows[1:]] == [("bad", "-"), ("good", "WIN")]
    assert rows[1].note == note


def test_a_peer_that_fails_while_it_is_timed_is_closed(home: Path) -> None:
    peer = FakePeer(late=ValueError("gone"))
    rows, _ = run(home, SUM, peer)
    assert rows[-1].note == "failed: ValueError: gone"
    assert peer.closed == 1


def test_a_lost_device_is_not_taken_for_an_error_of_the_peer(home: Path) -> None:
    gpu = FakeGpu()

    def lose(_: Any) -> None:
        gpu.lost = True

    with pytest.raises(LostError, match="an illegal address"):
        run(home, SUM, FakePeer(spoil=lose), gpu=gpu)


def test_our_own_wrong_result_is_a_row_and_nobody_is_timed(home: Path) -> None:
    problem = SUM.problem
    base = variant(problem.family, problem.spec, *problem.family.base(problem.spec, problem.shape_class))
    runner = OracleRunner(wrong=(base.name,))
    (row,), told = run(home, SUM, FakePeer(), gpu=FakeGpu(runner=runner))
    assert row.note.startswith("wrong: out")
    assert not any(step.who == "other" for step, _ in told)


def test_an_error_of_many_lines_is_a_note_of_one(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise CompileError("base", LOG, home / "base.cu")

    monkeypatch.setattr(comparison, "kernel_of", fail)
    (row,), _ = run(home, SMALL, FakePeer())
    assert row.note == "failed: base does not compile: a.cu(3): error: no"


def test_a_heuristic_is_not_called_base(home: Path) -> None:
    row = run(home, ONE_STEP)[0][0]
    assert row.variant not in {made.name for made in base_variants(ONE_STEP.family, ONE_STEP.spec)}
    assert row.note == "untuned: a heuristic for the shape class, because nothing is tuned for it on this device"
    assert row.untuned == "untuned"


def test_the_tuned_variant_is_what_is_measured(home: Path) -> None:
    problem = SMALL.problem
    algorithm = problem.family.algorithms["naive"]
    made = variant(problem.family, problem.spec, algorithm, search_space(algorithm, problem.spec)[0])
    assert made not in base_variants(problem.family, problem.spec)
    winner = Winner("Fake GPU", problem.spec_name, problem.shape_class, made.name, {}, problem.region)
    (home / "tuned.json").write_text(text_of_winners([winner]), encoding="utf-8")
    row = run(home, SMALL, tuned_seconds=12.0)[0][0]
    assert (row.variant, row.note) == (made.name, "")
    assert row.seconds is not None
    assert row.seconds > 12


def test_a_kernel_that_works_in_place_changes_an_array_of_its_own(home: Path) -> None:
    case = ComparisonCase(find_family(FAMILIES, "transpose"), permutation((1, 0), "f4", in_place=True), (6, 6))
    gpu = FakeGpu(times=(40.0, 40.0))
    (row,), _ = run(home, case, gpu=gpu)
    assert (row.ours_us, row.note) == (40.0, BASE_NOTE)
    assert len({launched.addresses["data"] for launched in gpu.backend.launched}) == 2


def test_a_family_from_outside_and_several_inputs_are_compared_with_the_limit(home: Path) -> None:
    scan, probe = Scan(), find_family(FAMILIES, "probe")
    for case in (ComparisonCase(scan, scan.catalogue[0], (1000,)), ComparisonCase(probe, probe.catalogue[0], (1000,))):
        (ours, other), _ = run(home, case, find_peers(["torch"], PEERS)[0], gpu=FakeGpu(times=(40.0, 40.0)))
        assert ours.of_limit == pytest.approx(5 / 40), ours.note
        assert other.note.startswith(("not offered: ", "failed: The module torch"))


def test_slow_contenders_are_timed_less_often(home: Path) -> None:
    gpu = FakeGpu(times=(300_000.0, 700_000.0))
    rows, _ = run(home, SUM, FakePeer(), gpu=gpu)
    assert rows[-1].pairs == MIN_PAIRS


def test_a_clock_that_moved_is_looked_at_again_and_then_noted(home: Path) -> None:
    steady, jumping = [1980, 1980], [1980, 1700]
    gpu = FakeGpu(times=(900.0, 900.0), clocks=[*steady * 2, *jumping, *steady, *jumping, *jumping])
    (ours, row), _ = run(home, SUM, FakePeer(), gpu=gpu)
    assert ours.note == BASE_NOTE
    assert row.note == "adds backwards; the clock moved from 1980 to 1700 MHz while this was timed"


STEPS = sweep("star", 1, F32, (12, 15), steps=30)  # more steps than NumPy is asked for
HALVES = sweep("box", 1, F16, (40, 30), "wrap", 5)
ONE_STEP = sweep("star", 1, F32, (256, 384), "wrap")


@pytest.mark.parametrize("case", [STEPS, HALVES, ONE_STEP], ids=lambda case: case.name)
def test_stencils_of_any_number_of_steps_are_checked(
    home: Path, case: ComparisonCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_libraries.install(monkeypatch)
    gpu = FakeGpu(times=(40.0, 50.0))
    (ours, row), _ = run(home, case, *find_peers(["torch"], PEERS), gpu=gpu)
    assert row.verdict == "WIN", row.note
    assert ours.variant.startswith(f"stencil_{case.spec.label}_")
    assert ("in windows after 16 steps" in row.note) == (case is STEPS)
    assert not gpu.graphs


@pytest.mark.parametrize("case", [STEPS, ONE_STEP], ids=lambda case: case.name)
def test_a_wrong_stencil_is_found_wherever_it_is_checked(
    home: Path, case: ComparisonCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_libraries.install(monkeypatch)
    monkeypatch.setattr(sys.modules["torch"], "mul", lambda x, weight, out: np.multiply(x, 1.01 * weight, out=out))
    row = run(home, case, *find_peers(["torch"], PEERS))[0][-1]
    assert row.note.startswith("wrong: out: ")
    assert "cells are wrong" in row.note
