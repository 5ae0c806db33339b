"""Indices beyond 2^32: chosen blocks of the full grid, over memory that exists where it is touched.

So are elements that are few and lie far apart, by `Family.far_cases`: there all blocks run, all results are compared.

The first and the last blocks run, those about element 2^31 and 2^32, those one such step before others, and a few at
random. Every rule of the CPU run holds. What these blocks write is compared with NumPy, element by element, through
`Family.oracle_at`; and they must touch elements beyond 2^31 and 2^32 of every array that has as many.

Blocks that depend on others are treated as follows. Scratch memory holds zeros where a block that did not run would
have written: what adds up partial results then adds those of the chosen blocks, and the sum must be that of the
elements they have read, each once, the first and the last among them unless the results are shared. A zeroed scratch
counts blocks, or clusters, in its first word: those that do not run are counted beforehand, so that the last of the
chosen takes itself for the last of all. Where a block waits for others, those that do not run have handed it what adds
nothing: `Algorithm.flag_word_of_finished_block`. A private copy is made whole after some of the blocks that make it
have been seen to copy rightly. Blocks of a cluster run together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from gen.dtypes import DType
from gen.errors import RunError, ShapeError
from gen.families.base import Array, Expected, Extents, Family, Kernel, Layout, Limits, Operand, Plan, Spec, Variant
from gen.families.extents import byte_bounds
from gen.families.plans import Step, steps
from gen.proof.cases import Case, Content, begins, numbers_of
from gen.proof.error_bounds import disagreement, sharpened
from gen.proof.failures import AGAIN, REFUSED, UNTOUCHED, WRONG, Failure
from gen.proof.faults import Place
from gen.proof.host import HostKernel
from gen.proof.memory import Marks, Range, Share, Storage, distinct, levels_of, pattern
from gen.proof.native import TOUCHED_BY_READ, TOUCHED_BY_WRITE

EDGES = (2**31, 2**32)  # where a signed and an unsigned index of 32 bits end
MULTIPROCESSORS = 2**16 + 1  # also a grid that is as large as the device then has many blocks, each with little to do
FEWER = 2**14 + 1  # where all is aligned: strips of a stencil that cost more at the rim are not cut to nothing there
FEW_MULTIPROCESSORS = 4  # where the elements are few, and all blocks run
SHARING_MULTIPROCESSORS = 2**14 - 1  # where all blocks share few results: each block has a tile at least
MOST_OF_SHARING_THREAD = 2**13  # elements: of the threads of the grid, or of one block of each cluster
MOST_SHARED_BYTES = 1 << 24  # of partial results
FEW_ELEMENTS = 2**20  # of every array: they are looked at whole
WHOLE_VECTORS = 64  # elements: rows of a multiple are whole vectors of any element, whole words of any vector
WHOLE = 256  # blocks: a launch of as many runs whole
RANDOM_BLOCKS = 4
KEPT_INPUTS, KEPT_BYTES = 4, 1 << 40  # the second takes half the mappings that Linux gives a process
# What a thread may do: with its share of a large grid, each access to other pages; and where it adds up the partial
# results of a million blocks. And all threads of a launch together.
STEPS_PER_THREAD, STEPS_OF_LAST, STEPS = 1 << 16, 1 << 21, 1 << 28
STEPS_PER_WORD = 8  # that one block hands to another: questions, and what takes the answer
STEPS_OF_WAITING = 1 << 16  # questions while the chosen blocks that hand something over read their shares


def sampled_cases(family: Family[Any], spec: Spec, seed: int = 0) -> Iterator[Case]:
    """Large problems of a spec; none where the family does not know what parts of them must hold.

    Their outputs are as large, or have no axes.

    `seed` chooses what the arrays hold, and some of the blocks.
    """
    if type(family).oracle_at is Family.oracle_at:
        return
    for number, (candidate, offset) in enumerate(_large(spec)):
        try:
            layouts = family.layouts(spec, candidate)
            extents = family.extents(spec, layouts)
        except ShapeError:  # sizes that depend on each other
            continue
        results = [prod(layouts[operand.name].shape) for operand in spec.operands if operand.role in ("out", "inout")]
        scalar = all(layouts[operand.name].shape == () for operand in spec.operands if operand.role == "out")
        # Results between the two would each need many blocks, and one block could take very long.
        if candidate.items() <= extents.items() and (scalar or min(results) > EDGES[-1]):
            multiprocessors = MULTIPROCESSORS if offset else FEWER
            yield Case(
                extents, Content.INTEGERS, number + 1000 * seed, offset, multiprocessors=multiprocessors, sampled=True
            )


def far_cases(family: Family[Any], spec: Spec, seed: int = 0) -> Iterator[Case]:
    """Problems of few elements that lie far apart, or of few results, as the family has them.

    `seed` chooses what they hold.
    """
    for number, extents in enumerate(family.far_cases(spec)):
        few = all(prod(layout.shape) <= FEW_ELEMENTS for layout in family.layouts(spec, extents).values())
        multiprocessors = FEW_MULTIPROCESSORS if few else SHARING_MULTIPROCESSORS
        yield Case(extents, Content.INTEGERS, number + 1000 * seed, number % 2, multiprocessors, sampled=True)


def too_long(variant: Variant, limits: Limits, case: Case) -> str | None:
    """Why chosen blocks of it would take too long on a case of few results, which all blocks share."""
    if case.multiprocessors != SHARING_MULTIPROCESSORS:
        return None
    sizes = {**case.extents, **limits.sizes()}
    launches = [*steps(variant.plan, sizes)]
    threads = max(prod(step.grid) * prod(step.block) // prod(step.cluster) for step in launches)
    elements = max(prod(layout.shape) for layout in variant.family.layouts(variant.spec, case.extents).values())
    if elements > threads * MOST_OF_SHARING_THREAD:
        return "chosen blocks, or clusters, would read too much of results that all share"
    if sum(scratch.bytes.at(sizes) for scratch in variant.plan.scratch) > MOST_SHARED_BYTES:
        return "its last block would combine too many partial results"
    return None


def _large(spec: Spec) -> Iterator[tuple[Extents, int]]:
    """Sizes, and where arrays begin.

    The last two axes long, with pitches, once of no whole vectors, once of whole ones; then each longer than 2^32.
    """
    arrays = [operand for operand in spec.operands if operand.role != "number"]
    axes = list(dict.fromkeys(axis for operand in arrays for axis in operand.axes if isinstance(axis, str)))
    if not axes:
        return

    def pitched(sizes: Mapping[str, int], gap: int) -> Extents:
        pitches: dict[str, int] = {}
        for operand in arrays:
            if operand.pitch:
                last = operand.axes[-1]
                length = last if isinstance(last, int) else sizes[last]
                # Gaps no longer than rows: behind short ones they would be most of an array.
                pitches[operand.pitch] = length + min(gap, length) * (len(pitches) + 1)
        return {**sizes, **pitches}

    # How often an axis counts: twice, where matrices are square.
    often = {axis: max(operand.axes.count(axis) for operand in arrays) for axis in axes}
    if len(axes) == 1 and often[axes[0]] == 1:
        within = min(prod(axis for axis in operand.axes if isinstance(axis, int)) for operand in arrays)
        yield {axes[0]: EDGES[-1] // within + 2**16 + 5}, 1  # no multiple of a vector, wherever the first one begins
        if within > 1:
            yield {axes[0]: EDGES[-1] + 11}, 1
        return
    # Half of the elements lie beyond 2^32, so that chosen blocks reach some whatever their order.
    side = int((2 * EDGES[-1] / prod(3 ** often[axis] for axis in axes[:-2])) ** (1 / sum(often[a] for a in axes[-2:])))
    few = dict.fromkeys(axes[:-2], 3)
    yield pitched(few | dict.fromkeys(axes[-2:-1], side + 63) | {axes[-1]: side + 1}, 9), 1
    whole = (side // WHOLE_VECTORS + 1) * WHOLE_VECTORS
    yield pitched(few | dict.fromkeys(axes[-2:], whole), WHOLE_VECTORS), 0
    for place, axis in enumerate(axes):
        if often[axis] > 1:
            continue
        neighbour = axes[place - 1]
        yield pitched({**dict.fromkeys(axes, 1), neighbour: 2, axis: EDGES[-1] + 11}, 0), 1


def can_sample(kernel: Kernel) -> bool:
    """Whether chosen blocks of it can be run."""
    return isinstance(kernel, HostKernel)


def check_sampled(kernel: Kernel, limits: Limits, case: Case) -> Failure | None:
    """Runs chosen blocks of a kernel on a large case, once; the first thing that is wrong, or None."""
    assert isinstance(kernel, HostKernel)
    variant = kernel.variant
    try:
        run = _Sample(kernel, limits, case)
        run.launch_all()
    except RunError as error:
        return Failure(case, str(error), getattr(error, "kind", REFUSED))
    finding = run.finding()
    return None if finding is None else Failure(case, f"{variant.name}: {finding.reason}", finding.kind)


@dataclass(frozen=True)
class _Finding:
    reason: str
    kind: str


@dataclass(frozen=True)
class _Buffer:
    """An array operand, or a scratch buffer, of a sample."""

    range: Range
    marks: Marks | None
    storage: Storage
    layout: Layout
    offset: int = 0

    def view(self) -> Array:
        """Its elements."""
        return self.range.view(self.layout, self.offset)

    def flat(self) -> Array:
        """All that lies in its bytes, gaps of a pitch too, as elements one after another."""
        size = self.layout.dtype.itemsize
        return self.range.view(Layout((self.storage.place.bytes // size,), (size,), self.layout.dtype), self.offset)

    def touched(self, mark: int) -> Array:
        """The elements that were read or written, counted from its first byte."""
        assert self.marks is not None
        return self.marks.elements(mark, self.layout.dtype.itemsize)


class _Sample:
    """One problem, and the chosen blocks of every launch on it."""

    def __init__(self, kernel: HostKernel, limits: Limits, case: Case) -> None:
        variant = kernel.variant
        self._kernel, self._case, self._limits = kernel, case, limits
        self._family, self._spec, self._plan = variant.family, variant.spec, variant.plan
        self._sizes = {**case.extents, **limits.sizes()}
        self._arrays = [operand for operand in self._spec.operands if operand.role != "number"]
        self._random = np.random.default_rng(case.seed)
        self._private = dict(copies(self._plan, self._arrays))
        self._copies: dict[str, str] = {}  # those that are whole by now, and whose they are
        layouts = self._family.layouts(self._spec, case.extents)
        self._buffers = {o.name: self._operand(o, layouts[o.name], k) for k, o in enumerate(self._arrays)}
        self._few = all(prod(layout.shape) <= FEW_ELEMENTS for layout in layouts.values())
        self._numbers = numbers_of(self._spec, case.content, case.seed)
        self._finding: _Finding | None = None
        self._last_is_idle = False
        for scratch in self._plan.scratch:
            self._buffers[scratch.name] = self._scratch(scratch.name, scratch.bytes.at(self._sizes))

    def launch_all(self) -> None:
        """Runs every launch of the plan, until something is wrong."""
        for step in steps(self._plan, self._sizes):
            count = prod(step.grid)
            together = prod(step.cluster)
            blocks = self._chosen(count, together) if count > WHOLE and not self._few else tuple(range(count))
            storage = {name: self._storage(buffer, step) for name, buffer in self._buffers.items()}
            counters = self._counters(step) if len(blocks) < count else ()
            for counter in counters:
                counter.value = (count - len(blocks)) // together
            handed = self._handed(step, blocks, count) if len(blocks) < count else ()
            most = STEPS_PER_THREAD if len(blocks) < count else STEPS_OF_LAST
            if counters or handed:  # the last block may add up what all have left
                words = sum(array.size for array in handed)
                most += (2 * count + STEPS_PER_WORD * words) // prod(step.block) + (STEPS_OF_WAITING if handed else 0)
            touched = self._kernel.run_share(step, storage, self._numbers, Share(blocks, most, STEPS))
            idle = [block for block, found in zip(blocks, touched, strict=False) if not found]
            if len(blocks) < count and idle and any(touched):
                # The last block, or some of the last cluster's, may have nothing to do, if nothing is left: where an
                # array begins decides how many vectors it has.
                last = [*range(idle[0], count)]
                self._last_is_idle = idle == last and len(last) <= together
                if not self._last_is_idle:
                    self._finding = _idle(f"block {idle[0]}")
            if any(counter.value for counter in counters):
                self._finding = _Finding("what counts its blocks is not 0 after the last", AGAIN)
            if any(array.any() for array in handed):
                self._finding = _Finding("what its blocks hand to the last is not all taken", AGAIN)
            for argument in step.arguments:
                if step.setup and isinstance(argument, str) and argument in self._private:
                    self._complete_copy(self._private[argument], argument)
            if self._finding is not None:
                return

    def finding(self) -> _Finding | None:
        """What is wrong with what was touched and written."""
        if self._finding is not None:
            return self._finding
        if self._few:
            return self._wrong_anywhere()
        for operand in self._arrays:
            touched = self._touched(operand)
            found = self._reach(operand, touched)
            if found is None and operand.role != "in":
                buffer = self._buffers[operand.name]
                written = touched if operand.role == "out" else buffer.touched(TOUCHED_BY_WRITE)
                found = (
                    self._wrong_total(operand, written) if self._is_shared(buffer) else self._wrong(operand, written)
                )
            if found is not None:
                return found
        return None

    def _wrong_anywhere(self) -> _Finding | None:
        """Whether results of few elements, all of which were computed, are what NumPy says."""
        inputs = {operand.name: self._pristine(operand) for operand in self._arrays if operand.role != "out"}
        inputs |= self._numbers
        expected = self._family.oracle(self._spec, inputs, self._case.extents)
        for operand in self._arrays:
            if operand.role != "in":
                found = self._compare(operand, expected[operand.name], self._buffers[operand.name].view(), [])
                if found is not None:
                    return found
        return None

    def _operand(self, operand: Operand, layout: Layout, place: int) -> _Buffer:
        size = layout.dtype.itemsize
        # A private copy begins at a multiple of 256 bytes, and is made of the same pages.
        offset = 0 if self._private else begins(self._case.offset, place) * size
        _, span = byte_bounds(layout.shape, layout.strides, size)
        if operand.role == "in":
            # Places and counts are 1: none is left out because a number of elements is below 0.
            are_places = self._family.holds_places(self._spec, operand)
            content = Content.NANS if are_places else self._case.content
            memory = read_only(operand.dtype, content, self._seed(operand), offset + span)
        else:
            memory = Range(offset + span)
            if operand.role == "out":
                memory.zeros()
            else:
                memory.pattern(pattern(operand.dtype, self._case.content, self._seed(operand)), writable=True)
        return _buffer(memory, operand.name, span, layout, offset, writable=operand.role != "in")

    def _scratch(self, name: str, size: int) -> _Buffer:
        memory = Range(size)
        memory.zeros()
        layout = Layout((size,), (1,), np.dtype(np.uint8))
        return _buffer(memory, name, size, layout, 0, writable=True, marked=name in self._private)

    def _seed(self, operand: Operand) -> int:
        return self._case.seed * 101 + self._arrays.index(operand)

    def _storage(self, buffer: _Buffer, step: Step) -> Storage:
        """Its storage; what a setup launch does to inputs is no part of what is judged."""
        judged = not step.setup or buffer.storage.writable
        return buffer.storage if judged else replace(buffer.storage, touched=None)

    def _is_shared(self, output: _Buffer) -> bool:
        """Whether its elements are few, and each has some of every block."""
        return prod(output.layout.shape) <= FEW_ELEMENTS

    def _chosen(self, count: int, together: int) -> tuple[int, ...]:
        """The numbers of the blocks that run, among so many, of which so many neighbours form a cluster."""
        numbers = {0, 1, count - 2, count - 1, *(int(n) for n in self._random.integers(0, count, RANDOM_BLOCKS))}
        for operand in self._arrays:
            elements = prod(self._buffers[operand.name].layout.shape)
            for edge in EDGES:
                if elements > edge:
                    there = edge * count // elements
                    numbers |= {there - 1, there, there + 1, *(number - there for number in numbers)}
        clusters = sorted({number // together for number in numbers if 0 <= number < count})
        return tuple(cluster * together + rank for cluster in clusters for rank in range(together))

    def _counters(self, step: Step) -> tuple[ctypes.c_uint32, ...]:
        """The words that count the blocks of a launch."""
        names = [s.name for s in self._plan.scratch if s.zeroed and not s.awaited and s.bytes.at(self._sizes) > 0]
        return tuple(
            ctypes.c_uint32.from_address(self._buffers[name].storage.low) for name in names if name in step.arguments
        )

    def _handed(self, step: Step, blocks: Sequence[int], count: int) -> tuple[Array, ...]:
        """The words that a launch's blocks hand to one that waits for them, as if those that do not run had ended."""
        flag_word = self._kernel.variant.algorithm.flag_word_of_finished_block
        found = []
        for scratch in self._plan.scratch:
            words, rest = divmod(scratch.bytes.at(self._sizes), 8 * count)
            if flag_word and scratch.awaited and scratch.name in step.arguments and not rest:
                layout = Layout((count, words), (8 * words, 8), np.dtype(np.uint64))
                array = self._buffers[scratch.name].range.view(layout, 0)
                array[:] = flag_word
                array[list(blocks)] = 0
                found.append(array)
        return tuple(found)

    def _complete_copy(self, source: str, copy: str) -> None:
        """Makes a private copy whole, if what was copied is right."""
        original, buffer = self._buffers[source], self._buffers[copy]
        size = buffer.storage.place.bytes
        made = replace(buffer, layout=original.layout)
        written, flat, copied = made.touched(TOUCHED_BY_WRITE), original.flat(), made.flat()
        if flat[written].tobytes() != copied[written].tobytes():
            self._finding = _Finding(f"{copy} is no copy of {source}", WRONG)
            return
        if not written.size or written[-1] < min(EDGES[-1], flat.size - 1):
            self._finding = _Finding(f"no block that was run copies elements of {source} beyond 2^32", UNTOUCHED)
            return
        operand = next(operand for operand in self._arrays if operand.name == source)
        memory = Range(size)
        memory.pattern(pattern(operand.dtype, self._case.content, self._seed(operand)), writable=True)
        self._buffers[copy] = _buffer(memory, copy, size, original.layout, 0, writable=True)
        self._copies[copy] = source

    def _touched(self, operand: Operand) -> Array:
        """The elements of an operand that were read, of an output those that were written."""
        if operand.role == "out":
            return self._buffers[operand.name].touched(TOUCHED_BY_WRITE)
        names = [operand.name, *(copy for copy, source in self._copies.items() if source == operand.name)]
        return distinct(np.sort(np.concatenate([self._buffers[name].touched(TOUCHED_BY_READ) for name in names])))

    def _reach(self, operand: Operand, touched: Array) -> _Finding | None:
        """Whether the chosen blocks, which touched these elements, come as far as the array goes."""
        elements = prod(self._buffers[operand.name].layout.shape)
        if operand.role != "out" and not touched.size:
            return None  # read nowhere: what was written says whether it should have been
        furthest = int(touched[-1]) if touched.size else -1
        if self._last_is_idle and furthest < elements - 1:
            return _idle("the last block")
        verb = "writes" if operand.role == "out" else "reads"
        for edge in EDGES:
            if elements > edge and furthest < edge:
                reason = f"none of the blocks that were run {verb} an element of {operand.name} beyond {edge}"
                return _Finding(f"{reason}: the last is {furthest} of {elements}", UNTOUCHED)
        return None

    def _wrong(self, operand: Operand, written: Array) -> _Finding | None:
        """Whether the elements that were written are what NumPy says."""
        buffer = self._buffers[operand.name]
        left = written * buffer.layout.dtype.itemsize
        index = []
        for stride in buffer.layout.strides:
            place, left = np.divmod(left, stride)
            index.append(place)
        inputs = {**{o.name: self._pristine(o) for o in self._arrays if o.role != "out"}, **self._numbers}
        expected = self._family.oracle_at(self._spec, inputs, self._case.extents, operand.name, tuple(index))
        return self._compare(operand, expected, buffer.view()[tuple(index)], index)

    def _wrong_total(self, operand: Operand, written: Array) -> _Finding | None:
        """Whether results that all blocks share are those of the elements that were read."""
        if not written.size:
            return None  # it takes all blocks
        inputs = {}
        for one in self._arrays:
            if one.role == "in":
                layout, read = self._buffers[one.name].layout, self._touched(one)
                last, results = prod(layout.shape) - 1, prod(self._buffers[operand.name].layout.shape)
                with_ends = self._case.multiprocessors != SHARING_MULTIPROCESSORS
                if with_ends and (not read.size or read[0] != 0 or read[-1] != last):
                    missing = 0 if not read.size or read[0] != 0 else last
                    reason = f"no block that was run, the first and the last among them, reads {one.name}[{missing}]"
                    return _Finding(reason, UNTOUCHED)
                # Each result with its own elements, and zeros where it has fewer: of several, neighbours take turns.
                reduced = int(np.argmax(layout.shape))
                length = int(np.bincount(read % results).max())
                values = np.zeros((results, length), layout.dtype)
                for result in range(results):
                    own = self._buffers[one.name].flat()[read[read % results == result]]
                    values[result, : own.size] = own
                shape = [*layout.shape[:reduced], *layout.shape[reduced + 1 :], length]
                inputs[one.name] = np.moveaxis(values.reshape(shape), -1, reduced)
        expected = self._family.oracle_at(self._spec, inputs, self._case.extents, operand.name, ())
        return self._compare(operand, expected, self._buffers[operand.name].view(), [])

    def _compare(self, operand: Operand, expected: Expected | None, got: Array, index: list[Array]) -> _Finding | None:
        if expected is None:
            return None
        made = self._kernel.variant
        roundings = made.algorithm.roundings(made.spec, made.config, self._case.extents, self._limits)
        exact = sharpened(expected, random_signs=self._case.content is Content.INTEGERS)
        wrong = disagreement(exact, got, roundings, operand.dtype)
        if wrong is None:
            return None
        if index:
            wrong = replace(wrong, index=tuple(int(places[wrong.index[0]]) for places in index))
        return _Finding(f"{operand.name}{wrong}", WRONG)

    def _pristine(self, operand: Operand) -> Array:
        """An input as it was before the launches."""
        buffer = self._buffers[operand.name]
        if operand.role == "in":
            return buffer.view()
        content, seed = self._case.content, self._seed(operand)
        memory = read_only(operand.dtype, content, seed, buffer.offset + buffer.storage.place.bytes)
        return memory.view(buffer.layout, buffer.offset)


