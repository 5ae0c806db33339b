"""The pipeline of one problem: a search gives variants, all cores compile them, the device tries what is compiled.

Nothing waits for anything else: while the device times one variant, it has the next, and the compilers have twice as
many sources as there are cores. Every trial is recorded the moment it ends.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

from gen.emit.render import render
from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.families.plans import TIME
from gen.store.trials import Problem, Setting, Status, Trial, Trials
from gen.toolchain.compiled import Compiled, code_digest
from gen.toolchain.farm import Farm
from gen.tune.device import Entrant, Session, TuningDevice
from gen.tune.prune import Pruning
from gen.tune.search import Search, Space, known


def identity(entrant: Entrant, problem: Problem, limits: Limits) -> str:
    """What is the same for two variants exactly if they do the same: machine code and evaluated plan."""
    sizes = {**problem.extents, **limits.sizes()}
    plan = entrant.variant.plan
    first, second = {**sizes, TIME.name: 0}, {**sizes, TIME.name: 1}
    launches = [
        (
            launch.entry, [extent.at(sizes) for extent in launch.grid], launch.block, launch.shared_bytes.at(sizes),
            [
                one if isinstance(one, str) else (one[0].name, one[1].at(first), one[1].at(second))
                for one in launch.arguments
            ],
            launch.cluster, launch.times.at(sizes), launch.follows, launch.swap, launch.setup, launch.cooperative,
        )
        for launch in plan.launches
    ]  # fmt: skip
    scratch = [(one.name, one.bytes.at(sizes), one.zeroed) for one in plan.scratch]
    code = code_digest(entrant.compiled.cubin, entrant.compiled.name)
    return repr((code, launches, scratch, plan.constants))


MAX_KEPT_SOURCES = 4096  # texts, and compiled sources, kept for other problems and for variants of the same code
_COMMENT = re.compile(r"//[^\n]*")


@dataclass
class Source:
    """A text that is being compiled, and the variants that wait for it."""

    future: Future[Compiled]
    variants: list[Variant] = field(default_factory=list)


class Sources:
    """The search spaces, texts and compilations of a run.

    Texts that differ only in comments and in the kernel's name are compiled once: variants that differ only in their
    plan share their machine code.
    """

    def __init__(self, farm: Farm, arch: str, text: Callable[[Variant], str] = render) -> None:
        """Begins nothing.

        Args:
            farm: compiles.
            arch: `sm_90`.
            text: gives the text of a variant.
        """
        self.width = farm.width
        self._farm, self._arch, self._make = farm, arch, text
        self._spaces: list[Space] = []
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._to_come: Iterator[Variant | None] = iter(())
        self._found: OrderedDict[str, Source] = OrderedDict()  # by what is left without names and comments
        self._ahead: list[Future[Compiled]] = []

    def space(self, problem: Problem, *, complete: bool = False) -> Space:
        """The search space of a problem's spec: one object for all problems of it. `complete`: see `Space`."""
        found = Space(problem.family, problem.spec, complete)
        if found not in self._spaces:
            self._spaces.append(found)
        return self._spaces[self._spaces.index(found)]

    def text(self, variant: Variant) -> str:
        """The text of a variant."""
        text = self._texts.get(variant.name)
        if text is None:
            text = self._texts[variant.name] = self._make(variant)
            if len(self._texts) > MAX_KEPT_SOURCES:
                self._texts.popitem(last=False)
        return text

    def begin(self, variant: Variant) -> Source:
        """The compilation of a variant."""
        text = self.text(variant)
        core = _COMMENT.sub("", text).replace(variant.name, "")
        source = self._found.get(core)
        if source is None or source.future.cancelled():
            source = self._found[core] = Source(self._farm.submit(variant.name, text, self._arch))
            if len(self._found) > MAX_KEPT_SOURCES and next(iter(self._found.values())).future.done():
                self._found.popitem(last=False)
        return source

    def codes(
        self, variants: Iterable[Variant], deadline: float | None = None
    ) -> Iterator[tuple[Variant, Compiled | CompileError]]:
        """The machine code of variants, or their CompileErrors; without those not compiled at the deadline."""
        for variant, source in [(one, self.begin(one)) for one in variants]:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            try:
                yield variant, source.future.result(left)
            except CompileError as error:
                yield variant, error
            except (TimeoutError, CancelledError):  # cancelled for another of the same code
                source.future.cancel()

    def plan_ahead(self, to_come: Iterable[Variant | None]) -> None:
        """Notes the variants that will be asked for later, in order; None stands for one that needs no compilation."""
        self._to_come = iter(to_come)

    def compile_ahead(self, most: int) -> bool:
        """Begins to compile the next variant that will be asked for later.

        False if `most` of them are being compiled, or there are no more.
        """
        self._ahead = [future for future in self._ahead if not future.done()]
        if len(self._ahead) >= most:
            return False
        try:
            variant = next(self._to_come)
        except StopIteration:
            return False
        if variant is not None:
            self._ahead.append(self.begin(variant).future)
        return True


