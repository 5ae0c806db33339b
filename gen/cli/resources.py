"""`gen resources`: what a variant occupies on an architecture, without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import output
from gen.cli.common import (
    Home,
    Json,
    NameOrSpec,
    RuntimeParameters,
    Shape,
    check_feasible,
    families_of,
    find_or_choose,
    home_of,
    limits_for,
)

if TYPE_CHECKING:
    from gen.families.base import Extents
    from gen.toolchain.usage import Usage


def resources(
    ctx: typer.Context,
    name: NameOrSpec,
    shape: Shape = None,
    parameters: RuntimeParameters = None,
    arch: Annotated[str, typer.Option(metavar="SM", help="The architecture to compile for.")] = DEFAULT_ARCH,
    results: Home = None,
    json: Json = False,
) -> None:
    """Show what a variant occupies: registers, spills, shared memory, occupancy, bytes in flight.

    Compiles for the architecture and computes the rest; no GPU is asked. Occupancy is the share of a multiprocessor's
    warps that can be resident, and the limiter what allows no more. Bytes in flight are those of loads by all resident
    threads, as the kernel's text asks for them, when the largest problem that is tuned, or the one of --shape, is
    computed.

    Examples: `gen resources transposeSmemPad`, `gen resources reduction_sum_f32 --shape 2^20 --arch sm_80`.
    """
    from gen.emit.render import render
    from gen.errors import ShapeError
    from gen.paths import cache_home
    from gen.report.explain import extents_for
    from gen.toolchain.usage import usage
    from gen.tune.targets import read_runtime_parameters

    # The name and the architecture are looked at before the compiler is loaded, which takes half a second.
    home, limits = home_of(results), limits_for(arch)
    variant = find_or_choose(families_of(ctx), name, home, shape, parameters or (), arch)
    check_feasible(variant, limits)
    extents = extents_for(variant, limits, shape, None, read_runtime_parameters(parameters or ()))
    reason = variant.algorithm.unsupported_extents(variant.spec, variant.config, extents, limits)
    if reason is not None:
        raise ShapeError(variant.name, f"does not take this problem: {reason}")
    from gen.toolchain.nvrtc import Nvrtc

    compiled = Nvrtc(cache_home(home)).compile(variant.name, render(variant), arch)
    found = usage(variant, compiled, limits, extents)
    needed = limits.needed_bytes_in_flight
    if json:
        output.data(
            {
                "name": variant.name,
                "arch": arch,
                "extents": dict(extents),
                "needed_bytes_in_flight": needed,
                "kernels": [_as_json(used) for used in found],
            }
        )
        return
    _show(variant.name, arch, extents, found, needed)


def _as_json(used: Usage) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "kernel": used.kernel,
        "setup": used.setup,
        "threads_per_block": used.threads_per_block,
        **asdict(used.resources),
        "dynamic_shared_bytes": used.dynamic_shared_bytes,
        "occupancy": {**asdict(used.occupancy), "limiters": list(used.occupancy.limiters)},
        "resident_blocks": used.resident_blocks,
        "bytes_in_flight": used.bytes_in_flight,
    }


def _show(name: str, arch: str, extents: Extents, found: tuple[Usage, ...], needed: int | None) -> None:
    from gen.families.extents import sizes_in_words

    output.text(f"{name} on {arch}", "bold")
    columns = ("kernel", "threads", "registers", "spilled", "shared", "blocks", "warps", "occupancy", "limiter")
    output.table(columns, [_row(name, used) for used in found])
    for used in found:
        if used.bytes_in_flight is not None:
            output.text()
            output.text(
                f"{used.bytes_in_flight} bytes in flight on a multiprocessor, by {used.resident_blocks} blocks, at "
                f"{sizes_in_words(extents)}; " + _goal(arch, needed)
            )


def _row(name: str, used: Usage) -> tuple[object, ...]:
    compiled, fits = used.resources, used.occupancy
    return (
        used.kernel.removeprefix(name) or "(main)",
        used.threads_per_block,
        compiled.registers,
        compiled.spill_store_bytes,
        compiled.static_shared_bytes + used.dynamic_shared_bytes,
        fits.blocks,
        fits.warps,
        f"{fits.fraction:.0%}",
        fits.limiter,
    )


def _goal(arch: str, needed: int | None) -> str:
    if needed is None:
        return f"what {arch} needs to read at full speed is not known."
    return f"{arch} needs {needed} to read at full speed."
