"""Calls of an exported library up to the driver, of which a stand-in, counted.cpp, writes down what it is asked.

tests/host/test_export.py runs it with Python alone: `python exported_calls.py FOLDER`, which holds the module `demo`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, sys.argv[1])
import demo  # type: ignore[import-not-found]

driver = ctypes.CDLL("libcuda.so.1")
driver.stub_log.restype = ctypes.c_char_p
library = demo._library
SUM = demo.reduction_sum_f32
TWO_PASSES = 2**26 + 1  # elements whose sum takes scratch memory


class Array:
    """What `__cuda_array_interface__` says of one."""

    def __init__(self, address: int, shape: tuple[int, ...], **more: Any) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": shape, "typestr": "<f4", "strides": None, "version": 3, **more
        }  # fmt: skip


def log() -> list[str]:
    return [*driver.stub_log().decode().splitlines()]


def error_of(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """What a call is refused with; nothing where it is not."""
    try:
        call(*arguments, **named)
    except demo.Error as error:
        return str(error)
    return ""


def refused(words: str, *arguments: Any, **named: Any) -> None:
    """Holds a sum to an error of these words, and to no launch."""
    log()
    found = error_of(SUM, *arguments, **named)
    assert words in found, (words, found)
    assert not launches(log()), words


def total(count: int, stream: int = 64) -> list[str]:
    """What a sum of so many elements asks of the driver."""
    log()
    SUM(Array(1 << 40, (count,)), out=Array(1 << 45, ()), stream=stream)
    return log()


def heat(side: int, stream: int) -> list[str]:
    """What many steps of a stencil, which take scratch memory of the array's size, ask of the driver."""
    log()
    there, out = Array(1 << 40, (side, side)), Array(1 << 45, (side, side))
    demo.stencil_heat_de794a2b_f32(there, out=out, steps=200, stream=stream)
    return log()


def launches(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("launch")]


def repeated_calls_launch_alone() -> None:
    for count in (1000, TWO_PASSES):
        first, second = total(count), total(count)
        assert "module" in first
        assert second == launches(first), second
        plan = demo.plan(SUM, (count,)).splitlines()
        assert len(second) == len(plan) - 1
        for line, told in zip(second, plan[1:], strict=True):
            entry, _, rest = told.partition("<<<")
            assert line.startswith(f"launch {plan[0]}{entry} {rest.partition('), ')[0]}) on 64"), (line, told)
    assert "retain" not in total(1000)
    assert any(line.startswith("shared") for line in heat(64, 64))
    again = heat(64, 64)
    assert again == launches(again), again


def graphs_begin_with_launches_and_keep_their_memory() -> None:
    own = 128
    driver.stub_set(0, ctypes.c_void_p(own))
    refused(
        "must be there before a graph is captured", Array(1 << 40, (TWO_PASSES,)), out=Array(1 << 45, ()), stream=own
    )
    for call in (partial(total, TWO_PASSES), partial(heat, 4096)):
        driver.stub_set(0, None)
        call(own)
        driver.stub_set(0, ctypes.c_void_p(own))
        captured = call(own)
        assert captured == launches(captured), captured
    driver.stub_set(0, None)
    assert "free" not in heat(8192, own)  # the graph holds the addresses
    heat(4096, 256)
    assert "free" in heat(8192, 256)


def memory_of_a_refused_launch_is_zeroed_again() -> None:
    assert "zero" not in " ".join(total(TWO_PASSES))
    driver.stub_set(1, None)
    found = error_of(total, TWO_PASSES)
    assert "cuLaunchKernel (got invalid argument)" in found, found
    driver.stub_set(0, None)
    assert any(line.startswith("zero") for line in total(TWO_PASSES))


def streams_come_and_go() -> None:
    frees = sum(total(TWO_PASSES, 1000 + stream).count("free") for stream in range(200))
    assert frees > 100


