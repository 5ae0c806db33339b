"""Processes that are forked from a clean one, which has imported what they all need.

Not from this process: it has threads, and a GPU may be in use in it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from gen.errors import RunError

# Imported before anything is forked, where it is installed; none of it starts a thread.
PRELOADED = ["numpy", "cuda.core", "gen.families", "gen.gpu.worker", "gen.toolchain.compiled", "gen.store.trials"]


def fork(target: Callable[..., None], *arguments: Any, name: str) -> tuple[BaseProcess, Connection]:
    """Starts a process, and gives our end of a pipe; `target` is called with the other end and the arguments.

    Ctrl-C does not reach it: whoever started it ends it. Its end of the pipe closes when this process ends.

    Raises RunError where the system has no room for one more.
    """
    try:
        return _fork(target, *arguments, name=name)
    except (OSError, EOFError) as error:  # on a thread of ours nobody else would hear of it
        raise RunError(
            f"A process ({name})", "cannot be started", error, next_step="End others and try again"
        ) from error


def _fork(target: Callable[..., None], *arguments: Any, name: str) -> tuple[BaseProcess, Connection]:
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # which it inherits, if it starts now
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ours, theirs = context.Pipe()
    process = context.Process(target=_begin, args=(target, theirs, *arguments), name=name, daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _begin(target: Callable[..., None], pipe: Connection, *arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(BrokenPipeError):
        target(pipe, *arguments)
