"""Feasible, proven variants of every problem in the order of their predicted times. Nothing here is a measurement."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gen.errors import RunError
from gen.families.base import Extents, Limits, Variant
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.toolchain.compiled import Compiled
from gen.toolchain.usage import usage
from gen.tune.predict import Prediction, predict
from gen.tune.rehearse import Rehearsed


@dataclass(frozen=True)
class Ranking:
    """The variants of one spec at the size that stands for a shape class.

    Attributes:
        spec_name: for instance `reduction_sum_f32`.
        order: each with its prediction, fastest first.
    """

    spec_name: str
    shape_class: str
    extents: Extents
    order: tuple[tuple[Variant, Prediction], ...]


def rank(
    done: Sequence[Rehearsed], runner: HostRunner, limits: Limits, tick: Callable[[str], None] = lambda _: None,
    deadline: float | None = None,
) -> Iterator[Ranking]:  # fmt: skip
    """Ranks what a rehearsal found right.

    Args:
        done: variants that were compiled and proven; those that failed or cannot run on the device are left out.
        runner: where they run to be looked at.
        limits: of the device.
        tick: is told `predicted` after each variant of each problem.
        deadline: of `time.monotonic()`; a problem that is not ranked by then is left out.
    """
    right = [one for one in done if one.infeasible is None and one.verdict.status == "proven"]
    kernels = dict(zip((one.variant.name for one in right), runner.load([one.variant for one in right]), strict=True))
    for family, spec in dict.fromkeys((one.variant.family, one.variant.spec) for one in right):
        for shape_class in family.shape_classes(spec):
            extents = family.representative(spec, shape_class)
            found: list[tuple[Variant, Prediction]] = []
            for one in right:
                if deadline is not None and time.monotonic() >= deadline:
                    return
                made = one.variant
                if (made.family, made.spec) != (family, spec) or not isinstance(one.compiled, Compiled):
                    continue
                if made.algorithm.uncovered(made.spec, made.config, extents, limits) is None:
                    used = usage(made, one.compiled, limits, extents)
                    try:
                        moved = traffic(kernels[made.name], limits, extents)
                    except RunError:  # it cannot be run in part: blocks that wait for each other
                        continue
                    found.append((made, predict(made, moved, used, limits, extents)))
                tick("predicted")
            order = tuple(sorted(found, key=lambda pair: pair[1].us))
            yield Ranking(family.name_of(spec), shape_class, extents, order)