def threads_have_streams_of_their_own() -> None:
    def calls(stream: int) -> None:
        for _ in range(50):
            SUM(Array(1 << 40, (TWO_PASSES,)), out=Array(1 << 45, ()), stream=stream)

    log()
    threads = [threading.Thread(target=calls, args=(stream,)) for stream in (512, 513, 514, 514)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = launches(log())
    assert [sum(line.endswith(f" on {stream}") for line in lines) for stream in (512, 513, 514)] == [
        len(lines) // 4, len(lines) // 4, len(lines) // 2
    ]  # fmt: skip


def repeated_calls_neither_lock_nor_allocate() -> None:
    """But where scratch memory is used: another thread may launch with that of the same stream."""

    def call(count: int) -> None:
        there, out = demo._tensor(1 << 40, (count,), None, (2, 32), 0), demo._tensor(1 << 45, (), None, (2, 32), 0)
        for _ in range(2):
            taken, made = ctypes.c_int(-1), ctypes.c_int(-1)
            status = driver.stub_counted(
                library.reduction_sum_f32, ctypes.byref(there), ctypes.byref(out), ctypes.c_void_p(4000),
                ctypes.byref(taken), ctypes.byref(made),
            )  # fmt: skip
            assert status == 0, library.demo_error()
            found.append((taken.value, made.value))

    for count, wanted in ((1000, 0), (TWO_PASSES, 1)):
        found: list[tuple[int, int]] = []
        thread = threading.Thread(target=call, args=(count,))  # which has not called before
        thread.start()
        thread.join()
        first, second = found
        assert first[0] > wanted
        assert second == (wanted, 0), second


def devices_without_code_are_refused() -> None:
    def call(context: int, major: int) -> None:
        driver.stub_enter(ctypes.c_void_p(context), major)
        for _ in range(2):  # also where the context is known
            refused(
                f"reduction_sum_f32 has code for sm_90 (got Stub GPU, sm_{major}0). Export it again with another",
                Array(1 << 40, (8,)), out=Array(1 << 45, ()), stream=64,
            )  # fmt: skip
        there, out = demo._tensor(1 << 40, (8,), None, (2, 32), 0), demo._tensor(1 << 45, (), None, (2, 32), 0)
        assert library.reduction_sum_f32(ctypes.byref(there), ctypes.byref(out), None) == 3
        done.append(major)

    done: list[int] = []
    for context, major in ((1 << 20, 8), (1 << 21, 10)):  # in threads that end, with the contexts that are current
        thread = threading.Thread(target=call, args=(context, major))
        thread.start()
        thread.join()
    driver.stub_enter(None, 9)
    assert done == [8, 10]
    assert launches(total(8))


class Tensor:
    """A tensor of torch that requires gradients, as far as the module looks."""

    __module__ = "torch"
    is_cuda, layout, requires_grad, device = True, "strided", True, "cuda:0"


def tensors_that_require_gradients_are_refused_as_results() -> None:
    recording = False
    sys.modules["torch"] = torch = ModuleType("torch")
    state = SimpleNamespace(strided="strided", is_grad_enabled=lambda: recording)
    torch.__dict__.update(vars(state))
    refused("out must not require gradients", Array(1 << 40, (8,)), out=Tensor(), stream=64)
    recording = True
    refused("in must not require gradients", Tensor(), out=Array(1 << 45, ()), stream=64)
    del sys.modules["torch"]


class Number:
    """A whole number of another library."""

    def __index__(self) -> int:
        return 3


def what_is_wrong_is_refused() -> None:
    x, out = Array(1 << 40, (8,)), Array(1 << 45, ())
    refused("in is missing (got a null pointer)", Array(0, (8,)), out=out)
    refused("out is missing (got a null pointer)", x, out=Array(0, ()))
    refused("in must step by a multiple of 4 bytes", Array(1 << 40, (8,), strides=(6,)), out=out)
    refused("in must hold numbers (got <M8)", Array(1 << 40, (8,), typestr="<M8"), out=out)
    refused("in must hold f32 elements (got f64)", Array(1 << 40, (8,), typestr="<f8"), out=out)
    refused("in must be of the machine's byte order", Array(1 << 40, (8,), typestr=">f4"), out=out)
    refused("in must have no mask", Array(1 << 40, (8,), mask=x), out=out)
    refused("out must be writable", x, out=Array(1 << 45, (), data=(1 << 45, True)))
    refused("must be a stream of torch or CuPy", x, out=out, stream="own")
    refused("out must be as many arrays as there are outputs", x, out=(out, out))
    refused("in must be an array on a GPU", [1.0], out=out)
    odd: Any
    for odd in ({"data": None}, {"shape": 8}, {"shape": (0.5,)}, {"typestr": "f"}, {"typestr": "<f?"}, {"strides": 4}):
        refused("in.__cuda_array_interface__ cannot be read (got ", Array(1 << 40, **{"shape": (8,), **odd}), out=out)
    refused("numbers of more than 64 bits", Array(1 << 40, (8 + (1 << 64),)), out=out)
    for odd in (8, ("a",), (2.0,), (-1,), (1,) * 9, None, (1 << 63,)):
        found = error_of(demo.plan, SUM, odd)
        assert found.startswith("A shape must be at most 8 whole numbers"), (odd, found)
    assert error_of(demo.plan, SUM, (8,), device=5).startswith("device must be the name of an architecture")
    assert error_of(demo.plan, SUM, (8,), device="sm_70").startswith("device must be null or one of ")
    heated = demo.stencil_heat_de794a2b_f32
    for odd in (-1, True, 0.5, "3", 1 << 31):
        assert error_of(demo.plan, heated, (8, 8), steps=odd).startswith("steps must be a whole number"), odd
    assert "heat" in demo.plan(heated, (8, 8), steps=Number())
    shape = (ctypes.c_int64 * 1)(8)
    size = ctypes.c_size_t()
    for function, arguments, words in (
        ("_pointers", (None, ctypes.c_void_p(1 << 45), shape, 1, None, 0, None), "in is missing"),
        ("_pointers", (ctypes.c_void_p(1 << 40), ctypes.c_void_p(1 << 45), None, 1, None, 0, None), "shape is missing"),
        (
            "_pointers",
            (ctypes.c_void_p(1 << 40), ctypes.c_void_p(1 << 45), shape, 9, None, 0, None),
            "ndim must be from",
        ),
        ("_workspace", (shape, 1, None), "bytes is missing"),
        ("_results", (shape, 1, None, ctypes.byref(ctypes.c_int())), "results is missing"),
        ("_results", (shape, 1, ((ctypes.c_int64 * 8) * 1)(), None), "ndims is missing"),
    ):
        assert getattr(library, f"reduction_sum_f32{function}")(*arguments) == 1, function
        assert words in library.demo_error().decode(), library.demo_error()
    tensor = demo._tensor(1 << 40, (8,), (1 << 62,), (2, 32), 0)
    target = demo._tensor(1 << 45, (), None, (2, 32), 0)
    assert library.reduction_sum_f32(ctypes.byref(tensor), ctypes.byref(target), None) == 1
    assert "strides of less than 2^63 bytes" in library.demo_error().decode()
    tensor.shape = None
    assert library.reduction_sum_f32(ctypes.byref(tensor), ctypes.byref(target), None) == 1
    assert "in.shape is missing" in library.demo_error().decode()
    large = (ctypes.c_int64 * 1)(TWO_PASSES)
    assert library.reduction_sum_f32_workspace(large, 1, ctypes.byref(size)) == 0
    some = (ctypes.c_void_p(1 << 40), ctypes.c_void_p(1 << 45), large, 1)
    for address, given, words in (
        (1 << 41, size.value - 1, "must have"),
        ((1 << 41) + 128, size.value, "multiple of 256"),
    ):
        bytes_given = ctypes.c_size_t(given)
        assert library.reduction_sum_f32_pointers(*some, ctypes.c_void_p(address), bytes_given, None) == 1
        assert words in library.demo_error().decode(), library.demo_error()


repeated_calls_launch_alone()
graphs_begin_with_launches_and_keep_their_memory()
memory_of_a_refused_launch_is_zeroed_again()
threads_have_streams_of_their_own()
streams_come_and_go()
repeated_calls_neither_lock_nor_allocate()
devices_without_code_are_refused()
tensors_that_require_gradients_are_refused_as_results()
what_is_wrong_is_refused()
