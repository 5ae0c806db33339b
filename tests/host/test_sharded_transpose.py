"""Arrays on several devices, their axes permuted: NumPy's, whatever the split and the order of streams."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import gen
from gen.arch import Limits
from gen.emit.render import render
from gen.errors import ArgumentError, RunError, ShapeError
from gen.families.base import Array, Variant
from gen.families.stencil import Stencil
from gen.families.stencil.split import cuts_of
from gen.families.transpose import Transpose
from gen.families.transpose.pairs import pair_of
from gen.paths import cache_home, output_home
from gen.proof.host import HostRunner
from gen.runtime.sharded import Scattering, ShardedArray
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner
from tests.sharding import changed

HEAT = Stencil.catalogue[0]
SPEC = gen.permutation((1, 0), "float32")
LIMITS = Limits.of("sm_90")


def matrix(rows: int, cols: int, dtype: str = "float32") -> Array:
    return np.arange(rows * cols).reshape(rows, cols).astype(dtype)


def cut(extent: int, ranks: int, seed: int) -> tuple[int, ...]:
    places = np.random.default_rng(seed).choice(np.arange(1, extent), ranks - 1, replace=False)
    return tuple(np.diff([0, *sorted(places), extent]).tolist())


def pieces_of(kernel: Any, seed: int) -> Any:
    """Small pieces that copy engines move, in a ring of one to three; every fourth time kernels store what they can."""
    fewest = 1 << 40 if seed % 4 == 3 else 2
    return replace(kernel.pieces, size=4 << seed % 4, fewest=fewest, slots=seed % 3 + 1, least_row=1, least_copy=1)


def turned(seed: int, ranks: int, dtype: str = "float32", load: Any = gen.load, peer_access: bool = True) -> bool:
    """Whether a matrix is turned, turned back, and another one turned to where the first transpose was."""
    rows, cols = 11 + 3 * ranks, 9 + 5 * ranks
    devices = Machine(seed=seed, runner=OracleRunner()).devices(ranks, peer_access=peer_access)
    kernel = load(gen.permutation((1, 0), dtype), devices=devices)
    kernel.pieces = pieces_of(kernel, seed)
    one, other = matrix(rows, cols, dtype), matrix(rows, cols, dtype)[::-1, ::-1]
    split = [cut(rows, ranks, seed), (cols,)]
    first, second = (kernel.scatter(found, split) for found in (one, other))
    out = kernel.scatter(one.T * 0, [cut(cols, ranks, seed + 1), (rows,)])
    kernel(first, out=out)
    back, transposed = kernel(out), kernel(first)
    if dtype == "float32":  # which reads what is then written by others
        load(HEAT, devices=devices)(out, steps=1)
    kernel(second, out=out)
    found = [array.gather() for array in (out, back, transposed)]
    return all(np.array_equal(got, wanted) for got, wanted in zip(found, (other.T, one, one.T), strict=True))


@pytest.mark.parametrize("ranks", range(1, 9))
def test_any_split_gives_numpys_transpose(ranks: int) -> None:
    assert turned(ranks, ranks, ("float32", "int16", "complex64", "uint8")[ranks % 4])


def placed(kernel: Scattering, array: Array, seed: int) -> ShardedArray:
    """The array on the kernel's devices, split along any axes."""
    random, ranks = np.random.default_rng(seed), len(kernel.ranks)
    able = [grid for grid in product(range(1, ranks + 1), repeat=array.ndim) if math.prod(grid) == ranks]
    able = [grid for grid in able if all(n <= extent for n, extent in zip(grid, array.shape, strict=True))]
    grid = able[random.integers(len(able))]
    cuts = [cut(extent, n, seed + place) for place, (extent, n) in enumerate(zip(array.shape, grid, strict=True))]
    own_class = type(kernel.empty((ranks,) * array.ndim))  # that of a module with a change
    made = own_class(kernel.ranks, cuts_of(cuts), array.dtype)
    for shard, where in zip(made.shards, made.slices, strict=True):
        np.from_dlpack(shard)[...] = array[where]
    return made


