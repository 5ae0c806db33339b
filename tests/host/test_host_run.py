"""The CPU run: what it is given, in which order it runs, what it refuses as a GPU would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32, DType
from gen.errors import RunError
from gen.families.base import Launch, Operand, Plan, Scratch, Variant
from gen.families.expr import ONE, constant, size
from gen.proof import native
from gen.proof.build import LOCALS_GXX, Gpp
from gen.proof.host import HostFault, HostRunner
from tests.fake_family import fake_variant
from tests.host.host_kernels import COPY, COPY_PLAN, COUNT, H100, IN, OUT, N, arrays, grid, one_launch, run_text

SHUFFLE = """
extern "C" __global__ void NAME(const float* in, float* out, int n) {
  if (threadIdx.x >= 24) return;
  const float other = __shfl_down_sync(0x00ffffffu, in[threadIdx.x], 8);
  out[threadIdx.x] = USED ? other : 0.0f;
}
"""


def _text_in(texts: Mapping[str, str], variant: Variant) -> str:
    return texts[variant.name]


def test_a_value_from_a_lane_outside_the_mask_may_be_dropped_and_shows_where_it_is_used(cache: Path) -> None:
    """PTX ISA: a shuffle from a lane that its mask does not name gives an undefined value, and breaks no rule."""
    results = {}
    for used in ("threadIdx.x < 16", "true"):
        made = fake_variant(f"shuffle_{len(used)}", (IN, OUT), one_launch(32))
        texts = {made.name: SHUFFLE.replace("NAME", made.name).replace("USED", used)}
        (kernel,) = HostRunner(H100, cache=cache, text=partial(_text_in, texts)).load([made])
        runs = [arrays(24), arrays(24)]
        for buffers in runs:
            kernel.run({"n": 24}, buffers)
        assert "which its mask 0x00ffffff does not name" in kernel.undefined
        assert f"{made.name}.cu:4: `const float other" in kernel.undefined
        results[used] = [buffers["out"] for buffers in runs]
    first, second = results["threadIdx.x < 16"]
    assert np.array_equal(first, second)
    assert np.array_equal(first[:16], np.arange(8, 24))
    first, second = results["true"]
    assert not np.array_equal(first[16:], second[16:])


def test_elements_of_a_local_array_that_are_never_set_are_no_zeros(cache: Path) -> None:
    """Nor what an earlier call left on the stack: what is made of them is wrong in every run."""
    if Gpp().major < LOCALS_GXX:
        pytest.skip("this g++ does not know the flag")
    text = COPY.replace(
        "out[i] = in[i];",
        """{
    float some[4];
    for (int k = 0; k < COUNT; ++k) some[k] = in[i];
    float sum = 0.0f;
    for (int k = 0; k < 4; ++k) sum += some[k];
    out[i] = sum;
  }""",
    )
    for count, expected in (("4", 4.0), ("3", None)):
        buffers = {"in": np.ones(100, np.float32), "out": np.zeros(100, np.float32)}
        run_text(cache, text.replace("COUNT", count), (IN, OUT), COPY_PLAN, {"n": 100}, buffers, label=f"set_{count}")
        assert np.all(buffers["out"] == expected) if expected else np.all(np.abs(buffers["out"]) > 1e30)


def test_nothing_is_launched_where_the_grid_is_empty(cache: Path) -> None:
    empty = np.zeros(0, np.float32)
    run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 0}, {"in": empty, "out": empty.copy()})


def test_scratch_stays_and_is_zeroed_once(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out, unsigned* ticket) { out[0] = (float)atomicAdd(ticket, 1u); }
    """
    plan = Plan((Launch(grid(ONE), (1, 1, 1), ("out", "ticket")),), (Scratch("ticket", constant(4), zeroed=True),))
    out = np.zeros(1, np.float32)
    for runs in (1, 2, 3):
        run_text(cache, text, (OUT,), plan, {"n": 1}, {"out": out}, runs=runs)
        assert out[0] == runs - 1


