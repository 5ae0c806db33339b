"""Where something is built before it is kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "building-"
YOUNG = 60.0  # seconds in which whoever has made a folder comes to lock it
ABANDONED = 24 * 3600.0  # seconds after which nobody builds in a folder any more, where the file system knows no locks


class Workplace(tempfile.TemporaryDirectory[str]):
    """A folder in the cache that goes when its work is done: what it holds can be renamed into the cache.

    It is locked meanwhile. One that is not was left behind by a process that was killed, and goes with the next.
    """

    def __init__(self, cache: Path) -> None:
        remove_abandoned(cache)
        super().__init__(dir=cache, prefix=PREFIX)
        self._held = os.open(self.name, os.O_RDONLY)
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Path:  # type: ignore[override]  # a path is what everyone needs
        return Path(super().__enter__())

    def __exit__(self, *error: object) -> None:
        os.close(self._held)
        super().__exit__(*error)  # type: ignore[arg-type]


def remove_abandoned(cache: Path) -> None:
    """Removes what processes that were killed left behind."""
    for folder in cache.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process may have removed it
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    age = time.time() - folder.stat().st_mtime
    if age < YOUNG:
        return False
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return age > ABANDONED
    finally:
        os.close(opened)
    return True