def permuted(seed: int, load: Any = gen.load, peer_access: bool = True) -> bool:
    """Whether an array of one to four axes is permuted, twice in a row to where the first result was.

    It is split along its first axis, and then, as the result is, along any.
    """
    random = np.random.default_rng(seed)
    axes, ranks = tuple(random.permutation(random.integers(1, 5)).tolist()), seed % 8 + 1
    shape = tuple(int(n) for n in random.integers(1, 7, len(axes)))
    shape = tuple(n + ranks if axis in (0, axes[0]) else n for axis, n in enumerate(shape))
    dtype = ("uint8", "float32", "complex128")[seed % 3]
    one, other = (random.integers(0, 99, shape).astype(dtype) for _ in range(2))
    machine = Machine(seed=seed, runner=OracleRunner())
    kernel = load(gen.permutation(axes, dtype), devices=machine.devices(ranks, peer_access=peer_access))
    kernel.pieces = pieces_of(kernel, seed)
    first, second = kernel.scatter(one, splits(shape, ranks, seed)), placed(kernel, other, seed)
    result = one.transpose(axes)
    made = kernel(first)
    out = placed(kernel, result * 0, seed + 1)
    kernel(first, out=out)
    for _ in range(3):  # as a graph at last
        kernel(second, out=out)
    wanted = (result, other.transpose(axes))
    return all(np.array_equal(got.gather(), right) for got, right in zip((made, out), wanted, strict=True))


def splits(shape: tuple[int, ...], ranks: int, seed: int) -> list[tuple[int, ...]]:
    return [cut(shape[0], ranks, seed), *((extent,) for extent in shape[1:])]


@pytest.mark.parametrize("seed", range(24))
def test_random_permutations_are_numpys(seed: int) -> None:
    assert permuted(seed, peer_access=seed % 3 > 0)


def repeated(seed: int, load: Any = gen.load) -> bool:
    """Whether calls that are repeated, before and after one for which the ring grows, give what they should."""
    kernel = load(SPEC, devices=Machine(seed=seed, runner=OracleRunner()).devices(3))
    kernel.pieces = replace(kernel.pieces, size=100, fewest=1, slots=1, least_row=1, least_copy=1)
    small, large = matrix(12, 15), matrix(30, 24)
    one, other = kernel.scatter(small), kernel.empty((15, 12), dtype="float32")
    right = True
    for _ in range(2):
        for _ in range(3):
            kernel(one, out=other)
            kernel(other, out=one)
        right &= [graph is not None for graph in kernel._graphs.made.values()] == [True, True]
        right &= np.array_equal(kernel(kernel.scatter(large)).gather(), large.T)
    kernel.replays = False
    kernel(one, out=other)
    return right and np.array_equal(other.gather(), small.T)


def test_calls_that_are_repeated_are_replayed_as_graphs() -> None:
    assert all(map(repeated, range(2)))


PAIRED = (  # axes, shape and dtype; ranks
    (((1, 0), (256, 512), "float32"), 2),
    (((1, 0), (96, 576), "complex64"), 3),
    (((2, 1, 0), (128, 3, 256), "float32"), 2),
    (((0, 2, 1), (5, 64, 192), "float32"), 2),
    (((1, 0), (1024, 2048), "uint8"), 4),
)


