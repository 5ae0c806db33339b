"""How many registers a thread may have, by the warps that are to fit on a multiprocessor at once."""

from __future__ import annotations

_REGISTERS = 65536  # of a multiprocessor
_QUARTERS = 4  # of it, each with registers of its own
_STEP = 8  # a thread is given so many at a time
_MOST = 255


def room_for(warps: int) -> int:
    """The most registers of a thread with which so many warps fit."""
    of_a_quarter = -(-warps // _QUARTERS)
    return min(_REGISTERS // _QUARTERS // (32 * of_a_quarter) // _STEP * _STEP, _MOST)
