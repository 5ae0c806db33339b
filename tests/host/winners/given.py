"""One shape class of a transpose, the few variants of it, and a GPU whose times depend on the size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gen.families import FAMILIES
from gen.families.names import find_family, search_space, variant
from gen.store.trials import Problem
from gen.store.winners import read_winners
from gen.tune.one_problem import base_of
from gen.tune.targets import problems
from tests.fake_tuning import FakeTuningDevice

TRANSPOSE = problems(FAMILIES, "transpose_10_b32", {})[:1]
FAMILY = find_family(FAMILIES, "transpose")
SPEC = TRANSPOSE[0].spec
BASE = base_of(TRANSPOSE[0], FakeTuningDevice())
OF_ANY_SIZE = [config for config in search_space(BASE.algorithm, SPEC) if vars(config)["index_bits"] == 64]
EVERY = (BASE, *(variant(FAMILY, SPEC, BASE.algorithm, config) for config in OF_ANY_SIZE[10:60:10]))
WIDE, TALL = EVERY[1:3]


class Sized(FakeTuningDevice):
    """Its times depend on the problem too: `times` gives them, 20 us where it gives none."""

    def __init__(self, times: Callable[[str, Problem], float | None]) -> None:
        super().__init__(lambda made: times(made.name, self.seen[-1][0]) or 20.0)


def tall_matrices(name: str, problem: Problem) -> float | None:
    """WIDE is best, but for matrices of many rows and few columns."""
    tall = problem.extents["rows"] > problem.extents["cols"]
    return {WIDE.name: 14.0 if tall else 10.0, TALL.name: 10.0 if tall else 12.0}.get(name)


def kept(home: Path) -> dict[str, str]:
    return {winner.words: winner.variant for winner in read_winners(home)}


def timed(us: float, **options: Any) -> FakeTuningDevice:
    return FakeTuningDevice(lambda made: us if made == WIDE else 10.0, **options)
