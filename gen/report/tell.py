"""What is told of an explanation: in sentences for a learner, and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gen.arch import SECTOR
from gen.proof.traffic import Access, Traffic
from gen.report.explain import KINDS, METRICS, Explanation, in_us
from gen.toolchain.sass import asked_for
from gen.tune.predict import INSTRUCTIONS, L2, LATENCY, LAUNCHES, MEMORY, STARTS, UNITS


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
    flying, needed = one.main.bytes_in_flight, one.limits.needed_bytes_in_flight
    if flying is not None and needed is not None:
        if flying >= needed:
            enough = "that is enough"
        elif one.predicted.bound == LAUNCHES:
            enough = "so small a problem has no more to load"
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
    return [
        {
            "kernel": a.kernel, "line": a.line, "source": a.source, "called_from": a.called_from, "buffer": a.buffer,
            "space": a.space, "kind": a.kind, "read_only": a.read_only, "bytes": a.bytes, "requests": a.requests,
            "lanes": a.lanes, "sectors": a.sectors, "lines": a.lines, "block_sectors": a.block_sectors,
            "wavefronts": a.wavefronts, "least_wavefronts": a.least_wavefronts,
        }
        for a in found.accesses
    ]  # fmt: skip
