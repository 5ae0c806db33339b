"""Calls that the launcher repeats are the calls that Python makes: the same launches, and the same refusals."""

from __future__ import annotations

import ctypes
import gc
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gen
from gen.dtypes import B8, B32, DType
from gen.errors import ArgumentError, GenError, RunError
from gen.families.base import Extents, Variant
from gen.families.names import search_space
from gen.families.plans import Step
from gen.families.transpose import Transpose, TransposeSpec
from gen.families.transpose.spec import MAX_AXES as PERMUTED_AXES
from gen.gpu.cuda import refused
from gen.gpu.device import GRAPH_FROM, Code, DriverFunctions
from gen.runtime import arrays, launcher
from gen.runtime.kernel import Kernel
from gen.runtime.workspace import MOST_STREAMS
from gen.toolchain.compiled import Compiled
from tests.driver import torch as fake_torch
from tests.fake_device import FakeCode, FakeDevice, FakePrepared

CONTEXT = 4321
SUM, TRANSPOSE = "reduction_sum_f32", "transpose_10_b32"
Raw = tuple[str, str, tuple[int, ...], tuple[int, ...], int, tuple[object, ...], int]
"""A launch: variant, entry, grid, block, shared bytes, arguments, stream."""
VECTORCALL = 1 << 11
"""Of a type's flags: Python calls its objects without a tuple and a dictionary of the arguments."""
_POINTER = ctypes.POINTER(ctypes.c_void_p)


class CuPyArray:
    """A CuPy array, as far as gen looks."""

    def __init__(self, array: Any, address: int | None = None, index: int = 0) -> None:
        place = int(array.__array_interface__["data"][0]) if address is None else address
        self.array, self.shape, self.strides, self.dtype = array, array.shape, array.strides, array.dtype
        self.data = SimpleNamespace(ptr=place, device_id=index)


def cupy_module() -> Any:
    """What gen asks of CuPy."""
    made: Any = ModuleType("cupy")
    state = SimpleNamespace(ptr=0)

    class Stream:
        """A stream, or a device: current within a `with`."""

        def __init__(self, handle: Any) -> None:
            self.ptr = handle.__cuda_stream__()[1] if hasattr(handle, "__cuda_stream__") else handle

        def __enter__(self) -> None:
            self.before, state.ptr = state.ptr, self.ptr

        def __exit__(self, *_: object) -> None:
            state.ptr = self.before

        @staticmethod
        def from_external(handle: Any) -> Stream:
            return Stream(handle)

    Stream.null = Stream(0)  # type: ignore[attr-defined]

    def empty(shape: tuple[int, ...], dtype: Any) -> CuPyArray:
        made.made_on.append(state.ptr)
        return CuPyArray(np.empty(shape, dtype))

    made.ndarray, made.empty, made.made_on = CuPyArray, empty, []
    made.set_stream = lambda handle: setattr(state, "ptr", handle)
    made.cuda = SimpleNamespace(
        get_current_stream=lambda: state, Stream=Stream, Device=lambda _: Stream(state.ptr)
    )  # fmt: skip
    return made


class RecordingDevice(FakeDevice):
    """A fake device with functions of the driver, which record what they are given.

    Attributes:
        raw: every launch, of the launcher and of Python.
        native: how many of them were the launcher's.
        cooperative: how many of these were cooperative.
        refusing: the status of the launcher's next launches.
        current: the context that is current.
        during: called while the launcher launches.
    """

    def __init__(self, *, functions: bool = True) -> None:
        super().__init__()
        self.raw: list[Raw] = []
        self.native = self.cooperative = 0
        self.refusing = 0
        self.current: list[int] = [CONTEXT]
        self.during: Callable[[], None] = lambda: None
        self.sizes: dict[tuple[str, str], tuple[int, ...]] = {}  # bytes of the arguments of a kernel
        if functions:
            self.functions = self._functions()

    def load(self, compiled: Compiled, variant: Variant | None = None) -> FakeCode:
        super().load(compiled, variant)
        return _RecordingCode(self, compiled, variant)

    def _functions(self) -> DriverFunctions:
        unsigned, pointer = ctypes.c_uint, ctypes.c_void_p
        kinds: tuple[Any, ...] = (
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[unsigned] * 7, pointer, _POINTER, pointer),
            ctypes.CFUNCTYPE(ctypes.c_int, _POINTER), ctypes.CFUNCTYPE(ctypes.c_int, pointer),
            ctypes.CFUNCTYPE(ctypes.c_int, _POINTER),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(ctypes.c_int)),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(ctypes.c_uint64)),
            ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[unsigned] * 7, pointer, _POINTER),
        )  # fmt: skip
        bodies = (
            self._launch, self._get, self._push, self._pop, self._is_capturing, self._stream_id,
            self._launch_cooperative,
        )  # fmt: skip
        self._kept = [kind(body) for kind, body in zip(kinds, bodies, strict=True)]
        launch, get, push, pop, capturing, identity, cooperative = (
            int(ctypes.cast(one, pointer).value or 0) for one in self._kept
        )
        return DriverFunctions(
            CONTEXT,
            (launch, get, push, pop, capturing, identity, cooperative),
            _handle,
            lambda name, grid, block, what: refused(name, grid, block, f"status {what}"),
        )

    def _launch_cooperative(self, *what: Any) -> int:
        self.cooperative += 1
        return self._launch(*what, None)

    def _launch(self, function: int, *what: Any) -> int:
        *shape, shared, stream, arguments, _ = what
        assert self.current[-1] == CONTEXT
        if self.refusing:
            return self.refusing
        named = self.handles[function - 1]
        found = tuple(
            int.from_bytes(ctypes.string_at(arguments[place], 8), "little") if size < 0
            else ctypes.string_at(arguments[place], size)
            for place, size in enumerate(self.sizes[named])
        )  # fmt: skip
        self.raw.append((*named, tuple(shape[:3]), tuple(shape[3:]), shared, found, stream))
        self.native += 1
        self.during()
        return 0

    def _get(self, context: Any) -> int:
        context[0] = self.current[-1]
        return 0

    def _push(self, context: int) -> int:
        self.current.append(context)
        return 0

    def _pop(self, context: Any) -> int:
        context[0] = self.current.pop()
        return 0

    def _is_capturing(self, stream: int, status: Any) -> int:
        status[0] = 1 if self.capture_of(stream) else 0
        return 0

    def _stream_id(self, stream: int, identity: Any) -> int:
        found = self.identity_of(stream)
        assert isinstance(found, int)
        identity[0] = found
        return 0


