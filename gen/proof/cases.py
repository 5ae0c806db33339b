"""The problems that variants are proven on: sizes, how arrays lie in memory, what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache
from itertools import chain, cycle
from math import prod
from typing import Any, Protocol

import numpy as np

from gen.arch import DEFAULT_ARCH, Limits
from gen.dtypes import C64, F32, F64, DType
from gen.errors import RunError, ShapeError
from gen.families.base import Array, Extents, Family, Layout, Spec, Variant
from gen.families.extents import byte_bounds, shape_of, sizes_in_words

DEVICE = Limits.of(DEFAULT_ARCH)  # that is played on the CPU
MULTIPROCESSOR_COUNTS = (1, 2, 3, DEVICE.multiprocessors)  # few make grid-stride loops go round
# Where arrays begin, as `begins` has it: each alone between vectors of 16 bytes, and both; of bytes at words, too. At
# most 15 elements after a boundary, one less than such a vector holds of bytes.
OFFSETS = (0, *(first + 16 * second for first, second in ((7, 10), (12, 4), (9, 6), (14, 7), (5, 0), (0, 11))))
MOST_GAP = 9  # elements between rows
COUNTS = (1, 0, 2, 3, 5, 8, 13)  # of what a call counts, steps for instance
# The largest extent by the number of axes: small enough for the CPU run.
_LARGEST = {0: 0, 1: 40_000, 2: 200, 3: 30}
_LARGEST_OF_MANY = 12
_TRIES = 100
_AROUND = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 4096, 8192, 16_384, 32_768)  # warps, tiles, shares
_PRIMES = (2, 3, 5, 7, 11, 13, 31, 37, 61, 67, 97, 127, 131, 193, 199, 1021, 4093, 8191, 10_007, 32_771, 39_989)


class Draw(Protocol):
    """Whoever chooses."""

    def among(self, name: str, choices: tuple[int, ...]) -> int:
        """One of these, the simplest first."""
        ...

    def size(self, name: str, largest: int) -> int:
        """An extent from 0 to `largest`: one of `awkward` as often as any other."""
        ...


class RandomDraw:
    """Chooses by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def among(self, name: str, choices: tuple[int, ...]) -> int:
        """Any of them."""
        return choices[int(self._random.integers(len(choices)))]

    def size(self, name: str, largest: int) -> int:
        """Awkward three times of four: nobody looks for a simpler one."""
        if self._random.integers(4):
            return self.among(name, awkward(largest))
        return int(self._random.integers(largest + 1))


@cache
def awkward(largest: int) -> tuple[int, ...]:
    """0, 1, primes, multiples of warps, tiles and blocks and one off, `largest` itself."""
    around = {size + near for size in _AROUND for near in (-1, 0, 1)}
    return tuple(sorted(size for size in {0, 1, largest, *_PRIMES, *around} if size <= largest))


