"""What tuning does before it measures: emit, compile, prove. Needs no GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from typing import Any, Protocol

from gen.emit.render import render
from gen.errors import CompileError, UnlinkedError
from gen.families.base import Family, Limits, Spec, Variant
from gen.toolchain.compiled import Compiled
from gen.tune.select import feasible
from gen.tune.verdicts import Verdict, with_registers
from gen.waits import result_of


class ManyCompiler(Protocol):
    """Compiles many sources at once; each result as it is finished."""

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        """Takes name and text of each."""
        ...


class Prover(Protocol):
    """Proves many variants; each verdict as it is there."""

    def verdicts(self, variants: Sequence[Variant]) -> Iterator[Verdict]:
        """One for each variant, in any order."""
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

    @property
    def registers(self) -> int:
        """Of one thread, in the kernel that takes most; 0 if it did not compile."""
        return max((used.registers for used in self._resources()), default=0)

    @property
    def spill_bytes(self) -> int:
        """Written to local memory by one thread of each kernel, for want of registers."""
        return sum(used.spill_store_bytes for used in self._resources())

    def _resources(self) -> Iterable[Any]:
        return self.compiled.resources.values() if isinstance(self.compiled, Compiled) else ()


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
    """All variants, in the order they were given, and what a GPU would add."""

    arch: str
    variants: tuple[Rehearsed, ...]
    prospects: tuple[Prospect, ...]

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
    tick: Callable[[str, Variant], None] = lambda _step, _made: None,
) -> Rehearsal:
    """Emits the variants, compiles them for `limits.arch`, and meanwhile proves them on the CPU.

    Args:
        variants: each once.
        limits: of the device that is compiled for.
        compiler: one that needs no GPU.
        prover: one that needs no GPU.
        tick: is told `emitted`, `compiled` or `proven`, and of which variant, after each step, from two threads.

    Raises:
        TemplateError: a template cannot be rendered.
    """
    texts = {}
    for made in variants:
        texts[made.name] = render(made)
        tick("emitted", made)
    by_name = {made.name: made for made in variants}
    stop = Event()

    def compile_all() -> dict[str, Compiled | CompileError]:
        results: dict[str, Compiled | CompileError] = {}
        for result in compiler.compile_many(texts.items(), limits.arch):
            name = result.name if isinstance(result, Compiled) else result.subject
            results[name] = result
            tick("compiled", by_name[name])
            if stop.is_set():
                break
        return results

    pool = ThreadPoolExecutor(1, thread_name_prefix="compile")
    try:
        compiling = pool.submit(compile_all)
        proven = {}
        for verdict in prover.verdicts(variants):
            proven[verdict.variant.name] = verdict
            tick("proven", verdict.variant)
        compiled = result_of(compiling)
    except BaseException:
        stop.set()  # Ctrl-C, a missing compiler: nobody waits for the rest
        raise
    finally:
        pool.shutdown(wait=False)
    return Rehearsal(
        limits.arch,
        tuple(
            Rehearsed(
                made,
                made.algorithm.infeasible(made.spec, made.config, limits),
                compiled[made.name],
                with_registers(proven[made.name], compiled[made.name]),
            )
            for made in variants
        ),
        prospects(variants, limits),
    )


def prospects(variants: Sequence[Variant], limits: Limits) -> tuple[Prospect, ...]:
    """What a GPU would measure of every spec among these variants."""
    specs = {(made.family.name, made.spec): made.family for made in variants}
    return tuple(
        Prospect(family, spec, feasible(family, spec, limits), _limit(family, spec))
        for (_, spec), family in specs.items()
    )


def _limit(family: Family[Any], spec: Spec) -> str:
    """What the family scores its largest case against."""
    sizes = max(family.cases(spec), key=lambda extents: family.work(spec, extents).cells)
    return family.work(spec, sizes).limit
