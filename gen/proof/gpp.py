"""The C++ compiler of this machine, and CUDA's headers for it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from gen.emit.files import MAKE_ROOM
from gen.errors import CompileError, MissingToolError, StoreError
from gen.toolchain.headers import NEEDED, headers_for_gpp, lacking, places

# What a line says where a disk is full; of headers that it has read g++ says no more than the last.
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "cannot write PCH file")
_INSTALL_COMPILER = "Install it, for instance with `apt install g++` or `dnf install gcc-c++`."
_INSTALL_HEADERS = "Install them with `pip install nvidia-cuda-runtime nvidia-cuda-crt`."


class Gpp:
    """g++, found when it is first needed."""

    def compile(self, arguments: Sequence[str], subject: str, source: Path) -> None:
        """Runs g++.

        Raises:
            StoreError: a disk is full, which is no fault of the source.
            CompileError: about `subject`, with what g++ said and where the refused `source` is kept.
        """
        result = subprocess.run(
            [self.path, *arguments], check=False, capture_output=True, text=True, errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        if result.returncode == 0:
            return
        full = next((line for line in result.stderr.splitlines() if any(words in line for words in _FULL)), None)
        if full is not None:
            raise StoreError("g++", "cannot write what it makes", full, next_step=MAKE_ROOM)
        raise CompileError(subject, result.stderr or f"g++ ended with status {result.returncode}", source)

    @cached_property
    def path(self) -> str:
        """The program. Raises MissingToolError if there is none."""
        path = shutil.which("g++")
        if path is None:
            raise MissingToolError("g++", "is needed to run kernels on the CPU", next_step=_INSTALL_COMPILER)
        return path

    @cached_property
    def version(self) -> str:
        """What it says of itself."""
        result = subprocess.run([self.path, "--version"], check=False, capture_output=True, text=True, errors="replace")
        if result.returncode != 0:
            rule = "is needed to run kernels on the CPU, and does not run"
            raise MissingToolError(self.path, rule, result.stderr.strip(), next_step=_INSTALL_COMPILER)
        return result.stdout

    @property
    def major(self) -> int:
        """The first number of its version; 0 if it does not say."""
        found = re.search(r"(?:^|\s)(\d+)\.\d+\.\d+", self.version)  # behind what its packager calls it
        return int(found[1]) if found else 0

    @cached_property
    def cuda_headers(self) -> Path:
        """The folder of CUDA's headers, from their wheels or a toolkit. Raises MissingToolError if they lack."""
        found = headers_for_gpp()
        if found is None:
            first = next(places(), None)
            missing = NEEDED[0] if first is None else lacking(first)[0]
            rule = "are needed to run kernels on the CPU"
            raise MissingToolError("CUDA's headers", rule, f"no {missing}", next_step=_INSTALL_HEADERS)
        return found
