"""Every exchange of cells broken on purpose: simulated devices find each, by other bits or by work without an order."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest

from gen.errors import GenError, RunError
from gen.families.base import Array
from gen.families.stencil import Stencil, StencilSpec
from gen.families.system import SystemSpec, fields, scalars, system
from tests.sharding import Problem, changed, computed, right, same

SPLIT, ARRAYS, KERNEL = "families.stencil.split", "runtime.sharded", "runtime.sharded_kernel"
ORDERS = range(2)


@dataclass(frozen=True)
class Mutant:
    """A line of a module that is broken.

    Attributes:
        name: what is broken.
        module: of gen.
        old: what stands there, once.
        new: what stands there instead.
        unordered: whether only the order of work is wrong: then streams race, and in some order bits differ.
    """

    name: str
    module: str
    old: str
    new: str
    unordered: bool = False


MUTANTS = (
    Mutant("a halo is a row too narrow", SPLIT, "tuple(steps * reach if", "tuple(max(steps * reach - 1, 0) if"),
    Mutant("cells are of the neighbour before", SPLIT, "yield rank, (inside, inside + count)",
           "yield max(rank - 1, 0), (inside, inside + count)"),
    Mutant("cells go a row too far", KERNEL, "first + at + begin - low, first + at + end - low",
           "first + at + begin - low + (low > 0), first + at + end - low + (low > 0)"),
    Mutant("a rank does not wait until its halo is there", KERNEL,
           "_wait_for(rank, stream, decomposition.progress[owner].sent)", "pass", unordered=True),
    Mutant("a rank does not wait until others have read their halo", KERNEL,
           "rank.device.wait_for(stream, read_by_other)", "pass", unordered=True),
    Mutant("a rank does not wait for its rims", KERNEL, "_wait_for(rank, rank.main.handle, progress.read)", "pass",
           unordered=True),
)  # fmt: skip
MORE_MUTANTS = (
    Mutant("a halo is a step too narrow", SPLIT, "tuple(steps * reach if", "tuple((steps - 1) * reach if"),
    Mutant("a halo has the smaller reach", SPLIT, "max(before, after) for", "min(before, after) for"),
    Mutant("common cells begin where the first box does", SPLIT, "(max(begin, low), min(end, high))",
           "(begin, min(end, high))"),
    Mutant("rims leave out a row", SPLIT, "side[0] < side[1]:", "side[0] + 1 < side[1]:"),
    Mutant("rims leave out the corners", SPLIT, "side, *self._own[axis + 1 :]", "side, *inner[axis + 1 :]"),
    Mutant("an axis that wraps ends at its first cell", SPLIT, "begin - halo if wraps_before", "begin if wraps_before"),
    Mutant("an axis that wraps at one end joins steps", SPLIT, "1 if 1 in wraps else None", "None"),
    Mutant("an axis that wraps at one end has one rim", SPLIT, "(end < along[-1] or any(wraps))",
           "(end < along[-1] or wraps[1])"),
    Mutant("cells are a row off", ARRAYS, "self.address + sum((first - begin) * stride for",
           "self.address + sum((first - begin - (first > begin)) * stride for"),
    Mutant("rows follow each other as in what is sent", ARRAYS, "wide * self.size", "cols * self.size"),
    Mutant("planes follow each other as in what is sent", ARRAYS, "max(plane_rows, rows)", "rows"),
    Mutant("cells go to the wrong rank", KERNEL, "self.copy(number, sending.to, rows,",
           "self.copy(number, (sending.to + 1) % len(self.ranks), rows,"),
    Mutant("cells are sent by the wrong rank", KERNEL,
           "sendings[piece.owner] += _sendings(other, piece, rim, rims[piece.owner])",
           "sendings[other] += _sendings(other, piece, rim, rims[other])"),
    Mutant("the first cells are sent from rims of the last call", KERNEL, "if inputs else", "if False else"),
    Mutant("cells are sent once and never again", KERNEL, "if phase < phases - 1:", "if False:"),
    Mutant("own cells are not copied to rims", KERNEL, "for piece in rim.part.own:", "for piece in ():"),
    Mutant("one field alone is sent", KERNEL, "for field, before in enumerate(rim.before):",
           "for field, before in enumerate(rim.before[:1]):"),
    Mutant("a field is sent in the place of another", KERNEL, "source.after[field].rows(cells) if",
           "source.after[0].rows(cells) if"),
    Mutant("own cells of coefficients are not copied to rims", KERNEL, "len(inputs) if phase == 0 else len(outs)",
           "len(outs)"),
    Mutant("rims are kept as they were before", KERNEL, "zip(targets, rim.after, strict=True)",
           "zip(targets, rim.before, strict=False)"),
    Mutant("the last phase has all steps", KERNEL, "min(decomposition.steps, steps - first)", "decomposition.steps"),
    Mutant("phases end in the other array", KERNEL, "targets[(phases - 1 - phase) % 2]", "targets[-(phase % 2)]"),
    Mutant("a rank does not wait for one of its neighbours", KERNEL,
           "for owner in sorted(decomposition.shares[number].owners):",
           "for owner in sorted(decomposition.shares[number].owners)[1:]:", unordered=True),
    Mutant("a rank does not wait for its own cells", KERNEL, "_wait_for(rank, stream, progress.written)", "pass",
           unordered=True),
    Mutant("a call does not wait for the input", KERNEL, "rank.device.wait_for(rank.rim.handle, progress.written)",
           "pass", unordered=True),
    Mutant("what is sent is marked before it is sent", KERNEL,
           "progress.sent = rank.device.mark(rank.rim.handle)",
           "progress.sent = progress.read or rank.device.mark(rank.rim.handle)", unordered=True),
    Mutant("rims are computed on the stream of the inside", KERNEL,
           "queue((rank.main if rim is None else rank.rim).handle)", "queue(rank.main.handle)", unordered=True),
)  # fmt: skip


@cache
def problems() -> tuple[tuple[Problem, list[Array]], ...]:
    """Problems that between them hang on every exchange, and what is right."""
    random = np.random.default_rng(0)

    def problem(
        spec: StencilSpec | SystemSpec, extents: tuple[tuple[int, ...], ...], per_exchange: int | None
    ) -> Problem:
        cells = random.random([sum(along) for along in extents]).astype(spec.dtype.numpy)
        return Problem(spec, extents, (5, 3, 4), per_exchange, 1, (cells,))

    heat = Stencil.catalogue[0]
    corners = (0.25, 0, -0.5, 0, 0.375, 0, 0.5, 0, 0.125)
    u, v, m = fields("u v m")
    (k,) = scalars("k")
    wave = system({u: 2 * u - k * v + m * u.laplace(), v: u}, boundary=["mirror", "wrap"], word="wave")
    waves = replace(
        problem(wave, ((4, 5), (4, 6)), 2), cells=tuple(random.random((9, 10), np.float32) for _ in range(3)),
        scalars=(("k", 0.5),),
    )  # fmt: skip
    found = (
        waves,
        problem(replace(heat, boundary=("wrap", "mirror")), ((9, 20, 12), (9,)), 2),
        problem(StencilSpec("corners", corners, boundary=("wrap", "mirror")), ((11, 14), (13, 3, 12)), 2),
        problem(StencilSpec("aside", (0.25, -0.5, 0.125, 0.5), (4, 1), boundary="nearest"), ((25, 14, 31), (3,)), 2),
        problem(replace(heat, boundary="wrap"), ((3, 4, 3, 3), (5,)), 3),
        problem(StencilSpec("space", (0.25, 0, 0.5, 0, 0, 0.125, 0, 0.25), (2, 2, 2)), ((4, 9), (12, 5), (4,)), 2),
        problem(
            StencilSpec("ends", (0.25, 0.5, 0.125), (3,), boundary=(("wrap", "reflect"),)), ((800, 780, 900),), None
        ),
    )
    return tuple((one, right(one)) for one in found)


def named(mutant: Mutant) -> str:
    return mutant.name.replace(" ", "-")


def test_the_problems_are_computed_right() -> None:
    for problem, wanted in problems():
        assert same(computed(problem, 0), wanted)


@pytest.mark.parametrize(
    "mutant", [*MUTANTS, *(pytest.param(one, marks=pytest.mark.exhaustive) for one in MORE_MUTANTS)], ids=named
)
def test_every_mutant_is_caught(mutant: Mutant) -> None:
    load = changed(mutant.module, mutant.old, mutant.new)
    for problem, wanted in problems():
        for order in ORDERS:
            try:
                found = computed(problem, order, load=load)
            except (GenError, AssertionError):
                return
            if not same(found, wanted):
                assert not mutant.unordered, "bits differ, but nothing has said that work has no order"
                return
    pytest.fail("not caught")


@pytest.mark.exhaustive
@pytest.mark.parametrize("mutant", [one for one in (*MUTANTS, *MORE_MUTANTS) if one.unordered], ids=named)
def test_work_without_an_order_gives_other_bits_in_some_order(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even without the check that finds it in every order."""
    monkeypatch.setattr("gen.runtime.simulated._overlap", lambda *_: False)
    load = changed(mutant.module, mutant.old, mutant.new)
    for order in range(20):
        for problem, wanted in problems()[:3]:
            with suppress(RunError):
                if not same(computed(problem, order, load=load), wanted):
                    return
    pytest.fail("no order shows it")