def _handle(code: Code, entry: str, shared_bytes: int) -> int:
    assert isinstance(code, FakeCode)
    return code.function(entry, shared_bytes)


class _RecordingCode(FakeCode):
    def prepare(self, extents: Extents, steps: Sequence[Step]) -> FakePrepared:
        device = self.gpu
        assert isinstance(device, RecordingDevice)
        for step in steps:
            sizes = tuple(-1 if isinstance(one, str) else one[0].size for one in step.arguments)
            device.sizes[self.compiled.name, step.entry] = sizes
        super().prepare(extents, steps)
        return _RecordingPrepared(self, extents, tuple(steps))


class _RecordingPrepared(FakePrepared):
    def launch(self, addresses: Mapping[str, int], numbers: Mapping[str, bytes], stream: int) -> None:
        device = self._code.gpu
        assert isinstance(device, RecordingDevice)
        super().launch(addresses, numbers, stream)
        for step in self._steps:
            found = tuple(
                addresses[one] if isinstance(one, str) else one[0].numpy.type(one[1]).tobytes()
                for one in step.arguments
            )
            name = self._code.compiled.name
            device.raw.append((name, step.entry, step.grid, step.block, step.shared_bytes, found, stream))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("launcher")


@pytest.fixture(scope="module")
def torch(cache: Path) -> Any:
    return fake_torch.module(cache)


@pytest.fixture(params=["torch", "cupy"])
def library(request: pytest.FixtureRequest, torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One of the libraries: `array` makes an array that lies where NumPy's does."""
    made = torch if request.param == "torch" else cupy_module()
    made.set_stream(0)
    made.made_on.clear()
    made.array = made.Tensor if request.param == "torch" else CuPyArray
    monkeypatch.setitem(sys.modules, request.param, made)
    monkeypatch.setattr(arrays, "_readers", {})
    return made


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, cache: Path) -> RecordingDevice:
    monkeypatch.setenv("GEN_HOME", str(cache / "home"))
    return RecordingDevice()


