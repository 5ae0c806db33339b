"""Expressions over sizes: Python and C agree on their value."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gen.families.expr import ONE, ZERO, Expr, Sizes, constant, size

NAMES = ("rows", "cols", "n", "multiprocessors")
# An expression beside the same arithmetic on Python's integers, or None where that is not defined (a division by zero,
# a negative value).
Twin = tuple[Expr, Mapping[str, int], int | None]


def as_c(text: str, sizes: Mapping[str, int]) -> int:
    """Evaluates C over unsigned numbers: its division is Python's `//`, all else is spelled the same."""
    assert "//" not in text
    value = eval(text.replace("/", "//"), {"min": min, "max": max, "__builtins__": {}}, dict(sizes))
    assert isinstance(value, int)
    return value


@st.composite
def twins(draw: st.DrawFn) -> Twin:
    sizes = {name: draw(st.integers(0, 2**33), label=name) for name in NAMES}

    def leaf() -> SearchStrategy[tuple[Expr, int | None]]:
        numbers = st.integers(0, 2**12).map(lambda number: (constant(number), number))
        return st.one_of(numbers, st.sampled_from(NAMES).map(lambda name: (size(name), sizes[name])))

    def join(inner: SearchStrategy[tuple[Expr, int | None]]) -> SearchStrategy[tuple[Expr, int | None]]:
        return st.builds(_join, st.sampled_from(sorted(OPERATIONS)), inner, inner)

    expression, value = draw(st.recursive(leaf(), join, max_leaves=12))
    return expression, sizes, value


def _join(operation: str, left: tuple[Expr, int | None], right: tuple[Expr, int | None]) -> tuple[Expr, int | None]:
    if left[1] is None or right[1] is None or (operation in ("/", "%", "ceil") and right[1] == 0):
        return left  # nothing to compare: leave this branch out
    if operation == "ceil" and not right[0].names() and right[0].at({}) == 0:
        return left
    value = OPERATIONS[operation][1](left[1], right[1])
    return (left[0], left[1]) if value < 0 else (OPERATIONS[operation][0](left[0], right[0]), value)


OPERATIONS: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[int, int], int]]] = {
    "+": (Expr.__add__, lambda a, b: a + b),
    "-": (Expr.__sub__, lambda a, b: a - b),
    "*": (Expr.__mul__, lambda a, b: a * b),
    "/": (Expr.__floordiv__, lambda a, b: a // b),
    "%": (Expr.__mod__, lambda a, b: a % b),
    "min": (Expr.at_most, min),
    "max": (Expr.at_least, max),
    "ceil": (Expr.ceil_div, lambda a, b: -(-a // b)),
}


@given(twins())
def test_the_value_is_that_of_python_arithmetic(twin: Twin) -> None:
    expression, sizes, value = twin
    assert expression.at(sizes) == value
    assert expression.at(Sizes(sizes)) == value  # which dispatch evaluates without a call for each part


@given(twins())
def test_its_c_has_the_same_value(twin: Twin) -> None:
    expression, sizes, value = twin
    assert as_c(expression.text(), sizes) == value
    assert str(expression) == expression.text()


@given(twins())
def test_it_needs_just_the_sizes_it_names(twin: Twin) -> None:
    expression, sizes, value = twin
    assert expression.at({name: sizes[name] for name in expression.names()}) == value
    for name in expression.names():
        with pytest.raises(KeyError):
            expression.at({other: number for other, number in sizes.items() if other != name})


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_ceil_div_is_the_least_number_of_pieces_that_cover(whole: int, piece: int) -> None:
    pieces = size("n").ceil_div(piece).at({"n": whole})
    assert pieces * piece >= whole
    assert pieces == 0 or (pieces - 1) * piece < whole


def test_what_is_known_when_the_kernel_is_written_is_computed_then() -> None:
    assert (constant(6) * 7 + 1).ceil_div(2).text() == "22"
    assert constant(ONE) is ONE
    assert (ZERO + 1) == ONE
    n = size("n")
    assert n * 1 is n // 1 is ONE * n is n + 0 is n - 0 is ZERO + n is n
    assert n.at_most(n) is n.at_least(n) is n


@given(twins(), st.integers(1, 2**12), st.sampled_from(sorted(OPERATIONS)))
def test_names_for_parts_change_no_value_and_stand_for_them(twin: Twin, number: int, operation: str) -> None:
    part, sizes, _ = twin
    whole = OPERATIONS[operation][0]((part + 1) * 3 + number, part + 1)  # neither is 0, nor is the first the smaller
    names = {part: "part"} if part.operator else {}
    text = whole.text(names.get, "LL").replace("LL", "")
    assert as_c(text, {**sizes, "part": part.at(sizes)}) == whole.at(sizes)
    assert ("part" in text) == (part.operator is not None)
    word = whole.called("whole")
    assert (word, word.text()) == (whole, whole.text())


def test_what_is_a_part_of_many_is_met_once() -> None:
    """An expression of a few lines of Python has more parts than could be visited, where each is met on every way."""
    one = size("n")
    for _ in range(100):
        one = one * 2 + one
    assert len(one.parts()) == 2 + 2 * 100  # `n` and 2
    assert one.names() == {"n"}
    assert one.parts()[-1] is one


def test_its_hash_is_that_of_equals_and_of_the_process() -> None:
    one, other = (Expr(operator="+", operands=(Expr(name="n"), Expr(number=1)), word=word) for word in ("", "one"))
    assert hash(one) == hash(other)
    assert one == other
    assert one.at(Sizes({"n": 2})) == 3
    assert not {"_hash", "_program"} & pickle.loads(pickle.dumps(one)).__dict__.keys()


def test_it_prints_as_people_write_it() -> None:
    n = size("n")
    blocks = n.ceil_div(256).at_most(size("multiprocessors") * 8).at_least(1)
    assert blocks.text() == "max(min((n + 255) / 256, multiprocessors * 8), 1)"
    assert str((n + 1) * (n - 1)) == "(n + 1) * (n - 1)"
    assert str((n + (n + 1)) * (n * 4) // (n % 3) - (n - (n + 2))) == "(n + n + 1) * n * 4 / (n % 3) - (n - (n + 2))"
    assert str(n.ceil_div(n * 2)) == "(n + n * 2 - 1) / (n * 2)"
