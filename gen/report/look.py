"""Variants looked at: run on the CPU, compiled, disassembled where that can be done, and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gen.emit.render import render
from gen.families.base import Extents, Limits, Variant
from gen.families.counts import among
from gen.families.layout import extents_of
from gen.paths import cache_home
from gen.proof.host import HostRunner
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
    """
    given = None if shape is None else read_shape(shape)
    found = largest(variant, limits) if given is None else extents_of(variant.family, variant.spec, given)
    added = {name: size + (more or {}).get(name, 0) for name, size in found.items()}
    return {**added, **among(variant.family, variant.spec, counts or {})}


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
