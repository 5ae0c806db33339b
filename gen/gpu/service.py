"""The kernels of `kernels.cu`, ready to call: fills, copies, digests, comparisons on the device."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from gen.dtypes import DType
from gen.gpu.elements import Rows, kind_of
from gen.proof.oracle import Allowance
from gen.toolchain.compiled import Compiler

if TYPE_CHECKING:
    from gen.gpu.device import CudaDevice, Flag, Function

THREADS = 256
BLOCKS_PER_SM = 8
GATE_CYCLES = 2_000_000_000  # about a second: then a gate that nobody opens lets go
GATE_SECONDS = 0.5  # it holds that long on any GPU: none runs at 4 GHz
_NOT_FOUND = 2**64 - 1

Grid = tuple[int, int, int]


def source() -> str:
    """The text of `kernels.cu`."""
    return (files("gen.gpu") / "kernels.cu").read_text(encoding="utf-8")


class Service:
    """The service kernels on one device. Addresses are multiples of 16, sizes in bytes multiples of 4."""

    def __init__(self, device: CudaDevice, compiler: Compiler) -> None:
        self.device = device
        self._module = device.module(compiler.compile("gen_service", source(), device.limits.arch).cubin)
        self._functions: dict[str, Function] = {}
        self._words = device.allocate(16)  # what kernels count in

    def empty(self) -> None:
        """Queues a kernel that does nothing."""
        self._function("gen_empty").launch((1, 1, 1), (32, 1, 1), ())

    def gate(self, flag: Flag) -> None:
        """Queues a wait for a flag: what follows starts only when all of it is queued."""
        self._function("gen_gate").launch((1, 1, 1), (1, 1, 1), [("P", flag.address), ("q", GATE_CYCLES)])

    def fill(self, address: int, size: int, word: int, blocks: int = 0) -> None:
        """Queues writing one word everywhere."""
        body = size // 16
        self._run("gen_fill", [("P", address), ("I", word), ("q", body)], blocks)
        if size % 16:
            self.device.upload_async(address + body * 16, np.full(size % 16 // 4, word, np.uint32))

    def copy(self, source: int, target: int, size: int, blocks: int = 0) -> None:
        """Queues copying whole vectors."""
        self._run("gen_copy", [("P", source), ("P", target), ("q", size // 16)], blocks)

    def read(self, address: int, size: int, blocks: int = 0) -> None:
        """Queues reading whole vectors."""
        self._run("gen_read", [("P", address), ("P", self._words.address), ("q", size // 16)], blocks)

    def claim(self, address: int, size: int) -> None:
        """Queues reading whole vectors that the second-level cache is asked to evict last."""
        self._run("gen_claim", [("P", address), ("P", self._words.address), ("q", size // 16)])

    def release(self, address: int, size: int) -> None:
        """Queues what makes them like any others; the address is a multiple of 128."""
        self._run("gen_release", [("P", address), ("q", size // 16)])

    def random(self, address: int, size: int, seed: int, dtype: DType) -> None:
        """Queues random elements: whole numbers from 1 to 8 of either sign, truth values, or any bits."""
        self._run("gen_random", [("P", address), ("I", seed), ("i", kind_of(dtype)), ("q", size // 4)])

    def checksum(self, address: int, size: int) -> int:
        """A digest of the words, the same in every order of threads."""
        self._start(0, 0)
        self._run("gen_checksum", [("P", address), ("P", self._words.address), ("q", size // 4)])
        return self._counts()[0]

    def differing_words(self, got: int, expected: int, size: int) -> tuple[int, int | None]:
        """How many words differ, and the place of the first."""
        return self._count("gen_compare_words", [("P", got), ("P", expected)], size // 4)

    def differing(self, got: int, expected: int, rows: Rows) -> tuple[int, int | None]:
        """How many elements of two arrays differ, and the place of the first."""
        if not rows.has_gaps and got % 4 == expected % 4 == 0:  # whole words first: nearly always that is all
            words = rows.span // 4 * 4
            if self.differing_words(got, expected, words)[0] == 0:
                tail = Rows(1, rows.span - words, 1, rows.span - words)
                if not tail.elements or not self._differing_elements(got + words, expected + words, tail)[0]:
                    return 0, None
        return self._differing_elements(got, expected, rows)

    def gaps_written(self, address: int, rows: Rows, poison: int) -> int:
        """How many bytes between the rows do not hold the poison, a word at each multiple of 4 bytes."""
        turned = 8 * (address % 4)
        poison = (poison >> turned | poison << 32 - turned) & 0xFFFFFFFF
        row_bytes = rows.elements * rows.size
        gap_bytes = (rows.count - 1) * (rows.pitch - row_bytes)
        arguments: list[tuple[str, int | float]] = [("P", address), ("I", poison), ("q", row_bytes), ("q", rows.pitch)]
        return self._count("gen_compare_gaps", arguments, gap_bytes)[0]

    def beyond_bounds(
        self, got: int, rows: Rows, dtype: DType, expected: int, magnitude: int, allowed: Allowance
    ) -> tuple[int, int | None]:
        """How many elements lie further from the doubles expected than is allowed, and the place of the first."""
        arguments: list[tuple[str, int | float]] = [
            ("P", got), ("i", kind_of(dtype)), ("i", rows.size), ("q", rows.elements), ("q", rows.pitch),
            ("P", expected), ("P", magnitude), ("d", allowed.relative), ("d", allowed.unit), ("d", allowed.absolute),
            ("d", allowed.largest),
        ]  # fmt: skip
        return self._count("gen_compare_bound", arguments, rows.total)

    def _differing_elements(self, got: int, expected: int, rows: Rows) -> tuple[int, int | None]:
        arguments: list[tuple[str, int | float]] = [
            ("P", got), ("P", expected), ("i", rows.size), ("q", rows.elements), ("q", rows.pitch)
        ]  # fmt: skip
        return self._count("gen_compare_elements", arguments, rows.total)

    def _count(self, symbol: str, arguments: list[tuple[str, int | float]], total: int) -> tuple[int, int | None]:
        """Runs a kernel over `total` items that counts the wrong ones and finds the first."""
        if total == 0:
            return 0, None
        self._start(0, _NOT_FOUND)
        self._run(symbol, [*arguments, ("P", self._words.address), ("P", self._words.address + 8), ("q", total)])
        wrong, first = self._counts()
        return wrong, None if first == _NOT_FOUND else first

    def _run(self, symbol: str, arguments: list[tuple[str, int | float]], blocks: int = 0) -> None:
        grid = (blocks or BLOCKS_PER_SM * self.device.limits.multiprocessors, 1, 1)
        self._function(symbol).launch(grid, (THREADS, 1, 1), arguments)

    def _function(self, symbol: str) -> Function:
        if symbol not in self._functions:
            self._functions[symbol] = self._module.function(symbol)
        return self._functions[symbol]

    def _start(self, one: int, other: int) -> None:
        self.device.upload(self._words.address, np.array([one, other], np.uint64))

    def _counts(self) -> tuple[int, int]:
        one, other = self.device.download(self._words.address, 16).view(np.uint64)
        return int(one), int(other)
