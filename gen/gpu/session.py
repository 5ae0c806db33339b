"""A problem made ready on a GPU, and variants tried on it: proven against base on the device, then timed COLD."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gen.errors import DeviceError, GenError, RunError
from gen.families.base import Array, Expected, Variant
from gen.families.plans import Step
from gen.gpu.buffers import VECTOR, Buffers, DeviceArray
from gen.gpu.device import Device, Memory
from gen.gpu.kernel import CudaKernel
from gen.gpu.nvml import Clocks, Nvml
from gen.gpu.service import Service
from gen.gpu.timing import GRAPH_LAUNCHES, Calibration, Clock
from gen.gpu.trial import Entrant, Problem, Rounds, Status, Trial
from gen.proof.oracle import Allowance, disagreement, sharpened

SAMPLES = 3  # of a variant that is worth more than one
CHEAP_US = 1000.0  # a variant that takes less is looked at once more before it is given up
CLOSE = 0.6  # one that takes more is worth more samples only within this part of the time to give up at
SETS = 3  # of buffers, between which the finalists rotate, as far as memory goes
SMALL, SMALL_SETS = 1 << 24, 8  # bytes of a set up to which more of them cost little
# Of scratch, between which they rotate too: each may suit one of them by luck, more than sets do, so there are many.
# Prime to the sets, so that all pairs come up.
PLACES = 61
LOADED = 128  # kernels of finalists that stay loaded
WARM_UP = 0.1  # seconds of launches before anything is timed: clocks rise when there is work
MOST_WARM_UPS = 10  # between looks at the clock
POISONS = (0xFFC1A5A5, 0x7FA15A5A)  # two NaN patterns: an element that is not written keeps one of them
_HARMLESS = ("idle", "in step")  # reasons of a low clock that no kernel is timed under


class GpuBench:
    """A GPU on which variants are tried; implements `Bench`.

    Attributes:
        name, driver, limits: the device's.
        about: its calibration.
    """

    def __init__(
        self, device: Device, service: Service, clock: Clock, calibration: Calibration, nvml: Nvml | None = None
    ) -> None:
        """Takes the instruments; without `nvml` neither clocks nor other processes are noted."""
        self.name, self.driver, self.limits = device.name, device.driver, device.limits
        self.about = calibration
        self.device, self.service, self.clock, self.nvml = device, service, clock, nvml
        self._host = ThreadPoolExecutor(1, thread_name_prefix="numpy")  # which lets others run while it computes
        self._prepared: dict[str, Future[Mapping[str, Expected]]] = {}
        self.spoilt = False  # a kernel wrote where this process keeps what it relies on

    def open(self, problem: Problem, base: Entrant) -> GpuSession:
        """Makes a problem ready. Raises RunError if base is wrong."""
        provable = _provable(problem)
        trusted = provable.extents != problem.extents
        if trusted:
            GpuSession(self, provable, base).close()
        return GpuSession(self, problem, base, trusted=trusted)

    def prepare(self, problem: Problem) -> None:
        """Has NumPy begin with a problem that will be opened later, on another thread."""
        provable = _provable(problem)
        try:
            buffers = Buffers(self.device, self.service, provable)
        except DeviceError:  # no room beside the problem that is open
            return
        inputs = buffers.download()
        buffers.free()
        self._prepared[_key(provable)] = self._host.submit(_expected, provable, inputs)

    def expected(self, problem: Problem, buffers: Buffers) -> Mapping[str, Expected]:
        """What NumPy says of a problem whose inputs lie there."""
        prepared = self._prepared.pop(_key(problem), None)
        return _expected(problem, buffers.download()) if prepared is None else prepared.result()

    def floor_us(self, problem: Problem) -> float:
        """An empty launch, and the problem's bytes at the calibrated bandwidth."""
        return self.about.floor_us(problem.family.work(problem.spec, problem.extents))

    def alive(self) -> bool:
        """Whether the device still answers, and holds what it should."""
        try:
            self.device.synchronize()
        except RunError:
            return False
        return not self.spoilt

    def clocks(self) -> Clocks:
        """What NVML sees now; zeros where it is not there. Reasons that say nothing about a kernel are left out."""
        seen = None if self.nvml is None else self.nvml.clocks()
        if seen is None:
            return Clocks(0, 0, ())
        return replace(seen, reasons=tuple(reason for reason in seen.reasons if reason not in _HARMLESS))

    def others(self) -> tuple[str, ...]:
        """Processes of others on the GPU; none where NVML is not there."""
        return () if self.nvml is None else self.nvml.others()


