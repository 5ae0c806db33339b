"""The command line: the one place in gen that prints."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

_STOPPED = 130  # by Ctrl-C


def main() -> None:
    """Runs the command of gen that the process was started with, and ends the process with its exit status."""

    def app() -> None:
        from gen.cli.app import app  # a Ctrl-C can come as early as this: what takes long is imported from here on

        app(prog_name="gen")

    run(app)


def run(app: Callable[[], None]) -> None:
    """Runs an application of Typer, and ends the process with its exit status, also while threads are at work."""
    # Python has None for a stream that was closed before it started.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: PTH123, SIM115  it lives as long as the process
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    try:
        app()
    except KeyboardInterrupt:
        raise SystemExit(_STOPPED) from None
    except SystemExit as end:
        if end.code == _STOPPED or _busy():  # at once: Python would wait for threads that compile
            from multiprocessing import util

            util._run_finalizers(0)  # type: ignore[attr-defined]  # which give semaphores back, and wait for nobody
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end.code if isinstance(end.code, int) else 0)
        raise
    except ModuleNotFoundError as error:
        package = (error.name or "gen").partition(".")[0]
        if package == "gen":
            raise
        from gen.paths import how_to_install

        sys.stderr.write(f"error: The Python package {package} must be installed. Run: {how_to_install()}\n")
        raise SystemExit(1) from None


def _busy() -> bool:
    """Whether threads are at work for nobody: a budget was over before they were done."""
    return threading.active_count() > 1  # of daemons too: Python waits for those of a pool
