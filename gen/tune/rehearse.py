"""What tuning does before it measures: emit, compile, prove. Needs no GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

from gen.emit.render import render
from gen.errors import CompileError, RunError, UnlinkedError
from gen.families.base import Extents, Family, Limits, Spec, Variant
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.proof.verdicts import Verdict, with_registers
from gen.toolchain.compiled import Compiled
from gen.toolchain.usage import usage
from gen.tune.predict import Prediction, predict
from gen.tune.targets import feasible
from gen.workers import result_of


class ManyCompiler(Protocol):
    """Compiles many sources at once; each result as it is finished."""

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        """Takes name and text of each."""
        ...


class Prover(Protocol):
    """Proves many variants; each verdict as it is there."""

    def verdicts(self, variants: Sequence[Variant], deadline: float | None = None) -> Iterator[Verdict]:
        """One for each variant, in any order; fewer where the deadline, of `time.monotonic()`, comes first."""
        ...


@dataclass(frozen=True)
class Rehearsed:
    """One variant, compiled and proven.

    Attributes:
        infeasible: why it cannot run on the device it was compiled for; None if it can.
        compiled: its machine code, or why there is none.
        verdict: of its proof on the CPU.
    """

    variant: Variant
    infeasible: str | None
    compiled: Compiled | CompileError
    verdict: Verdict

    @property
    def ok(self) -> bool:
        """Nothing was found wrong."""
        return isinstance(self.compiled, Compiled | UnlinkedError) and self.verdict.status != "failed"


@dataclass(frozen=True)
class Prospect:
    """What a GPU would measure of one spec.

    Attributes:
        feasible: variants that can run on such a device.
        limit: the bandwidth they are scored against: `read`, `copy`, `write`.
    """

    family: Family[Any]
    spec: Spec
    feasible: int
    limit: str


@dataclass(frozen=True)
class Rehearsal:
    """All variants, in the order they were given.

    Attributes:
        left_out: those that the time did not reach.
    """

    arch: str
    variants: tuple[Rehearsed, ...]
    left_out: tuple[Variant, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing was found wrong."""
        return all(one.ok for one in self.variants)


def rehearse(
    variants: Sequence[Variant],
    limits: Limits,
    compiler: ManyCompiler,
    prover: Prover,
    *,
    deadline: float | None = None,
    tick: Callable[[str, Variant], None] = lambda _step, _made: None,
) -> Rehearsal:
    """Emits the variants, compiles them for `limits.arch`, and meanwhile proves them on the CPU.

    Args:
        variants: each once.
        limits: of the device that is compiled for.
        compiler: one that needs no GPU.
        prover: one that needs no GPU.
        deadline: of `time.monotonic()`; what is not compiled and proven by then is left out.
        tick: is told `emitted`, `compiled` or `proven`, and of which variant, after each step, from two threads.

    Raises:
        TemplateError: a template cannot be rendered.
    """
    texts = {}
    for made in variants:
        if _over(deadline):
            break
        texts[made.name] = render(made)
        tick("emitted", made)
    emitted = {made.name: made for made in variants if made.name in texts}
    compiled: dict[str, Compiled | CompileError] = {}
    proven: dict[str, Verdict] = {}
    stop = Event()

    def compile_all() -> None:
        if _over(deadline):  # compilers take a while to start
            return
        for result in compiler.compile_many(texts.items(), limits.arch):
            name = result.name if isinstance(result, Compiled) else result.subject
            compiled[name] = result
            tick("compiled", emitted[name])
            if stop.is_set():
                break

    pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
    try:
        compiling = pool.submit(compile_all)
        for verdict in prover.verdicts(list(emitted.values()), deadline):
            proven[verdict.variant.name] = verdict
            tick("proven", verdict.variant)
            if _over(deadline):
                break
        with suppress(TimeoutError):
            result_of(compiling, deadline)
    finally:  # also on Ctrl-C, or without a compiler: nobody waits for the rest
        stop.set()
        pool.shutdown(wait=False)
    ended = [made for made in variants if made.name in compiled and made.name in proven]
    return Rehearsal(
        limits.arch,
        tuple(
            Rehearsed(
                made,
                made.algorithm.infeasible(made.spec, made.config, limits),
                compiled[made.name],
                with_registers(proven[made.name], compiled[made.name]),
            )
            for made in ended
        ),
        tuple(made for made in variants if made.name not in compiled or made.name not in proven),
    )


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def prospects(
    specs: Iterable[tuple[Family[Any], Spec]], limits: Limits, deadline: float | None = None
) -> tuple[Prospect, ...]:
    """What a GPU would measure of these specs, of as many as the time allows to count."""
    return tuple(
        Prospect(family, spec, feasible(family, spec, limits), _limit(family, spec))
        for family, spec in specs
        if not _over(deadline)
    )


def _limit(family: Family[Any], spec: Spec) -> str:
    """What the family scores its largest case against."""
    sizes = max(family.cases(spec), key=lambda extents: family.work(spec, extents).cells)
    return family.work(spec, sizes).limit


@dataclass(frozen=True)
class Ranking:
    """The variants of one spec at the size that stands for a shape class.

    Attributes:
        spec_name: for instance `reduction_sum_f32`.
        order: each with its prediction, fastest first.
    """

    spec_name: str
    shape_class: str
    extents: Extents
    order: tuple[tuple[Variant, Prediction], ...]


def rank(
    done: Sequence[Rehearsed], runner: HostRunner, limits: Limits, deadline: float | None = None
) -> Iterator[Ranking]:
    """Ranks what a rehearsal found right, at the size that stands for each shape class.

    Args:
        done: variants that were compiled and proven; those that failed or cannot run on the device are left out.
        runner: where they run to be looked at.
        limits: of the device.
        deadline: of `time.monotonic()`; a problem that is not ranked by then is left out.
    """
    right = [one for one in done if one.infeasible is None and one.verdict.status == "proven"]
    runner.load([one.variant for one in right])
    for family, spec in dict.fromkeys((one.variant.family, one.variant.spec) for one in right):
        of_spec = [one for one in right if (one.variant.family, one.variant.spec) == (family, spec)]
        for shape_class in family.shape_classes(spec):
            extents = family.representative(spec, shape_class)
            found: list[tuple[Variant, Prediction]] = []
            for one in of_spec:
                if deadline is not None and time.monotonic() >= deadline:
                    return
                prediction = predicted(one, runner, limits, extents)
                if prediction is not None:
                    found.append((one.variant, prediction))
            order = tuple(sorted(found, key=lambda pair: pair[1].us))
            yield Ranking(family.name_of(spec), shape_class, extents, order)


def predicted(one: Rehearsed, runner: HostRunner, limits: Limits, extents: Extents) -> Prediction | None:
    """How long a variant takes by the counted model; None where it cannot take these sizes, or cannot be counted."""
    made = one.variant
    if not isinstance(one.compiled, Compiled):
        return None
    if made.algorithm.unsupported_extents(made.spec, made.config, extents, limits) is not None:
        return None
    (kernel,) = runner.load([made])
    try:
        moved = traffic(kernel, limits, extents)
    except RunError:  # it cannot be run in part: blocks that wait for each other
        return None
    return predict(made, moved, usage(made, one.compiled, limits, extents), limits, extents)
