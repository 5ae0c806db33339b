"""Sources and receivers of a system on several devices: who adds what where, and who writes down what is heard.

Every part of a rank (`gen.families.stencil.split`) is computed by a kernel with points of its own, in its own cells. A
source is in each part that has its cell, in a halo too, and where the domain wraps as often as the part has the cell:
so what ranks compute twice is the same. A receiver is in the one part that makes its cell right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from gen.families.base import Array
from gen.families.stencil.split import Box, Part, Share
from gen.families.system.spec import SystemSpec
from gen.gpu.device import Memory
from gen.runtime.arrays import Given, Shape
from gen.runtime.sharded import Rank


@dataclass(frozen=True)
class _Numbers:
    """An operand of a kernel for points.

    Attributes:
        memory: where it lies.
        shape: of all steps of the call.
        dtype: NumPy's.
        by_step: whether its first axis is time.
    """

    memory: Memory
    shape: Shape
    dtype: np.dtype[Any]
    by_step: bool

    def given(self, first: int, steps: int, device: int) -> Given:
        """Some steps of it, as a kernel takes them."""
        shape, skipped = self.shape, 0
        if self.by_step:
            shape, skipped = (steps, *shape[1:]), first * shape[1] * self.dtype.itemsize
        return Given.dense(self.memory.address + skipped, shape, self.dtype, device)


@dataclass(frozen=True)
class _Heard:
    """What a part of a rank writes down: of which receivers."""

    rank: int
    numbers: _Numbers
    receivers: Array


class ShardedTraces:
    """What receivers of a system on several devices have heard.

    Attributes:
        shape: steps and receivers.
        dtype: NumPy's.
    """

    def __init__(self, ranks: tuple[Rank, ...], shape: Shape, dtype: np.dtype[Any], heard: Sequence[_Heard]) -> None:
        """Of ranks, what parts of them write down, which together have each receiver once."""
        self.shape, self.dtype = shape, dtype
        self._ranks, self._heard = ranks, tuple(heard)

    def gather(self) -> Array:
        """A copy as a NumPy array, in each process; waits until the content is there.

        Raises:
            ProcessError: one of several processes has died.
        """
        whole: Array = np.empty(self.shape, self.dtype)
        processes = self._ranks[0].processes
        own = b""
        for one in self._heard:
            rank = self._ranks[one.rank]
            if rank.here:
                content: Array = np.empty(one.numbers.shape, self.dtype)
                with rank.current():
                    rank.device.download(content, one.numbers.memory.address, rank.main.handle)
                    rank.device.synchronize(rank.main.handle)
                whole[:, one.receivers] = content
                own += content.tobytes()
        if processes is not None:
            processes.check()
            for other in processes.others:
                processes.send(other, own)
            for other in processes.others:
                theirs = [one for one in self._heard if one.rank == other]
                sizes = [self.shape[0] * len(one.receivers) * self.dtype.itemsize for one in theirs]
                came = memoryview(processes.receive(other, sum(sizes)))
                for one, size in zip(theirs, sizes, strict=True):
                    content = np.frombuffer(came[:size], self.dtype).reshape(self.shape[0], -1)
                    whole[:, one.receivers] = content
                    came = came[size:]
        return whole

    def __repr__(self) -> str:
        return f"ShardedTraces(shape={self.shape}, dtype={self.dtype})"


class Points:
    """The points of a call, as every part of the ranks has them."""

    def __init__(
        self, spec: SystemSpec, ranks: tuple[Rank, ...], shares: Sequence[Share], shape: Shape,
        given: Mapping[str, Array], steps: int,
    ) -> None:  # fmt: skip
        """Copies to every rank what its parts need, on its main stream.

        Args:
            spec: the system.
            ranks: who computes.
            shares: what each of them computes.
            shape: of the fields.
            given: the operands of sources and receivers, by name, of the whole call.
            steps: of the call.
        """
        self._spec, self._given, self._steps = spec, given, steps
        self._numbers: dict[tuple[int, Part | None], dict[str, _Numbers]] = {}
        heard: dict[str, list[_Heard]] = {name: [] for name in spec.receivers}
        for number, (rank, share) in enumerate(zip(ranks, shares, strict=True)):
            with rank.current():
                for rim in share.rims:
                    self._numbers[number, rim] = self._made(rank, number, rim.cells, rim.valid, shape, heard)
                if share.inside is not None:
                    self._numbers[number, None] = self._made(rank, number, share.own, share.inside.valid, shape, heard)
        dtype = spec.dtype.numpy
        self.traces = tuple(
            ShardedTraces(ranks, (steps, len(given[f"{name}_receivers"])), dtype, heard[name])
            for name in spec.receivers
        )

    def given(self, number: int, rim: Part | None, first: int, steps: int, device: int) -> dict[str, Given]:
        """The operands of points of a rank's rim, or of its inside, for some steps."""
        return {name: one.given(first, steps, device) for name, one in self._numbers[number, rim].items()}

    def _made(
        self, rank: Rank, number: int, cells: Box, valid: Box, shape: Shape, heard: Mapping[str, list[_Heard]]
    ) -> dict[str, _Numbers]:  # fmt: skip
        """The points of cells that lie together, of which some become valid."""
        found: dict[str, _Numbers] = {}
        origin = np.array([begin for begin, _ in cells], np.int64)
        for name in self._spec.sources:
            which, places = _images(self._given[f"{name}_sources"], cells, shape)
            wavelets = np.ascontiguousarray(self._given[f"{name}_wavelets"][:, which])
            found[f"{name}_sources"] = self._sent(rank, places - origin)
            found[f"{name}_wavelets"] = self._sent(rank, wavelets, by_step=True)
        for name in self._spec.receivers:
            points = self._given[f"{name}_receivers"]
            own = np.flatnonzero(_inside(points, valid))
            found[f"{name}_receivers"] = self._sent(rank, points[own] - origin)
            dtype = self._spec.dtype
            memory = rank.allocate(max(self._steps * len(own) * dtype.size, 1))
            traces = _Numbers(memory, (self._steps, len(own)), dtype.numpy, True)
            found[f"{name}_traces"] = traces
            heard[name].append(_Heard(number, traces, own))
        return found

    def _sent(self, rank: Rank, content: Array, *, by_step: bool = False) -> _Numbers:
        """A copy of an array on a rank's device, queued on its main stream."""
        memory = rank.allocate(max(content.nbytes, 1))
        if rank.here and content.size:
            rank.device.upload(memory.address, np.ascontiguousarray(content), rank.main.handle)
        return _Numbers(memory, content.shape, content.dtype, by_step)


def _inside(points: Array, box: Box) -> Array:
    """Which points are in a box."""
    begin, end = (np.array([along[side] for along in box], np.int64) for side in (0, 1))
    return np.asarray(((points >= begin) & (points < end)).all(axis=1))


def _images(points: Array, box: Box, shape: Shape) -> tuple[Array, Array]:
    """The points in a box, whose cells may repeat those of the domain: which they are, and where; in their order."""
    which, places = [np.zeros(0, np.int64)], [np.zeros((0, len(shape)), np.int64)]
    for shift in product(*(_periods(along, extent) for along, extent in zip(box, shape, strict=True))):
        moved = points + np.array(shift, np.int64)
        found = np.flatnonzero(_inside(moved, box))
        which.append(found)
        places.append(moved[found])
    numbers = np.concatenate(which)
    order = np.argsort(numbers, kind="stable")
    return numbers[order], np.concatenate(places)[order]


def _periods(along: tuple[int, int], extent: int) -> Iterator[int]:
    """How far the repetitions of a domain lie from it that have cells of a box."""
    yield from range(along[0] // extent * extent, along[1], extent)
