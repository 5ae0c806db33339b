"""A GPU on which variants are tried: proven against base on the device, then timed from cold caches."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gen.dtypes import F32, F64
from gen.errors import DeviceError, GenError, MissingToolError, RunError
from gen.families.base import Array, Expected, Layout, Operand, Variant
from gen.families.extents import timed_numbers
from gen.families.plans import Step
from gen.gpu.device import Device, Memory, bytes_at, find_gpu
from gen.gpu.kernel import CudaKernel
from gen.gpu.nvml import Clocks, Nvml
from gen.gpu.service import ElementRows, Service
from gen.gpu.timing import GRAPH_LAUNCHES, Calibration, Clock, Instruments
from gen.proof.error_bounds import Allowance, disagreement, sharpened
from gen.store.folder import store_calibration, stored_calibration
from gen.store.trials import Problem, Status, Trial
from gen.toolchain.compiled import Compiler
from gen.tune.device import Entrant, Rounds

_log = logging.getLogger(__name__)
VECTOR = 16  # bytes: what service kernels move at a time
RED_ZONE = 4096  # bytes before and behind each array, which no kernel may write
_ZONE = np.full(RED_ZONE, 0xC5, np.uint8)
SAMPLES = 3  # of a variant that is not given up
SECOND_SAMPLE_US = 1000.0  # a variant that takes less is timed once more before it is given up
SLOW_GIVE_UP_RATIO = 0.6  # of the time to give up at, beyond which a slower variant has no further sample
BUFFER_SETS = 3  # of buffers, between which the finalists rotate, as far as memory goes
SMALL_SET_BYTES, SMALL_BUFFER_SETS = 1 << 24, 8  # sets of at most so many bytes cost little: there are more
# Of scratch memory, between which finalists rotate too: a place may suit one variant by luck, more than a set of
# buffers does, so there are many. Coprime to the number of sets, so that all pairs of place and set occur.
SCRATCH_PLACES = 61
MAX_LOADED_KERNELS = 128  # kernels of finalists that stay loaded
WARM_UP_SECONDS = 0.1  # seconds of launches before anything is timed: clocks rise when there is work
MAX_WARM_UPS = 10  # between looks at the clock
POISONS = (0xFFC1A5A5, 0x7FA15A5A)  # two NaN patterns: an element that is not written keeps one of them
MAX_ROUNDED_RESULTS = 1 << 22  # of floating-point numbers that are compared with base's within bounds
_HARMLESS = ("idle", "in step")  # reasons of a low clock that no kernel is timed under


class GuardedArray:
    """An array operand on the device, between red zones.

    Attributes:
        operand, layout, rows: what it is, and how its elements lie.
        start, size: whole vectors that hold its elements. Before and behind them lies a red zone that no kernel may
            write.
        offset: bytes from `start` to its first element.
        address: of its first element.
    """

    def __init__(self, device: Device, operand: Operand, layout: Layout, alignment: int = VECTOR) -> None:
        """Allocates it at an address that so many bytes divide, and no larger power of two up to 16."""
        self.operand, self.layout, self.rows = operand, layout, ElementRows.of(layout)
        self.offset = alignment % VECTOR
        self.size = -(-max(self.offset + self.rows.span, 1) // VECTOR) * VECTOR
        self._device = device
        self._memory: Memory = device.allocate(2 * RED_ZONE + self.size)
        self.start = self._memory.address + RED_ZONE
        self.address = self.start + self.offset
        self._mark()

    def download(self) -> Array:
        """The array, copied to the host."""
        content = bytes_at(self._device, self.start, self.size)[self.offset :]
        return np.ndarray(self.layout.shape, self.layout.dtype, content.data, 0, self.layout.strides)

    def surroundings_changed(self, poison: int | None) -> bool:
        """Whether the red zones were written, or what fills up the first vector and the last.

        Those hold the poison; where `poison` is None they are not looked at.
        """
        end = self.offset + self.rows.span
        filled_up = self.size - end
        before = bytes_at(self._device, self.start - RED_ZONE, RED_ZONE + self.offset)
        behind = bytes_at(self._device, self.start + end, filled_up + RED_ZONE)
        head, tail = before[RED_ZONE:], behind[:filled_up]
        if poison is not None:
            vector = np.full(VECTOR // 4, poison, np.uint32).view(np.uint8)
            head, tail = vector[: self.offset], vector[VECTOR - filled_up :]
        whole_before = np.array_equal(before, np.concatenate((_ZONE, head)))
        if whole_before and np.array_equal(behind, np.concatenate((tail, _ZONE))):
            return False
        self._mark()  # whole again for the next kernel
        return True

    def free(self) -> None:
        """Gives its memory back."""
        self._memory.free()

    def _mark(self) -> None:
        for zone in (self.start - RED_ZONE, self.start + self.size):
            self._device.upload(zone, _ZONE)


class Buffers:
    """One set of them. Every set holds the same elements, at addresses of its own.

    Attributes:
        inputs, outputs, changing: by their roles.
        filled_with: the word that fills the outputs before a kernel runs.
    """

    def __init__(self, device: Device, service: Service, problem: Problem) -> None:
        """Allocates and fills. Raises DeviceError if there is no memory for it."""
        self._service, self._problem = service, problem
        self.filled_with = 0
        layouts = problem.family.layouts(problem.spec, problem.extents)
        arrays: list[GuardedArray] = []
        try:
            for operand in problem.spec.operands:
                if operand.role != "number":
                    array = GuardedArray(device, operand, layouts[operand.name], problem.alignment)
                    arrays.append(array)
        except BaseException:
            for array in arrays:
                array.free()
            raise
        self.inputs, self.outputs, self.changing = (
            [array for array in arrays if array.operand.role == role] for role in ("in", "out", "inout")
        )
        for array in (*self.inputs, *self.changing):
            self.fill(array)
        self._checksums = self._digests()

    @property
    def written(self) -> tuple[GuardedArray, ...]:
        """Arrays that a kernel writes."""
        return (*self.outputs, *self.changing)

    @property
    def addresses(self) -> Mapping[str, int]:
        """Of every array's first element, by operand."""
        return {array.operand.name: array.address for array in self}

    @property
    def size(self) -> int:
        """Bytes of all arrays, without what surrounds them."""
        return sum(array.size for array in self)

    def fill_inputs(self) -> None:
        """Writes the inputs anew: a kernel may have changed them under those that come next."""
        for array in self.inputs:
            self.fill(array)

    def download(self) -> Mapping[str, Array]:
        """What is read, by operand, as it is before anything runs."""
        for array in self.changing:
            self.fill(array)
        return {array.operand.name: array.download() for array in (*self.inputs, *self.changing)}

    def reset(self, poison: int) -> None:
        """Queues what comes before each run: outputs hold the poison, and what is changed in place is as it was."""
        self.poison(poison)
        for array in self.changing:
            self.fill(array)

    def poison(self, word: int) -> None:
        """Queues filling the outputs with a word."""
        self.filled_with = word
        for array in self.outputs:
            self._service.fill(array.start, array.size, word)

    def input_changed(self) -> str | None:
        """What is wrong with the inputs."""
        return None if self._digests() == self._checksums else "an input was written"

    def free(self) -> None:
        """Gives the memory back."""
        for array in self:
            array.free()

    def __iter__(self) -> Iterator[GuardedArray]:
        return iter((*self.inputs, *self.outputs, *self.changing))

    def fill(self, array: GuardedArray) -> None:
        """Queues writing random elements, always the same."""
        place = self._problem.spec.operands.index(array.operand)
        self._service.random(array.start, array.size, place + 1, array.operand.dtype)

    def _digests(self) -> list[int]:
        return [self._service.checksum(array.start, array.size) for array in self.inputs]


