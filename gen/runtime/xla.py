"""What XLA launches: the plans of calls at fixed sizes, kept where a compiled program of JAX finds them by number.

A program that JAX compiles has one size for every array, so its kernels are chosen, compiled and planned while it is
traced; when it runs, `xla.cpp` queues them on XLA's stream without Python. Scratch memory is XLA's too: further results
of the call, which nobody reads. Only what kernels want to be 0, and leave so, `xla.cpp` keeps for each stream.
"""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from gen.errors import MissingToolError
from gen.gpu.device import DriverFunctions
from gen.paths import cache_home, output_home
from gen.runtime.arrays import Shape
from gen.runtime.kernel import Kernel, Planned
from gen.runtime.launcher import lacking
from gen.toolchain.cache import Cache, content_key

TARGET, HOST_TARGET = "gen_launch", "gen_launch_on_host"  # custom calls
FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra")

_FUNCTIONS = ("cuMemsetD8Async", "cuMemAlloc_v2", "cuMemFree_v2", "cuStreamGetId", "cuCtxPushCurrent_v2",
              "cuCtxPopCurrent_v2")  # fmt: skip
_ARRAY, _NUMBER = range(2)  # sources of arguments, as in xla.cpp
_kept: dict[int, tuple[object, ...]] = {}  # by the numbers of plans: whose code and memory they name


@dataclass(frozen=True)
class Call:
    """A custom call.

    Attributes:
        number: of the plan, which the program names.
        results: shape and dtype of all outputs.
        scratch: bytes of each buffer that follows them; none of them must be 0.
    """

    number: int
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    scratch: tuple[int, ...]


@cache
def library(include: str) -> Any:
    """The program that launches, as a library of ctypes; built once.

    Args:
        include: the folder of XLA's headers, `jax.ffi.include_dir()`.

    Raises:
        MissingToolError: there is no g++, or it does not compile the program.
    """
    source = files("gen.runtime").joinpath("xla.cpp").read_bytes()
    header = Path(include, "xla", "ffi", "api", "c_api.h").read_bytes()
    cache = Cache(cache_home(output_home()) / "launcher", ".so")
    key = content_key({"source": source, "flags": FLAGS, "header": header})
    found = cache.file(key)
    if found is None:
        if lacking() == "g++":
            raise MissingToolError("g++", "is needed to call kernels from programs of JAX")
        with tempfile.TemporaryDirectory(prefix="gen-xla-") as made:
            text, built = Path(made, "xla.cpp"), Path(made, "xla.so")
            text.write_bytes(source)
            command = ["g++", *FLAGS, "-isystem", include, "-o", str(built), str(text)]
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
            if done.returncode != 0:
                rule = "does not compile what calls kernels from programs of JAX"
                raise MissingToolError("g++", rule, done.stderr.strip())
            found = cache.write(key, built.read_bytes())
    loaded = ctypes.CDLL(str(found))
    loaded.gen_keep.argtypes = (ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64))
    loaded.gen_keep.restype = None
    return loaded


@cache
def driver_addresses() -> tuple[int, ...]:
    """Those of the driver's functions that `xla.cpp` calls beside launches."""
    driver = ctypes.CDLL("libcuda.so.1")
    return tuple(ctypes.cast(getattr(driver, name), ctypes.c_void_p).value or 0 for name in _FUNCTIONS)


def keep(
    loaded: Any, kernel: Kernel, shape: Shape, dtype: np.dtype[Any], parameters: dict[str, int],
    addresses: tuple[int, ...],
) -> Call:  # fmt: skip
    """Keeps what a call of a kernel launches, for one dense input.

    Args:
        loaded: what `library` gave.
        kernel: whose call it is.
        shape: of the input.
        dtype: of the input.
        parameters: runtime parameters.
        addresses: what `driver_addresses` gives.

    Raises:
        GenError: the kernel does not take such an array.
    """
    planned = kernel.planned(shape, dtype, parameters)
    words = _words(planned, kernel.driver_functions(), addresses)
    digest = hashlib.sha256(np.array(words, np.uint64).tobytes()).digest()
    number = int.from_bytes(digest[:8], "little", signed=True)
    loaded.gen_keep(number, (ctypes.c_uint64 * len(words))(*words))
    _kept[number] = (kernel,)
    return Call(number, planned.results, tuple(max(one.size, 1) for one in planned.scratch if not one.zeroed))


def _words(planned: Planned, functions: DriverFunctions, addresses: tuple[int, ...]) -> list[int]:
    """A plan as `gen_keep` reads it."""
    scratch = sorted(planned.scratch, key=lambda one: one.zeroed)  # those of XLA first
    places = {name: place for place, name in enumerate((*planned.arrays, *(one.name for one in scratch)))}
    zeroed = [one.size for one in scratch if one.zeroed]
    launch, *_, cooperative = functions.addresses
    words = [launch, cooperative, *addresses, functions.context, len(zeroed), *zeroed, len(planned.steps)]
    for step in planned.steps:
        handle = functions.handle(planned.code, step.entry, step.shared_bytes)
        words += [handle, *step.grid, *step.block, step.shared_bytes, int(step.cooperative), len(step.arguments)]
        for argument in step.arguments:
            words += _argument(argument, places)
    return words


def _argument(argument: Any, places: dict[str, int]) -> tuple[int, int, int]:
    if isinstance(argument, str):
        return _ARRAY, places[argument], 0
    dtype, value = argument
    content = dtype.numpy.type(value).tobytes().ljust(16, b"\0")
    return _NUMBER, int.from_bytes(content[:8], "little"), int.from_bytes(content[8:], "little")
