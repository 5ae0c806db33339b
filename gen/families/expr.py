"""Integer expressions over run-time sizes: evaluated in Python, printed as C.

A plan's grids, byte counts and arguments are such expressions, so that every runner and the exported C share one
formula.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast

Operator = Literal["+", "-", "*", "/", "%", "min", "max"]
Operand: TypeAlias = "Expr | int"


APPLIED: Mapping[Operator, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod, "min": min,
    "max": max,
}  # fmt: skip


class Tracer(Protocol):
    """Whoever writes functions of sizes as C++: `gen.export.trace`."""

    def alone(self, function: partial[Any]) -> Any:
        """What a function gives, a number or a truth, as a function of C++ of its own."""
        ...

    def called(self, file: str, name: str, count: int, numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """So many results of a function that a file of templates holds in C++; None where all numbers are known."""
        ...


TRACER: Tracer | None = None
"""Traces functions of sizes, while somebody does."""

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
F = TypeVar("F", bound=Callable[..., Any])


class Sizes(dict[str, int]):
    """Sizes by name, which remember what was computed from them: one decision asks for many things several times."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        """Takes the extents of a problem, and what a plan's expressions may name beside them."""
        super().__init__(sizes)
        self.known: dict[object, tuple[Any, object]] = {}


def once_a_problem(
    function: Callable[Concatenate[S, Mapping[str, int], P], R],
) -> Callable[Concatenate[S, Mapping[str, int], P], R]:
    """Marks a function of a spec and sizes, and of what can be hashed, that variants of one problem ask for alike."""

    @wraps(function)
    def found(spec: S, extents: Mapping[str, int], /, *given: P.args, **named: P.kwargs) -> R:
        if type(extents) is not Sizes or named:
            return function(spec, extents, *given, **named)
        place = (function, id(spec), *given)
        known = extents.known.get(place)
        if known is None:
            known = extents.known[place] = function(spec, extents, *given, **named), spec  # which stays, as its id does
        result: R = known[0]
        return result

    return found


def made_once(function: F) -> F:
    """Marks a function of a spec and a config that makes expressions: dispatch asks for them often."""
    return cast("F", lru_cache(maxsize=4096)(function))


def traced_alone(function: Callable[P, R]) -> Callable[P, R]:
    """Marks a function of sizes that gives one number, or a truth.

    Where it is traced it becomes a function of its own, so that its ways do not multiply with those of its callers.
    """

    @wraps(function)
    def found(*arguments: P.args, **named: P.kwargs) -> R:
        if TRACER is None:
            return function(*arguments, **named)
        result: R = TRACER.alone(partial(function, *arguments, **named))
        return result

    return found


def also_in_cpp(file: str) -> Callable[[Callable[..., tuple[int, ...]]], Callable[..., tuple[int, ...]]]:
    """Marks a function of integers that no tracing finds through: a file of templates has it in C++, by its name.

    `void NAME(const Int* given, int count, Int* found)` there gives as many results. How many these are depends on
    numbers alone that are known when it is traced.
    """

    def marked(function: Callable[..., tuple[int, ...]]) -> Callable[..., tuple[int, ...]]:
        @wraps(function)
        def found(*numbers: Any) -> tuple[int, ...]:
            if TRACER is not None:
                count = len(function(*(one if isinstance(one, int) else 1 for one in numbers)))
                traced = TRACER.called(file, function.__name__, count, numbers)
                if traced is not None:
                    return traced
            return function(*numbers)

        return found

    return marked


_BINDS: Mapping[str, int] = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2}  # how closely operators bind
_ALONE = 3  # as calls, names and numbers do, which need no parentheses


