"""A problem made ready on a GPU, and variants tried on it: proven against base on the device, then timed COLD."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from gen.errors import DeviceError, GenError, RunError
from gen.families.base import Array, Expected, Variant
from gen.gpu.arrays import VECTOR, DeviceArray
from gen.gpu.device import CudaDevice, Memory
from gen.gpu.kernel import CudaKernel
from gen.gpu.service import Service
from gen.gpu.timing import Calibration, Clock
from gen.gpu.trial import Problem, Rounds, Session, Status, Trial
from gen.proof.oracle import Allowance, disagreement, sharpened
from gen.toolchain.compiled import Compiled

SAMPLES = 7  # of a variant that is worth more than one
POISONS = (0xFFC1A5A5, 0x7FA15A5A)  # two NaN patterns: an element that is not written keeps one of them


class GpuBench:
    """A GPU on which variants are tried.

    Attributes:
        name, driver, limits: the device's.
    """

    def __init__(self, device: CudaDevice, service: Service, clock: Clock, calibration: Calibration) -> None:
        self.name, self.driver, self.limits = device.name, device.driver, device.limits
        self._device = device
        self._service = service
        self._clock = clock
        self._calibration = calibration

    def open(self, problem: Problem, base: Variant, compiled: Compiled) -> Session:
        """Makes a problem ready. Raises RunError if base is wrong."""
        provable = problem.family.provable(problem.spec, problem.extents)
        trusted = provable != problem.extents
        if trusted:
            smaller = replace(problem, extents=provable)
            GpuSession(self._device, self._service, self._clock, smaller, base, compiled).close()
        return GpuSession(self._device, self._service, self._clock, problem, base, compiled, trusted=trusted)

    def floor_us(self, problem: Problem) -> float:
        """An empty launch, and the problem's bytes at the calibrated bandwidth."""
        return self._calibration.floor_us(problem.family.work(problem.spec, problem.extents))


