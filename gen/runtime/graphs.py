"""Calls that are repeated, as graphs: the device then queues all that a call launches at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from contextlib import suppress

from gen.errors import RunError
from gen.gpu.device import Graph


class CallGraphs:
    """Graphs of calls, of which each is captured when the call is made for the second time. For one thread at a time.

    They are closed with this object.

    Attributes:
        made: by call; None for one of which the driver captures nothing.
    """

    def __init__(self, most: int, most_seen: int) -> None:
        """Has none yet.

        Args:
            most: graphs that are kept; further calls get none.
            most_seen: calls that are remembered to have been made.
        """
        self.made: dict[Hashable, Graph | None] = {}
        self._most, self._most_seen = most, most_seen
        self._seen: set[Hashable] = set()

    def of(self, call: Hashable, capture: Callable[[], Graph | None]) -> Graph | None:
        """The graph of a call; None if the call is new, or there is none.

        Args:
            call: all that the graph depends on: addresses and numbers.
            capture: makes it.
        """
        if call not in self.made and call in self._seen and len(self.made) < self._most:
            self.made[call] = capture()
        if len(self._seen) >= self._most_seen:
            self._seen.clear()
        self._seen.add(call)
        return self.made.get(call)

    def forget(self) -> None:
        """Closes all: their memory is given back, or has other content from now on."""
        for graph in self.made.values():
            if graph is not None:
                with suppress(RunError):  # after a failed launch the driver answers nothing any more
                    graph.close()
        self.made.clear()
        self._seen.clear()

    def __del__(self) -> None:
        # Not by weakref.finalize, which would keep the graph, and so the call that it is of, and so this object.
        if not sys.is_finalizing():  # the driver frees everything then
            self.forget()
