"""What the commands that use a GPU share: their options, the GPU, the compiler, and the lock that keeps others off."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from gen.cli import output
from gen.cli.common import Home, Json, OptionError, home_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import typer

    from gen.families.base import Family
    from gen.store.trials import Problem
    from gen.toolchain.farm import CompileFarm
    from gen.tune.device import IsolatedDevice
    from gen.tune.one_problem import Options
    from gen.tune.parallel import ParallelTuning
    from gen.tune.several_problems import Run


COMPILERS = ("nvrtc", "nvcc")
DOING = "gen tune"
Gpu = Annotated[int, typer.Option("--gpu", metavar="N", min=0, help="The number of the GPU.")]
CompilerName = Annotated[
    str, typer.Option("--compiler", metavar="|".join(COMPILERS), help="The compiler: NVRTC, or nvcc through PyCUDA.")
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
    from gen.tune.gpu_session import GpuFactory

    return IsolatedDevice(GpuFactory(index, compiler_of(compiler, home), home))


def parallel_tuning(
    numbers: Sequence[int], compiler: str, families: Sequence[Family[Any]], home: Path, problems: int
) -> ParallelTuning:
    """The GPUs of these numbers, for a run of so many problems."""
    from gen.tune.device import IsolatedDevice
    from gen.tune.gpu_session import GpuFactory
    from gen.tune.parallel import ParallelTuning

    made = compiler_of(compiler, home)
    openers = {f"GPU {number}": partial(IsolatedDevice, GpuFactory(number, made, home)) for number in numbers}
    return ParallelTuning(openers, made, families, home, problems)


def read_numbers(text: str) -> tuple[int, ...]:
    """The numbers of GPUs that a text spells: `0`, `0,1`. Raises OptionError for another text."""
    numbers = [int(word) if word.isascii() and word.isdigit() else -1 for word in text.split(",")]
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise OptionError("--gpu", "must be numbers of GPUs, each once, from 0 on, such as 0 or 0,1", text)
    return tuple(numbers)


def of_one_model(asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """The GPUs asked for; all of the first one's model where none was. There is one.

    Raises OptionError if those asked for are of several models: a winner is for one.
    """
    from gen.gpu.device import count_gpus, find_gpu

    numbers = range(count_gpus()) if asked is None else asked
    models = {number: found.name for number in numbers if (found := find_gpu(number)) is not None}
    first = models[numbers[0]]
    alike = tuple(number for number, model in models.items() if model == first)
    others = ", ".join(f"{number} is {model}" for number, model in models.items() if model != first)
    if others and asked is not None:
        raise OptionError("--gpu", f"must be GPUs of one model: {numbers[0]} is {first}", others)
    if others:
        output.note(f"Tunes on {len(alike)} of {len(models)} GPUs, those of the first one's model: {others}.")
    return alike


class Tuner(Protocol):
    """Tunes problems, as `gen.tune.several_problems.run` does."""

    def __call__(
        self, problems: Sequence[Problem], *, budget: float | None, options: Options, evidence: Mapping[str, object],
        tick: Callable[[Problem, int, int], None],
    ) -> Run:  # fmt: skip
        """What the run came to."""
        ...


@contextmanager
def of_machine(
    asked: tuple[int, ...] | None, budget: float | None, compiler: str, families: Sequence[Family[Any]], home: Path,
    problems: int,
) -> Iterator[Tuner]:  # fmt: skip
    """Tunes so many problems on the GPUs asked for, or on all of one model that nobody uses; kept to this run."""
    from gen.tune.several_problems import run

    with alone_on_each(of_one_model(asked), budget, any_of_them=asked is None) as numbers:
        if len(numbers) > 1:
            with parallel_tuning(numbers, compiler, families, home, problems) as tuning:
                yield tuning.run
        else:
            with farm_of(compiler, home) as farm, device_of(numbers[0], compiler, home) as device:
                yield partial(run, families=families, device=device, farm=farm, home=home)


@contextmanager
def of_cluster(
    scheduler: str, model: str | None, compiler: str, families: Sequence[Family[Any]], home: Path
) -> Iterator[Tuner]:
    """Tunes on the cores of a Dask cluster, and its GPUs of one model, whose name has this text in it."""
    from gen.tune.cluster import Cluster, MachineTools
    from gen.tune.several_problems import run

    check_compiler(compiler)
    with Cluster(scheduler, MachineTools(compiler)) as cluster, cluster.devices(model) as device:
        output.note(f"Compiles on {cluster.width} threads, and times on {device.width} x {device.name}.")
        yield partial(run, families=families, device=device, farm=cluster, home=home)


@contextmanager
def alone_on_each(
    numbers: Sequence[int], seconds: float | None, *, any_of_them: bool = False
) -> Iterator[tuple[int, ...]]:
    """Keeps GPUs to this run, and gives their numbers.

    Args:
        numbers: which.
        seconds: how long to wait at most for those that other runs have.
        any_of_them: leaves out those that others use, and says so; where others use all, it takes those that no run of
            gen has, or waits for the first.
    """
    with ExitStack() as kept:
        free = _take_free(numbers, kept) if any_of_them and len(numbers) > 1 else ()
        if not free:
            numbers = numbers[:1] if any_of_them else numbers
            for number in sorted(numbers):  # in one order: no two runs wait for each other
                kept.enter_context(alone(number, seconds))
        yield tuple(free or numbers)


def _take_free(numbers: Sequence[int], kept: ExitStack) -> tuple[int, ...]:
    """Takes the GPUs that nobody uses, until `kept` is closed; those that no run of gen has where others use all."""
    from gen.errors import DeviceError

    taken: dict[int, ExitStack] = {}
    reasons: dict[int, str] = {}
    for number in numbers:
        try:
            taken[number] = kept.enter_context(ExitStack())
            taken[number].enter_context(_lock_of(number, 0, DOING))
        except DeviceError as error:
            del taken[number]
            reasons[number] = error.rule
    beside = {number: others for number in taken if (others := _others_on(number))}
    if len(beside) < len(taken):
        for number, others in beside.items():
            taken.pop(number).close()
            reasons[number] = f"is in use by {', '.join(others)}"
    for number, reason in reasons.items():
        if taken:
            output.note(f"GPU {number} is left out: it {reason}. With --gpu it is taken all the same.")
    for number in taken:
        _say_beside(beside.get(number, ()))
    return tuple(taken)


@contextmanager
def alone(index: int, seconds: float | None, doing: str = DOING) -> Iterator[None]:
    """Keeps the GPU to this run; says for whom it waits, and who is there all the same."""
    with _lock_of(index, seconds, doing):
        _say_beside(_others_on(index))
        yield


def _lock_of(number: int, seconds: float | None, doing: str) -> AbstractContextManager[None]:
    from gen.gpu.device import find_gpu
    from gen.gpu.lock import alone_on

    found = find_gpu(number)
    if found is None or not found.uuid:
        return nullcontext()
    return alone_on(found.uuid, doing, say=output.note, seconds=seconds)


def _others_on(number: int) -> tuple[str, ...]:
    from gen.gpu.device import find_gpu
    from gen.gpu.nvml import others_on

    found = find_gpu(number)
    return () if found is None or not found.uuid else others_on(found.uuid)


def _say_beside(others: Sequence[str]) -> None:
    for other in others:
        output.note(f"Beside this run, {other} is on the GPU: times may be off.")


def calibrate(gpu: Gpu = 0, compiler: CompilerName = "nvrtc", results: Home = None, json: Json = False) -> None:
    """Measure what the GPU can do: bandwidths as slopes between 1 and 4 GiB, and what an empty launch costs.

    Tuning scores every variant against these figures. They are kept beside the winners.

    Examples: `gen calibrate`, `gen calibrate --json`.
    """
    from dataclasses import asdict

    from gen.gpu.timing import Instruments
    from gen.store.folder import store_calibration

    home = home_of(results)
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
