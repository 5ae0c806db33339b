"""Arrays that lie on several devices: every rank has a box of their elements, dense, in memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gen.families.base import Array
from gen.families.extents import dense_strides
from gen.families.stencil.split import Box, Cuts, boxes_of, extents_of_box
from gen.gpu.device import Peer, Rows, Stream
from gen.runtime.arrays import DeviceArray, Given, Kind, Shape


@dataclass(frozen=True)
class Rank:
    """One of those that share the work; several may share a device.

    Attributes:
        device: where it computes.
        main: the stream on which its arrays are written and read.
        rim: the urgent stream, for what others wait for.
    """

    device: Peer
    main: Stream
    rim: Stream

    @contextmanager
    def current(self) -> Iterator[None]:
        """Makes its device the calling thread's current one."""
        entered = self.device.enter()
        try:
            yield
        finally:
            self.device.leave(entered)


class ShardedArray:
    """An array whose elements lie on several devices.

    Attributes:
        shape: of the whole.
        dtype: NumPy's.
        ranks: who has the elements.
        cuts: which of them: along each axis where the elements of the ranks begin, and last the extent.
        slices: the same for each rank, as an index of the whole.
        held: where those of each rank lie.
        shards: the elements of each rank; other libraries use their memory by DLPack or `__cuda_array_interface__`.
    """

    def __init__(self, ranks: tuple[Rank, ...], cuts: Cuts, dtype: np.dtype[Any]) -> None:
        """Allocates it, on each device at once what that has.

        Args:
            ranks: who has the elements.
            cuts: which they are.
            dtype: of the elements.

        Raises:
            DeviceError: a device has no memory left.
        """
        self.shape: Shape = tuple(along[-1] for along in cuts)
        self.dtype = dtype
        self.ranks, self.cuts = ranks, cuts
        boxes = boxes_of(cuts)
        self.slices = tuple(tuple(slice(*along) for along in box) for box in boxes)
        self.shards = tuple(_allocated(rank, box, dtype) for rank, box in zip(ranks, boxes, strict=True))
        self.held = tuple(
            Held(shard.address, box, dtype.itemsize) for shard, box in zip(self.shards, boxes, strict=True)
        )

    def gather(self) -> Array:
        """A copy as a NumPy array; waits until the content is there."""
        whole: Array = np.empty(self.shape, self.dtype)
        for cells, shard in zip(self.slices, self.shards, strict=True):
            whole[cells] = shard.numpy()
        return whole

    def synchronize(self) -> None:
        """Waits until the content is there."""
        for rank in self.ranks:
            with rank.current():
                rank.device.synchronize(rank.main.handle)

    def __repr__(self) -> str:
        return f"ShardedArray(shape={self.shape}, dtype={self.dtype}, shards={len(self.shards)})"


@dataclass(frozen=True)
class Held:
    """A dense box of cells in memory.

    Attributes:
        address: of its first cell.
        box: which cells they are.
        size: bytes of a cell.
    """

    address: int
    box: Box
    size: int

    @lru_cache(1 << 12)  # a call asks for the same ones at every exchange  # noqa: B019
    def rows(self, cells: Box) -> Rows:
        """Where some of them lie."""
        shape, extents = extents_of_box(self.box), extents_of_box(cells)
        strides = dense_strides(shape, self.size)
        begins = zip(cells, self.box, strides, strict=True)
        address = self.address + sum((first - begin) * stride for (first, _), (begin, _), stride in begins)
        planes, rows, cols = (1,) * (3 - len(extents)) + extents
        plane_rows, wide = (1, 1, *shape)[-2:]
        return Rows(address, planes, rows, cols * self.size, wide * self.size, max(plane_rows, rows))

    def given(self, dtype: np.dtype[Any], device: int) -> Given:
        """The array, as a kernel takes it."""
        shape = extents_of_box(self.box)
        strides = dense_strides(shape, self.size)
        return Given(Kind.OTHER, self.address, shape, strides, dtype, True, device, None, None)


def _allocated(rank: Rank, box: Box, dtype: np.dtype[Any]) -> DeviceArray:
    with rank.current():
        return DeviceArray(extents_of_box(box), dtype, rank.device, rank.main.handle)
