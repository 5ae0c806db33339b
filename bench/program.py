"""What the programs of this folder share: how they were called, how they end, and the GPU that they need."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable

from gen.cli.common import status_of
from gen.errors import DeviceError, GenError
from gen.gpu import device


def ended(program: Callable[[], int]) -> int:
    """Runs a program; gives its exit status. What a user can cause ends in one message, no traceback."""
    try:
        return program()
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return status_of(error)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 130


def as_called(program: str) -> str:
    """How this program was called, so that whoever reads its results can repeat it; without the file of `--json`."""
    arguments: list[str] = []
    words = iter(sys.argv[1:])
    for word in words:
        if word == "--json":
            next(words, None)
        elif not word.startswith("--json="):
            arguments.append(word)
    return shlex.join([*program.split(), *arguments])


def need_gpu(program: str) -> device.GpuInfo:
    """The first GPU, before a program begins what takes long.

    Raises DeviceError if there is none.
    """
    found = device.find_gpu()
    if found is None:
        again = "Run it where there is one; here, gen doctor says what is missing"
        raise DeviceError(program, "needs an NVIDIA GPU with its driver", "none", next_step=again)
    return found
