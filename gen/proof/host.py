"""Runs variants on the CPU: the emitted text itself, every access checked.

Three faults it cannot tell from right code by the access alone:

* An index that a conversion narrows to 32 bits, and that still names an element of its array. g++ checks no conversion
  of integers in a run; what `-Wconversion` names when it compiles are implicit ones only, of which two dozen lines of
  right kernels have some, since they narrow what is small by construction. What comes of it shows in problems of more
  than 2^32 elements: what was to be read differs from what lies 2^32 elements before it, and what was to be written
  keeps its poison. A value that is read there and dropped does not show.
* An index that leaves its row through a pointer, or its shared array by more than the gap of `apart.py`, and there
  names an element of another. Through the array itself, whose extents g++ knows, any index outside a row is found.
* A plain write after atomics of several threads. It must come after the last of them; that it comes after all of them
  is for the kernel's counting to say, which a ticket does, and no fence.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from gen.errors import RunError
from gen.families.base import Array, Extents, Limits, Operand, Variant
from gen.families.plans import Step, steps
from gen.proof import native
from gen.proof.build import Builder, Source
from gen.proof.code import Code, Kernel, Taken, Variable, together
from gen.proof.faults import HostFault, Line, Place, explain, explain_divergent_barrier, explain_undefined, locate
from gen.proof.launch_checks import POINTER, check_arguments, check_launch, packed, resident_blocks, spelled
from gen.proof.memory import Arena, ScratchMemory, Shadow, Share, Span, Storage, levels_of

__all__ = ["HostFault", "HostKernel", "HostRunner"]

STEPS_PER_THREAD = 1 << 20  # what a thread may do beside touching every byte of the problem 64 times
STEPS_PER_BYTE = 64
# Before atomics other blocks run, so that what hangs on the order of atomics shows: so often in a block, where a grid
# has so many blocks at most.
PREEMPTIONS, PREEMPTED_BLOCKS = 8, 64

# One launch at a time: the runtime and the arena are the process's.
_lock = threading.Lock()
_arena = Arena()


class HostRunner:
    """The CPU as a place where plans run.

    Attributes:
        limits: the device it stands for.
        seed: of the order in which blocks and threads run.
        registers: of one thread of each kernel, as the GPU's compiler says; without them they are not checked.
    """

    def __init__(self, limits: Limits, *, cache: Path, text: Callable[[Variant], str], seed: int = 0,
                 registers: Mapping[str, int] | None = None, paths: Mapping[str, Path] | None = None,
                 ) -> None:  # fmt: skip
        """Prepares to run, builds nothing yet.

        Args:
            limits: the device to stand for.
            cache: where built code is kept.
            text: gives the text of a variant's file.
            seed: see `HostRunner`.
            registers: likewise.
            paths: the files that texts were read from, by variants' names: messages name these.
        """
        self.limits, self.seed, self.registers = limits, seed, dict(registers or {})
        self._builder = Builder(cache)
        self._text = text
        self._paths = dict(paths or {})
        self._texts: dict[Variant, str] = {}

    @property
    def runtime(self) -> native.Runtime:
        """What runs built code."""
        return self._builder.runtime

    def on(self, limits: Limits) -> HostRunner:
        """The same code on another device, for instance one of few multiprocessors, where loops over the grid loop."""
        other = HostRunner.__new__(HostRunner)
        other.__dict__.update(self.__dict__)
        other.limits = limits
        return other

    def cannot_run(self, variant: Variant) -> str | None:
        """What the algorithm says of the CPU."""
        return variant.algorithm.not_on_host

    def load(self, variants: Sequence[Variant]) -> tuple[HostKernel, ...]:
        """Makes variants ready; builds what is not built, twenty to a translation unit, on all cores."""
        for variant in variants:
            reason = self.cannot_run(variant)
            if reason is not None:
                raise RunError(variant.name, f"cannot run on the CPU: {reason}")
        with _lock:
            codes = self._builder.load([self._source(variant) for variant in variants])
        return tuple(HostKernel(variant, code, self) for variant, code in zip(variants, codes, strict=True))

    def keep(self, variant: Variant) -> Path:
        """The file that holds the text of a variant, for whoever looks for a line of it; written if there is none."""
        return self._builder.keep(self._source(variant))

    def _source(self, variant: Variant) -> Source:
        entries = tuple(dict.fromkeys(variant.name + launch.entry for launch in variant.plan.launches))
        major, minor = self.limits.compute_capability
        if variant not in self._texts:
            self._texts[variant] = self._text(variant)
        return Source(
            variant.name, self._texts[variant], entries, 100 * major + 10 * minor, self._paths.get(variant.name)
        )


class HostKernel:
    """A variant ready to run, with scratch of its own that stays from run to run.

    Attributes:
        undefined: where a thread got an undefined value in the last run, in words; empty if none did. That breaks no
            rule unless the result hangs on the value.
    """

    def __init__(self, variant: Variant, code: Code, runner: HostRunner) -> None:
        self.variant = variant
        self._plan, self._code, self._runner = variant.plan, code, runner
        self._operands = {operand.name: operand for operand in variant.spec.operands}
        self._scratch = {scratch.name: ScratchMemory(zeroed=scratch.zeroed) for scratch in self._plan.scratch}
        self._shadows = {name: Shadow() for name in (*self._operands, *self._scratch)}
        self._runs = 0
        self._same_lines: set[tuple[int, ...]] = set()
        self.undefined = ""

    def run(self, extents: Extents, buffers: Mapping[str, Any]) -> None:
        """Runs the plan once on arrays by operand name; raises RunError, HostFault where the kernel is to blame.

        An array may have any strides; a number stands for an operand of role "number". Nothing but the bytes of the
        arrays, from the first to the last, is within the kernel's reach, and inputs are read-only.
        """
        with _lock:
            self._run(extents, buffers)

    def _run(self, extents: Extents, buffers: Mapping[str, Any]) -> None:
        self.undefined = ""
        sizes = {**extents, **self._runner.limits.sizes()}
        arrays, numbers = self._sort(buffers)
        spans = {name: Span.of(array) for name, array in arrays.items()}
        addresses = dict(zip(spans, _arena.place(list(spans.values())), strict=True))
        storage = self._scratch_storage(sizes)
        for name, span in spans.items():
            ctypes.memmove(addresses[name], span.low, span.bytes)
            storage[name] = self._operand_storage(self._operands[name], arrays[name], span, addresses[name])
        self._fill_constants()
        self._runs += 1
        try:
            self._run_plan(sizes, storage, numbers)
        finally:
            for name, span in spans.items():
                if self._operands[name].role != "in":
                    ctypes.memmove(span.low, addresses[name], span.bytes)

    def run_share(
        self, step: Step, storage: Mapping[str, Storage], numbers: Mapping[str, Any], share: Share
    ) -> tuple[int, ...]:
        """Runs chosen blocks of one launch on memory that the caller has made ready; raises as `run` does.

        Returns, for each of them, how many bytes it touched of the storage whose touches are marked.
        """
        with _lock:
            self.undefined = ""
            self._fill_constants()
            table, places = self._table(storage)
            self._runs += 1
            return self._launch(step, storage, numbers, table, places, 1, share)

    @property
    def constants(self) -> tuple[Variable, ...]:
        """Its `__constant__` variables, by address."""
        return self._code.constants

    def shared(self, entry: str) -> tuple[Variable, ...]:
        """The static shared arrays of one of its kernels, by offset."""
        return self._code.kernels[self.variant.name + entry].shared

    def static_bytes(self, entry: str) -> int:
        """How far they reach, with what lies between them: where dynamic shared memory begins."""
        return len(self._code.kernels[self.variant.name + entry].objects)

    @property
    def tables(self) -> tuple[Variable, ...]:
        """What the compiler has put aside for reading, by address: to a GPU these are numbers in the code."""
        return self._code.read_only

    def lines(self, addresses: Sequence[int]) -> dict[int, Line]:
        """The line of the variant's text that each place in its machine code was made of."""
        return {address: locate(self._code, address) for address in addresses}

    def _run_plan(self, sizes: Mapping[str, int], storage: dict[str, Storage], numbers: Mapping[str, Any]) -> None:
        table, places = self._table(storage)
        bytes_per_thread = STEPS_PER_BYTE * sum(s.high - s.low for s in storage.values())
        everything = Share((), STEPS_PER_THREAD + bytes_per_thread, native.ANY_STEPS)
        for count, step in enumerate(steps(self._plan, sizes), start=1):
            self._launch(step, storage, numbers, table, places, count, everything)

    def _table(self, storage: Mapping[str, Storage]) -> tuple[ctypes.Array[native.Buffer], list[Place]]:
        """All that a launch may touch, as the runtime takes it, and as messages name it."""
        order = list(storage.values())
        fixed = [(constant, Place(constant.name, constant.bytes)) for constant in self._code.constants]
        fixed += [(table, Place(table.name, table.bytes)) for table in self._code.read_only]
        table = (native.Buffer * (len(order) + len(fixed)))(
            *(
                native.Buffer(
                    low=s.low,
                    high=s.high,
                    written=s.written,
                    touched=s.touched,
                    touched_pages=s.touched_pages,
                    writable=s.writable,
                    granule=s.granule,
                    level_count=len(s.levels),
                    levels=s.level_table,
                )
                for s in order
            ),
            *(native.Buffer(low=variable.start, high=variable.start + variable.bytes) for variable, _ in fixed),
        )
        return table, [s.place for s in order] + [place for _, place in fixed]

    def _launch(self, step: Step, named: Mapping[str, Storage], numbers: Mapping[str, Any],
                table: ctypes.Array[native.Buffer], places: Sequence[Place],
                count: int, share: Share) -> tuple[int, ...]:  # fmt: skip
        kernel = self._code.kernels[self.variant.name + step.entry]
        check_launch(kernel, step, self._runner.limits, self._runner.registers.get(kernel.name))
        dynamic_bytes = step.shared_bytes
        values = self._arguments(kernel, step, named, numbers)
        for buffer, way in zip(table, _ways(kernel, step, named), strict=False):
            buffer.taken = way
        blocks = (ctypes.c_uint64 * len(share.blocks))(*share.blocks) if share.blocks else None
        touched = (ctypes.c_uint64 * len(share.blocks))() if share.blocks else None
        preemptions = self._preemptions(step, share)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        request = native.Launch(
            enter=kernel.enter,
            arguments=ctypes.addressof(pointers),
            grid=step.grid,
            block=step.block,
            # Two orders in turn: a plan that runs twice sees both, and a case that is replayed sees the same two. Of
            # preempted blocks each case sees another.
            seed=(self._runner.seed << 32) + 2 * count + self._runs % 2
            ^ (crc32(repr(step).encode()) if preemptions else 0),
            steps_per_thread=share.steps_per_thread + STEPS_PER_BYTE * (dynamic_bytes + kernel.shared_bytes),
            resident_blocks=resident_blocks(kernel, step, self._runner.limits),
            shared=self._code.shared_address,
            objects=kernel.objects,
            shared_bytes=len(kernel.objects),
            dynamic_bytes=dynamic_bytes,
            buffers=table,
            buffer_count=len(table),
            code=self._code.machine_code.start,
            code_bytes=self._code.machine_code.bytes,
            blocks=blocks,
            block_count=len(share.blocks),
            touched=touched,
            steps=share.steps,
            trace=ctypes.pointer(share.trace) if share.trace else None,
            cluster=step.cluster,
            preemptions=preemptions,
        )
        fault = self._runner.runtime.run(request)
        if fault.kind:
            raise explain(fault, self._code, kernel, places, dynamic_bytes)
        self._check_divergent_barriers(fault, kernel)
        if fault.pc and not self.undefined:
            self.undefined = explain_undefined(fault, self._code)
        return tuple(touched or ())

    def _preemptions(self, step: Step, share: Share) -> int:
        """How often a block is preempted at most: in every second run of a small grid, of which all blocks run."""
        small = prod(step.grid) <= PREEMPTED_BLOCKS and not share.blocks and share.trace is None
        return PREEMPTIONS if small and self._runs % 2 == 0 else 0

    def _check_divergent_barriers(self, fault: native.Fault, kernel: Kernel) -> None:
        for barrier in self._runner.runtime.divergent_barriers(fault):
            ways = (*barrier.way, *barrier.other_way)
            if ways in self._same_lines:
                continue
            error = explain_divergent_barrier(barrier, self._code, kernel)
            if error is not None:
                raise error
            self._same_lines.add(ways)

    def _sort(self, buffers: Mapping[str, Any]) -> tuple[dict[str, Array], dict[str, Any]]:
        """Arrays and numbers of a call, each checked against its operand."""
        arrays: dict[str, Array] = {}
        numbers: dict[str, Any] = {}
        for name, operand in self._operands.items():
            if name not in buffers:
                raise RunError(f"{self.variant.name}: {name}", "must be given", ", ".join(buffers) or "nothing")
            value = buffers[name]
            if operand.role == "number":
                numbers[name] = value
            elif not isinstance(value, np.ndarray) or not operand.dtype.holds(value.dtype):
                got = getattr(value, "dtype", type(value).__name__)
                raise RunError(f"{self.variant.name}: {name}", f"must be an array of {operand.dtype.name}", got)
            else:
                arrays[name] = value
        return arrays, numbers

    def _operand_storage(self, operand: Operand, array: Array, span: Span, address: int) -> Storage:
        first = array.ctypes.data
        written = self._shadows[operand.name].cleared(span.bytes) if operand.role == "out" else None
        place = Place(operand.name, span.bytes, operand.dtype.size)
        pointer = address + first - span.low
        return Storage.of_elements(
            address, pointer, place, writable=operand.role != "in", written=written,
            levels=levels_of(array.shape, array.strides, array.itemsize),
        )  # fmt: skip

    def _scratch_storage(self, sizes: Mapping[str, int]) -> dict[str, Storage]:
        storage: dict[str, Storage] = {}
        for scratch in self._plan.scratch:
            size = scratch.bytes.at(sizes)
            memory = self._scratch[scratch.name]
            memory.ensure(size)
            # What an earlier run left behind is nothing to read, unless the plan promises that it is zero.
            written = None if scratch.zeroed else self._shadows[scratch.name].cleared(size)
            storage[scratch.name] = Storage.of_elements(
                memory.address, memory.address, Place(scratch.name, size), writable=True, written=written
            )
        return storage

    def _fill_constants(self) -> None:
        known = {variable.name: variable for variable in self._code.constants}
        for name, content in self._plan.constants:
            if name not in known or known[name].bytes != len(content):
                held = f"{known[name].bytes} bytes" if name in known else "no such variable"
                rule = f"must be a __constant__ variable of {len(content)} bytes, as its plan says"
                raise RunError(f"{self.variant.name}: {name}", rule, held)
            ctypes.memmove(known[name].start, content, len(content))

    def _arguments(
        self, kernel: Kernel, step: Step, named: Mapping[str, Storage], numbers: Mapping[str, Any]
    ) -> list[ctypes.Array[ctypes.c_char]]:
        """The arguments as bytes. Raises RunError where plan and kernel disagree on them."""
        contents = []
        types = []
        for argument in step.arguments:
            if isinstance(argument, str) and argument in named:
                contents.append(named[argument].pointer.to_bytes(8, "little"))
                types.append(POINTER)
                continue
            if isinstance(argument, str):
                dtype, value = self._operands[argument].dtype, numbers[argument]
            else:
                dtype, value = argument
            contents.append(packed(kernel, dtype, value))
            types.append(spelled(dtype))
        check_arguments(kernel, types)
        # 16 bytes each: as aligned as any parameter needs
        return [ctypes.create_string_buffer(value, 16) for value in contents]


def _ways(kernel: Kernel, step: Step, named: Mapping[str, Storage]) -> list[Taken]:
    """How a launch takes each buffer, in their order."""
    ways: dict[str, set[Taken]] = {name: set() for name in named}
    for argument, way in zip(step.arguments, kernel.taken, strict=True):
        if isinstance(argument, str) and argument in ways:
            ways[argument].add(way)
    return [together(ways[name]) for name in named]
