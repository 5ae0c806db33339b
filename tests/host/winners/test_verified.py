"""Variants that are timed whatever the search: winners again beside base, the incumbent first, those that are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.dispatch import time_variants
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.regions import Bound, Region
from gen.store.trials import Trials
from gen.store.winners import TUNED_FILE, Winner
from gen.tune.choose import Interval
from gen.tune.one_problem import Options, tune
from gen.tune.pipeline import Sources
from gen.tune.verify import FIRST_ROUNDS, MAX_ROUNDS, Check, verdict_of, verify
from tests.fake_tuning import FakeFarm, FakeTuningDevice
from tests.host.winners.given import BASE, EVERY, TALL, TRANSPOSE, WIDE, timed


def winner_line(made: Variant, **evidence: Any) -> Winner:
    told = {"extents": dict(TRANSPOSE[0].extents), **evidence}
    return Winner("Fake GPU", "transpose_10_b32", "any size", made.name, told)


def verified(winner: Winner, device: FakeTuningDevice, farm: FakeFarm | None = None) -> Check:
    (check,) = verify([winner], FAMILIES, {}, device, farm or FakeFarm())
    assert device.open_sessions == 0
    return check


@pytest.mark.parametrize(
    ("us", "verdict", "bad"),
    [(9.8, "FASTER", False), (10.05, "SAME", False), (9.95, "SAME", False), (10.3, "SLOWER", True)],
)  # fmt: skip
def test_a_winner_is_compared_with_base(us: float, verdict: str, bad: bool) -> None:
    device = timed(us, noise=0.5)
    check = verified(winner_line(WIDE), device)
    assert (check.verdict, check.bad) == (verdict, bad)
    assert check.ratio is not None
    assert check.ratio.center == pytest.approx(us / 10)
    assert device.finals == [([BASE.name, WIDE.name], FIRST_ROUNDS)]


def test_what_is_not_clear_is_timed_longer_and_then_said() -> None:
    device = timed(10.1, own_noise=2.0)
    assert verified(winner_line(WIDE), device).verdict == "UNCLEAR"
    assert sum(turns for _, turns in device.finals) == MAX_ROUNDS


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.5, 0.99, "FASTER"), (0.5, 0.995, "UNCLEAR"), (0.995, 1.005, "SAME"), (1.02, 1.5, "SLOWER"),
     (1.0, 1.5, "UNCLEAR")],
)  # fmt: skip
def test_a_verdict_is_what_the_interval_shows(low: float, high: float, verdict: str) -> None:
    assert verdict_of(Interval((low + high) / 2, low, high)) == verdict


def test_base_as_a_winner_is_the_same_and_needs_no_time() -> None:
    device = timed(9.0)
    assert verified(winner_line(BASE), device).verdict == "SAME"
    assert device.seen == []


def test_a_winner_that_cannot_be_timed_is_bad_and_says_why() -> None:
    wrong = verified(winner_line(WIDE), timed(9.0, bad={WIDE.name: "wrong_result"}))
    assert (wrong.verdict, wrong.bad) == (None, True)
    assert f"{WIDE.name}: wrong_result: made to" in wrong.reason
    spoilt = verified(winner_line(WIDE), timed(9.0, spoilt={WIDE.name: "wrong_result"}))
    assert "among the finalists" in spoilt.reason
    refused = verified(winner_line(WIDE), timed(9.0), FakeFarm(refused=(WIDE.name,)))
    assert "does not compile" in refused.reason
    assert "is wrong" in verified(winner_line(WIDE), timed(9.0, base_wrong=True)).reason
    old = verified(replace(winner_line(WIDE), shape="an old class"), timed(9.0))
    assert "must be for one of: any size (got an old class)" in old.reason
    gone = verified(replace(winner_line(WIDE), variant="transpose_10_b32__magic"), timed(9.0))
    assert "must be one of" in gone.reason


WRONG = [None, 7, {}, {"rows": 3}, {"rows": "3"}]
WRONG_SIZES = [{name: number} for name in ("rows", "in_pitch") for number in (-1, "3", True)]


@pytest.mark.parametrize(
    "extents",
    [*WRONG, *({**TRANSPOSE[0].extents, **wrong} for wrong in WRONG_SIZES), {**TRANSPOSE[0].extents, "rows": 0}],
)
def test_a_line_that_does_not_say_what_it_was_measured_at_is_bad(extents: object) -> None:
    check = verified(winner_line(WIDE, extents=extents), timed(9.0))
    assert check.bad
    assert TUNED_FILE in check.reason


def test_a_winner_is_timed_at_its_alignment_and_other_devices_are_left_alone() -> None:
    device = timed(9.0)
    part = Region((Bound("alignment", 0, 15),))
    winners = [replace(winner_line(WIDE), region=part), replace(winner_line(WIDE), device="Other GPU")]
    assert len(list(verify(winners, FAMILIES, {}, device, FakeFarm()))) == 1
    assert [problem.alignment for problem, _ in device.seen] == [8]


def test_a_contest_leaves_out_what_is_not_right_and_says_so(home: Path) -> None:
    device = timed(9.0, bad={TALL.name: "wrong_result"}, spoilt={EVERY[3].name: "timeout"})
    names = [made.name for made in EVERY[1:]]
    trials, found = time_variants(
        TRANSPOSE[0], [*names, "gone"], device, Sources(FakeFarm(refused=(EVERY[4].name,)), "sm_90")
    )
    status = {trial.variant.name: trial.status for trial in trials}
    assert status == {made.name: "ok" for made in EVERY} | {
        TALL.name: "wrong_result", EVERY[3].name: "timeout", EVERY[4].name: "compile_failed",
    }  # fmt: skip
    assert found.times_us.keys() == {name for name, one in status.items() if one == "ok"}
    assert device.open_sessions == 0
    assert not (home / TUNED_FILE).exists()


def test_the_winner_so_far_is_tried_first_whatever_the_search(tmp_path: Path) -> None:
    """So that a rerun without time for everything still compares with it."""
    for incumbent, tried in ((WIDE.name, [BASE.name, WIDE.name]), ("transpose_10_b32__gone", [BASE.name])):
        device, trials = FakeTuningDevice(), Trials(tmp_path / incumbent)
        options = Options(search=lambda _: Last())
        tune(
            TRANSPOSE[0], device, FakeFarm(), trials, incumbent=incumbent, options=options, text=lambda made: made.name
        )
        trials.close()
        assert [name for name, _ in device.attempts] == tried


class Last:
    """A search that has no time to give anything."""

    left = 5

    def ask(self, _: int) -> list[Variant]:
        return []

    def tell(self, _: object) -> None:
        """Learns nothing."""
