"""Python functions of sizes as trees of decisions: what gen computes for one problem, written down for every problem.

A function is run with traced numbers in the place of sizes. Arithmetic makes terms; each comparison whose outcome does
not follow from earlier ones is taken both ways, in as many runs as there are paths. What comes out is a tree of
comparisons with a result at each leaf, which is printed as C++. So shape classes, slow paths, estimates and plans are
declared once, in Python, and the exported library holds the same facts.

`min`, `max` and `gcd` would compare, and so double the paths, or ask for a number: while a function is traced, the
modules of families see versions of them that make terms.
"""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from gen.errors import GenError
from gen.families import expr

T = TypeVar("T")
Bounds = tuple[float, float]
MOST_PATHS = 2500
_LARGEST = 2.0**62
_FREE: Bounds = (-math.inf, math.inf)
_MORE_THAN_AXES = 100  # of any array
_OPEN, _CLOSE = "\x02", "\x03"  # around the number of a term in a message


class TracingError(GenError):
    """What a function does with sizes cannot be written as a tree of decisions."""


NO_NAMES: Mapping[Any, str] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class Term:
    """A number, a named variable, or an operation on other terms. Equal terms of one trace are one object.

    Attributes:
        operator: `number`, `variable`, `alone`: a call, `at`: one of several results, or what joins the operands.
        value: of a number; of a variable or a call, how C++ spells it; of a function's results, how many there are.
        real: whether it is a `double`; all others are integers.
    """

    operator: str
    operands: tuple[Term, ...]
    value: int | float | str
    real: bool

    @property
    def is_several(self) -> bool:
        """Whether it stands for all results of a function that C++ has too."""
        return bool(self.operands) and self.operator != "at" and self.value != 0

    @property
    def cpp_type(self) -> str:
        """Of a variable that holds it."""
        return "auto" if self.is_several else "double" if self.real else "Int"

    def cpp(self, names: Mapping[Term, str] = NO_NAMES) -> str:
        """The term as C++; operators that C++ defines in another way, and those it lacks, are calls.

        Args:
            names: what terms are called that a variable holds already.
        """
        if self in names:
            return names[self]
        parts = [one.cpp(names) for one in self.operands]
        match self.operator:
            case "number":
                return _literal(self.value)
            case "variable" | "alone" | "text":
                return str(self.value)
            case "at":
                return f"{parts[0]}[{self.value}]"
            case "double":
                return f"double({parts[0]})"
            case "negative":
                return f"(-{parts[0]})"
            case "+" | "-" | "*" | "/":
                return f"({parts[0]} {self.operator} {parts[1]})"
        if self.is_several:
            return f"results_of<{self.value}>({self.operator}, {{{', '.join(parts)}}})"
        name = {"//": "quotient", "%": "remainder", "min": "least", "max": "most"}.get(self.operator, self.operator)
        return f"{name}({', '.join(parts)})"


def _literal(value: int | float | str) -> str:
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "HUGE_VAL"
    return f"{value}LL" if abs(int(value)) >= 2**31 else str(value)


@dataclass(frozen=True)
class Condition:
    """A comparison of two terms: `<`, `<=` or `==`."""

    operator: str
    left: Term
    right: Term

    def cpp(self, names: Mapping[Term, str] = NO_NAMES) -> str:
        """The comparison as C++; names as for terms."""
        return f"{self.left.cpp(names)} {self.operator} {self.right.cpp(names)}"


@dataclass(frozen=True)
class Fork:
    """Where a path divides."""

    condition: Condition
    yes: Tree
    no: Tree


@dataclass(frozen=True)
class Leaf:
    """What a function gives on a path; `None` where it gives nothing."""

    result: Any


@dataclass(frozen=True)
class Refusal:
    """The words of an error, in parts: texts, and terms whose values stand between them."""

    parts: tuple[str | Term, ...]


Tree: TypeAlias = "Fork | Leaf"
IMPOSSIBLE = "impossible"
"""The result of paths on which a function fails as no problem makes it fail: comparisons that exclude each other."""


def leaves(tree: Tree) -> Iterator[Any]:
    """The results of a tree."""
    if isinstance(tree, Leaf):
        yield tree.result
    else:
        yield from leaves(tree.yes)
        yield from leaves(tree.no)


class AnyTuple(tuple[int, ...]):
    """Numbers of which nothing is known but that they are not as many as any others; it stands for C++ in messages."""

    _shown: Callable[[], str]

    def __new__(cls, trace: Trace, cpp: str) -> AnyTuple:
        """What C++ spells so."""
        made = super().__new__(cls, [0] * _MORE_THAN_AXES)
        made._shown = lambda: trace.shown(trace.text(cpp))
        return made

    def __repr__(self) -> str:
        return self._shown()


