"""Variants on a device: loaded, launched step by step, with scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gen.errors import DeviceError
from gen.families.base import Extents, Limits, Scratch, Variant
from gen.families.plans import Step, steps
from gen.gpu.device import GRAPH_FROM, LEGACY_STREAM, Device, Graph, KernelAttributes, Memory
from gen.gpu.timing import Clock
from gen.toolchain.compiled import Compiled

MAX_MOVED_SCRATCH_BYTES = 1 << 20  # bytes of scratch that are cheap to have in several places
PLACE_SPREAD_BYTES, PLACE_STEP_BYTES = (
    1 << 16,
    15 << 9,
)  # bytes of which such a place is a part, and by which it lies further in than the last


class CudaKernel:
    """A variant on a device, on the legacy default stream, with scratch of its own that stays from run to run."""

    def __init__(self, variant: Variant, compiled: Compiled, device: Device, limits: Limits) -> None:
        self.variant = variant
        self._compiled, self._device, self._limits = compiled, device, limits
        self._plan = variant.plan
        self._code = device.timer.load(compiled, variant)
        self._scratch: dict[tuple[str, int], Memory] = {}

    @property
    def attributes(self) -> KernelAttributes:
        """What its kernels take: the most of each."""
        every = [self._code.attributes(launch.entry) for launch in self._plan.launches]
        return KernelAttributes(
            max(one.registers for one in every),
            max(one.local_bytes for one in every),
            max(one.static_shared_bytes for one in every),
        )

    def steps(self, extents: Extents) -> tuple[Step, ...]:
        """Every launch of a call at these sizes, whose numbers are 1; equal ones are one and the same object."""
        spec, found = self.variant.spec, tuple(steps(self._plan, {**extents, **self._limits.sizes()}))
        numbers = {x.name: (x.dtype, 1) for x in spec.operands if x.role == "number"}
        if not numbers:
            return found
        bound = {
            id(step): replace(step, arguments=tuple(numbers.get(str(one), one) for one in step.arguments))
            for step in found
        }
        return tuple(bound[id(step)] for step in found)

    def launches(self, planned: Sequence[Step], extents: Extents, addresses: Mapping[str, int]) -> Callable[[], None]:
        """What queues launches, time after time; `addresses` are those of operands and scratch by name."""
        prepared = self._code.prepare(extents, planned)
        return lambda: prepared.launch(addresses, {}, LEGACY_STREAM)

    def graph(self, planned: Sequence[Step], extents: Extents, addresses: Mapping[str, int], times: int) -> Graph:
        """A graph of the launches, carried out `times` times one after another; close it to have its memory back."""
        code = self._device.load(self._compiled, self.variant)
        prepared = code.prepare(extents, planned)

        def queue(stream: int) -> None:
            for _ in range(times):
                prepared.launch(addresses, {}, stream)

        return self._device.capture(queue, code.unload)

    def times(
        self, clock: Clock, planned: Sequence[Step], extents: Extents, addresses: Mapping[str, int], samples: int,
        setup: Callable[[], None] = lambda: None,
    ) -> list[float]:  # fmt: skip
        """Microseconds of calls from cold caches; `setup` is queued before each of them.

        A call of many launches is replayed as a graph, as repeated calls of a user are: the gap between two launches is
        about half as long there. It counts as one, and is queued alone.
        """
        if len(planned) < GRAPH_FROM:
            return clock.times(self.launches(planned, extents, addresses), samples, setup=setup)
        graph = self.graph(planned, extents, addresses, 1)
        try:
            return [time for _ in range(samples) for time in clock.times(graph.replay, 1, setup=setup)]
        finally:
            graph.close()

    def scratch(self, extents: Extents, place: int = 0) -> dict[str, int]:
        """Addresses of the scratch memory; what is kept zero is zeroed when it is made.

        Blocks meet in scratch, and how far that is from each of them is a matter of its address, of its lower bits as
        well: `place` numbers places that are equally good. Large scratch has one place only.
        """
        sizes = {**extents, **self._limits.sizes()}
        found = {}
        for scratch in self._plan.scratch:
            needed = scratch.bytes.at(sizes)
            try:
                found[scratch.name] = self._address(scratch, needed, place if needed <= MAX_MOVED_SCRATCH_BYTES else 0)
            except DeviceError:  # no room: it stays where it was
                found[scratch.name] = self._address(scratch, needed, 0)
        return found

    def _address(self, scratch: Scratch, needed: int, place: int) -> int:
        """Of one of its places. Raises DeviceError if there is no memory for it."""
        key, offset = (scratch.name, place), place * PLACE_STEP_BYTES % PLACE_SPREAD_BYTES
        size = needed + PLACE_SPREAD_BYTES if place else needed
        if key not in self._scratch or self._scratch[key].size < size:
            self._scratch[key] = self._device.allocate(size)
            if scratch.zeroed:
                self._device.zero(self._scratch[key].address + offset, needed)
        return self._scratch[key].address + offset

    def discard_scratch(self) -> None:
        """Forgets scratch that a failed launch may have left in any state."""
        self._scratch.clear()
