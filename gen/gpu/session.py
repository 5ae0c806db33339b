"""A problem made ready on a GPU, and variants tried on it: proven against base on the device, then timed COLD."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from gen.errors import DeviceError, GenError, RunError
from gen.families.base import Array, Expected, Layout, Operand, Variant
from gen.gpu.device import CudaDevice, Memory
from gen.gpu.kernel import CudaKernel
from gen.gpu.service import Service
from gen.gpu.timing import Calibration, Clock
from gen.gpu.trial import Problem, Rounds, Session, Status, Trial
from gen.proof.oracle import allowance, disagreement, sharpened
from gen.toolchain.compiled import Compiled

SAMPLES = 7  # of a variant that is worth more than one
RED_ZONE = 4096  # bytes
_ZONE = np.full(RED_ZONE, 0xC5, np.uint8)
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
        return GpuSession(self._device, self._service, self._clock, problem, base, compiled)

    def floor_us(self, problem: Problem) -> float:
        """An empty launch, and the problem's bytes at the calibrated bandwidth."""
        return self._calibration.floor_us(problem.family.work(problem.spec, problem.extents))


@dataclass
class _Buffer:
    """An array operand on the device: `span` bytes from its first to its last, in `size` bytes of whole vectors.

    Before `address` and behind `size` lies a red zone that no kernel may write.
    """

    operand: Operand
    layout: Layout
    memory: Memory
    span: int
    size: int

    @property
    def address(self) -> int:
        """Of its first byte."""
        return self.memory.address + RED_ZONE

    @property
    def has_gaps(self) -> bool:
        """Whether bytes between the first and the last belong to no element: rows are pitched."""
        return self.span > self.layout.dtype.itemsize * prod(self.layout.shape)

    def view(self, content: Array) -> Array:
        """The array among downloaded bytes."""
        return np.ndarray(self.layout.shape, self.layout.dtype, content.data, 0, self.layout.strides)


