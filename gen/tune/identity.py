"""What makes two variants the same to a device, whatever their names: machine code and evaluated plan."""

from __future__ import annotations

from gen.families.base import Limits
from gen.gpu.trial import Entrant, Problem
from gen.toolchain.identity import code_digest


def identity(entrant: Entrant, problem: Problem, limits: Limits) -> str:
    """What is the same for two variants exactly if they do the same: machine code and evaluated plan."""
    sizes = {**problem.extents, **limits.sizes()}
    plan = entrant.variant.plan
    launches = [
        (
            launch.entry, [extent.at(sizes) for extent in launch.grid], launch.block, launch.shared_bytes.at(sizes),
            [one if isinstance(one, str) else (one[0].name, one[1].at(sizes)) for one in launch.arguments],
            launch.cluster, launch.times.at(sizes), launch.swap, launch.setup,
        )
        for launch in plan.launches
    ]  # fmt: skip
    scratch = [(one.name, one.bytes.at(sizes), one.zeroed) for one in plan.scratch]
    code = code_digest(entrant.compiled.cubin, entrant.compiled.name)
    return repr((code, launches, scratch, plan.constants))
