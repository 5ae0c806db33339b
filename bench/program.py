"""What the programs of this folder share: how they were called and end, the GPU that they need, what they write."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, Protocol

import typer

from gen.cli.app import errors_told
from gen.emit.render import render
from gen.errors import DeviceError
from gen.families.base import Variant
from gen.gpu import device
from gen.toolchain.compiled import Compiled
from gen.toolchain.farm import CompileFarm
from gen.toolchain.nvrtc import Nvrtc


class Named(Protocol):
    """A device that says what it is."""

    @property
    def name(self) -> str:
        """What the driver calls it."""
        ...

    @property
    def driver(self) -> str:
        """The driver's version."""
        ...


def ended(program: Callable[[], int]) -> int:
    """Runs a program; gives its exit status. What a user can cause ends in one message, no traceback."""
    try:
        with errors_told():
            return program()
    except typer.Exit as end:
        return end.exit_code


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


def write_results(
    path: Path | None, program: str, device: Named | None, more: Mapping[str, Any] | None = None, **content: Any
) -> None:
    """Writes what a program found as JSON; nowhere without a path.

    Args:
        path: the file of `--json`.
        program: as `as_called` takes it.
        device: what was measured; None if nothing was.
        more: what else the results come from, beside command, date and device.
        content: what was found, dataclasses among it.
    """
    if path is None:
        return
    measured = {} if device is None else {"device": device.name, "driver": device.driver}
    meta = {"command": as_called(program), "date": date.today().isoformat(), **measured, **(more or {})}
    path.write_text(json.dumps({"meta": meta, **content}, indent=1, default=asdict) + "\n", encoding="utf-8")


def compiled_first(variants: Iterable[Variant], arch: str) -> dict[str, Compiled]:
    """The machine code of variants by name, before any is timed. Raises CompileError."""
    every = {made.name: made for made in variants}
    print(f"{len(every)} variants are compiled first, which takes minutes", flush=True)
    with CompileFarm(Nvrtc(None)) as farm:
        compiling = {name: farm.submit(name, render(made), arch) for name, made in every.items()}
        return {name: code.result() for name, code in compiling.items()}
