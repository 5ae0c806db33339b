"""What a tuner asks of a device, and what it is told: problems, trials, and the protocols between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from gen.families.base import WIDEST, Extents, Family, Limits, Spec, Variant
from gen.families.regions import WHOLE, Region, sizes_of
from gen.toolchain.compiled import Compiled

Status = Literal["ok", "wrong_result", "launch_failed", "compile_failed", "infeasible", "timeout", "pruned"]


@dataclass(frozen=True)
class Problem:
    """A spec at one size.

    Attributes:
        alignment: the most bytes, up to 16, that divide the address of every array.
        region: the part of its shape class that gets what wins.
    """

    family: Family[Any]
    spec: Spec
    extents: Extents
    alignment: int = WIDEST
    region: Region = WHOLE

    @property
    def spec_name(self) -> str:
        """For instance `reduction_sum_f32`."""
        return self.family.name_of(self.spec)

    @property
    def shape_class(self) -> str:
        """The class of sizes that shares the winner."""
        return self.family.shape_class(self.spec, self.extents, self.alignment)

    @property
    def sizes(self) -> Mapping[str, int]:
        """All that may bound a part of its shape class."""
        return sizes_of(self.family, self.spec, self.extents, self.alignment)

    def __str__(self) -> str:
        sizes = " x ".join(str(extent) for name, extent in self.extents.items() if not name.endswith("_pitch"))
        return f"{self.spec_name} {sizes}" + (f" at {self.alignment} bytes" if self.alignment < WIDEST else "")


@dataclass(frozen=True)
class Trial:
    """One variant tried on one problem on one device.

    Attributes:
        times_us: of every sample, in order; empty unless it ran and was right.
        reason: what was wrong, in words.
        compile_ms: what compiling took; 0 where it was compiled before.
        foreign: processes of others on the GPU meanwhile, a text each.
        sm_mhz: the clock of the multiprocessors when it had been timed; 0 where nobody looked.
        throttled: why the GPU held that clock down, in words; empty if it did not.
        same_as: another variant that has the same machine code and plan, whose times these are.
        outside: it ended by what others did: says nothing of the variant, and is never recorded.
    """

    variant: Variant
    status: Status
    times_us: tuple[float, ...] = ()
    registers: int = 0
    spill_bytes: int = 0
    shared_bytes: int = 0
    reason: str = ""
    compile_ms: float = 0.0
    foreign: tuple[str, ...] = ()
    sm_mhz: int = 0
    throttled: str = ""
    same_as: str = ""
    outside: bool = False

    @property
    def median_us(self) -> float:
        """The median time; infinite without one."""
        ordered = sorted(self.times_us)
        if not ordered:
            return float("inf")
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    @property
    def whole(self) -> bool:
        """Whether its times are all that a caller pays: not where a call makes a private copy first, untimed."""
        return not any(launch.setup for launch in self.variant.plan.launches)


@dataclass(frozen=True)
class Entrant:
    """A variant with its machine code."""

    variant: Variant
    compiled: Compiled

    @property
    def name(self) -> str:
        """The variant's."""
        return self.variant.name

    def untimed(self, status: Status, reason: str) -> Trial:
        """A trial that gave no time."""
        used = self.compiled
        return Trial(
            self.variant, status, (), used.registers, used.spill_bytes, used.static_shared_bytes, reason,
            used.compile_ms,
        )  # fmt: skip


@dataclass(frozen=True)
class Rounds:
    """Finalists timed in turns, so that what disturbs one disturbs all.

    Attributes:
        times_us: of each, by name: as many as there were turns. Empty where there are faults.
        faults: trials of those that were right before and are not now.
        sm_mhz: the lowest and the highest clock of the multiprocessors seen; 0 where nobody looked.
        throttled: why it was held down, in words.
        foreign: processes of others on the GPU meanwhile, a text each.
    """

    times_us: Mapping[str, Sequence[float]] = field(default_factory=dict)
    faults: tuple[Trial, ...] = ()
    sm_mhz: tuple[int, int] = (0, 0)
    throttled: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


class Session(Protocol):
    """A problem on a device, as a tuner sees it: nothing that a variant does ends it."""

    def ready(self) -> Future[None]:
        """Done when base is proven; holds the RunError if it is wrong."""
        ...

    def submit(self, entrant: Entrant, give_up_us: float) -> Future[Trial]:
        """Queues an attempt: run, compare the result, time it.

        Two samples are all a variant gets if both exceed `give_up_us`. A wrong, a crashing or a hanging variant is a
        trial with a status.
        """
        ...

    def rounds(self, entrants: Sequence[Entrant], turns: int, *, hot: bool = False) -> Rounds:
        """Times variants in turns, in orders and in memory that change; checks their results once more.

        Each launch from cold caches, or, if `hot`, as one of many that follow each other in a graph.
        """
        ...

    def close(self) -> None:
        """Gives the device's memory back."""
        ...


class Device(Protocol):
    """Where variants are tried."""

    name: str
    driver: str
    limits: Limits

    def open(self, problem: Problem, base: Entrant) -> Session:
        """Begins to make a problem ready; does not wait for it."""
        ...

    def prepare(self, problem: Problem) -> None:
        """Announces a problem that will be opened later: the host may compute meanwhile what it must hold."""
        ...

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration."""
        ...


class BenchSession(Protocol):
    """A problem made ready in the process that drives the device: inputs there, base proven against NumPy."""

    def attempt(self, entrant: Entrant, give_up_us: float) -> Trial:
        """What `Session.submit` asks for."""
        ...

    def rounds(
        self, entrants: Sequence[Entrant], turns: int, tell: Callable[[str], None], *, hot: bool = False
    ) -> Rounds:
        """What `Session.rounds` asks for; `tell` is told the name of the variant that comes next."""
        ...

    def close(self) -> None:
        """Gives the device's memory back."""
        ...


class Bench(Protocol):
    """The device in the process that drives it."""

    name: str
    driver: str
    limits: Limits

    def open(self, problem: Problem, base: Entrant) -> BenchSession:
        """Makes a problem ready. Raises RunError if base is wrong."""
        ...

    def prepare(self, problem: Problem) -> None:
        """What `Device.prepare` announces."""
        ...

    def floor_us(self, problem: Problem) -> float:
        """The least time of such a problem, by the device's calibration."""
        ...

    def alive(self) -> bool:
        """Whether the device still answers: a kernel that reads where nothing is takes everything down with it."""
        ...