class CalibratedGpu:
    """A GPU with what measuring takes, on which variants are tried, in the process that drives it.

    Attributes:
        name, driver, limits: the device's.
        about: its calibration.
        device, service, clock: its instruments.
        nvml: where clocks and other processes are seen; None where they are not.
        spoilt: a kernel wrote where this process keeps what it relies on.
    """

    def __init__(
        self, device: Device, service: Service, clock: Clock, calibration: Calibration, nvml: Nvml | None = None
    ) -> None:
        self.device, self.service, self.clock = device, service, clock
        self.name, self.driver, self.limits = device.name, device.driver, device.limits
        self.about, self.nvml, self.spoilt = calibration, nvml, False
        self._host = ThreadPoolExecutor(1, thread_name_prefix="numpy")  # which lets others run while it computes
        self._prepared: dict[str, Future[Mapping[str, Expected]]] = {}

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
            return Clocks(0, ())
        return replace(seen, reasons=tuple(reason for reason in seen.reasons if reason not in _HARMLESS))

    def others(self) -> tuple[str, ...]:
        """Processes of others on the GPU; none where NVML is not there."""
        return () if self.nvml is None else self.nvml.others()


@dataclass(frozen=True)
class GpuFactory:
    """Makes a GPU ready in the process that drives it.

    Attributes:
        index: the driver's number of it.
        compiler: can be pickled.
        home: holds the calibration; measured and kept there if there is none of this device. None: measured anew.
    """

    index: int
    compiler: Compiler
    home: Path | None

    def __call__(self) -> CalibratedGpu:
        """Opens the GPU. Raises DeviceError if there is none to use."""
        instruments = Instruments.open(self.index, self.compiler)
        calibration = None if self.home is None else stored_calibration(self.home, instruments.device)
        if calibration is None:
            calibration = instruments.calibrate()
            if self.home is not None:
                store_calibration(self.home, calibration)
        return CalibratedGpu(instruments.device, instruments.service, instruments.clock, calibration, _nvml(self.index))


