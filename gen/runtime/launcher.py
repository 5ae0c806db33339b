"""Repeated calls in about a microsecond: a program in C++ that launches what Python has decided once.

What a call launches is decided by the types, shapes, strides and alignment of its arrays, and by its runtime
parameters. `gen.runtime.kernel` decides it, which takes some hundred microseconds, and the launcher keeps the outcome
under a key of these integers. A later call is read into such a key by C++; where it is found, and no array overlaps
another, its launches are queued with the addresses of this call. In every other case, and for every error, Python does
the whole call: so both choose the same variants, and refuse the same calls in the same words, by construction.

Why not a host program for each spec, with extents, shape classes and plans printed as C++: what leads from strides to
extents and from those to a variant is a few thousand lines of Python, which would have to exist twice; and g++ takes
3 s a spec with `apache-tvm-ffi`, where this program takes 1.4 s once for all specs. Why not `apache-tvm-ffi` to cross
from Python to C++: it carries as far as it goes (0.22 us for a call with two of its own tensors, 0.9 us with two NumPy
arrays, 0.2 us more behind a method that takes `out=`), but takes ownership of each tensor, which allocates; reads CuPy
by `__dlpack__`, which synchronizes streams; and knows neither CuPy's current stream nor `requires_grad`. Why not
nanobind: of Python's own interface this needs five calls. Tensors of torch are read by DLPack's C exchange API, which
torch has since 2.10, arrays of CuPy by their attributes; calls with any other array are Python's.

Without g++ or Python's headers, and under a Python without its global lock, there is no launcher: all calls are
Python's.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shutil import which
from typing import Any

from gen.errors import GenError, RunError
from gen.families.plans import Step
from gen.gpu.device import Code, DriverFunctions, Memory
from gen.runtime.arrays import Given, Maker, quick_maker, source_of, span
from gen.runtime.signature import Results, Signature
from gen.runtime.workspace import Needed
from gen.toolchain.cache import Cache, content_key

NAME = "gen_launcher"  # as the program calls itself
SOURCES = ("launcher.cpp", "launcher_arrays.h")  # the first includes the others
FLAGS = ("-O2", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra",
         "-Wno-missing-field-initializers")  # fmt: skip

_log = logging.getLogger("gen")
_lock = threading.Lock()
_without: list[str] = []  # why there is no program, once that is known


def program(folder: Path) -> Any | None:
    """The program, as a module; None where it cannot be built, which is said once.

    Args:
        folder: where it is kept when it is built.
    """
    with _lock:
        if NAME not in sys.modules and not _without:
            try:
                sys.modules[NAME] = _loaded(_built(Cache(folder / "launcher", ".so")))
            except (GenError, ImportError, OSError) as error:
                _without.append(str(error))
                _log.info("Calls are launched by Python alone, in about 30 us: %s", error)
        return sys.modules.get(NAME)


def lacking() -> str | None:
    """What is missing to build the program; None if nothing is."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a Python with its global lock"
    if which("g++") is None:
        return "g++"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.is_file() else str(header)


