"""Faults planted in small kernels, each with a clean twin, by what is wrong: memory, threads, copies, undefined C++."""

from tests.faults import copies, memory, threads, undefined
from tests.faults.fault import Planted

PLANTED: tuple[Planted, ...] = (*memory.PLANTED, *threads.PLANTED, *undefined.PLANTED, *copies.PLANTED)
