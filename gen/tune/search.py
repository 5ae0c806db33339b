"""The order in which variants are tried: a search is asked for the next variants, and told the trial of each.

A search is asked for as many as the compilers take at once, and never waits for a trial to choose the next. `Space`
numbers the variants of a spec without making them, so that a space of 10^5 variants can be sampled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from math import prod
from typing import Any, Protocol

import numpy as np

from gen.errors import GenError
from gen.families.base import Algorithm, Family, Spec, Variant
from gen.families.config import Config
from gen.families.names import find_variant, illegal, unsearched
from gen.store.trials import Problem, Trial

COUNTED_COMBINATIONS = 2000  # combinations of an algorithm's values that are looked at to count its variants
MAX_KEPT_VARIANTS = 4096  # variants of a space that are kept, for other problems of its spec


class Search(Protocol):
    """Chooses what is tried next."""

    def ask(self, count: int) -> Sequence[Variant]:
        """Up to so many variants that it has not given before; none when there are no more."""
        ...

    def tell(self, trial: Trial) -> None:
        """Takes the trial of a variant, given by the search or not: base, a heuristic one, one of an earlier run.

        That variant is not given any more.
        """
        ...

    @property
    def left(self) -> int:
        """About how many variants have neither been given nor told of; 0 if there are none."""
        ...


@dataclass(frozen=True)
class Space:
    """All variants of a spec that may be chosen unasked, by number, the algorithms one after another.

    Attributes:
        complete: whether it has the variants too that are legal but unsearched.
    """

    family: Family[Any]
    spec: Spec
    complete: bool = False

    @cached_property
    def _parts(self) -> tuple[tuple[Algorithm[Any, Any], int], ...]:
        """Every algorithm, and how many combinations of values its parameters have, variants or not."""
        return tuple(
            (algorithm, prod(len(parameter.values) for parameter in algorithm.config.parameters()))
            for algorithm in self.family.algorithms.values()
            if algorithm.excluded_from_tuning is None
        )

    @cached_property
    def size(self) -> int:
        """How many numbers there are; some stand for no variant."""
        return sum(count for _, count in self._parts)

    @cached_property
    def count(self) -> int:
        """How many variants there are; about, where an algorithm has many combinations of values: from some of them."""
        first, found = 0, 0.0
        for _, size in self._parts:
            numbers: Sequence[int] = range(first, first + size)
            if size > COUNTED_COMBINATIONS:
                numbers = [
                    first + int(number) for number in np.random.default_rng(0).integers(size, size=COUNTED_COMBINATIONS)
                ]
            found += size * sum(self.at(number) is not None for number in numbers) / len(numbers)
            first += size
        return max(round(found), 1)

    def at(self, number: int) -> Variant | None:
        """The variant of this number; None where it stands for none."""
        if number in self._empty:
            return None
        made = self._made(number)
        if made is None:
            self._empty.add(number)
        return made

    def number(self, variant: Variant) -> int | None:
        """The inverse of `at`; None for a variant that it never gives."""
        first = 0
        for algorithm, count in self._parts:
            if algorithm.name == variant.algorithm.name:
                digits = 0
                for parameter in algorithm.config.parameters():
                    value = getattr(variant.config, parameter.field)
                    if value not in parameter.values:
                        return None
                    digits = digits * len(parameter.values) + parameter.values.index(value)
                return None if self.at(first + digits) is None else first + digits
            first += count
        return None

    def neighbours(self, number: int) -> list[int]:
        """The numbers of variants of the same algorithm that differ from this one in a single parameter."""
        rest, parts = number, iter(self._parts)
        algorithm, count = next(parts)
        while rest >= count:
            rest -= count
            algorithm, count = next(parts)
        found, weight = [], 1
        for parameter in reversed(algorithm.config.parameters()):
            values = len(parameter.values)
            digit = rest // weight % values
            found += [number + (other - digit) * weight for other in range(values) if other != digit]
            weight *= values
        return found

    @cached_property
    def _made(self) -> Callable[[int], Variant | None]:
        return lru_cache(MAX_KEPT_VARIANTS)(self._make)

    @cached_property
    def _empty(self) -> set[int]:
        """Numbers that are known to stand for no variant."""
        return set()

    def _make(self, number: int) -> Variant | None:
        for algorithm, count in self._parts:
            if number < count:
                config = _config(algorithm.config, number)
                if illegal(algorithm, self.spec, config) is not None:
                    return None
                if not self.complete and unsearched(algorithm, self.spec, config) is not None:
                    return None
                return Variant(self.family, self.spec, algorithm, config)
            number -= count
        raise IndexError(number)


@dataclass
class First:
    """Gives some variants before a search gives its own; a search that gives one of them again is not hindered.

    Attributes:
        first: the variants that have not been given.
    """

    search: Search
    first: list[Variant]

    def ask(self, count: int) -> Sequence[Variant]:
        """Those that come first, then the search's."""
        given, self.first = self.first[:count], self.first[count:]
        return given or self.search.ask(count)

    def tell(self, trial: Trial) -> None:
        """Passes it on."""
        self.first = [one for one in self.first if one.name != trial.variant.name]
        self.search.tell(trial)

    @property
    def left(self) -> int:
        """About how many variants have not been given."""
        return len(self.first) + self.search.left