class Number:
    """A number that is not known: arithmetic makes terms, comparisons decide a path."""

    __slots__ = ("term", "trace")

    def __init__(self, trace: Trace, term: Term) -> None:
        self.trace, self.term = trace, term

    def __hash__(self) -> int:
        if self.trace.is_key(self.term):
            return id(self.term)
        raise TracingError("A size", "cannot be a key of a dictionary, nor an argument that a cache remembers")

    def __index__(self) -> int:
        raise TracingError("A size", "cannot be asked for its value")

    __int__ = __float__ = __index__

    def __bool__(self) -> bool:
        return not self.trace.compare("==", self, 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number | int | float) and self.trace.compare("==", self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self.trace.compare("<", self, other)

    def __le__(self, other: Any) -> bool:
        return self.trace.compare("<=", self, other)

    def __gt__(self, other: Any) -> bool:
        return self.trace.compare("<", other, self)

    def __ge__(self, other: Any) -> bool:
        return self.trace.compare("<=", other, self)

    def __add__(self, other: Any) -> Number:
        return self.trace.joined("+", self, other)

    def __radd__(self, other: Any) -> Number:
        return self.trace.joined("+", other, self)

    def __sub__(self, other: Any) -> Number:
        return self.trace.joined("-", self, other)

    def __rsub__(self, other: Any) -> Number:
        return self.trace.joined("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.trace.joined("*", self, other) if isinstance(other, Number | int | float) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return self.trace.joined("*", other, self) if isinstance(other, Number | int | float) else NotImplemented

    def __truediv__(self, other: Any) -> Number:
        return self.trace.joined("/", self, other)

    def __rtruediv__(self, other: Any) -> Number:
        return self.trace.joined("/", other, self)

    def __floordiv__(self, other: Any) -> Number:
        return self.trace.joined("//", self, other)

    def __rfloordiv__(self, other: Any) -> Number:
        return self.trace.joined("//", other, self)

    def __mod__(self, other: Any) -> Number:
        return self.trace.joined("%", self, other)

    def __rmod__(self, other: Any) -> Number:
        return self.trace.joined("%", other, self)

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or power < 1:
            raise TracingError("A size", "can be raised to a whole power of 1 and more only", repr(power))
        return math.prod([self] * power)

    def __neg__(self) -> Number:
        return self.trace.made("negative", self.term)

    def __round__(self) -> Number:
        return self.trace.whole("rounded", self)

    def __floor__(self) -> Number:
        return self.trace.whole("rounded_down", self)

    def __ceil__(self) -> Number:
        return self.trace.whole("rounded_up", self)

    def bit_length(self) -> Number:
        """As that of an integer that is not negative."""
        return self.trace.made("bit_length", self.term)

    def __format__(self, how: str) -> str:
        return str(self)

    def __repr__(self) -> str:
        return self.trace.shown(self.term)

    __str__ = __repr__


class Trace:
    """The runs of functions over the same variables."""

    def __init__(self, function_of: Callable[[Tree, bool], str] = lambda _tree, _real: "") -> None:
        """Begins without terms; `function_of` spells the call of a function for a tree of numbers, real or not."""
        self.files: dict[str, None] = {}  # of templates, whose functions are called
        self._function_of = function_of
        self._apart: dict[tuple[Any, ...], Any] = {}  # what functions gave that were traced for themselves
        self._terms: dict[tuple[Any, ...], Term] = {}
        self._shown: list[Term] = []
        self._declared: dict[Term, Bounds] = {}
        self._keys: set[Term] = set()
        self._trees: dict[Any, Tree] = {}  # equal trees are one object
        self._begin(())

    def variable(
        self, cpp: str, *, least: float = 0, most: float = _LARGEST, real: bool = False, key: bool = False
    ) -> Number:
        """A number that C++ knows by this name, within bounds; a `key` may be an argument of functions that cache."""
        term = self._term("variable", (), cpp, real)
        if key:
            self._keys.add(term)
        self._declared[term] = (least, most)
        return Number(self, term)

    def text(self, cpp: str) -> Term:
        """What stands in messages, as C++ spells it."""
        return self._term("text", (), cpp, False)

    def tree(self, function: Callable[[], Any], result: Callable[[Any], Any] = lambda found: found) -> Tree:
        """All that a function gives.

        Args:
            function: of no arguments; it reads traced numbers.
            result: makes something that can be compared of what the function gives, such as terms of numbers.

        Raises:
            TracingError: there are too many paths, or it does what terms cannot say.
        """
        paths: list[tuple[list[tuple[Condition, bool]], Any]] = []
        left: list[tuple[bool, ...]] = [()]
        while left:
            decided = left.pop()
            self._begin(decided)
            with _terms_for(self):
                try:
                    found = result(function())
                except TracingError:
                    raise
                except TypeError as error:  # of an operation that terms lack
                    raise TracingError("A size", "cannot be used in this way", error) from error
                except GenError as error:
                    found = Refusal(self._parts(str(error)))
                except (ArithmeticError, AssertionError, LookupError, StopIteration):
                    found = IMPOSSIBLE
            paths.append((list(self._path), found))
            if len(paths) > MOST_PATHS:
                raise TracingError("What is done for an array", f"must depend on it in at most {MOST_PATHS} ways")
            taken = tuple(outcome for _, outcome in self._path)
            left += [(*taken[:place], False) for place in range(len(decided), len(taken))]
        return self._joined(paths)

    def _joined(self, paths: list[tuple[list[tuple[Condition, bool]], Any]]) -> Tree:
        """The tree of paths, without forks whose outcome changes nothing."""
        known = self._trees

        def build(some: list[tuple[list[tuple[Condition, bool]], Any]], depth: int) -> Tree:
            path, found = some[0]
            if len(path) == depth:
                return known.setdefault(("leaf", type(found), found), Leaf(found))
            yes = build([one for one in some if one[0][depth][1]], depth + 1)
            no = build([one for one in some if not one[0][depth][1]], depth + 1)
            for here, other in ((yes, no), (no, yes)):
                if isinstance(here, Leaf) and here.result is IMPOSSIBLE:
                    return other
            if yes is no:
                return yes
            condition = path[depth][0]
            return known.setdefault((condition, id(yes), id(no)), Fork(condition, yes, no))

        return build(paths, 0)

    def _begin(self, decided: tuple[bool, ...]) -> None:
        self._decided, self._path = decided, list[tuple[Condition, bool]]()
        self._facts: dict[tuple[str, Term, Term], bool] = {}
        self._bounds: dict[Term, Bounds] = {}
        self._derived: dict[Term, Bounds] = {}  # until something is learnt

    def alone(self, function: partial[Any]) -> Any:
        """What a function gives that is traced for itself: a call, unless it gives the same number everywhere."""
        key = function.func, _key(function.args), _key(function.keywords)
        if key not in self._apart:
            self._apart[key] = self._traced_alone(function)
        return self._apart[key]

    def _traced_alone(self, function: Callable[[], Any]) -> Any:
        outer = self._decided, self._path, self._facts, self._bounds, self._derived
        low, high = math.inf, -math.inf

        def measured(value: Any) -> Term:
            nonlocal low, high
            term = self.term(value)
            least, most = self.bounds(term)
            low, high = min(low, least), max(high, most)
            return term

        try:
            tree = self.tree(function, measured)
        finally:
            self._decided, self._path, self._facts, self._bounds, self._derived = outer
        if isinstance(tree, Leaf):
            found = tree.result
            if not isinstance(found, Term):
                raise TracingError("A function of sizes", "must give a number")
            return found.value if found.operator == "number" else Number(self, found)
        real = any(isinstance(found, Term) and found.real for found in leaves(tree))
        made = self._term("alone", (), self._function_of(tree, real), real)
        self._declared[made] = low, high
        return Number(self, made)

    def called(self, file: str, name: str, count: int, numbers: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The results of a function that C++ has in that file of templates; None where all numbers are known."""
        if not _traced(numbers):
            return None
        self.files[file] = None
        results = self._term(name, tuple(map(self.term, numbers)), count, False)
        found = [self._term("at", (results,), place, False) for place in range(count)]
        return tuple(Number(self, term) for term in found)

    def compare(self, operator: str, one: Any, other: Any) -> bool:
        """The outcome of a comparison on this path."""
        left, right = self.term(one), self.term(other)
        if operator == "==" and left.operator == "number":
            left, right = right, left
        known = self._follows(operator, left, right)
        if known is not None:
            return known
        place = len(self._path)
        outcome = self._decided[place] if place < len(self._decided) else True
        self._path.append((Condition(operator, left, right), outcome))
        self._learn(operator, left, right, outcome)
        return outcome

    def _follows(self, operator: str, left: Term, right: Term) -> bool | None:
        if left is right:
            return operator != "<"
        (low, high), (least, most) = self.bounds(left), self.bounds(right)
        if operator == "==":
            if high < least or most < low:
                return False
            if low == high == least == most:
                return True
        elif operator == "<":
            if high < least or low >= most:
                return high < least
        elif high <= least or low > most:
            return high <= least
        return self._facts.get((operator, left, right))

    def _learn(self, operator: str, left: Term, right: Term, outcome: bool) -> None:
        facts, self._derived = self._facts, {}
        if operator == "==":
            facts["==", left, right] = facts["==", right, left] = outcome
            if outcome:
                facts |= {("<", left, right): False, ("<", right, left): False}
                facts |= {("<=", left, right): True, ("<=", right, left): True}
                shared = self.bounds(left), self.bounds(right)
                both = max(low for low, _ in shared), min(high for _, high in shared)
                self._bounds[left] = self._bounds[right] = both
            else:
                for term, (value, end) in ((left, self.bounds(right)), (right, self.bounds(left))):
                    low, high = self.bounds(term)
                    if value == end and not term.real:
                        self._bounds[term] = (low + (low == value), high - (high == value))
            return
        if not outcome:  # not left < right: right <= left
            operator, left, right = "<=" if operator == "<" else "<", right, left
        strict = operator == "<"
        facts |= {("<=", left, right): True, ("<", right, left): False}
        if strict:
            facts |= {("<", left, right): True, ("<=", right, left): False}
            facts |= {("==", left, right): False, ("==", right, left): False}
        step = int(strict and not left.real and not right.real)
        (low, high), (least, most) = self.bounds(left), self.bounds(right)
        self._bounds[left] = (low, min(high, most - step))
        self._bounds[right] = (max(least, low + step), most)

    def is_key(self, term: Term) -> bool:
        """Whether a variable may be one of the arguments that a cache remembers."""
        return term in self._keys

    def bounds(self, term: Term) -> Bounds:
        """Between which values a term lies on this path."""
        if term in self._derived:
            return self._derived[term]
        low, high = self._from_operands(term)
        if term in self._bounds:
            least, most = self._bounds[term]
            low, high = max(low, least), min(high, most)
        self._derived[term] = low, high
        return low, high

    def _from_operands(self, term: Term) -> Bounds:
        if term.operator == "number":
            return float(term.value), float(term.value)
        if term.operator in ("variable", "alone"):
            return self._declared[term]
        found = [self.bounds(one) for one in term.operands]
        (low, high), (least, most) = found[0], found[-1]
        match term.operator:
            case "double":
                return low, high
            case "negative":
                return -high, -low
            case "+":
                return low + least, high + most
            case "-":
                return low - most, high - least
            case "min":
                return min(low, least), min(high, most)
            case "max":
                return max(low, least), max(high, most)
            case "*" if low >= 0 and least >= 0:
                return low * least if low and least else 0.0, high * most if high and most else 0.0
            case "//" if low >= 0 and least >= 1 and high <= 2.0**52:
                return low // most, high // least
            case "//" | "/" if low >= 0 and least > 0:
                return 0.0, high / least
            case "%" if least >= 1:
                return 0.0, min(most - (not term.real), high) if low >= 0 else most - 1
            case "greatest_divisor":
                ends = [most for low, most in found if low > 0]
                return float(any(low > 0 for low, _ in found)), min(ends, default=math.inf)
            case "bit_length":
                return (1.0 if low >= 1 else 0.0), 63.0
        return _FREE

    def joined(self, operator: str, one: Any, other: Any) -> Number:
        """The number that an operator makes of two."""
        left, right = self.term(one), self.term(other)
        zero, unit = (right.operator == "number" and right.value == value for value in (0, 1))
        same = (zero and operator in "+-") or (unit and (operator == "*" or (operator == "//" and not left.real)))
        if not right.real and same:
            return Number(self, left)
        if left.operator == "number" and operator in "+*" and not left.real and left.value == (operator == "*"):
            return Number(self, right)
        return self.made(operator, left, right)

    def made(self, operator: str, *operands: Term) -> Number:
        """The number that an operator makes of terms; real where one of them is, or it is a quotient of `/`."""
        real = operator == "/" or any(one.real for one in operands)
        if real:
            operands = tuple(self._real(one) for one in operands)
        return Number(self, self._term(operator, operands, 0, real))

    def whole(self, how: str, number: Number) -> Number:
        """The integer that a number is rounded to."""
        return Number(self, self._term(how, (number.term,), 0, False)) if number.term.real else number

    def _real(self, term: Term) -> Term:
        if term.real:
            return term
        if term.operator == "number":
            return self._term("number", (), float(term.value), True)
        return self._term("double", (term,), 0, True)

    def term(self, value: Any) -> Term:
        """The term of a number, known or not."""
        if isinstance(value, Number):
            return value.term
        if not isinstance(value, int | float):
            raise TracingError("A size", "can be joined with numbers only", repr(value))
        return self._term("number", (), int(value) if isinstance(value, bool) else value, isinstance(value, float))

    def _term(self, operator: str, operands: tuple[Term, ...], value: int | float | str, real: bool) -> Term:
        key = (operator, tuple(map(id, operands)), value, real)
        return self._terms.setdefault(key, Term(operator, operands, value, real))

    def shown(self, term: Term) -> str:
        """What stands for a term in a message."""
        self._shown.append(term)
        return f"{_OPEN}{len(self._shown) - 1}{_CLOSE}"

    def _parts(self, message: str) -> tuple[str | Term, ...]:
        first, *others = message.split(_OPEN)
        parts: list[str | Term] = [first]
        for other in others:
            number, _, text = other.partition(_CLOSE)
            parts += [self._shown[int(number)], text]
        return tuple(part for part in parts if part != "")

    def extreme(self, operator: str, values: Sequence[Any]) -> Any:
        """The least, or the most, of numbers."""
        found = values[0]
        for value in values[1:]:
            one, other = self.term(found), self.term(value)
            (low, high), (least, most) = self.bounds(one), self.bounds(other)
            if (high <= least) if operator == "min" else (low >= most):
                continue
            found = value if (most <= low if operator == "min" else least >= high) else self.made(operator, one, other)
        return found

    def divisor(self, values: Sequence[Any]) -> Any:
        """The greatest common divisor of integers."""
        found: Any = 0
        for value in values:
            if isinstance(found, int) and isinstance(value, int):
                found = math.gcd(found, value)
            elif isinstance(found, int) and found == 0:
                found = value
            else:
                found = self.made("greatest_divisor", self.term(found), self.term(value))
        return found


def _key(value: Any) -> Any:
    """What tells arguments of a function apart: numbers that are not known by their terms, which a trace keeps."""
    if isinstance(value, Number):
        return "term", id(value.term)
    if isinstance(value, Mapping):
        return tuple((name, _key(one)) for name, one in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    if is_dataclass(value) and any(isinstance(getattr(value, one.name), Number | tuple) for one in fields(value)):
        return type(value), *(_key(getattr(value, one.name)) for one in fields(value))
    return type(value), value


def _traced(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Number) for value in values)


@contextmanager
def _terms_for(trace: Trace) -> Iterator[None]:
    """Lets the modules of families make terms of what would compare numbers, or ask for their values."""

    def extreme(name: str) -> Callable[..., Any]:
        usual = getattr(builtins, name)

        def found(*values: Any, **options: Any) -> Any:
            several = values if len(values) > 1 else tuple(values[0])
            if options.keys() - {"default"} or not _traced(several):
                return usual(several, **options)
            return trace.extreme(name, several)

        return found

    def divisor(*values: Any) -> Any:
        return trace.divisor(values) if _traced(values) else math.gcd(*values)

    def in_order(values: Any, **options: Any) -> Any:
        several = list(values)
        if len(several) != 3 or options != {"reverse": True} or not _traced(several):
            return sorted(several, **options)
        one, two, three = several
        high, low = trace.extreme("max", (one, two)), trace.extreme("min", (one, two))
        middle = trace.extreme("max", (low, trace.extreme("min", (high, three))))
        return [trace.extreme("max", (high, three)), middle, trace.extreme("min", (low, three))]

    if expr.TRACER is not None:  # of a function that is traced for itself
        yield
        return
    changed: dict[str, Any] = {"min": extreme("min"), "max": extreme("max"), "sorted": in_order}
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("gen.families")]
    before = [(module, module.__dict__.get("gcd")) for module in modules]
    applied = expr.APPLIED
    expr.APPLIED, expr.TRACER = {**applied, "min": changed["min"], "max": changed["max"]}, trace
    for module, known in before:
        module.__dict__.update(changed)
        if known is math.gcd:
            module.__dict__["gcd"] = divisor
    try:
        yield
    finally:
        expr.APPLIED, expr.TRACER = applied, None
        for module, known in before:
            for name in changed:
                del module.__dict__[name]
            if known is not None:
                module.__dict__["gcd"] = known
