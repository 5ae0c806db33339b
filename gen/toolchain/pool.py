"""Many compilations at once, each result as it is finished."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from gen.errors import CompileError
from gen.toolchain.compiled import Compiled

Compile = Callable[[str, str, str], Compiled]


def compile_in_threads(
    compile_one: Compile, items: Iterable[tuple[str, str]], arch: str, *, workers: int | None = None
) -> Iterator[Compiled | CompileError]:
    """Compiles many sources, in threads that go on while the caller uses a result.

    Args:
        compile_one: takes name, text and architecture; gives the GIL back while it works.
        items: name and text of each; taken as they are needed.
        arch: `sm_90`.
        workers: threads; as many as there are cores if None.

    Yields:
        Each result as it is finished: what was compiled, or why it was not.
    """

    def attempt(name: str, text: str) -> Compiled | CompileError:
        try:
            return compile_one(name, text, arch)
        except CompileError as error:
            return error

    workers = workers or len(os.sched_getaffinity(0))
    waiting = iter(items)
    with ThreadPoolExecutor(workers, thread_name_prefix="compile") as pool:
        running: set[Future[Compiled | CompileError]] = set()
        try:
            while True:
                # Twice what the threads take, so that none waits for the caller.
                for name, text in islice(waiting, 2 * workers - len(running)):
                    running.add(pool.submit(attempt, name, text))
                if not running:
                    return
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        finally:  # the caller stopped listening, or one failed for another reason than its source
            for future in running:
                future.cancel()
