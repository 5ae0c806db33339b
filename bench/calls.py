"""What a call costs the host: `python bench/calls.py [--json FILE]`, on a GPU with torch and CuPy, or with `--stub`.

Ours, torch, torch.compile, CuPy, CuPy's RawKernel and JAX are called in one process, with arrays so small that the GPU
waits for the host. A time is that of the calls alone, in batches that fit into the driver's queue, with the GPU idle
before each; the row holds the median of all batches, which take turns. Eight threads call on eight streams, a million
calls are watched for memory that stays, and a process of its own loads a compiled kernel from the cache.

With `--stub` nothing but ours is called, on a stand-in for the driver: what remains is our own share.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import gen
from bench.program import ended, need_gpu, write_results

ROOT = Path(__file__).resolve().parent.parent
BATCH, ROUNDS = 200, 60  # calls in a row, fewer than the driver queues; turns
THREADS = 8
MANY = 10**6
PER_THREAD = 50  # of those calls, each thread makes one
STREAM_BATCH = 500
OF_DRIVER = "cuLaunchKernel alone, from C,"

FLOOR = r"""
#include <time.h>
typedef unsigned U;
typedef int (*Launch)(void*, U, U, U, U, U, U, U, void*, void**, void**);
double launch_us(Launch launch, void* kernel, const U* shape, void* stream, void** arguments, int count) {
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int i = 0; i < count; ++i)
    launch(kernel, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], shape[6], stream, arguments, 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((end.tv_sec - start.tv_sec) * 1e6 + (end.tv_nsec - start.tv_nsec) / 1e3) / count;
}
"""
RAW = r"""extern "C" __global__ void nothing(const float* in, float* out, long long n) {}"""


@dataclass(frozen=True)
class Row:
    """One way to call, and what a call costs the host; `more` are further figures by name."""

    call: str
    host_us: float
    more: Mapping[str, float]

    def __str__(self) -> str:
        more = "".join(f", {name} {value:g}" for name, value in self.more.items())
        return f"{self.host_us:9.2f} us  {self.call}{more}"


@dataclass(frozen=True)
class Case:
    """A spec at a shape, and what others call it: `spec` for `gen.load`, functions of a library's module and array.

    `function` is one of `gen`, `gen.torch` and `gen.jax` alike; the first takes `out=`, in `function_out`.
    """

    name: str
    spec: Any
    shape: tuple[int, ...]
    out: tuple[int, ...]
    torch: Callable[[Any, Any], Any]
    torch_out: Callable[[Any, Any, Any], Any]
    cupy: Callable[[Any, Any], Any]
    jax: Callable[[Any, Any], Any]
    function: Callable[[Any, Any], Any]
    function_out: Callable[[Any, Any, Any], Any]


def cases() -> tuple[Case, ...]:
    """A whole sum, sums of rows, a transpose: one launch each; a sum that takes scratch memory."""
    return (
        Case(
            "sum of 2^12", "reduction_sum_f32", (4096,), (),
            lambda _, x: x.sum(), lambda t, x, out: t.sum(x, 0, out=out), lambda _, x: x.sum(),
            lambda j, x: j.sum(x), lambda g, x: g.sum(x), lambda g, x, out: g.sum(x, out=out),
        ),
        Case(
            "sum of 2^20", "reduction_sum_f32", (2**20,), (),
            lambda _, x: x.sum(), lambda t, x, out: t.sum(x, 0, out=out), lambda _, x: x.sum(),
            lambda j, x: j.sum(x), lambda g, x: g.sum(x), lambda g, x, out: g.sum(x, out=out),
        ),
        Case(
            "row sums of 512 x 128", gen.reduction("sum", "f32", axis=1), (512, 128), (512,),
            lambda _, x: x.sum(1), lambda t, x, out: t.sum(x, 1, out=out), lambda _, x: x.sum(1),
            lambda j, x: j.sum(x, axis=1), lambda g, x: g.sum(x, axis=1),
            lambda g, x, out: g.sum(x, axis=1, out=out),
        ),
        Case(
            "transpose of 256 x 256", "transpose_10_b32", (256, 256), (256, 256),
            lambda _, x: x.t().contiguous(), lambda _, x, out: out.copy_(x.t()), lambda c, x: c.ascontiguousarray(x.T),
            lambda j, x: j.transpose(x), lambda g, x: g.matrix_transpose(x),
            lambda g, x, out: g.matrix_transpose(x, out=out),
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class Libraries:
    """Who makes arrays, and how all that is queued is awaited; None for what is not there."""

    torch: Any
    cupy: Any
    jax: Any
    wait: Callable[[], object]

    def arrays(self, shape: Sequence[int]) -> Any:
        """A tensor of torch."""
        return self.torch.empty(tuple(shape), dtype=self.torch.float32, device="cuda:0")


def calls_of(case: Case, libraries: Libraries, device: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every way to call, by name: ours first."""
    torch, cupy = libraries.torch, libraries.cupy
    x, out = libraries.arrays(case.shape), libraries.arrays(case.out)
    bound = gen.load(case.spec, shape=case.shape, device=device)
    unbound = gen.load(case.spec, device=device)
    yield f"gen {case.name}: bound, out=", lambda: bound(x, out=out)
    yield f"gen {case.name}: unbound, out=", lambda: unbound(x, out=out)
    yield f"gen {case.name}: unbound, making its output", lambda: unbound(x)
    yield f"gen {case.name}: bound, out=, stream=", lambda: bound(x, out=out, stream=1)
    functions: Any = gen
    if device is not None:
        names = ("sum", "matrix_transpose")
        functions = SimpleNamespace(**{name: partial(getattr(gen, name), device=device) for name in names})
    yield f"gen {case.name}: function", lambda: case.function(functions, x)
    yield f"gen {case.name}: function, out=", lambda: case.function_out(functions, x, out)
    if cupy is not None:
        y, there = cupy.zeros(case.shape, cupy.float32), cupy.zeros(case.out, cupy.float32)
        raw = cupy.RawKernel(RAW, "nothing")
        raw.compile()
        yield f"gen {case.name}: bound, out=, arrays of CuPy", lambda: bound(y, out=there)
        yield f"gen {case.name}: unbound, making its output, arrays of CuPy", lambda: unbound(y)
        yield f"CuPy {case.name}", lambda: case.cupy(cupy, y)
        yield f"CuPy RawKernel, empty, arguments as for {case.name}", lambda: raw((1,), (256,), (y, there, y.size))
    if torch is not None and hasattr(torch, "compile"):
        with torch.inference_mode():
            compiled = torch.compile(lambda a: case.torch(torch, a))
            compiled(x)
        yield f"torch {case.name}", lambda: case.torch(torch, x)
        yield f"torch {case.name}: out=", lambda: case.torch_out(torch, x, out)
        yield f"torch.compile {case.name}", lambda: compiled(x)
        yield f"torch.empty for {case.name}", lambda: libraries.arrays(case.out)
        yield from _in_frameworks(case, libraries, x)


