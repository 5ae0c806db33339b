"""The kernels of `kernels.cu`, ready to call: fills, copies, digests, comparisons on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import prod

import numpy as np

from gen.dtypes import F64, I32, I64, U32, U64, DType
from gen.errors import ShapeError
from gen.families.base import Layout
from gen.families.plans import Step
from gen.gpu.device import LEGACY_STREAM, Device, Flag, Graph, bytes_at
from gen.proof.error_bounds import Allowance

THREADS = 256
BLOCKS_PER_MULTIPROCESSOR = 8
GATE_CYCLES = 2_000_000_000  # about a second: then a gate that nobody opens lets go
GATE_SECONDS = 0.5  # it holds that long on any GPU: none runs at 4 GHz
_NOT_FOUND = 2**64 - 1
Number = tuple[DType, int | float]

# As kernels.cu numbers them.
_KINDS = {"f32": 1, "f64": 2, "f16": 3, "bf16": 4, "bool": 5}


def kind_of(dtype: DType) -> int:
    """How service kernels read an element: as a floating-point number, as a truth value, or as bits."""
    return _KINDS.get(dtype.name, 0)


@dataclass(frozen=True)
class ElementRows:
    """How the elements of an array lie: `count` rows of `elements` of `size` bytes, `pitch` bytes apart.

    An array whose elements all follow each other is one row.
    """

    count: int
    elements: int
    size: int
    pitch: int

    @classmethod
    def of(cls, layout: Layout) -> ElementRows:
        """Those of an array. Raises ShapeError if its rows are not equally far apart."""
        size = layout.dtype.itemsize
        if 0 in layout.shape:
            return cls(0, 0, size, 0)
        axes = [(n, stride) for n, stride in zip(layout.shape, layout.strides, strict=True) if n > 1]
        elements = 1
        while axes and axes[-1][1] == elements * size:
            elements *= axes.pop()[0]
        pitch = axes[-1][1] if axes else elements * size
        expected = pitch
        for n, stride in reversed(axes):
            if stride != expected:
                raise ShapeError("An array", "must have rows that are equally far apart", layout)
            expected *= n
        return cls(prod(n for n, _ in axes), elements, size, pitch)

    @property
    def has_gaps(self) -> bool:
        """Whether bytes between the first and the last element belong to none."""
        return self.count > 1 and self.pitch > self.elements * self.size

    @property
    def total(self) -> int:
        """All elements."""
        return self.count * self.elements

    @property
    def span(self) -> int:
        """Bytes from the first element to the last."""
        return (self.count - 1) * self.pitch + self.elements * self.size if self.total else 0


def _step(entry: str, blocks: int, threads: int, arguments: tuple[Number, ...]) -> Step:
    return Step(entry, (blocks, 1, 1), (threads, 1, 1), arguments, 0, (1, 1, 1), setup=False)


EMPTY = _step("_empty", 1, 32, ())


def source() -> str:
    """The text of `kernels.cu`."""
    return (files("gen.gpu") / "kernels.cu").read_text(encoding="utf-8")


class Service:
    """The service kernels on one device. Addresses are multiples of 16, sizes in bytes multiples of 4."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._compiled = device.compile("gen", source())
        self._code = device.timer.load(self._compiled)
        self._words = device.allocate(16)  # what kernels count in

    def empty(self) -> None:
        """Queues a kernel that does nothing."""
        self._queue(EMPTY)

    def graph_of_empty(self, times: int) -> Graph:
        """A graph of kernels that do nothing."""
        code = self.device.load(self._compiled)
        prepared = code.prepare({}, [EMPTY] * times)
        return self.device.capture(lambda stream: prepared.launch({}, {}, stream), code.unload)

    def gate(self, flag: Flag) -> None:
        """Queues a wait for a flag: what follows starts only when all of it is queued."""
        self._queue(_step("_gate", 1, 1, ((U64, flag.address), (I64, GATE_CYCLES))))

    def fill(self, address: int, size: int, word: int, blocks: int = 0) -> None:
        """Queues writing one word everywhere."""
        body = size // 16
        self._run("_fill", [(U64, address), (U32, word), (I64, body)], blocks)
        if size % 16:
            self.device.upload(address + body * 16, np.full(size % 16 // 4, word, np.uint32), LEGACY_STREAM)

    def copy(self, source: int, target: int, size: int, blocks: int = 0) -> None:
        """Queues copying whole vectors."""
        self._run("_copy", [(U64, source), (U64, target), (I64, size // 16)], blocks)

    def read(self, address: int, size: int, blocks: int = 0) -> None:
        """Queues reading whole vectors."""
        self._run("_read", [(U64, address), (U64, self._words.address), (I64, size // 16)], blocks)

    def claim(self, address: int, size: int) -> None:
        """Queues reading whole vectors that the second-level cache is asked to evict last."""
        self._run("_claim", [(U64, address), (U64, self._words.address), (I64, size // 16)])

    def release(self, address: int, size: int) -> None:
        """Queues what makes them like any others; the address is a multiple of 128."""
        self._run("_release", [(U64, address), (I64, size // 16)])

    def random(self, address: int, size: int, seed: int, dtype: DType) -> None:
        """Queues random elements: whole numbers from 1 to 8 of either sign, truth values, or any bits."""
        self._run("_random", [(U64, address), (U32, seed), (I32, kind_of(dtype)), (I64, size // 4)])

    def checksum(self, address: int, size: int) -> int:
        """A digest of the words, the same in every order of threads."""
        self._start(0, 0)
        self._run("_checksum", [(U64, address), (U64, self._words.address), (I64, size // 4)])
        return self._counts()[0]

    def differing_words(self, got: int, expected: int, size: int) -> tuple[int, int | None]:
        """How many words differ, and the place of the first."""
        return self._count("_compare_words", [(U64, got), (U64, expected)], size // 4)

    def differing(self, got: int, expected: int, rows: ElementRows) -> tuple[int, int | None]:
        """How many elements of two arrays differ, and the place of the first."""
        if not rows.has_gaps and got % 4 == expected % 4 == 0:  # whole words first: nearly always that is all
            words = rows.span // 4 * 4
            if self.differing_words(got, expected, words)[0] == 0:
                tail = ElementRows(1, rows.span - words, 1, rows.span - words)
                if not tail.elements or not self._differing_elements(got + words, expected + words, tail)[0]:
                    return 0, None
        return self._differing_elements(got, expected, rows)

    def gaps_written(self, address: int, rows: ElementRows, poison: int) -> int:
        """How many bytes between the rows do not hold the poison, a word at each multiple of 4 bytes."""
        turned = 8 * (address % 4)
        poison = (poison >> turned | poison << 32 - turned) & 0xFFFFFFFF
        row_bytes = rows.elements * rows.size
        gap_bytes = (rows.count - 1) * (rows.pitch - row_bytes)
        arguments: list[Number] = [(U64, address), (U32, poison), (I64, row_bytes), (I64, rows.pitch)]
        return self._count("_compare_gaps", arguments, gap_bytes)[0]

    def beyond_bounds(
        self, got: int, rows: ElementRows, dtype: DType, expected: int, magnitude: int, allowed: Allowance
    ) -> tuple[int, int | None]:
        """How many elements lie further from the doubles expected than is allowed, and the place of the first."""
        arguments: list[Number] = [
            (U64, got), (I32, kind_of(dtype)), (I32, rows.size), (I64, rows.elements), (I64, rows.pitch),
            (U64, expected), (U64, magnitude), (F64, allowed.relative), (F64, allowed.unit), (F64, allowed.absolute),
            (F64, allowed.largest),
        ]  # fmt: skip
        return self._count("_compare_bound", arguments, rows.total)

    def _differing_elements(self, got: int, expected: int, rows: ElementRows) -> tuple[int, int | None]:
        arguments: list[Number] = [
            (U64, got), (U64, expected), (I32, rows.size), (I64, rows.elements), (I64, rows.pitch)
        ]  # fmt: skip
        return self._count("_compare_elements", arguments, rows.total)

    def _count(self, entry: str, arguments: list[Number], total: int) -> tuple[int, int | None]:
        """Runs a kernel over `total` items that counts the wrong ones and finds the first."""
        if total == 0:
            return 0, None
        self._start(0, _NOT_FOUND)
        self._run(entry, [*arguments, (U64, self._words.address), (U64, self._words.address + 8), (I64, total)])
        wrong, first = self._counts()
        return wrong, None if first == _NOT_FOUND else first

    def _run(self, entry: str, arguments: Sequence[Number], blocks: int = 0) -> None:
        grid = blocks or BLOCKS_PER_MULTIPROCESSOR * self.device.limits.multiprocessors
        self._queue(_step(entry, grid, THREADS, tuple(arguments)))

    def _queue(self, step: Step) -> None:
        self._code.prepare({}, [step]).launch({}, {}, LEGACY_STREAM)

    def _start(self, one: int, other: int) -> None:
        self.device.upload(self._words.address, np.array([one, other], np.uint64))

    def _counts(self) -> tuple[int, int]:
        one, other = bytes_at(self.device, self._words.address, 16).view(np.uint64)
        return int(one), int(other)