def paired(number: int, seed: int, load: Any = gen.load) -> bool:
    """Whether a permutation is NumPy's by which every rank permutes two blocks by one call."""
    (axes, shape, dtype), ranks = PAIRED[number]
    cells = np.random.default_rng(seed).integers(0, 99, shape).astype(dtype)
    kernel = load(gen.permutation(axes, dtype), devices=Machine(seed=seed, runner=OracleRunner()).devices(ranks))
    kernel.pieces = replace(kernel.pieces, paired=1 << 10)
    array, made = kernel.scatter(cells), kernel.empty(np.transpose(cells, axes).shape, dtype=dtype)
    if axes[0] == 0:  # what stays in rows of a rank goes to another one: the result is split along its last axis
        extents = [(0, extent) for extent in made.shape[:-1]]
        made = type(made)(kernel.ranks, (*extents, (0, made.shape[-1] // 2, made.shape[-1])), made.dtype)
    for _ in range(3):  # as a graph at last
        kernel(array, out=made)
    right = np.array_equal(made.gather(), cells.transpose(axes))
    moves = next(iter(kernel._calls.values()))
    return right and len(moves) == ranks * (ranks - 1)  # one for each block of another rank, and none for the own one


def unpaired(seed: int, load: Any = gen.load) -> bool:
    """Whether blocks of other extents than the own one has, or in rows of other lengths, get where they belong."""
    cells, ranks = matrix(256, 640), 2
    kernel = load(SPEC, devices=Machine(seed=seed, runner=OracleRunner()).devices(ranks))
    kernel.pieces = replace(kernel.pieces, paired=1 << 10)
    out = kernel.scatter(cells.T * 0, [(256, 384), (256,)])
    kernel(kernel.scatter(cells), out=out)
    return np.array_equal(out.gather(), cells.T)


@pytest.mark.parametrize("number", range(len(PAIRED)))
def test_the_own_block_and_another_one_are_permuted_by_one_call(number: int) -> None:
    assert paired(number, number)


def by_one_call(dtype: str, first: int, pair_of: Any = pair_of) -> bool:
    """Whether the emitted kernel permutes two blocks, of which either comes first in the input, and nothing beside."""
    size = np.dtype(dtype).itemsize
    rows, cols, gap = 128, 512, 4096
    cells = np.random.default_rng(0).integers(0, 99, (rows, 2 * cols)).astype(dtype)
    there = np.full(gap + 2 * rows * cols, 7, dtype)
    step, apart = ((-cols, cols)[first == 0], gap + rows * cols)
    block = [(rows, 2 * cols, 1), (cols, 1, rows)]
    found = pair_of(Transpose(), gen.permutation((1, 0), dtype), block, (step, apart), 1 << 12, 16, LIMITS)
    assert found is not None
    made, extents = found
    assert extents["batch0"] == cols // (256 if size == 1 else 64)  # parts, of whole tiles
    view = np.lib.stride_tricks.as_strided
    source = view(cells[:, cols * first :], (1, 2, rows, cols), tuple(size * n for n in (1, step, 2 * cols, 1)))
    target = view(there, (1, 2, cols, rows), tuple(size * n for n in (1, apart, rows, 1)))
    kernel(made).run(extents, {"in": source, "out": target})
    right = np.array_equal(target[0], source[0].transpose(0, 2, 1))
    return right and bool((there[rows * cols : apart] == 7).all())


@cache
def kernel(made: Variant) -> Any:
    """Built once."""
    (found,) = HostRunner(LIMITS, cache=cache_home(output_home()), text=render).load([made])
    return found


@pytest.mark.parametrize(("dtype", "first"), [("float32", 0), ("float32", 1), ("uint8", 1)])
def test_the_emitted_kernel_permutes_two_blocks_in_turns(dtype: str, first: int) -> None:
    assert by_one_call(dtype, first)


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"alignment": 8}, (64, 512)),  # rows begin between vectors
        ({"apart": (512, 40_001)}, (64, 512)),  # so do those of the other block
        ({}, (16, 512)),  # rows of the result are shorter than what a link moves
        ({}, (64, 64)),  # one tile across: there are no parts
        ({"axes": (7, 6, 5, 4, 3, 2, 1, 0)}, (64, 512)),  # two axes more are too many
        ({"to": "float64"}, (64, 512)),
    ],
)
def test_blocks_that_no_call_permutes_in_turns(changes: dict[str, Any], shape: tuple[int, int]) -> None:
    rows, cols = shape
    spec = gen.permutation(changes.get("axes", (1, 0)), "float32", to=changes.get("to"))
    block = [(rows, 2 * cols, 1), (cols, 1, rows)]
    apart, alignment = changes.get("apart", (cols, 40_000)), changes.get("alignment", 16)
    assert pair_of(Transpose(), spec, block, apart, 1 << 12, alignment, LIMITS) is None


