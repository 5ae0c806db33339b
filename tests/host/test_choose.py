"""Which finalist wins, from times with known answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.families.base import Plan
from gen.store.trials import Trial
from gen.tune.choose import Interval, choose, midmean_interval, paired_ratio
from tests.fake_family import called_variant

Random = np.random.Generator


def trial(name: str, registers: int = 20, shared_bytes: int = 0) -> Trial:
    made = called_variant(name, (), Plan(()))
    return Trial(made, "ok", (10.0,), registers, shared_bytes=shared_bytes)


def steady(**medians: float) -> Mapping[str, Sequence[float]]:
    """Times that a shared disturbance moves by up to 40 %: each ratio is known, each time is not."""
    disturbed = 1 + 0.4 * np.random.default_rng(1).random(30)
    return {name: list(us * disturbed) for name, us in medians.items()}


def test_the_same_times_have_the_ratio_1() -> None:
    assert paired_ratio([3.0, 4.0, 5.0], [3.0, 4.0, 5.0]) == Interval(1.0, 1.0, 1.0)


def test_a_disturbance_of_both_does_not_show() -> None:
    times = steady(a=10.3, b=10.0)
    found = paired_ratio(times["a"], times["b"])
    assert found.center == pytest.approx(1.03, abs=1e-12)
    assert found.high - found.low < 1e-12


def test_the_ratio_is_that_of_the_first_to_the_second() -> None:
    assert paired_ratio([8.0] * 5, [2.0] * 5).center == 4.0


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    held, widths = 0, []
    for seed in range(200):
        random: Random = np.random.default_rng(seed)
        others = 10 + random.random(30)
        times = others * 1.02 * (1 + 0.01 * random.standard_normal(30))
        found = paired_ratio(list(times), list(others))
        assert found.low <= found.center <= found.high
        held += found.low <= 1.02 <= found.high
        widths.append(found.high - found.low)
    assert 0.90 * 200 <= held < 200
    assert 0.005 < np.median(widths) < 0.02  # four standard errors of a median of 30, 0.0023 each


def test_more_noise_widens_the_interval() -> None:
    noise = np.random.default_rng(2).standard_normal(30)
    narrow, wide = (paired_ratio(list(10 * (1 + by * noise)), [10.0] * 30) for by in (0.001, 0.01))
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


@given(st.lists(st.tuples(*[st.floats(0.5, 1e6)] * 2), min_size=1, max_size=40))
def test_the_interval_surrounds_the_median_and_is_the_same_every_time(pairs: list[tuple[float, float]]) -> None:
    times, others = zip(*pairs, strict=True)
    found = paired_ratio(times, others)
    assert found.low <= found.center <= found.high
    assert found == paired_ratio(times, others)
    ratios = [one / other for one, other in pairs]
    assert min(ratios) <= found.low
    assert found.high <= max(ratios)


def test_the_fastest_wins_beyond_1_percent() -> None:
    finalists = [trial("a", 10), trial("b", 40, 4096)]
    assert choose(finalists, steady(a=10.2, b=10.0)).variant.name == "b"
    assert choose(finalists, steady(a=10.2, b=10.0), incumbent="a").variant.name == "b"


@pytest.mark.parametrize(
    ("simple", "other"),
    [
        (trial("z", 19, 4096), trial("a", 20)),
        (trial("z", 20, 1024), trial("a", 20, 4096)),
        (trial("a", 20, 1024), trial("z", 20, 1024)),
    ],
    ids=["registers", "shared memory", "name"],
)
def test_within_a_tie_the_simpler_wins(simple: Trial, other: Trial) -> None:
    times = steady(**{simple.variant.name: 10.025, other.variant.name: 10.0})
    for finalists in ([simple, other], [other, simple]):
        assert choose(finalists, times) is simple


@pytest.mark.parametrize("hot", [False, True])
def test_within_a_tie_one_that_issues_fewer_instructions_wins_before_a_simpler_one(hot: bool) -> None:
    finalists = [trial("wasteful", 10), trial("sparing", 90), trial("alike", 50)]
    names = [one.variant.name for one in finalists]
    times = steady(**dict(zip(names, (10.0, 10.02, 10.02), strict=True)))
    among_many = dict.fromkeys(names, [5.0] * 4) if hot else None

    def chosen(**issued: float) -> str:
        return choose(finalists, times, hot=among_many, issued=issued).variant.name

    assert chosen(wasteful=1.1e9, sparing=1e9, alike=1.01e9) == "alike"  # as many as the least, and simpler
    assert chosen(wasteful=1.1e9, sparing=1e9, alike=1.03e9) == "sparing"
    assert chosen(wasteful=1.1e9, sparing=1e9) == "wasteful"  # of one nothing is known
    assert choose(finalists, steady(wasteful=10.0, sparing=10.2, alike=10.2), issued={"sparing": 1.0}) is finalists[0]


def test_within_1_percent_the_winner_so_far_stays_however_complex() -> None:
    old, new, simple = trial("old", 200, 4096), trial("new", 20), trial("simple", 10)
    times = steady(old=10.09, new=10.0, simple=10.025)
    assert choose([old, new, simple], times, "old") is old
    assert choose([old, new, simple], times) is simple
    assert choose([old, new, simple], times, "gone") is simple


def test_the_leader_stays_where_no_other_comes_near() -> None:
    assert choose([trial("a", 10), trial("b", 90), trial("c", 10)], steady(a=12, b=10, c=11)).variant.name == "b"


def test_a_simpler_one_that_is_slower_by_more_than_a_tie_loses() -> None:
    assert choose([trial("a", 10), trial("b", 20)], steady(a=10.035, b=10.0)).variant.name == "b"


def test_one_that_is_near_a_tie_but_not_near_the_leader_loses() -> None:
    """Ties are not passed on: each must be near the leader itself."""
    finalists = [trial("a", 30), trial("b", 20), trial("c", 10)]
    assert choose(finalists, steady(a=10.0, b=10.025, c=10.05)).variant.name == "b"


STEP = 0.032  # us: what a Hopper's timer tells times in


def in_steps(us: float, count: int, random: Random, noise: float = 0.03) -> list[float]:
    """Samples of a kernel as a coarse timer tells them, some of them disturbed."""
    times = us + noise * random.standard_normal(count) + 2 * (random.random(count) < 0.05)
    return [float(one) for one in STEP * np.floor(times / STEP + random.random(count))]


def test_a_midmean_lies_between_a_timers_steps() -> None:
    random = np.random.default_rng(3)
    found = midmean_interval(in_steps(7.76, 1000, random))
    assert found.center == pytest.approx(7.76, abs=STEP / 8)
    assert found.high - found.low < STEP / 4


@pytest.mark.parametrize("count", [3, 4, 12, 30, 200])
def test_the_midmeans_interval_holds_the_truth_about_as_often_as_it_says(count: int) -> None:
    random = np.random.default_rng(count)
    held = 0
    for _ in range(1000):
        found = midmean_interval(list(5 + random.standard_normal(count)))
        held += found.low <= 5 <= found.high
    assert 925 <= held <= 985


def test_an_outlier_does_not_move_a_midmean() -> None:
    calm = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert midmean_interval([*calm[:-1], 1e9]) == midmean_interval(calm) == midmean_interval(calm[::-1])
    assert midmean_interval(calm).center == 4.5


def test_of_one_or_two_samples_the_interval_is_all_there_is() -> None:
    assert midmean_interval([3.0]) == Interval(3.0, 3.0, 3.0)
    low, center, high = (getattr(midmean_interval([3.0, 5.0]), name) for name in ("low", "center", "high"))
    assert (center, low < 3, high > 5) == (4.0, True, True)


@pytest.mark.parametrize("seed", range(5))
def test_runs_from_nothing_choose_within_1_percent_of_each_other_though_time_comes_in_steps(seed: int) -> None:
    """The simpler the slower, in steps of 0.15 %: whichever of them ties wins."""
    random = np.random.default_rng(seed)
    truth = {f"v{place}": 7.744 * (1 + 0.0015 * place) for place in range(12)}
    finalists = [trial(name, 64 - place) for place, name in enumerate(truth)]
    winners = {
        choose(finalists, {name: in_steps(us, 60, random) for name, us in truth.items()}).variant.name
        for _ in range(20)
    }
    assert max(truth[name] for name in winners) <= 1.01 * min(truth[name] for name in winners)
    assert max(truth[name] for name in winners) <= 1.01 * truth["v0"]
    assert winners != {"v0"}  # the simpler one had its chance


def test_where_noise_hides_the_difference_the_simpler_gains_nothing_by_it() -> None:
    """Were it enough not to be shown slower, more noise would make it win more often."""
    won = []
    for noise in (1.0, 4.0):
        random = np.random.default_rng(5)
        times = [
            {"a": list(10 + random.random(30) * noise), "b": list(9.7 + random.random(30) * noise)} for _ in range(100)
        ]
        won.append(sum(choose([trial("a", 10), trial("b", 20)], one).variant.name == "a" for one in times))
    assert won[0] < 10
    assert won[1] < 50


def test_alone_it_wins() -> None:
    only = trial("a")
    assert choose([only], {"a": [1.0]}, "b") is only


@pytest.mark.parametrize(
    ("times", "median"), [((), float("inf")), ((3.0,), 3.0), ((5.0, 1.0, 2.0), 2.0), ((4.0, 1.0), 2.5)]
)
def test_the_median_of_a_trial(times: tuple[float, ...], median: float) -> None:
    assert Trial(trial("a").variant, "ok", times).median_us == median


def test_short_ones_compete_by_the_product_of_both_times() -> None:
    finalists = [trial("a", 10), trial("b", 20), trial("c", 30), trial("d", 40)]
    times = steady(a=10.0, b=10.2, c=10.25, d=10.4)  # d is too far from the fastest, however fast in a graph
    hot = {"a": [4.0] * 4, "b": [3.0] * 4, "c": [2.99] * 4, "d": [1.0] * 4}
    assert choose(finalists, times, hot=hot).variant.name == "b"  # by 0.2 %, a tie of which it is the simpler
    assert choose(finalists, times, hot={**hot, "c": [2.9] * 4}).variant.name == "c"
    assert choose(finalists, times, hot={name: [3.0] * 4 for name in "abc"}).variant.name == "a"


def test_the_winner_so_far_of_short_ones_stays_within_3_percent_of_both() -> None:
    finalists, times = [trial("a", 10), trial("b", 20)], steady(a=10.1, b=10.0)
    for hot_us, winner in ((3.05, "a"), (3.08, "b")):
        assert choose(finalists, times, "a", {"a": [hot_us] * 4, "b": [3.0] * 4}).variant.name == winner


@pytest.mark.parametrize("hot", [None, {}, {"gone": [1.0] * 4}])
def test_without_times_in_a_graph_those_from_cold_caches_decide(hot: dict[str, list[float]] | None) -> None:
    assert choose([trial("a", 10), trial("b", 20)], steady(a=10.2, b=10.0), hot=hot).variant.name == "b"
