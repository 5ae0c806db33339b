"""A plan at given sizes: which launches, with which buffers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.dtypes import I32, DType
from gen.families.base import Launch, Plan
from gen.families.expr import ONE, ZERO, Expr, constant, size
from gen.families.plans import TIME, Step, steps
from gen.gpu.cuda import CudaPrepared

N = size("n")


def launch(
    *arguments: str | tuple[DType, Expr], grid: tuple[Expr, Expr, Expr] = (ONE, ONE, ONE), **others: Any
) -> Launch:
    return Launch(grid, (32, 2, 1), arguments, **others)


def passed(plan: Plan, **sizes: int) -> list[tuple[object, ...]]:
    return [step.arguments for step in steps(plan, sizes)]


def test_every_expression_is_evaluated() -> None:
    made = Launch(
        (N.ceil_div(32), N, constant(3)), (32, 2, 1), ("in", (I32, N * 2)), "_first", N * 8, (2, 1, 1), setup=True
    )
    assert list(steps(Plan((made,)), {"n": 65})) == [
        Step("_first", (3, 65, 3), (32, 2, 1), ("in", (I32, 130)), 520, (2, 1, 1), True)
    ]


def test_launches_come_in_order_each_as_often_as_it_says() -> None:
    plan = Plan((launch(entry="_a"), launch(entry="_b", times=N), launch(entry="_c", times=N // 2)))
    assert [step.entry for step in steps(plan, {"n": 3})] == ["_a", "_b", "_b", "_b", "_c"]
    assert [step.entry for step in steps(plan, {"n": 0})] == ["_a"]


@pytest.mark.parametrize("axis", range(3))
def test_nothing_is_launched_on_an_empty_grid(axis: int) -> None:
    grid = tuple(N if place == axis else ONE for place in range(3))
    plan = Plan((launch(entry="_empty", grid=(grid[0], grid[1], grid[2])), launch(entry="_next")))
    assert [step.entry for step in steps(plan, {"n": 0})] == ["_next"]
    assert [step.entry for step in steps(plan, {"n": 1})] == ["_empty", "_next"]


def test_a_plan_without_launches_has_no_steps() -> None:
    assert list(steps(Plan(()), {})) == []


@given(st.integers(0, 9))
def test_buffers_change_places_after_each_time_and_stay_so(times: int) -> None:
    plan = Plan((launch("a", "b", times=N, swap=(("a", "b"),)), launch("a", "b", "c")))
    *repeated, last = passed(plan, n=times)
    assert repeated == [("a", "b") if turn % 2 == 0 else ("b", "a") for turn in range(times)]
    assert last == (("a", "b", "c") if times % 2 == 0 else ("b", "a", "c"))


@given(st.integers(0, 4))
def test_launches_that_follow_take_turns_and_know_their_time(times: int) -> None:
    first = launch("a", (I32, TIME + N), times=N)
    others = (launch("b", follows=True), launch("c", (I32, TIME), follows=True, swap=(("a", "b"),)))
    found = list(steps(Plan((first, *others, launch("a"))), {"n": times}))
    turns = [(("a", "b")[time % 2], ("b", "a")[time % 2], time) for time in range(times)]
    expected = [
        arguments
        for one, other, time in turns
        for arguments in ((one, (I32, time + times)), (other,), ("c", (I32, time)))
    ]
    assert [step.arguments for step in found] == [*expected, ("ab"[times % 2],)]
    assert [step.time for step in found] == [*(t for _, _, time in turns for t in (time, None, time)), None]


def test_a_later_swap_goes_on_from_where_the_first_left_the_buffers() -> None:
    plan = Plan(
        (launch("a", "b", "c", swap=(("a", "b"),)), launch("a", "b", "c", swap=(("b", "c"),)), launch("a", "b", "c"))
    )
    assert passed(plan) == [("a", "b", "c"), ("b", "a", "c"), ("b", "c", "a")]


def test_several_pairs_change_places_one_after_another() -> None:
    plan = Plan((launch("a", "b", "c", times=constant(4), swap=(("a", "b"), ("b", "c"))),))
    assert passed(plan) == [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b"), ("a", "b", "c")]


def test_an_empty_launch_swaps_all_the_same() -> None:
    """What follows must find its buffers where they would be at any other size."""
    plan = Plan((launch("a", "b", grid=(ZERO, ONE, ONE), swap=(("a", "b"),)), launch("a", "b")))
    assert passed(plan) == [("b", "a")]


def test_swaps_start_anew_with_every_call() -> None:
    plan = Plan((launch("a", "b", swap=(("a", "b"),)),))
    assert passed(plan) == passed(plan) == [("a", "b")]


def test_a_size_that_is_not_given_is_missed() -> None:
    with pytest.raises(KeyError, match="n"):
        list(steps(Plan((launch(times=N),)), {}))


def test_launches_of_the_same_buffers_are_one_object() -> None:
    """A call may have millions of them."""
    plan = Plan((launch("a", "b", (I32, N), times=N, swap=(("a", "b"),)), launch("a", "b", times=N)))
    made = list(steps(plan, {"n": 1000}))
    assert len(made) == 2000
    assert len({id(step) for step in made}) == 3
    assert made[0] == made[998] != made[999]


def test_a_gpu_gets_the_arguments_of_many_launches_once() -> None:
    asked: list[str] = []

    def function(entry: str, shared_bytes: int) -> int:
        asked.append(entry)
        return shared_bytes

    plan = Plan((launch("a", "b", (I32, N), times=N, swap=(("a", "b"),)),))
    prepared = CudaPrepared("made", function, tuple(steps(plan, {"n": 1000})), {})
    assert len(asked) == 2
    assert len(prepared._launches) == 1000
    assert prepared._launches[0] is prepared._launches[998]
    assert prepared._launches[0] != prepared._launches[999]
