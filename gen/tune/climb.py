"""A search that samples a space, and then looks around the fastest variants that it has seen."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from gen.families.base import Variant
from gen.gpu.trial import Trial
from gen.tune.search import Space

SAMPLE = 64  # variants that are known before it looks around
NEAR = 0.05  # a variant this much slower than the fastest is worth looking around too


class Climb:
    """Implements `Search`: every second variant differs from one of the fastest in a single parameter.

    The fastest are those that it is told of, whoever gave them. The others come from all over the space, in an order
    that favours none: it gives every variant in the end, and a hill that is not the highest does not hold it.
    """

    def __init__(self, space: Space, *, seed: int = 0) -> None:
        self._space = space
        self._anywhere = iter(np.random.default_rng(seed).permutation(space.size))
        self._near: deque[int] = deque()  # around the fastest, the latest first
        self._seen: set[int] = set()  # numbers, of variants or of none
        self._met = 0  # variants that were given or told of
        self._best_us = float("inf")

    def ask(self, count: int) -> Sequence[Variant]:
        """The next of them."""
        found: list[Variant] = []
        while len(found) < count and (made := self._next()) is not None:
            found.append(made)
        return tuple(found)

    def tell(self, trial: Trial) -> None:
        """Looks around a variant that is the fastest, or nearly; not around one that cannot win however fast."""
        number = self._space.number(trial.variant)
        if number is None:
            return
        if number not in self._seen:
            self._seen.add(number)
            self._met += 1
        if trial.status != "ok" or not trial.whole or trial.median_us > self._best_us * (1 + NEAR):
            return
        around = [other for other in self._space.near(number) if other not in self._seen]
        if trial.median_us < self._best_us:
            self._best_us = trial.median_us
            self._near.extendleft(reversed(around))
        else:
            self._near.extend(around)

    @property
    def left(self) -> int:
        """About how many variants have been neither given nor told of."""
        return max(self._space.count - self._met, 0) if len(self._seen) < self._space.size else 0

    def _next(self) -> Variant | None:
        """A variant that was not given; None where there are no more."""
        near = self._met >= SAMPLE and self._met % 2 == 1
        while True:
            number = self._near.popleft() if near and self._near else next(self._anywhere, None)
            if number is None:
                return None  # all over the space is everywhere: what is near was seen too
            number = int(number)
            if number in self._seen:
                continue
            self._seen.add(number)
            made = self._space.at(number)
            if made is not None:
                self._met += 1
                return made
