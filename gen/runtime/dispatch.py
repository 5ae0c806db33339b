"""Which variant a device gets for a problem, and why."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from gen.arch import sibling_of
from gen.emit.render import render
from gen.errors import ConfigError, GenError, StoreError, UnknownNameError
from gen.families.base import WIDEST, Extents, Family, Limits, Spec, Variant, html_table
from gen.families.estimates import Least, estimated_us, least_us_of
from gen.families.expr import Sizes
from gen.families.extents import sizes_in_words
from gen.families.names import SPECS, Takes, base_variants, find_spec, find_variant, heuristic_variants, variant
from gen.families.regions import WHOLE, Region, most_special_first, sizes_of
from gen.store.folder import find_known
from gen.store.stale import came_later, why_stale
from gen.store.winners import Winner, all_winners, merged

log = logging.getLogger("gen")
LESS_THAN_TUNED, LESS_THAN_STALE = 0.75, 0.95
"""Parts of an estimated time under which another is taken: of a class's winner, of one that is stale or of a sibling;
of what comes first untuned, and of another spec's winner, `Family.first_stays`."""
AT_FIRST_CALLS = "; gen.load(spec, tune='2s'), or gen.tuning('2s') around calls, would at the first call of each size"
_REMEMBERED = 1024  # choices of a chooser: sizes that a program comes back to
_TOO_LARGE = 1e300  # to be printed: JSON holds integers of any length
_UNUSABLE = (GenError, TypeError, ValueError, AttributeError, LookupError)  # what a file edited by hand may cause
_said: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Choice:
    """A variant for a shape class.

    Attributes:
        variant: the chosen one.
        why: the reason, in a sentence.
        tuned: whether it was measured to be the fastest of this spec, in this class or at these sizes.
    """

    variant: Variant
    why: str
    tuned: bool

    def _repr_html_(self) -> str:
        return html_table(self.variant.name, self.told, source=render(self.variant))

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """The choice in words: why, whether it was measured, and what the variant does."""
        measured = "yes" if self.tuned else "no"
        return (("why", self.why), ("measured to be the fastest", measured), *self.variant.described)


@dataclass(frozen=True)
class Part:
    """What a part of a shape class begins with, before sizes are looked at.

    Attributes:
        region: of the winner; None where nothing was tuned.
        variant: its variant, or what stands for it.
        wider: the same for all sizes, where it is for some and was measured: for sizes that it cannot compute.
        measured: whether it stays wherever it can compute the sizes.
        worth: under that part of its estimated time another is taken.
        later: whether the first of the others came later than the winner.
    """

    region: Region | None
    variant: Variant
    wider: tuple[Variant, ...]
    measured: bool
    worth: float
    later: bool


@dataclass(frozen=True)
class ClassVariants:
    """All that a shape class may get.

    Attributes:
        parts: the first one that holds the sizes counts.
        others: what is often fast, the best first, and base.
        base: takes all sizes.
        first_stays: under that part of the first one's estimated time another is taken.
    """

    parts: tuple[Part, ...]
    others: tuple[Variant, ...]
    base: Variant
    first_stays: float


class _Kept:
    """Variants that an iterator makes, each when it is first asked for, and kept; for several threads at once."""

    def __init__(self, left: Iterator[Variant]) -> None:
        self._left, self._made, self._lock = left, list[Variant](), threading.Lock()

    def __iter__(self) -> Iterator[Variant]:
        for place in count():
            if place == len(self._made):
                with self._lock:
                    if place == len(self._made):
                        self._made += islice(self._left, 1)
                if place == len(self._made):
                    return
            yield self._made[place]