GIVE_UP_RATIO = 2.0  # of samples over the best time so far, beyond which an attempt ends
MAX_QUEUED_ATTEMPTS = 3  # that a device has or waits for
FIRST_RECORDED_TRIALS = 32  # of earlier runs, the fastest, which a search is told before it chooses
MAX_READY_VARIANTS = 256  # that are compiled and wait for the device
RETRIED_STATUSES: tuple[Status, ...] = ("infeasible", "pruned")  # what it was under another rule


def why_unable(variant: Variant, problem: Problem, limits: Limits) -> str | None:
    """Why a variant cannot run on a device or at the problem's sizes; None if it can."""
    algorithm, spec, config = variant.algorithm, variant.spec, variant.config
    return algorithm.infeasible(spec, config, limits) or algorithm.unsupported_extents(
        spec, config, problem.extents, limits
    )


class Attempts:
    """The trials of a problem so far, and the pipeline that tries more variants.

    Attributes:
        done: every trial, by the variant's name.
        best_us: the least median of variants whose times are all that a caller waits for.
    """

    def __init__(
        self, problem: Problem, device: TuningDevice, sources: Sources, store: Trials, setting: Setting,
        pruning: Pruning, search: Search, tick: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self.done: dict[str, Trial] = {}
        self.best_us = float("inf")
        self._problem, self._device, self._sources, self._store = problem, device, sources, store
        self._setting, self._pruning, self._search, self._tick = setting, pruning, search, tick
        self._asked: set[str] = set()
        recorded = (name for name in store.names(setting, problem) if name not in self._asked)  # by then
        self._recorded = known(problem, recorded)  # in earlier runs, and not looked at
        self._more = True  # the search may give more
        self._given: deque[Variant] = deque()  # by the search, and not looked at
        self._left = 0  # how many the search may give yet
        self._compiling: dict[Future[Any], Source] = {}
        self._ready: deque[Entrant] = deque()
        self._trying: dict[Future[Any], Entrant] = {}
        self._ended: SimpleQueue[Future[Any]] = SimpleQueue()  # compilations and attempts
        self._first: dict[str, str] = {}  # of each machine code with its plan, the variant that is tried
        self._twins: dict[str, list[Entrant]] = {}  # those that wait for what becomes of it

    def screen(self, variant: Variant) -> bool:
        """Whether a variant is to be tried. False if it cannot run, or has a trial already; `done` has it then."""
        reason = why_unable(variant, self._problem, self._device.limits)
        if reason is not None:
            self._record(Trial(variant, "infeasible", reason=reason))
            return False
        return not self._recall(variant)

    def run(
        self, session: Session, base: Entrant, *, deadline: float | None = None, enough_us: float = 0.0
    ) -> int:  # fmt: skip
        """Tries base, and then the variants that the search gives. Returns about how many of these were not tried.

        Args:
            session: where.
            base: tried first, whatever the deadline, if it was not tried before.
            deadline: of `time.monotonic()`; what is not begun by then is left out.
            enough_us: a variant that is as fast ends it.

        Raises:
            RunError: base is wrong.
        """
        self._asked.add(base.name)
        self._first[identity(base, self._problem, self._device.limits)] = base.name
        if self.screen(base.variant):
            self._submit(session, base)
        for _ in range(FIRST_RECORDED_TRIALS):  # whatever the deadline: it may be the best so far
            self._remember()
        opening = session.ready()
        opening.add_done_callback(self._ended.put)
        try:
            self._loop(session, opening, deadline, enough_us)
        except KeyboardInterrupt:
            with suppress(RunError):
                for future in [one for one in self._trying if one.done()]:  # what has ended is recorded all the same
                    self._finish(future)
            raise
        opening.result()
        return self._unseen() + len(self._asked - self.done.keys())

    def _loop(self, session: Session, opening: Future[None], deadline: float | None, enough_us: float) -> None:
        over = False
        while True:
            if opening.done():
                opening.result()
            over = over or self.best_us <= enough_us or (deadline is not None and time.monotonic() >= deadline)
            if over:
                self._drop()
            while self._ready and len(self._trying) < MAX_QUEUED_ATTEMPTS * self._device.width:
                self._submit(session, self._ready.popleft())
            idle = over or not self._go_on()
            if idle and not self._compiling and not self._trying:
                break
            left = None if deadline is None or over else max(deadline - time.monotonic(), 0)
            self._collect(left if idle else 0)

    def fail(self, trial: Trial) -> None:
        """Records that a variant which was right before is not."""
        self._record(trial)

    def base(self, variant: Variant) -> Entrant:
        """Base with its code. Raises CompileError if it does not compile."""
        return Entrant(variant, self._sources.begin(variant).future.result())

    def compiled(self, variants: Iterable[Variant], deadline: float | None) -> Iterator[Entrant]:
        """Variants with their machine code, compiled once more where it is not kept.

        Without variants that do not compile now, and without those that are not compiled at the deadline.
        """
        for variant, code in self._sources.codes(variants, deadline):
            if isinstance(code, CompileError):
                self.fail(Trial(variant, "compile_failed", reason=code.log))
            else:
                yield Entrant(variant, code)

    def _go_on(self) -> bool:
        """Does the next small piece of work that keeps the compilers busy; False if they are busy, or there is none.

        It is small, so that a trial that ends meanwhile is recorded, and the device gets its next, within milliseconds.
        """
        if not self._more:  # no compiler is to wait while the device catches up
            return self._sources.compile_ahead(2 * self._sources.width) or self._remember()
        room = 2 * self._sources.width - len(self._compiling)
        if room <= 0 or len(self._ready) >= MAX_READY_VARIANTS:
            return self._remember()
        if not self._given:
            self._given.extend(self._search.ask(room))
            self._more = bool(self._given)
            self._left = self._unseen()
            return True
        variant = self._given.popleft()
        if variant.name not in self._asked:
            self._asked.add(variant.name)
            self._consider(variant)
        return True

    def _remember(self) -> bool:
        """Takes the next trial of an earlier run into account; False if there are no more."""
        variant = next(self._recorded, None)
        if variant is None:
            return False
        if why_unable(variant, self._problem, self._device.limits) is None:
            self._recall(variant)
        return True

    def _recall(self, variant: Variant) -> bool:
        """Takes the recorded trial of a variant into account; False if there is none, or it is to be made again."""
        found = self._store.find(self._setting, self._problem, self._sources.text(variant), variant)
        if found is None or found.status in RETRIED_STATUSES:
            return False
        self._asked.add(variant.name)
        self._know(found)
        return True

    def _unseen(self) -> int:
        """About how many variants the search has not given, or were not considered."""
        return self._search.left + len(self._given)

    def _collect(self, seconds: float | None) -> None:
        """Deals with compilations and attempts that have ended; waits for the first at most so many seconds."""
        try:
            future = self._ended.get(timeout=seconds) if seconds is None or seconds > 0 else self._ended.get_nowait()
            while True:
                self._finish(future)
                future = self._ended.get_nowait()
        except Empty:
            pass

    def _consider(self, variant: Variant) -> None:
        if not self.screen(variant):
            return
        reason = self._pruning.before_compiling(variant)
        if reason is not None:
            self._record(Trial(variant, "pruned", reason=reason))
            return
        source = self._sources.begin(variant)
        if source.future.done():
            self._arrive(variant, source.future)
        else:
            source.variants.append(variant)
            if source.future not in self._compiling:
                self._compiling[source.future] = source
                source.future.add_done_callback(self._ended.put)

    def _arrive(self, variant: Variant, future: Future[Compiled]) -> None:
        """Goes on with a variant whose compilation has ended."""
        try:
            entrant = Entrant(variant, future.result())
        except CompileError as error:
            self._record(Trial(variant, "compile_failed", reason=error.log))
            return
        reason = self._pruning.before_timing(entrant)
        if reason is not None:
            self._record(entrant.untimed("pruned", reason))
            return
        digest = identity(entrant, self._problem, self._device.limits)
        first = self._first.setdefault(digest, variant.name)
        if first == variant.name:
            self._ready.append(entrant)
        elif first in self.done:
            self._copy(entrant, self.done[first])
        else:
            self._twins.setdefault(first, []).append(entrant)

    def _submit(self, session: Session, entrant: Entrant) -> None:
        future = session.submit(entrant, GIVE_UP_RATIO * self.best_us)
        self._trying[future] = entrant
        future.add_done_callback(self._ended.put)

    def _finish(self, future: Future[Any]) -> None:
        """Goes on after a compilation, or records the trial of an attempt."""
        source = self._compiling.pop(future, None)
        if source is not None:
            variants, source.variants = source.variants, []
            for variant in variants:
                self._arrive(variant, source.future)
            return
        entrant = self._trying.pop(future, None)
        if entrant is not None:
            trial = replace(future.result(), compile_ms=entrant.compiled.compile_ms)
            self._record(trial)
            for twin in self._twins.pop(entrant.name, ()):
                self._copy(twin, trial)

    def _copy(self, entrant: Entrant, trial: Trial) -> None:
        compile_ms = entrant.compiled.compile_ms
        self._record(replace(trial, variant=entrant.variant, same_as=trial.variant.name, compile_ms=compile_ms))

    def _record(self, trial: Trial) -> None:
        if not trial.outside:  # else the next run tries it
            self._store.record(self._setting, self._problem, self._sources.text(trial.variant), trial)
        self._know(trial)

    def _know(self, trial: Trial) -> None:
        self.done[trial.variant.name] = trial
        self._search.tell(trial)
        if trial.is_full_time:  # what only seems fast must neither end the search nor cut the others short
            self.best_us = min(self.best_us, trial.median_us)
        self._tick(len(self.done), len(self._asked) + self._left)

    def _drop(self) -> None:
        """Gives up variants whose attempt has not begun."""
        for future, source in self._compiling.items():
            future.cancel()
            source.variants.clear()
        self._compiling.clear()
        self._ready.clear()
