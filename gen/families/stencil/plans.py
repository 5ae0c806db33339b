"""Many steps in one call: launches that read one array and write another, which then change places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gen.dtypes import I64, DType
from gen.families.base import Launch, Plan, Scratch
from gen.families.expr import ONE, Expr, constant, size
from gen.families.stencil.spec import STEPS, StencilSpec

SPARE = "spare"
COPY_THREADS = 256

Sweep = Callable[[str, str, Expr], Launch]
"""A launch that reads one array and writes another; the last is the pitch of the first."""


def numbers(spec: StencilSpec, in_pitch: Expr) -> tuple[tuple[DType, Expr], ...]:
    """The extents and pitches that every kernel takes after its arrays."""
    names = [size(axis) for axis in spec.axes]
    if len(spec.axes) > 1:
        names += [in_pitch, size("out_pitch")]
    return tuple((I64, name) for name in names)


def stepping(
    spec: StencilSpec, sweep: Sweep, *, fused: int = 1, rest: Callable[[str, str, Expr, Expr], Launch] | None = None
) -> Plan:
    """The plan of `steps` steps, each launch `fused` of them.

    The input is read once; a spare array and the output then change places so that the last launch writes the output.
    A spare row is as long as one of the output, pitch included. No step at all is a copy.

    Args:
        spec: what is computed.
        sweep: a launch of `fused` steps.
        fused: steps of a launch.
        rest: a launch of fewer, given as its last argument: what is left at the end.
    """
    steps = size(STEPS)
    whole = (steps // fused).called("whole") if fused > 1 else steps
    left = steps % fused if fused > 1 else constant(0)
    launches = (whole + left.at_most(1)).called("launches") if fused > 1 else steps
    odd = launches % 2
    some = whole.at_most(1)
    first, again = size("in_pitch"), size("out_pitch")
    planned = [
        replace(sweep("in", "out", first), times=some * odd, swap=(("in", "out"), ("out", SPARE))),
        replace(sweep("in", SPARE, first), times=some * (ONE - odd), swap=(("in", SPARE),)),
        replace(sweep("in", "out", again), times=whole.at_least(1) - 1, swap=(("in", "out"),)),
    ]
    if rest is not None:
        pitch = first * (ONE - some) + again * some
        planned.append(replace(rest("in", "out", pitch, left), times=left.at_most(1)))
    planned.append(replace(_copy(spec), times=ONE - steps.at_most(1)))
    needed = launches.at_least(1).at_most(2) - 1
    return Plan(tuple(planned), (Scratch(SPARE, _bytes(spec) * needed),))


def _bytes(spec: StencilSpec) -> Expr:
    row = size("out_pitch" if len(spec.axes) > 1 else "cols")
    return row * spec.dtype.size if len(spec.axes) == 1 else size("rows") * row * spec.dtype.size


def _copy(spec: StencilSpec) -> Launch:
    """Every cell as it is."""
    cells = size("cols") if len(spec.axes) == 1 else size("rows") * size("cols")
    return Launch(
        grid=(cells.ceil_div(COPY_THREADS), ONE, ONE),
        block=(COPY_THREADS, 1, 1),
        arguments=("in", "out", *numbers(spec, size("in_pitch"))),
        entry="_copy",
    )