def test_devices_without_a_way_to_each_other_copy_blocks() -> None:
    assert turned(3, 3, peer_access=False)


def test_the_emitted_kernels_turn_and_convert() -> None:
    cells = np.random.default_rng(0).random((45, 70), np.float32)
    cube = np.random.default_rng(1).random((13, 9, 21), np.float32)
    for spec, given, wanted in (
        (SPEC, cells, cells.T),
        (gen.permutation((1, 0), "float32", to="float16"), cells, cells.T.astype("f2")),
        (gen.permutation((1, 0, 2), "float32"), cube, cube.transpose(1, 0, 2)),
        (gen.permutation((2, 0, 1), "float32"), cube, cube.transpose(2, 0, 1)),
    ):
        machine = Machine(seed=2)
        kernel: Any = gen.load(spec, devices=machine.devices(3))
        kernel.pieces = pieces_of(kernel, 0)
        found = kernel(kernel.scatter(given)).gather()
        assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes()), machine


def test_what_is_wrong_is_said() -> None:
    devices = Machine(seed=0, runner=OracleRunner()).devices(3)
    with pytest.raises(ArgumentError, match="must not work in place to be computed on several devices"):
        gen.load(gen.permutation((1, 0), "float32", in_place=True), devices=devices)
    kernel = gen.load(SPEC, devices=devices)
    array = kernel.scatter(matrix(4, 6))
    with pytest.raises(
        ShapeError, match=r"in must have, along axis 1, an element for each of 3 ranks \(got \(4, 2\)\)"
    ):
        kernel(kernel.scatter(matrix(4, 2)))
    with pytest.raises(ArgumentError, match="out must not be the array that in is"):
        kernel(array, out=array)
    with pytest.raises(ShapeError, match=r"out must have shape \(6, 4\)"):
        kernel(array, out=kernel.empty((4, 6), dtype="float32"))
    with pytest.raises(ShapeError, match="out must hold float32 elements"):
        kernel(array, out=kernel.scatter(matrix(6, 4, "int32")))
    with pytest.raises(ShapeError, match="array must hold b32 elements"):
        kernel.scatter(matrix(4, 6, "float64"))
    assert repr(kernel) == "<gen kernel transpose_10_b32 on 3 ranks>"


