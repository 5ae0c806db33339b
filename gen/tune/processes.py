"""Proves on all cores: the CPU run takes one launch at a time in a process, so there are several processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread

from gen.emit.render import render
from gen.errors import CompileError, RunError
from gen.families.base import Limits, Variant
from gen.proof.host import HostRunner
from gen.proof.replay import Kept
from gen.tune.verdicts import CHUNK, Verdict, refused, verdicts
from gen.waits import next_of

FEW = 6  # variants that are proven before another process has started


@dataclass(frozen=True)
class Host:
    """The CPU as a place where many variants are proven.

    Attributes:
        limits: of the device it plays.
        cache: where built code is kept; the processes find there what the first of them built.
        seed: of the order of blocks and threads, of what arrays hold, and of sizes.
        kept: cases on which variants have failed before, tried first.
    """

    limits: Limits
    cache: Path
    seed: int = 0
    kept: tuple[Kept, ...] = ()

    def runner(self) -> HostRunner:
        """A runner of this process."""
        return HostRunner(self.limits, cache=self.cache, text=render, seed=self.seed)

    def verdicts(self, variants: Sequence[Variant], deadline: float | None = None) -> Iterator[Verdict]:
        """Proves variants; each verdict comes as soon as it is there, in any order.

        Args:
            variants: best those of one spec next to each other.
            deadline: of `time.monotonic()`; what is not proven by then is left out.

        Raises:
            MissingToolError: there is no g++, or a header is missing.
            RunError: a process ended while it proved.
        """
        workers = min(len(os.sched_getaffinity(0)), len(variants) // FEW)
        if workers < 2 and deadline is None:
            yield from verdicts(self.runner(), variants, seed=self.seed, kept=self.kept)
            return
        # Not forked: this process has threads.
        pool = ProcessPoolExecutor(max(workers, 1), get_context("spawn"), _begin, (self,))
        queue: SimpleQueue[Future[Verdict] | Verdict | BaseException] = SimpleQueue()
        stop = Event()
        Thread(target=self._build, args=(variants, pool, queue, stop), name="build", daemon=True).start()
        left = len(variants)
        try:
            while left:
                try:
                    result = next_of(queue, deadline)
                except Empty:
                    return
                left -= 1
                if isinstance(result, BaseException):
                    raise result
                yield result if isinstance(result, Verdict) else result.result()
        except BrokenProcessPool as error:
            raise RunError(
                "The CPU run", "ended its process", next_step="Prove variants one by one to find which: gen prove NAME"
            ) from error
        finally:
            stop.set()
            begun: list[BaseProcess] = list((pool._processes or {}).values()) if left else []
            pool.shutdown(wait=False, cancel_futures=True)
            for process in begun:  # which would finish what they are at
                process.kill()

    def _build(
        self,
        variants: Sequence[Variant],
        pool: ProcessPoolExecutor,
        queue: SimpleQueue[Future[Verdict] | Verdict | BaseException],
        stop: Event,
    ) -> None:
        """Builds a chunk while the one before it is proven."""
        try:
            runner = self.runner()
            for start in range(0, len(variants), CHUNK):
                chunk = _built(runner, list(variants[start : start + CHUNK]), queue)
                if stop.is_set():
                    return
                # The processes start here and inherit the mask: Ctrl-C finds them ready, or not at all.
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
                for made in chunk:
                    pool.submit(_prove, made).add_done_callback(queue.put)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        except BaseException as error:  # noqa: BLE001  whatever it is, the thread that waits must hear of it
            queue.put(error)


def _built(
    runner: HostRunner, chunk: list[Variant], queue: SimpleQueue[Future[Verdict] | Verdict | BaseException]
) -> list[Variant]:
    """The variants that could be built; the verdicts on the others are in the queue."""
    while True:
        try:
            runner.load([made for made in chunk if runner.cannot_run(made) is None])
        except CompileError as error:
            verdict = refused(chunk, error)
            queue.put(verdict)
            chunk = [made for made in chunk if made != verdict.variant]
        else:
            return chunk


_state: list[Host | HostRunner] = []  # of a worker process


def _begin(host: Host) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends a worker without a word
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _state[:] = [host, host.runner()]


def _prove(made: Variant) -> Verdict:
    host, runner = _state
    assert isinstance(host, Host)
    assert isinstance(runner, HostRunner)
    return next(verdicts(runner, (made,), seed=host.seed, kept=host.kept))
