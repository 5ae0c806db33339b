"""Problems, times and runs that the tests of tuning one problem share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_family, find_variant
from gen.gpu.timing import METHOD
from gen.store.trials import Problem, Setting, Trials
from gen.tune.one_problem import tune
from gen.tune.outcome import Outcome
from gen.tune.search import Space
from tests.fake_tuning import FakeFarm, FakeTuningDevice, candidates

STENCIL = find_family(FAMILIES, "stencil")
SIZES = {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 96, "steps": 1}
PROBLEM = Problem(STENCIL, STENCIL.catalogue[0], SIZES)
REDUCTION = find_family(FAMILIES, "reduction")
SUM = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 4096})
H100, TURING = Limits.of("sm_90"), Limits.of("sm_75")
WHOLE = Space.at


def part(space: Space, number: int) -> Variant | None:
    """Every fifth number of a space, without what takes no arrays so small: enough for all that can happen."""
    made = WHOLE(space, number) if number % 5 == 0 else None
    return None if made is None or made.algorithm.name == "persistent" else made


with pytest.MonkeyPatch.context() as patch:
    patch.setattr(Space, "at", part)
    ALL = candidates(PROBLEM, H100)[0]
NAMES = [made.name for made in ALL]


# Those that prepare private copies never win.
MAY_WIN = [made.name for made in ALL if not any(launch.setup for launch in made.plan.launches)]
BASE, FIRST, SECOND, THIRD = NAMES[0], MAY_WIN[10], MAY_WIN[20], MAY_WIN[30]


def text_of(made: Variant) -> str:
    """Quick to make, and no two the same without the name."""
    return f"{made.name} {made.algorithm.name}_{made.config.tag}"


def times(**fast: float) -> Callable[[Variant], float]:
    """20 us for base, 100 for any other, less what is given as _PLACE in MAY_WIN."""
    by_name = {MAY_WIN[int(place.lstrip("_"))]: us for place, us in fast.items()}
    return lambda made: by_name.get(made.name, 20.0 if made.name == BASE else 100.0)


def tuned(
    device: FakeTuningDevice, trials: Trials, farm: FakeFarm | None = None, problem: Problem = PROBLEM,
    text: Callable[[Variant], str] | None = None, **options: Any,
) -> Outcome:  # fmt: skip
    """Tunes with texts that are quick to make; every session is closed."""
    outcome = tune(problem, device, farm or FakeFarm(), trials, text=text or text_of, **options)
    assert device.open_sessions == 0
    return outcome


def won(outcome: Outcome) -> str:
    assert outcome.winner is not None
    return outcome.winner.variant.name


def recorded(trials: Trials, device: FakeTuningDevice, name: str, problem: Problem = PROBLEM) -> tuple[str, str] | None:
    """Status and reason that stand in the store."""
    setting = Setting(device.name, device.driver, "fake 1.0", METHOD)
    made = find_variant(FAMILIES, name, {})
    found = trials.find(setting, problem, text_of(made), made)
    return None if found is None else (found.status, found.reason)
