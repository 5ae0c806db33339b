"""Any order of up to eight axes, of any elements, in any rows, as a user calls it: bit for bit what NumPy has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import gen
from gen.families.base import Array
from gen.families.transpose.algorithms.skinny import MAX_SKINNY_EXTENT
from gen.families.transpose.spec import MAX_AXES
from gen.proof.host import HostRunner
from tests.fake_device import FakeDevice, FakeMemory, OnDevice
from tests.strategies import not_simplest

RANKS = range(1, MAX_AXES + 1)
# Parts of the profile's, for each number of axes: g++ builds a kernel or two for every order of axes that is drawn, and
# would for every one that shrinking tries.
FETCHED_CODE = 1 << 19  # bytes of an array that takes no longer than a long text: single elements may be moved
EXAMPLES = max(settings().max_examples // 16, 1)
ROUND_TRIPS = max(settings().max_examples // 25, 1)
UNSHRUNK = tuple(phase for phase in Phase if phase not in (Phase.shrink, Phase.explain))
CALLS = 4  # of one kernel, at most
LARGEST = {1: 5000, 2: 130, 3: 24, 4: 10, 5: 6, 6: 5, 7: 4, 8: 3}  # extents, by the number of axes
PAIR = np.dtype([("low", "u1"), ("high", "u1")])
RECORD = np.dtype([("tag", "u1"), ("value", "<f4"), ("more", "u1", 3)])  # aligned to 1
WIDE = np.dtype([("tag", "u1"), ("value", "<c8"), ("more", "u1", 7)])
DTYPES: dict[int, tuple[Any, ...]] = {
    1: ("u1", "?", "S1"), 2: ("f2", "i2", PAIR), 4: ("f4", "u4", "U1"), 8: ("f8", "c8", "M8[s]", RECORD),
    16: ("c16", "V16", WIDE),
}  # fmt: skip
EXPONENTS = {"f2": 0x7C00, "f4": 0x7F800000, "c8": 0x7F800000, "f8": 0x7FF << 52, "c16": 0x7FF << 52}


@dataclass(frozen=True)
class Lying:
    """How an array lies in memory.

    Attributes:
        shape: its extents.
        dtype: of its elements.
        gap: elements between its rows.
        start: bytes from a 256-byte boundary to its first element.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    gap: int
    start: int

    def memory(self) -> Array:
        """Bytes that it can lie in."""
        size = self.start + math.prod((*self.shape[:-1], self.shape[-1] + self.gap)) * self.dtype.itemsize
        return FakeMemory(-(-size // 16) * 16).view((-(-size // 16) * 16,), np.dtype("u1"))

    def within(self, memory: Array, dtype: Any = None) -> Array:
        """The array there; as elements of another dtype of their size, if one is given."""
        wide = (*self.shape[:-1], self.shape[-1] + self.gap)
        strides = [math.prod(wide[axis + 1 :]) * self.dtype.itemsize for axis in range(len(wide))]
        return np.ndarray(self.shape, dtype or self.dtype, memory.data, self.start, strides)

    def bits(self, memory: Array) -> Array:
        """The array there, as elements that are no numbers: NumPy moves all of their bits."""
        return self.within(memory, f"V{self.dtype.itemsize}")


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        source: how the input lies.
        result: how its transpose lies.
        host: whether both are NumPy's.
        seed: of the input's bits.
    """

    source: Lying
    result: Lying
    host: bool
    seed: int

    def content(self) -> Array:
        """Memory in which the input lies: any bits; of numbers that have NaNs half are infinite or NaN.

        Their payloads differ, and half of them are signalling.
        """
        random = np.random.default_rng(self.seed)
        memory = self.source.memory()
        memory[...] = random.integers(0, 256, memory.size, np.uint8)
        exponent = EXPONENTS.get(self.source.dtype.str[1:])
        if exponent is not None:
            parts = memory.view({0x7C00: np.uint16, 0x7F800000: np.uint32}.get(exponent, np.uint64))
            parts[random.integers(0, 2, parts.size) == 1] |= parts.dtype.type(exponent)
        return memory

    def given(self, array: Array) -> Any:
        """An array as it is passed."""
        return array if self.host else OnDevice(array)


@st.composite
def orders(draw: st.DrawFn, rank: int) -> tuple[int, ...]:
    """Axes in any order; the reversed one is the simplest, since nothing moves in that of the input."""
    return tuple(draw(st.permutations(range(rank)[::-1])))


@st.composite
def calls(draw: st.DrawFn, axes: tuple[int, ...], size: int) -> Call:
    """Calls with ones, odd extents and long ones; one of eight without an element."""
    rank, most = len(axes), LARGEST[len(axes)]
    extent = st.one_of(st.sampled_from((3, most, 2, 1)), st.integers(2, most))
    shape = draw(st.lists(extent, min_size=rank, max_size=rank))
    if draw(st.integers(0, 7)) == 7:
        shape[draw(st.integers(0, rank - 1))] = 0
    dtype = np.dtype(draw(st.sampled_from(DTYPES[size])))
    host = draw(st.booleans())
    # NumPy's arrays may begin wherever NumPy calls their elements aligned: records at any byte.
    unit = dtype.alignment if host else size
    gap, first = st.sampled_from((0, 1, 3, 16)), st.sampled_from((0, 1, 2, 5))
    source = Lying(tuple(shape), dtype, draw(gap), unit * draw(first))
    result = Lying(tuple(shape[axis] for axis in axes), dtype, draw(gap), unit * draw(first))
    return Call(source, result, host, draw(st.integers(0, 2**16)))


@st.composite
def aligned(draw: st.DrawFn, axes: tuple[int, ...], size: int) -> Call:
    """Calls with rows of whole vectors in both arrays, more than few, which lie at whole vectors."""
    per = 16 // size
    shape = [draw(st.sampled_from((1, 1, 2))) for _ in axes]
    for axis in {len(axes) - 1, axes[-1]}:
        shape[axis] = per * (MAX_SKINNY_EXTENT // per + draw(st.integers(1, 4)))
    gap, dtype = st.sampled_from((0, per)), np.dtype(draw(st.sampled_from(DTYPES[size])))
    source = Lying(tuple(shape), dtype, draw(gap), 0)
    result = Lying(tuple(shape[axis] for axis in axes), dtype, draw(gap), 0)
    return Call(source, result, draw(st.booleans()), draw(st.integers(0, 2**16)))


@pytest.fixture
def device(host_runner: HostRunner) -> FakeDevice:
    """Launches run the emitted text on the CPU."""
    return FakeDevice(host_runner)


@pytest.mark.parametrize("rank", RANKS)
def test_any_order_of_axes_moves_every_bit_where_numpy_does(rank: int, device: FakeDevice, tmp_path: Path) -> None:
    @settings(max_examples=EXAMPLES, phases=UNSHRUNK)
    @given(not_simplest(orders(rank)), st.sampled_from(tuple(DTYPES)), st.data())
    def equals_numpy(axes: tuple[int, ...], size: int, data: st.DataObject) -> None:
        kernel: Any = gen.load(gen.permutation(axes, DTYPES[size][0]), device=device, home=tmp_path)
        for call in data.draw(st.lists(calls(axes, size) | aligned(axes, size), min_size=2, max_size=CALLS)):
            content, room = call.content(), call.result.memory()
            expected, before = room.copy(), content.copy()
            call.result.bits(expected)[...] = call.source.bits(content).transpose(axes)
            kernel(call.given(call.source.within(content)), out=call.given(call.result.within(room)))
            assert room.tobytes() == expected.tobytes()  # what lies between rows and around them, too
            assert content.tobytes() == before.tobytes()
            made = kernel(call.source.within(content))
            assert (made.dtype, made.shape) == (call.result.dtype, call.result.shape)
            assert made.tobytes() == call.result.bits(expected).tobytes()

    equals_numpy()


@pytest.mark.parametrize(
    ("axes", "size"), [((2, 0, 1), 1), ((4, 2, 1, 3, 0), 4), ((7, 1, 4, 3, 2, 5, 6, 0), 8)], ids=str
)
def test_aligned_rows_of_many_axes_are_moved_by_vectors(
    axes: tuple[int, ...], size: int, device: FakeDevice, tmp_path: Path
) -> None:
    kernel: Any = gen.load(gen.permutation(axes, DTYPES[size][0]), device=device, home=tmp_path)

    @settings(max_examples=EXAMPLES, phases=UNSHRUNK)
    @given(not_simplest(aligned(axes, size)))
    def equals_numpy(call: Call) -> None:
        content, room = call.content(), call.result.memory()
        expected = room.copy()
        call.result.bits(expected)[...] = call.source.bits(content).transpose(axes)
        kernel(OnDevice(call.source.within(content)), out=OnDevice(call.result.within(room)))
        assert room.tobytes() == expected.tobytes()
        assert "__vector_tile_" in device.launched[-1].variant or content.nbytes < FETCHED_CODE

    equals_numpy()
    sides = (axes[-1], len(axes) - 1)
    assert "__vector_tile_" in kernel.variant_for(tuple(1024 if axis in sides else 4 for axis in range(len(axes))))


@pytest.mark.exhaustive  # which follows, where every order equals NumPy
@pytest.mark.parametrize("rank", RANKS)
def test_there_and_back_again_is_the_input(rank: int, device: FakeDevice, tmp_path: Path) -> None:
    @settings(max_examples=ROUND_TRIPS, phases=UNSHRUNK)
    @given(not_simplest(orders(rank)), st.sampled_from(tuple(DTYPES)), st.data())
    def is_the_input(axes: tuple[int, ...], size: int, data: st.DataObject) -> None:
        back = np.argsort(axes)
        there, here = (
            gen.load(gen.permutation(order, DTYPES[size][0]), device=device, home=tmp_path) for order in (axes, back)
        )
        for call in data.draw(st.lists(calls(axes, size), min_size=2, max_size=CALLS)):
            content, between, after = call.content(), call.result.memory(), call.source.memory()
            there(call.given(call.source.within(content)), out=call.given(call.result.within(between)))
            here(call.given(call.result.within(between)), out=call.given(call.source.within(after)))
            assert call.source.bits(after).tobytes() == call.source.bits(content).tobytes()

    is_the_input()
