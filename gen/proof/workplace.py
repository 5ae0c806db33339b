"""Where something is built before it is kept."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

PREFIX = "building-"
ABANDONED = 24 * 3600.0  # seconds after which nobody builds in a folder any more


class Workplace(tempfile.TemporaryDirectory[str]):
    """A folder in the cache that goes when its work is done: what it holds can be renamed into the cache.

    Those of processes that were killed go when a later one builds, a day after.
    """

    def __init__(self, cache: Path) -> None:
        for old in cache.glob(f"{PREFIX}*"):
            with suppress(OSError):  # another process may have removed it
                if time.time() - old.stat().st_mtime > ABANDONED:
                    shutil.rmtree(old, ignore_errors=True)
        super().__init__(dir=cache, prefix=PREFIX)

    def __enter__(self) -> Path:  # type: ignore[override]  # a path is what everyone needs
        return Path(super().__enter__())
