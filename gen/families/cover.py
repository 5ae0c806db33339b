"""Pairwise covers of a search space: few configs in which every pair of values that can meet does meet."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeVar

from gen.families.config import Config, Value

C = TypeVar("C", bound=Config)
Pair = tuple[str, Value, str, Value]


def pairs(config: Config) -> frozenset[Pair]:
    """Every two parameters with their values; a lone parameter counts as a pair with itself."""
    values = [(parameter.field, getattr(config, parameter.field)) for parameter in config.parameters()]
    if len(values) == 1:
        values = values * 2
    return frozenset((*first, *second) for first, second in combinations(values, 2))


def pairwise(configs: Sequence[C]) -> tuple[C, ...]:
    """Configs among these, in their order, that hold every pair of values that any of them holds.

    Greedy: each step takes the first config with the most pairs still missing.
    """
    held = [pairs(config) for config in configs]
    missing = set().union(*held)
    chosen: list[int] = []
    while missing:
        best = max(range(len(configs)), key=lambda place: (len(held[place] & missing), -place))
        missing -= held[best]
        chosen.append(best)
    return tuple(configs[place] for place in sorted(chosen))
