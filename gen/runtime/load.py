"""`gen.load`: from a spec to a kernel that can be called."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, overload

from gen.arch import DEFAULT_ARCH, Limits, known_device
from gen.errors import ArgumentError, DeviceError, GenError, SpecError, UnknownNameError
from gen.families import FAMILIES, families
from gen.families.base import WIDEST, Extents, Family, Spec
from gen.families.extents import checked_runtime_parameters, extents_of
from gen.families.merge import MergeSpec, partial_spec
from gen.families.reduction import ReductionSpec
from gen.families.transpose import TransposeSpec
from gen.gpu import device as gpus
from gen.gpu.device import Device, Peer
from gen.paths import cache_home, output_home
from gen.runtime.device_code import Loader, text_of
from gen.runtime.dispatch import Choice, Chooser, family_and_spec, winners_of
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes, alike
from gen.runtime.sharded import check_distinct, items_of
from gen.runtime.sharded_kernel import ShardedKernel
from gen.runtime.sharded_reduction import MERGES, ShardedReduction
from gen.runtime.sharded_transpose import ShardedTranspose, block_spec
from gen.runtime.tuning import FirstCalls, seconds_of
from gen.store.folder import remember as write_down

CPU = "cpu"
_SAY_DEVICES = "Say devices=[0, 1], or leave it out"

_lock = threading.Lock()
_loaders: dict[tuple[int, Path], Loader] = {}


@overload
def load(
    spec: Spec | str,
    *,
    shape: int | tuple[int, ...] | None = None,
    device: int | str | Device | None = None,
    home: Path | str | None = None,
    tune: float | str | None = None,
    **runtime_parameters: int,
) -> Kernel: ...


@overload
def load(  # type: ignore[overload-overlap]
    spec: ReductionSpec,
    *,
    home: Path | str | None = None,
    tune: float | str | None = None,
    devices: Sequence[int | Peer],
    processes: Processes | None = None,
    shared: bool = False,
) -> ShardedReduction: ...


@overload
def load(  # type: ignore[overload-overlap]
    spec: TransposeSpec,
    *,
    home: Path | str | None = None,
    tune: float | str | None = None,
    devices: Sequence[int | Peer],
    processes: Processes | None = None,
    shared: bool = False,
) -> ShardedTranspose: ...


@overload
def load(
    spec: Spec | str,
    *,
    home: Path | str | None = None,
    tune: float | str | None = None,
    devices: Sequence[int | Peer],
    processes: Processes | None = None,
    shared: bool = False,
    grid: Sequence[int] | None = None,
    steps_per_exchange: int | None = None,
) -> ShardedKernel: ...


def load(
    spec: Spec | str,
    *,
    shape: int | tuple[int, ...] | None = None,
    device: int | str | Device | None = None,
    home: Path | str | None = None,
    tune: float | str | None = None,
    devices: Any = None,
    processes: Any = None,
    shared: Any = False,
    grid: Any = None,
    steps_per_exchange: Any = None,
    **runtime_parameters: int,
) -> Kernel | ShardedKernel | ShardedReduction | ShardedTranspose:
    """Loads the kernel for a spec: the one that was tuned for this device, else base.

    Args:
        spec: a spec, or its name: `"reduction_sum_f32"`.
        shape: of the first input: `(8192, 8192)` or `2**28`. Binds the kernel to one variant, and compiles it now;
            without it every call picks the variant of its sizes.
        device: a GPU by number, or opened; "cpu" for the CPU run, which takes NumPy arrays and is slow; None for the
            one that $GEN_DEVICE names, else the first GPU.
        home: the folder of what gen wrote, `tuned.json` above all; where commands look if None.
        tune: the time in which each problem is tuned at its first call, unless it was, or now with `shape`: seconds,
            or a text such as `"2s"`. None: only within `gen.tuning`. See `gen.runtime.tuning`.
        devices: of each rank: GPUs by number, or opened, or those of a `gen.runtime.simulated.Machine`. Then the kernel
            is one of sharded arrays, for stencils, systems, reductions and transposes. What follows is for such
            a kernel alone.
        processes: those that `gen.join` gives, which all load the same at once: each has a rank, on one device.
        shared: whether several ranks may share a device, which then is named several times.
        grid: ranks along each axis, `(2, 4)`; all along the first one if None.
        steps_per_exchange: time steps between two exchanges of cells; chosen by the sizes of a call if None.
        **runtime_parameters: those of the calls, with `shape`: `steps=100` binds a stencil to many steps.

    Raises:
        UnknownNameError: there is no such spec.
        ShapeError: the spec takes no input of this shape.
        ArgumentError: `tune` is no time.
        MissingToolError: the compiler is not installed.
        DeviceError: there is no such GPU.
    """
    if processes is not None and not isinstance(processes, Processes):
        next_step = "Say processes=gen.join(...)"
        raise ArgumentError("processes", "must be what gen.join gives", repr(processes), next_step=next_step)
    with alike(processes, "gen.load") as noted:
        folder = _folder(home)
        family, meant = _meant(spec, folder)
        budget = None if tune is None else seconds_of(tune)
        make = partial(kernel_of, home=folder, tune=budget)
        opened: list[Peer] = []
        kernels: dict[Peer, Kernel] = {}
        if devices is None and processes is not None:
            raise ArgumentError("processes", "must come with devices", processes, next_step=_SAY_DEVICES)
        if devices is not None:
            for name, given in (("shape", shape), ("device", device), *runtime_parameters.items()):
                if given is not None:
                    raise ArgumentError(name, "must not be given with devices", given, next_step="Leave it out")
            named = items_of(devices)
            if named is None:
                rule = "must name a device for each rank"
                raise ArgumentError("devices", rule, repr(devices), next_step="Say devices=[0, 1]")
            opened = [_peer(one, folder) for one in named]
            check_distinct(opened, shared=shared)
            if isinstance(meant, ReductionSpec | TransposeSpec):
                for name, given in (("grid", grid), ("steps_per_exchange", steps_per_exchange)):
                    if given is not None:
                        rule = "must not be given for a reduction or a transpose"
                        raise ArgumentError(name, rule, given, next_step="Leave it out")
            if processes is not None:
                if len(opened) > 1:
                    rule, next_step = "must name one in each of several processes", "Start a process for each of them"
                    raise DeviceError("devices", rule, len(opened), next_step=next_step)
                noted |= {"spec": family.name_of(meant), "device": opened[0].name, "grid": grid}
                noted |= {"steps_per_exchange": steps_per_exchange, "time to tune": budget}
                noted["digest of tuned variants"] = digest_of_winners(family, meant, opened[0], folder)
                opened *= processes.size
            of_parts = block_spec(meant) if isinstance(meant, TransposeSpec) else meant
            of_devices = () if isinstance(meant, ReductionSpec) else dict.fromkeys(opened)
            kernels = {one: make(family, of_parts, one) for one in of_devices}
    if devices is not None:
        if isinstance(meant, ReductionSpec):
            return ShardedReduction(family, meant, make, opened, processes)
        if isinstance(meant, TransposeSpec):
            return ShardedTranspose(family, meant, kernels, opened, processes)
        return ShardedKernel(family, meant, kernels, opened, grid, steps_per_exchange, processes)
    for name, value in (("shared", shared or None), ("grid", grid), ("steps_per_exchange", steps_per_exchange)):
        if value is not None:
            raise ArgumentError(name, "must come with devices", value, next_step=_SAY_DEVICES)
    if shape is None and runtime_parameters:
        raise ArgumentError(next(iter(runtime_parameters)), "must come with shape: without one every call says it")
    if shape is None:
        return kernel_of(family, meant, device, folder, tune=budget)
    extents = {**extents_of(family, meant, shape), **checked_runtime_parameters(family, meant, runtime_parameters)}
    return kernel_of(family, meant, device, folder, extents, tune=budget)


def tune(
    spec: Spec | str,
    *problems: Any,
    budget: float | str = "2s",
    device: int | str | Device | None = None,
    home: Path | str | None = None,
    **runtime_parameters: int,
) -> Kernel:
    """Tunes problems of a spec now, in this process; those that were tuned before stay as they are.

    Args:
        spec: a spec, or its name.
        *problems: for each, the shape of its first input or that array itself, whose strides and address count too.
        budget: the time for each: seconds, or a text such as `"2s"`.
        device: as in `load`.
        home: as in `load`.
        **runtime_parameters: those of all problems: `steps=100`.

    Returns:
        The kernel that `load` gives.

    Raises:
        GenError: what `load` raises; or `frozen` forbids it.
    """
    folder, seconds = _folder(home), seconds_of(budget)
    family, meant = _meant(spec, folder)
    kernel = kernel_of(family, meant, device, folder)
    for problem in problems:
        kernel.tune(problem, seconds, runtime_parameters)
    return kernel


def choose(
    spec: Spec | str,
    shape: int | tuple[int, ...],
    *,
    arch: str | None = None,
    home: Path | str | None = None,
    alignment: int = WIDEST,
    **runtime_parameters: int,
) -> Choice:
    """What `load` would call at a shape, and why, without a GPU too: nothing is compiled.

    Args:
        spec: a spec, or its name.
        shape: of the first input.
        arch: `sm_90`, for a GPU of that architecture; None: for the first GPU, or where there is none for sm_90.
        home: as in `load`.
        alignment: the most bytes, up to 16, that divide the address of every array.
        **runtime_parameters: those of the call: `steps=100`.

    Returns:
        The variant, whose `name` names it, the reason, and whether it was measured to be the fastest.

    Raises:
        UnknownNameError: there is no such spec or architecture.
        ShapeError: the spec takes no input of this shape.
    """
    folder = _folder(home)
    family, meant = _meant(spec, folder)
    extents = {**extents_of(family, meant, shape), **checked_runtime_parameters(family, meant, runtime_parameters)}
    return chooser_for(family, meant, folder, arch).for_call(extents, alignment)


def chooser_for(family: Family[Any], spec: Spec, home: Path, arch: str | None = None) -> Chooser:
    """What chooses for a GPU of an architecture, of which something is tuned if that is known; or for the first GPU."""
    winners, found = winners_of(home), gpus.find_gpu() if arch is None else None
    if found is not None:
        return Chooser(family, spec, winners, found.name, found.limits, found.driver)
    limits = Limits.of(DEFAULT_ARCH if arch is None else arch)
    known = known_device(limits.arch, {winner.device for winner in winners})
    return Chooser(family, spec, winners, known or f"a GPU of {limits.arch}", limits)


def _meant(spec: Spec | str, folder: Path) -> tuple[Family[Any], Spec]:
    """A spec and its family. Raises UnknownNameError if there is none."""
    try:
        return family_and_spec(FAMILIES, spec, folder)
    except UnknownNameError:  # those of other packages are found in the metadata of all, which are many files
        return family_and_spec(families(), spec, folder)


def kernel_of(
    family: Family[Any], spec: Spec, device: int | str | Device | None, home: Path,
    extents: Extents | None = None, alignment: int = WIDEST, tune: float | None = None,
) -> Kernel:  # fmt: skip
    """The kernel that `load` gives, of a spec whose family is at hand; with extents bound to them.

    Args:
        family: of the spec.
        spec: what is computed.
        device: as in `load`.
        home: the folder of what gen wrote.
        extents: those of all calls; None: each picks its variant.
        alignment: the most bytes, up to 16, that divide the address of every array of such a call.
        tune: seconds in which each problem is tuned at its first call; None: only within `gen.tuning`.
    """
    loader = _loader(device, home)
    found = loader.device
    kept = partial(text_of, folder=cache_home(home))
    chooser = Chooser(family, spec, winners_of(home), found.name, found.limits, found.driver, kept)
    return Kernel(chooser, loader, FirstCalls(home, tune), extents, alignment)


def remember(spec: Spec, *, home: Path | str | None = None) -> str:
    """Writes a spec down in `specs.json`, so that every command knows it by its name. Needs no GPU.

    Args:
        spec: `gen.stencil(weights)`, say, of whose weights a name holds a digest alone.
        home: the folder of what gen writes; where commands look if None.

    Returns:
        The name, FAMILY_LABEL, for `gen prove`, `gen tune` and `gen show`, which names variants for `gen render`.

    Raises:
        UnknownNameError: it is no spec.
        StoreError: `specs.json` cannot be read.
    """
    folder, known = _folder(home), families()
    family, meant = family_and_spec(known, spec, folder)
    write_down(folder, family, meant)
    return family.name_of(meant)


def _folder(home: Path | str | None) -> Path:
    if home is None:
        return output_home()
    given: object = home  # a caller may give anything
    if (
        not isinstance(given, str | Path) or given == ""
    ):  # of a variable that is not set: Path("") is the current folder
        raise GenError("home", "must name a folder", repr(home), next_step="None is where commands look")
    folder = Path(home).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise GenError("home", "must be a folder", folder)
    return folder


def _loader(device: int | str | Device | None, home: Path) -> Loader:
    if isinstance(device, Device):
        return Loader(device, cache_home(home))
    number = _device_number(device)
    with _lock:
        key = (number, home)
        if key not in _loaders:
            _loaders[key] = Loader(_open(number, cache_home(home)), cache_home(home))
        return _loaders[key]


def _peer(device: object, home: Path) -> Peer:
    """A device that computes with others. Raises DeviceError if it is none."""
    rule = "must be numbers of GPUs, GPUs that were opened, or devices of gen.runtime.simulated.Machine"
    if isinstance(device, Peer):
        return device
    if isinstance(device, Device) or type(device) is not int or device < 0:
        raise DeviceError("devices", rule, repr(device))
    found = _loader(device, home).device
    assert isinstance(found, Peer)
    return found


def digest_of_winners(family: Family[Any], spec: Spec, device: Device, home: Path) -> str:
    """Of the tuned variants that count on a model of device for what a spec on several devices calls.

    Whatever else is in `home` may differ. The evidence for a variant is left out: it is that of one measurement.
    """
    called: list[tuple[Family[Any], Spec]] = [(family, spec)]
    if isinstance(spec, TransposeSpec):
        called = [(family, block_spec(spec))]
    elif isinstance(spec, ReductionSpec):
        with suppress(SpecError):  # whose rows are kept, unless it is refused
            called += [(family, partial_spec(spec)), (MERGES, MergeSpec(spec))]
    winners = winners_of(home)
    choosers = [Chooser(of, one, winners, device.name, device.limits) for of, one in called]
    counting = [(*winner.key, winner.variant) for chooser in choosers for winner in chooser.winners]
    return sha256(repr(counting).encode()).hexdigest()[:12]


def _device_number(device: object) -> int:
    """The number of a GPU, or -1 for the CPU run."""
    named = os.environ.get("GEN_DEVICE") if device is None else None
    if named:
        device = int(named) if named.isascii() and named.isdigit() else named
    if device == CPU:
        return -1
    if device is None:
        return 0
    if type(device) is not int or device < 0:
        subject = "$GEN_DEVICE" if named else "device"
        rule = 'must be the number of a GPU, "cpu", or a GPU that was opened'
        raise DeviceError(subject, rule, repr(device))
    return device


def _open(number: int, cache: Path) -> Device:
    if number < 0:
        from gen.runtime.cpu import CpuDevice

        return CpuDevice(cache)
    from gen.gpu.cuda import CudaDevice

    return CudaDevice(number, cache)
