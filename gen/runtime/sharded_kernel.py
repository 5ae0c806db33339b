"""A stencil or a system on several devices: each rank computes its cells, and sends others what they need of them.

A call of many time steps goes in phases of `steps_per_exchange` steps. In each of them a rank computes its rims, which
need cells of others, on an urgent stream, and beside them what depends on its own cells alone. What others need for the
next phase lies in the rims: it is sent while the inside is still being computed. The kernels are those of one device,
called for parts of the domain (`gen.families.stencil.split`), and a cell has the same bits as there.

Of each rank, in each phase:

    rim stream    copy own cells to the rims | compute the rims | send to the rims of others
    main stream   compute the inside | copy the computed rims to the array
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from typing import Any

import numpy as np
from typing_extensions import override

from gen.errors import ArgumentError, ShapeError
from gen.families.base import Array, Family, Spec
from gen.families.stencil.spec import STEPS, StencilSpec
from gen.families.stencil.split import (
    Box,
    Cuts,
    Part,
    Piece,
    Share,
    common_cells,
    extents_of_box,
    most_steps,
    shares_of,
)
from gen.families.system.spec import SystemSpec
from gen.gpu.device import Graph, Mark, Memory, Peer, Rows
from gen.runtime.arrays import Given, Shape, read
from gen.runtime.graphs import CallGraphs
from gen.runtime.kernel import Kernel
from gen.runtime.processes import Processes
from gen.runtime.sharded import Held, Rank, Scattering, ShardedArray, as_many, is_count, items_of
from gen.runtime.sharded_points import Points, ShardedTraces
from gen.runtime.signature import Signature

STEPS_OF_PHASES = (32, 16, 8, 4, 2)  # tried for `steps_per_exchange`, the most first
RIM_PART = 32  # a rank computes at most this part of its own cells once more at its rims: by bench/shards-h200.json
# What a phase takes beside its steps, and the operations of a device on elements of one byte: those that choose well of
# what bench/devices-steps-h100.json has measured.
PHASE_US, OPERATIONS_PER_US = 20.0, 2e7
MOST_DECOMPOSITIONS, MOST_CALLS = 8, 1024  # that are remembered
GRAPH_FROM = 4  # phases of a call from which on it is replayed as a graph, if it is repeated
GRAPH_BYTES = 1 << 28  # of a rank's cells, at most: more take longer than the host, and a graph has own scratch
MOST_GRAPHS, MOST_SEEN = 4, 256  # that a kernel captures, and calls that it remembers to have been made

Arrays = tuple[ShardedArray, ...]


@dataclass(frozen=True)
class Rim:
    """A part of a rank, and the memory where it is computed.

    Attributes:
        part: which cells.
        before: these cells of every input before a phase.
        after: those of every output after it.
        memory: what holds them.
    """

    part: Part
    before: tuple[Held, ...]
    after: tuple[Held, ...]
    memory: tuple[Memory, ...]


@dataclass(frozen=True)
class Sending:
    """What a rank sends to another one.

    Attributes:
        to: the other rank.
        field: of which input.
        cells: which they are, in the domain.
        computed: where they lie once the sender has computed its rims; None: they stay as they are in all phases.
        target: where they go.
    """

    to: int
    field: int
    cells: Box
    computed: Rows | None
    target: Rows


@dataclass
class Progress:
    """How far a rank has come, as far as others ask.

    Attributes:
        read: its rims are computed: others may write there again.
        written: its own cells are all there.
        sent: what others wait for has come to them.
    """

    read: Mark | None = None
    written: Mark | None = None
    sent: Mark | None = None


@dataclass(frozen=True)
class Decomposition:
    """A domain as the ranks share it.

    Attributes:
        steps: of a phase.
        shares: what each rank computes.
        rims: of each rank.
        sendings: of each rank.
        progress: of each rank.
    """

    steps: int
    shares: tuple[Share, ...]
    rims: tuple[tuple[Rim, ...], ...]
    sendings: tuple[tuple[Sending, ...], ...]
    progress: tuple[Progress, ...]

    def forget(self) -> None:
        """Forgets the marks of what was queued: of a graph, or of what comes before all that is queued later."""
        for progress in self.progress:
            progress.read = progress.written = progress.sent = None


@dataclass(frozen=True)
class _Call:
    """A phase: `first` is its first step; `fresh` are how many of the sources have changed since the last one."""

    sources: Arrays
    targets: Arrays
    first: int
    steps: int
    values: Mapping[str, bytes]
    fresh: int
    points: Points | None


class ShardedKernel(Scattering):
    """A stencil or a system on several devices. Threads may share one.

    `kernel.scatter(x)` brings an array to the devices, `kernel(a, steps=100)` computes, `b.gather()` brings it back.
    A call does not wait for the devices. It comes after what the legacy default stream of each device was given before,
    as torch and CuPy give it theirs, and before what that is given later.

    Attributes:
        dtype: NumPy's, of the cells.
        inputs, outputs: the names of the arrays that a call takes, and of those that it gives.
        grid: ranks along each axis.
        ranks: who computes; those along the last axis follow each other.
        steps_per_exchange: time steps of a phase; None: chosen by the sizes of a call.
        replays: whether a call of many phases is replayed as a graph when it is made again with the same arrays.
    """

    def __init__(
        self, family: Family[Any], spec: Spec, kernels: Mapping[Peer, Kernel], devices: Sequence[Peer],
        grid: Sequence[int] | None = None, steps_per_exchange: int | None = None, processes: Processes | None = None,
    ) -> None:  # fmt: skip
        """Makes streams, and lets the devices reach each other.

        Args:
            family: of the spec.
            spec: what is computed.
            kernels: of each device.
            devices: of each rank.
            grid: ranks along each axis; all along the first one if None.
            steps_per_exchange: time steps of a phase; chosen by the sizes of a call if None.
            processes: those that share the work, one rank each; None if all ranks are of this process.

        Raises:
            ArgumentError: several devices take no such spec, there are other ranks in the grid, or a phase cannot have
                so many steps.
        """
        name = family.name_of(spec)
        next_step = "Load it for one device: gen.load(spec, device=0)"
        if not isinstance(spec, StencilSpec | SystemSpec):
            rule = "must be a stencil, a system, a reduction or a transpose to be computed on several devices"
            raise ArgumentError(name, rule, next_step=next_step)
        self._family, self._spec, self._kernels = family, spec, kernels
        self._signature = Signature(family, spec)
        self.inputs, self.outputs = (
            tuple(operand.name for operand in operands if operand.axes == spec.axes)
            for operands in (self._signature.inputs, self._signature.outputs)
        )
        super().__init__(name, devices, spec.dtype, _checked_grid(spec, len(devices), grid), spec.axes, processes)
        self._most = most_steps(spec, self.grid)
        self.steps_per_exchange = _checked_steps(steps_per_exchange, self._most)
        self._decompositions: dict[tuple[Cuts, int], Decomposition] = {}
        self._calls: dict[Hashable, Callable[[int], None]] = {}
        self._spare: Arrays = ()  # between inputs and outputs, kept from call to call
        self.replays = True
        self._graphs = CallGraphs(MOST_GRAPHS, MOST_SEEN)

    def __call__(self, *arguments: Any, out: Any = None, **numbers: Any) -> Any:
        """Computes time steps.

        Args:
            *arguments: the sharded arrays before, in the spec's order, which stay as they are; then sources and
                receivers, arrays on the host; then its scalars.
            out: where the cells after go: a sharded array, or a tuple where several fields change; made if None.
            **numbers: the spec's scalars by name, in place of those by position, and how many steps: `steps=100`.

        Returns:
            The array of the cells after, or a tuple of them, `out` itself where it was given; then what receivers have
            heard, to be gathered.

        Raises:
            GenError: an argument is not what the spec takes. Nothing was queued.
            RunError: a device refused a launch.
        """
        with self.checking() as noted:
            stated = self._signature.checked_runtime_parameters(numbers)
            given, values = self._signature.sort(arguments, numbers)
            inputs, outs = given[: len(self.inputs)], as_many(out, self.outputs)
            self._check_arrays(inputs, outs)
            points, steps = self._checked_points(inputs[0].shape, given[len(self.inputs) :], stated)
            targets = tuple(
                ShardedArray(self.ranks, inputs[0].cuts, self.dtype) if given is None else given for given in outs
            )
            noted |= {STEPS: int(steps), "steps_per_exchange": self.steps_per_exchange, "cuts": inputs[0].cuts}
            noted |= {x.name: np.frombuffer(values[x.name], x.dtype.numpy)[0] for x in self._signature.numbers}
            noted.update(points)
        with self.queueing():
            graph = None if points else self._graph_of(tuple(inputs), targets, steps, values)
            if graph is not None:
                self.replay(graph)
            traces = self._run(tuple(inputs), targets, steps, values, points) if graph is None else ()
        results = (*targets, *traces)
        return results[0] if len(results) == 1 else results

    def _checked_points(
        self, shape: Shape, arrays: Sequence[Any], stated: Mapping[str, int]
    ) -> tuple[Mapping[str, Array], int]:  # fmt: skip
        """Sources and receivers by name, and the steps of the call. Raises GenError for what the spec does not take."""
        if not arrays:
            return {}, stated[STEPS]
        hosts, given = dict[str, Array](), dict.fromkeys(self.inputs, Given.dense(256, shape, self.dtype, None))
        for operand, array in zip(self._signature.inputs[len(self.inputs) :], arrays, strict=True):
            given[operand.name] = read(operand.name, array)
            host = given[operand.name].host
            if host is None:
                rule = "must be on the host: every device gets its part of it"
                raise ArgumentError(operand.name, rule, given[operand.name].kind.value, next_step="Copy it there")
            hosts[operand.name] = np.ascontiguousarray(host)
        extents, _ = self._signature.check(given, stated)
        self._family.check_content(self._spec, hosts, extents)
        return hosts, extents[STEPS]

    def _graph_of(self, inputs: Arrays, outs: Arrays, steps: int, values: Mapping[str, bytes]) -> Graph | None:
        """All that a call queues, as a graph of all devices; None where it is not repeated, or would gain nothing."""
        cuts, size = inputs[0].cuts, inputs[0].dtype.itemsize
        large = size * max(prod(extents_of_box(held.box)) for held in inputs[0].held) > GRAPH_BYTES
        if not self.replays or not self.is_captured or large or not steps:
            return None
        decomposition = self._decomposition_of(cuts, steps)
        if steps < GRAPH_FROM * decomposition.steps:
            return None
        addresses = tuple(held.address for array in (*inputs, *outs) for held in array.held)
        key = cuts, steps, decomposition.steps, addresses, tuple(values.items())
        return self._graphs.of(key, lambda: self._captured(decomposition, inputs, outs, steps, values))

    def _captured(
        self, decomposition: Decomposition, inputs: Arrays, outs: Arrays, steps: int, values: Mapping[str, bytes]
    ) -> Graph | None:  # fmt: skip
        """The graph of a call that was made before, so that its memory is there; None if the driver takes none."""
        decomposition.forget()
        try:
            return self.captured(lambda: self._run(inputs, outs, steps, values, {}))
        finally:
            decomposition.forget()

    def _run(
        self, inputs: Arrays, outs: Arrays, steps: int, values: Mapping[str, bytes], hosts: Mapping[str, Array]
    ) -> tuple[ShardedTraces, ...]:  # fmt: skip
        """Queues the steps of a call. Gives what receivers hear."""
        if steps == 0:
            for number, rank in enumerate(self.ranks):
                with rank.current():
                    for array, out in zip(inputs, outs, strict=False) if rank.here else ():
                        one, other = array.held[number], out.held[number]
                        rank.device.copy_to(rank.device, one.rows(one.box), other.rows(one.box), rank.main.handle)
        decomposition = self._decomposition_of(inputs[0].cuts, max(steps, 1))
        points = None
        if hosts and isinstance(self._spec, SystemSpec):
            points = Points(self._spec, self.ranks, decomposition.shares, inputs[0].shape, hosts, steps)
        phases = -(-steps // decomposition.steps)
        traces = () if points is None else points.traces
        if phases == 0:
            return traces
        targets = [outs] if phases == 1 else [outs, self._spare_of(outs)]
        self._begin(decomposition)
        self._send(decomposition, inputs)
        sources = inputs
        for phase in range(phases):
            target = targets[(phases - 1 - phase) % 2]
            fresh = len(inputs) if phase == 0 else len(outs)  # coefficients stay where they came in the first phase
            first = phase * decomposition.steps
            call = _Call(sources, target, first, min(decomposition.steps, steps - first), values, fresh, points)
            self._compute(decomposition, call)
            if phase < phases - 1:
                self._send(decomposition, None)
            sources = (*target, *inputs[len(outs) :])
        return traces

    def _begin(self, decomposition: Decomposition) -> None:
        """Puts rims after what the main streams were given before, such as the input's content."""
        for rank, progress in zip(self.ranks, decomposition.progress, strict=True):
            with rank.current():
                progress.written = rank.device.mark(rank.main.handle)
                rank.device.wait_for(rank.rim.handle, progress.written)

    def _send(self, decomposition: Decomposition, inputs: Arrays | None) -> None:
        """Sends what rims of others need: of arrays, or, if None, of what the rims have computed."""
        with self.together():
            for number, (rank, sendings) in enumerate(zip(self.ranks, decomposition.sendings, strict=True)):
                with rank.current():
                    stream = rank.rim.handle
                    for other in {sending.to: None for sending in sendings}:
                        read_by_other = decomposition.progress[other].read
                        if read_by_other is not None:
                            rank.device.wait_for(stream, read_by_other)
                    for sending in sendings:
                        rows = inputs[sending.field].held[number].rows(sending.cells) if inputs else sending.computed
                        if rows is not None:
                            self.copy(number, sending.to, rows, sending.target, stream)
        for rank, progress in zip(self.ranks, decomposition.progress, strict=True):
            with rank.current():
                progress.sent = rank.device.mark(rank.rim.handle)

    def _compute(self, decomposition: Decomposition, call: _Call) -> None:
        for number, (rank, share) in enumerate(zip(self.ranks, decomposition.shares, strict=True)):
            if not rank.here:
                continue
            with rank.current():
                self._compute_rims(decomposition, number, call)
                if share.inside is not None:
                    sources, targets = (_held(arrays, number) for arrays in (call.sources, call.targets))
                    self._queue(number, None, sources, targets, call)
                self._keep_rims(decomposition, number, call.targets)

    def _compute_rims(self, decomposition: Decomposition, number: int, call: _Call) -> None:
        rank, progress = self.ranks[number], decomposition.progress[number]
        stream = rank.rim.handle
        for owner in sorted(decomposition.shares[number].owners):
            _wait_for(rank, stream, decomposition.progress[owner].sent)
        _wait_for(rank, stream, progress.written)
        for rim in decomposition.rims[number]:
            for piece in rim.part.own:
                for array, before in zip(call.sources[: call.fresh], rim.before, strict=False):
                    rows = array.held[number].rows(piece.cells), before.rows(piece.cells)
                    rank.device.copy_to(rank.device, *rows, stream)
        for rim in decomposition.rims[number]:
            self._queue(number, rim.part, rim.before, rim.after, call)
        progress.read = rank.device.mark(stream)

    def _keep_rims(self, decomposition: Decomposition, number: int, targets: Arrays) -> None:
        """Copies the computed rims to the arrays, over what the inside has left there, which is wrong.

        So all that others have sent, and all that this rank has computed, comes before what its main stream does next.
        """
        rank, progress = self.ranks[number], decomposition.progress[number]
        _wait_for(rank, rank.main.handle, progress.read)
        for rim in decomposition.rims[number]:
            for array, after in zip(targets, rim.after, strict=True):
                rows = after.rows(rim.part.valid), array.held[number].rows(rim.part.valid)
                rank.device.copy_to(rank.device, *rows, rank.main.handle)
        progress.written = rank.device.mark(rank.main.handle)

    def _queue(
        self, number: int, rim: Part | None, sources: tuple[Held, ...], targets: tuple[Held, ...], call: _Call
    ) -> None:  # fmt: skip
        """Queues a kernel that computes a dense box of cells: a rim, or what has the inside."""
        held, rank = (*sources, *targets), self.ranks[number]
        device = rank.device
        points = {} if call.points is None else call.points.given(number, rim, call.first, call.steps, device.index)
        key = number, held[0].box, tuple(one.address for one in held), call.steps, tuple(call.values.items())
        queue = None if points else self._calls.get(key)  # the memory of points is that of one call
        if queue is None:
            names = (*self.inputs, *self.outputs)
            given = {name: one.given(self.dtype, device.index) for name, one in zip(names, held, strict=True)}
            given |= points
            queue = self._kernels[device].queued(given, {STEPS: call.steps}, call.values)
            if len(self._calls) >= MOST_CALLS:
                self._calls.clear()
            if not points:
                self._calls[key] = queue
        queue((rank.main if rim is None else rank.rim).handle)

    def _decomposition_of(self, cuts: Cuts, steps: int) -> Decomposition:
        wanted = self.steps_per_exchange or self.steps_chosen(cuts, steps)
        key = cuts, min(wanted, steps, self._most or wanted)
        if key not in self._decompositions:
            if len(self._decompositions) >= MOST_DECOMPOSITIONS:
                self.forget_unused()
            self._decompositions[key] = self._made_decomposition(*key)
        return self._decompositions[key]

    def steps_chosen(self, cuts: Cuts, steps: int) -> int:
        """Steps of a phase where nobody says how many: `cuts` are those of the array, `steps` those of the call."""
        if len(self.ranks) == 1:
            return steps
        return steps_that_pay(self._spec, cuts, self._most, min(steps, STEPS_OF_PHASES[0]))

    def _made_decomposition(self, cuts: Cuts, steps: int) -> Decomposition:
        shares = shares_of(self._spec, cuts, steps)
        rims = tuple(
            tuple(self._made_rim(rank, part) for part in share.rims)
            for rank, share in zip(self.ranks, shares, strict=True)
        )
        sendings: list[list[Sending]] = [[] for _ in shares]
        for other, parts in enumerate(rims):
            for rim in parts:
                for piece in rim.part.others:
                    sendings[piece.owner] += _sendings(other, piece, rim, rims[piece.owner])
        progress = tuple(Progress() for _ in shares)
        return Decomposition(steps, shares, rims, tuple(map(tuple, sendings)), progress)

    def _made_rim(self, rank: Rank, part: Part) -> Rim:
        size, inputs = self._spec.dtype.size, len(self.inputs)
        with rank.current():
            memory = tuple(
                rank.allocate(size * prod(extents_of_box(part.cells))) for _ in (*self.inputs, *self.outputs)
            )  # fmt: skip
        held = tuple(Held(one.address, part.cells, size) for one in memory)
        return Rim(part, held[:inputs], held[inputs:], memory)

    def _spare_of(self, outs: Arrays) -> Arrays:
        if not self._spare or self._spare[0].cuts != outs[0].cuts:
            self._spare = ()  # gives its memory back before more is taken
            self._graphs.forget()  # which write there
            self._spare = tuple(ShardedArray(self.ranks, out.cuts, out.dtype) for out in outs)
        return self._spare

    @override
    def forget(self) -> None:
        self._decompositions.clear()
        self._calls.clear()
        self._spare = ()
        self._graphs.forget()

    def _check_arrays(self, inputs: Sequence[Any], outs: Sequence[Any]) -> None:
        """Raises GenError unless all are split alike, and nothing is written that is read."""
        names = (*self.inputs, *self.outputs)
        arrays = enumerate(zip(names, (*inputs, *outs), strict=True))
        given = [(name, one) for place, (name, one) in arrays if place < len(inputs) or one is not None]
        for place, (name, one) in enumerate(given):
            self.check_array(name, one)
            if one.cuts != inputs[0].cuts:
                rule = f"must be split as {names[0]} is: {inputs[0].cuts}"
                raise ShapeError(name, rule, one.cuts, next_step=f"Scatter it with the extents of {names[0]}")
            if place >= len(inputs):
                for other, array in given[:place]:
                    if one is array:
                        rule = f"must not be the array that {other} is"
                        raise ArgumentError(name, rule, next_step="Pass another, or no out=: then it is made")


