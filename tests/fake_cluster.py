"""What the workers of a Dask cluster make in tests: a compiler that compiles nothing, and GPUs that are none."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from gen.errors import CompileError
from gen.families.base import Limits
from gen.gpu.device import GpuInfo
from gen.toolchain.compiled import Compiled, Resources
from tests.fake_tuning import DyingBench


@dataclass(frozen=True)
class PlainCompiler:
    """Machine code is the name; a source that is named is refused."""

    refused: str = ""
    version: str = "fake 1.0"
    options: str = ""

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        assert name in text
        if name == self.refused:
            raise CompileError(name, "error: expected a ';'", Path("failed.cu"))
        used = Resources(20, 0, 0, 0, 0, 0)
        return Compiled(name, arch, name.encode(), defaultdict(partial(replace, used), {name: used}), 1.5)


@dataclass(frozen=True)
class FakeTools:
    """Implements `gen.tune.cluster.Tools`.

    Attributes:
        folder: gets a file for each worker, with a line for all that its GPU does.
        seconds: of each attempt.
        gpus: that a worker has.
        refused: a source that does not compile.
        apart: every worker has another compiler.
        uuid: of each GPU; nobody locks one that has none.
    """

    folder: Path
    seconds: float = 0.0
    gpus: int = 1
    refused: str = ""
    apart: bool = False
    uuid: str = ""

    def compiler(self) -> PlainCompiler:
        return PlainCompiler(self.refused, f"of process {os.getpid()}" if self.apart else "fake 1.0")

    def find(self, number: int) -> GpuInfo | None:
        return GpuInfo("Fake GPU", Limits.of("sm_90"), self.uuid) if number < self.gpus else None

    def factory(self, number: int) -> Callable[[], Any]:
        return DyingBench({}, self.folder / f"{os.getpid()}-{number}", self.seconds)
