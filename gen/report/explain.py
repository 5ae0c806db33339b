"""What a variant does on an architecture: what it occupies and moves, and what bounds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gen.arch import WARP, Limits
from gen.families.base import Extents, Variant, Work
from gen.proof.host import HostKernel
from gen.proof.trace import traffic
from gen.proof.traffic import Kind, Traffic
from gen.toolchain.compiled import Compiled
from gen.toolchain.usage import Usage, usage
from gen.tune.predict import Prediction, predict


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
    counts = variant.family.counts(variant.spec)
    told = [
        f"{name} {_number(size)}"
        for name, size in extents.items()
        if not is_dense(name, extents) and counts.get(name) != size
    ]
    return ", ".join([first.dtype.name, *told])


def _number(size: int) -> str:
    return f"2^{size.bit_length() - 1}" if size >= 1 << 14 and size & (size - 1) == 0 else str(size)


KINDS: tuple[Kind, ...] = ("load", "store")
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
