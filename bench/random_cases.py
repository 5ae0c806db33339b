"""Cases that nobody chose: specs and shapes as people have them, drawn by a seed.

Every feature is dealt from a deck of its own, so that all of them occur within a few dozen cases, whatever the seed;
sizes are log-uniform. The families take turns, each with random numbers of its own: the first cases of a seed are the
same however many are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from math import exp2, isqrt, log2, prod
from random import Random
from typing import Any, Generic, TypeVar

from gen.compare.case import ComparisonCase, Shape
from gen.dtypes import (
    B8,
    B16,
    B32,
    B64,
    B128,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
)  # fmt: skip
from gen.errors import GenError
from gen.families import FAMILIES
from gen.families.names import find_family
from gen.families.reduction import reduction
from gen.families.stencil import StencilSpec
from gen.families.stencil.spec import BOUNDARIES, MAX_AXES
from gen.families.transpose import TransposeSpec

LEAST_BYTES, MOST_BYTES = 1 << 12, 1 << 31  # of the first input
MOST_SPAN_BYTES = MOST_BYTES + (MOST_BYTES >> 1)  # with the gaps between its rows
MOST_STEPPED_BYTES = 1 << 34  # cells times steps: what a call of a library may move, so that it ends in time
MOST_TERM_BYTES = 1 << 37  # the same times the weights, for a library that takes a pass for each
PROVABLE = 1 << 22  # elements, of which NumPy computes anything in a fraction of a second
MOST_DRAWS = 100  # until a case is legal

T = TypeVar("T")
OPERATORS: Mapping[str, int] = {
    "sum": 6, "mean": 3, "max": 3, "min": 2, "var": 3, "std": 1, "prod": 1, "any": 1, "all": 1, "argmax": 2,
    "argmin": 1, "count_nonzero": 1, "sumsq": 1, "norm": 1, "minmax": 1, "mean_var": 2, "stats": 1,
}  # fmt: skip
NUMBERS: Mapping[DType, int] = {
    F32: 6, F16: 3, BF16: 3, F64: 2, I32: 2, I64: 2, U8: 2, BOOL: 1, I8: 1, I16: 1, U16: 1, U32: 1, U64: 1,
}  # fmt: skip
BITS: Mapping[DType, int] = {B8: 2, B16: 3, B32: 4, B64: 2, B128: 1}
GAPS: Mapping[int, int] = {0: 6, 1: 1, 3: 1, 8: 1, 64: 1}
OFFSETS: Mapping[int, int] = {0: 7, 1: 1, 2: 1, 3: 1}
EXTENTS: Mapping[str, int] = {"any": 3, "power": 3, "one off": 2, "prime": 2, "round": 2}
SPREADS: Mapping[str, int] = {"even": 2, "any": 4, "thin first": 2, "thin last": 2, "short": 3, "thin middle": 1}
FORMS: Mapping[str, int] = {"star": 3, "box": 2, "asymmetric": 2}


class Deck(Generic[T]):
    """Options in random order; all of them come before one comes more often than it should."""

    def __init__(self, random: Random, options: Mapping[T, int]) -> None:
        """Takes what there is, with how often each is in the deck."""
        self._random = random
        self._all = [option for option, copies in options.items() for _ in range(copies)]
        self._left: list[T] = []

    def draw(self) -> T:
        """The next one; a deck that is used up is shuffled again."""
        if not self._left:
            self._left = self._random.sample(self._all, len(self._all))
        return self._left.pop()


@dataclass(frozen=True)
class RandomCase(ComparisonCase):
    """A case that is checked where NumPy computes it in a fraction of a second: at its size, or at a smaller one."""

    @property
    def provable(self) -> ComparisonCase:
        """It, or one of fewer elements whose extents are as odd."""
        found = super().provable
        if found is self and found.elements <= PROVABLE:
            return found
        shape = [max(n - (n ^ own) % 2, 1) for n, own in zip(found.shape, self.shape, strict=True)]
        while prod(shape) > PROVABLE:
            longest = shape.index(max(shape))
            shape[longest] = shape[longest] // 2 | (shape[longest] & 1)
        return replace(found, shape=tuple(shape), name="")


def random_cases(seed: int, count: int) -> tuple[RandomCase, ...]:
    """The first cases of a seed: of reductions, transposes and stencils in turn."""
    streams = [_reductions(_random(seed, "reduction")), _transposes(_random(seed, "transpose"))]
    streams.append(_stencils(_random(seed, "stencil")))
    drawn = (next(streams[number % len(streams)]) for number in range(count * MOST_DRAWS))
    seen: set[str] = set()
    found = []
    for case in islice(drawn, count * MOST_DRAWS):
        if case.name not in seen:
            seen.add(case.name)
            found.append(case)
        if len(found) == count:
            break
    return tuple(found)


def _random(seed: int, family: str) -> Random:
    return Random(f"{seed} {family}")


@dataclass(frozen=True)
class _Sizes:
    """What extents, gaps and offsets are dealt from."""

    random: Random
    extents: Deck[str]
    spreads: Deck[str]
    gaps: Deck[int]
    offsets: Deck[int]

    @classmethod
    def of(cls, random: Random) -> _Sizes:
        """New decks."""
        decks: list[Any] = [Deck(random, options) for options in (EXTENTS, SPREADS, GAPS, OFFSETS)]
        return cls(random, *decks)

    def shape(self, axes: int, size: int, most: int = MOST_BYTES) -> Shape:
        """Extents of an array of so many axes, of elements of so many bytes, whose bytes are log-uniform."""
        low, high = log2(LEAST_BYTES / size), log2(most / size)
        logarithms = self._spread(axes, self.random.uniform(low, high))
        extents = [self._extent(exp2(one)) for one in logarithms]
        longest = logarithms.index(max(logarithms))
        others = prod(extents) // extents[longest]
        least = -(-LEAST_BYTES // (size * others))
        extents[longest] = min(max(extents[longest], least), max(most // (size * others), 1))
        while prod(extents) * size > most:  # many axes that were rounded up
            extents[extents.index(max(extents))] //= 2
        return tuple(extents)

    def gap(self, shape: Shape, size: int) -> int:
        """Elements between rows: none, or no more than make an array half as long again."""
        wanted = self.gaps.draw() if len(shape) > 1 else 0
        rows = prod(shape[:-1])
        room = (MOST_SPAN_BYTES // size - rows * shape[-1]) // rows
        return min(wanted, max(shape[-1] // 2, 1), room)

    def _spread(self, axes: int, total: float) -> list[float]:
        """The logarithms of extents whose product has this one."""
        how = self.spreads.draw()
        if axes == 1:
            return [total]
        parts = [1.0] * axes if how == "even" else [self.random.expovariate(1) for _ in range(axes)]
        found = [total * part / sum(parts) for part in parts]
        thin = {"thin first": [0], "thin last": [axes - 1], "thin middle": [axes // 2]}.get(how, [])
        if how == "short":  # all but one or two
            longest = self.random.sample(range(axes), 1 if axes < 4 else self.random.choice((1, 2)))
            thin = [axis for axis in range(axes) if axis not in longest]
        for axis in thin:
            found[axis] = min(self.random.uniform(log2(3), log2(511)), total / len(found) if len(thin) > 1 else total)
        others = [axis for axis in range(axes) if axis not in thin]
        rest = max(total - sum(found[axis] for axis in thin), 0.0)
        share = sum(found[axis] for axis in others)
        for axis in others:
            found[axis] = rest * found[axis] / share if share > 0 else rest / len(others)
        return found

    def _extent(self, near: float) -> int:
        """A whole number near this one, of the kind that the deck says."""
        kind, number = self.extents.draw(), max(round(near), 1)
        if kind == "power":
            return 1 << round(log2(number))
        if kind == "one off":
            return max((1 << round(log2(number))) + self.random.choice((-1, 1)), 1)
        if kind == "prime":
            return _prime(number)
        if kind == "round":  # 3, 40, 1000, 768
            step = max(10 ** (len(str(number)) - 2), 1) if self.random.random() < 0.5 else max(number // 8, 1)
            return max(number // step * step, 1)
        return number


def _prime(number: int) -> int:
    """The first prime from this number on."""
    number = max(number, 2)
    while any(number % divisor == 0 for divisor in range(2, isqrt(number) + 1)):
        number += 1
    return number


def _legal(draw: Any) -> Iterator[RandomCase]:
    """One case after another; what is no case is drawn again."""
    while True:
        for _ in range(MOST_DRAWS):
            try:
                yield draw()
                break
            except GenError:
                continue
        else:
            raise AssertionError("nothing legal is drawn any more")


def _reductions(random: Random) -> Iterator[RandomCase]:
    """Every operator and dtype, of 1 to 6 axes, of which any are reduced."""
    family, sizes = find_family(FAMILIES, "reduction"), _Sizes.of(random)
    operators, dtypes, ranks = (
        Deck(random, OPERATORS),
        Deck(random, NUMBERS),
        Deck(random, {1: 3, 2: 5, 3: 4, 4: 3, 5: 1, 6: 1}),
    )

    def draw() -> RandomCase:
        op, dtype, rank = operators.draw(), dtypes.draw(), ranks.draw()
        shape = sizes.shape(rank, dtype.size)
        if op.startswith("arg"):
            axis: tuple[int, ...] | None = random.choice([None, *((one,) for one in range(rank))])
        else:
            axis = tuple(one for one in range(rank) if random.random() < 0.5) or (random.randrange(rank),)
            axis = None if len(axis) == rank else axis
        ddof = 1 if op in ("var", "std", "mean_var") and random.random() < 0.5 else 0
        spec = reduction(op, dtype, axis=axis, ddof=ddof)
        return RandomCase(family, spec, shape, gap=sizes.gap(shape, dtype.size), offset=sizes.offsets.draw())

    yield from _legal(draw)


def _transposes(random: Random) -> Iterator[RandomCase]:
    """Any permutation of 2 to 7 axes, of elements of 1 to 16 bytes."""
    family, sizes = find_family(FAMILIES, "transpose"), _Sizes.of(random)
    dtypes, ranks = Deck(random, BITS), Deck(random, {2: 4, 3: 4, 4: 3, 5: 2, 6: 1, 7: 1})

    def draw() -> RandomCase:
        dtype, rank = dtypes.draw(), ranks.draw()
        shape = sizes.shape(rank, dtype.size)
        axes = tuple(range(rank))
        while axes == tuple(range(rank)):
            axes = tuple(random.sample(axes, rank))
        gap, offset = sizes.gap(shape, dtype.size), sizes.offsets.draw()
        return RandomCase(family, TransposeSpec(axes, dtype), shape, gap=gap, offset=offset)

    yield from _legal(draw)


def _stencils(random: Random) -> Iterator[RandomCase]:
    """Stars, boxes and weights without symmetry, to radius 8, of every boundary, for 1 to 1,000 steps."""
    family, sizes = find_family(FAMILIES, "stencil"), _Sizes.of(random)
    dtypes, ranks = (
        Deck(random, {F32: 3, F64: 1, F16: 1}),
        Deck(random, {1: 2, 2: 6, **dict.fromkeys(range(3, MAX_AXES + 1), 3)}),
    )
    forms, radii = Deck(random, FORMS), Deck(random, {1: 5, 2: 3, 3: 1, 4: 2, 5: 1, 6: 1, 7: 1, 8: 1})
    boundaries, steps_deck = Deck(random, dict.fromkeys(BOUNDARIES, 2)), Deck(random, {"one": 5, "few": 2, "many": 3})

    def draw() -> RandomCase:
        dtype, rank, form, radius = dtypes.draw(), ranks.draw(), forms.draw(), radii.draw()
        boundary: Any = boundaries.draw()
        if rank > 1 and random.random() < 0.1:
            boundary = tuple(random.choice(BOUNDARIES) for _ in range(rank))
        extents, weights = _weights(random, form, rank, radius)
        how = steps_deck.draw()
        steps = (
            1 if how == "one" else round(exp2(random.uniform(1, 4) if how == "few" else random.uniform(4, log2(1000))))
        )
        taps = sum(weight != 0 for weight in weights)
        most = min(MOST_BYTES, MOST_STEPPED_BYTES // steps, MOST_TERM_BYTES // (steps * taps))
        shape = sizes.shape(rank, dtype.size, max(most, LEAST_BYTES * 16))
        spec = StencilSpec(f"{form}{rank}d{radius}r", weights, extents, dtype, boundary)
        gap, offset = sizes.gap(shape, dtype.size), sizes.offsets.draw()
        return RandomCase(family, spec, shape, {"steps": steps}, gap=gap, offset=offset)

    yield from _legal(draw)


def _weights(random: Random, form: str, rank: int, radius: int) -> tuple[Shape, tuple[float, ...]]:
    """Extents and weights: these differ, and their magnitudes add up to 1, so that many steps stay bounded."""
    if form == "asymmetric":
        extents: Shape = tuple(random.randint(1, 2 * radius + 1) for _ in range(rank))
        read = [random.random() < 0.5 for _ in range(prod(extents))]
        read[random.randrange(len(read))] = True
    else:
        extents = (2 * radius + 1,) * rank
        places = [
            [place // (2 * radius + 1) ** axis % (2 * radius + 1) for axis in range(rank)]
            for place in range(prod(extents))
        ]
        read = [form == "box" or sum(step != radius for step in place) <= 1 for place in places]
    total = sum(range(1, sum(read) + 1))
    return extents, tuple(sum(read[: place + 1]) / total if one else 0.0 for place, one in enumerate(read))
