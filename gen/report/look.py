"""Variants looked at: run on the CPU, compiled, disassembled where that can be done, and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gen.arch import Limits, MemoryModel
from gen.emit.render import render
from gen.errors import ShapeError
from gen.families.base import Extents, Variant
from gen.families.extents import among, extents_of
from gen.paths import cache_home
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.proof.traffic import Traffic
from gen.report.explain import Explanation, explain
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.sass import disassembler, instructions
from gen.toolchain.usage import largest
from gen.tune.problems import read_shape


def extents_for(
    variant: Variant, limits: Limits, shape: str | None, more: Mapping[str, int] | None = None,
    counts: Mapping[str, int] | None = None,
) -> Extents:  # fmt: skip
    """The problem that a shape of the first input means.

    Args:
        variant: whose problem it is.
        limits: of the device; without a shape the largest problem is taken that is tuned there.
        shape: as `read_shape` takes it.
        more: what a kernel of the literature adds to it.
        counts: what is counted instead, `{"nreps": 20}`; those that the spec does not have change nothing.

    Raises ShapeError for a shape that cannot be read, or that the spec does not take.
    """
    found = largest(variant, limits) if shape is None else _taken(variant, shape)
    added = {name: size + (more or {}).get(name, 0) for name, size in found.items()}
    return {**added, **among(variant.family, variant.spec, counts or {})}


def _taken(variant: Variant, shape: str) -> Extents:
    given = read_shape(shape)
    try:
        return extents_of(variant.family, variant.spec, given)
    except ShapeError as error:
        rule = f"must be a shape that {variant.spec_name} takes: {error.subject} {error.rule}"
        raise ShapeError("--shape", rule, shape) from error


def moves(
    variants: Sequence[Variant], limits: Limits, home: Path, extents: Sequence[Extents], model: MemoryModel
) -> tuple[Traffic, ...]:
    """What each variant moves on its problem, by how an architecture moves data that no compiler here knows."""
    kernels = HostRunner(limits, cache=cache_home(home), text=render).load(variants)
    return tuple(traffic(kernel, limits, sizes, model) for kernel, sizes in zip(kernels, extents, strict=True))


def explanations(
    variants: Sequence[Variant], limits: Limits, home: Path, extents: Sequence[Extents]
) -> tuple[Explanation, ...]:
    """Each variant explained on its problem; built together."""
    cache = cache_home(home)
    kernels = HostRunner(limits, cache=cache, text=render).load(variants)
    compiler, program = Nvrtc(cache), disassembler()
    found = []
    for variant, kernel, sizes in zip(variants, kernels, extents, strict=True):
        compiled = compiler.compile(variant.name, render(variant), limits.arch)
        opcodes = instructions(compiled.cubin, program) if program else None
        found.append(explain(variant, kernel, compiled, limits, sizes, opcodes))
    return tuple(found)
