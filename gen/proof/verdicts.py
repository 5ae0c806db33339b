"""Proves many variants, and goes on where one of them cannot even be built."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Literal, Protocol

from gen.emit.kernel_file import KernelFile
from gen.emit.render import render
from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.proof.cases import Case, cases_of, edge_cases
from gen.proof.failures import REFUSED, UNTRIED, Failure, Kept, cases_for
from gen.proof.host import HostRunner
from gen.proof.launch_checks import check_registers
from gen.proof.prover import AdjustableRunner, Proof, prove
from gen.proof.sampled import far_cases, sampled_cases
from gen.toolchain.compiled import Compiled
from gen.workers import Ended, Report, Workers, next_of

Status = Literal["proven", "failed", "skipped"]
VARIANTS_PER_BUILD = 40  # built together: two translation units, so that two cores have work and progress shows


@dataclass(frozen=True)
class Verdict:
    """What a proof came to.

    Attributes:
        variant: whose text was proven.
        cases: on how many problems the variant was right.
        reason: why it failed or was skipped, with the case; empty if it was proven.
        kind: what found it, if it failed: a kind of `Failure`, `compile error`, or `no case`.
        failure: what a case found, on the smallest problem that fails alike; None if none did.
        path: the file that the text was read from; None where it was written for the proof.
    """

    variant: Variant
    status: Status
    cases: int
    reason: str = ""
    kind: str = ""
    failure: Failure | None = None
    path: Path | None = None

    @property
    def called(self) -> str:
        """What was proven, by name: the file, or the variant."""
        return self.variant.name if self.path is None else str(self.path)


class KeepingRunner(AdjustableRunner, Protocol):
    """A runner that says where the text of a variant can be read."""

    def keep(self, variant: Variant) -> Path:
        """The file that holds it; written if there is none."""
        ...


def verdicts(
    runner: KeepingRunner, variants: Sequence[Variant], *, seed: int = 0, kept: Sequence[Kept] = ()
) -> Iterator[Verdict]:
    """Proves variants on the cases of their families and on their edge cases; first on those that were kept.

    One that g++ refuses has failed, and comes out before those it was to be built with. One that takes none of the
    cases has failed too: nothing is known of it.

    Args:
        runner: where they run.
        variants: best those of one spec next to each other.
        seed: of what the arrays hold and of the sizes that are drawn.
        kept: cases on which a variant has failed before.
    """
    for _, group in groupby(variants, key=lambda made: (made.family.name, made.spec)):
        yield from _of_one_spec(runner, tuple(group), seed, kept)


def refused(variants: Sequence[Variant], error: CompileError) -> Verdict:
    """The verdict on the variant that a compiler refused. Raises `error` if it is the fault of none of them."""
    for made in variants:
        if made.name == error.subject:
            return Verdict(made, "failed", 0, str(error), "compile error")
    raise error


def with_registers(verdict: Verdict, compiled: Compiled | CompileError | None) -> Verdict:
    """The verdict, or that a GPU would refuse a launch, if what the GPU's compiler says is known and says so."""
    made = verdict.variant
    if verdict.status == "failed" or not isinstance(compiled, Compiled):
        return verdict
    try:
        for launch in made.plan.launches:
            used = compiled.resources.get(made.name + launch.entry)
            if used is not None:
                check_registers(made.name + launch.entry, launch.block, used.registers)
    except RunError as error:
        return replace(verdict, status="failed", reason=f"{REFUSED}: {error}", kind=REFUSED)
    return verdict


def _of_one_spec(
    runner: KeepingRunner, variants: Sequence[Variant], seed: int, kept: Sequence[Kept]
) -> Iterator[Verdict]:
    family, spec = variants[0].family, variants[0].spec
    first = (*cases_for(kept, variants[0]), *cases_of(family, spec, seed))
    last = (*sampled_cases(family, spec, seed), *far_cases(family, spec, seed))

    def cases(made: Variant) -> Sequence[Case]:
        return (*first, *edge_cases(made, seed), *last)

    for start in range(0, len(variants), VARIANTS_PER_BUILD):
        built, refusals = _built(runner, variants[start : start + VARIANTS_PER_BUILD])
        yield from refusals
        for proof in prove(runner, built, cases, shrink=True):
            yield _verdict(runner, proof)


def _built(runner: KeepingRunner, variants: Sequence[Variant]) -> tuple[Sequence[Variant], list[Verdict]]:
    """The variants that could be built together, or need not be, and the verdicts on the others."""
    refusals: list[Verdict] = []
    while True:
        try:
            runner.load([made for made in variants if runner.cannot_run(made) is None])
        except CompileError as error:
            refusals.append(refused(variants, error))
            variants = [made for made in variants if made != refusals[-1].variant]
        else:
            return variants, refusals


