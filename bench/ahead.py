"""torch.compile before its turn: other processes compile on the CPU while one alone times on the GPU.

What they compile and choose is kept in torch's caches, where the process that times finds it. They try kernels on the
GPU too, to choose among them: then, and while kernels are timed, a process holds a file's lock.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any

from gen.compare.case import ComparisonCase, Shape, number_type
from gen.compare.gpu import lying
from gen.compare.peers.base import NotOfferedError, SharedArray, module
from gen.compare.process import keep_compiled_in, print_to, show_only
from gen.compare.row import said
from gen.dtypes import DType

WINDOW = 3  # cases that each process is ahead, at most
THREADS = "1"  # with which torch compiles in each process: there are as many of these as cores allow
LONGEST_SECONDS = 60  # that one case may take; it may keep the turn that others wait for
_LOCK = "turn.lock"


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Keeps all others that ask from running kernels on the GPU."""
    with (folder / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _CompiledError(Exception):
    """What had to be compiled is."""


class _LateError(Exception):
    """A case took too long."""


def _end_late(*_: object) -> None:
    raise _LateError(f"not compiled after {LONGEST_SECONDS} s")


class _Gpu:
    """Memory of torch, for what is compiled and not looked at."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def array(self, shape: Shape, element: DType) -> SharedArray:
        """New memory."""
        return self.lying(lying(shape, element, 0), 0)

    def copy(self, source: SharedArray) -> SharedArray:
        """New memory for as much."""
        return self.array(source.shape, source.element)

    def lying(self, view: SharedArray, offset: int) -> SharedArray:
        """New memory for such an array."""
        start = offset * view.element.size
        memory = self._torch.zeros(max(start + view.nbytes, 1), dtype=self._torch.uint8, device="cuda")
        return SharedArray(memory.data_ptr() + start, view.shape, view.element, memory, view.strides)

    def graph(self, _: Callable[[int], None]) -> Any:
        """Many steps need no more than one."""
        raise _CompiledError


def compile_case(case: ComparisonCase) -> str:
    """A job of such a process: says why a case is not compiled; empty if it is."""
    from gen.compare.peers.torch import TorchCompile

    if _unready:
        return _unready
    torch = module("torch")
    gpu: Any = _Gpu(torch)
    signal.signal(signal.SIGALRM, _end_late)
    signal.alarm(LONGEST_SECONDS)
    try:
        source = gpu.lying(lying(case.shape, number_type(case.inputs[0].dtype), case.gap), case.offset)
        TorchCompile().prepare(case, source, gpu)
    except _CompiledError:
        return ""
    except NotOfferedError:  # which the process that times says too
        return ""
    except Exception as error:  # noqa: BLE001  a library may raise anything
        return said(error) or type(error).__name__
    finally:
        signal.alarm(0)
        torch.cuda.empty_cache()
    return ""


def begin(folder: Path, gpu: int) -> None:
    """Makes a process ready: with the caches of all, and with turns where torch times kernels."""
    keep_compiled_in(folder, os.environ)
    show_only(gpu, os.environ)
    print_to(folder / "ahead.log")
    global _unready  # noqa: PLW0603  a pool would start a process that raises here anew, without end
    try:
        benchmarker = module("torch._inductor.runtime.benchmarking").benchmarker
    except Exception as error:  # noqa: BLE001  another version of torch may have it elsewhere
        _unready = f"torch takes no turns: {error}"
        return
    for name in ("benchmark", "benchmark_gpu"):
        method = getattr(benchmarker, name, None)
        if method is not None:
            setattr(benchmarker, name, _in_turn(method, folder))


_depth = 0  # of turns in this process
_unready = ""  # why this process compiles nothing


def _in_turn(method: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """The same in a turn of its own; what it calls is part of it."""

    def called(*arguments: Any, **options: Any) -> Any:
        global _depth  # noqa: PLW0603  one thread of a process times kernels
        if _depth:
            return method(*arguments, **options)
        with turn(folder):
            _depth += 1
            try:
                return method(*arguments, **options)
            finally:
                _depth -= 1

    return called


class Ahead:
    """Processes that compile cases in the order in which they are announced."""

    def __init__(self, folder: Path, gpu: int, processes: int) -> None:
        """Starts them; none if there shall be none, and then nothing is waited for."""
        self._pool: Any = None
        self._window = processes * WINDOW
        self._results: dict[str, AsyncResult[str]] = {}
        if processes:
            os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = THREADS  # all keys of caches must be the same
            spawned = multiprocessing.get_context("spawn")
            self._pool = spawned.Pool(processes, begin, (folder, gpu))

    def announce(self, cases: Sequence[ComparisonCase]) -> None:
        """Says which cases come next: the first of them are begun."""
        if self._pool is not None:
            for case in cases[: self._window]:
                if case.name not in self._results:
                    self._results[case.name] = self._pool.apply_async(compile_case, (case,))

    def is_ready(self, case: ComparisonCase) -> bool:
        """Whether nothing of a case is waited for."""
        return self._pool is None or (case.name in self._results and self._results[case.name].ready())

    def wait(self, case: ComparisonCase, seconds: float) -> str:
        """Waits for a case, so long at most; says why it is not compiled, empty if it is or nobody was to."""
        if self._pool is None:
            return ""
        start = time.monotonic()
        try:
            return self._results.pop(case.name).get(seconds)
        except multiprocessing.TimeoutError:
            return f"not compiled after {time.monotonic() - start:.0f} s more"

    def close(self) -> None:
        """Ends them, whatever they are at."""
        if self._pool is not None:
            self._pool.terminate()
            self._pool.join()
