"""Stencils, systems, reductions and transposes on several GPUs against one, for `bench/devices.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

import gen
from bench.device_rows import Place, Row, shape_text
from bench.device_steps import cube, fields_of, heat, wave
from gen.families.base import Array, Spec
from gen.gpu.device import Peer
from gen.runtime.sharded import ShardedArray
from gen.runtime.sharded_kernel import ShardedKernel

Checked = Callable[..., Iterator[Row]]


def checks(place: Place, checked: Checked) -> Iterator[Row]:
    """What is computed on several devices, split in many ways, several calls in a row, against one device."""
    for ranks, shared in [(count, False) for count in place.counts] + [(2 * len(place.devices), True)]:
        yield from checked((place.devices * 2)[:ranks], small=place.machine is not None, shared=shared)


def checked_steps(devices: Sequence[Peer], *, small: bool, shared: bool, axes: int) -> Iterator[Row]:
    """Of two or three axes."""
    ranks = len(devices)
    specs: dict[str, Spec] = {"5 points f32": heat("f32"), "5 points f64": heat("f64"), "kernel_2dfd": wave(),
             "7 points f32": cube(), "7 points f64": cube("f64"),
             "9 points, mirror": gen.stencil(np.arange(1, 10).reshape(3, 3) / 64, boundary="mirror"),
             "5 points, wrap": gen.stencil(gen.star(2, 1), boundary="wrap", dtype="f64")}  # fmt: skip
    for name, spec in specs.items():
        if len(spec.axes) != axes:  # type: ignore[attr-defined]
            continue
        shape = ((70, 41) if small else (1500, 1237)) if axes == 2 else ((33, 20, 24) if small else (200, 150, 130))
        one = gen.load(spec, devices=devices[:1])
        fields = fields_of(shape, one.inputs, one.dtype)
        grids = [(ranks,) + (1,) * (axes - 1), (1, ranks) + (1,) * (axes - 2)]
        if ranks == 4:
            grids.append((2, 2) + (1,) * (axes - 2))
        wanted = _chained(one, fields, None)
        for grid, exchange in product(grids, (None, 3)):
            uneven = [_uneven(extent, n) for extent, n in zip(shape, grid, strict=True)]
            kernel = gen.load(spec, devices=devices, grid=grid, shared=shared, steps_per_exchange=exchange)
            equal = all(
                a.tobytes() == b.tobytes() for a, b in zip(_chained(kernel, fields, uneven), wanted, strict=True)
            )
            how = f"{shape_text(grid)} ranks, {exchange or 'chosen'} an exchange"
            yield Row("check", f"{name}, {shape_text(shape)}", how, len(set(devices)), equal)


def _uneven(extent: int, ranks: int) -> tuple[int, ...]:
    parts = [extent * (number + 2) // sum(range(2, ranks + 2)) for number in range(ranks - 1)]
    return (*parts, extent - sum(parts))


def _chained(kernel: ShardedKernel, fields: Sequence[Array], extents: Any) -> list[Array]:
    """The outputs of three calls, each of what the one before gave."""
    arrays = [kernel.scatter(field, extents) for field in fields]
    outs: tuple[ShardedArray, ...] = ()
    for steps in (7, 1, 20):
        made = kernel(*arrays, steps=steps)
        outs = made if isinstance(made, tuple) else (made,)
        arrays = [*outs, *arrays[len(outs) :]]
    return [out.gather() for out in outs]


def checked_reductions(devices: Sequence[Peer], *, small: bool, shared: bool) -> Iterator[Row]:
    """Of whole arrays whose rows are split."""
    random = np.random.default_rng(2)
    shape = (230, 40) if small else (9001, 1300)
    for op, dtype in (
        ("sum", "float32"),
        ("sum", "float64"),
        ("max", "float32"),
        ("min", "int32"),
        ("count_nonzero", "uint8"),
        ("any", "uint8"),
        ("argmax", "float32"),
    ):
        spec = gen.reduction(op, dtype)
        one = gen.load(spec, devices=devices[:1])
        whole = (random.random(shape) * 200).astype(one.dtype)
        wanted = one(one.scatter(whole)).numpy()
        near = np.allclose(wanted, getattr(np, op)(whole.astype(np.float64) if op == "sum" else whole), rtol=1e-4)
        kernel = gen.load(spec, devices=devices, shared=shared)
        for extents in (None, [_uneven(shape[0], len(devices)), (shape[1],)]):
            array = kernel.scatter(whole, extents)
            found = [kernel(array).numpy() for _ in range(3)]
            equal = near and all(one.tobytes() == wanted.tobytes() for one in found)
            how = f"{len(devices)} ranks, {'uneven' if extents else 'even'}"
            yield Row("check", f"{op} {dtype}, {shape_text(shape)}", how, len(set(devices)), equal)


def checked_transposes(devices: Sequence[Peer], *, small: bool, shared: bool) -> Iterator[Row]:
    """Of matrices."""
    random = np.random.default_rng(3)
    for dtype, shape in product(
        ("float32", "uint8", "float64"), ((90, 64), (61, 97)) if small else ((4096, 2048), (3001, 1777))
    ):
        whole = random.integers(0, 200, shape).astype(dtype)
        kernel = gen.load(gen.permutation((1, 0), dtype), devices=devices, shared=shared)
        for uneven in (False, True):
            array = kernel.scatter(whole, [_uneven(shape[0], len(devices)), (shape[1],)] if uneven else None)
            out = kernel(array)
            for _ in range(2):
                kernel(array, out=out)
            equal = np.array_equal(out.gather(), whole.T)
            how = f"{len(devices)} ranks, {'uneven' if uneven else 'even'}"
            yield Row("check", f"transpose {dtype}, {shape_text(shape)}", how, len(set(devices)), equal)
