"""The launches of many time steps of a system, which all algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import pairwise
from operator import mul

from gen.dtypes import I64, DType
from gen.families.base import Extents, Launch, Plan, Scratch
from gen.families.expr import ONE, ZERO, Expr, constant, size
from gen.families.plans import TIME
from gen.families.stencil.algorithms.common import COPY_THREADS
from gen.families.stencil.spec import STEPS
from gen.families.system.spec import SystemSpec


def stepping(spec: SystemSpec, sweep: Callable[[Sequence[str]], Launch]) -> Plan:
    """The plan of a call of `steps` time steps, a launch each, which `sweep` makes of the arrays that it writes.

    A launch reads the fields by their names and writes the computed ones to arrays that it does not read. Then arrays
    change places: the array that was written is the field now, the one that the field lay in is what follows in its
    history, and so on; that of the last is free to be written. Inputs are only read, so they leave in the first steps.
    Which array the first step writes follows from the number of steps, so that the last ones write the outputs. A call
    of fewer steps than a history is long copies what is left of its inputs.
    """
    steps = size(STEPS)
    longest = max(map(len, spec.histories))
    rotations = [_Rotation(history, longest + 1) for history in spec.histories]
    planned = [
        replace(_copy(spec, source, f"{name}_out"), times=_equals(steps, count))
        for count in range(longest)
        for one in rotations
        for source, name in zip(one.history, one.history[count:], strict=False)
    ]

    planned += [_link(spec, name) for name in spec.sources]

    def stepped(
        step: Expr, targets: Sequence[str], times: Expr, swaps: Callable[[_Rotation], Sequence[tuple[str, str]]]
    ) -> list[Launch]:
        now = {name: old for one in rotations for old, name in pairwise(one.history)}
        now |= {one.history[0]: target for one, target in zip(rotations, targets, strict=True)}
        turn = [replace(sweep(targets), times=times)]
        turn += [_add(name, now[name], step) for name in spec.sources]
        turn += [_record(spec, name, now[name], step) for name in spec.receivers]
        return [*turn[:-1], replace(turn[-1], swap=tuple(swap for one in rotations for swap in swaps(one)))]

    for rest in (*range(1, longest + 1), 0):
        written = [one.slots[(rest - 1) % one.count] for one in rotations]
        rests = (steps % (longest + 1)).called("rest")
        times = rests // longest if rest == longest else _equals(rests, rest)
        times = times if rest else steps.at_most(1) * times
        planned += stepped(ZERO, written, times, partial(_Rotation.after_first, rest=rest))
    targets = [one.history[0] + "_out" for one in rotations]
    for step in range(2, longest + 2):
        place, times = constant(step - 1), _exceeds(steps, step - 1)
        if step > longest:
            place, times = TIME + longest, steps.at_least(longest) - longest
        planned += stepped(place, targets, times, partial(_Rotation.after, step=step))
    scratch = [
        Scratch(spare, _cells(spec) * spec.dtype.size * _exceeds(steps, len(one.history) + place))
        for one in rotations
        for place, spare in enumerate(one.spares)
    ]
    scratch += [Scratch(f"{name}_links", size(f"{name}_source_count") * 16) for name in spec.sources]
    return Plan(tuple(planned), tuple(scratch))


def _link(spec: SystemSpec, name: str) -> Launch:
    """A launch that finds, once a call, which sources lie in one cell."""
    count = size(f"{name}_source_count")
    return _each_point("_link", count, f"{name}_sources", f"{name}_links", *shape_numbers(spec), (I64, count))


def _add(name: str, field: str, step: Expr) -> Launch:
    """A launch that adds what a step has for the sources of a field."""
    count = size(f"{name}_source_count")
    launch = _each_point("_add", count, f"{name}_links", f"{name}_wavelets", field, (I64, count), (I64, step))
    return replace(launch, follows=True)


def _record(spec: SystemSpec, name: str, field: str, step: Expr) -> Launch:
    """A launch that writes down what a field is at its receivers."""
    count = size(f"{name}_receiver_count")
    numbers = (*shape_numbers(spec), (I64, count), (I64, step))
    launch = _each_point("_record", count, f"{name}_receivers", field, f"{name}_traces", *numbers)
    return replace(launch, follows=True)


def _each_point(entry: str, count: Expr, *arguments: str | tuple[DType, Expr]) -> Launch:
    return Launch((count.ceil_div(COPY_THREADS), ONE, ONE), (COPY_THREADS, 1, 1), arguments, entry=entry)


def _exceeds(one: Expr, number: int) -> Expr:
    """1 where it is larger, else 0."""
    return one.at_least(number).at_most(number + 1) - number if number else one.at_most(1)


def _equals(one: Expr, number: int) -> Expr:
    """1 where it is this number, else 0."""
    return ONE - (one.at_least(number) - one.at_most(number) if number else one).at_most(1)


@dataclass(frozen=True)
class _Rotation:
    """The arrays of a history, which take turns: `count` are written, so that none is while a step still reads it.

    Step t of n writes slot (n - t) % count, so the last steps write the outputs, newest first.
    """

    history: tuple[str, ...]
    count: int

    @property
    def spares(self) -> tuple[str, ...]:
        """The slots that are scratch memory."""
        words = ("spare", *(f"spare{number}" for number in range(2, self.count)))
        return tuple(f"{self.history[0]}_{word}" for word in words[: self.count - len(self.history)])

    @property
    def slots(self) -> tuple[str, ...]:
        """All that are written."""
        return (*(f"{name}_out" for name in self.history), *self.spares)

    def after_first(self, rest: int) -> list[tuple[str, str]]:
        """The exchanges after the first of n steps, where n % count is `rest`.

        Then the history's names stand for what its fields are, the first output's name for the slot that is written
        next, the others for those that follow, and the last for the input that has left.
        """
        names = [*self.history, *self.slots]
        turns = [self.slots[(rest - turn) % self.count] for turn in range(1, self.count + 1)]
        wanted = [turns[0], *self.history[:-1], *turns[1:], self.history[-1]]
        now, swaps = list(names), []
        for place, array in enumerate(wanted):
            other = now.index(array)
            if other != place:
                now[place], now[other] = now[other], now[place]
                swaps.append((names[place], names[other]))
        return swaps

    def after(self, step: int) -> list[tuple[str, str]]:
        """The exchanges after a later step: each array goes one place on, as long as inputs leave among all names."""
        target, *queue = self.slots
        if step > len(self.history):
            queue = queue[: self.count - len(self.history) - 1]
        return [(target, name) for name in (*self.history, *reversed(queue))]


def extents_of(spec: SystemSpec, shape: Sequence[int], steps: int) -> Extents:
    """Fields of this shape."""
    return {**dict(zip(spec.axes, shape, strict=True)), STEPS: steps, **dict.fromkeys(spec.counts, 3)}


def _copy(spec: SystemSpec, source: str, target: str) -> Launch:
    """A launch that copies a field."""
    cells = _cells(spec)
    return Launch(
        grid=(cells.ceil_div(COPY_THREADS), ONE, ONE),
        block=(COPY_THREADS, 1, 1),
        arguments=(source, target, (I64, cells)),
        entry="_copy",
    )


def shape_numbers(spec: SystemSpec) -> tuple[tuple[DType, Expr], ...]:
    """The extents of a field, as a kernel takes them."""
    return tuple((I64, size(axis)) for axis in spec.axes)


def _cells(spec: SystemSpec) -> Expr:
    return reduce(mul, [size(axis) for axis in spec.axes])
