"""Hypothesis strategies, derived from the declarations that define the product."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, TypeVar

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gen.dtypes import F16, F32, F64
from gen.errors import RunError, ShapeError, SpecError
from gen.families import FAMILIES
from gen.families.base import Algorithm, Extents, Family, Spec, Variant
from gen.families.config import Config
from gen.families.names import illegal, variant
from gen.families.reduction import ReductionSpec
from gen.families.reduction.shapes import problem
from gen.families.stencil.spec import BOUNDARIES, StencilSpec
from gen.families.system import SystemSpec, fields, system
from gen.families.system.spec import DTYPES as SYSTEM_DTYPES
from gen.families.system.terms import Field, Number, Scalar, Term
from gen.families.transpose.spec import TransposeSpec
from gen.families.transpose.values import NUMBERS, PARTS, Values
from gen.proof.cases import COUNTS, MULTIPROCESSOR_COUNTS, OFFSETS, Case, Content, awkward, draw_extents, draw_shape

C = TypeVar("C", bound=Config)
T = TypeVar("T")

# Arrays of one value, which hide most faults but those of identities, half as often as the others.
CONTENTS = tuple(content for content in Content for _ in range(1 if content.value.startswith("all") else 2))
Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def not_simplest(strategy: SearchStrategy[T]) -> SearchStrategy[T]:
    """The same values, for tests of one or two examples: Hypothesis begins with the simplest, such as empty arrays.

    That one is made invalid, so it does not count as an example.
    """
    return st.booleans().filter(bool).flatmap(lambda _: strategy)


def configs(config: type[C]) -> SearchStrategy[C]:
    """Configs of a class whose values go together, base values first."""
    fields = {
        parameter.field: st.sampled_from(
            (parameter.base, *(value for value in parameter.values if value != parameter.base))
        )
        for parameter in config.parameters()
    }
    return st.builds(config, **fields).filter(lambda made: made.illegal() is None)


@cache  # tests ask for them at every draw, and Hypothesis takes milliseconds to make one
def variants_of(family: Family[Any], spec: Spec, algorithm: Algorithm[Any, Any]) -> SearchStrategy[Variant]:
    """Legal variants of one algorithm."""
    return (
        configs(algorithm.config)
        .filter(lambda config: illegal(algorithm, spec, config) is None)
        .map(lambda config: variant(family, spec, algorithm, config))
    )


@cache
def variants(families: tuple[Family[Any], ...] = FAMILIES) -> SearchStrategy[Variant]:
    """Legal variants of the catalogues of these families."""
    return st.one_of(
        [
            variants_of(family, spec, algorithm)
            for family in families
            for spec in family.catalogue
            for algorithm in family.algorithms.values()
        ]
    )


@cache
def _among(choices: tuple[int, ...]) -> SearchStrategy[int]:
    return st.sampled_from(choices)


@cache
def _sizes(largest: int) -> SearchStrategy[int]:
    return st.one_of(st.sampled_from(awkward(largest)), st.integers(0, largest))


class _Drawn:
    """Chooses what Hypothesis draws, and shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def among(self, name: str, choices: tuple[int, ...]) -> int:
        return self._draw(_among(choices), label=name)

    def size(self, name: str, largest: int) -> int:
        return self._draw(_sizes(largest), label=name)


@st.composite
def extents(draw: st.DrawFn, spec: Spec, times: int = 1) -> Extents:
    """Extents of every axis of a spec's operands; a pitch is at least its row. `times` the size for the CPU run."""
    return draw_shape(spec, _Drawn(draw), times)


@st.composite
def problems(draw: st.DrawFn, family: Family[Any], spec: Spec) -> Extents:
    """Extents as arrays of them are measured, and what a call may count."""
    if isinstance(spec, ReductionSpec):
        return draw(reduction_extents(spec))
    try:
        return draw_extents(family, spec, _Drawn(draw))
    except RunError:  # no elements a hundred times, which is Hypothesis's first thought
        assume(False)
        raise


@st.composite
def reduction_extents(draw: st.DrawFn, spec: ReductionSpec) -> Extents:
    """Sizes of an array of one to four axes, with or without gaps, that has the axes of a reduction."""
    if spec.axis is None and draw(st.integers(0, 3), label="axes") < 3:
        shape: tuple[int, ...] = (_Drawn(draw).size("n", 40_000),)
    else:
        needed = [axis + 1 if axis >= 0 else -axis for axis in spec.axis or ()]
        rank = draw(st.integers(max([1, *needed]), max([3, *needed])), label="axes")
        largest = {1: 40_000, 2: 200, 3: 30}.get(rank, 6)
        shape = tuple(_Drawn(draw).size(f"d{axis}", largest) for axis in range(rank))
        if rank > 1 and draw(st.booleans(), label="long"):  # what is reduced is often much longer than what is kept
            axis = spec.axis[0] if spec.axis else -1
            shape = tuple(5_000 if place == axis % rank else min(n, 4) for place, n in enumerate(shape))
    gap, step = draw(st.sampled_from(((0, 1), (0, 1), (0, 1), (1, 1), (5, 1), (0, 2))), label="gap")
    try:
        return problem(spec, shape, gap=gap, step=step)
    except ShapeError:  # nothing to take the least of; an axis twice
        assume(False)
        raise


@cache
def cases(family: Family[Any], spec: Spec) -> SearchStrategy[Case]:
    """Problems of a spec, on devices of several sizes."""
    return st.builds(
        Case,
        extents=problems(family, spec),
        content=st.sampled_from(CONTENTS),
        seed=st.integers(0, 2**20),
        offset=st.sampled_from(OFFSETS),
        multiprocessors=st.sampled_from(MULTIPROCESSOR_COUNTS),
    )


