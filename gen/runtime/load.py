"""`gen.load`: from a spec to a kernel that can be called."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

from gen.errors import ArgumentError, DeviceError, GenError, UnknownNameError
from gen.families import FAMILIES, families
from gen.families.base import WIDEST, Extents, Family, Spec
from gen.families.extents import checked_runtime_parameters, extents_of
from gen.gpu.device import Device
from gen.paths import cache_home, output_home
from gen.runtime.dispatch import Chooser, family_and_spec, winners_of
from gen.runtime.kernel import Kernel
from gen.runtime.loader import Loader
from gen.store.folder import remember as write_down

CPU = "cpu"

_lock = threading.Lock()
_loaders: dict[tuple[int, Path], Loader] = {}


def load(
    spec: Spec | str,
    *,
    shape: int | tuple[int, ...] | None = None,
    device: int | str | Device | None = None,
    home: Path | str | None = None,
    **runtime_parameters: int,
) -> Kernel:
    """Loads the kernel for a spec: the one that was tuned for this device, else base.

    Args:
        spec: a spec, or its name: `"reduction_sum_f32"`.
        shape: of the first input: `(8192, 8192)` or `2**28`. Binds the kernel to one variant, and compiles it now;
            without it every call picks the variant of its sizes.
        device: a GPU by number, or opened; "cpu" for the CPU run, which takes NumPy arrays and is slow; None for the
            one that $GEN_DEVICE names, else the first GPU.
        home: the folder of what gen wrote, `tuned.json` above all; where commands look if None.
        **runtime_parameters: those of the calls, with `shape`: `steps=100` binds a stencil to many steps.

    Raises:
        UnknownNameError: there is no such spec.
        ShapeError: the spec takes no input of this shape.
        MissingToolError: the compiler is not installed.
        DeviceError: there is no such GPU.
    """
    folder = _folder(home)
    try:
        family, meant = family_and_spec(FAMILIES, spec, folder)
    except UnknownNameError:  # those of other packages are found in the metadata of all, which are many files
        family, meant = family_and_spec(families(), spec, folder)
    if shape is None and runtime_parameters:
        raise ArgumentError(next(iter(runtime_parameters)), "must come with shape: without one every call says it")
    if shape is None:
        return kernel_of(family, meant, device, folder)
    extents = {**extents_of(family, meant, shape), **checked_runtime_parameters(family, meant, runtime_parameters)}
    return kernel_of(family, meant, device, folder, extents)


def kernel_of(
    family: Family[Any], spec: Spec, device: int | str | Device | None, home: Path,
    extents: Extents | None = None, alignment: int = WIDEST,
) -> Kernel:  # fmt: skip
    """The kernel that `load` gives, of a spec whose family is at hand; with extents bound to them.

    Args:
        family: of the spec.
        spec: what is computed.
        device: as in `load`.
        home: the folder of what gen wrote.
        extents: those of all calls; None: each picks its variant.
        alignment: the most bytes, up to 16, that divide the address of every array of such a call.
    """
    loader = _loader(device, home)
    found = loader.device
    chooser = Chooser(family, spec, winners_of(home), found.name, found.limits, found.driver)
    return Kernel(chooser, loader, extents, alignment)


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
    write_down(folder, known, family, meant)
    return family.name_of(meant)


def _folder(home: Path | str | None) -> Path:
    if home is None:
        return output_home()
    if home == "":  # a variable that is not set: Path("") is the current folder
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
