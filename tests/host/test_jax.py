"""gen's functions in programs of JAX on the CPU run; where JAX is not installed, all of it is skipped."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import DeviceError
from gen.families.names import find_variant
from gen.gpu.device import DriverFunctions
from tests.fake_device import FakeDevice

jax = pytest.importorskip("jax")

import gen.jax  # noqa: E402
from gen.runtime import xla  # noqa: E402
from tests.jax_functions import *  # noqa: E402, F403

pytestmark = pytest.mark.filterwarnings("default")  # JAX warns of its own


CONTEXT = 4321


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GEN_DEVICE", "cpu")
    return "cpu"


def test_the_cpu_run_must_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEN_DEVICE")
    with pytest.raises(DeviceError, match=r"gen.jax needs a GPU that JAX sees .*GEN_DEVICE=cpu"):
        gen.jax.sum(numbers(3, 4))  # noqa: F405


class Driver:
    """Functions in the driver's place, which note what they are given; every launch writes its number."""

    def __init__(self) -> None:
        self.cleared: list[int] = []
        self.freed: list[int] = []
        self.launched: list[tuple[Any, ...]] = []
        self.memory: list[Any] = []
        self.contexts: list[int] = []
        self.stream = 5
        self.status = 0
        integer, unsigned, pointer, word = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p, ctypes.c_uint64
        words = ctypes.POINTER(word)
        kinds: dict[str, tuple[Any, ...]] = {
            "launch": (pointer, *[unsigned] * 7, pointer, ctypes.POINTER(pointer), pointer),
            "memset": (word, ctypes.c_ubyte, ctypes.c_size_t, pointer), "allocate": (words, ctypes.c_size_t),
            "free": (word,), "stream_id": (pointer, words), "push": (pointer,), "pop": (words,),
        }  # fmt: skip
        self._kept = [ctypes.CFUNCTYPE(integer, *kind)(getattr(self, name)) for name, kind in kinds.items()]
        self.places = tuple(ctypes.cast(one, pointer).value or 0 for one in self._kept)

    def launch(self, function: int, *given: Any) -> int:
        shape, arguments = given[:7], given[8]
        addresses = tuple(ctypes.c_uint64.from_address(arguments[place]).value for place in range(4))
        self.launched.append((function, shape, addresses))
        ctypes.c_float.from_address(addresses[1]).value = 7.0
        return self.status

    def memset(self, address: int, _: int, size: int, __: int) -> int:
        assert (address, size) == (ctypes.addressof(self.memory[-1]), len(self.memory[-1]))
        assert self.contexts == [CONTEXT]
        self.cleared.append(size)
        return 0

    def allocate(self, address: Any, size: int) -> int:
        self.memory.append(ctypes.create_string_buffer(size))
        address[0] = ctypes.addressof(self.memory[-1])
        return 0

    def free(self, address: int) -> int:
        self.freed.append(address)
        return 0

    def stream_id(self, _: int, found: Any) -> int:
        found[0] = self.stream
        return 0

    def push(self, context: int) -> int:
        self.contexts.append(context)
        return 0

    def pop(self, found: Any) -> int:
        found[0] = self.contexts.pop()
        return 0


def test_a_program_launches_what_a_call_would() -> None:
    size, driver = 2**20, Driver()
    kernel = gen.load("reduction_sum_f32", device=FakeDevice())
    planned = kernel.planned((size,), np.dtype(np.float32), {})
    (step,) = planned.steps
    launch, *others = driver.places
    functions = DriverFunctions(CONTEXT, (launch, 0, 0, 0, 0, 0, 0), lambda *_: 77, SimpleNamespace)  # type: ignore[arg-type]
    library = xla.library(jax.ffi.include_dir())
    jax.ffi.register_ffi_target(xla.HOST_TARGET, jax.ffi.pycapsule(library.gen_launch_on_host), platform="cpu")
    words = xla._words(planned, functions, tuple(others))
    library.gen_keep(5, (ctypes.c_uint64 * len(words))(*words))
    plain = [one for one in planned.scratch if not one.zeroed]
    (zeroed,) = (one for one in planned.scratch if one.zeroed)
    results = [((), np.float32), *(((one.size,), np.uint8) for one in plain)]
    seen = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]

    def program(number: int) -> Any:
        return jax.jit(lambda x: jax.ffi.ffi_call(xla.HOST_TARGET, seen)(x, plan=np.int64(number))[0])

    x = jax.numpy.ones(size)
    for _ in range(2):
        assert program(5)(x) == 7
    (function, shape, addresses), again = driver.launched
    assert (function, shape) == (77, (*step.grid, *step.block, step.shared_bytes))
    assert addresses[0] == x.unsafe_buffer_pointer()
    names = [name for name in step.arguments if isinstance(name, str)]
    place = names.index(zeroed.name)
    assert addresses[place] == again[2][place] == ctypes.addressof(driver.memory[0])
    assert driver.cleared == [-(-zeroed.size // 256) * 256]  # once, before the first call alone
    assert find_variant(gen.families.FAMILIES, kernel.variant_for(size), {}).plan.scratch
    with pytest.raises(Exception, match="compiled by another process"):
        program(6)(x).block_until_ready()
    driver.status = 400
    with pytest.raises(Exception, match="the driver refused to launch, with status 400"):
        program(5)(x).block_until_ready()
    driver.status = 0
    assert program(5)(x) == 7
    assert driver.freed == [ctypes.addressof(driver.memory[0])]  # of which nobody knows what it holds
    driver.stream = 6
    assert program(5)(x) == 7
    assert len(driver.cleared) == len(driver.memory) == 3
    assert driver.contexts == []
