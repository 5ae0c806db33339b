"""Compiling in processes: as many at once as there are cores.

Sixteen threads of one process compile little faster than eight: NVRTC asks the system for memory and gives it back all
the time, and the threads of a process wait for each other there. Processes do not, and those here keep what they have.
A compiler that crashes, or finds no end, takes one source with it. And NVRTC takes Ctrl-C for itself while it compiles:
in a process of its own it takes nobody's.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from functools import partial
from pathlib import Path
from typing import Protocol

from gen.errors import CompileError
from gen.toolchain.compiled import Compiled, Compiler
from gen.workers import Ended, Report, Workers

SOURCE_SECONDS = 120.0  # seconds for one source
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3  # as malloc.h numbers them
_KEPT_BYTES = 1 << 30  # bytes that malloc keeps before it gives any back
_REQUEST_BYTES = 1 << 26  # bytes that it asks for at once


class Farm(Protocol):
    """Where many sources are compiled at once.

    Attributes:
        version, options: the compiler's: all that can change its output but the architecture.
        width: how many it compiles at once.
    """

    version: str
    options: str
    width: int

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        """Begins to compile a source; the future may hold its CompileError."""
        ...


class CompileFarm:
    """A compiler on all cores; implements `Farm`.

    Attributes:
        version, options: the compiler's.
        width: how many it compiles at once.
    """

    def __init__(self, compiler: Compiler, *, width: int | None = None, longest: float = SOURCE_SECONDS) -> None:
        """Starts nothing before something is to be compiled.

        Args:
            compiler: can be pickled.
            width: processes; as many as there are cores if None.
            longest: seconds that one source may take.
        """
        self.version, self.options = compiler.version, compiler.options
        self.width = width or len(os.sched_getaffinity(0))
        self._workers = Workers(partial(_begin, compiler), doing="compiles", count=self.width, seconds=longest)

    def submit(self, name: str, text: str, arch: str) -> Future[Compiled]:
        """Begins to compile a source; the future may hold its CompileError."""

        def ended(how: Ended) -> Compiled:
            raise CompileError(name, f"No result: {how.reason}.", Path(f"{name}.cu"))

        return self._workers.submit(_compile, name, text, arch, ended=ended)

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        """Compiles many sources; each result as it is finished: what was compiled, or why it was not."""
        futures = [self.submit(name, text, arch) for name, text in items]
        try:
            for future in as_completed(futures):
                try:
                    yield future.result()
                except CompileError as error:
                    yield error
        finally:  # the caller stopped listening
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Ends all processes, whatever they are at."""
        self._workers.close()

    def __enter__(self) -> CompileFarm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begin(compiler: Compiler, _: Report) -> Compiler:
    """Lets malloc keep what it has: a compilation touches the same megabytes as the one before it."""
    malloc = ctypes.CDLL(None)
    settings: Sequence[tuple[int, int]] = (
        (_M_TRIM_THRESHOLD, _KEPT_BYTES), (_M_MMAP_THRESHOLD, _KEPT_BYTES), (_M_TOP_PAD, _REQUEST_BYTES)
    )  # fmt: skip
    for option, value in settings:
        if hasattr(malloc, "mallopt"):  # glibc's
            malloc.mallopt(option, value)
    return compiler


def _compile(compiler: Compiler, name: str, text: str, arch: str) -> Compiled:
    return compiler.compile(name, text, arch)
