"""The expressions of systems: fields, stencil sums of them, numbers, scalars, and what joins these.

Python's operators build the tree; `fused` says how a kernel rounds it, `text_of` how a reader writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, cast

import numpy as np

from gen.dtypes import is_whole
from gen.errors import SpecError
from gen.families.base import Array
from gen.families.stencil.builder import central_difference
from gen.families.stencil.spec import AXES

Offset = tuple[int, ...]
Taps = tuple[tuple[Offset, float], ...]
Operator = Literal["+", "-", "*"]

MAX_POWER = 8
_DERIVATIVES = {1: "slope", 2: "curvature"}
_FIELD = re.compile(r"[a-z][a-z0-9]{0,15}")
# What C++ and the templates call something else.
RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl concept const constexpr continue
    decltype default delete do double else enum explicit export extern false final float for friend goto if inline int
    linux long mutable namespace new noexcept not nullptr operator or override private protected public register
    requires return short signed sizeof static struct switch template this throw true try typedef typeid typename union
    unix unsigned using virtual void volatile wchar while xor
    steps planes rows cols plane row col here inside line cells sum near fma fmaf nearest wrap reflect mirror out in
    i n x y z
    """,
    )
)


class Term:
    """What can be added, subtracted and multiplied. An offset in brackets moves all that it reads: `u[0, 1]`."""

    __array_ufunc__ = None  # so that a number of NumPy leaves an operator to this class
    __iter__ = None  # brackets move a term, which has no elements

    def __add__(self, other: Any) -> Term:
        return _joined("+", self, other)

    def __radd__(self, other: Any) -> Term:
        return _joined("+", other, self)

    def __sub__(self, other: Any) -> Term:
        return _joined("-", self, other)

    def __rsub__(self, other: Any) -> Term:
        return _joined("-", other, self)

    def __mul__(self, other: Any) -> Term:
        return _joined("*", self, other)

    def __rmul__(self, other: Any) -> Term:
        return _joined("*", other, self)

    def __truediv__(self, other: Any) -> Term:
        """Division by a number, which is multiplication by its reciprocal."""
        if not _is_number(other):
            return cast("Term", NotImplemented)
        if float(other) == 0:
            raise SpecError("system.updates", "must not divide by 0", repr(other))
        return _joined("*", self, 1 / float(other))

    def __pow__(self, power: Any) -> Term:
        """The term times itself, so often."""
        if not is_whole(power) or not 1 <= power <= MAX_POWER:
            raise SpecError("system.updates", f"may have whole powers from 1 to {MAX_POWER}", repr(power))
        found = self
        for _ in range(power - 1):
            found = found * self
        return found

    def __neg__(self) -> Term:
        return Negated(self)

    def __pos__(self) -> Term:
        return self

    def __getitem__(self, offset: Any) -> Term:
        """The same, so many cells further along each axis: `u[0, 1]` is the next cell of the row."""
        given = offset if isinstance(offset, tuple) else (offset,)
        if not all(map(is_whole, given)):
            raise SpecError("system.offset", "must be whole numbers, one an axis", repr(offset))
        return _moved(self, tuple(int(one) for one in given))


@dataclass(frozen=True)
class Number(Term):
    """A number that is known when the kernel is written."""

    value: float


@dataclass(frozen=True)
class Scalar(Term):
    """A number that a call brings, the same for all cells and steps. Made by `gen.scalars`."""

    name: str


