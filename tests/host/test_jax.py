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
        self.cleared: list[tuple[int, int]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.status = 0
        unsigned, pointer = ctypes.c_uint, ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[unsigned] * 7, pointer, ctypes.POINTER(pointer), pointer)
        self._launch = kind(self.launch)
        self._memset = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_ubyte, ctypes.c_size_t, pointer)(
            self.memset
        )
        self.places = tuple(ctypes.cast(one, pointer).value or 0 for one in (self._launch, self._memset))

    def launch(self, function: int, *given: Any) -> int:
        shape, arguments = given[:7], given[8]
        addresses = tuple(ctypes.c_uint64.from_address(arguments[place]).value for place in range(3))
        self.launched.append((function, shape, addresses))
        ctypes.c_float.from_address(addresses[1]).value = 7.0
        return self.status

    def memset(self, address: int, _: int, size: int, __: int) -> int:
        self.cleared.append((address, size))
        return 0


def test_a_program_launches_what_a_call_would() -> None:
    size, driver = 2**20, Driver()
    kernel = gen.load("reduction_sum_f32", device=FakeDevice())
    planned = kernel.planned((size,), np.dtype(np.float32), {})
    (step,) = planned.steps
    assert len(planned.scratch) > 0
    functions = DriverFunctions(0, (driver.places[0], 0, 0, 0, 0, 0, 0), lambda *_: 77, SimpleNamespace)  # type: ignore[arg-type]
    library = xla.library(jax.ffi.include_dir())
    jax.ffi.register_ffi_target(xla.HOST_TARGET, jax.ffi.pycapsule(library.gen_launch_on_host), platform="cpu")
    words = xla._words(planned, functions, driver.places[1])
    library.gen_keep(5, (ctypes.c_uint64 * len(words))(*words))
    results = [((), np.float32), *(((one.size,), np.uint8) for one in planned.scratch)]
    seen = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results]

    def program(number: int) -> Any:
        return jax.jit(lambda x: jax.ffi.ffi_call(xla.HOST_TARGET, seen)(x, plan=np.int64(number))[0])

    x = jax.numpy.ones(size)
    assert program(5)(x) == 7
    ((function, shape, addresses),) = driver.launched
    assert (function, shape) == (77, (*step.grid, *step.block, step.shared_bytes))
    assert addresses[0] == x.unsafe_buffer_pointer()
    zeroed = [one.size for one in planned.scratch if one.zeroed]
    assert [size for _, size in driver.cleared] == zeroed
    assert find_variant(gen.families.FAMILIES, kernel.variant_for(size), {}).plan.scratch
    with pytest.raises(Exception, match="compiled by another process"):
        program(6)(x).block_until_ready()
    driver.status = 400
    with pytest.raises(Exception, match="the driver refused to launch, with status 400"):
        program(5)(x).block_until_ready()