def _built(cache: Cache) -> Path:
    """The program's file. Raises GenError if it cannot be built."""
    sources = {name: files("gen.runtime").joinpath(name).read_bytes() for name in SOURCES}
    include = sysconfig.get_path("include")
    key = content_key({**sources, "flags": FLAGS, "python": str(sysconfig.get_config_var("EXT_SUFFIX"))})
    found = cache.file(key)
    if found is not None:
        return found
    missing = lacking()
    if missing is not None:
        raise GenError("The launcher", f"needs {missing} to be built")
    with tempfile.TemporaryDirectory(prefix="gen-launcher-") as made:
        text, library = Path(made, SOURCES[0]), Path(made, "launcher.so")
        for name, source in sources.items():
            Path(made, name).write_bytes(source)
        command = ["g++", *FLAGS, f"-I{include}", "-o", str(library), str(text)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            raise GenError("The launcher", "does not compile", done.stderr.strip())
        return cache.write(key, library.read_bytes())


def _loaded(path: Path) -> Any:
    loader = ExtensionFileLoader(NAME, str(path))
    spec = spec_from_file_location(NAME, path, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


class Launcher:
    """The launcher of one kernel object; implements `gen.runtime.workspace.ScratchLock`.

    Attributes:
        repeats: what the program knows of it: the `_repeats` of the kernel object.
    """

    def __init__(self, module: Any, functions: DriverFunctions, device: int, signature: Signature) -> None:
        self._signature, self._functions = signature, functions
        arrays = signature.arrays
        returned = [place for place, x in enumerate(arrays) if x.role == ("out" if signature.outputs else "inout")]
        self.repeats = self._launcher = module.Launcher(
            functions.addresses, functions.context, device, len(signature.inputs),
            tuple(x.role != "in" for x in arrays), tuple(returned),
            tuple(map(sys.intern, signature.runtime_parameters)), tuple(signature.runtime_parameters.values()),
        )  # fmt: skip
        self._places = {x.name: place for place, x in enumerate(arrays)}
        self._slots: dict[str, int] = {}  # of scratch, by name
        self._readable: dict[type, bool] = {}

    def remember(
        self, name: str, given: Mapping[str, Given], parameters: Mapping[str, int], code: Code,
        steps: Sequence[Step], scratch: Sequence[Needed], results: Results,
    ) -> bool:  # fmt: skip
        """Keeps what became of a call; whether it did.

        Args:
            name: of the variant.
            given: the arrays that the call brought, by operand.
            parameters: every runtime parameter.
            code: the variant's.
            steps: its launches.
            scratch: what memory they take beside the arrays.
            results: every output's shape and dtype.
        """
        if not all(self._learns(one) for one in given.values()):
            return False
        signature, first = self._signature, given[self._signature.inputs[0].name]
        needs = {one.name: (self._slots.setdefault(one.name, len(self._slots)), one.size) for one in scratch}
        scratch_places = {known: -1 - place for place, known in enumerate(needs)}
        launches = tuple(
            (
                self._functions.handle(code, step.entry, step.shared_bytes), step.grid, step.block, step.shared_bytes,
                step.cooperative, tuple(_packed(step, self._places | scratch_places)),
            )
            for step in steps
        )  # fmt: skip
        makers = tuple(
            _parts(quick_maker(first, *results[x.name])) if x.role == "out" and x.name not in given else None
            for x in signature.arrays
        )
        spans = tuple(_offsets(given.get(x.name)) for x in signature.arrays)
        arrays, out = (
            tuple(given[x.name].array if x.name in given else None for x in operands)
            for operands in (signature.inputs, signature.outputs)
        )
        values = tuple(parameters[known] for known in signature.runtime_parameters)
        done = self._launcher.remember(name, arrays, out, values, spans, launches, tuple(needs.values()), makers)
        return bool(done)

    def forget(self) -> None:
        """Forgets every call."""
        self._launcher.forget()

    def error(self, refused: Exception) -> tuple[int, RunError]:
        """The stream of a launch that the driver refused, and the error to raise."""
        name, status, stream, grid, block = refused.args
        return stream, self._functions.refused(name, grid, block, status)

    def acquire(self, stream_id: int) -> None:
        """Waits until no call is launching with a stream's scratch memory."""
        self._launcher.acquire(stream_id)

    def release(self, stream_id: int, memory: Mapping[str, Memory]) -> None:
        """Lets calls launch with what memory the stream has now."""
        for name in memory:
            self._slots.setdefault(name, len(self._slots))
        held = [memory.get(name) for name in self._slots]
        self._launcher.release(stream_id, tuple((one.address, one.size) if one is not None else (0, 0) for one in held))

    def drop(self, stream_id: int) -> None:
        """Forgets a stream."""
        self._launcher.drop(stream_id)

    def _learns(self, given: Given) -> bool:
        """Whether the program can read such arrays."""
        kind = type(given.array)
        if kind not in self._readable:
            source = source_of(given)
            self._readable[kind] = source is not None and self._launcher.learn(kind, source)
        return self._readable[kind]


def _packed(step: Step, places: Mapping[str, int]) -> Iterable[int | bytes]:
    """A launch's arguments: arrays from 0 on, scratch from -1 downwards, numbers as their types store them."""
    for argument in step.arguments:
        if isinstance(argument, str):
            yield places[argument]
        else:
            dtype, value = argument
            yield dtype.numpy.type(value).tobytes()


def _parts(made: Maker | None) -> tuple[Any, ...] | None:
    return None if made is None else (made.function, made.arguments, made.names or None)


def _offsets(given: Given | None) -> tuple[int, int]:
    """Bytes from an array's address to its first byte and behind its last; of none, or an empty one, 0."""
    if given is None or 0 in given.shape:
        return 0, 0
    low, high = span(given)
    return low - given.address, high - given.address
