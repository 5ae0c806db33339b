"""The searches by name."""

from __future__ import annotations

from collections.abc import Callable

from gen.errors import UnknownNameError
from gen.tune.climb import Climb
from gen.tune.search import Search, Space, exhaustive, random

SEARCHES: dict[str, Callable[[Space], Search]] = {"exhaustive": exhaustive, "random": random, "climb": Climb}


def find_search(name: str) -> Callable[[Space], Search]:
    """The search of this name."""
    if name not in SEARCHES:
        raise UnknownNameError("The search", "must be one of " + ", ".join(SEARCHES), repr(name))
    return SEARCHES[name]