MUTANTS = {
    "a rank stores before others are ready": ("self.meet()\n        copied:", "copied:"),
    "a rank does not wait for what others store": ("self.meet()\n\n    def _move", "pass\n\n    def _move"),
    "blocks go to the neighbour": ("(number + turn) % ranks for", "(number + turn) % 2 for"),
    "devices without a way use each other's memory": ("reached = self.reaches(rank, target)", "reached = True"),
    "a rank sends what it has of other rows": ("sorted(zip(self._spec.axes,", "list(zip(self._spec.axes,"),
    "a slot is used again before its piece is copied": ("wait_for(rank.main.handle, before)", "mark(rank.main.handle)"),
    "a slot is waited for a turn late": ("move.turn - self.pieces.slots", "move.turn - self.pieces.slots - 1"),
    "a piece is copied before it is permuted": (
        "wait_for(rank.rim.handle, rank.device.mark(rank.main.handle))",
        "mark(rank.main.handle)",
    ),
    "nobody waits for the last pieces": (
        "wait_for(self.ranks[number].main.handle, mark)",
        "mark(self.ranks[number].main.handle)",
    ),
    "the ring has a slot fewer than it has turns": (
        "turn % self.pieces.slots,",
        "turn % max(self.pieces.slots - 1, 1),",
    ),
    "a graph outlives the ring that it writes": (
        "self._forget_calls()\n            known =",
        "pass\n            known =",
    ),
    "all pieces are the first": ("whole[along] = edge", "whole[along] = edges[:2]"),
    "a block has no last piece": ("in pairwise(edges)", "in pairwise(edges[:-1] if parts > 1 else edges)"),
    "slots are as large as the first piece": (
        "max((prod(extents_of_box(box)) for box in through), default=0)",
        "(prod(extents_of_box(through[0])) if through else 0)",
    ),
    "blocks of other extents are paired": ("or extents_of_box(own) != extents_of_box(sent)", ""),
    "both blocks of a pair are the own one": (
        "number, other, sent)\n        sizes",
        "number, number, own)\n        sizes",
    ),
    "what a pair has sent is sent again": ("if pair is None or other != pair.other", ""),
    "the own block stands for that of others": (
        "self._cut(array, out, number, number)",
        "self._cut(array, out, number, 0)",
    ),
}
OF_PAIRS = {
    "the parts of a block are the first one": ("Axis(parts, cols, cols * whole.out_pitch)", "Axis(parts, 0, 0)"),
    "parts follow each other as if they were whole": ("Axis(parts, cols, cols", "Axis(parts, cols, whole.cols"),
    "both blocks are read where the first one is": ("Axis(2, *apart)", "Axis(2, 0, apart[1])"),
    "both blocks are stored where the first one is": ("Axis(2, *apart)", "Axis(2, apart[0], 0)"),
    "a part is as wide as the block": ("extents(both.batches)", 'extents(both.batches) | {"cols": whole.cols}'),
}
OF_BLOCKS = {
    "a block is the first that the rank has": ("zip(box, held.box, strides, strict=True)",
                                               "zip(held.box, held.box, strides, strict=True)"),
    "a block lies as if it were the whole": ("itemsize\n    strides = dense_strides(extents_of_box(held.box), size)",
                                             "itemsize\n    strides = dense_strides(extents_of_box(tuple(box)), size)"),
    "blocks are copied without a pitch": ("pitch = self.strides[axes - 1] if axes else run", "pitch = run"),
    "blocks are copied as one run": ("self.strides[axes - 1] == run == other.strides[axes - 1]", "True"),
    "gaps of the other block are copied too": ("run == other.strides[axes - 1]", "run"),
    "the first rows of a block alone are copied": ("for place in product(*map(range, self.shape[: max(axes - 1, 0)])):",
                                                   "for place in [(0,) * max(axes - 1, 0)]:"),
}  # fmt: skip


def test_the_mutants_begin_with_what_is_right() -> None:
    assert all(turned(0, 3, peer_access=way) and permuted(10, peer_access=way) for way in (True, False))


@pytest.mark.parametrize("name", OF_PAIRS)
def test_every_mutant_of_pairs_is_caught(name: str) -> None:
    load = changed("families.transpose.pairs", *OF_PAIRS[name])
    with suppress(RunError):
        assert not by_one_call("float32", 0, load.__globals__["ShardedTranspose"]._pair.__globals__["pair_of"])


@pytest.mark.parametrize("name", [*MUTANTS, *OF_BLOCKS])
def test_every_mutant_is_caught(name: str) -> None:
    module = "sharded_transpose" if name in MUTANTS else "sharded"
    load = changed(f"runtime.{module}", *{**MUTANTS, **OF_BLOCKS}[name])
    for peer_access in (False, True):
        for order in range(3):
            with suppress(RunError, ValueError):  # the latter where blocks have other numbers of rows
                seeds = 10 + 8 * order, 13 + 8 * order  # of three and of six ranks
                right = all(permuted(seed, load, peer_access) for seed in seeds)
                right = right and turned(order, 3, load=load, peer_access=peer_access) and repeated(order, load)
                if right and paired(order, order, load) and unpaired(order, load):
                    continue
            return
    pytest.fail("not caught")
