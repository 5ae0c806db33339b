"""Races planted in small kernels, each with a clean twin, by what goes wrong: order, accesses, the read-only path."""

from tests.races import accesses, order, read_only
from tests.races.race import Planted

PLANTED: tuple[Planted, ...] = (*order.PLANTED, *accesses.PLANTED, *read_only.PLANTED)