def aligned(shape: tuple[int, ...], dtype: Any = np.float32, offset: int = 0) -> Any:
    """An array whose address is so many bytes behind a multiple of 256."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 512, np.uint8)
    first = -int(memory.__array_interface__["data"][0]) % 256 + offset
    return memory[first : first + size].view(dtype).reshape(shape)


def test_a_repeated_call_is_launched_by_the_launcher(device: RecordingDevice, library: Any) -> None:
    kernel, a, b = (
        gen.load(TRANSPOSE, device=device),
        library.array(aligned((40, 50))),
        library.array(aligned((50, 40))),
    )
    assert kernel(a, out=b) is b
    assert device.native == 0
    for stream in (None, 0, 5, SimpleNamespace(cuda_stream=6), SimpleNamespace(ptr=7)):
        assert kernel(a, out=b, stream=stream) is b
    assert kernel(a, out=(b,)) is b
    assert device.native == 6
    first, *others = device.raw
    assert [one[-1] for one in device.raw] == [1, 1, 1, 5, 6, 7, 1]
    assert {one[:-1] for one in others} == {first[:-1]}
    library.set_stream(9)
    kernel(a, out=b)
    assert device.raw[-1] == (*first[:-1], 9)
    made = kernel(a)
    assert device.native == 7
    again = kernel(a)
    assert device.native == 8
    assert type(made) is type(again) is library.array
    assert (again.shape, str(again.dtype)) == (made.shape, str(made.dtype)) == ((50, 40), str(a.dtype))
    assert again.array.__array_interface__["data"][0] in device.raw[-1][5]


def test_a_kernel_with_a_launcher_looks_like_one_without(device: RecordingDevice) -> None:
    kernel, other = gen.load(SUM, device=device), gen.load(SUM, device=FakeDevice())
    assert type(other) is Kernel
    assert type(kernel) is not Kernel
    assert isinstance(kernel, Kernel)
    assert (type(kernel).__name__, kernel.__doc__, repr(kernel)) == ("Kernel", Kernel.__doc__, repr(other))
    assert inspect.signature(kernel) == inspect.signature(other)
    assert type(kernel).__flags__ & VECTORCALL
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None


def test_calls_of_many_sizes_in_turns_are_each_launched_as_before(device: RecordingDevice, library: Any) -> None:
    kernel = gen.load(TRANSPOSE, device=device)
    pairs = [(library.array(aligned((rows, 50))), library.array(aligned((50, rows)))) for rows in (40, 41, 42)]
    for a, out in pairs:
        kernel(a, out=out)
    first, native = device.raw.copy(), device.native
    for place in (0, 0, 1, 0, 2, 2, 1):
        a, out = pairs[place]
        kernel(a, out=out)
        assert device.raw[-1] == first[place]
    assert device.native == native + 7


def test_what_is_forgotten_while_a_stream_is_asked_is_not_launched(device: RecordingDevice, library: Any) -> None:
    kernel: Any = gen.load(TRANSPOSE, device=device)
    a, out = library.array(aligned((40, 50))), library.array(aligned((50, 40)))

    class Stream:
        """It is of Python, and so may do anything."""

        @property
        def cuda_stream(self) -> int:
            kernel._launcher.forget()
            return 5

    for _ in range(2):
        kernel(a, out=out)
    native = device.native
    kernel(a, out=out, stream=Stream())
    assert device.raw[-1] == (*device.raw[0][:-1], 5)
    assert device.native == native


def test_an_entry_that_goes_is_found_by_nobody(cache: Path, device: RecordingDevice, library: Any) -> None:
    """What it keeps may run Python as it goes, and so the same call."""
    module, functions = launcher.program(cache), device.functions
    assert module is not None
    assert functions is not None
    one = module.Launcher(functions.addresses, CONTEXT, 0, 1, (True,), (0,), (), ())
    assert one.learn(library.array, _source(library))
    device.handles, device.sizes = (
        [("old", "_entry"), ("new", "_entry")],
        {("old", "_entry"): (), ("new", "_entry"): ()},
    )
    array, found = library.array(aligned((3,))), list[object]()

    class Kept:
        """The name of a variant, which goes with its entry."""

        def __del__(self) -> None:
            found.append(one.call(array, stream=3))

    def remember(function: int) -> None:
        launches = ((function, (1, 1, 1), (1, 1, 1), 0, False, ()),)
        assert one.remember(Kept(), (array,), (), (), ((0, 12),), launches, (), (None,))

    remember(1)
    assert one.call(array, stream=3) is array
    remember(2)
    assert (found, device.raw.pop()[0]) == ([array], "new")
    one.forget()
    assert (found.pop(), one.call(array, stream=3)) == (None, None)
    assert [launch[0] for launch in device.raw] == ["old"]


def test_no_path_of_a_call_keeps_or_loses_a_reference(
    device: RecordingDevice, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, rows, out = (library.array(aligned(shape)) for shape in ((4, 50), (4, 50), (50, 4)))
    turned: Any = gen.load(TRANSPOSE, device=device)
    several = gen.load(gen.reduction("stats", axis=-1), device=device)
    usual, stream, failing = library.empty, SimpleNamespace(cuda_stream=5), list[type[BaseException]]()

    def empty(*arguments: Any, **more: Any) -> Any:
        if failing:
            raise failing[0]
        return usual(*arguments, **more)

    monkeypatch.setattr(library, "empty", empty)

    def all_paths(status: int, error: type[BaseException] | None) -> None:
        device.refusing, failing[:] = status, [] if error is None else [error]
        paths: tuple[Callable[[], object], ...] = (
            lambda: turned(a, out=out), lambda: turned(a, out=(out,), stream=stream), lambda: turned(a),
            lambda: several(rows), lambda: turned(a, out=a), lambda: turned(a, stream=object()), turned,
        )  # fmt: skip
        for call in paths:
            with suppress(GenError, ZeroDivisionError, KeyboardInterrupt):
                call()

    held = (a, rows, out, stream, turned, several, turned._repeats, type(turned), library.array, a.dtype, a.shape)
    for _ in range(3):
        all_paths(0, None)
    gc.collect()
    before, native = [sys.getrefcount(one) for one in held], device.native
    for status, error in ((0, None), (719, None), (0, ZeroDivisionError), (0, KeyboardInterrupt), (0, None)):
        for _ in range(20):
            all_paths(status, error)
            assert device.current == [CONTEXT]
    del device.raw[:]
    gc.collect()
    assert [sys.getrefcount(one) for one in held] == before
    assert device.native > native + 200


def test_what_makes_outputs_may_fail(device: RecordingDevice, library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, failing = library.empty, list[BaseException]()

    def empty(*arguments: Any, **more: Any) -> Any:
        if failing:
            raise failing[0]
        return usual(*arguments, **more)

    monkeypatch.setattr(library, "empty", empty)
    kernel, a = gen.load(TRANSPOSE, device=device), library.array(aligned((40, 50)))
    for _ in range(2):
        kernel(a)
    assert device.native == 1
    for error in (MemoryError("no more"), KeyboardInterrupt()):
        failing[:] = [error]
        with pytest.raises(type(error)) as caught:
            kernel(a)
        assert caught.value is error
    assert len(device.raw) == 2


def test_an_interrupt_while_a_stream_is_asked_is_the_callers(device: RecordingDevice, library: Any) -> None:
    kernel: Any = gen.load(TRANSPOSE, device=device)
    a, out = library.array(aligned((40, 50))), library.array(aligned((50, 40)))
    kernel(a, out=out)
    errors: list[BaseException] = [KeyboardInterrupt(), ValueError("none"), ValueError("still none"), AttributeError()]

    class Stream:
        """It is of Python, and fails some times."""

        @property
        def cuda_stream(self) -> int:
            raise errors.pop(0)

        ptr = 6

    with pytest.raises(KeyboardInterrupt):
        kernel(a, out=out, stream=Stream())
    with pytest.raises(ValueError, match="still none"):  # Python asks again, and hands on what it is told
        kernel(a, out=out, stream=Stream())
    assert len(device.raw) == 1
    kernel(a, out=out, stream=Stream())
    assert (device.native, device.raw[-1][-1]) == (1, 6)


def test_cupys_current_stream_is_that_of_the_arrays_device(
    device: RecordingDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = cupy_module()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(arrays, "_readers", {})
    there, elsewhere = SimpleNamespace(ptr=9), SimpleNamespace(ptr=3)

    def current_stream() -> object:
        return there if device.depth or device.current[-1] == CONTEXT else elsewhere

    monkeypatch.setattr(cupy.cuda, "get_current_stream", current_stream)
    kernel, a, out = gen.load(TRANSPOSE, device=device), CuPyArray(aligned((40, 50))), CuPyArray(aligned((50, 40)))
    for current in (CONTEXT, 77, 77, CONTEXT):
        device.current = [current]
        kernel(a, out=out)
        assert device.current == [current]
    assert [launch[-1] for launch in device.raw] == [9] * 4
    device.current = [77]
    kernel(a, out=out, stream=5)
    assert device.native == 2


def test_a_class_with_a_call_of_its_own_is_called_by_it(cache: Path) -> None:
    base: Any = launcher.program(cache).Repeating  # type: ignore[union-attr]

    def by_python(_: object, *given: Any, **named: Any) -> Any:
        return "by the launcher", given, named

    def called(_: object, *given: Any) -> Any:
        return "by itself", given

    derived: Any = type("Derived", (base,), {"_by_python": by_python})  # as `gen.runtime.kernel` derives one
    other: Any = type("Other", (derived,), {"__call__": called})
    assert derived()(1, out=2) == ("by the launcher", (1,), {"out": 2})
    assert other()(1) == ("by itself", (1,))
    assert (derived.__flags__ & VECTORCALL, other.__flags__ & VECTORCALL) == (VECTORCALL, 0)


def test_whatever_differs_is_not_repeated(device: RecordingDevice, library: Any) -> None:
    kernel, out = gen.load(TRANSPOSE, device=device), library.array(aligned((50, 40)))
    for _ in range(2):
        kernel(library.array(aligned((40, 50))), out=out)
    assert device.native == 1
    pitched = library.array(aligned((40, 60))[:, :50])
    for other in (aligned((40, 50), offset=4), aligned((40, 50), offset=16), aligned((40, 50), np.int32)):
        kernel(
            library.array(other), out=out if other.dtype == np.float32 else library.array(aligned((50, 40), np.int32))
        )
    kernel(pitched, out=out)
    kernel(library.array(aligned((40, 50))), out=library.array(aligned((50, 40), offset=8)))
    assert device.native == 1
    kernel(pitched, out=out)
    assert device.native == 2


@pytest.mark.parametrize("which", ["overlap", "device", "numpy", "several", "numbers", "stream", "shape"])
def test_what_python_refuses_stays_refused(device: RecordingDevice, library: Any, which: str) -> None:
    kernel = gen.load(TRANSPOSE, device=device)
    a, b = library.array(aligned((40, 50))), library.array(aligned((50, 40)))
    kernel(a, out=b)
    kernel(a, out=b)
    memory = aligned((3000,))
    one, two = (library.array(part.reshape(shape)) for part, shape in (
        (memory[:2000], (40, 50)), (memory[512:2512], (50, 40))))  # fmt: skip
    wrong: dict[str, Callable[[], object]] = {
        "overlap": lambda: kernel(one, out=two),
        "device": lambda: kernel(library.array(aligned((40, 50)), index=1), out=b),
        "numpy": lambda: kernel(a, out=aligned((50, 40))),
        "several": lambda: kernel(a, a, out=b),
        "numbers": lambda: kernel(a, out=b, steps=3),
        "stream": lambda: kernel(a, out=b, stream="main"),
        "shape": lambda: kernel(a, out=library.array(aligned((50, 41)))),
    }
    launched = len(device.raw)
    with pytest.raises(GenError):
        wrong[which]()
    assert len(device.raw) == launched


@pytest.mark.parametrize("change", [{"requires_grad": True}, {"negated": True}])
def test_tensors_that_hold_more_than_numbers_are_refused(
    device: RecordingDevice, torch: Any, change: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.set_stream(0)
    parts = aligned((4, 5), np.complex64).view(np.float32).reshape(4, 5, 2)[:, :, 1]
    kernel, a, b = gen.load(gen.reduction("sum"), device=device), torch.Tensor(parts), torch.Tensor(aligned(()))
    for _ in range(2):
        kernel(a, out=b)
    a.__dict__.update(change)
    with pytest.raises(ArgumentError, match="in must"):
        kernel(a, out=b)
    assert device.native == 1


def test_a_launch_that_the_driver_refuses(device: RecordingDevice, library: Any) -> None:
    kernel, a, out = gen.load(SUM, device=device), library.array(aligned((2**18,))), library.array(aligned(()))
    kernel(a, out=out)
    kernel(a, out=out)
    zeroed = len(device.zeroed)
    device.refusing = 719
    with pytest.raises(RunError, match=r"reduction_sum_f32__\w+ cannot be launched \(got grid \(.*: status 719\)"):
        kernel(a, out=out)
    device.refusing = 0
    native = device.native
    kernel(a, out=out)
    assert len(device.zeroed) == zeroed + 1  # what the launch left is not used again
    assert device.native == native
    kernel(a, out=out)
    assert device.native == native + 1


def test_results_are_made_on_the_stream_that_is_named(device: RecordingDevice, library: Any) -> None:
    kernel, a = gen.load(TRANSPOSE, device=device), library.array(aligned((40, 50)))
    library.set_stream(9)
    for stream in (None, None, 5, 5, 9):
        kernel(a, stream=stream)
    assert library.made_on == [9, 9, 5, 5, 9]
    assert [one[-1] for one in device.raw] == [9, 9, 5, 5, 9]
    assert device.native == 2


@pytest.mark.parametrize("without", ["_C", "_dynamo", "_empty_strided_cuda", "device"])
def test_results_lie_on_the_device_of_the_call_whatever_makes_them(
    device: RecordingDevice, torch: Any, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.set_stream(0)
    if without == "device":
        monkeypatch.setattr(torch, "current_device", 1)
    else:
        owner = {"_C": torch, "_dynamo": torch._C}.get(without, torch._C._dynamo.guards)
        monkeypatch.delattr(owner, without)
    kernel, a = gen.load(TRANSPOSE, device=device), torch.Tensor(aligned((40, 50)))
    found = [kernel(a) for _ in range(3)]
    assert {(one.index, one.shape, one.dtype) for one in found} == {(0, (50, 40), a.dtype)}
    assert device.native == (0 if without == "device" else 2)  # Python makes what the quick way makes elsewhere


def test_what_a_kernel_writes_must_not_require_gradients(
    device: RecordingDevice, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    torch.set_stream(0)
    monkeypatch.setattr(torch, "is_grad_enabled", lambda: False)  # then an input may
    kernel = gen.load(TRANSPOSE, device=device)
    a, out = torch.Tensor(aligned((40, 50))), torch.Tensor(aligned((50, 40)))
    for repeated in (False, True):
        if repeated:
            kernel(a, out=out)
            kernel(a, out=out)
        launched = len(device.raw)
        out.requires_grad = True
        with pytest.raises(ArgumentError, match=r"out must not require gradients, .*Pass out\.detach\(\)"):
            kernel(a, out=out)
        with pytest.raises(ArgumentError, match="out must not require gradients"):
            gen.matrix_transpose(a, out=out, device=device)
        assert len(device.raw) == launched
        a.requires_grad, out.requires_grad = True, False
        assert kernel(a, out=out) is out
        a.requires_grad = False


def test_arrays_of_two_libraries_wait_for_each_other(
    device: RecordingDevice, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy = cupy_module()
    for name, module, stream in (("torch", torch, 8), ("cupy", cupy, 9)):
        monkeypatch.setitem(sys.modules, name, module)
        module.set_stream(stream)
    monkeypatch.setattr(arrays, "_readers", {})
    kernel = gen.load(TRANSPOSE, device=device)
    a, b = ((kind(aligned((40, 50))), kind(aligned((50, 40)))) for kind in (torch.Tensor, CuPyArray))
    for one, other in ((a, b), (a, b), (b, a), (b, a), (a, a), (b, b), (a, b)):
        kernel(one[0], out=other[1])
    assert device.waits == [(8, 9), (8, 9), (9, 8), (9, 8), (8, 9)]
    assert device.native == 0
    for one in (a, b):
        kernel(one[0], out=one[1])
    assert device.native == 2


def test_a_launch_has_every_axis_of_its_grid_and_block(cache: Path, device: RecordingDevice, library: Any) -> None:
    module, functions = launcher.program(cache), device.functions
    assert module is not None
    assert functions is not None
    one = module.Launcher(functions.addresses, CONTEXT, 0, 1, (True,), (0,), (), ())
    assert one.learn(library.array, _source(library))
    device.handles, device.sizes = [("name", "_entry")], {("name", "_entry"): (-1, 4, -1)}
    array = library.array(aligned((3,)))
    launches = tuple((1, (2, 3, 4), (5, 6, 7), 8, cooperative, (0, b"1234", -1)) for cooperative in (False, True))
    assert one.remember("name", (array,), (), (), ((0, 12),), launches, ((0, 16),), (None,))
    assert one.call(array, stream=3) is None  # no memory yet
    one.acquire(3)
    assert one.call(array, stream=3) is None
    one.release(3, ((4096, 16),))
    device.during = one.forget  # while it is used
    assert one.call(array, stream=3) is array
    expected = (
        "name",
        "_entry",
        (2, 3, 4),
        (5, 6, 7),
        8,
        (array.array.__array_interface__["data"][0], b"1234", 4096),
        3,
    )
    assert device.raw == [expected, expected]
    assert device.cooperative == 1  # the second is cooperative
    assert one.call(array, stream=3) is None


def _source(library: Any) -> Any:
    """How the launcher reads arrays of a library."""
    found = getattr(library.array, "__dlpack_c_exchange_api__", None)
    return library.cuda.get_current_stream if found is None else found


def test_another_context_is_put_back(device: RecordingDevice, library: Any) -> None:
    kernel, a, out = gen.load(SUM, device=device), library.array(aligned((100,))), library.array(aligned(()))
    kernel(a, out=out, stream=5)
    device.current = [77]
    kernel(a, out=out, stream=5)
    assert device.native == 1
    assert device.current == [77]


def test_streams_have_scratch_of_their_own_and_graphs_too(device: RecordingDevice, library: Any) -> None:
    kernel, out = gen.load(SUM, device=device), library.array(aligned(()))
    small, large = library.array(aligned((2**18,))), library.array(aligned((2**22,)))

    def pointers(array: Any, stream: int) -> tuple[object, ...]:
        kernel(array, out=out, stream=stream)
        assert device.raw[-1][-1] == stream
        return tuple(one for one in device.raw[-1][5] if isinstance(one, int))

    first, other = pointers(small, 5), pointers(small, 6)
    assert (pointers(small, 5), pointers(small, 6), device.native) == (first, other, 2)
    assert first != other
    device.captures[5] = 1
    in_graph = pointers(small, 5)
    assert in_graph not in (first, other)
    assert pointers(small, 5) == in_graph
    assert device.native == 2
    device.captures[5] = 0
    assert pointers(small, 5) == first
    pointers(large, 5)  # which may move the scratch
    moved = pointers(small, 5)
    held = kernel._workspace._streams[5]._held
    assert {memory.address for memory in held.values()} <= set(moved)
    assert device.native == 4
    device.identities[5] = 99  # a new stream with an old handle
    assert not {memory.address for memory in held.values()} & set(pointers(small, 5))
    for stream in range(100, 100 + MOST_STREAMS):
        pointers(small, stream)
    native = device.native
    pointers(small, 6)
    assert device.native == native  # it was given back


def test_who_launches_with_scratch_keeps_others_out(device: RecordingDevice, library: Any) -> None:
    kernel, out = gen.load(SUM, device=device), library.array(aligned(()))
    a = library.array(aligned((2**18,)))
    for _ in range(2):
        kernel(a, out=out, stream=5)
    order: list[str] = []
    done = threading.Event()

    def other() -> None:
        kernel(a, out=out, stream=5)
        order.append("other")
        done.set()

    def during() -> None:
        device.during = lambda: None
        threading.Thread(target=other).start()
        assert not done.wait(0.2)
        order.append("first")

    device.during = during
    kernel(a, out=out, stream=5)
    assert done.wait(300)
    assert order == ["first", "other"]


def test_what_makes_outputs_may_call_the_kernel(
    device: RecordingDevice, library: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, a, out = gen.load(SUM, device=device), library.array(aligned((2**18,))), library.array(aligned(()))
    usual = library.empty

    def empty(*arguments: Any, **more: Any) -> Any:
        kernel(a, out=out)
        return usual(*arguments, **more)

    monkeypatch.setattr(library, "empty", empty)
    for _ in range(4):
        kernel(a)
    assert len(device.raw) == 8
    assert device.native == 6


def test_threads_share_a_kernel(device: RecordingDevice, library: Any) -> None:
    kernel = gen.load(SUM, device=device)

    def work(stream: int) -> None:
        a, out = library.array(aligned((2**18,))), library.array(aligned(()))
        for _ in range(200):
            assert kernel(a, out=out, stream=stream) is out

    threads = [threading.Thread(target=work, args=(stream,)) for stream in range(3, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(device.raw) == 8 * 200
    assert device.native > 7 * 200
    scratch: dict[object, set[object]] = {}
    for one in device.raw:
        scratch.setdefault(one[-1], set()).add(one[5])
    assert all(len(found) == 1 for found in scratch.values())
    assert len(scratch) == 8


def test_calls_of_many_launches_are_pythons(device: RecordingDevice, library: Any) -> None:
    kernel = gen.load(gen.stencil(gen.star(2, 1)), device=device)
    image, out = library.array(aligned((400, 501))), library.array(aligned((400, 501)))
    for _ in range(3):
        kernel(image, out=out, steps=100)
        kernel(image, out=out, steps=1)
    assert len(device.graphs) == 1
    assert len(device.launched[0].steps) >= GRAPH_FROM
    assert device.native == 2


@pytest.mark.parametrize("dtype", [B8, B32])
def test_no_permutation_has_more_arguments_than_the_launcher_takes(dtype: DType) -> None:
    text = Path(launcher.__file__).with_suffix(".cpp").read_text(encoding="utf-8")
    most = int(text.partition("kMostArguments = ")[2].partition(";")[0])
    spec = TransposeSpec(tuple(reversed(range(PERMUTED_AXES))), dtype)
    counts = {
        (name, max(len(one.arguments) for one in algorithm.plan(spec, config).launches))
        for name, algorithm in Transpose().algorithms.items()
        for config in search_space(algorithm, spec)
    }
    assert 48 < max(count for _, count in counts) <= most


def test_it_is_built_once_and_missed_where_it_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: Any, device: RecordingDevice
) -> None:
    monkeypatch.delitem(sys.modules, launcher.NAME, raising=False)
    monkeypatch.setattr(launcher, "_without", [])
    monkeypatch.setattr(launcher, "which", lambda _: None)
    assert launcher.program(tmp_path) is None
    assert "needs g++" in launcher._without[0]
    kernel, a, out = gen.load(SUM, device=device), library.array(aligned((100,))), library.array(aligned(()))
    for _ in range(2):
        assert kernel(a, out=out) is out
    assert (device.native, len(device.raw)) == (0, 2)


SPECS: tuple[tuple[Any, str, int], ...] = (
    (gen.reduction("sum"), "f4", 1), (gen.reduction("sum", axis=1), "f4", 2), (gen.reduction("sum", axis=0), "f4", 2),
    (gen.reduction("stats", axis=-1), "f4", 2), (gen.reduction("max", "i16", axis=(0, 2)), "i2", 3),
    (gen.reduction("argmin", "uint8", axis=0), "u1", 2), (gen.reduction("var", "float16", ddof=1), "f2", 2),
    (gen.permutation((1, 0), "f4"), "f4", 2), (gen.permutation((1, 0), "uint8"), "u1", 2),
    (gen.permutation((0, 2, 1), "f2"), "f2", 3), (gen.permutation((2, 0, 1), "f8"), "f8", 3),
    (gen.permutation((1, 0), "f4", in_place=True), "f4", 2), (gen.permutation((1, 0), "f4", to="f2"), "f4", 2),
    (gen.stencil(gen.star(2, 1)), "f4", 2), (gen.stencil(gen.star(1, 2), boundary="wrap"), "f4", 1),
)  # fmt: skip


@dataclass
class Pair:
    """A kernel with the launcher, and one without."""

    devices: tuple[RecordingDevice, RecordingDevice]
    kernels: tuple[Kernel, Kernel]
    memory: Any = field(default_factory=lambda: aligned((1 << 26,), np.uint8))


@st.composite
def lying(draw: st.DrawFn, dtype: str, axes: int) -> tuple[int, tuple[int, ...], tuple[int, ...], str]:
    """Where an array lies in the memory of a pair, its shape, strides and dtype; now and then of others."""
    if not draw(st.integers(0, 9)):
        dtype = draw(st.sampled_from(("f4", "f2", "i4", "u1", "f8", "c8")))
    if not draw(st.integers(0, 9)):
        axes = draw(st.integers(0, 4))
    size = np.dtype(dtype).itemsize
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 8, 16, 20, 32, 33)), min_size=axes, max_size=axes)))
    if shape and not draw(st.integers(0, 14)):
        shape = (0, *shape[1:])
    order = draw(st.permutations(range(axes))) if not draw(st.integers(0, 3)) else list(range(axes))
    strides, step = [0] * axes, size * draw(st.sampled_from((1, 1, 1, 1, 1, 2)))
    for place, axis in enumerate(reversed(order)):
        strides[axis] = step
        step *= max(shape[axis], 1) + (draw(st.sampled_from((0, 0, 0, 4, 3))) if place == 0 else 0)
    # Few places, so that arrays often overlap, and the same call often comes again.
    offset = draw(st.sampled_from((0, 0, 1 << 18, 1 << 19))) + size * draw(st.sampled_from((0, 0, 0, 1, 4, 8)))
    return offset, shape, tuple(strides), dtype


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, list[Any], Any, dict[str, Any], int]:
    """Of a spec by number: the inputs, out, stream and parameters, and the current stream."""
    which = draw(st.integers(0, len(SPECS) - 1))
    spec, dtype, axes = SPECS[which]
    inputs = [draw(lying(dtype, axes))]
    outputs = [operand for operand in spec.operands if operand.role == "out"]
    out: Any = None
    if draw(st.booleans()):
        out = tuple(
            draw(lying(operand.dtype.numpy.str[1:], len(operand.axes))) if draw(st.integers(0, 3)) else draw(fitting())
            for operand in outputs
        )
    more: dict[str, Any] = {"stream": draw(st.sampled_from((None, None, 0, 1, 5, 6)))}
    if spec.label.startswith("stencil") and draw(st.booleans()):
        more["steps"] = draw(st.sampled_from((0, 1, 2, 3, 40)))
    return which, inputs, out, more, draw(st.sampled_from((0, 0, 5)))


@st.composite
def fitting(draw: st.DrawFn) -> int:
    """Where an output lies that is what the kernel writes."""
    return draw(st.sampled_from((1 << 18, 1 << 19, 3 << 18, (3 << 18) + 4)))


def array_of(library: Any, memory: Any, place: Any) -> Any:
    offset, shape, strides, dtype = place
    return library.array(np.ndarray(shape, dtype, memory.data, offset, strides))


def outcome(library: Any, pair: Pair, which: int, call: Any) -> object:
    """What comes of a call: launches and results, or an error; addresses of what is made by name."""
    _, inputs, out, more, current = call
    device, kernel = pair.devices[which], pair.kernels[which]
    library.set_stream(current)
    del device.raw[:]
    given = [array_of(library, pair.memory, place) for place in inputs]
    results: Any = None
    if out is not None:
        results = tuple(_output(library, pair, place, index, given, more) for index, place in enumerate(out))
    try:
        found = kernel(*given, out=results, **more)
    except GenError as error:
        return type(error), str(error), len(device.raw)
    made = found if isinstance(found, tuple) else (found,)
    named = {one.array.__array_interface__["data"][0]: f"result {place}" for place, one in enumerate(made)
             if one not in given and one not in (results or ())}  # fmt: skip
    for buffers in kernel._workspace._streams.values():
        named |= {memory.address: name for name, memory in buffers._held.items()}
    launches = [
        (*one[:5], tuple(named.get(x, x) if isinstance(x, int) else x for x in one[5]), one[6]) for one in device.raw
    ]
    return launches, [(one.shape, str(one.dtype)) for one in made]


def _output(library: Any, pair: Pair, place: Any, index: int, given: list[Any], more: Any) -> Any:
    """An output as drawn, or where an offset is drawn, of the shape and dtype that the kernel without launcher says."""
    if not isinstance(place, int):
        return array_of(library, pair.memory, place)
    parameters = {name: value for name, value in more.items() if name != "stream"}
    try:
        made = pair.kernels[1](*given, **parameters)
    except GenError:
        return array_of(library, pair.memory, (place, (1,), (4,), "f4"))
    finally:
        del pair.devices[1].raw[:]
    one = (made if isinstance(made, tuple) else (made,))[index].array
    return array_of(library, pair.memory, (place, one.shape, one.strides, one.dtype.str[1:]))


def _same(library: Any, known: dict[int, Pair], call: Any) -> None:
    which = call[0]
    if which not in known:
        devices = RecordingDevice(), RecordingDevice(functions=False)
        first, second = (gen.load(SPECS[which][0], device=one) for one in devices)
        known[which] = Pair(devices, (first, second))
    pair = known[which]
    expected = outcome(library, pair, 1, call)
    assert outcome(library, pair, 0, call) == expected
    assert outcome(library, pair, 0, call) == expected


@pytest.mark.parametrize("count", [300, pytest.param(20 * settings().max_examples, marks=pytest.mark.exhaustive)])
def test_the_launcher_and_python_do_the_same(
    library: Any, monkeypatch: pytest.MonkeyPatch, cache: Path, count: int
) -> None:
    monkeypatch.setenv("GEN_HOME", str(cache / "home"))
    known: dict[int, Pair] = {}

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(calls())
    def check(call: Any) -> None:
        _same(library, known, call)

    check()
    native = sum(pair.devices[0].native for pair in known.values())
    assert native > count / 20
