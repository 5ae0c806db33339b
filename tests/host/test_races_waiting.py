"""Kernels whose threads or blocks wait for each other on the CPU run: all get their turns, none waits for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pytest

from gen.dtypes import F32
from gen.families.base import Launch, Limits, Operand, Plan, Scratch
from gen.families.expr import ONE, constant, size
from gen.proof.host import HostFault, HostRunner
from tests.fake_family import fake_variant

OUT = Operand("out", "inout", F32, ("n",))
H100 = Limits.of("sm_90")

# Every block tells its neighbour a number; all threads of it wait at a barrier of the whole grid, twice.
GRID_BARRIER = """
__device__ __forceinline__ void wait_for_all(unsigned* count, unsigned target) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(count, 1u);
    while (atomicAdd(count, 0u) < target) {}  // here
    __threadfence();
  }
  __syncthreads();
}
extern "C" __global__ void NAME(float* out, float* part, unsigned* count) {
  __shared__ float mine[64];
  mine[threadIdx.x] = blockIdx.x;
  part[blockIdx.x * 64 + threadIdx.x] = blockIdx.x;
  wait_for_all(count, gridDim.x);
  const float left = part[(blockIdx.x + gridDim.x - 1) % gridDim.x * 64 + threadIdx.x];
  wait_for_all(count, 2 * gridDim.x);
  part[blockIdx.x * 64 + threadIdx.x] = left;
  if (threadIdx.x == 0) out[blockIdx.x] = left + mine[63 - threadIdx.x] / 1024.0f;
}
"""

# Each block hands a running sum to the next in one word, as a volatile store that a volatile load waits for.
LOOK_BACK = """
extern "C" __global__ void NAME(float* out, float* part, unsigned* flag) {
  if (threadIdx.x > 0) return;
  volatile unsigned* const sums = flag;
  unsigned before = 1;
  if (blockIdx.x > 0) {
    do before = sums[blockIdx.x - 1];  // here
    while (before == 0);
  }
  sums[blockIdx.x] = before + 1;
  out[blockIdx.x] = before;
}
"""

# Threads of a block take turns, by a counter in shared memory.
TURNS = """
extern "C" __global__ void NAME(float* out, float* part, unsigned* flag) {
  __shared__ volatile unsigned turn;
  if (threadIdx.x == 0) turn = 0;
  __syncthreads();
  while (atomicAdd((unsigned*)&turn, 0u) != 63 - threadIdx.x) __nanosleep(20);  // here
  if (blockIdx.x == 0) out[threadIdx.x] = 63 - threadIdx.x;
  atomicAdd((unsigned*)&turn, 1u);
}
"""

# A lock over a plain sum: fences and the lock's own atomics order its holders.
LOCK = """
extern "C" __global__ void NAME(float* out, float* part, unsigned* flag) {
  if (threadIdx.x > 0) return;
  while (atomicCAS(flag, 0u, 1u) != 0) __nanosleep(20);
  __threadfence();
  out[0] += 1.0f;  // here
  __threadfence();
  atomicExch(flag, 0u);
}
"""


def run(cache: Path, text: str, blocks: int, *, limits: Limits = H100, seed: int = 0) -> np.ndarray[Any, Any]:
    """The output of a kernel of `blocks` x 64 threads with zeroed scratch."""
    launch = Launch((size("blocks"), ONE, ONE), (64, 1, 1), ("out", "part", "flag"))
    scratch = (Scratch("part", size("blocks") * 256), Scratch("flag", constant(4096), zeroed=True))
    made = fake_variant("waits", (OUT,), Plan((launch,), scratch))
    runner = HostRunner(limits, cache=cache, text=lambda variant: text.replace("NAME", variant.name), seed=seed)
    (kernel,) = runner.load([made])
    out = np.zeros(max(blocks, 64), np.float32)
    kernel.run({"n": out.size, "blocks": blocks}, {"out": out})
    return out


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("blocks", [1, 2, 7, 132])
def test_barrier_of_the_whole_grid(cache: Path, blocks: int, seed: int) -> None:
    out = run(cache, GRID_BARRIER, blocks, seed=seed)
    numbers = np.arange(blocks)
    expected = (numbers - 1) % blocks + numbers / 1024  # shared memory is the block's own, whoever ran in between
    assert np.array_equal(out[:blocks], expected.astype(np.float32))


@pytest.mark.parametrize("seed", range(3))
def test_blocks_that_look_back(cache: Path, seed: int) -> None:
    assert np.array_equal(run(cache, LOOK_BACK, 500, seed=seed), np.arange(1, 501))


def test_threads_that_take_turns(cache: Path) -> None:
    assert np.array_equal(run(cache, TURNS, 3)[:64], np.arange(63, -1, -1))


def test_lock(cache: Path) -> None:
    assert run(cache, LOCK, 200)[0] == 200


@pytest.mark.parametrize(
    ("fence", "says"),
    [("\n  __threadfence();\n  out", "\n  out"), ("// here\n  __threadfence();\n", "// here\n")],
    ids=["after taking it", "before giving it back"],
)
def test_lock_without_a_fence(cache: Path, fence: str, says: str) -> None:
    with pytest.raises(HostFault) as caught:
        run(cache, LOCK.replace(fence, says), 5)
    assert (caught.value.kind, caught.value.buffer) == ("race", "out")
    assert caught.value.source.endswith("// here")


@pytest.mark.parametrize("removed", ["    __threadfence();\n    atomicAdd", "// here\n    __threadfence();"])
def test_barrier_of_the_grid_without_a_fence(cache: Path, removed: str) -> None:
    assert GRID_BARRIER.count(removed) == 1
    with pytest.raises(HostFault) as caught:
        run(
            cache,
            GRID_BARRIER.replace(
                removed, removed.replace("    __threadfence();\n", "").replace("\n    __threadfence();", "")
            ),
            6,
        )
    assert (caught.value.kind, caught.value.buffer) == ("race", "part")


DEADLOCKS = {
    "a number too many": GRID_BARRIER.replace("2 * gridDim.x", "2 * gridDim.x + 1"),
    "nobody says so": LOOK_BACK.replace("sums[blockIdx.x] = before + 1;", ""),
    "a lock that is kept": LOCK.replace("atomicExch(flag, 0u);", "")
    .replace("  while", "  while  /*\n*/  ")
    .replace("__nanosleep(20);", "__nanosleep(20);  // here"),
    "a turn that never comes": TURNS.replace("!= 63 - threadIdx.x", "!= 64 - threadIdx.x"),
    "every thread counts how often it has asked": LOOK_BACK.replace(
        "do before = sums", "do atomicAdd(flag + 999, 1u), before = sums"
    ).replace("sums[blockIdx.x] = before + 1;", ""),
}


@pytest.mark.parametrize("name", DEADLOCKS)
def test_waiting_for_ever_is_a_hang(cache: Path, name: str) -> None:
    start = perf_counter()
    with pytest.raises(HostFault) as caught:
        run(cache, DEADLOCKS[name], 20)
    assert caught.value.kind == "hang", str(caught.value)
    assert caught.value.source.endswith("// here"), str(caught.value)
    assert perf_counter() - start < 60


def test_more_blocks_than_the_device_runs_at_once(cache: Path) -> None:
    small = replace(H100, multiprocessors=2)  # 2 x 32 blocks of 64 threads
    assert run(cache, GRID_BARRIER, 64, limits=small)[1] == np.float32(1 / 1024)
    with pytest.raises(HostFault, match="1 of 65 blocks have not begun: 64 run at the same time"):
        run(cache, GRID_BARRIER, 65, limits=small)