class GpuSession:
    """One problem on one GPU: inputs uploaded once, base's result kept for the others to be compared with.

    Base is proven against NumPy at the problem's sizes. Where that would take too long, it must have been proven at
    smaller ones (`trusted`), and the others must give base's bits.
    """

    def __init__(
        self, device: CudaDevice, service: Service, clock: Clock, problem: Problem, base: Variant, compiled: Compiled,
        *, trusted: bool = False,
    ) -> None:  # fmt: skip
        self._device, self._service, self._clock, self._problem = device, service, clock, problem
        layouts = problem.family.layouts(problem.spec, problem.extents)
        arrays = [
            DeviceArray(device, operand, layouts[operand.name], problem.alignment)
            for operand in problem.spec.operands
            if operand.role != "number"
        ]
        self._inputs = [array for array in arrays if array.operand.role == "in"]
        self._outputs = [array for array in arrays if array.operand.role == "out"]
        self._changing = [array for array in arrays if array.operand.role == "inout"]
        self._references = {
            array.operand.name: device.allocate(array.size) for array in (*self._outputs, *self._changing)
        }
        self._filled_with = 0
        self._expected: dict[str, Expected] = {}
        self._uploaded: dict[str, tuple[Memory, Memory]] = {}
        self._kernels: dict[str, CudaKernel] = {}
        self._fill(self._inputs)
        self._checksums = self._input_checksums()
        kernel = CudaKernel(base, compiled, device, device.limits)
        if trusted:
            self._keep(kernel, POISONS[0])
        else:
            self._prove(kernel)

    def attempt(self, variant: Variant, compiled: Compiled, give_up_us: float) -> Trial:
        """Runs a variant, compares its result, times it; a wrong or failing one is a trial with a status."""
        used = compiled.resources.values()
        registers = max((one.registers for one in used), default=0)
        spills = sum(one.spill_store_bytes for one in used)
        shared = max((one.static_shared_bytes for one in used), default=0)

        def trial(status: Status, times: Sequence[float] = (), reason: str = "") -> Trial:
            return Trial(variant, status, tuple(times), registers, spills, shared, reason)

        try:
            kernel = CudaKernel(variant, compiled, self._device, self._device.limits)
            reason = self._check(kernel)
            if reason is not None:
                self._fill(self._inputs)
                return trial("wrong_result", reason=reason)
            times = self._times(kernel, 1)
            if times[0] > give_up_us:  # unless it was disturbed: a trial is kept for good
                times += self._times(kernel, 1)
            if min(times) <= give_up_us:
                times = self._times(kernel, SAMPLES)
            reason = self._check_after_timing(kernel)
            if reason is not None:
                self._fill(self._inputs)
                return trial("wrong_result", reason=f"after the timing loop: {reason}")
        except DeviceError as error:  # no memory: another time there may be
            return trial("infeasible", reason=str(error))
        except GenError as error:
            with suppress(GenError):  # where the device no longer answers
                self._fill(self._inputs)
            return trial("launch_failed", reason=str(error))
        self._kernels[variant.name] = kernel
        return trial("ok", times)

    def rounds(self, variants: Sequence[Variant], count: int) -> Rounds:
        """Times variants that were attempted before, in turns, forwards and backwards."""
        times: dict[str, list[float]] = {variant.name: [] for variant in variants}
        for turn in range(count):
            for variant in variants if turn % 2 == 0 else reversed(variants):
                times[variant.name] += self._times(self._kernels[variant.name], 1)
        self._fill(self._inputs)  # so that each answers for itself
        for variant in variants:
            reason = self._check(self._kernels[variant.name])
            if reason is not None:
                self._fill(self._inputs)
                raise RunError(variant.name, "was right before and is wrong now", reason)
        return Rounds(times)

    def alive(self) -> bool:
        """Whether the device still answers."""
        try:
            self._device.synchronize()
        except RunError:
            return False
        return True

    def close(self) -> None:
        """Gives the device's memory back."""
        self._kernels.clear()
        for array in (*self._inputs, *self._written):
            array.free()
        for memory in (*self._references.values(), *(m for pair in self._uploaded.values() for m in pair)):
            memory.free()

    def forget(self, variants: Sequence[Variant]) -> None:
        """Unloads variants that will not be timed again."""
        for variant in variants:
            self._kernels.pop(variant.name, None)

    @property
    def _written(self) -> tuple[DeviceArray, ...]:
        return (*self._outputs, *self._changing)

    def _prove(self, base: CudaKernel) -> None:
        """Compares base with NumPy on the host, and keeps its result."""
        problem, variant = self._problem, base.variant
        self._fill(self._changing)
        inputs = {array.operand.name: array.download() for array in (*self._inputs, *self._changing)}
        self._expected = {
            name: sharpened(one, random_signs=True)
            for name, one in problem.family.oracle(problem.spec, inputs, problem.extents).items()
        }
        roundings = variant.algorithm.roundings(variant.spec, variant.config, problem.extents, self._device.limits)
        for poison in POISONS:
            self._keep(base, poison)
            for array in self._written:
                name = array.operand.name
                wrong = disagreement(self._expected[name], array.download(), roundings, array.operand.dtype)
                if wrong is not None:
                    raise RunError(f"{variant.name} on {problem}", f"is wrong: {name}{wrong}")

    def _keep(self, base: CudaKernel, poison: int) -> None:
        """Runs base, and keeps its result."""
        self._run(base, poison)
        for array in self._written:
            self._service.copy(array.start, self._references[array.operand.name].address, array.size)

    def _check(self, kernel: CudaKernel) -> str | None:
        """Runs a kernel on two poisons; what is wrong with its results, or with the inputs after it."""
        for poison in POISONS:
            self._run(kernel, poison)
            reason = self._differs(kernel.variant)
            if reason is not None:
                return reason
        return self._input_changed()

    def _check_after_timing(self, kernel: CudaKernel) -> str | None:
        """What is wrong with the last result; arrays changed in place were changed often, and need another run."""
        if self._changing:
            return self._check(kernel)
        return self._differs(kernel.variant) or self._input_changed()

    def _run(self, kernel: CudaKernel, poison: int) -> None:
        self._poison(poison)
        self._fill(self._changing)
        extents = self._problem.extents
        kernel.queue(kernel.steps(extents), self._addresses(kernel))
        self._device.synchronize()

    def _poison(self, word: int) -> None:
        self._filled_with = word
        for array in self._outputs:
            self._service.fill(array.start, array.size, word)

    def _differs(self, variant: Variant) -> str | None:
        """How the outputs differ from base's, or from NumPy's by more than their bound; or what else was written."""
        for array in self._written:
            name, rows = array.operand.name, array.rows
            filled_with = self._filled_with if array.operand.role == "out" else None
            if array.surroundings_changed(filled_with):
                return f"bytes next to {name} are written"
            if rows.has_gaps and filled_with is not None:
                count = self._service.gaps_written(array.address, rows, filled_with)
                if count:
                    return f"{count} bytes between the rows of {name} are written"
            kept = self._references[name].address + array.offset
            count, first = self._service.differing(array.address, kept, rows)
            expected = self._expected.get(name)
            if count and expected is not None and expected.magnitude is not None and not expected.same_bits:
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

    def _times(self, kernel: CudaKernel, samples: int) -> list[float]:
        planned = kernel.steps(self._problem.extents)
        addresses = self._addresses(kernel)
        before = [step for step in planned if step.setup]
        timed = [step for step in planned if not step.setup]

        def setup() -> None:
            self._poison(POISONS[-1])
            kernel.queue(before, addresses)

        return self._clock.times(lambda: kernel.queue(timed, addresses), samples, setup=setup)

    def _addresses(self, kernel: CudaKernel) -> dict[str, int]:
        arrays = {array.operand.name: array.address for array in (*self._inputs, *self._written)}
        return kernel.scratch(self._problem.extents) | arrays

    def _fill(self, arrays: Sequence[DeviceArray]) -> None:
        """Writes random elements, always the same: a kernel may have changed them under those that come next."""
        for array in arrays:
            place = self._problem.spec.operands.index(array.operand)
            self._service.random(array.start, array.size, place + 1, array.operand.dtype)

    def _input_checksums(self) -> list[int]:
        return [self._service.checksum(array.start, array.size) for array in self._inputs]

    def _input_changed(self) -> str | None:
        return None if self._input_checksums() == self._checksums else "an input was written"
