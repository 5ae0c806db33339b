"""What runs under a tool, on the GPU: the variants of a family, on awkward sizes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from bench.sanitizer.exact import ExactRunner
from bench.sanitizer.faults import FAULTS
from bench.sanitizer.jobs import Job
from gen.arch import DEFAULT_ARCH
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_family, find_variant
from gen.paths import cache_home, output_home
from gen.proof.cases import Case, cases_of, edge_cases
from gen.proof.prover import Proof, prove, unsupported_extents
from gen.tune.targets import of_family

# Of the device that is played: few, so that small problems make blocks go round and wait for each other.
MULTIPROCESSORS = 2


def chosen(family: str, limits: Limits, name: str | None, algorithms: Sequence[str] = ()) -> tuple[Variant, ...]:
    """The variants of a family that are run; only the one of this name, if there is a name, or of these algorithms."""
    if name is not None:
        return (find_variant(FAMILIES, name, {}),)
    variants = of_family(find_family(FAMILIES, family), True, limits)
    return tuple(made for made in variants if not algorithms or made.algorithm.name in algorithms)


def sizes_of(variant: Variant, most: int) -> tuple[list[Case], int]:
    """The cases of a variant, each awkward size once, no more than `most` spread over all; and how many there are.

    If not all, then of those that it takes.
    """
    # Each size comes with exact integers and with another content, in turns: to a sanitizer they are the same.
    edges = {str(case.extents): case for case in edge_cases(variant)}
    each = (*list(cases_of(variant.family, variant.spec))[::2], *edges.values())
    every = [replace(case, multiprocessors=MULTIPROCESSORS) for case in each]
    if most >= len(every):
        return every, len(every)
    limits = replace(Limits.of(DEFAULT_ARCH), multiprocessors=MULTIPROCESSORS)
    taken = [case for case in every if unsupported_extents(variant, case, limits) is None]
    few = min(most, len(taken))
    return [taken[place * len(taken) // few] for place in range(few)], len(every)


def work(options: argparse.Namespace) -> dict[str, Any]:
    """Runs one family, or a part of it, under the tool that this process runs under; what was done."""
    from bench.runner import CudaRunner
    from gen.gpu.cuda import open_device
    from gen.toolchain.nvrtc import Nvrtc

    start = time.monotonic()
    compiler = Nvrtc(cache_home(output_home()), line_info=True)
    device = open_device(0, compiler)
    text = FAULTS[options.tool].text if options.plant else render
    runner = ExactRunner(CudaRunner(device, compiler, text), device, blank=options.tool == "initcheck")
    proofs: list[Proof] = []
    sizes: dict[str, tuple[int, int]] = {}
    job = Job(options.tool, options.family, options.part, options.parts)
    variants = job.of(chosen(options.family, device.limits, options.name, options.algorithm))
    for _, group in groupby(variants, key=lambda made: made.spec):
        for variant in group:
            cases, count = sizes_of(variant, options.cases)
            sizes[variant.spec.label] = max((len(cases), count), sizes.get(variant.spec.label, (0, 0)))
            proofs += prove(runner, [variant], cases)
    return {
        "device": device.name,
        "driver": device.driver,
        "compiler": compiler.version,
        "algorithms": sorted({proof.variant.algorithm.name for proof in proofs if proof.skipped is None}),
        "variants": sum(proof.skipped is None for proof in proofs),
        "skipped": sum(proof.skipped is not None for proof in proofs),
        "sizes": sizes,
        "cases": sum(proof.cases + (proof.failure is not None) for proof in proofs),
        "wrong": [str(proof.failure) for proof in proofs if proof.failure is not None],
        "seconds": time.monotonic() - start,
    }