class GpuSession:
    """One problem on one GPU: inputs uploaded once, base's result kept for the others to be compared with.

    Base is proven against NumPy at the problem's sizes. Where that would take too long, it must have been proven at
    smaller ones (`trusted`), and the others must give base's bits.
    """

    def __init__(self, bench: GpuBench, problem: Problem, base: Entrant, *, trusted: bool = False) -> None:
        self._bench, self._problem = bench, problem
        self._device, self._service, self._clock = bench.device, bench.service, bench.clock
        self._sets = [Buffers(self._device, self._service, problem)]
        self._references = {
            array.operand.name: self._device.allocate(array.size) for array in self._sets[0].written
        }  # fmt: skip
        self._expected: Mapping[str, Expected] = {}
        self._uploaded: dict[str, tuple[Memory, Memory]] = {}
        self._kernels: OrderedDict[str, CudaKernel] = OrderedDict()  # those of finalists
        self._kept: list[int] = []
        self._pairs = 0  # of turns that finalists have taken
        self._random = np.random.default_rng(0)
        kernel = self._load(base)
        if trusted:
            self._run(kernel, self._sets[0], POISONS[0])
            self._keep_result()
        else:
            self._prove(kernel)
        self._warm_up(kernel)

    def attempt(self, entrant: Entrant, give_up_us: float) -> Trial:
        """Runs a variant, compares its result, times it; a wrong or failing one is a trial with a status.

        The first run is timed too: a slow variant takes no other. The later ones find another poison.
        """
        buffers = self._sets[0]

        def ended(status: Status, reason: str) -> Trial:
            self._repair(buffers)
            return self._beside(entrant.untimed(status, reason))

        try:
            kernel = self._load(entrant)
            times = self._times(kernel, buffers, 1, POISONS[0])
            reason = self._differs(kernel.variant, buffers)
            if reason is not None:
                return ended("wrong_result", reason)
            if give_up_us < times[0] < CHEAP_US:  # unless it was disturbed: a trial is kept for good
                times += self._times(kernel, buffers, 1)
            if min(times) <= (give_up_us if times[0] < CHEAP_US else CLOSE * give_up_us):
                times += self._times(kernel, buffers, SAMPLES - len(times))
            reason = (self._differs(kernel.variant, buffers) if len(times) > 1 else None) or buffers.input_changed()
            if reason is not None:
                return ended("wrong_result", f"after the timing loop: {reason}")
        except DeviceError as error:
            return self._beside(entrant.untimed(_failed(error), str(error)))
        except GenError as error:
            return ended("launch_failed", str(error))
        seen = self._bench.clocks()
        noted = replace(_with_resources(entrant, kernel), sm_mhz=seen.sm_mhz, throttled=", ".join(seen.reasons))
        return self._beside(replace(noted, status="ok", times_us=tuple(times)))

    def rounds(
        self, entrants: Sequence[Entrant], turns: int, tell: Callable[[str], None], *, hot: bool = False
    ) -> Rounds:
        """Times variants in turns, each in an order of its own, two in the same memory, two in the next.

        What a short launch takes hangs on its place in the sequence, on Hopper by a pattern that comes again every few
        samples: in one order, or there and back, that would tell apart variants that are alike. Later rounds go on with
        the memory where earlier ones ended.
        """
        clocks, others = [self._bench.clocks()], {*self._bench.others()}
        times: dict[str, list[float]] = {entrant.name: [] for entrant in entrants}
        for entrant in entrants:
            if entrant.name not in self._kernels:
                tell(entrant.name)
                faults = self._fault(entrant, self._sets[0], POISONS)
                if faults:
                    return Rounds(faults=faults)
            self._kernels.move_to_end(entrant.name)
        sets = self._rotation()
        timed = self._hot_times if hot else self._times
        for turn in range(turns):
            pair = self._pairs + turn // 2
            buffers = sets[pair % len(sets)]
            for place in self._random.permutation(len(entrants)):
                entrant = entrants[place]
                tell(entrant.name)
                try:
                    times[entrant.name] += timed(self._kernels[entrant.name], buffers, 1, place=pair % PLACES)
                except GenError as error:
                    fault = entrant.untimed(_failed(error), f"among the finalists: {error}")
                    return Rounds(faults=(self._beside(fault),))
            clocks.append(self._bench.clocks())
            others.update(self._bench.others())
        self._pairs += (turns + 1) // 2
        for buffers in sets:
            buffers.fill_inputs()  # so that each answers for itself
        for entrant in entrants:
            tell(entrant.name)
            faults = self._fault(entrant, sets[-1], POISONS[:1])
            if faults:
                return Rounds(faults=faults)
        seen = [one.sm_mhz for one in clocks if one.sm_mhz]
        why = tuple(sorted({reason for one in clocks for reason in one.reasons}))
        return Rounds(times, (), (min(seen), max(seen)) if seen else (0, 0), why, tuple(sorted(others)))

    def close(self) -> None:
        """Gives the device's memory back."""
        self._kernels.clear()
        for buffers in self._sets:
            buffers.free()
        for memory in (*self._references.values(), *(m for pair in self._uploaded.values() for m in pair)):
            memory.free()

    def _load(self, entrant: Entrant) -> CudaKernel:
        return CudaKernel(entrant.variant, entrant.compiled, self._device, self._device.limits)

    def _fault(self, entrant: Entrant, buffers: Buffers, poisons: Sequence[int]) -> tuple[Trial, ...]:
        """The trial of a finalist that is not right, or not any more; none for one that is."""
        try:
            if entrant.name not in self._kernels:
                self._kernels[entrant.name] = self._load(entrant)
                if len(self._kernels) > LOADED:
                    self._kernels.popitem(last=False)
            reason = self._check(self._kernels[entrant.name], buffers, poisons)
            status: Status = "wrong_result"
        except GenError as error:
            reason, status = str(error), _failed(error)
        if reason is None:
            return ()
        self._repair(buffers)
        return (self._beside(entrant.untimed(status, f"among the finalists: {reason}")),)

    def _rotation(self) -> list[Buffers]:
        """The sets of buffers between which finalists rotate: one place in memory may suit one of them by luck."""
        wanted = SMALL_SETS if self._sets[0].size <= SMALL else SETS
        while len(self._sets) < wanted and self._device.free_bytes() > 2 * self._sets[0].size:
            try:
                self._sets.append(Buffers(self._device, self._service, self._problem))
            except DeviceError:  # in pieces that are too small
                break
        return self._sets

    def _prove(self, base: CudaKernel) -> None:
        """Compares base with NumPy on the host; run once more, on the other poison, it must give the same bits."""
        problem, variant, buffers = self._problem, base.variant, self._sets[0]
        self._expected = self._bench.expected(problem, buffers)
        roundings = variant.algorithm.roundings(variant.spec, variant.config, problem.extents, self._device.limits)
        self._run(base, buffers, POISONS[0])
        for array in buffers.written:
            name = array.operand.name
            wrong = disagreement(self._expected[name], array.download(), roundings, array.operand.dtype)
            if wrong is not None:
                raise RunError(f"{variant.name} on {problem}", f"is wrong: {name}{wrong}")
        self._keep_result()
        self._run(base, buffers, POISONS[1])
        reason = self._differs(variant, buffers)
        if reason is not None:
            raise RunError(f"{variant.name} on {problem}", f"is wrong, run once more: {reason}")

    def _keep_result(self) -> None:
        """Keeps what base has just written, for the others to be compared with."""
        for array in self._sets[0].written:
            self._service.copy(array.start, self._references[array.operand.name].address, array.size)
        self._kept = self._digests()

    def _digests(self) -> list[int]:
        """Of what base gave."""
        return [
            self._service.checksum(self._references[array.operand.name].address, array.size)
            for array in self._sets[0].written
        ]

    def _repair(self, buffers: Buffers) -> None:
        """After a kernel that was wrong: inputs as they were. What base gave must still be there."""
        with suppress(GenError):  # where the device no longer answers
            buffers.fill_inputs()
            self._bench.spoilt = self._bench.spoilt or self._digests() != self._kept

    def _warm_up(self, kernel: CudaKernel) -> None:
        """Runs a kernel for a while, so that the clocks are where work brings them."""
        start = time.monotonic()
        (us,) = self._times(kernel, self._sets[0], 1)
        runs = int(min(max(WARM_UP * 1e6 / max(us, 1.0), 1), MOST_WARM_UPS))  # of slow ones no more than it takes
        while time.monotonic() < start + WARM_UP:
            self._times(kernel, self._sets[0], runs)

    def _check(self, kernel: CudaKernel, buffers: Buffers, poisons: Sequence[int]) -> str | None:
        """Runs a kernel on each poison; what is wrong with its results, or with the inputs after it."""
        for poison in poisons:
            self._run(kernel, buffers, poison)
            reason = self._differs(kernel.variant, buffers)
            if reason is not None:
                return reason
        return buffers.input_changed()

    def _run(self, kernel: CudaKernel, buffers: Buffers, poison: int) -> None:
        buffers.reset(poison)
        extents = self._problem.extents
        kernel.launches(kernel.steps(extents), extents, {**kernel.scratch(extents), **buffers.addresses})()
        self._device.synchronize()

    def _differs(self, variant: Variant, buffers: Buffers) -> str | None:
        """How the outputs differ from base's, or from NumPy's by more than their bound; or what else was written."""
        for array in buffers.written:
            name, rows = array.operand.name, array.rows
            filled_with = buffers.filled_with if array.operand.role == "out" else None
            if array.surroundings_changed(filled_with):
                return f"bytes next to {name} are written"
            if rows.has_gaps and filled_with is not None:
                count = self._service.gaps_written(array.address, rows, filled_with)
                if count:
                    return f"{count} bytes between the rows of {name} are written"
            kept = self._references[name].address + array.offset
            count, first = self._service.differing(array.address, kept, rows)
            expected = self._expected.get(name)
            if count and expected is not None and expected.magnitude is not None:
                count, first = self._beyond(variant, array, expected)
            if count:
                place = "" if first is None else f", the first is element {first}"
                return f"{name}: {count} elements are wrong{place}"
        return None

    def _beyond(self, variant: Variant, array: DeviceArray, expected: Expected) -> tuple[int, int | None]:
        assert expected.magnitude is not None
        operand, problem = array.operand, self._problem
        if operand.name not in self._uploaded:
            self._uploaded[operand.name] = (self._upload(expected.value), self._upload(expected.magnitude))
        value, magnitude = self._uploaded[operand.name]
        roundings = variant.algorithm.roundings(
            variant.spec, variant.config, problem.extents, self._device.limits
        )  # fmt: skip
        allowed = Allowance.of(expected, roundings, operand.dtype)
        return self._service.beyond_bounds(
            array.address, array.rows, operand.dtype, value.address, magnitude.address, allowed
        )

    def _upload(self, content: Array) -> Memory:
        wide = np.ascontiguousarray(content, dtype=np.float64).reshape(-1)
        memory = self._device.allocate(max(wide.nbytes, VECTOR))
        self._device.upload(memory.address, wide)
        return memory

    def _times(
        self, kernel: CudaKernel, buffers: Buffers, samples: int, poison: int = POISONS[-1], place: int = 0
    ) -> list[float]:  # fmt: skip
        extents = self._problem.extents
        addresses = {**kernel.scratch(extents, place), **buffers.addresses}
        before, timed = _parts(kernel.steps(extents))
        make_ready = kernel.launches(before, extents, addresses)

        def setup() -> None:
            buffers.reset(poison)
            make_ready()

        return self._clock.times(kernel.launches(timed, extents, addresses), samples, setup=setup)

    def _hot_times(
        self, kernel: CudaKernel, buffers: Buffers, samples: int, poison: int = POISONS[-1], place: int = 0
    ) -> list[float]:  # fmt: skip
        """Of one of many launches that follow each other in a graph."""
        extents = self._problem.extents
        addresses = {**kernel.scratch(extents, place), **buffers.addresses}
        before, timed = _parts(kernel.steps(extents))
        buffers.reset(poison)
        kernel.launches(before, extents, addresses)()
        self._device.synchronize()
        graph = kernel.graph(timed, extents, addresses, GRAPH_LAUNCHES)
        try:
            return self._clock.times_in_graph(graph, samples)
        finally:
            graph.close()

    def _beside(self, trial: Trial) -> Trial:
        """The trial with who else was on the GPU: whatever went wrong may be theirs."""
        return replace(trial, foreign=self._bench.others())