def test_launches_repeat_and_swap(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME_fill(const float* in, float* a) { a[threadIdx.x] = in[threadIdx.x]; }
    extern "C" __global__ void NAME(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] * 2.0f; }
    extern "C" __global__ void NAME_store(const float* a, float* out) { out[threadIdx.x] = a[threadIdx.x]; }
    """
    block = (8, 1, 1)
    plan = Plan(
        (
            Launch(grid(ONE), block, ("in", "a"), entry="_fill"),
            Launch(grid(ONE), block, ("a", "b"), times=size("steps"), swap=(("a", "b"),)),
            Launch(grid(ONE), block, ("a", "out"), entry="_store"),
        ),
        (Scratch("a", constant(32)), Scratch("b", constant(32))),
    )
    for steps in (0, 1, 2, 5):
        buffers = arrays(8)
        run_text(cache, text, (IN, OUT), plan, {"n": 8, "steps": steps}, buffers, runs=2)
        assert np.array_equal(buffers["out"], buffers["in"] * 2.0**steps)


def test_constants_and_numbers(cache: Path) -> None:
    text = """
    __constant__ float weights[3];
    extern "C" __global__ void NAME(float* out, float factor, int n) {
      for (int i = 0; i < n; ++i) out[i] = weights[i] * factor;
    }
    """
    weights = np.array([1.0, 2.0, 4.0], np.float32)
    launch = Launch(grid(ONE), (1, 1, 1), ("out", "factor", COUNT))
    out = np.zeros(3, np.float32)
    operands = (OUT, Operand("factor", "number", F32))
    plan = Plan((launch,), constants=(("weights", weights.tobytes()),))
    run_text(cache, text, operands, plan, {"n": 3}, {"out": out, "factor": 0.5})
    assert np.array_equal(out, weights * 0.5)
    with pytest.raises(HostFault) as caught:
        run_text(cache, text, operands, plan, {"n": 4}, {"out": np.zeros(4, np.float32), "factor": 0.5})
    assert caught.value.kind in ("out-of-bounds read", "index")
    wrong = Plan((launch,), constants=(("weights", weights.tobytes()[:8]),))
    with pytest.raises(RunError, match=r"weights must be a __constant__ variable of 8 bytes.*12 bytes"):
        run_text(cache, text, operands, wrong, {"n": 3}, {"out": out, "factor": 0.5})


def test_order_is_the_seeds(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out, unsigned* ticket, int n) {
      __shared__ int turn;
      if (threadIdx.x == 0) turn = 0;
      __syncthreads();
      const int first = atomicAdd(&turn, 1) == 0;
      if (first) out[blockIdx.x] = 1000.0f * threadIdx.x + atomicInc(ticket, n - 1);
    }
    """
    launch = Launch(grid(N), (64, 1, 1), ("out", "ticket", COUNT))
    plan = Plan((launch,), (Scratch("ticket", constant(4), zeroed=True),))
    orders = []
    for seed in (1, 1, 2):
        out = np.zeros(50, np.float32)
        run_text(cache, text, (OUT,), plan, {"n": 50}, {"out": out}, seed=seed)
        assert sorted(out % 1000) == list(range(50))  # every block once
        orders.append(out)
    assert np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0] % 1000, orders[2] % 1000)
    assert not np.array_equal(orders[0] // 1000, orders[2] // 1000)


def test_another_device_runs_the_same_code(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out, int n) {
      for (int i = blockIdx.x; i < n; i += gridDim.x) out[i] = gridDim.x;
    }
    """
    made = fake_variant("device", (OUT,), one_launch(1, size("multiprocessors") * 2, "out", COUNT))
    runner = HostRunner(H100, cache=cache, text=lambda variant: text.replace("NAME", variant.name))
    small = replace(H100, multiprocessors=1)
    for limits in (H100, small):
        out = np.zeros(300, np.float32)
        (kernel,) = runner.on(limits).load([made])
        kernel.run({"n": 300}, {"out": out})
        assert (out == 2 * limits.multiprocessors).all()


LAUNCHES = {
    "threads": (Launch(grid(ONE), (1025, 1, 1), ("in", "out", COUNT)), "1 to 1024 threads"),
    "block z": (Launch(grid(ONE), (1, 1, 65), ("in", "out", COUNT)), "at most 64 along z"),
    "grid y": (Launch((ONE, constant(65536), ONE), (1, 1, 1), ("in", "out", COUNT)), "65535"),
    "grid z": (Launch((ONE, ONE, constant(65536)), (1, 1, 1), ("in", "out", COUNT)), "65535"),
    "dynamic": (Launch(grid(ONE), (1, 1, 1), ("in", "out", COUNT), shared_bytes=constant(232449)), "232448 bytes"),
    "too few arguments": (Launch(grid(ONE), (1, 1, 1), ("in", "out")), "arguments that its plan passes"),
    "a pointer for a number": (Launch(grid(ONE), (1, 1, 1), ("in", "out", "out")), "arguments that its plan passes"),
    "a wide number": (Launch(grid(ONE), (1, 1, 1), ("in", "out", (DType("i64", "long long", 8, "int"), N))), "p8 i8"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_launch_that_a_gpu_refuses(cache: Path, name: str) -> None:
    launch, says = LAUNCHES[name]
    with pytest.raises(RunError, match=says):
        run_text(cache, COPY, (IN, OUT), Plan((launch,)), {"n": 4}, arrays(4))


def test_a_block_is_no_larger_than_its_launch_bounds(cache: Path) -> None:
    text = """
    constexpr int kThreads = 32;
    extern "C" __global__ void __launch_bounds__(64) NAME_other(float* out) { out[0] = 1.0f; }
    extern "C" __global__ void /* __launch_bounds__(7) */ __launch_bounds__(2 * kThreads, 1)
        NAME(float* out) { out[threadIdx.x] = 1.0f; }
    """
    out = np.zeros(65, np.float32)
    run_text(cache, text, (OUT,), one_launch(64, ONE, "out"), {"n": 65}, {"out": out})
    with pytest.raises(RunError, match="at most 64 threads a block, as its __launch_bounds__ says"):
        run_text(cache, text, (OUT,), one_launch(65, ONE, "out"), {"n": 65}, {"out": out})


def test_static_shared_memory_has_a_limit(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(float* out) {
      __shared__ float tile[COUNT];
      tile[threadIdx.x] = 1.0f;
      out[0] = tile[threadIdx.x];
    }
    """
    plan = one_launch(1, ONE, "out")
    run_text(cache, text.replace("COUNT", "12288"), (OUT,), plan, {"n": 1}, {"out": np.zeros(1, np.float32)})
    with pytest.raises(RunError, match="49152"):
        run_text(cache, text.replace("COUNT", "12289"), (OUT,), plan, {"n": 1}, {"out": np.zeros(1, np.float32)})


def test_number_that_its_type_cannot_hold(cache: Path) -> None:
    with pytest.raises(RunError, match="number of type i32"):
        run_text(cache, COPY, (IN, OUT), one_launch(64, ONE, "in", "out", (I32, N * 2**31)), {"n": 4}, arrays(4))


def test_arrays_that_are_not_the_specs(cache: Path) -> None:
    with pytest.raises(RunError, match=r"out must be given"):
        run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 4}, {"in": np.zeros(4, np.float32)})
    with pytest.raises(RunError, match=r"in must be an array of f32.*float64"):
        run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 4}, {**arrays(4), "in": np.zeros(4)})


def test_a_launch_too_large_for_the_memory_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = object.__new__(native.Runtime)
    monkeypatch.setattr(runtime, "_run", lambda *_: 2, raising=False)  # what the library says where memory is short
    launch = native.Launch(grid=native.Index(5, 4, 3))
    with pytest.raises(RunError, match=r"finds no memory.*60 blocks.*Give smaller sizes"):
        runtime.run(launch)