def _idle(which: str) -> _Finding:
    return _Finding(f"{which} touches no element of any array, and others do", UNTOUCHED)


def copies(plan: Plan, arrays: Sequence[Operand]) -> Iterator[tuple[str, str]]:
    """Each private copy, and the input it is of: a setup launch takes the input, then a scratch buffer."""
    inputs = {operand.name for operand in arrays if operand.role == "in"}
    for launch in plan.launches:
        names = [argument for argument in launch.arguments[:2] if isinstance(argument, str)]
        if launch.setup and len(names) == 2 and names[0] in inputs:
            yield names[1], names[0]


def _buffer(
    memory: Range, name: str, size: int, layout: Layout, offset: int, *, writable: bool, marked: bool = True
) -> _Buffer:
    marks = Marks(size) if marked else None
    low = memory.address + offset
    place = Place(name, size, layout.dtype.itemsize)
    # Notes on single bytes: finding out that they are needed would go through all of them.
    storage = Storage(
        low, low + size, low, writable, None, place, marks.address if marks else None, marks.pages if marks else None,
        granule=1, levels=levels_of(layout.shape, layout.strides, layout.dtype.itemsize),
    )  # fmt: skip
    return _Buffer(memory, marks, storage, layout, offset)


_kept: dict[tuple[DType, Content, int, int], Range] = {}


def read_only(dtype: DType, content: Content, seed: int, size: int) -> Range:
    """An input of so many bytes; the next variant takes the same."""
    key = dtype, content, seed, size
    if key not in _kept:
        while _kept and (len(_kept) == KEPT_INPUTS or sum(one.size for one in _kept.values()) + size > KEPT_BYTES):
            del _kept[next(iter(_kept))]
        memory = Range(size)
        memory.pattern(pattern(dtype, content, seed), writable=False)
        _kept[key] = memory
    return _kept[key]