@lru_cache(256)
def steps_that_pay(spec: StencilSpec | SystemSpec, cuts: Cuts, most: int | None, steps: int) -> int:
    """Steps of a phase where nobody says how many: the more, the fewer exchanges, and the more is computed twice.

    Gives those that take the least time of both, as estimated.

    Args:
        spec: what is computed.
        cuts: where the cells of the ranks begin.
        most: what is possible; None: any number.
        steps: of the call.
    """
    found, least = 1, inf
    for tried in STEPS_OF_PHASES:
        if tried > min(steps, most or tried):
            continue
        shares = shares_of(spec, cuts, tried)
        own = [prod(extents_of_box(share.own)) for share in shares]
        twice = [
            sum(prod(extents_of_box(part.cells)) for part in _parts(share)) - its
            for share, its in zip(shares, own, strict=True)
        ]
        if all(RIM_PART * again <= its for again, its in zip(twice, own, strict=True)):
            us = PHASE_US / tried + max(twice) * spec.operations * spec.dtype.size / OPERATIONS_PER_US
            found, least = (tried, us) if us < least else (found, least)
    return found


def _parts(share: Share) -> tuple[Part, ...]:
    return share.rims if share.inside is None else (share.inside, *share.rims)


def _sendings(to: int, piece: Piece, rim: Rim, rims: tuple[Rim, ...]) -> Iterator[Sending]:
    """A piece of a rim as its owner sends it: what each of the owner's rims computes of it."""
    for source in rims:
        cells = common_cells(piece.cells, source.part.valid)
        if cells is not None:
            into = tuple(
                (first + at + begin - low, first + at + end - low)
                for (begin, end), (low, _), at, (first, _) in zip(
                    cells, piece.cells, piece.at, rim.part.cells, strict=True
                )
            )
            for field, before in enumerate(rim.before):
                computed = source.after[field].rows(cells) if field < len(source.after) else None
                yield Sending(to, field, cells, computed, before.rows(into))


