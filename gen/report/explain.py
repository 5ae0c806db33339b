"""What a variant does on an architecture: what it occupies and moves, and what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gen.arch import SECTOR, WARP, Limits, MemoryModel
from gen.emit.render import render
from gen.families.base import Extents, Variant, Work
from gen.families.extents import known_runtime_parameters, told_extents
from gen.paths import cache_home
from gen.proof.host import HostKernel, HostRunner
from gen.proof.trace import traffic
from gen.proof.traffic import Access, Kind, Traffic
from gen.toolchain.compiled import Compiled
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.sass import asked_for, disassembler, instructions
from gen.toolchain.usage import Usage, largest, usage
from gen.tune.predict import INSTRUCTIONS, L2, LATENCY, LAUNCHES, MEMORY, STARTS, UNITS, Prediction, predict
from gen.tune.targets import extents_at


@dataclass(frozen=True)
class Explanation:
    """All that is known of a variant on one problem without a GPU.

    Attributes:
        limits: of the device that was looked at.
        used: what each kernel occupies, set-up left out.
        work: the least that the problem takes.
        instructions: of each kernel, by opcode; None without a disassembler.
    """

    variant: Variant
    limits: Limits
    extents: Extents
    used: tuple[Usage, ...]
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
        runtime_parameters = self.variant.family.runtime_parameters(self.variant.spec)
        return ", ".join(
            f"{name} {self.extents[name]}" for name, once in runtime_parameters.items() if self.extents[name] > once
        )


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
    found = traffic(kernel, limits, extents)
    predicted = predict(variant, found, used, limits, extents)
    work = variant.family.work(variant.spec, extents)
    return Explanation(variant, limits, extents, used, found, work, predicted, instructions)


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
    runtime_parameters = variant.family.runtime_parameters(variant.spec)
    told = [
        f"{name} {_number(size)}"
        for name, size in told_extents(extents).items()
        if not is_dense(name, extents) and runtime_parameters.get(name) != size
    ]
    return ", ".join([first.dtype.name, *told])


def _number(size: int) -> str:
    return f"2^{size.bit_length() - 1}" if size >= 1 << 14 and size & (size - 1) == 0 else str(size)


KINDS: tuple[Kind, ...] = ("load", "store")
METRICS = (
    Metric("registers a thread", "registers", lambda e: e.main.resources.registers, _plain,
           "Part of the register file, which all resident threads of a multiprocessor share."),
    Metric("spilled bytes a thread", "spilled_bytes", lambda e: e.main.resources.spill_store_bytes, _plain,
           "Values that do not fit in registers go through local memory."),
    Metric("shared memory a block", "shared_bytes",
           lambda e: e.main.resources.static_shared_bytes + e.main.dynamic_shared_bytes, in_bytes,
           "Part of a multiprocessor's shared memory, which its resident blocks divide."),
    Metric("occupancy", "occupancy", lambda e: e.main.occupancy.fraction, _percent,
           "Resident warps of a multiprocessor, divided by the most that it can hold."),
    Metric("bytes in flight", "bytes_in_flight", lambda e: e.main.bytes_in_flight, in_bytes,
           "Loads that a multiprocessor has issued and not yet received: they hide the latency of memory."),
    Metric("load efficiency", "load_efficiency", lambda e: e.found.efficiency("load"), _percent,
           "Bytes that lanes asked for over bytes that global memory moved; above 100% if lanes share bytes."),
    Metric("store efficiency", "store_efficiency", lambda e: e.found.efficiency("store"), _percent,
           "The same for stores."),
    Metric("bytes moved", "moved_bytes", lambda e: e.found.moved_bytes(), in_bytes,
           "By requests of warps, in sectors of 32 bytes."),
    Metric("of the least possible", "moved_over_least",
           lambda e: e.found.moved_bytes() / e.least_bytes if e.least_bytes else None, _plain,
           "1: every element is read once and written once, and nothing else moves."),
    Metric("bytes moved an element", "bytes_per_element",
           lambda e: e.found.moved_bytes() / e.work.cells if e.work.cells else None, _plain,
           "The same for each element of the problem."),
    Metric("bank conflict degree", "conflict_degree", lambda e: e.found.conflict_degree, _plain,
           "Wavefronts that shared memory takes, over those it would take without bank conflicts."),
    Metric("lanes that take part", "active_lanes", lambda e: e.found.active_lanes / WARP, _percent,
           "Active lanes of a warp in an access: the others are past an end, or in another branch."),
    Metric("instructions", "instructions",
           lambda e: sum(e.instructions[e.main.kernel].values()) if e.instructions else None, _plain,
           "In the machine code of the main kernel."),
    Metric("predicted time", "predicted_us", lambda e: e.predicted.us, in_us,
           "By a model of memory, caches and latencies: it ranks variants, and is not a measurement."),
    Metric("predicted GB/s", "predicted_gb_per_s",
           lambda e: e.least_bytes / e.predicted.us * 1e-3 if e.least_bytes else None, _plain,
           "The least bytes of the problem over that time."),
)  # fmt: skip


def extents_for(
    variant: Variant, limits: Limits, shape: str | None, more: Mapping[str, int] | None = None,
    runtime_parameters: Mapping[str, int] | None = None,
) -> Extents:  # fmt: skip
    """The problem that a shape of the first input means.

    Args:
        variant: whose problem it is.
        limits: of the device; without a shape the largest problem is taken that is tuned there.
        shape: as `read_shape` takes it.
        more: what a kernel of the literature adds to it.
        runtime_parameters: their values instead, `{"nreps": 20}`; those that the spec does not have change nothing.
            Without them: as many steps as a launch fuses, else what is usual.

    Raises ShapeError for a shape that cannot be read, or that the spec does not take.
    """
    found = largest(variant, limits) if shape is None else extents_at(variant.family, variant.spec, shape)
    added = {name: size + (more or {}).get(name, 0) for name, size in found.items()}
    for name in variant.family.runtime_parameters(variant.spec):  # a launch that fuses steps is shown at that many
        added[name] = max(added[name], getattr(variant.config, name, 0))
    return {**added, **known_runtime_parameters(variant.family, variant.spec, runtime_parameters or {})}


def moves(
    variants: Sequence[Variant], limits: Limits, home: Path, extents: Sequence[Extents], model: MemoryModel
) -> tuple[Traffic, ...]:
    """What each variant moves on its problem, by how an architecture moves data that no compiler here knows."""
    kernels = HostRunner(limits, cache=cache_home(home), text=render).load(variants)
    return tuple(traffic(kernel, limits, sizes, model) for kernel, sizes in zip(kernels, extents, strict=True))


def explanations(
    variants: Sequence[Variant], limits: Limits, home: Path, extents: Sequence[Extents],
    tick: Callable[[], None] = lambda: None,
) -> tuple[Explanation, ...]:  # fmt: skip
    """Each variant explained on its problem; built together. `tick` is called after each."""
    cache = cache_home(home)
    kernels = HostRunner(limits, cache=cache, text=render).load(variants)
    compiler, program = Nvrtc(cache), disassembler()
    found = []
    for variant, kernel, sizes in zip(variants, kernels, extents, strict=True):
        compiled = compiler.compile(variant.name, render(variant), limits.arch)
        opcodes = instructions(compiled.cubin, program) if program else None
        found.append(explain(variant, kernel, compiled, limits, sizes, opcodes))
        tick()
    return tuple(found)


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
        yield "Some values do not fit in registers and are spilled: less unrolling, or a smaller block, avoids that."


_HEAVY = 0.02  # of all traffic, which a line must have to be named
_BOUND = {  # what each part of a prediction means
    MEMORY: "It is bound by memory: what must be moved takes longest, so only moving less would help.",
    L2: "It is bound by the second-level cache: sectors that are requested again, or in parts, pass there each time.",
    UNITS: "It is bound by the load and store units: requests of many lines, and bank conflicts, take several passes.",
    INSTRUCTIONS: "It is bound by the issue of instructions: fewer of them, by vectors or unrolling, would help.",
    LATENCY: "It is bound by latency: loads wait for each other, and too few are in flight to keep memory busy.",
    STARTS: "It is bound by the start of its blocks: each has little to do, and larger ones would start less often.",
    LAUNCHES: "It is bound by its launches: there is so little work that starting the kernels takes longest.",
}


def _bound(one: Explanation) -> str:
    parts = ", ".join(f"{name} {in_us(us)}" for name, us in one.predicted.parts if us >= 0.01)
    return f"{_BOUND[one.predicted.bound]} Each part alone: {parts}."


def _global(one: Explanation) -> Iterator[str]:
    for kind in KINDS:
        for access in one.found.of("global", kind):
            share = access.requested_bytes / access.moved_bytes(one.found.model)
            heavy = access.moved_bytes(one.found.model) > _HEAVY * one.found.moved_bytes()
            if heavy and share < 0.9:
                touched, least = access.sectors / access.requests, _least_sectors(access)
                said = (
                    f"touches {touched:.3g} sectors where {least:.3g} would do"
                    if touched > 1.005 * least
                    else f"uses {access.requested_bytes / access.requests:.3g} bytes of the {SECTOR} of its sector"
                )
                yield (
                    f"{_line(access)} {_verb(access)} {access.buffer} at {share:.1%}: a warp's request {said}. "
                    f"`{access.source}`"
                )
    moved = one.found.moved_bytes() / one.least_bytes if one.least_bytes else 1.0
    if moved > 1.05:
        cached = one.found.cached_bytes() / one.least_bytes
        yield (
            f"Requests move {moved:.3g} times the least possible; {cached:.3g} times if the first-level cache keeps "
            "what its block has read."
        )
    elif moved > 0.95:
        coalesced = "All accesses to global memory are coalesced, and every element moves once"
        if one.repeated:
            yield f"{coalesced} each time it is asked for ({one.repeated}): caches may serve the later requests."
        else:
            yield f"{coalesced}: no less is possible."


def _least_sectors(access: Access) -> float:
    return max(access.requested_bytes / access.requests / SECTOR, 1.0)


def _line(access: Access) -> str:
    """Where an access stands; of a function that several lines call, which of them did."""
    called = f", called from line {access.called_from}," if access.called_from != access.line else ""
    return f"Line {access.line}{called}"


def _verb(access: Access) -> str:
    return "reads" if access.kind == "load" else "writes"


def _shared(one: Explanation) -> Iterator[str]:
    accesses = one.found.of("shared")
    wavefronts = sum(access.wavefronts for access in accesses)
    for access in accesses:
        if access.conflict_degree > 1.05 and access.wavefronts > _HEAVY * wavefronts:
            yield (
                f"{_line(access)} {_verb(access)} shared memory in "
                f"{access.conflict_degree:.3g} wavefronts where one would do: lanes of a warp address the same of 32 "
                f"banks, and are served one after the other. `{access.source}`"
            )
    if all(access.conflict_degree == 1 for access in accesses):
        if accesses:
            yield "Shared memory is free of bank conflicts: the lanes of a warp always meet different banks."
    elif (added := one.found.conflict_degree - 1) <= 0.05:
        yield f"Bank conflicts add {added:.2%} to the wavefronts of shared memory, which is too few to matter."


def _constant(one: Explanation) -> Iterator[str]:
    accesses = one.found.of("constant")
    for access in accesses:
        if access.conflict_degree > 1.05:
            yield (
                f"{_line(access)} reads {access.buffer} from constant memory in "
                f"{access.conflict_degree:.3g} wavefronts: it gives a warp one address at a time. `{access.source}`"
            )
    if accesses and all(access.conflict_degree <= 1.05 for access in accesses):
        names = ", ".join(dict.fromkeys(access.buffer for access in accesses))
        yield (
            f"Constant memory holds {names}: all lanes of a warp read the same address at once, a broadcast that moves "
            "no sector of global memory."
        )


def _latency(one: Explanation) -> Iterator[str]:
    flying, needed = one.main.bytes_in_flight, one.limits.needed_bytes_in_flight
    if flying is not None and needed is not None:
        if flying >= needed:
            enough = "that is enough"
        elif one.predicted.bound == LAUNCHES:
            enough = "a problem this small has no more to load"
        else:
            enough = "unrolling, wider vectors or more resident warps add some"
        yield (
            f"A multiprocessor has {flying} bytes of loads in flight; {one.limits.arch} needs about {needed} to keep "
            f"memory busy; {enough}."
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
        "arch": one.limits.arch,
        "extents": dict(one.extents),
        "config": one.variant.config.values(),
        "metrics": {metric.key: metric.of(one) for metric in METRICS},
        "limiters": list(one.main.occupancy.limiters),
        "needed_bytes_in_flight": one.limits.needed_bytes_in_flight,
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
    return [asdict(access) for access in found.accesses]
