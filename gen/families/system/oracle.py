"""What NumPy says a system computes, to the last bit: the same expressions, in the same order, rounded as often."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import numpy as np

from gen.families.base import Array, Expected
from gen.families.exact import fused_multiply_add
from gen.families.stencil.oracle import cells_at, frozen_at, stored
from gen.families.system.spec import SystemSpec
from gen.families.system.terms import Field, Fused, Joined, Negated, Number, Scalar, Sum, Term, fused

Index = tuple[Array, ...]

_APPLIED = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def expected(spec: SystemSpec, inputs: Mapping[str, Array], steps: int) -> dict[str, Expected]:
    """The fields that change, after so many steps, and what receivers saw, by the names of the outputs."""
    now = {name: inputs[name] for name in (*spec.fields, *spec.scalars)}
    shape = now[spec.fields[0]].shape
    everywhere = np.ix_(*(np.arange(extent) for extent in shape))
    traces: dict[str, list[Array]] = {name: [] for name in spec.receivers}
    for step in range(steps):
        now |= {name: _updated(spec, now, name, everywhere) for name in spec.updated}
        for name in spec.sources:
            places, inside = _cells(inputs[f"{name}_sources"], shape)
            with np.errstate(all="ignore"):
                np.add.at(now[name].reshape(-1), places[inside], inputs[f"{name}_wavelets"][step][inside])
        for name in spec.receivers:
            places, inside = _cells(inputs[f"{name}_receivers"], shape)
            traces[name].append(np.zeros(len(places), spec.dtype.numpy))
            traces[name][-1][inside] = now[name].reshape(-1)[places[inside]]
    found = {f"{name}_out": Expected(now[name].copy()) for name in spec.updated}
    for name, seen in traces.items():
        count = len(inputs[f"{name}_receivers"])
        found[f"{name}_traces"] = Expected(np.array(seen, spec.dtype.numpy).reshape(steps, count))
    return found


def _cells(points: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """The number of each point's cell, and whether it lies inside; of one outside the number means nothing."""
    inside = np.asarray(((points >= 0) & (points < np.array(shape, np.int64))).all(axis=1))
    places = np.zeros(len(points), np.int64)
    for axis, extent in enumerate(shape):
        places = places * extent + np.where(inside, points[:, axis], 0)
    return places, inside


def expected_at(spec: SystemSpec, fields: Mapping[str, Array], name: str, index: Index) -> Expected:
    """Single cells of a field after one step: an array of places along each axis says which."""
    return Expected(_updated(spec, fields, name, index))


def _updated(spec: SystemSpec, fields: Mapping[str, Array], name: str, index: Index) -> Array:
    cells = fields[name]
    with np.errstate(all="ignore"):
        found = stored(_value(spec, fused(dict(spec.updates)[name]), fields, index), spec.dtype)
    rim = frozen_at(cells.shape, index, spec.ends, *spec.reach(name))
    return np.ascontiguousarray(np.where(rim, cells[index], found))


def _value(spec: SystemSpec, term: Term, fields: Mapping[str, Array], index: Index) -> Array:
    """An expression at some places, in the type in which it is computed."""
    dtype = spec.accumulator.numpy
    match term:
        case Number(value):
            return np.full(np.broadcast_shapes(*(place.shape for place in index)), value, dtype)
        case Scalar(name):
            return np.full(np.broadcast_shapes(*(place.shape for place in index)), fields[name], dtype)
        case Field(name, _):
            return np.asarray(fields[name][index].astype(dtype))
        case Sum(_, name, taps):
            total: Array = np.zeros(np.broadcast_shapes(*(place.shape for place in index)), dtype)
            for offset, weight in taps:
                at = tuple(place + move for place, move in zip(index, offset, strict=True))
                near = cells_at(fields[name], at, spec.boundaries, spec.cval).astype(dtype)
                total = near if term.is_neighbour else fused_multiply_add(weight, near, total)
            return total
        case Negated(one):
            return np.asarray(-_value(spec, one, fields, index))
        case Joined(sign, left, right):
            return np.asarray(_APPLIED[sign](_value(spec, left, fields, index), _value(spec, right, fields, index)))
        case Fused(factor, other, addend):
            return fused_multiply_add(*(_value(spec, part, fields, index) for part in (factor, other, addend)))
    raise AssertionError(term)
