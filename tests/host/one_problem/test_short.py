"""Short kernels, many of them alike from cold caches: which are timed among many launches, and which wins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest

from gen.store.trials import Trials
from gen.toolchain.compiled import Compiled
from gen.tune import one_problem, pipeline, race
from gen.tune.device import Entrant, Rounds
from gen.tune.race import EXTRA_FINALISTS, FINALISTS, HOT_ROUNDS, LAST_HOT_ROUNDS, MAX_HOT_VARIANTS, ROUNDS_PER_CHECK
from tests.fake_tuning import FakeSession, FakeTuningDevice, candidates
from tests.host.one_problem.given import ALL, H100, PROBLEM, tuned, won
from tests.host.one_problem.test_reruns import Ticking

COLD_US, HOT_US = 240.0, 2600.0  # what such samples take

pytestmark = pytest.mark.usefixtures("whole")


def alike(count: int, spread: float = 0.029) -> dict[str, float]:
    """Times from cold caches, the least first, that lie within so much of each other; whose they are is drawn."""
    able = [made.name for made in candidates(PROBLEM, H100)[0] if not any(one.setup for one in made.plan.launches)]
    drawn = np.random.default_rng(5).permutation(len(able))[:count]
    return {able[number]: 6.0 * (1 + spread * place / (count - 1)) for place, number in enumerate(drawn)}


def device_of(cold: dict[str, float], hot: dict[str, float], noise: float = 0.0) -> FakeTuningDevice:
    """Others take far longer from cold caches, and 1.8 us among many launches."""
    device = FakeTuningDevice(lambda made: cold.get(made.name, 100.0), own_noise=noise)
    device.hot_us = lambda made: hot.get(made.name, 1.8)
    return device


def samples(device: FakeTuningDevice) -> int:
    return sum(len(names) * count for names, count in device.hot)


def clock_of(device: FakeTuningDevice, monkeypatch: pytest.MonkeyPatch) -> Callable[[], float]:
    """Lets the tuner's clock go on as far as the device's samples take; gives how far that is, in seconds."""

    def spent() -> float:
        cold = sum(len(names) * count for names, count in device.finals)
        return (COLD_US * cold + HOT_US * samples(device)) / 1e6

    for module in (pipeline, race, one_problem):
        monkeypatch.setattr(module, "time", Ticking(spent))
    return spent


@pytest.mark.parametrize("place", [0, 12, 24, 37, 49])
def test_of_fifty_that_are_alike_the_fastest_among_many_launches_wins(trials: Trials, place: int) -> None:
    """Wherever it stands by its time from cold caches, which is noisy."""
    cold = alike(50, 0.02)
    best = list(cold)[place]
    device = device_of(cold, {best: 1.6}, noise=0.01)
    assert won(tuned(device, trials)) == best


def test_halves_go_by_the_product_of_both_times(trials: Trials) -> None:
    """By one of them alone, the best by both would not get far: 24 are faster from cold caches, and 8 in graphs."""
    cold = alike(48)
    hot = {name: 1.76 if place == 24 else 1.752 if place >= 40 else 1.8 for place, name in enumerate(cold)}
    hot[next(iter(cold))] = 2.5
    by_both = sorted(cold, key=lambda name: cold[name] * hot[name])
    device = device_of(cold, hot)
    assert won(tuned(device, trials)) == by_both[0] == list(cold)[24]
    fields = [(len(names), count) for names, count in device.hot]
    assert fields[0] == (len(cold), HOT_ROUNDS)
    assert fields[-1] == (FINALISTS + 1, LAST_HOT_ROUNDS)
    assert all(after <= max(FINALISTS, before // 2) + EXTRA_FINALISTS for (before, _), (after, _) in pairwise(fields))
    assert {count for _, count in fields[:-1]} == {HOT_ROUNDS}
    for names, _ in device.hot[1:]:  # the fastest from cold caches is there to hold the others against
        assert set(names) == {*by_both[: len(names) - 1], next(iter(cold))}
    assert next(iter(cold)) in device.finals[-1][0]


def test_of_more_than_there_may_be_the_fastest_from_cold_caches_are_looked_at(trials: Trials) -> None:
    cold = alike(90)
    device = device_of(cold, {})
    tuned(device, trials)
    assert set(device.hot[0][0]) == set(list(cold)[:MAX_HOT_VARIANTS])


def test_the_winner_so_far_takes_every_look(trials: Trials) -> None:
    cold = alike(40)
    incumbent = list(cold)[30]
    device = device_of(cold, {incumbent: 2.5})
    tuned(device, trials, incumbent=incumbent)
    assert len(device.hot) > 2
    assert all(incumbent in names for names, _ in device.hot)
    assert incumbent in device.finals[-1][0]


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("near", [1, 5, 30])
def test_who_is_not_near_from_cold_caches_never_wins(trials: Trials, near: int, noise: float) -> None:
    """However many they are, and though all that are near lie far behind by the product."""
    cold = alike(60, 0.001)
    far = {name: 1.05 * us for name, us in list(cold.items())[near:]}
    device = device_of({**cold, **far}, dict.fromkeys(far, 1.0), noise)
    assert won(tuned(device, trials)) in cold.keys() - far.keys()


def test_what_decided_who_comes_to_the_finals_does_not_decide_them(trials: Trials) -> None:
    """What counts are times of the last look, and as many of each."""
    device = device_of(alike(50), {}, noise=0.01)
    outcome = tuned(device, trials)
    assert outcome.finals is not None
    last, count = device.hot[-1]
    assert {name: len(times) for name, times in outcome.finals.hot_us.items()} == dict.fromkeys(last, count)


@pytest.mark.parametrize(
    ("seconds", "least", "most"), [(0.002, 0, 0), (0.15, 4, 60), (0.5, 60, 160), (1.0, 180, 280), (9.0, 200, 280)]
)
def test_before_a_deadline_as_many_are_looked_at_as_there_is_time_for(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, seconds: float, least: int, most: int
) -> None:
    """And finals are held. The clock goes on as far as samples take."""
    device = device_of(alike(60), {})

    spent = clock_of(device, monkeypatch)
    outcome = tuned(device, trials, deadline=seconds)
    assert least <= samples(device) <= most
    assert outcome.finals is not None
    assert outcome.finals.rounds >= ROUNDS_PER_CHECK
    finals = len(outcome.finals.times_us) * ROUNDS_PER_CHECK * COLD_US / 1e6
    if seconds < 0.6:  # all of them would take longer
        assert spent() <= seconds + finals + 0.02  # a heat takes a few rounds, however little time there is


def test_where_no_graph_has_memory_the_fastest_from_cold_caches_wins_and_none_is_given_up(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold, rounds, short = alike(50), FakeSession.rounds, []

    def without_memory(session: FakeSession, entrants: Sequence[Entrant], count: int, *, hot: bool = False) -> Rounds:
        if hot:
            short.append(entrants[0].name)
            return Rounds(faults=(entrants[0].untimed("infeasible", "no memory for a graph"),))
        return rounds(session, entrants, count)

    monkeypatch.setattr(FakeSession, "rounds", without_memory)
    outcome = tuned(device_of(cold, {}), trials)
    assert len(short) == 50
    assert cold[won(outcome)] <= 1.003 * min(cold.values())
    assert outcome.finals is not None
    assert not outcome.finals.hot_us
    monkeypatch.setattr(FakeSession, "rounds", rounds)
    device = device_of(cold, {})
    assert won(tuned(device, trials)) in cold
    assert device.attempts == [], "all are known"
    assert samples(device) > 0


def test_as_many_go_to_the_finals_where_there_is_time_for_a_look_at_few(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_of(alike(8), {})

    spent = clock_of(device, monkeypatch)
    for seconds in (0.05, 0.1, 0.2, 0.3):
        outcome = tuned(device, trials, deadline=spent() + seconds)
        assert outcome.finals is not None
        assert len(outcome.finals.times_us) >= 8


def test_of_none_there_is_none() -> None:
    """Where not one could be compiled again."""
    device = FakeTuningDevice()
    session = device.open(PROBLEM, Entrant(ALL[0], Compiled("base", "sm_90", b"", {})))
    found = race.halve_short(session, {}, {}, lambda trial: pytest.fail(trial.reason))
    assert (found.left, found.hot_us, device.finals, device.hot) == ([], {}, [], [])
