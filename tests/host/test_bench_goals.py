"""Which public cases are said to be under their goals: those that are, and no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.cases import public_cases
from bench.goals import COLD, HOT, Goal, Measure, goals, means, missed, section
from bench.results import Results
from gen.compare.case import ComparisonCase
from gen.compare.row import OURS, Row

GOALS = goals()


def results(case: ComparisonCase, protocol: str, of_limit: float, *ratios: float) -> Results:
    """Our kernel reached so much of the limit, and peers took so much longer."""
    ours = Row(case.family.name, case.name, OURS, protocol, 5.0, 5.0, 1.0, 0.99, 1.01, of_limit, pairs=30)
    peers = [
        replace(ours, peer=f"peer{place}", ratio=ratio, low=ratio, high=ratio) for place, ratio in enumerate(ratios)
    ]
    return Results((ours, *peers))


def reaching(goal: Goal, case: ComparisonCase, reached: float) -> Results:
    """The other measure is far above any goal."""
    pair = (reached, 99.0) if goal.measure is Measure.LIMIT else (99.0, reached)
    return results(case, goal.protocol, *pair, 100.0)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.name}, {goal.protocol}, {goal.measure.value}")
def test_a_case_is_under_a_goal_if_it_reaches_less(goal: Goal) -> None:
    cases = [case for case in public_cases() if goal.takes(case)]
    assert cases, "it is nobody's goal"
    for case in cases:
        under = missed(reaching(goal, case, goal.least - 0.001))
        assert [one for one in under if one.goal == goal and one.case == case.name]
        assert not [one for one in missed(reaching(goal, case, goal.least)) if one.goal == goal]
        other = HOT if goal.protocol == COLD else COLD
        elsewhere = results(case, other, 0.001, 0.001)
        assert not [one for one in missed(elsewhere) if one.goal == goal], "it is meant for another protocol"


def test_every_reduction_but_of_few_elements_and_every_transpose_but_of_odd_doubles_has_a_goal() -> None:
    for case in public_cases():
        few = case.family.name == "reduction" and case.elements <= 2**10
        odd_doubles = case.name == "transpose f64 4097x4099"
        if case.family.name != "stencil" and not few and not odd_doubles:
            assert any(goal.takes(case) for goal in GOALS), case.name


def test_the_nearest_peer_counts_and_a_case_that_was_not_timed_does_not() -> None:
    (goal,) = (one for one in GOALS if one.name == "argmax u8")
    (case,) = (case for case in public_cases() if goal.takes(case))
    (one,) = (one for one in missed(results(case, COLD, 99.0, 5.0, 1.9, 4.0)) if one.goal == goal)
    assert one.reached == 1.9
    assert f"{case.name} 1.900" in section(results(case, COLD, 99.0, 5.0, 1.9, 4.0))
    nothing = Results((Row(case.family.name, case.name, OURS, COLD, note="not offered: no kernel"),))
    assert missed(nothing) == ()
    assert section(nothing).endswith("None.\n")


def test_a_family_is_under_its_mean_if_the_geometric_mean_is() -> None:
    (case,) = (case for case in public_cases() if case.name == "transpose f32 4096x4096")
    rows = Results().rows
    for number, ratio in enumerate((2.0, 8.0)):
        of_case = results(replace(case, name=f"transpose {number}"), COLD, 1.0, ratio)
        rows += tuple(replace(row, peer="torch") if row.peer != OURS else row for row in of_case.rows)
    assert means(Results(rows)) == (), "their mean is 4"
    lower = [replace(row, ratio=1.0) if row.ratio == 2.0 else row for row in rows]
    (mean,) = means(Results(tuple(lower)))
    assert (mean.family, mean.peer, mean.least) == ("transpose", "torch", 3.8)
    assert mean.reached == pytest.approx(8**0.5)
    assert "2.828" in section(Results(tuple(lower)))
