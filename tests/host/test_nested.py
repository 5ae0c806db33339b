"""Kernels that launch kernels: what their texts do, one step after the other, and where they are offered.

The CPU run takes no such text. Here g++ compiles the kernel alone, a launch turned into a call that waits for the end
of its grid, and the threads of a grid run one after another, in several orders. That is sound for this kernel: within
a grid no thread reads what another writes, or the orders differ.
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gen
from gen.emit.render import MARK, linked_with, render
from gen.families import FAMILIES
from gen.families.base import Array, Limits, Variant
from gen.families.names import find_variant, search_space, variant
from gen.families.plans import steps
from gen.families.reduction import Reduction
from gen.families.reduction.algorithms.literature import MOST_BLOCKS
from gen.tune.search import Space
from tests.fake_device import FakeDevice
from tests.host.test_mutants import changed
from tests.mutants import nested

LIMITS = Limits.of("sm_90")
REDUCTION = Reduction()
SPEC = REDUCTION.catalogue[0]
ALGORITHM = REDUCTION.algorithms["nested"]
VARIANTS = tuple(variant(REDUCTION, SPEC, ALGORITHM, config) for config in search_space(ALGORITHM, SPEC))
ORDERS = 4  # of threads and blocks: up, down, and two that jump
BEYOND = 600  # elements after the array, which no thread may add

_LAUNCH = re.compile(r"(\w+)<<<([^,]+), ([^,]+), 0, cudaStreamTailLaunch>>>\(\s*([^;]*)\);")
_HARNESS = """
#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <vector>
#define __global__ static
#define __launch_bounds__(threads)
static struct { int x; } threadIdx, blockIdx, blockDim, gridDim;
static std::vector<std::function<void()>>* tail;
static int order, depth, deepest, waiting, most;
static long budget;  // of threads: a wrong kernel may launch without an end
static const int cudaSuccess = 0;
static int cudaGetLastError() { return 0; }
static void __syncthreads() {}
static float __int_as_float(int bits) { float value; std::memcpy(&value, &bits, 4); return value; }
static int place(int i, int n) {  // a permutation of 0 ... n - 1
  return order == 0 ? i : order == 1 ? n - 1 - i : order == 2 ? i / 2 + (i % 2) * ((n + 1) / 2) : (n - i) % n;
}
template <typename... T>
static void grid(void (*kernel)(T...), int blocks, int threads, T... arguments) {
  std::vector<std::function<void()>> mine;
  deepest = std::max(deepest, ++depth);
  for (int i = 0; i < blocks * threads && depth < 30 && budget-- > 0; ++i) {
    tail = &mine;
    gridDim = {blocks}, blockDim = {threads};
    blockIdx = {place(i / threads, blocks)}, threadIdx = {place(i % threads, threads)};
    kernel(arguments...);
  }
  most = std::max(most, waiting += mine.size());
  for (auto& launch : mine) { --waiting; launch(); }
  --depth;
}
template <typename... T, typename... G>
static void launch(void (*kernel)(T...), int blocks, int threads, G... arguments) {
  tail->push_back([=] { grid<T...>(kernel, blocks, threads, arguments...); });
}
"""
_ENTRY = """
extern "C" void run_NAME(
    float* work, float* partials, long long n, int blocks, int threads, int in_order, int* seen) {
  budget = 1'000'000;
  order = in_order, depth = deepest = waiting = most = 0;
  grid<float*, float*, long long>(NAME::NAME, blocks, threads, work, partials, n);
  seen[0] = deepest, seen[1] = most;
}
"""


def alone(made: Variant) -> str:
    """The kernel that launches itself, in a namespace of its own, as C++."""
    text = render(made).partition(MARK)[2]
    constants = "".join(line + "\n" for line in text.splitlines() if line.startswith(("constexpr", "static_assert")))
    body = text[text.index("// One step") : text.index("// Adds up the blocks'")].replace('extern "C" ', "")
    calls = _LAUNCH.sub(r"launch(\1, \2, \3, \4);", body)
    assert calls != body
    return f"namespace {made.name} {{\n{constants}{calls}}}\n" + _ENTRY.replace("NAME", made.name)


def built(variants: Sequence[Variant], folder: Path) -> ctypes.CDLL:
    """All of them, in one library."""
    source, library = folder / "nested.cpp", folder / "nested.so"
    source.write_text(_HARNESS + "".join(alone(made) for made in variants))
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-fPIC", "-shared", str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def sum_of(library: ctypes.CDLL, made: Variant, array: Array, order: int) -> tuple[float, int, int]:
    """The sum, how deep grids were nested, and how many launches waited at once."""
    (reduce,) = (launch for launch in made.plan.launches if not launch.entry)
    n, seen = array.size, (ctypes.c_int * 2)()
    blocks = reduce.grid[0].at({"n": n})
    # What lies beyond the array, and what nobody has written, shows in a sum.
    work, partials = np.full(n + BEYOND, 2.0**20, np.float32), np.full(blocks + 1, 2.0**20, np.float32)
    work[:n] = array
    run = getattr(library, f"run_{made.name}")
    pointers = [ctypes.c_void_p(one.__array_interface__["data"][0]) for one in (work, partials)]
    run(*pointers, ctypes.c_longlong(n), blocks, reduce.block[0], order, seen)
    assert partials[-1] == 2.0**20
    return float(partials[:-1].sum(dtype=np.float64)), *seen


@cache
def numbers(n: int) -> Array:
    """Whole numbers, none of them 0: every sum of them is exact."""
    random = np.random.default_rng(n)
    return np.asarray(random.integers(1, 9, n) * random.choice([-1, 1], n), np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return built(VARIANTS, tmp_path_factory.mktemp("nested"))


DEFAULT_ROOM = 2048  # launches that may wait if a program sets no limit


def room(made: Variant, n: int) -> int:
    """How many launches may wait while this runs."""
    return max(DEFAULT_ROOM, *(step.waiting for step in steps(made.plan, {"n": n, **LIMITS.sizes()})))


SIZES = (0, 1, 2, 31, 63, 64, 65, 127, 128, 129, 511, 513, 1000, 1024, 1025, 4099)


@pytest.mark.parametrize("made", VARIANTS, ids=lambda made: made.name)
def test_steps_that_launch_each_other_add_up_every_element_once(made: Variant, library: ctypes.CDLL) -> None:
    for n in SIZES:
        for order in range(ORDERS):
            found, deepest, waiting = sum_of(library, made, numbers(n), order)
            assert found == numbers(n).sum(dtype=np.float64), f"{n} elements in order {order}"
            assert deepest <= 10  # 24 may be nested
            assert waiting <= room(made, n)


@pytest.mark.parametrize("tpb", [64, 512])
@pytest.mark.parametrize("children", ["sync", "nosync", "whole"])
def test_room_is_made_for_all_launches_that_wait(tpb: int, children: str, library: ctypes.CDLL) -> None:
    made = find_variant(FAMILIES, f"reduction_sum_f32__nested_tpb{tpb}_{children}", {})

    def reason(n: int) -> str | None:
        return ALGORITHM.unsupported_extents(SPEC, made.config, {"n": n}, LIMITS)

    most = MOST_BLOCKS * tpb
    assert reason(most) is None
    waiting = sum_of(library, made, numbers(50 * tpb), 0)[2]
    if children == "whole":
        assert reason(2**30) is None
        assert (waiting, room(made, 2**30)) == (1, DEFAULT_ROOM)
        assert "// Room:" not in render(made)
        return
    assert waiting == 50
    assert room(made, most) == 2 * MOST_BLOCKS  # a grid has not ended when it launches the next one
    text = render(made)
    assert f"// Let:      count = max((n + {tpb - 1}) / {tpb}, 1)\n" in text
    assert "// Room:     cudaLimitDevRuntimePendingLaunchCount of count * 2\n" in text
    assert reason(most + 1) == (
        f"each of its 32769 blocks launches a grid, and room is reserved for 32768: it supports up to {most} elements"
    )


def test_every_change_to_the_template_shows(tmp_path: Path) -> None:
    changes = (*nested.MUTANTS, *nested.RACES)
    broken = [changed(one, tmp_path / str(place)) for place, one in enumerate(changes)]
    library = built(broken, tmp_path)
    for change, made in zip(changes, broken, strict=True):
        orders = range(ORDERS) if change in nested.RACES else range(1)
        found = [sum_of(library, made, numbers(n), order)[0] for n in nested.SIZES for order in orders]
        right = [numbers(n).sum(dtype=np.float64) for n in nested.SIZES for _ in orders]
        assert found != right, change.name


def test_the_file_says_what_it_is_linked_with() -> None:
    assert {linked_with(render(made)) for made in VARIANTS} == {("cudadevrt",)}
    assert "// Compile:  nvcc -rdc=true -lcudadevrt\n" in render(VARIANTS[0])
    assert linked_with(render(find_variant(FAMILIES, "reduceShfl", {}))) == ()
    # Only the header says so.
    assert linked_with(f"// {MARK}\n// Compile:  nvcc -rdc=true -lcudadevrt\n") == ()


def test_neither_tuning_nor_dispatch_chooses_it_unasked(tmp_path: Path) -> None:
    assert ALGORITHM.excluded_from_tuning == "it must be linked with cudadevrt wherever it is loaded"
    tried = Space(REDUCTION, SPEC)
    names = {made.algorithm.name for number in range(tried.size) if (made := tried.at(number)) is not None}
    assert "nested" not in names
    assert "tree" in names
    winner = {"device": FakeDevice().name, "spec": "reduction_sum_f32", "shape": "more than 2^20 elements"}
    content = {"schema": 1, "winners": [{**winner, "variant": "reduction_sum_f32__nested_tpb512_whole"}]}
    (tmp_path / "tuned.json").write_text(json.dumps(content), encoding="utf-8")
    kernel = gen.load("reduction_sum_f32", shape=2**28, device=FakeDevice(), home=tmp_path)
    assert "must be asked for: it must be linked with cudadevrt" in kernel.why
    assert "nested" not in kernel.variant
