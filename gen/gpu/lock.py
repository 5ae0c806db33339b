"""One user of a GPU at a time: what runs beside a measurement falsifies it.

The lock is a file in the machine's temporary folder that the kernel unlocks when its holder ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from gen.errors import DeviceError

_log = logging.getLogger(__name__)
POLL_SECONDS = 0.1
NAME_SECONDS = 5.0  # in which a holder says who it is, which it does at once, or lets the GPU go
_NOBODY = "another process"  # that does not say who it is
_MAX_HOLDER_BYTES = 4096  # bytes of what a holder says: the file may be anybody's


@dataclass(frozen=True)
class Holder:
    """Who has a GPU.

    Attributes:
        user: who started the process.
        doing: what it is for: `gen tune transpose`.
        since: the time of the day.
    """

    pid: int
    user: str
    doing: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} ({self.doing}, since {self.since})"


@contextmanager
def alone_on(
    gpu: str, doing: str, *, say: Callable[[str], None], seconds: float | None = None, folder: Path | None = None
) -> Iterator[None]:
    """Keeps a GPU to oneself.

    Args:
        gpu: which, by its UUID.
        doing: what others who wait are told.
        say: is told for whom this process waits, each time that is another.
        seconds: how long to wait at most; None for as long as it takes.
        folder: of the locks, the same for all; the temporary one if None.

    Raises:
        DeviceError: the time is over and the GPU is in use.
    """
    file = _open((folder or Path(tempfile.gettempdir())) / f"gen-{gpu}.lock")
    if file is None:
        yield
        return
    with file:
        holder = _acquire(file, say, seconds)
        if holder is not None:
            raise DeviceError("The GPU", f"is in use by {holder}", next_step="Wait for it, or give a longer --budget")
        _tell(file, json.dumps(asdict(Holder(os.getpid(), _user(), doing, time.strftime("%H:%M:%S")))))
        try:
            yield
        finally:
            _tell(file, "")


def _open(place: Path) -> IO[bytes] | None:
    """The file of a lock, which every user may open; None, with a warning, where there can be none."""
    try:
        try:
            # First without O_CREAT: with it, kernels keep users off files of others in folders that all may write.
            return os.fdopen(os.open(place, os.O_RDWR | os.O_CLOEXEC), "r+b", buffering=0)
        except FileNotFoundError:
            made = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            with suppress(OSError):  # another user was first
                os.fchmod(made, 0o666)  # whatever the umask
            return os.fdopen(made, "r+b", buffering=0)
    except OSError as error:
        _log.warning("No lock keeps other runs from the GPU: %s: %s", place, error.strerror)
        return None


def _acquire(file: IO[bytes], say: Callable[[str], None], seconds: float | None) -> str | None:
    """Takes the lock. Gives who has it where the time is over."""
    start = time.monotonic()
    said = None
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                _log.warning("No lock keeps other runs from the GPU: %s: %s", file.name, error.strerror)
                return None
        else:
            return None
        waited, holder = time.monotonic() - start, _holder(file)
        if holder or waited >= NAME_SECONDS:  # else it has just taken the lock, or is about to let it go
            holder = holder or _NOBODY
            if seconds is not None and waited >= seconds:
                return holder
            if holder != said:
                say(f"The GPU is in use by {holder}: waiting for it to end.")
                said = holder
        time.sleep(POLL_SECONDS)


def _holder(file: IO[bytes]) -> str:
    """Who has the lock, as far as the file tells; nothing where it is empty."""
    try:
        told = os.pread(file.fileno(), _MAX_HOLDER_BYTES, 0)
        if not told:
            return ""
        found = json.loads(told)
        holder = str(Holder(found["pid"], found["user"], found["doing"], found["since"]))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return _NOBODY
    return holder if holder.isprintable() else _NOBODY


def _tell(file: IO[bytes], text: str) -> None:
    with suppress(OSError):  # a full disk: the lock holds, and others are told less
        os.ftruncate(file.fileno(), 0)
        os.pwrite(file.fileno(), text.encode(), 0)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return f"user {os.getuid()}"