class Chooser:
    """Chooses among what was tuned for a device, and base: for a problem, else a part of its shape class, else that."""

    def __init__(
        self, family: Family[Any], spec: Spec, winners: Iterable[Winner], device: str, limits: Limits, driver: str = "",
        text_of: Callable[[Variant], str] = render, *, asked_by_calls: bool = True,
    ) -> None:  # fmt: skip
        """Keeps the winners that count.

        Args:
            family: that of the spec.
            spec: what is computed.
            winners: of any device and spec.
            device: the device's name.
            limits: what it allows.
            driver: its driver's version; empty where nobody asked.
            text_of: gives the text of a winner, which may be kept somewhere.
            asked_by_calls: whether problems are those of a user, who is told where a winner does not take them.
        """
        self.family = family
        self.spec = spec
        self.name = family.name_of(spec)
        self.device = device
        self._limits = limits
        self._driver, self._text_of = driver, text_of
        self._asked_by_calls = asked_by_calls
        self._all: tuple[Winner, ...] = ()
        self._winners: dict[str, list[Winner]] = {}
        self._choices: dict[tuple[str, Region], Choice] = {}
        self._stale: dict[tuple[str, str, str, Region], str | None] = {}
        self._bases: dict[str, Variant] = {}
        self._heuristics: dict[str, _Kept] = {}
        self._bounds: dict[str, tuple[tuple[Variant, Least | None], ...]] = {}
        self._of_calls: dict[tuple[tuple[tuple[str, int], ...], int], Choice] = {}
        self.learn(winners)

    def learn(self, winners: Iterable[Winner]) -> None:
        """Takes winners into account, each in the place of an earlier one for the same sizes."""
        self._all = merged(self._all, winners)
        self._winners.clear()
        self._choices.clear()
        self._stale.clear()
        self._of_calls = {}  # a call that is choosing now keeps its choice in the old one
        mine = [winner for winner in self._all if winner.spec == self.name]
        sibling = sibling_of(self.device, {winner.device for winner in mine})
        for device in (self.device, sibling):
            found: dict[str, list[Winner]] = {}
            for winner in mine:
                if winner.device == device:
                    found.setdefault(winner.shape, []).append(winner)
            self._winners = found | self._winners  # a sibling's for classes of which this device has none
        for winners in self._winners.values():
            winners.sort(key=lambda winner: most_special_first(winner.region))

    @property
    def winners(self) -> tuple[Winner, ...]:
        """Those that count for this spec on this device."""
        return tuple(winner for _, winners in sorted(self._winners.items()) for winner in winners)

    def measured(self, extents: Extents, alignment: int = WIDEST) -> Winner | None:
        """The winner that was measured for this very problem on this device; None if there is none, or it is stale."""
        winners = self._winners.get(self.family.shape_class(self.spec, extents, alignment), ())
        ones = [winner for winner in winners if winner.region.one and self._trusted(winner)]
        sizes = sizes_of(self.family, self.spec, extents, alignment) if ones else {}
        return next((winner for winner in ones if winner.region.holds(sizes)), None)

    def of(self, spec: Spec) -> Chooser:
        """The same for another spec of the family."""
        return Chooser(self.family, spec, self._all, self.device, self._limits, self._driver, self._text_of,
            asked_by_calls=self._asked_by_calls,
        )  # fmt: skip

    def choose(self, extents: Extents, alignment: int = WIDEST) -> Choice:
        """The tuned variant of a problem, else what is often fast, or base; a winner that cannot be used is reported.

        What was tuned for a class was measured at sizes that stand for it: where it takes others of the class the long
        way, or not at all, they get what is made for them.

        Args:
            extents: the problem's sizes.
            alignment: the most bytes, up to 16, that divide the address of every array.

        Raises:
            ConfigError: this device can run no base variant either.
        """
        known = Sizes({**extents, **self._limits.sizes()})
        shape_class = self.family.shape_class(self.spec, known, alignment)
        winners = self._winners.get(shape_class, [])
        if any(winner.region.bounds for winner in winners):
            sizes = sizes_of(self.family, self.spec, extents, alignment)
            winners = [winner for winner in winners if winner.region.holds(sizes)]
        return self._fitting(shape_class, winners[0] if winners else None, known, alignment)

    def choices(self, shape_class: str) -> list[tuple[str, Choice]]:
        """What a shape class gets, in words, with what each part of it gets that was tuned for itself."""
        winners = self._winners.get(shape_class, [])
        parts = [(winner.words, self._chosen(shape_class, winner)) for winner in winners if winner.region.bounds]
        whole = next((winner for winner in winners if not winner.region.bounds), None)
        extents = self.family.representative(self.spec, shape_class)
        return [(shape_class, self._fitting(shape_class, whole, extents, WIDEST)), *parts]

    def for_call(self, extents: Extents, alignment: int = WIDEST) -> Choice:
        """What a call gets, remembered until more is learned. Raises ConfigError if no variant can take these sizes."""
        place, remembered = (tuple(extents.items()), alignment), self._of_calls
        choice = remembered.get(place)
        if choice is None:
            choice = self.covering(self.choose(extents, alignment), extents)
            if len(remembered) >= _REMEMBERED:
                remembered.clear()
            remembered[place] = choice
        return choice

    def row(self, shape_class: str) -> ClassVariants:
        """What `choose` chooses among in a shape class, for those who choose elsewhere: an exported library."""
        winners, others = self._winners.get(shape_class, []), tuple(self._others(shape_class))
        parts = []
        for winner in (*winners, *(() if any(not one.region.bounds for one in winners) else (None,))):
            choice = self._chosen(shape_class, winner)
            made = choice.variant
            parts.append(
                Part(
                    None if winner is None else winner.region, made, tuple(self._wider(made)) if choice.tuned else (),
                    winner is not None and bool(winner.region.bounds) and self._trusted(winner),
                    self._worth(shape_class, winner),
                    winner is not None and came_later(winner, others[0]),
                )
            )  # fmt: skip
        return ClassVariants(tuple(parts), others, self._base(shape_class), self.family.first_stays(shape_class))

    def first_estimated(self, shape_class: str, extents: Extents, alignment: int) -> Variant | None:
        """Of what is often fast, the first whose time is estimated: beside it the others must be much faster."""
        for made in self._candidates(shape_class, extents):
            if self._estimated_us(made, extents, alignment) is not None:
                return made
        return None

    def _candidates(self, shape_class: str, extents: Extents, able: Variant | None = None) -> Iterator[Variant]:
        """Of what is often fast, the first that can compute the sizes, as one of them is known to be able to."""
        left = self.family.most_candidates
        for made in self._others(shape_class):
            if made is able or self._unsupported_extents(made, extents) is None:
                yield made
                left -= 1
                if left == 0:
                    return

    def covering(self, choice: Choice, extents: Extents) -> Choice:
        """The choice, or base if the chosen variant cannot take these sizes.

        Raises ConfigError if base cannot either.
        """
        reason = self._unsupported_extents(choice.variant, extents)
        if reason is None:
            return choice
        base = self._base(self.family.shape_class(self.spec, extents))
        base_reason = self._unsupported_extents(base, extents)
        if base_reason is not None:
            next_step = "Call it for parts of the array"
            raise ConfigError(base.name, f"cannot take these sizes: {base_reason}", next_step=next_step)
        if choice.tuned and self._asked_by_calls:
            log.warning("%s cannot take these sizes: %s. Base is used: %s", choice.variant.name, reason, base.name)
        return Choice(base, f"base, because {choice.variant.name} cannot take these sizes: {reason}", False)

    def _fitting(self, shape_class: str, winner: Winner | None, extents: Extents, alignment: int) -> Choice:
        """The winner; where others are made for these sizes, and it is not, what is expected to be the fastest.

        A winner that was measured within bounds of its own stays wherever it can compute the sizes. What is said here,
        and in `_least_estimated`, `fitting` and `least_estimated` of templates/export/host.hpp say in C++;
        `python bench/choices.py` compares them.
        """
        choice = self._chosen(shape_class, winner)
        measured = winner is not None and bool(winner.region.bounds) and self._trusted(winner)
        unsupported = self._unsupported_extents(choice.variant, extents)
        if unsupported is None and measured:
            return choice
        worth, supported = self._worth(shape_class, winner), unsupported is None
        for made in self._wider(choice.variant) if choice.tuned and not supported else ():
            if self._unsupported_extents(made, extents) is None and not self._slow_path_reason(
                made, extents, alignment
            ):
                return Choice(made, f"like {choice.variant.name}, which cannot take these sizes: {unsupported}", False)
        estimated = self._least_estimated(choice, shape_class, extents, alignment, worth, supported=supported)
        if estimated is not None:
            return estimated
        first = next(iter(self._others(shape_class)))
        later = winner is not None and came_later(winner, first)  # nobody has measured it against the winner
        if later and supported and self._unsupported_extents(first, extents) is None:
            why = f"{self._called(first, shape_class)}, which came later than {choice.variant.name}"
            choice = Choice(first, f"{why}; gen tune --stale measures both", False)
        slow = None if unsupported else self._slow_path_reason(choice.variant, extents, alignment)
        if unsupported is None and slow is None:
            return choice
        for made in self._others(shape_class):
            if (
                self._unsupported_extents(made, extents) is None
                and self._slow_path_reason(made, extents, alignment) is None
            ):
                break
        else:
            return choice
        called = self._called(made, shape_class)
        if winner is None:
            return Choice(made, f"{called}, {self._untuned(shape_class)}", False)
        reason = f"is slow at these sizes: {slow}" if slow else f"cannot take these sizes: {unsupported}"
        if choice.tuned and self._asked_by_calls:
            level = logging.INFO if slow else logging.WARNING
            log.log(level, "%s %s. %s is used", choice.variant.name, reason, made.name)
        return Choice(made, f"{called}, because {choice.variant.name} {reason}", False)

    def _least_estimated(
        self, choice: Choice, shape_class: str, extents: Extents, alignment: int, worth: float, *, supported: bool
    ) -> Choice | None:
        """What is estimated to take least; the choice itself unless that is so much less; None without estimates."""
        own = self._estimated_us(choice.variant, extents, alignment) if supported else None
        slow = self._slow_path_reason(choice.variant, extents, alignment) if supported and own is None else None
        if supported and own is None and slow is None:
            return None
        for first in self._candidates(shape_class, extents, choice.variant if supported else None):
            first_us = own if first is choice.variant else self._estimated_us(first, extents, alignment)
            if first_us is not None:
                break
        else:
            return None
        most = first_us * self.family.first_stays(shape_class)
        if self._slow_path_reason(first, extents, alignment) is not None:
            most = first_us
        least, made = self._least_under(most, first, first_us, shape_class, extents, alignment)
        if least > most:
            least, made = first_us, first
        often_fast = choice.variant == first
        if made == choice.variant or (own is not None and not often_fast and least > own * worth):
            return choice
        called = self._called(made, shape_class)
        if not choice.tuned:
            return Choice(made, f"{called}, {self._untuned(shape_class)}", False)
        unsupported = self._unsupported_extents(choice.variant, extents)
        reason = f"is slow at these sizes: {slow}" if slow else f"cannot take these sizes: {unsupported}"
        if own is not None:
            reason = f"would take {own:.3g} us by estimate, and {made.name} {least:.3g} us"
        if self._asked_by_calls:
            level = logging.INFO if supported else logging.WARNING
            log.log(level, "%s %s. %s is used", choice.variant.name, reason, made.name)
        return Choice(made, f"{called}, because {choice.variant.name} {reason}", False)

    def _least_under(
        self, most: float, first: Variant, first_us: float, shape_class: str, extents: Extents, alignment: int
    ) -> tuple[float, Variant]:
        """Of the candidates the first of those that are estimated to take least, if that is no more than so much.

        Estimates are made in the order of their bounds, until a bound is above the least estimate.
        """
        bounded, enough = self._bounded(shape_class), self.family.most_candidates
        bound_of = least_us_of(self.family.smallest(self.spec, extents, self._limits), self._limits)
        own = next(place for place, (made, _) in enumerate(bounded) if made is first)
        bounds = [
            (bound_of(least), place) for place, (_, least) in enumerate(bounded) if place > own and least is not None
        ]
        able: dict[int, bool] = {own: True}

        def is_able(place: int) -> bool:
            if place not in able:
                able[place] = self._unsupported_extents(bounded[place][0], extents) is None
            return able[place]

        end: int | None = None
        best, best_place, most = first_us, own, min(most, first_us)
        for bound, place in sorted(bounds):
            if bound > most:
                break
            if enough <= place and end is None:  # behind the last candidate: asked where it matters
                end = 1 + max(islice(filter(is_able, range(len(bounded))), enough))
            if (end is not None and place >= end) or not is_able(place):
                continue
            time = self._estimated_us(bounded[place][0], extents, alignment)
            if time is not None and (time, place) < (best, best_place):
                best, best_place, most = time, place, min(most, time)
        return best, bounded[best_place][0]

    def _bounded(self, shape_class: str) -> tuple[tuple[Variant, Least | None], ...]:
        """What is often fast, with what each asks of the device at least; None where no time is estimated."""
        if shape_class not in self._bounds:
            found = ((made, made.algorithm) for made in self._others(shape_class))
            self._bounds[shape_class] = tuple(
                (made, one.least(made.spec, made.config, self._limits) if one.is_estimated else None)
                for made, one in found
            )
        return self._bounds[shape_class]

    def _estimated_us(self, made: Variant, extents: Extents, alignment: int) -> float | None:
        demand = made.algorithm.demand(made.spec, made.config, extents, alignment, self._limits)
        return None if demand is None else estimated_us(demand, self._limits)

    def _wider(self, made: Variant) -> Iterator[Variant]:
        """The same variant for all sizes, where it is for some."""
        config = made.algorithm.wider(made.config)
        if config is not None:
            yield variant(self.family, made.spec, made.algorithm, config)

    def say_once(self, choice: Choice) -> None:
        """Logs the first choice of a process for a spec on a device; of those that nobody measured the first of all."""
        places = {(self.device, self.name)} | (set() if choice.tuned else {("", "")})
        if not places & _said:
            _said.update(places)
            level, ask = (logging.INFO, "") if choice.tuned else (logging.WARNING, AT_FIRST_CALLS)
            log.log(level, "%s: %s%s", choice.variant.name, choice.why, ask)

    def _chosen(self, shape_class: str, winner: Winner | None) -> Choice:
        """The choice of a winner, made once."""
        place = (shape_class, WHOLE if winner is None else winner.region)
        if place not in self._choices:
            self._choices[place] = self._choose(shape_class, winner)
        return self._choices[place]

    def _choose(self, shape_class: str, winner: Winner | None) -> Choice:
        if winner is None:
            kin = self._tuned_for_another_spec(shape_class)
            if kin is not None:
                return kin
            first = next(iter(self._others(shape_class)))
            return Choice(first, f"{self._called(first, shape_class)}, {self._untuned(shape_class)}", False)
        try:
            return Choice(self._usable(winner), self._why(winner), winner.device == self.device)
        except _UNUSABLE as error:
            if winner.device != self.device:  # a sibling's, of which nobody expects more
                return self._choose(shape_class, None)
            log.warning(
                "The tuned variant %r of %s (%s) on %s cannot be used, and base is: %s",
                winner.variant, self.name, winner.words, self.device, error,
            )  # fmt: skip
            why = f"base, because the tuned variant {winner.variant!r} cannot be used: {error}"
            return Choice(self._base(shape_class), why, False)

    def _tuned_for_another_spec(self, shape_class: str) -> Choice | None:
        """What was tuned for the same class of a spec like this one, the shortest name first; None if nothing was."""
        found = [w for w in self._all if w.device == self.device and w.shape == shape_class and not w.region.bounds]
        for winner in sorted(found, key=lambda winner: (len(winner.spec), winner.spec)):
            try:
                other = find_variant((self.family,), winner.variant, {})
                if not self.family.can_share_tuning(self.spec, other.spec):
                    continue
                made = self._allowed(variant(self.family, self.spec, other.algorithm, other.config))
            except _UNUSABLE:  # of another family, of a spec that no name spells, or not legal here
                continue
            return Choice(made, f"what was tuned for {winner.spec}, {self._untuned(shape_class)}", False)
        return None

    def _usable(self, winner: Winner) -> Variant:
        """The winner's variant. Raises GenError with the reason if it is none for this spec and device."""
        known = {self.name: self.spec.to_json()}
        found = find_variant((self.family,), winner.variant, known)
        if found.spec != self.spec:
            raise ConfigError(winner.variant, "is a variant of another spec", found.spec_name)
        return self._allowed(found)

    def _allowed(self, made: Variant) -> Variant:
        """The variant. Raises ConfigError if the device cannot run it, or it must be asked for."""
        if made.algorithm.excluded_from_tuning is not None:
            raise ConfigError(made.name, f"must be asked for: {made.algorithm.excluded_from_tuning}")
        reason = made.algorithm.infeasible(made.spec, made.config, self._limits)
        if reason is not None:
            raise ConfigError(made.name, f"cannot run on {self.device}: {reason}")
        return made

    def _base(self, shape_class: str) -> Variant:
        """The base variant of a shape class; if the device cannot run it, that of another class."""
        if shape_class in self._bases:
            return self._bases[shape_class]
        own = variant(self.family, self.spec, *self.family.base(self.spec, shape_class))
        reason = own.algorithm.infeasible(own.spec, own.config, self._limits)
        others = base_variants(self.family, self.spec) if reason else ()
        for made in (own, *others):
            if made.algorithm.infeasible(made.spec, made.config, self._limits) is None:
                return self._bases.setdefault(shape_class, made)
        next_step = "Pass another as device="
        raise ConfigError(own.name, f"cannot run on {self.device}: {reason}", next_step=next_step)

    def _others(self, shape_class: str) -> Iterable[Variant]:
        """What is often fast in a class, as far as the device can run it, the best first; then base."""
        if shape_class not in self._heuristics:
            self._heuristics.setdefault(shape_class, _Kept(self._often_fast(shape_class)))
        return self._heuristics[shape_class]

    def _often_fast(self, shape_class: str) -> Iterator[Variant]:
        base = self._base(shape_class)
        seen = set()
        for made in chain(heuristic_variants(self.family, self.spec, shape_class, self._limits), (base,)):
            place = (made.algorithm.name, made.config)
            if place not in seen and made.algorithm.infeasible(made.spec, made.config, self._limits) is None:
                seen.add(place)
                yield made

    def _untuned(self, shape_class: str) -> str:
        why = f"because nothing is tuned for {self.name} ({shape_class}) on {self.device}"
        return f"{why}; gen tune {self.name} would find the fastest"

    def _called(self, made: Variant, shape_class: str) -> str:
        return "base" if made == self._base(shape_class) else "what is often fast"

    def _slow_path_reason(self, made: Variant, extents: Extents, alignment: int) -> str | None:
        return made.algorithm.slow_path_reason(made.spec, made.config, extents, alignment, self._limits)

    def _unsupported_extents(self, made: Variant, extents: Extents) -> str | None:
        return made.algorithm.unsupported_extents(made.spec, made.config, extents, self._limits)

    def _why(self, winner: Winner) -> str:
        why = f"tuned on {winner.device} for {winner.words}"
        if winner.device != self.device:
            why += f", a sibling of {self.device}, on which nothing is"
        median: Any = winner.evidence.get("median_us")
        of_limit: Any = winner.evidence.get("of_limit")
        if is_number(median):
            why += f": median {median:.4g} us"
        measured: Any = winner.evidence.get("extents")
        if is_number(median) and isinstance(measured, dict):
            why += f" at {sizes_in_words(measured, pitches=False)}"
        if is_number(of_limit):
            why += f", {100 * of_limit:.1f} % of the limit"
        driver = winner.evidence.get("driver")
        if self._driver and isinstance(driver, str) and driver != self._driver:
            why += f"; measured under the driver {driver}, and this is {self._driver}"
        stale = self.why_stale(winner)
        return why if stale is None else f"{why}; stale, since {stale}: gen tune --stale measures it again"

    def why_stale(self, winner: Winner) -> str | None:
        """Why a winner should be measured again, in words; None if nothing is known against it, or it is no variant."""
        if winner.key not in self._stale:
            try:
                self._stale[winner.key] = why_stale(winner, self._usable(winner), self._limits, self._text_of)
            except _UNUSABLE:
                self._stale[winner.key] = None
        return self._stale[winner.key]

    def why_unusable(self, winner: Winner) -> str | None:
        """Why a winner's variant is none, in words; None if it is one."""
        try:
            self._usable(winner)
        except _UNUSABLE as error:
            return str(error)
        return None

    def _worth(self, shape_class: str, winner: Winner | None) -> float:
        """Under which part of the estimated time of a class's choice another is taken."""
        if winner is None:  # nothing was measured for this spec; another spec's winner is one guess among others
            return self.family.first_stays(shape_class)
        return LESS_THAN_TUNED if self._trusted(winner) else LESS_THAN_STALE

    def _trusted(self, winner: Winner) -> bool:
        """Whether what was measured decides: on this device, of what is called today."""
        return winner.device == self.device and self.why_stale(winner) is None


def winners_of(home: Path) -> tuple[Winner, ...]:
    """The winners in `home` and those that came with gen; a file that cannot be read is reported and set aside."""
    try:
        return all_winners(home)
    except StoreError as error:
        log.warning("No tuned variant is used: %s", error)
        return ()


def family_and_spec(
    families: Sequence[Family[Any]], spec: Spec | str, home: Path, takes: Takes = SPECS
) -> tuple[Family[Any], Spec]:
    """The spec that is meant, and its family. Raises UnknownNameError if there is none, and says what `takes` does."""
    if isinstance(spec, str):
        name = spec
        return find_known(home, lambda known: find_spec(families, name, known, takes))
    for family in families:
        if family.takes(spec):
            return family, spec
    raise UnknownNameError("The spec", "must be a name, or a spec of one of the families", repr(spec))


def is_number(value: object) -> bool:
    """Whether a value that a file holds is a number that can be shown."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _TOO_LARGE