def _config(kind: type[Config], number: int) -> Config:
    """The config of this number in the product of all values, the last parameter's changing fastest.

    Made without its constructor, which looks whether a value is one of those that a parameter has: most numbers stand
    for no variant, and one thread looks at all of them while several GPUs wait.
    """
    made = object.__new__(kind)
    for parameter in reversed(kind.parameters()):
        number, digit = divmod(number, len(parameter.values))
        made.__dict__[parameter.field] = parameter.values[digit]
    return made


class InOrder:
    """Gives the variants of a space by their numbers, in the order of a sequence; implements `Search`."""

    def __init__(self, space: Space, numbers: Sequence[int] | np.ndarray[Any, np.dtype[np.int64]]) -> None:
        self._space, self._numbers = space, numbers
        self._looked_at = 0
        self._known: set[int] = set()  # given, or told of
        self._next = self._variants()

    def ask(self, count: int) -> Sequence[Variant]:
        """The next of them."""
        return tuple(islice(self._next, count))

    def tell(self, trial: Trial) -> None:
        """Leaves it out."""
        number = self._space.number(trial.variant)
        if number is not None:
            self._known.add(number)

    @property
    def left(self) -> int:
        """About how many variants were not given; of a part of a space, the numbers that were not looked at."""
        rest = len(self._numbers) - self._looked_at
        if len(self._numbers) < self._space.size:
            return rest
        return min(max(self._space.count - len(self._known), 0), rest)

    def _variants(self) -> Iterator[Variant]:
        for number in map(int, self._numbers):
            self._looked_at += 1
            made = None if number in self._known else self._space.at(number)
            if made is not None:
                self._known.add(number)
                yield made


def exhaustive(space: Space) -> Search:
    """All variants, in the order of the algorithms and of their parameters' values."""
    return InOrder(space, range(space.size))


FIRST_SAMPLE_VARIANTS = 64  # variants that are known before it looks around
NEIGHBOUR_MARGIN = 0.05  # a variant this much slower than the fastest is worth looking around too


class Climb:
    """Implements `Search`: every second variant differs from one of the fastest in a single parameter.

    The fastest are those that it is told of, whoever gave them. The others come from all over the space, in an order
    that favours none: it gives every variant in the end, and a hill that is not the highest does not hold it.
    """

    def __init__(self, space: Space, *, nearest: bool = False) -> None:
        """Begins anywhere.

        Args:
            space: the variants.
            nearest: whether variants around the fastest go before all others, from the first on: for little time.
        """
        self._space, self._nearest = space, nearest
        self._anywhere = iter(np.random.default_rng(0).permutation(space.size))
        self._near: deque[int] = deque()  # around the fastest, the latest first
        self._seen: set[int] = set()  # numbers, of variants or of none
        self._known = 0  # variants that were given or told of
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
            self._known += 1
        if trial.status != "ok" or not trial.is_full_time or trial.median_us > self._best_us * (1 + NEIGHBOUR_MARGIN):
            return
        around = [other for other in self._space.neighbours(number) if other not in self._seen]
        if trial.median_us < self._best_us:
            self._best_us = trial.median_us
            self._near.extendleft(reversed(around))
        else:
            self._near.extend(around)

    @property
    def left(self) -> int:
        """About how many variants have been neither given nor told of."""
        return max(self._space.count - self._known, 0) if len(self._seen) < self._space.size else 0

    def _next(self) -> Variant | None:
        """A variant that was not given; None where there are no more."""
        near = self._nearest or (self._known >= FIRST_SAMPLE_VARIANTS and self._known % 2 == 1)
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
                self._known += 1
                return made


def known(problem: Problem, names: Iterable[str]) -> Iterator[Variant]:
    """The variants of these names, made one by one; without those that are no longer any of the problem's spec."""
    specs = {problem.spec_name: problem.spec.to_json()}
    for name in names:
        try:
            made = find_variant((problem.family,), name, specs)
        except GenError:
            continue
        if made.spec == problem.spec and made.algorithm.excluded_from_tuning is None:
            yield made
