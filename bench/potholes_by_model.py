"""Random cases without a GPU: the counted model's time of what dispatch picks, over the least that is known.

That is the limit of the memory, or the model's time of another variant that dispatch could have taken: some that are
often fast in the shape class. The model ranks variants and does not time them, and counts as if all addresses were
aligned: what it says of two variants of one case is worth more than what it says of a case and the limit.

By estimate a case takes less than a second instead of many, so that a share of all configs that tuning tries is looked
at, and thousands of cases are. Estimates were fitted to what dispatch weighs: of other configs a low one is a question.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import monotonic

from bench.potholes import Pothole, not_timed
from bench.random_cases import RandomCase
from gen.arch import Limits
from gen.compare.row import FAILED, OURS, said
from gen.errors import GenError
from gen.families.base import Variant
from gen.families.estimates import estimated_us
from gen.families.names import heuristic_variants, search_space
from gen.report.explain import Explanation, explanations, sentences
from gen.runtime.dispatch import Chooser
from gen.tune.predict import LAUNCH_US, REACHED

LIMIT = "limit"  # in the place of a peer


def by_model(
    cases: Sequence[RandomCase], limits: Limits, home: Path, alternatives: int, seconds: float
) -> Iterator[Pothole]:
    """A row a case, on all cores, in their order, until the time is over.

    Args:
        cases: that are asked for.
        limits: of the device that is imagined.
        home: keeps what is built.
        alternatives: variants that are counted beside the one that dispatch picks.
        seconds: after which no row is waited for.
    """
    start = monotonic()
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        job = partial(modelled, limits=limits, home=home, alternatives=alternatives)
        for future in [pool.submit(job, case) for case in cases]:
            if monotonic() - start > seconds:
                pool.shutdown(wait=False, cancel_futures=True)
                return
            yield future.result()


def modelled(case: RandomCase, limits: Limits, home: Path, alternatives: int) -> Pothole:
    """The row of one case: as the peer, what takes least."""
    chooser = Chooser(case.family, case.spec, (), "", limits)
    choice = chooser.covering(chooser.choose(case.extents, case.alignment), case.extents)
    found = replace(not_timed(case), variant=choice.variant.name)
    try:
        (picked,) = explanations([choice.variant], limits, home, [case.extents])
    except GenError as error:
        return replace(found, notes={OURS: f"{FAILED}{said(error)}"})
    us, limit = picked.predicted.us, limit_us(case, limits)
    times = {LIMIT: limit}
    for made in list(others(case, choice.variant, limits))[:alternatives]:
        one = _explained(made, case, limits, home)
        if one is not None:
            times[made.name] = one.predicted.us
    best = min((name for name in times if name != LIMIT), key=lambda name: times[name], default=LIMIT)
    if times[best] >= us:
        best = LIMIT
    return replace(
        found, untuned_us=round(us, 3), of_limit=round(limit / us, 4), peer=best, peer_us=round(times[best], 3),
        ratio=round(times[best] / us, 4), others={name: round(time, 3) for name, time in times.items()},
        reason=next(iter(sentences(picked)), ""),
    )  # fmt: skip


def estimated(case: RandomCase, limits: Limits, share: float) -> Pothole:
    """The row of one case by estimate: as the peer, what takes least of a share of the configs of each algorithm."""
    chooser = Chooser(case.family, case.spec, (), "", limits)
    choice = chooser.covering(chooser.choose(case.extents, case.alignment), case.extents)
    found, own = replace(not_timed(case), variant=choice.variant.name), _estimate(choice.variant, case, limits)
    if own is None:
        return replace(found, notes={OURS: f"{FAILED}nothing estimates {choice.variant.algorithm.name}"})
    random, times = Random(case.name), {choice.variant.name: own}
    for algorithm in case.family.algorithms.values():
        if algorithm.excluded_from_tuning is not None:
            continue
        for config in search_space(algorithm, case.spec, limits):
            if random.random() < share:
                made = Variant(case.family, case.spec, algorithm, config)
                us = _estimate(made, case, limits)
                times |= {} if us is None else {made.name: us}
    fastest = dict(islice(sorted(times.items(), key=lambda time: time[1]), 3))
    best = next(iter(fastest))
    limit = limit_us(case, limits)
    return replace(
        found, untuned_us=round(own, 3), of_limit=round(limit / own, 4), peer=best, peer_us=round(times[best], 3),
        ratio=round(times[best] / own, 4), others={name: round(us, 3) for name, us in fastest.items()},
    )  # fmt: skip


def _estimate(made: Variant, case: RandomCase, limits: Limits) -> float | None:
    """The estimated time of a variant; None where nothing estimates it, or it cannot compute the case."""
    algorithm, config = made.algorithm, made.config
    if algorithm.unsupported_extents(case.spec, config, case.extents, limits) is not None:
        return None
    demand = algorithm.demand(case.spec, config, case.extents, case.alignment, limits)
    return None if demand is None else estimated_us(demand, limits)


def others(case: RandomCase, picked: Variant, limits: Limits) -> Iterator[Variant]:
    """What is often fast in the shape class, takes the sizes without a slow path, and was not picked."""
    for made in heuristic_variants(case.family, case.spec, case.problem.shape_class, limits):
        algorithm, config = made.algorithm, made.config
        reasons = (
            algorithm.infeasible(case.spec, config, limits),
            algorithm.unsupported_extents(case.spec, config, case.extents, limits),
        )
        if any(reasons) or made.name == picked.name:
            continue
        if algorithm.slow_path_reason(case.spec, config, case.extents, case.alignment, limits) is None:
            yield made


def limit_us(case: RandomCase, limits: Limits) -> float:
    """The least time by the memory: a launch, and the bytes at the share of the bandwidth that is reached."""
    work = case.family.work(case.spec, case.extents)
    assert limits.memory_bytes_per_second is not None
    return LAUNCH_US + (work.bytes_read + work.bytes_written) / (REACHED * limits.memory_bytes_per_second) * 1e6


def _explained(made: Variant, case: RandomCase, limits: Limits, home: Path) -> Explanation | None:
    try:
        return explanations([made], limits, home, [case.extents])[0]
    except GenError:
        return None
