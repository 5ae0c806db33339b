"""What the commands that use a GPU share: their options, the GPU, the compiler, and the lock that keeps others off."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import output
from gen.cli.common import Json, OptionError, Out, home_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import typer

    from gen.toolchain.farm import CompileFarm
    from gen.tune.device import IsolatedDevice


COMPILERS = ("nvrtc", "nvcc")
Gpu = Annotated[int, typer.Option("--gpu", metavar="N", min=0, help="The number of the GPU.")]
CompilerName = Annotated[
    str, typer.Option("--compiler", metavar="|".join(COMPILERS), help="What compiles: NVRTC, or nvcc through PyCUDA.")
]


def check_compiler(name: str) -> None:
    """Raises OptionError for a compiler that there is none of."""
    if name not in COMPILERS:
        raise OptionError("--compiler", "must be " + " or ".join(COMPILERS), name)


def compiler_of(name: str, home: Path) -> Any:
    """The compiler of this name, with the cache of `home`."""
    from gen.paths import cache_home

    check_compiler(name)
    if name == "nvrtc":
        from gen.toolchain.nvrtc import Nvrtc

        return Nvrtc(cache_home(home))
    from gen.gpu.pycuda import Nvcc

    return Nvcc(cache_home(home))


def farm_of(compiler: str, home: Path) -> CompileFarm:
    """The compiler, on all cores."""
    from gen.toolchain.farm import CompileFarm

    return CompileFarm(compiler_of(compiler, home))


def device_of(index: int, compiler: str, home: Path) -> IsolatedDevice:
    """The GPU, in a process of its own."""
    from gen.tune.device import IsolatedDevice
    from gen.tune.session import GpuFactory

    return IsolatedDevice(GpuFactory(index, compiler_of(compiler, home), home))


@contextmanager
def alone(index: int, seconds: float | None, doing: str = "gen tune") -> Iterator[None]:
    """Keeps the GPU to this run; says for whom it waits, and who is there all the same."""
    from gen.gpu.device import find_gpu
    from gen.gpu.lock import alone_on
    from gen.gpu.nvml import others_on

    found = find_gpu(index)
    if found is None or not found.uuid:
        yield
        return
    with alone_on(found.uuid, doing, say=output.note, seconds=seconds):
        for other in others_on(found.uuid):
            output.note(f"Beside this run, {other} is on the GPU: times may be off.")
        yield


def calibrate(gpu: Gpu = 0, compiler: CompilerName = "nvrtc", out: Out = None, json: Json = False) -> None:
    """Measure what the GPU can do: bandwidths as slopes between 1 and 4 GiB, and what an empty launch costs.

    Tuning scores every variant against these figures. They are kept beside the winners.

    Examples: `gen calibrate`, `gen calibrate --json`.
    """
    from dataclasses import asdict

    from gen.gpu.timing import Instruments
    from gen.store.folder import store_calibration

    home = home_of(out)
    with alone(gpu, None, "gen calibrate"):
        found = Instruments.open(gpu, compiler_of(compiler, home)).calibrate()
    place = store_calibration(home, found)
    if json:
        output.data(asdict(found))
        return
    output.text(f"{found.device}, driver {found.driver}")
    rows = [("read", f"{found.read:.0f} GB/s"), ("write", f"{found.write:.0f} GB/s"),
            ("copy, read and written", f"{found.copy:.0f} GB/s"),
            ("empty kernel between events", f"{found.empty_pair_us:.2f} us"),
            ("empty kernel in a graph", f"{found.empty_node_us:.2f} us")]  # fmt: skip
    output.table(("what", "at best"), rows)
    output.text(f"kept in {place}")