@dataclass(frozen=True)
class Field(Term):
    """The cell of a field at the place that is computed. Made by `gen.fields`."""

    name: str
    ndim: int

    def laplace(self, order: int = 2, spacing: float = 1.0) -> Sum:
        """The sum of the second derivatives along all axes, by central differences with an error of this order."""
        return self._sum("laplace", central_difference(2, order, ndim=self.ndim, spacing=spacing))

    def derivative(self, axis: int, derivative: int = 1, order: int = 2, spacing: float = 1.0) -> Sum:
        """A derivative along one axis, by central differences with an error of this order.

        Args:
            axis: counted from 0, or from the end where it is negative, as NumPy counts.
            derivative: 1 for the slope, 2 for the curvature, and so on.
            order: of the error, even.
            spacing: between cells.
        """
        if not is_whole(axis) or not -self.ndim <= axis < self.ndim:
            raise SpecError("system.axis", f"must be a whole number from {-self.ndim} to {self.ndim - 1}", repr(axis))
        line = central_difference(derivative, order, spacing=spacing)
        place = axis % self.ndim
        word = _DERIVATIVES.get(derivative, f"derivative{derivative}")
        shape = tuple(line.size if one == place else 1 for one in range(self.ndim))
        return self._sum(f"{word}_{AXES[-self.ndim :][place]}", line.reshape(shape))

    def correlate(self, weights: Any, word: str = "around") -> Sum:
        """The weighted sum of the cells around, as `scipy.ndimage.correlate` has it.

        Args:
            weights: an array of as many axes as the field has; a weight of 0 reads nothing.
            word: what the kernel calls the sum.
        """
        try:
            array = np.asarray(weights, np.float64)
        except (TypeError, ValueError, RuntimeError) as error:
            raise SpecError("system.weights", "must be an array of numbers", repr(weights)) from error
        if array.ndim != self.ndim:
            rule = f"must have {self.ndim} axes, as the field has"
            raise SpecError("system.weights", rule, f"{array.ndim} axes")
        return self._sum(word, array)

    def _sum(self, word: str, weights: Array) -> Sum:
        taps = [
            (tuple(int(place) - extent // 2 for place, extent in zip(index, weights.shape, strict=True)), float(weight))
            for index, weight in np.ndenumerate(weights)
            if weight != 0
        ]
        if not taps:
            raise SpecError("system.weights", "must not all be 0")
        return Sum(word, self.name, tuple(taps))


@dataclass(frozen=True)
class Sum(Term):
    """The weighted sum of cells of a field: of those at these offsets, in this order.

    Terms are added from 0 by fused multiply-add. One cell of weight 1 is a neighbour, and is read as it is.

    Attributes:
        word: what the kernel calls it.
        field: whose cells are added.
        taps: offset and weight of each.
    """

    word: str
    field: str
    taps: Taps

    @property
    def is_neighbour(self) -> bool:
        """Whether it is one cell as it is."""
        return len(self.taps) == 1 and self.taps[0][1] == 1


@dataclass(frozen=True)
class Joined(Term):
    """The sum, the difference or the product of two terms."""

    operator: Operator
    left: Term
    right: Term


@dataclass(frozen=True)
class Negated(Term):
    """A term with the other sign."""

    term: Term


@dataclass(frozen=True)
class Fused(Term):
    """The product of two terms, to which a third is added, rounded once: what `fused` makes of sums of products."""

    factor: Term
    other: Term
    addend: Term


def parts(term: Term) -> tuple[Term, ...]:
    """What a term is made of."""
    match term:
        case Joined(_, left, right):
            return left, right
        case Negated(one):
            return (one,)
        case Fused(factor, other, addend):
            return factor, other, addend
    return ()


def walk(term: Term) -> Iterator[Term]:
    """All of a term, itself first, from left to right."""
    left = [term]
    while left:
        one = left.pop()
        yield one
        left += reversed(parts(one))


def rebuilt(term: Term, leaf: Callable[[Term], Term]) -> Term:
    """The same tree with each leaf replaced."""
    match term:
        case Joined(operator, left, right):
            return Joined(operator, rebuilt(left, leaf), rebuilt(right, leaf))
        case Negated(one):
            return Negated(rebuilt(one, leaf))
    return leaf(term)


def fused(term: Term) -> Term:
    """How kernels compute it: each product that is added or subtracted goes into a fused multiply-add.

    So no compiler has a choice, and the bits are those that NumPy finds. Of two products that are added the right one
    is fused. Signs are moved to factors and numbers, which changes no bit.
    """
    match term:
        case Negated(one):
            return _negated(fused(one))
        case Joined("*", left, right):
            return Joined("*", fused(left), fused(right))
        case Joined(operator, left, right):
            first, second = fused(left), fused(right)
            if isinstance(second, Joined) and second.operator == "*":
                factor = second.left if operator == "+" else _negated(second.left)
                return Fused(factor, second.right, first)
            if isinstance(first, Joined) and first.operator == "*":
                return Fused(first.left, first.right, second if operator == "+" else _negated(second))
            return Joined(operator, first, second)
    return term


def _negated(term: Term) -> Term:
    match term:
        case Number(value):
            return Number(-value)
        case Negated(one):
            return one
        case Joined("*", left, right):
            return Joined("*", _negated(left), right)
    return Negated(term)


_ADDED, _MULTIPLIED, _SIGNED, _ALONE = range(4)  # how tightly an operator binds


def text_of(term: Term, leaf: Callable[[Term], str], fma: str = "fma") -> str:
    """The expression in the notation of C and Python, with no more parentheses than its order needs.

    Args:
        term: what is written.
        leaf: how a number, a field and a sum are written.
        fma: the name of the fused multiply-add.
    """

    def written(one: Term, least: int) -> str:
        match one:
            case Joined(operator, left, right):
                binds = _MULTIPLIED if operator == "*" else _ADDED
                text = f"{written(left, binds)} {operator} {written(right, binds + 1)}"
            case Negated(of):
                binds, text = _SIGNED, f"-{written(of, _ALONE)}"
            case Fused(factor, other, addend):
                binds = _ALONE
                text = f"{fma}({written(factor, _ADDED)}, {written(other, _ADDED)}, {written(addend, _ADDED)})"
            case _:
                text = leaf(one)
                binds = _SIGNED if text.startswith("-") else _ALONE
        return text if binds >= least else f"({text})"

    return written(term, _ADDED)


def fields(names: str, ndim: int = 2) -> tuple[Field, ...]:
    """Fields for the expressions of `gen.system`: `u, v, m = gen.fields("u v m")`.

    Args:
        names: words of small letters and digits, separated by spaces or commas.
        ndim: axes of each field, 1 to 3.

    Raises:
        SpecError: a name stands twice, or is none; `ndim` is not 1 to 3.
    """
    words = _words(names, "fields.names")
    check_axes(ndim, "fields.ndim")
    return tuple(Field(word, ndim) for word in words)


def scalars(names: str) -> tuple[Scalar, ...]:
    """Numbers that calls bring, for the expressions of `gen.system`: `dt2, damping = gen.scalars("dt2 damping")`.

    Args:
        names: words of small letters and digits, separated by spaces or commas.

    Raises:
        SpecError: a name stands twice, or is none.
    """
    return tuple(Scalar(word) for word in _words(names, "scalars.names"))


def _words(given: object, subject: str) -> list[str]:
    words = given.replace(",", " ").split() if isinstance(given, str) else []
    if not words or len(set(words)) < len(words):
        raise SpecError(subject, "must be words, each once, separated by spaces", repr(given))
    for word in words:
        check_name(word)
    return words


def check_name(name: object) -> None:
    """Raises SpecError for what a kernel cannot call a field."""
    if not isinstance(name, str) or not _FIELD.fullmatch(name) or name in RESERVED:
        rule = "must be a small letter and up to 15 small letters and digits, and no word of C++ or of the kernels"
        raise SpecError("system.fields", rule, repr(name))


def as_term(value: object) -> Term | None:
    """A term as it is, a number as one; None for anything else."""
    if isinstance(value, Term):
        return value
    return Number(float(value)) if _is_number(value) else None  # type: ignore[arg-type]


def check_axes(ndim: object, subject: str) -> None:
    """Raises SpecError, about `subject`, for what is no number of axes."""
    if not isinstance(ndim, int) or isinstance(ndim, bool) or not 1 <= ndim <= len(AXES):
        raise SpecError(subject, f"must be a whole number from 1 to {len(AXES)}", repr(ndim))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _joined(operator: Operator, left: object, right: object) -> Term:
    first, second = as_term(left), as_term(right)
    if first is None or second is None:
        return cast("Term", NotImplemented)
    return Joined(operator, first, second)


def _moved(term: Term, offset: Offset) -> Term:
    def leaf(one: Term) -> Term:
        if not isinstance(one, Field | Sum):
            return one
        taps: Taps = (((0,) * one.ndim, 1.0),) if isinstance(one, Field) else one.taps
        if len(offset) != len(taps[0][0]):
            axes = len(taps[0][0])
            raise SpecError("system.offset", f"must be {axes} whole numbers, one an axis", repr(offset))
        moved = tuple((_added(place, offset), weight) for place, weight in taps)
        return _neighbour(one, moved) if isinstance(one, Field) else Sum(one.word, one.field, moved)

    return rebuilt(term, leaf)


def _neighbour(field: Field, taps: Taps) -> Term:
    return Sum("near", field.name, taps) if any(taps[0][0]) else field


def _added(place: Sequence[int], offset: Sequence[int]) -> Offset:
    return tuple(one + more for one, more in zip(place, offset, strict=True))