def _parts(planned: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """The launches before those that are timed, and these."""
    return [step for step in planned if step.setup], [step for step in planned if not step.setup]


def _failed(error: GenError) -> Status:
    """What a failure says of a variant: without memory nothing, and another time there may be some."""
    return "infeasible" if isinstance(error, DeviceError) else "launch_failed"


def _provable(problem: Problem) -> Problem:
    """The problem at the nearest sizes at which NumPy computes it in seconds."""
    return replace(problem, extents=problem.family.sizes_for_numpy(problem.spec, problem.extents))


def _key(problem: Problem) -> str:
    return f"{problem.spec_name} {problem.spec.to_json()} {sorted(problem.extents.items())}"


def _expected(problem: Problem, inputs: Mapping[str, Array]) -> Mapping[str, Expected]:
    found = problem.family.oracle(problem.spec, inputs, problem.extents)
    return {name: sharpened(one, random_signs=True) for name, one in found.items()}


def _with_resources(entrant: Entrant, kernel: CudaKernel) -> Trial:
    """A trial with what the kernels occupy: as the compiler says, or else the driver."""
    trial = entrant.untimed("ok", "")
    if entrant.compiled.resources:
        return trial
    used = kernel.attributes
    return replace(trial, registers=used.registers, spill_bytes=used.local_bytes, shared_bytes=used.static_shared_bytes)
