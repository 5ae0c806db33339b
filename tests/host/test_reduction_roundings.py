"""The roundings that a reduction states are those on the longest path through the kernel: no fewer, and few more.

The longest path is counted by running the kernel's text with additions that count: of two numbers they give the larger
one and 1 more, or the other one where one is 0, the identity. Of elements that are all 1 the result is then 1 and the
additions that round on the longest path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from gen.emit.render import MARK, render
from gen.families.base import Extents, Variant
from gen.families.config import pairwise
from gen.families.names import search_space, variant
from gen.families.reduction import ReductionSpec
from gen.families.reduction.oracle import MERGE
from gen.proof.cases import MULTIPROCESSOR_COUNTS, allocate, has_elements
from gen.proof.host import HostRunner
from tests.host.reductions import FAMILY, H100, spec

DEEPER = "(a == 0 ? b : b == 0 ? a : (a > b ? a : b) + 1)"
DEEPER_OF_LANES = "(m2 < 0 ? other : other < 0 ? m2 : fmaxf(m2, other) + 1)"
MOST_TIMES, MOST_OVER = 1.1, 3  # times as many as are counted, and so many more: ends on both sides, uneven last tiles
ALGORITHMS = [name for name, algorithm in FAMILY.algorithms.items() if algorithm.not_on_host is None]
LITERATURE = ("interleaved", "shfl", "tree")
MOST_OF_RUN = 32  # elements whose moments are found at once
SEVERAL = 5  # problems of a spec on which paths are counted


def counting(made: Variant) -> str:
    """The text of a sum, or of a variance, that counts additions, or merges, instead of carrying them out."""
    head, mark, body = render(made).partition(MARK)
    assert isinstance(made.spec, ReductionSpec)
    add = "{ return a + b; }"
    if made.spec.op == ("var",):
        both = r"fmaf\(apart \* apart, weights\.between, a\.m2 \+ m2\)"
        body, changes = re.subn(both, "weights.is_first ? m2 : fmaxf(a.m2, m2) + 1", body)
        # The lanes of a warp add their squares: one without elements is no merge.
        body = body.replace("fmaf(apart * apart, count, own.m2)", "own.count > 0 ? own.m2 : -1.0f")
        added = "m2 += __shfl_xor_sync(0xffffffffu, m2, distance);"
        body = body.replace(added, f"const float other = {added[6:]} m2 = {DEEPER_OF_LANES};")
        body = body.replace("Moments{total, mean, m2}", "Moments{total, mean, fmaxf(m2, 0.0f)}")
    elif add in body:
        body, changes = body.replace(add, f"{{ return {DEEPER}; }}"), body.count(add)
    else:  # the literature's
        deeper = f"__device__ __forceinline__ float deeper(float a, float b) {{ return {DEEPER}; }}\n"
        body, changes = re.subn(r"\b(sum|value|data\[\w+\]) \+= ([^;]+);", r"\1 = deeper(\1, \2);", body)
        body = deeper + body.replace("data[i] = mine + other;", "data[i] = deeper(mine, other);")
        mark += "\n"
    assert changes > 0, made.name
    return head + mark + body


def longest(runner: HostRunner, made: Variant, extents: Extents) -> int:
    """Additions that round, or merges, on the longest path, wherever the array begins."""
    assert isinstance(made.spec, ReductionSpec)
    (kernel,) = runner.load([made])
    layouts, found = FAMILY.layouts(made.spec, extents), 0.0
    for offset in range(4):
        blocks = {name: allocate(layout, offset if name == "in" else 0, 0) for name, layout in layouts.items()}
        blocks["in"].array[...] = 1
        kernel.run(extents, {name: block.array for name, block in blocks.items()})
        found = max(found, float(np.max(blocks["out"].array)))
    return round(found * extents["n"]) if made.spec.op == ("var",) else round(found) - 1


def problems(made: Variant, runner: HostRunner) -> Iterator[tuple[Extents, HostRunner]]:
    """Some of the family's problems, on devices of few and of many multiprocessors."""
    assert isinstance(made.spec, ReductionSpec)
    usual = [extents for extents in FAMILY.cases(made.spec) if has_elements(FAMILY, made.spec, extents)]
    taken = 0
    for place, extents in enumerate((*usual[::-1], *made.edge_cases())):
        limits = replace(runner.limits, multiprocessors=MULTIPROCESSOR_COUNTS[place % len(MULTIPROCESSOR_COUNTS)])
        if made.algorithm.unsupported_extents(made.spec, made.config, extents, limits) is None and taken < SEVERAL:
            taken += 1
            yield extents, runner.on(limits)


def variants(name: str, op: str) -> list[Variant]:
    algorithm = FAMILY.algorithms[name]
    made = spec(op, axis=FAMILY.extra_proof_specs.get(name, FAMILY.catalogue[0]).axis)
    return [variant(FAMILY, made, algorithm, config) for config in pairwise(search_space(algorithm, made))]


def every_third(names: list[str]) -> list[ParameterSet]:
    """Of those every third is counted in .ci/run too, and the others by make check alone."""
    return [
        pytest.param(name, marks=pytest.mark.further if place % 3 else pytest.mark.exhaustive)
        for place, name in enumerate(names)
    ]


@pytest.fixture(scope="module")
def counter(cache: Path) -> HostRunner:
    """The CPU run of texts that count."""
    return HostRunner(H100, cache=cache, text=counting)


@pytest.mark.parametrize("name", every_third(ALGORITHMS))
def test_the_roundings_of_a_sum_are_those_on_its_longest_path(name: str, counter: HostRunner) -> None:
    made = variants(name, "sum")[::3]
    assert made
    counter.load(made)
    for one in made:
        for extents, runner in problems(one, counter):
            stated = one.algorithm.roundings(one.spec, one.config, extents, runner.limits)
            counted = longest(runner, one, extents)
            assert counted <= stated <= MOST_TIMES * counted + MOST_OVER, (one.name, extents, counted, stated)


@pytest.mark.parametrize("name", every_third([name for name in ALGORITHMS if name not in LITERATURE]))
def test_the_roundings_of_a_variance_are_those_of_the_merges_on_its_longest_path(
    name: str, counter: HostRunner
) -> None:
    made = variants(name, "var")[::3]
    assert made
    counter.load(made)
    for one in made:
        for extents, runner in problems(one, counter):
            counted = longest(runner, one, extents)
            stated = one.algorithm.roundings(one.spec, one.config, extents, runner.limits)
            runs = 2 * MOST_OF_RUN + 8
            assert MERGE * counted <= stated <= MERGE * (MOST_TIMES * counted + MOST_OVER) + runs, (one.name, extents)
