"""`gen.load`: from a spec to a kernel that can be called."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.errors import ArgumentError, DeviceError, GenError
from gen.families import families
from gen.families.backend import Backend
from gen.families.base import Extents, Family, Spec
from gen.families.extents import counted, extents_of
from gen.paths import cache_home, output_home
from gen.runtime.dispatch import Chooser, family_and_spec, winners_of
from gen.runtime.kernel import Kernel
from gen.store.folder import remember as write_down

if TYPE_CHECKING:
    from gen.gpu.device import CudaDevice

_lock = threading.Lock()
_backends: dict[tuple[int, Path], Backend] = {}


def load(
    spec: Spec | str,
    *,
    shape: int | tuple[int, ...] | None = None,
    device: int | CudaDevice | Backend | None = None,
    home: Path | str | None = None,
    **counts: int,
) -> Kernel:
    """Loads the kernel for a spec: the one that was tuned for this device, else base.

    Args:
        spec: a spec, or its name: `"reduction_sum_f32"`.
        shape: of the first input: `(8192, 8192)` or `2**28`. Binds the kernel to one variant, and compiles it now;
            without it every call picks the variant of its sizes.
        device: a GPU by number, or opened; the first if None.
        home: the folder of what gen wrote, `tuned.json` above all; where commands look if None.
        **counts: with `shape`, what calls will count: `steps=100` binds a stencil to the variant for many steps.

    Raises:
        UnknownNameError: there is no such spec.
        ShapeError: the spec takes no input of this shape.
        MissingToolError: PyCUDA or the compiler is not installed.
        DeviceError: there is no such GPU.
    """
    folder = _folder(home)
    family, meant = family_and_spec(families(), spec, folder)
    if shape is None and counts:
        raise ArgumentError(next(iter(counts)), "must come with shape: without one every call says it")
    if shape is None:
        return kernel_of(family, meant, device, folder)
    extents = {**extents_of(family, meant, shape), **counted(family, meant, counts)}
    return kernel_of(family, meant, device, folder, extents)


def kernel_of(
    family: Family[Any], spec: Spec, device: int | CudaDevice | Backend | None, home: Path,
    extents: Extents | None = None,
) -> Kernel:  # fmt: skip
    """The kernel that `load` gives, of a spec whose family is at hand; with extents bound to them."""
    backend = _backend(device, home)
    chooser = Chooser(family, spec, winners_of(home), backend.name, backend.limits, backend.driver)
    return Kernel(chooser, backend, extents)


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


def _backend(device: Any, home: Path) -> Backend:
    if isinstance(device, Backend):
        return device
    with _lock:  # cuda-core cannot be imported by two threads at once
        from gen.gpu.device import CudaDevice, open_device

        if not (device is None or isinstance(device, CudaDevice) or type(device) is int):
            raise DeviceError("device", "must be the number of a GPU, or a GPU that was opened", repr(device))
        from gen.gpu.backend import CudaBackend

        opened = device if isinstance(device, CudaDevice) else open_device(device or 0)
        key = (opened.index, home)
        if key not in _backends:
            _backends[key] = CudaBackend(opened, cache_home(home))
        return _backends[key]
