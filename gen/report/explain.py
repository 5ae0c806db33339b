"""What a variant does on an architecture: what it occupies and moves, and what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gen.families.base import Extents, Limits, Variant, Work
from gen.proof.host import HostKernel
from gen.proof.trace import traffic
from gen.proof.traffic import SECTOR, WARP, Access, Kind, MemoryModel, Traffic
from gen.toolchain.compiled import Compiled
from gen.toolchain.occupancy import needed_in_flight
from gen.toolchain.sass import asked_for
from gen.toolchain.usage import Usage, usage
from gen.tune.predict import INSTRUCTIONS, L2, LATENCY, LAUNCHES, MEMORY, STARTS, UNITS, Prediction, Speeds, predict


@dataclass(frozen=True)
class Explanation:
    """All that is known of a variant on one problem without a GPU.

    Attributes:
        used: what each kernel occupies, set-up left out.
        needed_in_flight: bytes that a multiprocessor needs under way; None where nobody has said.
        work: the least that the problem takes.
        instructions: of each kernel, by opcode; None without a disassembler.
    """

    variant: Variant
    arch: str
    extents: Extents
    used: tuple[Usage, ...]
    needed_in_flight: int | None
    found: Traffic
    work: Work
    predicted: Prediction
    instructions: Mapping[str, Counter[str]] | None = None

    @property
    def main(self) -> Usage:
        """The kernel without `entry`, or else the first."""
        return next((one for one in self.used if one.kernel == self.variant.name), self.used[0])

    @property
    def least_bytes(self) -> int:
        """What any kernel must move."""
        return self.work.bytes_read + self.work.bytes_written

    @property
    def problem(self) -> str:
        """Its problem for people."""
        return problem_of(self.variant, self.extents)

    @property
    def repeated(self) -> str:
        """What is counted more than once: `nreps 10`; empty where nothing is."""
        counts = self.variant.family.counts(self.variant.spec)
        return ", ".join(f"{name} {self.extents[name]}" for name, once in counts.items() if self.extents[name] > once)


def explain(
    variant: Variant, kernel: HostKernel, compiled: Compiled, limits: Limits, extents: Extents,
    instructions: Mapping[str, Counter[str]] | None = None,
) -> Explanation:  # fmt: skip
    """Looks at a variant on a problem.

    Args:
        variant: what is explained.
        kernel: it, ready to run on the CPU.
        compiled: its machine code for the architecture of `limits`.
        limits: of the device.
        extents: of the problem.
        instructions: of its kernels, where they are known.
    """
    used = tuple(one for one in usage(variant, compiled, limits, extents) if not one.setup)
    found = traffic(kernel, limits, extents, MemoryModel.of(limits.arch))
    predicted = predict(variant, found, used, limits, extents, Speeds.of(limits.arch))
    work = variant.family.work(variant.spec, extents)
    needed = needed_in_flight(limits.arch)
    return Explanation(variant, limits.arch, extents, used, needed, found, work, predicted, instructions)


@dataclass(frozen=True)
class Metric:
    """A number of an explanation.

    Attributes:
        name: for people.
        key: for JSON.
        of: None where an explanation does not have it.
        shown: how it is written.
        meaning: one sentence for learners.
    """

    name: str
    key: str
    of: Callable[[Explanation], float | None]
    shown: Callable[[float], str]
    meaning: str


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _plain(number: float) -> str:
    return f"{number:.4g}"


def in_bytes(number: float) -> str:
    """A number of bytes for people."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.4g} {unit}"
    return f"{number:.0f} B"


def in_us(number: float) -> str:
    """A time for people, to three digits."""
    return f"{number:.0f} us" if number >= 100 else f"{number:.3g} us"


def is_dense(name: str, extents: Extents) -> bool:
    """Whether it is a pitch, of rows that lie right behind each other."""
    return name.endswith("_pitch") and extents[name] in (extents.get("rows"), extents.get("cols"))


def problem_of(variant: Variant, extents: Extents) -> str:
    """A problem for people: `f32, n 2^28`; without what its spec counts once, and pitches of dense rows."""
    first = next(operand for operand in variant.spec.operands if operand.role != "number")
    counts = variant.family.counts(variant.spec)
    told = [
        f"{name} {_number(size)}"
        for name, size in extents.items()
        if not is_dense(name, extents) and counts.get(name) != size
    ]
    return ", ".join([first.dtype.name, *told])


def _number(size: int) -> str:
    return f"2^{size.bit_length() - 1}" if size >= 1 << 14 and size & (size - 1) == 0 else str(size)