def _held(arrays: Arrays, number: int) -> tuple[Held, ...]:
    return tuple(array.held[number] for array in arrays)


def _wait_for(rank: Rank, stream: int, mark: Mark | None) -> None:
    assert mark is not None
    rank.device.wait_for(stream, mark)


def _checked_grid(spec: StencilSpec | SystemSpec, ranks: int, grid: Sequence[int] | None) -> tuple[int, ...]:
    if grid is None:
        return (ranks,) + (1,) * (len(spec.axes) - 1)
    found = items_of(grid) or ()
    if len(found) != len(spec.axes) or not all(is_count(n, 1) for n in found) or prod(found) != ranks:
        rule = f"must be positive numbers for {', '.join(spec.axes)}, whose product is the number of devices, {ranks}"
        raise ArgumentError("grid", rule, grid, next_step="Leave it out: all are along the first axis then")
    return tuple(int(n) for n in found)


def _checked_steps(steps: int | None, most: int | None) -> int | None:
    if steps is None:
        return None
    if not is_count(steps, 1):
        raise ArgumentError("steps_per_exchange", "must be a positive number", repr(steps))
    if most is not None and steps > most:
        rule = f"must be {most} where an axis that is split wraps at one end alone"
        raise ArgumentError("steps_per_exchange", rule, steps)
    return int(steps)
