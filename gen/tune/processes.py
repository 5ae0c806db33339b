"""Proves on all cores: the CPU run takes one launch at a time in a process, so there are several processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from gen.emit.kernel_file import KernelFile
from gen.emit.render import render
from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.proof.failures import Kept
from gen.proof.host import HostRunner
from gen.tune.verdicts import CHUNK, Verdict, refused, verdicts
from gen.workers import Ended, Report, Workers, next_of

FEW = 6  # variants that are proven before another process has started
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
        count = min(len(os.sched_getaffinity(0)), len(variants) // FEW)
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
            for start in range(0, len(variants), CHUNK):
                for made in _built(runner, list(variants[start : start + CHUNK]), found):
                    workers.submit(_prove, made, ended=partial(_ended, made)).add_done_callback(found.put)
        except BaseException as error:  # noqa: BLE001  whatever it is, the thread that waits must hear of it
            failed.set_exception(error)
            found.put(failed)


def _built(runner: HostRunner, chunk: list[Variant], found: SimpleQueue[Future[Verdict]]) -> list[Variant]:
    """The variants that could be built; the verdicts on the others are in the queue."""
    while True:
        try:
            runner.load([made for made in chunk if runner.cannot_run(made) is None])
        except CompileError as error:
            verdict = refused(chunk, error)
            done: Future[Verdict] = Future()
            done.set_result(verdict)
            found.put(done)
            chunk = [made for made in chunk if made != verdict.variant]
        else:
            return chunk


def _begin(host: Host, _: Report) -> tuple[Host, HostRunner]:
    return host, host.runner()


def _prove(state: tuple[Host, HostRunner], made: Variant) -> Verdict:
    host, runner = state
    return next(verdicts(runner, (made,), seed=host.seed, kept=host.kept))


def _ended(made: Variant, how: Ended) -> Verdict:
    if how.how == "killed":
        raise RunError(made.name, "cannot be proven on the CPU", how.reason)
    return Verdict(made, "failed", 0, f"On the CPU, {how.reason}.", "crash")