METRICS = (
    Metric("registers a thread", "registers", lambda e: e.main.resources.registers, _plain,
           "Taken from what all threads of a multiprocessor share."),
    Metric("spilled bytes a thread", "spilled_bytes", lambda e: e.main.resources.spill_store_bytes, _plain,
           "Values that find no register go through memory."),
    Metric("shared memory a block", "shared_bytes",
           lambda e: e.main.resources.static_shared_bytes + e.main.dynamic_shared_bytes, in_bytes,
           "Also shared by all blocks of a multiprocessor."),
    Metric("occupancy", "occupancy", lambda e: e.main.occupancy.fraction, _percent,
           "The warps that a multiprocessor holds, of those that it could hold at most."),
    Metric("bytes in flight", "bytes_in_flight", lambda e: e.main.bytes_in_flight, in_bytes,
           "Loads that all threads of a multiprocessor have under way at once: they hide how long memory takes."),
    Metric("load efficiency", "load_efficiency", lambda e: e.found.efficiency("load"), _percent,
           "What lanes asked for of what global memory moved for it; more than all where they ask for the same."),
    Metric("store efficiency", "store_efficiency", lambda e: e.found.efficiency("store"), _percent,
           "The same for what is written."),
    Metric("bytes moved", "moved_bytes", lambda e: e.found.moved_bytes(), in_bytes,
           "By requests of warps, in sectors of 32 bytes."),
    Metric("of the least possible", "moved_over_least",
           lambda e: e.found.moved_bytes() / e.least_bytes if e.least_bytes else None, _plain,
           "1: every element is read once and written once, and nothing else moves."),
    Metric("bytes moved an element", "bytes_per_element",
           lambda e: e.found.moved_bytes() / e.work.cells if e.work.cells else None, _plain,
           "The same for each element of the problem."),
    Metric("bank conflict degree", "conflict_degree", lambda e: e.found.conflict_degree, _plain,
           "Turns that shared memory takes, of those it would take if no two lanes met in a bank."),
    Metric("lanes that take part", "active_lanes", lambda e: e.found.active_lanes / WARP, _percent,
           "Of a warp's 32, in an access: the others are past an end, or elsewhere after a branch."),
    Metric("instructions", "instructions",
           lambda e: sum(e.instructions[e.main.kernel].values()) if e.instructions else None, _plain,
           "In the machine code of the main kernel."),
    Metric("predicted time", "predicted_us", lambda e: e.predicted.us, in_us,
           "By a model of memory, caches and latencies: it ranks variants, and is no measurement."),
    Metric("predicted GB/s", "predicted_gb_per_s",
           lambda e: e.least_bytes / e.predicted.us * 1e-3 if e.least_bytes else None, _plain,
           "The least bytes of the problem over that time."),
)  # fmt: skip


def sentences(one: Explanation) -> Iterator[str]:
    """What a learner should know of a variant, most important first."""
    if one.found.launches == 0:
        yield "The problem is empty: nothing is launched, and nothing moves."
        return
    yield _bound(one)
    yield from _global(one)
    yield from _shared(one)
    yield from _constant(one)
    yield from _latency(one)
    yield _occupancy(one)
    if one.instructions:
        yield from asked_for(one.variant.config, one.instructions[one.main.kernel])
    if any(used.resources.spill_store_bytes for used in one.used):
        yield "Some values find no register and are spilled to memory: less unrolling, or a smaller block, avoids that."


KINDS: tuple[Kind, ...] = ("load", "store")
_BOUND = {  # what each part of a prediction means
    MEMORY: "It is bound by memory: what must be moved takes longest, so only moving less would help.",
    L2: "It is bound by the second-level cache: sectors that are asked for again, or in parts, pass there each time.",
    UNITS: "It is bound by the load and store units: requests of many lines, or lanes that meet in a bank, take turns.",
    INSTRUCTIONS: "It is bound by the issue of instructions: more work for each, by vectors or unrolling, would help.",
    LATENCY: "It is bound by latency: loads wait for each other, and too few are under way to keep memory busy.",
    STARTS: "It is bound by the start of its blocks: each has little to do, and larger ones would start less often.",
    LAUNCHES: "It is bound by its launches: there is so little work that starting takes longest.",
}


def _bound(one: Explanation) -> str:
    parts = ", ".join(f"{name} {in_us(us)}" for name, us in one.predicted.parts if us >= 0.01)
    return f"{_BOUND[one.predicted.bound]} Each part alone: {parts}."