@dataclass(frozen=True)
class Expr:
    """A number, a named size, or two expressions joined. Division rounds down; no value may be negative.

    Attributes:
        word: what a reader may call it; it changes no value.
    """

    number: int = 0
    name: str = ""
    operator: Operator | None = None
    operands: tuple[Expr, ...] = ()
    word: str = field(default="", compare=False)

    def at(self, sizes: Mapping[str, int]) -> int:
        """The value, given every size it names. Raises KeyError for a size that is not given."""
        if self.operator is None:
            return sizes[self.name] if self.name else self.number
        if type(sizes) is Sizes:
            known = sizes.known.get(id(self))
            if known is None:
                known = sizes.known[id(self)] = self._run(sizes), self
            value: int = known[0]
            return value
        left, right = self.operands
        # Numbers and names are most operands: a call for each of them would take half of the time.
        one = left.at(sizes) if left.operator else sizes[left.name] if left.name else left.number
        other = right.at(sizes) if right.operator else sizes[right.name] if right.name else right.number
        return APPLIED[self.operator](one, other)

    def _run(self, sizes: Mapping[str, int]) -> int:
        """The value, without a call for each part."""
        numbers, names, operations = self._program
        values = [*numbers, *[sizes[name] for name in names]]
        for apply, left, right in operations:
            values.append(apply(values[left], values[right]))
        return values[-1]

    @cached_property
    def _program(
        self,
    ) -> tuple[tuple[int, ...], tuple[str, ...], tuple[tuple[Callable[[int, int], int], int, int], ...]]:
        """Its numbers, its names, and what is done in turn with two of these or of what is found so."""
        parts = self.parts()
        ordered = sorted(parts, key=lambda part: 2 if part.operator else 1 if part.name else 0)
        places = {id(part): place for place, part in enumerate(ordered)}
        return (
            tuple(part.number for part in ordered if part.is_number),
            tuple(part.name for part in ordered if part.name),
            tuple(
                (APPLIED[part.operator], places[id(part.operands[0])], places[id(part.operands[1])])
                for part in ordered
                if part.operator
            ),
        )  # fmt: skip

    def fixed(self) -> int | None:
        """The value where it is the same for all sizes; None where it names one."""
        try:
            return self.at({})
        except KeyError:
            return None

    def text(self, names: Callable[[Expr], str | None] = lambda _: None, type_suffix: str = "") -> str:
        """The expression as C over variables of the sizes' names, with parentheses where operators need them.

        Args:
            names: the variable that stands for an expression, if one does.
            type_suffix: of numbers beside sizes in calls of `min` and `max`, whose two arguments have one type in C++.
        """
        return names(self) or self.meaning(names, type_suffix)

    def meaning(self, names: Callable[[Expr], str | None] = lambda _: None, type_suffix: str = "") -> str:
        """The same, without a variable for all of it."""
        if self.operator is None:
            return self.name or str(self.number)
        if self.operator in ("min", "max"):
            numbers = [
                str(part) + type_suffix if part.is_number else part.text(names, type_suffix) for part in self.operands
            ]
            return f"{self.operator}({', '.join(numbers)})"
        left, right = self.operands
        binds = _BINDS[self.operator]
        # The sum of a sum, and the product of a product, may be computed in any order.
        after = binds if self.operator == right.operator and self.operator in ("+", "*") else binds + 1
        return f"{left._beside(binds, names, type_suffix)} {self.operator} {right._beside(after, names, type_suffix)}"

    def _beside(self, binds: int, names: Callable[[Expr], str | None], type_suffix: str) -> str:
        """The text beside an operator that binds so closely."""
        named = names(self)
        text = named or self.meaning(names, type_suffix)
        return text if named or _BINDS.get(self.operator or "", _ALONE) >= binds else f"({text})"

    @property
    def is_number(self) -> bool:
        """Whether it is a number, and neither a size nor an operation."""
        return self.operator is None and not self.name

    def called(self, word: str) -> Expr:
        """The same value, for which readers are given a word. A number or a size stays what it is."""
        if self.operator is None:
            return self
        return _once((word, id(self)), lambda: replace(self, word=word), self)

    def parts(self) -> tuple[Expr, ...]:
        """Each object among its parts once, however many others it is a part of: parts of parts first, itself last."""
        return self._parts

    @cached_property
    def _parts(self) -> tuple[Expr, ...]:
        met: dict[int, Expr] = {}
        self._meet(met)
        return tuple(met.values())

    def _meet(self, met: dict[int, Expr]) -> None:
        for operand in self.operands:
            if id(operand) not in met:
                operand._meet(met)
        met[id(self)] = self

    def names(self) -> frozenset[str]:
        """The sizes it needs."""
        return frozenset(part.name for part in self.parts() if part.name)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.number, self.name, self.operator, self.operands))

    def __getstate__(self) -> dict[str, object]:
        # A hash is another in each process; the parts are in the operands.
        return {name: value for name, value in vars(self).items() if name not in ("_hash", "_parts", "_program")}

    def __str__(self) -> str:
        return self.text()

    def __add__(self, other: Operand) -> Expr:
        return _join("+", self, other)

    def __sub__(self, other: Operand) -> Expr:
        return _join("-", self, other)

    def __mul__(self, other: Operand) -> Expr:
        return _join("*", self, other)

    def __floordiv__(self, other: Operand) -> Expr:
        return _join("/", self, other)

    def __mod__(self, other: Operand) -> Expr:
        return _join("%", self, other)

    def ceil_div(self, other: Operand) -> Expr:
        """The quotient, rounded up."""
        divisor = constant(other)
        return (self + (divisor - 1) if divisor.is_number else self + divisor - 1) // divisor

    def at_least(self, other: Operand) -> Expr:
        """The larger of the two."""
        return _join("max", self, other)

    def at_most(self, other: Operand) -> Expr:
        """The smaller of the two."""
        return _join("min", self, other)


@lru_cache(maxsize=1024)
def size(name: str) -> Expr:
    """A size that is known when the kernel is called: an extent of the problem, or `multiprocessors`."""
    return Expr(name=name)


def constant(value: Operand) -> Expr:
    """A number known when the kernel is written."""
    return value if isinstance(value, Expr) else _number(value)


@lru_cache(maxsize=1024)
def _number(value: int) -> Expr:
    return Expr(number=value)


def _join(operator: Operator, left: Expr, right: Operand) -> Expr:
    other = right if isinstance(right, Expr) else _number(right)
    if other.is_number:
        if other.number == 1 and operator in ("*", "/"):
            return left
        if other.number == 0 and operator in ("+", "-"):
            return left
        if other.number == 0 and operator == "*":
            return ZERO
        if left.is_number:  # what is known now is computed now
            return _number(APPLIED[operator](left.number, other.number))
    elif left.is_number and (left.number, operator) in ((1, "*"), (0, "+")):
        return other
    elif operator in ("min", "max") and left is other:
        return left
    return _once((operator, id(left), id(other)), lambda: Expr(operator=operator, operands=(left, other)), left, other)


_MADE: dict[tuple[object, ...], tuple[Expr, tuple[Expr, ...]]] = {}
_MOST_MADE = 1 << 15


def _once(place: tuple[object, ...], make: Callable[[], Expr], *of: Expr) -> Expr:
    """What is made of other expressions, which the place says by `id`: the same object for the same ones."""
    known = _MADE.get(place)
    if known is None:
        if len(_MADE) >= _MOST_MADE:
            _MADE.clear()
        known = _MADE[place] = make(), of  # which stay, and so do their ids
    return known[0]


ZERO = Expr(number=0)
ONE = Expr(number=1)