def _nvml(index: int) -> Nvml | None:
    found = find_gpu(index)
    try:
        return None if found is None else Nvml(found.uuid)
    except MissingToolError as error:
        _log.warning("Clocks and other users of the GPU are not noted: %s", error)
        return None


class GpuSession:
    """One problem on one GPU: inputs uploaded once, base's result kept for the others to be compared with.

    Base is proven against NumPy at the problem's sizes. Where that would take too long, it must have been proven at
    smaller ones (`trusted`), and the others must give base's bits; or, of few floating-point results, what roundings on
    both sides can make of them.
    """

    def __init__(self, gpu: CalibratedGpu, problem: Problem, base: Entrant, *, trusted: bool = False) -> None:
        self._gpu, self._problem = gpu, problem
        self._device, self._service, self._clock = gpu.device, gpu.service, gpu.clock
        self._sets = [Buffers(self._device, self._service, problem)]
        self._references = {
            array.operand.name: self._device.allocate(array.size) for array in self._sets[0].written
        }  # fmt: skip
        self._expected: Mapping[str, Expected] = {}
        self._uploaded: dict[str, tuple[Memory, Memory]] = {}
        self._kernels: OrderedDict[str, CudaKernel] = OrderedDict()  # those of finalists
        self._kept: list[int] = []
        self._pairs = 0  # of rounds so far
        self._random = np.random.default_rng(0)
        kernel = self._load(base)
        self._trusted: Variant | None = None
        if trusted:
            self._trusted = base.variant
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
            if give_up_us < times[0] < SECOND_SAMPLE_US:  # unless it was disturbed: a trial is kept for good
                times += self._times(kernel, buffers, 1)
            if min(times) <= (give_up_us if times[0] < SECOND_SAMPLE_US else SLOW_GIVE_UP_RATIO * give_up_us):
                times += self._times(kernel, buffers, SAMPLES - len(times))
            reason = (self._differs(kernel.variant, buffers) if len(times) > 1 else None) or buffers.input_changed()
            if reason is not None:
                return ended("wrong_result", f"after the timing loop: {reason}")
        except DeviceError as error:
            return self._beside(entrant.untimed(_failed(error), str(error)))
        except GenError as error:
            return ended("launch_failed", str(error))
        seen = self._gpu.clocks()
        noted = replace(_with_resources(entrant, kernel), sm_mhz=seen.sm_mhz, throttled=", ".join(seen.reasons))
        return self._beside(replace(noted, status="ok", times_us=tuple(times)))

    def rounds(
        self, entrants: Sequence[Entrant], count: int, tell: Callable[[str], None], *, hot: bool = False
    ) -> Rounds:
        """Times variants in so many rounds, each in an order of its own; two rounds share memory, two use the next.

        The time of a short launch depends on its place in the sequence, on Hopper by a pattern that repeats every few
        samples. In a fixed order, or there and back, that would make a difference between equal variants. A later call
        goes on with the memory after that of the last round.
        """
        clocks, others = [self._gpu.clocks()], {*self._gpu.others()}
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
        for number in range(count):
            pair = self._pairs + number // 2
            buffers = sets[pair % len(sets)]
            for place in self._random.permutation(len(entrants)):
                entrant = entrants[place]
                tell(entrant.name)
                try:
                    times[entrant.name] += timed(self._kernels[entrant.name], buffers, 1, place=pair % SCRATCH_PLACES)
                except GenError as error:
                    fault = entrant.untimed(_failed(error), f"among the finalists: {error}")
                    return Rounds(faults=(self._beside(fault),))
            clocks.append(self._gpu.clocks())
            others.update(self._gpu.others())
        self._pairs += (count + 1) // 2
        for buffers in sets:
            buffers.fill_inputs()  # so that each variant answers for itself
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
                if len(self._kernels) > MAX_LOADED_KERNELS:
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
        wanted = SMALL_BUFFER_SETS if self._sets[0].size <= SMALL_SET_BYTES else BUFFER_SETS
        while len(self._sets) < wanted and self._device.free_bytes() > 2 * self._sets[0].size:
            try:
                self._sets.append(Buffers(self._device, self._service, self._problem))
            except DeviceError:  # in pieces that are too small
                break
        return self._sets

    def _prove(self, base: CudaKernel) -> None:
        """Compares base with NumPy on the host; run once more, on the other poison, it must give the same bits."""
        problem, variant, buffers = self._problem, base.variant, self._sets[0]
        self._expected = self._gpu.expected(problem, buffers)
        roundings = self._roundings(variant)
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
            self._gpu.spoilt = self._gpu.spoilt or self._digests() != self._kept

    def _warm_up(self, kernel: CudaKernel) -> None:
        """Runs a kernel for a while, so that the clocks are where work brings them."""
        start = time.monotonic()
        (us,) = self._times(kernel, self._sets[0], 1)
        runs = int(
            min(max(WARM_UP_SECONDS * 1e6 / max(us, 1.0), 1), MAX_WARM_UPS)
        )  # of slow ones no more than it takes
        while time.monotonic() < start + WARM_UP_SECONDS:
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
            if count and name not in self._expected and self._may_round(array):
                self._expected = {**self._expected, name: self._by_base(array)}
            expected = self._expected.get(name)
            if count and expected is not None and expected.magnitude is not None:
                count, first = self._beyond(variant, array, expected)
            if count:
                place = "" if first is None else f", the first is element {first}"
                return f"{name}: {count} elements are wrong{place}"
        return None

    def _may_round(self, array: GuardedArray) -> bool:
        """Whether results may differ from those of a base that nobody compared with NumPy here."""
        few = array.rows.total <= MAX_ROUNDED_RESULTS
        return self._trusted is not None and array.operand.dtype.kind == "float" and few

    def _by_base(self, array: GuardedArray) -> Expected:
        """What base gave, in the place of what NumPy says; its magnitude is the least that any sum of terms has."""
        kept = self._references[array.operand.name].address
        content = bytes_at(self._device, kept, array.size)[array.offset :]
        layout = array.layout
        value = np.ndarray(layout.shape, layout.dtype, content.data, 0, layout.strides).astype(np.float64)
        return Expected(value, np.abs(value), F64 if array.operand.dtype == F64 else F32)

    def _roundings(self, variant: Variant) -> int:
        """On any path to a result of a variant, and of the base that it is compared with."""
        both = (variant,) if self._trusted is None else (variant, self._trusted)
        limits, extents = self._device.limits, self._problem.extents
        return sum(one.algorithm.roundings(one.spec, one.config, extents, limits) for one in both)

    def _beyond(self, variant: Variant, array: GuardedArray, expected: Expected) -> tuple[int, int | None]:
        assert expected.magnitude is not None
        operand = array.operand
        if operand.name not in self._uploaded:
            self._uploaded[operand.name] = (self._upload(expected.value), self._upload(expected.magnitude))
        value, magnitude = self._uploaded[operand.name]
        allowed = Allowance.of(expected, self._roundings(variant), operand.dtype)
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
        """Of launches from cold caches, in microseconds."""
        make_ready, timed, addresses = self._parts(kernel, buffers, poison, place)
        return kernel.times(self._clock, timed, self._problem.extents, addresses, samples, make_ready)

    def _hot_times(self, kernel: CudaKernel, buffers: Buffers, samples: int, *, place: int) -> list[float]:
        """Of one of many launches that follow each other in a graph, in microseconds."""
        make_ready, timed, addresses = self._parts(kernel, buffers, POISONS[-1], place)
        make_ready()
        self._device.synchronize()
        graph = kernel.graph(timed, self._problem.extents, addresses, GRAPH_LAUNCHES)
        try:
            return self._clock.times_in_graph(graph, samples)
        finally:
            graph.close()

    def _parts(
        self, kernel: CudaKernel, buffers: Buffers, poison: int, place: int
    ) -> tuple[Callable[[], None], list[Step], dict[str, int]]:  # fmt: skip
        """What queues all that comes before a timed launch; the steps that are timed; the addresses of both."""
        extents = self._problem.extents
        addresses = {**kernel.scratch(extents, place), **buffers.addresses}
        planned = kernel.steps(extents)
        setup = kernel.launches([step for step in planned if step.setup], extents, addresses)

        def make_ready() -> None:
            buffers.reset(poison)
            setup()

        return make_ready, [step for step in planned if not step.setup], addresses

    def _beside(self, trial: Trial) -> Trial:
        """The trial with who else was on the GPU: whatever went wrong may be theirs."""
        return replace(trial, foreign=self._gpu.others())


def _failed(error: GenError) -> Status:
    """What a failure says of a variant: without memory nothing, and another time there may be some."""
    return "infeasible" if isinstance(error, DeviceError) else "launch_failed"


def _provable(problem: Problem) -> Problem:
    """The problem at the nearest sizes at which NumPy computes it in seconds."""
    return replace(problem, extents=problem.family.sizes_for_numpy(problem.spec, problem.extents))


def _key(problem: Problem) -> str:
    return f"{problem.spec_name} {problem.spec.to_json()} {sorted(problem.extents.items())}"


def _expected(problem: Problem, inputs: Mapping[str, Array]) -> Mapping[str, Expected]:
    found = problem.family.oracle(problem.spec, {**inputs, **timed_numbers(problem.spec)}, problem.extents)
    return {name: sharpened(one, random_signs=True) for name, one in found.items()}


def _with_resources(entrant: Entrant, kernel: CudaKernel) -> Trial:
    """A trial with what the kernels occupy: as the compiler says, or else the driver."""
    trial = entrant.untimed("ok", "")
    if entrant.compiled.resources:
        return trial
    used = kernel.attributes
    return replace(trial, registers=used.registers, spill_bytes=used.local_bytes, shared_bytes=used.static_shared_bytes)