def _global(one: Explanation) -> Iterator[str]:
    for kind in KINDS:
        for access in one.found.of("global", kind):
            share = access.requested_bytes / access.moved_bytes(one.found.model)
            heavy = access.moved_bytes(one.found.model) > 0.02 * one.found.moved_bytes()
            if heavy and share < 0.9:
                touched, least = access.sectors / access.requests, _least_sectors(access)
                said = (
                    f"touches {touched:.3g} sectors where {least:.3g} would do"
                    if touched > 1.005 * least
                    else f"uses {access.requested_bytes / access.requests:.3g} bytes of the {SECTOR} of its sector"
                )
                yield (
                    f"Line {access.line} {_verb(access)} {access.buffer} at {share:.1%}: a warp's request {said}. "
                    f"`{access.source}`"
                )
    moved = one.found.moved_bytes() / one.least_bytes if one.least_bytes else 1.0
    if moved > 1.05:
        cached = one.found.cached_bytes() / one.least_bytes
        yield (
            f"Requests move {moved:.3g} times the least possible; {cached:.3g} times where a block's cache keeps what "
            "it has seen."
        )
    elif moved > 0.95:
        coalesced = "All accesses to global memory are coalesced, and every element moves once"
        if one.repeated:
            yield f"{coalesced} each time it is asked for ({one.repeated}): caches may spare memory the later ones."
        else:
            yield f"{coalesced}: no less is possible."


def _least_sectors(access: Access) -> float:
    return max(access.requested_bytes / access.requests / SECTOR, 1.0)


def _verb(access: Access) -> str:
    return "reads" if access.kind == "load" else "writes"


def _shared(one: Explanation) -> Iterator[str]:
    accesses = one.found.of("shared")
    for access in accesses:
        if access.conflict_degree > 1.05:
            yield (
                f"Line {access.line} {_verb(access)} shared memory in "
                f"{access.conflict_degree:.3g} turns where one would do: lanes of a warp meet in the same of the 32 "
                f"banks, and are served one after the other. `{access.source}`"
            )
    if accesses and one.found.conflict_degree <= 1.05:
        yield "Shared memory is free of bank conflicts: the lanes of a warp always meet different banks."


def _constant(one: Explanation) -> Iterator[str]:
    accesses = one.found.of("constant")
    for access in accesses:
        if access.conflict_degree > 1.05:
            yield (
                f"Line {access.line} reads {access.buffer} from constant memory in {access.conflict_degree:.3g} turns: "
                f"it gives a warp one address at a time. `{access.source}`"
            )
    if accesses and all(access.conflict_degree <= 1.05 for access in accesses):
        names = ", ".join(dict.fromkeys(access.buffer for access in accesses))
        yield (
            f"Constant memory holds {names}: all lanes of a warp read the same address at once, a broadcast that moves "
            "no sector of global memory."
        )


def _latency(one: Explanation) -> Iterator[str]:
    flying, needed = one.main.bytes_in_flight, one.needed_in_flight
    if flying is not None and needed is not None:
        if flying >= needed:
            enough = "that is enough"
        elif one.predicted.bound == LAUNCHES:
            enough = "so small a problem has no more to load"
        else:
            enough = "unrolling, wider vectors or more resident warps add some"
        yield (
            f"A multiprocessor has {flying} bytes of loads in flight; {one.arch} needs about {needed} to keep memory "
            f"busy; {enough}."
        )


def _occupancy(one: Explanation) -> str:
    fits = one.main.occupancy
    return (
        f"A multiprocessor holds {fits.blocks} blocks of {one.main.threads_per_block} threads, {fits.fraction:.0%} of "
        f"the warps it could hold; {fits.limiter} allow{'s' if fits.limiter == 'shared memory' else ''} no more."
    )


def as_json(one: Explanation) -> dict[str, Any]:
    """An explanation as data."""
    return {
        "name": one.variant.name,
        "arch": one.arch,
        "extents": dict(one.extents),
        "config": one.variant.config.values(),
        "metrics": {metric.key: metric.of(one) for metric in METRICS},
        "limiters": list(one.main.occupancy.limiters),
        "needed_bytes_in_flight": one.needed_in_flight,
        "least_bytes": one.least_bytes,
        "bound": one.predicted.bound,
        "parts_us": dict(one.predicted.parts),
        "blocks": one.found.blocks,
        "traced_blocks": one.found.traced,
        "accesses": accesses_as_json(one.found),
        "instructions": None if one.instructions is None else {k: dict(v) for k, v in one.instructions.items()},
        "sentences": list(sentences(one)),
    }  # fmt: skip


def accesses_as_json(found: Traffic) -> list[dict[str, Any]]:
    """The accesses of a variant as data."""
    return [
        {
            "kernel": a.kernel, "line": a.line, "source": a.source, "called_from": a.called_from, "buffer": a.buffer,
            "space": a.space, "kind": a.kind, "read_only": a.read_only, "bytes": a.bytes, "requests": a.requests,
            "lanes": a.lanes, "sectors": a.sectors, "lines": a.lines, "block_sectors": a.block_sectors,
            "wavefronts": a.wavefronts, "least_wavefronts": a.least_wavefronts,
        }
        for a in found.accesses
    ]  # fmt: skip
