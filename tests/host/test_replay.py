"""What fails is shrunk, kept, and tried first on every variant of its spec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gen.errors import StoreError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.extents import told_extents
from gen.families.names import find_variant
from gen.paths import output_home
from gen.proof.cases import Case, Content
from gen.proof.failures import FILE, MOST_TRIALS, WRONG, Failure, Kept, cases_for, keep, read, smallest
from gen.proof.prover import prove
from gen.proof.verdicts import verdicts
from tests.host.numpy_kernel import Buffers, NumpyKernel, NumpyRunner, flip, last
from tests.strategies import cases

LIMITS = Limits.of("sm_90")
SUM = find_variant(FAMILIES, "reduceShfl", {})
TURN = find_variant(FAMILIES, "transposeSmem", {})
LARGE = Case({"n": 5001}, Content.SPECIAL, 7, 3, 2)


def failing(when: Callable[[Case], bool], kind: str = WRONG) -> Callable[[Case], Failure | None]:
    return lambda case: Failure(case, "wrong", kind) if when(case) else None


FEW = settings(max_examples=15)  # each tries up to 200 cases


@FEW
@given(st.integers(1, 4999))
@example(4695)  # once more trials than there are led there
def test_the_smallest_size_that_fails_is_found(least: int) -> None:
    found = smallest(Failure(LARGE, "", WRONG), SUM.family, SUM.spec, failing(lambda case: case.extents["n"] >= least))
    assert found.case == Case({"n": least}, Content.INTEGERS, 0, 0, 2)


@FEW
@given(st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_every_axis_shrinks_and_pitches_go_unless_they_matter(rows: int, cols: int, gap: bool) -> None:
    def wrong(case: Case) -> bool:
        extents = case.extents
        pitched = extents["in_pitch"] > extents["cols"] or not gap
        return extents["rows"] >= rows and extents["cols"] >= cols and pitched

    start = Case({"rows": 61, "cols": 62, "in_pitch": 70, "out_pitch": 64}, Content.RANDOM, 3, 1)
    found = smallest(Failure(start, "", WRONG), TURN.family, TURN.spec, failing(wrong))
    sizes = found.case.extents
    # A matrix of one row has no pitch to be found: two rows are the least that can have a gap.
    assert (sizes["rows"], sizes["cols"]) == (max(rows, 2 if gap else 1), cols)
    assert (sizes["in_pitch"] > cols) == gap


def test_another_kind_of_failure_is_not_taken_for_the_same() -> None:
    def check(case: Case) -> Failure | None:
        return Failure(case, "", WRONG if case.extents["n"] > 100 else "race")

    found = smallest(Failure(LARGE, "", WRONG), SUM.family, SUM.spec, check)
    assert (found.kind, found.case.extents) == (WRONG, {"n": 101})


def test_shrinking_ends_and_leaves_sampled_cases_alone() -> None:
    seen: list[Case] = []

    def check(case: Case) -> Failure | None:
        seen.append(case)
        return Failure(case, "", WRONG)

    start = Case({"rows": 10**9 + 7, "cols": 10**9 + 9, "in_pitch": 10**10, "out_pitch": 10**10}, Content.RANDOM, 1, 1)
    smallest(Failure(start, "", WRONG), TURN.family, TURN.spec, check)
    assert len(seen) <= MOST_TRIALS
    seen.clear()
    sampled = Failure(replace(start, sampled=True), "", WRONG)
    assert smallest(sampled, TURN.family, TURN.spec, check) is sampled
    assert not seen


def test_the_prover_reports_the_smallest_problem() -> None:
    class Wrong(NumpyKernel):
        def run(self, extents: object, buffers: Buffers) -> None:
            self.spoil = spoil if buffers["in"].shape[0] >= 30 and buffers["in"].shape[1] >= 5 else lambda *_: None
            super().run(extents, buffers)  # type: ignore[arg-type]

    def spoil(buffers: Buffers, _run: int) -> None:
        flip(buffers["out"], last(buffers["out"]))

    runner = NumpyRunner(LIMITS, Wrong)
    (plain,) = prove(runner, [TURN])
    (shrunk,) = prove(runner, [TURN], shrink=True)
    assert plain.failure is not None
    assert shrunk.failure is not None
    assert told_extents(shrunk.failure.case.extents) == {"rows": 30, "cols": 5, "in_pitch": 5, "out_pitch": 30}
    assert plain.failure.case != shrunk.failure.case


@settings(max_examples=20)
@given(st.lists(cases(TURN.family, TURN.spec), max_size=4))
def test_what_is_kept_is_read_again(tmp_path_factory: pytest.TempPathFactory, drawn: list[Case]) -> None:
    home, made = tmp_path_factory.mktemp("home"), TURN
    found = [Kept.of(made, Failure(case, "", WRONG)) for case in (*drawn, *drawn[:1])]
    new = keep(home, found)
    assert read(home) == new
    assert {kept.key for kept in new} == {kept.key for kept in found}
    assert keep(home, found) == ()
    assert cases_for(new, made) == tuple(kept.case for kept in new)
    assert cases_for(new, SUM) == ()


def test_kept_cases_come_first_on_every_variant_of_their_spec() -> None:
    met: list[int] = []

    class Watching(NumpyKernel):
        def run(self, extents: object, buffers: Buffers) -> None:
            met.append(buffers["in"].size)
            super().run(extents, buffers)  # type: ignore[arg-type]

    kept = [Kept.of(SUM, Failure(LARGE, "", WRONG)), Kept.of(TURN, Failure(LARGE, "", WRONG))]
    for name in ("reduceShfl", "reduceUnrolling4"):
        met.clear()
        (verdict,) = verdicts(NumpyRunner(LIMITS, Watching), [find_variant(FAMILIES, name, {})], kept=kept)
        assert verdict.status == "proven"
        assert met[:2] == [5001, 5001]
        assert met.count(5001) == 2


@pytest.mark.parametrize(
    "line",
    [
        "{", "[]", "3", '{"spec": "a"}', '{"spec": "a", "case": {}, "variant": "b", "kind": "c"}',
        Kept("a", LARGE, "b", "c").line().replace("5001", "-1"),
        Kept("a", LARGE, "b", "c").line().replace("5001", '"x"'),
        Kept("a", LARGE, "b", "c").line().replace("special", "odd"),
        Kept("a", LARGE, "b", "c").line().replace('"seed"', '"seeds"'),
        Kept("a", LARGE, "b", "c").line().replace('"multiprocessors": 2', '"multiprocessors": 0'),
        Kept("a", LARGE, "b", "c").line().replace('"multiprocessors"', '"more": 1, "multiprocessors"'),
    ],
)  # fmt: skip
def test_a_line_that_is_no_case_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / FILE).write_text(Kept("a", LARGE, "b", "c").line() + "\n" + line + "\n")
    with pytest.raises(StoreError, match=rf"{FILE}:2 must be a case that gen wrote"):
        read(tmp_path)


def test_a_line_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    kept = Kept("a", LARGE, "b", "c")
    (tmp_path / FILE).write_text(kept.line().replace('"multiprocessors"', '"sm_count"') + "\n")
    assert read(tmp_path) == (kept,)


def test_a_missing_file_holds_nothing_and_what_is_committed_can_be_read(tmp_path: Path) -> None:
    assert read(tmp_path) == ()
    read(output_home())
