"""Times with known answers give these answers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.results import Change, change, geometric_mean
from gen.compare.row import (
    MAX_PAIRS,
    MIN_PAIRS,
    PAIRS,
    PAIRS_PER_BLOCK,
    PairedTimes,
    WinTieLoss,
    abba,
    block_size,
    interval,
    noise,
    paired,
    pairs_within,
    parts,
    verdict,
)


def verdict_of(found: PairedTimes, noise: float) -> WinTieLoss:
    return verdict(found.ratio.low, found.ratio.high, noise)


def times_of(ours: Iterable[float], peer: Iterable[float]) -> list[float]:
    """Times of pairs in the order in which they are measured."""
    one, other = list(ours), list(peer)
    return [other.pop(0) if second else one.pop(0) for second in abba(len(one))]


def test_turns_are_a_b_b_a() -> None:
    assert "".join("AB"[second] for second in abba(5)) == "ABBAABBAAB"


@given(st.integers(1, 60))
def test_everyone_gets_as_many_turns(pairs: int) -> None:
    assert sum(abba(pairs)) == pairs
    assert len(abba(pairs)) == 2 * pairs


def test_times_are_told_apart_by_their_turn() -> None:
    found = paired(times_of([10.0] * 31, [20.0] * 31))
    assert (found.ours_us, found.peer_us, found.pairs) == (10, 20, 31)
    assert (found.ratio.low, found.ratio.center, found.ratio.high) == (2, 2, 2)


@pytest.mark.parametrize(
    ("factor", "expected"), [(1.05, WinTieLoss.WIN), (1.0, WinTieLoss.TIE), (0.95, WinTieLoss.LOSS)]
)  # fmt: skip
def test_a_difference_beyond_the_noise_is_found(factor: float, expected: WinTieLoss) -> None:
    random = np.random.default_rng(5)
    ours, peer = (100 * (1 + 0.02 * random.standard_normal(60)) for _ in range(2))
    found = paired(times_of(ours, factor * peer))
    assert verdict_of(found, 0.0) is expected
    assert found.ratio.low <= factor <= found.ratio.high


def test_drift_cancels_where_turns_change_sides() -> None:
    drift = np.linspace(1, 1.5, 120)  # the device slows down by half
    pure = [100 * slower for slower in drift]
    assert verdict_of(paired(pure), 1e-4) is WinTieLoss.TIE
    assert paired(pure).ratio.center == pytest.approx(1, abs=0.01)


def test_outliers_do_not_decide() -> None:
    ours = [100.0] * 40
    peer = [110.0] * 36 + [9000.0] * 4
    assert paired(times_of(ours, peer)).ratio.center == pytest.approx(1.1)


def test_an_interval_holds_its_ratio_nineteen_times_in_twenty() -> None:
    random = np.random.default_rng(11)
    held = 0
    for _ in range(300):
        ours, peer = (np.exp(0.03 * random.standard_normal(30)) for _ in range(2))
        ratio = paired(times_of(ours, 1.2 * peer)).ratio
        held += ratio.low <= 1.2 <= ratio.high
    assert 0.90 <= held / 300 <= 1


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.001, 1.1, WinTieLoss.WIN),
        (1.0, 1.1, WinTieLoss.TIE),
        (0.9, 1.0, WinTieLoss.TIE),
        (0.9, 0.999, WinTieLoss.LOSS),
    ],
)
def test_a_verdict_is_of_the_interval_alone(low: float, high: float, expected: WinTieLoss) -> None:
    assert verdict(low, high, 0.0) is expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.03, 1.1, WinTieLoss.TIE),
        (1.04, 1.1, WinTieLoss.WIN),
        (0.9, 0.97, WinTieLoss.TIE),
        (0.9, 0.96, WinTieLoss.LOSS),
    ],
)
def test_what_our_kernel_differs_from_itself_by_decides_nothing(low: float, high: float, expected: WinTieLoss) -> None:
    assert verdict(low, high, noise(0.99, 1.035)) is expected
    assert verdict(low, high, noise(0.965, 0.99)) is expected


def test_pairs_that_have_their_memory_in_common_are_one_value() -> None:
    random = np.random.default_rng(3)
    held = 0
    for _ in range(300):
        common = np.exp(
            0.02 * np.repeat(random.standard_normal(10), PAIRS_PER_BLOCK)
        )  # of a block, and not of its pairs
        peer = common * np.exp(0.001 * random.standard_normal(10 * PAIRS_PER_BLOCK))
        ratio = paired(times_of([1.0] * 10 * PAIRS_PER_BLOCK, peer)).ratio
        held += ratio.low <= 1 <= ratio.high
    assert held / 300 >= 0.9


@given(st.integers(MIN_PAIRS, MAX_PAIRS))
def test_there_are_always_enough_blocks_for_an_interval(pairs: int) -> None:
    values = list(np.linspace(1, 2, pairs))
    found = interval(values)
    assert pairs // block_size(pairs) >= 6, "the median of fewer values has no interval of 95 %"
    assert found.low <= found.center <= found.high


def test_slow_pairs_are_fewer_and_never_too_few() -> None:
    assert pairs_within(10) == MAX_PAIRS
    assert pairs_within(1000) == 100
    assert pairs_within(20_000) == pairs_within(66_000) == PAIRS == 30
    assert pairs_within(67_000) < PAIRS
    assert pairs_within(200_000) == 10
    assert pairs_within(1e9) == MIN_PAIRS
    assert pairs_within(0) == MAX_PAIRS


@given(st.integers(1, 300))
def test_parts_keep_the_turns(pairs: int) -> None:
    assert sum(parts(pairs)) == pairs
    assert [second for count in parts(pairs) for second in abba(count)] == list(abba(pairs))


def test_geometric_mean() -> None:
    assert geometric_mean([2, 8]) == pytest.approx(4)
    assert np.isnan(geometric_mean([]))


@pytest.mark.parametrize(
    ("before", "now", "noise", "expected"),
    [
        (100, 101, 0.005, Change.SAME),
        (100, 110, 0.005, Change.SLOWER),
        (100, 90, 0.005, Change.FASTER),
        (100, 103, 0.05, Change.UNCLEAR),
        (100, 97, 0.05, Change.UNCLEAR),
        (100, 110, 0.05, Change.SLOWER),
        (0, 110, 0.05, Change.UNCLEAR),
    ],
)
def test_a_change_is_told_from_noise(before: float, now: float, noise: float, expected: Change) -> None:
    assert change(before, now, noise) is expected
