"""What the kernels of a variant occupy on a multiprocessor, once they are compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from gen.errors import ConfigError
from gen.families.base import Extents, Launch, Limits, Variant
from gen.toolchain.compiled import Compiled, Resources, instructions
from gen.toolchain.occupancy import Occupancy, bytes_in_flight, occupancy


@dataclass(frozen=True)
class Usage:
    """One kernel of a variant on one multiprocessor.

    Attributes:
        kernel: its symbol.
        setup: it prepares private copies, and is not part of what is timed.
        threads_per_block: as it is launched.
        dynamic_shared_bytes: of one block, as it is launched.
        resources: what the compiler reports.
        occupancy: how many blocks fit.
        resident_blocks: how many are there: those that fit, or fewer where the grid has no more.
        bytes_in_flight: of loads, by all resident threads, as the text asks for them; None where that is unknown.
        instructions: in the machine code, each once.
    """

    kernel: str
    setup: bool
    threads_per_block: int
    dynamic_shared_bytes: int
    resources: Resources
    occupancy: Occupancy
    resident_blocks: int
    bytes_in_flight: int | None
    instructions: int


def usage(variant: Variant, compiled: Compiled, limits: Limits, extents: Extents) -> tuple[Usage, ...]:
    """Every kernel of a variant's plan for a problem of these sizes, in the order of its launches."""
    sizes = {**extents, **limits.sizes()}
    per_thread = variant.algorithm.bytes_in_flight(variant.spec, variant.config)
    length = instructions(compiled.cubin)
    found: dict[tuple[str, int, int], Usage] = {}
    for launch in variant.plan.launches:
        kernel = variant.name + launch.entry
        threads, dynamic = prod(launch.block), launch.shared_bytes.at(sizes)
        used = compiled.resources[compiled.name + launch.entry]
        fits, resident = residency(launch, limits, sizes, used.registers, used.static_shared_bytes)
        in_flight = None if launch.entry else bytes_in_flight(per_thread, threads, resident)
        made = Usage(
            kernel,
            launch.setup,
            threads,
            dynamic,
            used,
            fits,
            resident,
            in_flight,
            length.get(compiled.name + launch.entry, 0),
        )
        found.setdefault((kernel, threads, dynamic), made)
    return tuple(found.values())


def residency(
    launch: Launch, limits: Limits, sizes: Mapping[str, int], registers: int = 0, static_shared_bytes: int = 0
) -> tuple[Occupancy, int]:
    """How many blocks of a launch fit on a multiprocessor, and how many are there: fewer where the grid has no more."""
    fits = occupancy(
        limits, registers=registers, static_shared_bytes=static_shared_bytes,
        dynamic_shared_bytes=launch.shared_bytes.at(sizes), threads_per_block=prod(launch.block),
    )  # fmt: skip
    blocks = prod(extent.at(sizes) for extent in launch.grid)
    return fits, min(fits.blocks, -(-blocks // limits.multiprocessors))


def largest(variant: Variant, limits: Limits) -> Extents:
    """The largest of the sizes that stand for the spec's shape classes and the variant takes: it fills a device.

    Of the awkward sizes of its proof, where it takes none of those. Raises ConfigError if it takes no size at all.
    """
    family, spec, algorithm = variant.family, variant.spec, variant.algorithm
    stand_ins = [family.representative(spec, shape_class) for shape_class in family.shape_classes(spec)]
    for sizes in (stand_ins, (*family.cases(spec), *variant.edge_cases())):
        taken = [one for one in sizes if algorithm.unsupported_extents(spec, variant.config, one, limits) is None]
        if taken:
            return max(taken, key=lambda extents: family.work(spec, extents).cells)
    raise ConfigError(variant.name, "takes none of the sizes that stand for its shape classes")
