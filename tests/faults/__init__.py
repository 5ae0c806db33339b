"""Faults planted in small kernels, each with a clean twin: of memory, threads, copies, inline PTX, undefined C++."""

from tests.faults import copies, memory, ptx, threads, undefined
from tests.faults.fault import Planted

PLANTED: tuple[Planted, ...] = (
    *memory.PLANTED,
    *threads.PLANTED,
    *undefined.PLANTED,
    *copies.PLANTED,
    *ptx.PLANTED,
)