def _in_frameworks(case: Case, libraries: Libraries, x: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Our functions as they are called in models: of torch, recorded or compiled, and of JAX, compiled."""
    torch, jax = libraries.torch, libraries.jax
    operators = importlib.import_module("gen.torch")
    recorded = x.clone().requires_grad_()
    compiled = torch.compile(lambda a: case.function(operators, a), fullgraph=True)
    with torch.inference_mode():
        compiled(x)
    yield f"gen {case.name}: gen.torch", lambda: case.function(operators, x)
    yield f"gen {case.name}: gen.torch, recording gradients", lambda: case.function(operators, recorded)
    yield f"gen {case.name}: gen.torch in torch.compile", lambda: compiled(x)
    if jax is not None:
        programs, z = importlib.import_module("gen.jax"), jax.numpy.zeros(case.shape, "float32")
        ours, theirs = jax.jit(lambda a: case.function(programs, a)), jax.jit(lambda a: case.jax(jax.numpy, a))
        yield f"gen {case.name}: gen.jax in jax.jit", lambda: ours(z)
        yield f"jax.jit {case.name}", lambda: theirs(z)


def batch_us(call: Callable[[], object], wait: Callable[[], object], count: int = BATCH) -> float:
    """The mean time of calls in a row, the GPU idle before."""
    wait()
    start = time.perf_counter_ns()
    for _ in range(count):
        call()
    return (time.perf_counter_ns() - start) / count / 1000


def timed(calls: Sequence[tuple[str, Callable[[], object]]], wait: Callable[[], object], rounds: int) -> list[Row]:
    """A row a call: the median of all its turns."""
    times: dict[str, list[float]] = {name: [] for name, _ in calls}
    for _, call in calls:
        batch_us(call, wait, 20)
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls:
                times[name].append(batch_us(call, wait))
    finally:
        gc.enable()
    return [Row(name, round(statistics.median(found), 3), {"least": round(min(found), 3)})
            for name, found in times.items()]  # fmt: skip


def launches_from_c(libraries: Libraries, device: Any) -> Callable[[int, int], float]:
    """What launches a kernel of ours on a stream, so many times in a row from C, and gives the microseconds of each."""
    kernel, x = gen.load("reduction_sum_f32", shape=4096, device=device), libraries.arrays((4096,))
    out = libraries.arrays(())
    kernel(x, out=out)
    (ready,) = kernel._ready.values()
    (step,) = ready.planned
    functions = kernel._device.driver_functions()
    assert functions is not None
    cells: list[Any] = []
    for argument in step.arguments:
        if isinstance(argument, str):
            cells.append(ctypes.c_uint64({"in": x, "out": out}[argument].data_ptr()))
        else:
            cells.append(ctypes.create_string_buffer(argument[0].numpy.type(argument[1]).tobytes(), 16))
    table = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
    shape = (ctypes.c_uint * 7)(*step.grid, *step.block, step.shared_bytes)
    with tempfile.TemporaryDirectory(prefix="gen-calls-") as folder:
        source, library = Path(folder, "floor.c"), Path(folder, "floor.so")
        source.write_text(FLOOR)
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        launch_us = ctypes.CDLL(str(library)).launch_us
    launch_us.restype = ctypes.c_double
    handle = functions.handle(kernel._code(ready.variant), step.entry, step.shared_bytes)
    pointers = [ctypes.c_void_p(one) for one in (functions.addresses[0], handle)]

    def launch(stream: int, count: int) -> float:
        _ = kernel, x, out, cells  # which the launches need
        return float(launch_us(*pointers, shape, ctypes.c_void_p(stream), table, count))

    return launch


def floor(libraries: Libraries, launch: Callable[[int, int], float], rounds: int) -> Row:
    """The driver's own share: one launch of a kernel of ours, again and again from C."""
    times = []
    for _ in range(rounds):
        libraries.wait()
        times.append(launch(1, BATCH))
    least = {"least": round(min(times), 3)}
    return Row(f"{OF_DRIVER} of a sum of 2^12", round(statistics.median(times), 3), least)


def threads(
    name: str, call: Callable[[int], object], wait: Callable[[], object], count: int, calls: int, each: int = 1
) -> Row:  # fmt: skip
    """Threads that call at once, each with a number of its own: the time of all, over the calls of all.

    Args:
        name: of the call.
        call: is given the thread's number, and makes `each` calls.
        wait: until the GPU is done.
        count: threads.
        calls: of each thread.
        each: calls in one.
    """
    barrier = threading.Barrier(count + 1)

    def work(number: int) -> None:
        call(number)
        barrier.wait()
        for left in range(calls // each, 0, -1):
            call(number)
            if left * each % STREAM_BATCH == 0:
                wait()
        barrier.wait()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    barrier.wait()
    seconds = time.perf_counter() - start
    for worker in workers:
        worker.join()
    made = count * (calls // each) * each
    return Row(f"{name}: {count} threads on {count} streams", round(1e6 * seconds / made, 3), {})


def threaded(
    libraries: Libraries, device: Any, launch: Callable[[int, int], float], calls: int
) -> Iterator[Row]:  # fmt: skip
    """One thread, then eight: ours and torch's, with arrays of their own, and launches from C alone."""
    torch = libraries.torch
    kernel = gen.load("reduction_sum_f32", shape=4096, device=device)
    if hasattr(torch.cuda, "Stream"):
        streams = [torch.cuda.Stream() for _ in range(THREADS)]
        handles = [stream.cuda_stream for stream in streams]
    else:
        streams = handles = [device.made_stream() for _ in range(THREADS)]
    pairs = [(libraries.arrays((4096,)), libraries.arrays(())) for _ in range(THREADS)]

    def ours(number: int) -> object:
        x, out = pairs[number]
        return kernel(x, out=out, stream=streams[number])

    def theirs(number: int) -> object:
        x, out = pairs[number]
        with torch.cuda.stream(streams[number]):
            return torch.sum(x, 0, out=out)

    for count in (1, THREADS):
        yield threads("gen sum of 2^12: bound, out=, stream=", ours, libraries.wait, count, calls)
        if hasattr(torch, "compile"):
            yield threads("torch sum of 2^12: out=", theirs, libraries.wait, count, calls)
        yield threads(
            OF_DRIVER, lambda number: launch(handles[number], STREAM_BATCH), libraries.wait, count, calls, STREAM_BATCH
        )


def resident_bytes() -> int:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def leaks(libraries: Libraries, device: Any, count: int) -> Row:
    """A million calls, a third of which make their outputs; what stays of the host's memory, and of the GPU's."""
    kernel = gen.load("reduction_sum_f32", device=device)
    x, out = libraries.arrays((2**18,)), libraries.arrays(())

    def some(times: int) -> None:
        for _ in range(times // 3):
            kernel(x, out=out)
            kernel(x)
            kernel(x, out=out, stream=1)

    some(30_000)
    libraries.wait()
    gc.collect()
    before, free = resident_bytes(), free_bytes(libraries)
    start = time.perf_counter()
    for _ in range(count // 300):
        some(300)
        libraries.wait()
    seconds = time.perf_counter() - start
    getattr(libraries.torch, "made_on", []).clear()  # the stand-in notes every tensor that it makes
    gc.collect()
    grown = {"host_bytes": resident_bytes() - before, "gpu_bytes": free - free_bytes(libraries)}
    return Row(f"gen sum of 2^18: {count} calls", round(1e6 * seconds / count, 3), grown)


def free_bytes(libraries: Libraries) -> int:
    """Memory that is left on the GPU; 0 where nobody says."""
    if not hasattr(libraries.torch.cuda, "mem_get_info"):
        return 0
    return int(libraries.torch.cuda.mem_get_info()[0])


def first_use(home: str) -> None:
    """Prints the milliseconds from a name to the end of its first call, with what was compiled before in the cache."""
    libraries, device = opened(None)
    x, out = libraries.arrays((4096,)), libraries.arrays(())
    libraries.wait()
    gen.load("transpose_10_b32", shape=(64, 64), device=device, home=home)  # the driver, NVRTC and their modules
    start = time.perf_counter()
    gen.load("reduction_sum_f32", shape=4096, device=device, home=home)(x, out=out)
    print(1000 * (time.perf_counter() - start))


def first_used(stub: bool) -> Row:
    """The second of two processes that use the same kernel first."""
    with tempfile.TemporaryDirectory(prefix="gen-calls-") as home:
        command = [sys.executable, __file__, "--first-use", home, *(["--stub"] if stub else [])]
        times = [
            float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
            for _ in range(4)
        ]
    return Row("gen sum of 2^12: load and first call, from the cache", round(1000 * statistics.median(times[1:]), 1), {
        "without the cache": round(1000 * times[0], 1)})  # fmt: skip


def opened(device: Any) -> tuple[Libraries, Any]:
    """The libraries, and what to give `gen.load` as device: None for the first GPU."""
    if "--stub" in sys.argv:
        return stand_in()
    torch = importlib.import_module("torch")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    cupy, jax = (_imported(name) for name in ("cupy", "jax"))
    torch.zeros(1, device="cuda")
    if jax is not None and jax.default_backend() != "gpu":
        jax = None
    return Libraries(torch, cupy, jax, torch.cuda.synchronize), device


def _imported(name: str) -> Any:
    """A module; None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def stand_in() -> tuple[Libraries, Any]:
    """A driver that queues nothing, and a torch of tensors alone; this process was started with the driver's path."""
    sys.modules["pycuda"] = None  # type: ignore[assignment]
    from gen.gpu.cuda import CudaDevice, call
    from gen.toolchain.compiled import Compiled
    from tests.driver import torch as tensors

    class NoCompiler:
        """Takes every source."""

        version, options = "none", ""

        def compile(self, name: str, text: str, arch: str) -> Compiled:
            return Compiled(name, arch, b"cubin", {})

    class Stubbed(CudaDevice):
        """It makes streams."""

        def made_stream(self) -> int:
            return int(call("cuStreamCreate", 0))

    device = Stubbed(0, NoCompiler())
    device.enter()
    torch = tensors.module(Path(tempfile.mkdtemp(prefix="gen-calls-")), lambda _: 1 << 40)
    sys.modules["torch"] = torch
    places = iter(range(1 << 41, 1 << 62, 1 << 30))

    class Apart(Libraries):
        """Arrays that never overlap, of no memory."""

        def arrays(self, shape: Sequence[int]) -> Any:
            strides = np.empty(tuple(shape), np.float32).strides
            array: Any = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), tuple(shape), strides)
            return torch.Tensor(array, next(places))

    return Apart(torch, None, None, lambda: None), device


def restarted(stub: Path) -> int:
    """Runs this command again, with the stand-in for the driver."""
    library = stub / "libcuda.so.1"
    flags = ["-O2", "-shared", "-fPIC", "-std=c++17", "-Wl,-soname,libcuda.so.1"]
    source = ROOT / "tests" / "driver" / "stub.cpp"
    subprocess.run(["g++", *flags, "-o", str(library), str(source), "-ldl"], check=True)
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(stub), "GEN_HOME": str(stub / "home"),
        "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
    }  # fmt: skip
    return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode


def main() -> int:
    """Prints a line a call."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--stub", action="store_true", help="without a GPU, on a stand-in for its driver")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument("--many", type=int, default=MANY, help="how many calls are watched for memory that stays")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of every call")
    parser.add_argument("--first-use", metavar="HOME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stub and "gen-calls-stub-" not in os.environ.get("LD_LIBRARY_PATH", ""):
        with tempfile.TemporaryDirectory(prefix="gen-calls-stub-") as folder:
            return restarted(Path(folder))
    if options.first_use:
        first_use(options.first_use)
        return 0
    gpu = need_gpu("python bench/calls.py")
    libraries, device = opened(None)
    versions = {
        f"{name} version": getattr(module, "__version__", "")
        for name, module in (("torch", libraries.torch), ("CuPy", libraries.cupy), ("JAX", libraries.jax))
    }
    rows: list[Row] = []

    def keep(found: Sequence[Row]) -> None:
        for row in found:
            rows.append(row)
            print(row, flush=True)
        written = [{"call": one.call, "host_us": one.host_us, **one.more} for one in rows]
        write_results(options.json, "python bench/calls.py", gpu, versions, rows=written)

    for case in cases():
        if options.only in case.name:
            keep(timed(list(calls_of(case, libraries, device)), libraries.wait, options.rounds))
    launch = launches_from_c(libraries, device)
    keep([floor(libraries, launch, options.rounds)])
    keep(list(threaded(libraries, device, launch, max(options.many // PER_THREAD, STREAM_BATCH))))
    keep([leaks(libraries, device, options.many)])
    keep([first_used(options.stub)])
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