class GpuSession:
    """One problem on one GPU: inputs uploaded once, base proven once against NumPy, its result kept for the others."""

    def __init__(
        self, device: CudaDevice, service: Service, clock: Clock, problem: Problem, base: Variant, compiled: Compiled
    ) -> None:
        self._device, self._service, self._clock, self._problem = device, service, clock, problem
        family, spec, extents = problem.family, problem.spec, problem.extents
        layouts = family.layouts(spec, extents)
        operands = [operand for operand in spec.operands if operand.role != "number"]
        self._inputs = [self._buffer(o, layouts[o.name]) for o in operands if o.role == "in"]
        self._outputs = [self._buffer(o, layouts[o.name]) for o in operands if o.role == "out"]
        self._references = [device.allocate(buffer.size) for buffer in self._outputs]
        self._filled_with = 0
        self._expected: dict[str, Expected] = {}
        self._uploaded: dict[str, tuple[Memory, Memory]] = {}
        self._kernels: dict[str, CudaKernel] = {}
        self._fill_inputs()
        self._checksums = self._input_checksums()
        self._prove_base(base, compiled)

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
                self._fill_inputs()
                return trial("wrong_result", reason=reason)
            times = self._times(kernel, 1)
            if times[0] > give_up_us:  # unless it was disturbed: a trial is kept for good
                times += self._times(kernel, 1)
            if min(times) <= give_up_us:
                times = self._times(kernel, SAMPLES)
            reason = self._differs(variant) or self._input_changed()
            if reason is not None:
                self._fill_inputs()
                return trial("wrong_result", reason=f"after the timing loop: {reason}")
        except DeviceError as error:  # no memory: another time there may be
            return trial("infeasible", reason=str(error))
        except GenError as error:
            with suppress(GenError):  # where the device no longer answers
                self._fill_inputs()
            return trial("launch_failed", reason=str(error))
        self._kernels[variant.name] = kernel
        return trial("ok", times)

    def rounds(self, variants: Sequence[Variant], count: int) -> Rounds:
        """Times variants that were attempted before, in turns, forwards and backwards."""
        times: dict[str, list[float]] = {variant.name: [] for variant in variants}
        for turn in range(count):
            for variant in variants if turn % 2 == 0 else reversed(variants):
                times[variant.name] += self._times(self._kernels[variant.name], 1)
        self._fill_inputs()  # so that each answers for itself
        for variant in variants:
            reason = self._check(self._kernels[variant.name])
            if reason is not None:
                self._fill_inputs()
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
        for memory in (
            *(buffer.memory for buffer in (*self._inputs, *self._outputs)),
            *self._references,
            *(memory for pair in self._uploaded.values() for memory in pair),
        ):
            memory.free()

    def forget(self, variants: Sequence[Variant]) -> None:
        """Unloads variants that will not be timed again."""
        for variant in variants:
            self._kernels.pop(variant.name, None)

    def _buffer(self, operand: Operand, layout: Layout) -> _Buffer:
        span = 0
        if 0 not in layout.shape:
            reach = sum((n - 1) * stride for n, stride in zip(layout.shape, layout.strides, strict=True))
            span = layout.dtype.itemsize + reach
        size = -(-max(span, 1) // 16) * 16
        memory = self._device.allocate(2 * RED_ZONE + size)
        for zone in (memory.address, memory.address + RED_ZONE + size):
            self._device.upload(zone, _ZONE)
        return _Buffer(operand, layout, memory, span, size)

    def _prove_base(self, base: Variant, compiled: Compiled) -> None:
        """Compares base with NumPy on the host, and keeps its result."""
        kernel = CudaKernel(base, compiled, self._device, self._device.limits)
        problem = self._problem
        inputs = {
            b.operand.name: b.view(self._device.download(b.address, b.size)) for b in self._inputs
        }  # fmt: skip
        self._expected = {
            name: sharpened(one, random_signs=True)
            for name, one in problem.family.oracle(problem.spec, inputs, problem.extents).items()
        }
        roundings = base.algorithm.roundings(base.spec, base.config, problem.extents, self._device.limits)
        for poison in POISONS:
            self._run(kernel, poison)
            for buffer, reference in zip(self._outputs, self._references, strict=True):
                got = buffer.view(self._device.download(buffer.address, buffer.size))
                name = buffer.operand.name
                wrong = disagreement(self._expected[name], got, roundings, buffer.operand.dtype)
                if wrong is not None:
                    raise RunError(f"{base.name} on {problem}", f"is wrong: {name}{wrong}")
                self._service.copy(buffer.address, reference.address, buffer.size)

    def _check(self, kernel: CudaKernel) -> str | None:
        """Runs a kernel on two poisons; what is wrong with its results, or with the inputs after it."""
        for poison in POISONS:
            self._run(kernel, poison)
            reason = self._differs(kernel.variant)
            if reason is not None:
                return reason
        return self._input_changed()

    def _run(self, kernel: CudaKernel, poison: int) -> None:
        self._poison(poison)
        extents = self._problem.extents
        kernel.queue(kernel.steps(extents), self._addresses(kernel))
        self._device.synchronize()

    def _poison(self, word: int) -> None:
        self._filled_with = word
        for buffer in self._outputs:
            self._service.fill(buffer.address, buffer.size, word)

    def _written_beside(self) -> str | None:
        """Which output's surroundings were written: its red zones, or what fills up its last vector."""
        for buffer in self._outputs:
            filled_up = buffer.size - buffer.span  # bytes after the last element, which still hold the poison
            tail = np.full(4, self._filled_with, np.uint32).view(np.uint8)[16 - filled_up :]
            before = self._device.download(buffer.memory.address, RED_ZONE)
            behind = self._device.download(buffer.address + buffer.span, filled_up + RED_ZONE)
            if not (np.array_equal(before, _ZONE) and np.array_equal(behind, np.concatenate((tail, _ZONE)))):
                for zone in (buffer.memory.address, buffer.address + buffer.size):
                    self._device.upload(zone, _ZONE)  # whole again for the next
                return f"bytes next to {buffer.operand.name} are written"
        return None

    def _differs(self, variant: Variant) -> str | None:
        """How the outputs differ from base's, or from NumPy's by more than their bound; or what else was written."""
        beside = self._written_beside()
        if beside is not None:
            return beside
        for buffer, reference in zip(self._outputs, self._references, strict=True):
            got = buffer.address
            count, first = self._service.differing_words(got, reference.address, buffer.span)
            if count and buffer.has_gaps:  # gaps hold the poison of this run, or of base's
                count, first = self._host_difference(buffer, reference)
            if count == 0:
                continue
            expected = self._expected[buffer.operand.name]
            if expected.magnitude is not None:
                count, first = self._beyond(variant, buffer, expected)
            if count:
                place = f", the first at word {first}" if first is not None else ""
                return f"{buffer.operand.name}: {count} elements are wrong{place}"
        return None

    def _host_difference(self, buffer: _Buffer, reference: Memory) -> tuple[int, int | None]:
        got, kept = (
            buffer.view(self._device.download(address, buffer.size)).tobytes()
            for address in (buffer.address, reference.address)
        )
        wrong = np.frombuffer(got, np.uint8) != np.frombuffer(kept, np.uint8)
        return int(wrong.sum()), int(wrong.argmax()) // 4 if wrong.any() else None

    def _beyond(self, variant: Variant, buffer: _Buffer, expected: Expected) -> tuple[int, int | None]:
        assert expected.magnitude is not None
        name = buffer.operand.name
        if name not in self._uploaded:
            pair = []
            for content in (expected.value, expected.magnitude):
                wide = np.ascontiguousarray(content, dtype=np.float64).reshape(-1)
                memory = self._device.allocate(wide.nbytes)
                self._device.upload(memory.address, wide)
                pair.append(memory)
            self._uploaded[name] = (pair[0], pair[1])
        value, magnitude = self._uploaded[name]
        limits, problem = self._device.limits, self._problem
        roundings = variant.algorithm.roundings(variant.spec, variant.config, problem.extents, limits)
        relative, absolute = allowance(expected, roundings)
        elements = int(np.asarray(expected.value).size)
        return self._service.beyond_bounds(
            buffer.address, value.address, magnitude.address, relative, absolute, elements
        )

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
        arrays = {buffer.operand.name: buffer.address for buffer in (*self._inputs, *self._outputs)}
        return kernel.scratch(self._problem.extents) | arrays

    def _fill_inputs(self) -> None:
        """Writes the inputs, always the same: a wrong kernel may have changed them under those that come next."""
        for seed, buffer in enumerate(self._inputs):
            floats = buffer.operand.dtype.kind == "float"
            self._service.random(buffer.address, buffer.size, seed + 1, floats=floats)

    def _input_checksums(self) -> list[int]:
        return [self._service.checksum(buffer.address, buffer.size) for buffer in self._inputs]

    def _input_changed(self) -> str | None:
        return None if self._input_checksums() == self._checksums else "an input was written"
