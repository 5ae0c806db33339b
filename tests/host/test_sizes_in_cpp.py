"""Sizes of transposes that exported libraries find by functions in C++: the same numbers as gen's, for any strides."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gen.families.transpose.algorithms.grouped_tile import group_sizes
from gen.families.transpose.algorithms.packed import SIZES_IN_CPP, box_sizes, wide_sizes
from gen.families.transpose.shapes import canonical_sizes
from gen.families.transpose.spec import MAX_AXES
from gen.paths import templates_root

FUNCTIONS = (canonical_sizes, box_sizes, wide_sizes, group_sizes)
FIRST = {"canonical_sizes": tuple(range(MAX_AXES, 12)), "box_sizes": (1, 2, 4, 8, 16), "wide_sizes": (1, 2)}
LENGTHS = (1, 1, 2, 3, 4, 5, 7, 8, 11, 16, 24, 63, 64, 100, 128, 1000, 100_000)
# What the file reads of host.hpp, and a C function that calls each by its place.
BEFORE = """
#include <cstdint>
using Int = int64_t;
constexpr int kMostAxes = 8;
template <class T> T least(T a, T b) { return b < a ? b : a; }
template <class T> T most(T a, T b) { return a < b ? b : a; }
"""
BEHIND = 'extern "C" void NAME_of(const Int* given, int count, Int* found) { NAME(given, count, found); }\n'


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The file, built by g++."""
    folder = tmp_path_factory.mktemp("sizes")
    calls = "".join(BEHIND.replace("NAME", function.__name__) for function in FUNCTIONS)
    (folder / "sizes.cpp").write_text(f"{BEFORE}{text()}{calls}", encoding="utf-8")
    made = folder / "sizes.so"
    command = [shutil.which("g++") or "g++", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=off", "-o", str(made)]
    subprocess.run([*command, str(folder / "sizes.cpp")], check=True)
    return ctypes.CDLL(str(made))


def text() -> str:
    return Path(str(templates_root()), SIZES_IN_CPP).read_text(encoding="utf-8").replace("#pragma once", "")


def strides(random: Random, shape: list[int], order: list[int]) -> list[int]:
    """Of an array whose axes lie in this order, the slowest first; gaps may follow after any of them."""
    found, step = [0] * len(shape), 1
    for axis in reversed(order):
        found[axis] = step
        step *= shape[axis] + random.choice((0, 0, 0, 0, 1, 4, 16))
    return found


def problem(random: Random, rank: int) -> list[int]:
    """Extents, strides of the input and of the output; one in twenty has no elements."""
    shape = [random.choice(LENGTHS if rank < 6 else LENGTHS[:12]) for _ in range(rank)]
    if random.random() < 0.05:
        shape[random.randrange(rank)] = 0
    return [*shape, *strides(random, shape, [*range(rank)]), *strides(random, shape, random.sample(range(rank), rank))]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_sizes_are_those_of_python(function: Callable[..., tuple[int, ...]], library: ctypes.CDLL) -> None:
    random = Random(function.__name__)
    several = 0
    for number in range(400):
        first = FIRST.get(function.__name__)  # how many axes are told, or the bytes of an element
        given = ([random.choice(first)] if first else []) + problem(random, number % MAX_AXES + 1)
        wanted = function(*given)
        told, found = (
            (ctypes.c_int64 * len(given))(*given),
            (ctypes.c_int64 * (len(wanted) + 1))(*[-7] * (len(wanted) + 1)),
        )
        getattr(library, f"{function.__name__}_of")(told, len(given), found)
        assert (*wanted, -7) == tuple(found), given  # and nothing is written behind them
        several += any(wanted)
    assert several > 100


def test_no_function_of_the_file_is_left_out() -> None:
    found = re.findall(r"void (\w+)\(const Int\* given, int count, Int\* found\)", text())
    assert sorted(found) == sorted(function.__name__ for function in FUNCTIONS)