def _verdict(runner: KeepingRunner, proof: Proof) -> Verdict:
    if proof.failure is not None:
        failure = proof.failure
        reason = f"{failure}\n  in the text of {runner.keep(proof.variant)}"
        return Verdict(proof.variant, "failed", proof.cases, reason, failure.kind, failure)
    if proof.skipped is not None:
        return Verdict(proof.variant, "skipped", 0, proof.skipped)
    if proof.untried is not None:
        reason = (
            f"{proof.variant.name} takes none of the problems that it was to be proven on: {proof.untried}. "
            "Algorithm.edge_cases must name sizes that it takes"
        )
        return Verdict(proof.variant, "failed", proof.cases, reason, UNTRIED)
    return Verdict(proof.variant, "proven", proof.cases)


VARIANTS_PER_PROCESS = 6  # variants that are proven before another process has started
Provers = Workers[tuple["Host", HostRunner]]


@dataclass(frozen=True)
class Host:
    """The CPU as a place where many variants are proven.

    Attributes:
        limits: of the device it plays.
        cache: where built code is kept; the processes find there what the first of them built.
        seed: of the order of blocks and threads, of what arrays hold, and of sizes.
        kept: cases on which variants have failed before, tried first.
        files: texts to be proven as they stand, one of a variant; of other variants what gen writes for them is.
    """

    limits: Limits
    cache: Path
    seed: int = 0
    kept: tuple[Kept, ...] = ()
    files: tuple[KernelFile, ...] = ()

    def runner(self) -> HostRunner:
        """A runner of this process."""
        files = {file.variant.name: file for file in self.files}

        def text(variant: Variant) -> str:
            return files[variant.name].text if variant.name in files else render(variant)

        paths = {name: file.path for name, file in files.items()}
        return HostRunner(self.limits, cache=self.cache, text=text, seed=self.seed, paths=paths)

    def verdicts(self, variants: Sequence[Variant], deadline: float | None = None) -> Iterator[Verdict]:
        """Proves variants; each verdict comes as soon as it is there, in any order.

        Args:
            variants: best those of one spec next to each other.
            deadline: of `time.monotonic()`; what is not proven by then is left out.

        Raises:
            MissingToolError: there is no g++, or a header is missing.
            RunError: somebody else ended a process, twice.
        """
        count = min(len(os.sched_getaffinity(0)), len(variants) // VARIANTS_PER_PROCESS)
        if count < 2 and deadline is None:
            yield from verdicts(self.runner(), variants, seed=self.seed, kept=self.kept)
            return
        found: SimpleQueue[Future[Verdict]] = SimpleQueue()
        with Workers(partial(_begin, self), doing="proves", count=max(count, 1), ahead=1) as workers:
            Thread(target=self._build, args=(variants, workers, found), name="build", daemon=True).start()
            for _ in variants:
                try:
                    proven = next_of(found, deadline)
                except Empty:
                    return
                yield proven.result()

    def _build(self, variants: Sequence[Variant], workers: Provers, found: SimpleQueue[Future[Verdict]]) -> None:
        """Builds a chunk while the one before it is proven."""
        failed: Future[Verdict] = Future()
        try:
            runner = self.runner()
            for start in range(0, len(variants), VARIANTS_PER_BUILD):
                built, refusals = _built(runner, variants[start : start + VARIANTS_PER_BUILD])
                for verdict in refusals:
                    found.put(_done(verdict))
                for made in built:
                    workers.submit(_prove, made, ended=partial(_ended, made)).add_done_callback(found.put)
        except BaseException as error:  # noqa: BLE001  whatever it is, the thread that waits must hear of it
            failed.set_exception(error)
            found.put(failed)


def _done(verdict: Verdict) -> Future[Verdict]:
    done: Future[Verdict] = Future()
    done.set_result(verdict)
    return done


def _begin(host: Host, _: Report) -> tuple[Host, HostRunner]:
    return host, host.runner()


def _prove(state: tuple[Host, HostRunner], made: Variant) -> Verdict:
    host, runner = state
    return next(verdicts(runner, (made,), seed=host.seed, kept=host.kept))


def _ended(made: Variant, how: Ended) -> Verdict:
    if how.how == "killed":
        raise RunError(made.name, "cannot be proven on the CPU", how.reason)
    return Verdict(made, "failed", 0, f"On the CPU, {how.reason}.", "crash")