@cache
def measurable(family: Family[Any], spec: Spec) -> SearchStrategy[Extents]:
    """Extents as arrays of them are measured: a matrix of one row, or an empty one, has no pitch to be found."""
    return extents(spec).map(lambda drawn: family.extents(spec, family.layouts(spec, drawn)))


def runtime_parameters(family: Family[Any], spec: Spec) -> SearchStrategy[Extents]:
    """What a call may count: none, one, few."""
    return st.fixed_dictionaries(dict.fromkeys(family.runtime_parameters(spec), st.sampled_from(COUNTS)))


@st.composite
def stencils(draw: st.DrawFn, weights: SearchStrategy[float] | None = None, most: int = 17) -> StencilSpec:
    """Stencils of one or two axes, of any boundaries and origin; many weights are 0."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    word = draw(st.sampled_from(letters)) + draw(st.text(letters + "0123456789", max_size=23))
    dtype = draw(st.sampled_from((F32, F16, F64)))
    small = st.integers(1, min(most, 5))
    shape = draw(st.one_of(st.tuples(small, small), st.tuples(st.integers(1, most)), st.tuples(st.integers(1, most))))
    anything = st.floats(width=64 if dtype == F64 else 32, allow_nan=False, allow_infinity=False)
    weight = st.one_of(st.just(0.0), st.just(-0.0), weights or anything)
    count = math.prod(shape)
    return StencilSpec(
        word,
        tuple(draw(st.lists(weight, min_size=count, max_size=count))),
        shape,
        dtype,
        tuple(draw(st.sampled_from(BOUNDARIES)) for _ in shape),
        draw(st.sampled_from((0.0, -1.5, 3.0))),
        tuple(draw(st.integers(-(extent // 2), (extent - 1) // 2)) for extent in shape),
    )


@st.composite
def terms(draw: st.DrawFn, fields: tuple[Field, ...], depth: int = 3) -> Term:
    """Expressions over fields: cells, neighbours, stencil sums and numbers, joined and moved."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        field = draw(st.sampled_from(fields))
        numbers = st.sampled_from((0.5, -1.0, 2.0, 0.1, -0.3))
        match draw(st.integers(0, 5)):
            case 5:
                return Scalar(draw(st.sampled_from(("k", "dt"))))
            case 0:
                return Number(draw(numbers))
            case 1:
                return field[draw(st.tuples(*(st.integers(-2, 2) for _ in range(field.ndim))))]
            case 2:
                return field.laplace(order=draw(st.sampled_from((2, 4))))
            case 3:
                extents = draw(st.tuples(*(st.integers(1, 3) for _ in range(field.ndim))))
                weights = draw(st.lists(numbers, min_size=math.prod(extents), max_size=math.prod(extents)))
                return field.correlate(np.reshape(weights, extents))
        return field
    left, right = draw(terms(fields, depth - 1)), draw(terms(fields, depth - 1))
    match draw(st.integers(0, 5)):
        case 0:
            return -left
        case 1 | 2:
            return left * right
        case 3:
            return left - right
    return left + right


@st.composite
def systems(draw: st.DrawFn) -> SystemSpec:
    """Systems of one to three axes and one to three fields, of any boundaries, with sources and receivers.

    Some fields take what others were.
    """
    made = fields("u v m", ndim=draw(st.integers(1, 3)))
    changed = made[: draw(st.integers(1, 3))]
    updates = st.one_of(terms(made), st.sampled_from(changed))
    ends = st.sampled_from(BOUNDARIES)
    return system(
        {field: draw(updates) for field in changed},
        boundary=[draw(st.one_of(ends, st.tuples(ends, ends))) for _ in range(made[0].ndim)],
        dtype=draw(st.sampled_from(SYSTEM_DTYPES)),
        cval=draw(st.sampled_from((0.0, -1.5, 3.0))),
        sources=draw(st.lists(st.sampled_from(changed), unique=True, max_size=2)),
        receivers=draw(st.lists(st.sampled_from(changed), unique=True, max_size=2)),
    )


@st.composite
def transposes_that_change(draw: st.DrawFn) -> TransposeSpec:
    """Transposes of up to three axes whose elements become others on their way."""
    axes = tuple(draw(st.permutations(range(draw(st.integers(1, 3))))))
    source = draw(st.sampled_from(tuple(NUMBERS.values())))
    is_complex = source in PARTS
    result = draw(st.sampled_from([other for other in NUMBERS.values() if (other in PARTS) == is_complex]))
    alpha = draw(st.one_of(st.none(), st.floats(-1e4, 1e4, width=32)))
    saturate = result.kind in ("int", "uint") and draw(st.booleans())
    try:
        return TransposeSpec(axes, source, Values(source, result, alpha, is_complex and draw(st.booleans()), saturate))
    except SpecError:  # out of range, or not rounded once
        assume(False)
        raise


def json_values() -> SearchStrategy[Json]:
    """Whatever a JSON file can hold."""
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        max_leaves=4,
    )


def spoiled(text: str) -> SearchStrategy[str]:
    """A text with a piece cut out, doubled or replaced."""

    def spoil(start: int, length: int, put: str) -> str:
        return text[:start] + put + text[start + length :]

    pieces = st.sampled_from(("", "_", "__", "0", "1", "4", "16", "x", "u", "\u0661", "\n", text[:4], text[-4:]))
    return st.builds(spoil, st.integers(0, len(text)), st.integers(0, 4), st.one_of(pieces, st.text(max_size=3)))
