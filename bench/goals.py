"""What the public cases are to reach, and which of those measured do not, and why: `bench/readme.py` lists them.

The goals are those of the project, set for an H100 before anything was measured. Of the limit, `of_limit`, or against
the best peer of the same run, `peer / ours`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from bench.cases import public_cases
from bench.results import Results, geometric_mean
from bench.stencils import steps_of
from bench.table import Line, lines
from gen.compare.case import ComparisonCase
from gen.dtypes import F16, F32, F64, DType
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.families.transpose import TransposeSpec

COLD, HOT = "cold", "hot"
SKINNY, SMALL = 16, 32  # rows or columns, at most
_MIB = 1 << 20
_LAUNCH = "The launch is most of the time, theirs and ours."
_CHOSEN = (
    "Among many launches a few hundredths lie between variants of either side, and which of them a few seconds of "
    "tuning find; where that is not it, the cause was not found."
)


class Measure(Enum):
    """What a goal is a number of."""

    LIMIT = "of limit"
    PEER = "peer / ours"


@dataclass(frozen=True)
class Goal:
    """What some public cases are to reach.

    Attributes:
        name: of those cases.
        measure, least: the number, and how much it should be at least.
        takes: whether a case is one of them.
        why: what keeps those from it that do not reach it.
        protocol: under which it is meant.
    """

    name: str
    measure: Measure
    least: float
    takes: Callable[[ComparisonCase], bool] = field(compare=False)
    why: str
    protocol: str = COLD

    def reached(self, line: Line) -> float | None:
        """What a case reaches; None where nothing was timed, or under another protocol."""
        if line.protocol != self.protocol:
            return None
        if self.measure is Measure.LIMIT:
            return line.ours.of_limit
        return min((row.ratio for row in line.peers if row.ratio is not None), default=None)


@dataclass(frozen=True)
class Missed:
    """A case under a goal."""

    goal: Goal
    case: str
    reached: float

    def __str__(self) -> str:
        return f"{self.case} {self.reached:.3f}"


def goals() -> tuple[Goal, ...]:
    """All of them, families one after another."""
    return (*_reductions(), *_transposes(), *_stencils(), *_all())


def missed(results: Results) -> tuple[Missed, ...]:
    """The cases under their goals, goal by goal, the furthest from it first."""
    cases = {(case.family.name, case.name): case for case in public_cases()}
    measured = [(cases[line.family, line.case], line) for line in lines(results) if (line.family, line.case) in cases]
    return tuple(one for goal in goals() for one in _missed(goal, measured))


@dataclass(frozen=True)
class Mean:
    """What a family is to reach on the whole: a geometric mean of peer / ours, of `torch` or, empty, of the best."""

    family: str
    peer: str
    least: float
    reached: float

    def __str__(self) -> str:
        whom = self.peer or "the best peer"
        return f"- {self.family}, {whom} / ours, the geometric mean, {self.least:g}: {self.reached:.3f}. {_MEAN}"


def means(results: Results) -> tuple[Mean, ...]:
    """Those that are under their goals."""
    found = []
    for family, peer, least in _MEANS:
        own = [line for line in lines(results) if line.family == family]
        ratios = [
            ratio
            for line in own
            if (ratio := min((row.ratio for row in line.peers if row.ratio and peer in ("", row.peer)), default=None))
        ]
        if ratios and (reached := geometric_mean(ratios)) < least:
            found.append(Mean(family, peer, least, reached))
    return tuple(found)


def section(results: Results) -> str:
    """What stands at the end of the full table."""
    parts = ["## Under their goals\n", _INTRODUCTION]
    found = missed(results)
    for goal in dict.fromkeys(one.goal for one in found):
        own = "; ".join(str(one) for one in found if one.goal == goal)
        parts.append(f"- {goal.name} ({goal.protocol}), {goal.measure.value} {goal.least:g}: {own}. {goal.why}")
    parts += [str(mean) for mean in means(results)]
    if len(parts) == 2:
        parts.append("None.")
    return "\n".join(parts) + "\n"


_MEANS = (("reduction", "", 1.05), ("reduction", "torch", 1.6), ("transpose", "", 1.03), ("transpose", "torch", 3.8))
_MEAN = "Small cases are mostly the launch, theirs and ours, and some large ones torch moves near the limit, too."
_INTRODUCTION = (
    "Goals were set for an H100, whose memory is slower beside its launches and its arithmetic than an H200's. "
    "Each case with what it reaches.\n"
)


def _missed(goal: Goal, measured: Iterable[tuple[ComparisonCase, Line]]) -> list[Missed]:
    found = []
    for case, line in measured:
        reached = goal.reached(line) if goal.takes(case) else None
        if reached is not None and round(reached, 3) < goal.least:
            found.append(Missed(goal, case.name, reached))
    return sorted(found, key=lambda one: one.reached)


def _is_odd(case: ComparisonCase) -> bool:
    return (
        isinstance(case.spec, TransposeSpec) and any(extent % 2 for extent in case.shape) and min(case.shape) > SKINNY
    )


def _odd_of(size: int) -> Callable[[ComparisonCase], bool]:
    return lambda case: _is_odd(case) and case.dtype.size == size


def _is_sum(case: ComparisonCase, *, whole: bool) -> bool:
    return isinstance(case.spec, ReductionSpec) and case.spec.op == ("sum",) and (case.spec.axis is None) == whole


def _is_matrix(case: ComparisonCase, sizes: Sequence[int]) -> bool:
    """Whether it is a transpose, of one or several, of whole vectors of such elements; neither skinny nor small."""
    if (
        not isinstance(case.spec, TransposeSpec)
        or case.spec.axes not in ((1, 0), (0, 2, 1))
        or case.dtype.size not in sizes
    ):
        return False
    rows = case.shape[-2:]
    return min(rows) > SMALL and all(n * case.dtype.size % 16 == 0 for n in rows) and case.nbytes > _MIB


def _is_skinny(case: ComparisonCase) -> bool:
    return isinstance(case.spec, TransposeSpec) and case.spec.axes == (1, 0) and min(case.shape) <= SKINNY


def _is_batch_of_small(case: ComparisonCase) -> bool:
    return isinstance(case.spec, TransposeSpec) and case.spec.axes == (0, 2, 1) and min(case.shape[-2:]) <= SMALL


def _is_stencil(case: ComparisonCase, *, many: bool, radius: int | None = None, dtype: DType | None = None) -> bool:
    spec = case.spec
    if not isinstance(spec, StencilSpec) or len(spec.axes) != 2 or (steps_of(case) > 1) != many:
        return False
    return radius in (None, *spec.before) and dtype in (None, case.dtype)


def _one_step_of(dtypes: Sequence[DType]) -> Callable[[ComparisonCase], bool]:
    """Whether a case is one step over more cells of such a type than the second-level cache holds."""
    return lambda case: _is_stencil(case, many=False) and case.dtype in dtypes and case.nbytes > 64 * _MIB


def _beyond_cache(takes: Callable[[ComparisonCase], bool]) -> Callable[[ComparisonCase], bool]:
    return lambda case: takes(case) and not _stays_in_cache(case)


def _all() -> Iterator[Goal]:
    for protocol in (COLD, HOT):
        yield Goal("Every case", Measure.PEER, 0.98, lambda _: True, _CHOSEN, protocol)


def _reductions() -> Iterator[Goal]:
    ends = "The first loads and the last blocks take as long whatever the size; no peer is over 1 % nearer."
    yield Goal(
        "Reductions of 256 MiB and more", Measure.LIMIT, 0.98,
        lambda case: isinstance(case.spec, ReductionSpec) and case.nbytes >= 256 * _MIB, ends,
    )  # fmt: skip
    yield Goal(
        "Reductions of 64 to 256 MiB", Measure.LIMIT, 0.96,
        lambda case: isinstance(case.spec, ReductionSpec) and 64 * _MIB <= case.nbytes < 256 * _MIB, ends,
    )  # fmt: skip
    yield Goal(
        "Sums of 2^24", Measure.PEER, 1.1, lambda case: _is_sum(case, whole=True) and case.elements == 2**24,
        "Launch and bytes alone are most of the time, theirs and ours.",
    )  # fmt: skip
    for protocol, least in ((COLD, 1.2), (HOT, 1.1)):
        yield Goal(
            "Sums of 2^16 and 2^20", Measure.PEER, least,
            lambda case: _is_sum(case, whole=True) and case.elements in (2**16, 2**20), _LAUNCH, protocol,
        )  # fmt: skip
    yield Goal(
        "Sums of rows and columns",
        Measure.PEER,
        1.0,
        lambda case: _is_sum(case, whole=False),
        "Theirs and ours are less than 2 % apart.",
    )
    yield Goal("argmax f32", Measure.PEER, 1.02, lambda case: case.name.startswith("argmax f32"), ends)
    yield Goal("argmax u8", Measure.PEER, 2.0, lambda case: case.name.startswith("argmax u8"), ends)
    yield Goal(
        "Four statistics", Measure.PEER, 1.02,
        lambda case: isinstance(case.spec, ReductionSpec) and len(case.spec.op) > 1, ends,
    )  # fmt: skip


def _transposes() -> Iterator[Goal]:
    memory = "Theirs and ours are near the limit of the memory."
    sectors = "Blocks begin and end within sectors and lines of the cache, which their neighbours move too."
    for measure, wide, narrow in ((Measure.LIMIT, 0.98, 0.97), (Measure.PEER, 1.01, 1.0)):
        yield Goal(
            "Matrices of larger elements, up to 8 MiB", measure, wide,
            lambda case: _is_matrix(case, (2, 4, 8)) and case.nbytes <= 8 * _MIB, _LAUNCH,
        )  # fmt: skip
        yield Goal(
            "Matrices of larger elements", measure, wide,
            lambda case: _is_matrix(case, (2, 4, 8)) and case.nbytes > 8 * _MIB, memory,
        )  # fmt: skip
        yield Goal("Matrices of bytes", measure, narrow, lambda case: _is_matrix(case, (1,)), memory)
    for size, of_limit, against in ((4, 0.95, 1.08), (2, 0.9, 1.2), (1, 0.85, 1.3)):
        for measure, least in ((Measure.LIMIT, of_limit), (Measure.PEER, against)):
            yield Goal(
                f"Odd matrices of {8 * size} bits", measure, least,
                _odd_of(size), sectors,
            )  # fmt: skip
    for measure in Measure:
        yield Goal("Few rows or columns", measure, 1.0, _is_skinny, memory)
    yield Goal("Small matrices, many", Measure.LIMIT, 0.92, _is_batch_of_small, memory)
    yield Goal("Small matrices, many", Measure.PEER, 1.3, _is_batch_of_small, memory)
    short = (
        "Runs that are short in both arrays are parts of lines of the cache; and what packs them best a few seconds of "
        "tuning do not always find."
    )
    copies = (
        "Theirs and ours move the same runs near the limit, or a few seconds of tuning did not find what moves them "
        "best; where theirs are faster, the cause was not found."
    )
    for measure, least, why in ((Measure.LIMIT, 0.92, short), (Measure.PEER, 1.15, copies)):
        yield Goal(
            "Four axes", measure, least, lambda case: isinstance(case.spec, TransposeSpec) and len(case.shape) == 4, why
        )
    yield Goal(
        "Matrices up to 1 MiB", Measure.PEER, 1.2,
        lambda case: isinstance(case.spec, TransposeSpec) and case.nbytes <= _MIB, _LAUNCH,
    )  # fmt: skip


def _stencils() -> Iterator[Goal]:
    registers = "Sums of many weights leave registers for few warps."
    memory = "Theirs and ours are near the limit of the memory."
    for dtypes, of_limit, against in (((F32, F64), 0.97, 1.1), ((F16,), 0.92, 1.5)):
        for measure, least, why in ((Measure.LIMIT, of_limit, registers), (Measure.PEER, against, memory)):
            yield Goal(
                f"One step, {' and '.join(dtype.name for dtype in dtypes)}", measure, least,
                _one_step_of(dtypes), why,
            )  # fmt: skip
    arithmetic = (
        "Ours are bound by arithmetic where enough steps are fused, theirs by memory: the faster it is, as it is where "
        "the L2 holds both arrays, the nearer they come."
    )
    for name, least, takes in (
        ("5 points, f32", 8.5, lambda case: _points(case, 5, F32)),
        ("5 points, f64", 6.0, lambda case: _points(case, 5, F64)),
        ("9 points of a box, f32", 7.0, lambda case: _points(case, 9, F32) and _is_stencil(case, many=True, radius=1)),
        ("Radius 2", 3.0, lambda case: _is_stencil(case, many=True, radius=2)),
    ):
        yield Goal(f"Many steps, {name}", Measure.PEER, least, _beyond_cache(takes), arithmetic)
    yield Goal(
        "Many steps in the L2", Measure.PEER, 2.5, lambda case: _is_stencil(case, many=True) and _stays_in_cache(case),
        "The L2, which is as fast for theirs, holds both arrays.",
    )  # fmt: skip


def _stays_in_cache(case: ComparisonCase) -> bool:
    """Whether the second-level cache holds both arrays for a thousand steps."""
    return isinstance(case.spec, StencilSpec) and steps_of(case) >= 1000 and 2 * case.nbytes <= 32 * _MIB


def _points(case: ComparisonCase, number: int, dtype: DType) -> bool:
    return (
        _is_stencil(case, many=True, dtype=dtype)
        and isinstance(case.spec, StencilSpec)
        and len(case.spec.taps) == number
    )
