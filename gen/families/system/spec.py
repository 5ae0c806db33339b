"""What a system computes: how each of its fields changes in a time step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from gen.dtypes import BF16, F16, F32, F64, I64, DType, find_dtype, read_dtype
from gen.errors import SpecError
from gen.families.base import Operand, digest_label
from gen.families.stencil.spec import (
    AXES,
    STEPS,
    Boundary,
    GridSpec,
    Outside,
    boundaries_of,
    frozen_cells,
    listed,
    outside_in_words,
    rounded_to,
)
from gen.families.system.terms import (
    RESERVED,
    Field,
    Joined,
    Negated,
    Number,
    Scalar,
    Sum,
    Taps,
    Term,
    as_term,
    check_axes,
    check_name,
    rebuilt,
    text_of,
    walk,
)

DTYPES = (F16, BF16, F32, F64)
MAX_FIELDS = 12  # updated and coefficients together
MAX_PARTS = 200  # of an update: operators, fields, sums and numbers
MAX_TERMS = 400  # of a stencil sum, which are all written out: a box of 7 x 7 x 7 cells has 343
MAX_REACH = 16
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{0,23}")
_SUM = re.compile(r"[a-z][a-z0-9_]{0,31}")


@dataclass(frozen=True)
class SystemSpec(GridSpec):
    """Fields that change together: what each becomes is an expression over the cells of the step before.

    Expressions are computed in the order in which they are written, every product that is added by a fused
    multiply-add (`fused`); stencil sums add their terms so too, in their order, from 0. Cells of f16 and bf16 are
    computed in f32 and rounded when a step is done. So the bits of a result depend on nothing but this spec.

    Attributes:
        word: what the reader calls it; stands in the label.
        updates: names of fields, each with what it becomes; fields that stand in these alone are coefficients.
        ndim: axes of every field.
        dtype: of all cells.
        boundary: what lies outside, as `StencilSpec` has it; `frozen` cells stay as they are where the update of their
            field reads cells outside.
        cval: the value outside along `constant` axes.
        sources: fields to which each step adds numbers at points: `u_wavelets[step]` at `u_sources`.
        receivers: fields of which each step then writes down the cells at points, `u_receivers`, into
            `u_traces[step]`.
    """

    word: str
    updates: tuple[tuple[str, Term], ...]
    ndim: int = 2
    dtype: DType = F32
    boundary: Boundary | tuple[Outside, ...] = "constant"
    cval: float = 0.0
    sources: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        word: object = self.word
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            raise SpecError("system.word", "must be a letter and up to 23 letters and digits", repr(self.word))
        check_axes(self.ndim, "system.ndim")
        if self.dtype not in DTYPES:
            rule = "must be one of " + ", ".join(dtype.name for dtype in DTYPES)
            raise SpecError("system.dtype", rule, getattr(self.dtype, "name", repr(self.dtype)))
        if not self.updates or len({name for name, _ in self.updates}) < len(self.updates):
            rule = "must say what at least one field becomes, and of each but once"
            raise SpecError("system.updates", rule, ", ".join(str(name) for name, _ in self.updates) or "none")
        for name, term in self.updates:
            _check(name, term)
        object.__setattr__(self, "updates", tuple((name, rebuilt(term, self._leaf)) for name, term in self.updates))
        names = self.fields
        if both := set(names) & set(self.scalars):
            raise SpecError("system.updates", "must not call a field and a scalar alike", ", ".join(sorted(both)))
        if len(names) > MAX_FIELDS:
            raise SpecError("system.updates", f"must have at most {MAX_FIELDS} fields", len(names))
        object.__setattr__(self, "boundary", boundaries_of(self.boundary, self.ndim, "system.boundary"))
        object.__setattr__(self, "cval", self._rounded_cval())
        for role, fields in (("sources", self.sources), ("receivers", self.receivers)):
            if len(set(fields)) < len(fields) or not set(fields) <= set(self.updated):
                rule = f"must be fields that change, each once: {', '.join(self.updated)}"
                raise SpecError(f"system.{role}", rule, ", ".join(map(str, fields)))

    def _leaf(self, term: Term) -> Term:
        """A leaf as the kernel holds it: numbers rounded, terms of sums in the order of their offsets."""
        match term:
            case Number(value):
                return Number(_finite(value, self.accumulator, "system.updates"))
            case Field(name, ndim):
                _check_field(name, ndim, self.ndim)
                return term
            case Scalar(name):
                check_name(name)
                return term
            case Sum(word, field, taps):
                _check_field(field, len(taps[0][0]) if taps else 0, self.ndim)
                return Sum(word, field, self._taps(word, taps))
        raise SpecError(
            "system.updates", "must be made of fields, sums, numbers, scalars, +, - and *", type(term).__name__
        )

    def _taps(self, word: object, taps: Taps) -> Taps:
        if not isinstance(word, str) or not _SUM.fullmatch(word) or (word in RESERVED and word != "near"):
            rule = "must be a small letter and up to 31 small letters, digits and underscores, and no word of C++"
            raise SpecError("system.word of a sum", rule, repr(word))
        found = sorted((offset, _finite(weight, self.accumulator, "system.weights")) for offset, weight in taps)
        kept = tuple((offset, weight) for offset, weight in found if weight != 0)
        offsets = [offset for offset, _ in kept]
        if not kept or len(kept) > MAX_TERMS or len(set(offsets)) < len(offsets):
            rule = f"must be 1 to {MAX_TERMS} that are not 0, at one offset each"
            raise SpecError("system.weights", rule, f"{len(kept)} of {word}")
        if any(len(offset) != self.ndim or max(map(abs, offset)) > MAX_REACH for offset in offsets):
            rule = f"must be {self.ndim} whole numbers each, at most {MAX_REACH} from 0"
            raise SpecError("system.offset", rule, f"one of {word}")
        return kept

    def _rounded_cval(self) -> float:
        if not any("constant" in ends for ends in self.ends):
            return 0.0  # nothing reads it
        return _finite(self.cval, self.dtype, "system.cval")

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, slowest first."""
        return AXES[-self.ndim :]

    @property
    def updated(self) -> tuple[str, ...]:
        """The fields that change, in their order."""
        return tuple(name for name, _ in self.updates)

    @cached_property
    def coefficients(self) -> tuple[str, ...]:
        """The fields that are only read, in the order in which they are met."""
        met = dict.fromkeys(name for _, term in self.updates for name in _fields_of(term))
        return tuple(name for name in met if name not in self.updated)

    @cached_property
    def scalars(self) -> tuple[str, ...]:
        """The numbers that a call brings, in the order in which they are met."""
        parts = (part for _, term in self.updates for part in walk(term))
        return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, Scalar)))

    @property
    def fields(self) -> tuple[str, ...]:
        """All fields: those that change, then the coefficients."""
        return (*self.updated, *self.coefficients)

    @cached_property
    def sums(self) -> tuple[Sum, ...]:
        """Each stencil sum once, neighbours too, in the order in which they are met."""
        return tuple(dict.fromkeys(part for _, term in self.updates for part in walk(term) if isinstance(part, Sum)))

    def reach(self, *names: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How far updates of these fields read towards lower and towards higher indices, along each axis."""
        terms = [part for name, term in self.updates if name in names for part in walk(term)]
        offsets = [(0,) * self.ndim, *(offset for part in terms if isinstance(part, Sum) for offset, _ in part.taps)]
        along = list(zip(*offsets, strict=True))
        return tuple(-min(places) for places in along), tuple(max(places) for places in along)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """How far a time step reads towards lower indices, along each axis."""
        return self.reach(*self.updated)[0]

    @cached_property
    def after(self) -> tuple[int, ...]:
        """How far a time step reads towards higher indices, along each axis."""
        return self.reach(*self.updated)[1]

    def rim(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """How many cells of a field are frozen at the low and at the high end of each axis."""
        return frozen_cells(self.ends, *self.reach(name))

    @cached_property
    def histories(self) -> tuple[tuple[str, ...], ...]:
        """Each field that is computed, with those that only take what it was: `v` becomes `u`, `w` becomes `v`.

        What such a field takes is in memory already, so launches exchange arrays in place of copying. A field has one
        that follows it so at most; what else takes its values is computed, and so are fields that go in a circle or
        have sources.
        """
        taken: dict[str, str] = {}  # by the field that is taken
        for name, term in self.updates:
            if isinstance(term, Field) and term.name in self.updated and name not in (term.name, *self.sources):
                taken.setdefault(term.name, name)
        found = []
        for name in self.updated:
            if name not in taken.values():
                history = [name]
                while history[-1] in taken:
                    history.append(taken[history[-1]])
                found.append(tuple(history))
        followed = {name for history in found for name in history}
        return (*found, *((name,) for name in self.updated if name not in followed))

    @property
    def computed(self) -> tuple[str, ...]:
        """The fields that a kernel computes: the first of each history."""
        return tuple(history[0] for history in self.histories)

    @cached_property
    def operations(self) -> int:
        """Terms of all sums, and operators, of a cell in a time step."""
        operators = sum(1 for _, term in self.updates for _ in walk(term))
        return operators + sum(len(one.taps) for one in self.sums)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The fields before, then those that change after; all have one shape, and follow without gaps.

        After the former stand the points, what is added there, and scalars, after the latter what is written down.
        """
        inputs = [Operand(name, "in", self.dtype, self.axes) for name in self.fields]
        for name in self.sources:
            count = f"{name}_source_count"
            inputs.append(Operand(f"{name}_sources", "in", I64, (count, self.ndim)))
            inputs.append(Operand(f"{name}_wavelets", "in", self.dtype, (STEPS, count)))
        return (
            *inputs,
            *(Operand(f"{x}_receivers", "in", I64, (f"{x}_receiver_count", self.ndim)) for x in self.receivers),
            *(Operand(x, "number", self.accumulator) for x in self.scalars),
            *(Operand(f"{x}_out", "out", self.dtype, self.axes) for x in self.updated),
            *(Operand(f"{x}_traces", "out", self.dtype, (STEPS, f"{x}_receiver_count")) for x in self.receivers),
        )

    @property
    def counts(self) -> tuple[str, ...]:
        """The extents that say how many points there are."""
        sources, receivers = (
            (f"{x}_source_count" for x in self.sources),
            (f"{x}_receiver_count" for x in self.receivers),
        )
        return (*sources, *receivers)

    @property
    def label(self) -> str:
        """For instance `wave_3fa94c01_f32`: no name can hold the expressions."""
        return digest_label(self.word, self, self.dtype)

    @property
    def summary(self) -> str:
        """What is computed."""
        becomes = ", ".join(f"{name} becomes {self.said(term)}" for name, term in self.updates)
        outside = outside_in_words(self.axes, self.boundaries, self.cval)
        points = "".join(f"; then {one}_wavelets are added at {one}_sources" for one in self.sources)
        points += "".join(f"; then {one}_traces are what {one} is at {one}_receivers" for one in self.receivers)
        return f"At each cell of {' x '.join(self.axes)}, steps times: {becomes}; {outside}{points}."

    def said(self, term: Term) -> str:
        """An expression as its author wrote it."""

        def leaf(one: Term) -> str:
            match one:
                case Number(value):
                    return f"{value:.9g}"
                case Field(name, _) | Scalar(name):
                    return name
                case Sum(_, field, taps) if one.is_neighbour:
                    return f"{field}[{', '.join(map(str, taps[0][0]))}]"
                case Sum(word, field, _):
                    return f"{word}({field})"
            return ""

        return text_of(term, leaf)

    def to_json(self) -> dict[str, Any]:
        """All fields; expressions as nested lists, operator first."""
        boundary: Any = listed(self.boundaries)
        return {
            "word": self.word,
            "ndim": self.ndim,
            "updates": [[name, _json_of(term)] for name, term in self.updates],
            "dtype": self.dtype.name,
            "boundary": boundary[0] if len(set(self.boundaries)) == 1 and isinstance(boundary[0], str) else boundary,
            "cval": self.cval,
            **({"sources": list(self.sources)} if self.sources else {}),
            **({"receivers": list(self.receivers)} if self.receivers else {}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> SystemSpec:
        """The inverse of `to_json`. Raises SpecError for what is no spec."""
        updates, ndim, boundary = content.get("updates"), content.get("ndim"), content.get("boundary", "constant")
        if not isinstance(updates, list) or not all(isinstance(one, list) and len(one) == 2 for one in updates):
            raise SpecError("system.updates", "must be a list of names, each with what it becomes", repr(updates))
        axes = ndim if isinstance(ndim, int) else 0
        sources, receivers = content.get("sources", []), content.get("receivers", [])
        if not all(
            isinstance(names, list) and all(isinstance(n, str) for n in names) for names in (sources, receivers)
        ):
            raise SpecError("system.sources", "and system.receivers must be lists of names", f"{sources}, {receivers}")
        return cls(
            word=content.get("word", ""),
            updates=tuple((name, _term_of(term, axes)) for name, term in updates),
            ndim=axes,
            dtype=read_dtype(content.get("dtype"), "system.dtype"),
            boundary=tuple(boundary) if isinstance(boundary, list) else boundary,
            cval=content.get("cval", 0.0),
            sources=tuple(sources),
            receivers=tuple(receivers),
        )


def system(
    updates: Any,
    *,
    boundary: Any = "constant",
    dtype: Any = "f32",
    cval: float = 0.0,
    sources: Any = (),
    receivers: Any = (),
    word: str = "fields",
) -> SystemSpec:
    """The spec of fields that change together; `gen.load(spec)` computes any number of time steps.

    Args:
        updates: a dict: for each field that changes an expression over fields of the step before, made of cells (`u`),
            their neighbours (`u[0, 1]`), stencil sums (`u.laplace(order=8)`, `u.derivative(axis)`,
            `u.correlate(weights)`), numbers, scalars (`gen.scalars`), sums, differences and products. Fields that only
            stand in expressions are coefficients, which a call brings and which stay as they are.
        boundary: what lies outside, as in `gen.stencil`: one for all axes, or one for each.
        dtype: of all cells: float16, bfloat16, float32 or float64.
        cval: the value outside where the boundary is `constant`.
        sources: a field, or several: each step, once it is computed, adds numbers to it at points. A call brings the
            points, `u_sources`, whole numbers (i64) of shape (points, axes), and `u_wavelets`, of shape (steps,
            points). Numbers for one cell are added one after the other, in the order of the points.
        receivers: a field, or several: each step ends with writing down what it is at points. A call brings these,
            `u_receivers`, and returns, after the fields, `u_traces`, of shape (steps, points).
        word: what stands in the kernel's name.

    Raises:
        SpecError: names the argument, the rule and the value.
    """
    if not isinstance(updates, Mapping) or not all(isinstance(field, Field) for field in updates):
        raise SpecError(
            "system.updates", "must be a dict from fields, made by gen.fields, to expressions", repr(updates)
        )
    terms: list[tuple[str, Term]] = []
    for field, value in updates.items():
        term = as_term(value)
        _check_field(field.name, field.ndim, next(iter(updates)).ndim)
        if term is None:
            raise SpecError(f"system.updates of {field.name}", "must be an expression or a number", repr(value))
        terms.append((field.name, term))
    found = find_dtype(dtype, DTYPES, "system.dtype")
    if found is None:
        raise SpecError("system.dtype", "must be one of " + ", ".join(known.name for known in DTYPES), repr(dtype))
    return SystemSpec(
        word=word,
        updates=tuple(terms),
        ndim=next(iter(updates)).ndim if updates else 2,
        dtype=found,
        boundary=tuple(boundary) if isinstance(boundary, list) else boundary,
        cval=cval,
        sources=_names(sources, "system.sources"),
        receivers=_names(receivers, "system.receivers"),
    )


def _names(given: Any, subject: str) -> tuple[str, ...]:
    """Of a field, or of several."""
    fields = (given,) if isinstance(given, Field) else given
    if not isinstance(fields, tuple | list) or not all(isinstance(field, Field) for field in fields):
        raise SpecError(subject, "must be a field, or a list of fields, made by gen.fields", repr(given))
    return tuple(field.name for field in fields)


def _check(name: object, term: object) -> None:
    """Raises SpecError for what is no update, before anything walks down a tree that may be deep."""
    check_name(name)
    if not isinstance(term, Term):
        raise SpecError(f"system.updates of {name}", "must be an expression", repr(term))
    if len(tuple(islice(walk(term), MAX_PARTS + 1))) > MAX_PARTS:
        rule = f"must have at most {MAX_PARTS} operators, fields, sums and numbers"
        next_step = "Give sums of cells as weights: u.correlate"
        raise SpecError(f"system.updates of {name}", rule, next_step=next_step)


def _check_field(name: object, axes: int, ndim: int) -> None:
    check_name(name)
    if axes != ndim:
        raise SpecError(f"system.fields: {name}", f"must have {ndim} axes, as the first field", axes)


def _finite(value: object, dtype: DType, subject: str) -> float:
    """The number as its type holds it, and 0 for -0. Raises SpecError for one that it does not hold."""
    rounded = rounded_to(value, dtype)
    if not np.isfinite(rounded):
        raise SpecError(subject, f"must hold numbers, finite as {dtype.name}", repr(value))
    return rounded


def _fields_of(term: Term) -> Iterator[str]:
    for part in walk(term):
        if isinstance(part, Field):
            yield part.name
        elif isinstance(part, Sum):
            yield part.field


def _json_of(term: Term) -> Any:
    match term:
        case Number(value):
            return value
        case Field(name, _):
            return name
        case Scalar(name):
            return {"scalar": name}
        case Sum(word, field, taps):
            offsets, weights = [list(offset) for offset, _ in taps], [weight for _, weight in taps]
            return {"sum": word, "of": field, "offsets": offsets, "weights": weights}
        case Joined(operator, left, right):
            return [operator, _json_of(left), _json_of(right)]
        case Negated(one):
            return ["-", _json_of(one)]
    raise AssertionError(term)


def _term_of(content: Any, ndim: int, depth: int = 0) -> Term:
    """The inverse of `_json_of`. Raises SpecError."""
    match content:
        case str():
            return Field(content, ndim)
        case int() | float():
            return Number(content)
        case {"scalar": str(name)}:
            return Scalar(name)
        case {"sum": str(word), "of": str(field), "offsets": list(offsets), "weights": list(weights)} if _places(
            offsets, len(weights)
        ):
            return Sum(word, field, tuple((tuple(o), w) for o, w in zip(offsets, weights, strict=True)))
        case ["+" | "-" | "*" as operator, left, right] if depth < MAX_PARTS:
            return Joined(operator, _term_of(left, ndim, depth + 1), _term_of(right, ndim, depth + 1))
        case ["-", one] if depth < MAX_PARTS:
            return Negated(_term_of(one, ndim, depth + 1))
    raise SpecError(
        "system.updates", "must be fields, numbers, sums, or lists that begin with +, - or *", repr(content)
    )


def _places(offsets: list[Any], count: int) -> bool:
    return len(offsets) == count and all(
        isinstance(offset, list) and all(type(place) is int for place in offset) for offset in offsets
    )