def draw_shape(spec: Spec, draw: Draw, times: int = 1) -> Extents:
    """Every axis of a spec's operands, and pitches at least as long as their rows; `times` the size for the CPU run."""
    found: dict[str, int] = {}
    for operand in spec.operands:
        free = [axis for axis in operand.axes if isinstance(axis, str)]
        fixed = prod(axis for axis in operand.axes if isinstance(axis, int))
        for axis in free:
            if axis not in found:
                found[axis] = draw.size(axis, times * _LARGEST.get(len(free), _LARGEST_OF_MANY) // fixed)
    for operand in spec.operands:
        if operand.pitch and operand.pitch not in found:
            row = shape_of(operand, found)[-1]
            found[operand.pitch] = row + draw.among(operand.pitch, tuple(range(MOST_GAP + 1)))
    return found


def draw_extents(family: Family[Any], spec: Spec, draw: Draw) -> Extents:
    """A problem as its arrays are measured (one row, or none, has no pitch to be found), and what a call counts."""
    for _ in range(_TRIES):
        try:
            measured = family.extents(spec, family.layouts(spec, draw_shape(spec, draw)))
        except ShapeError:  # sizes that the spec refuses: the least of no elements
            continue
        return {**measured, **{name: draw.among(name, COUNTS) for name in family.runtime_parameters(spec)}}
    raise RunError(family.name_of(spec), f"refuses {_TRIES} problems, one after another")


MARGIN = 256  # bytes kept free before and after each array


class Content(Enum):
    """What arrays hold, by their type. Bits are always random.

    The last four are arrays of one value, which show a wrong identity: that of `min` is positive infinity, and neither
    the largest finite number nor 0.
    """

    RANDOM = "random"  # normal deviates; integers: all that the type holds
    INTEGERS = "integers"  # non-zero, -8 to 8: every partial sum is exact, so one dropped element shows
    SPREAD = "spread"  # magnitudes spread evenly over half the type's exponents; integers: over all bits
    SPECIAL = "special"  # NaN and infinities among normal deviates; integers: the least and the greatest, twice
    EXTREME = "extreme"  # the ends of the range: most sums of two leave it
    ZEROS = "all zero"  # booleans: all false
    GREATEST = "all greatest"  # positive infinity, the greatest integer, true
    LEAST = "all least"  # negative infinity, the least integer, false
    NANS = "all NaN"  # integers: all one, booleans: all true


@dataclass(frozen=True)
class Case:
    """One problem.

    Attributes:
        extents: its sizes.
        content: what its inputs hold.
        seed: of their random numbers.
        offset: where arrays begin, as `begins` has it; 0: all at 256-byte boundaries.
        multiprocessors: multiprocessors of the device that is played; few make grid-stride loops go round.
        sampled: it is too large to be run whole: chosen blocks of it are.
    """

    extents: Extents
    content: Content = Content.RANDOM
    seed: int = 0
    offset: int = 0
    multiprocessors: int = DEVICE.multiprocessors
    sampled: bool = False

    def __str__(self) -> str:
        device = f"{self.multiprocessors} multiprocessors" + ("; chosen blocks only" if self.sampled else "")
        return f"{sizes_in_words(self.extents)}; {self.content.value} seed {self.seed}; offset {self.offset}; {device}"


def begins(offset: int, place: int) -> int:
    """Elements between a 256-byte boundary and an array: of the first a case's offset modulo 16, of the next its rest.

    So each may begin anywhere whatever the other does: no kernel may take the alignment of one for that of another, nor
    that of a word of bytes for that of a vector. Further arrays begin an element after the one that is two before them.
    """
    return (offset // 16 ** (place % 2) + place // 2) % 16 if offset else 0


DRAWN = 3  # problems of `cases_of` beside the family's own
# What is proven beside exact integers, in turns. One value hides most faults: its arrays begin anywhere, and exact
# integers of the same size at 256-byte boundaries, where kernels are long. But for zeros: which of several equal
# elements comes first must show within vectors, which begin at such boundaries.
_ALIGNED = (Content.RANDOM, Content.SPREAD, Content.ZEROS, Content.SPECIAL, Content.EXTREME)
_ANYWHERE = (
    Content.GREATEST, Content.RANDOM, Content.LEAST, Content.SPREAD, Content.ZEROS, Content.SPECIAL, Content.NANS
)  # fmt: skip


def cases_of(family: Family[Any], spec: Spec, seed: int = 0) -> Iterator[Case]:
    """The family's awkward sizes, and a few that `seed` chooses, each with exact integers and with another content.

    One of the two has arrays that begin at 256-byte boundaries, the other not; one runs on a device of many
    multiprocessors, where grids are large, the other on one of few, where loops over the grid loop.
    """
    others = cycle(_ANYWHERE), cycle(_ALIGNED)
    *few, many = MULTIPROCESSOR_COUNTS
    draw = RandomDraw(seed)
    drawn = (draw_extents(family, spec, draw) for _ in range(DRAWN))
    for number, extents in enumerate(chain(family.cases(spec), drawn)):
        for place, content in enumerate((Content.INTEGERS, next(others[number % 2]))):
            offset = 0 if (number + place) % 2 == 0 else OFFSETS[1 + number // 2 % (len(OFFSETS) - 1)]
            multiprocessors = many if (number // 2 + place) % 2 == 0 else few[number % len(few)]
            yield Case(extents, content, number + 1000 * seed, offset, multiprocessors)


def edge_cases(variant: Variant, seed: int = 0) -> Iterator[Case]:
    """A variant's edge cases: with exact integers and with normal deviates, in turns, at 256-byte boundaries.

    Every other one also with arrays that begin elsewhere. They run on devices of few multiprocessors in turns with one
    of many, but where the variant needs these: all its blocks at the same time. Where the result is the greatest
    element, one that is taken though it was never set shows beside the least ones, and the other way round: such arrays
    have their turn too.
    """
    chosen = variant.family.chosen(variant.spec)
    others = {"greatest": (Content.LEAST,), "least": (Content.GREATEST,), "": ()}[chosen]
    contents, devices = cycle((Content.INTEGERS, Content.RANDOM, *others)), cycle(MULTIPROCESSOR_COUNTS[::-1])
    for number, extents in enumerate(variant.edge_cases()):
        elsewhere = OFFSETS[1 + number // 2 % (len(OFFSETS) - 1)]
        for offset in (0, elsewhere) if number % 2 else (0,):
            device = replace(DEVICE, multiprocessors=next(devices))
            if variant.algorithm.unsupported_extents(variant.spec, variant.config, extents, device) is not None:
                device = DEVICE
            yield Case(extents, next(contents), number + 1000 * seed, offset, multiprocessors=device.multiprocessors)


def has_elements(family: Family[Any], spec: Spec, extents: Extents) -> bool:
    """Whether every array of a problem has elements, so that a kernel has something to do."""
    return all(0 not in layout.shape for layout in family.layouts(spec, extents).values())


@dataclass(frozen=True)
class Block:
    """An array with the memory around it.

    Attributes:
        array: the view that a kernel is given.
        memory: all bytes, margins and the gaps of a pitch included.
    """

    array: Array
    memory: Array = field(repr=False)

    def outside(self) -> Array:
        """A copy of all bytes, those of the array itself set to 0."""
        bytes_around = self.memory.copy()
        start = self.array.ctypes.data - self.memory.ctypes.data
        itemsize = self.array.dtype.itemsize
        inside: Array = np.ndarray(
            (*self.array.shape, itemsize), np.uint8, bytes_around.data, start, (*self.array.strides, 1)
        )
        inside[...] = 0
        return bytes_around


def allocate(layout: Layout, offset: int, fill: int) -> Block:
    """An array of this layout, `offset` elements after a 256-byte boundary, every byte of its memory set to `fill`."""
    size = layout.dtype.itemsize
    span = max(byte_bounds(layout.shape, layout.strides, size)[1], size)
    total = 2 * MARGIN + offset * size + span + 256
    memory = np.full(total, fill, np.uint8)
    address = memory.ctypes.data
    start = MARGIN + (-(address + MARGIN)) % 256 + offset * size
    array: Array = np.ndarray(layout.shape, layout.dtype, buffer=memory.data, offset=start, strides=layout.strides)
    return Block(array, memory)


def fill(array: Array, dtype: DType, content: Content, seed: int) -> None:
    """Sets an array to random data without zeros, or to one value; a boolean has little but zeros."""
    random = np.random.default_rng(seed)
    if array.dtype.kind == "b":
        array[...] = _booleans(random, array.shape, content)
    elif dtype.kind == "float":
        array[...] = _floats(random, array.shape, dtype, content)
    elif dtype.kind == "complex":
        parts = F32 if dtype == C64 else F64
        pairs = _floats(random, (*array.shape, 2), parts, content).astype(parts.numpy)
        array[...] = pairs.reshape(-1).view(dtype.numpy).reshape(array.shape)
    elif dtype.kind == "bits":
        array[...] = _bits(random, array.shape, array.dtype)
    else:
        array[...] = _integers(random, array.shape, array.dtype, content)


def numbers_of(spec: Spec, content: Content, seed: int) -> dict[str, Array]:
    """What the numbers of a call are, as arrays without axes, by operand."""
    numbers = [operand for operand in spec.operands if operand.role == "number"]
    found = {operand.name: np.empty((), operand.dtype.numpy) for operand in numbers}
    for place, operand in enumerate(numbers):
        # One that is not finite would hide what is wrong with all arrays.
        kind = Content.RANDOM if content is Content.SPECIAL else content
        fill(found[operand.name], operand.dtype, kind, seed * 103 + place)
    return found


_ONE_VALUE = {Content.ZEROS: 0.0, Content.GREATEST: np.inf, Content.LEAST: -np.inf, Content.NANS: np.nan}


def _bits(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Any bits, no byte of them 0."""
    return random.integers(1, 256, (*shape, dtype.itemsize), np.uint8).reshape(-1).view(dtype).reshape(shape)


def _booleans(random: np.random.Generator, shape: tuple[int, ...], content: Content) -> Array:
    """Half of them true; of SPREAD one, of SPECIAL and EXTREME all but one: what `any` and `all` depend on."""
    if content in (Content.RANDOM, Content.INTEGERS):
        return random.integers(0, 2, shape).astype(np.bool_)
    if content in _ONE_VALUE:
        return np.full(shape, content in (Content.GREATEST, Content.NANS))
    values: Array = np.full(shape, content is not Content.SPREAD)
    if values.size:
        values.reshape(-1)[random.integers(values.size)] ^= True
    return values


def _floats(random: np.random.Generator, shape: tuple[int, ...], dtype: DType, content: Content) -> Array:
    if content in _ONE_VALUE:
        return np.full(shape, _ONE_VALUE[content])
    if content is Content.INTEGERS:
        drawn = random.integers(-8, 8, shape)
        return np.asarray(drawn + (drawn >= 0), np.float64)
    if content in (Content.SPREAD, Content.EXTREME):
        signs = random.choice((-1.0, 1.0), shape)
        if content is Content.SPREAD:
            # The product of any two, and the sum of as many, still fits.
            half = int(np.frexp(dtype.largest)[1]) // 2 - 1
            return np.ldexp(signs * random.uniform(1.0, 2.0, shape), random.integers(-half, half, shape))
        ends = (dtype.largest, dtype.smallest_normal, dtype.smallest, 1.0, 1.0 + 2 * dtype.unit_roundoff)
        return np.asarray(random.choice(ends, shape) * signs)
    values: Array = np.asarray(random.standard_normal(shape))
    if content is Content.RANDOM:
        smallest = float(dtype.smallest)  # a deviate nearer to 0 would become 0 in a narrow type
        return np.where(np.abs(values) < smallest, smallest, values)
    if values.size:  # SPECIAL
        values.reshape(-1)[random.integers(0, values.size, 2)] = random.choice((np.nan, np.inf, -np.inf), 2)
    return values


def _integers(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any], content: Content) -> Array:
    """Integers of the array's own type, and none of them 0 unless all are."""
    least, greatest = (int(end) for end in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    if content in _ONE_VALUE:
        value = {Content.ZEROS: 0, Content.GREATEST: greatest, Content.LEAST: least}.get(content, 1)
        return np.full(shape, value, dtype)
    small: Array = random.integers(1, 9, shape).astype(dtype)
    if least < 0:
        small = np.where(random.integers(0, 2, shape) == 0, small, -small)
    values = small
    if content in (Content.RANDOM, Content.SPREAD):
        values = random.integers(least, greatest, shape, dtype, endpoint=True)
    if content is Content.SPREAD:
        values = np.right_shift(values, random.integers(0, 8 * dtype.itemsize - 1, shape).astype(dtype))
    elif content is Content.SPECIAL and values.size:
        values.reshape(-1)[random.integers(0, values.size, 2)] = (least or greatest, greatest)
    elif content is Content.EXTREME:
        ends = np.array([least or 1, least + 1, greatest - 1, greatest], dtype)
        values = random.choice(ends, shape)
    return np.where(values == 0, np.ones((), dtype), values)
