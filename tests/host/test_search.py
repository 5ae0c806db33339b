"""What a search gives, and which rules prune it."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.errors import UnknownNameError
from gen.families import FAMILIES
from gen.families.base import Extents, Limits, Plan, Variant
from gen.families.config import Config, tunable
from gen.families.names import base_variants, find_family, legal_space, search_space, variant
from gen.store.trials import Problem, Trial
from gen.toolchain.compiled import Compiled, Resources
from gen.tune.device import Entrant
from gen.tune.one_problem import Options
from gen.tune.prune import IN_FLIGHT_DIVISOR, MAX_SPILLED_BYTES, MIN_WARPS, RULES, Pruning, read_rules
from gen.tune.search import FIRST_SAMPLE_VARIANTS, Climb, Search, Space, exhaustive
from tests.fake_family import FakeAlgorithm, FakeFamily, FakeSpec

H100 = Limits.of("sm_90")
REDUCTION = find_family(FAMILIES, "reduction")
LARGE = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 2**28})
SMALL = Problem(REDUCTION, REDUCTION.catalogue[0], {"n": 2**15})
EVERY = [
    (family, spec) for family in FAMILIES for spec in family.catalogue[:2]
]  # fmt: skip


@pytest.mark.parametrize(("family", "spec"), EVERY, ids=[f"{family.name}_{spec.label}" for family, spec in EVERY])
def test_the_numbers_of_a_space_stand_for_its_variants_in_order(family: Any, spec: Any) -> None:
    found = [made.name for made in exhaustive(Space(family, spec)).ask(10**6)]
    expected = [
        variant(family, spec, algorithm, config).name
        for algorithm in family.algorithms.values()
        if algorithm.excluded_from_tuning is None
        for config in search_space(algorithm, spec)
    ]
    assert found == expected


def test_a_complete_space_has_what_is_legal_but_unsearched_too() -> None:
    stencil = find_family(FAMILIES, "stencil")
    spec, naive = stencil.catalogue[0], stencil.algorithms["naive"]
    given, all_given = (
        {made.config for made in exhaustive(Space(stencil, spec, complete)).ask(10**6) if made.algorithm is naive}
        for complete in (False, True)
    )
    assert given == set(search_space(naive, spec)) < all_given == set(legal_space(naive, spec))
    assert not Options().complete
    assert Options(prune=read_rules(["none"])).complete
    assert Options(prune=read_rules(["spills"])).complete


@pytest.mark.parametrize("order", [exhaustive, Climb])
def test_every_search_gives_every_variant_once_in_batches(order: Callable[[Space], Search]) -> None:
    whole = Space(REDUCTION, REDUCTION.catalogue[0])
    search = order(whole)
    assert search.left == whole.count < whole.size
    found: list[Variant] = []
    while asked := search.ask(50):
        assert len(asked) <= 50
        found += asked
        assert search.left == whole.count - len(found)
    assert search.left == 0
    assert search.ask(50) == ()
    names = [made.name for made in found]
    assert len(names) == len(set(names))
    assert set(names) == {made.name for made in exhaustive(whole).ask(10**6)}


@pytest.mark.parametrize("order", [exhaustive, Climb])
def test_no_search_gives_what_it_is_told_of_and_all_count_it(order: Callable[[Space], Search]) -> None:
    whole = Space(REDUCTION, REDUCTION.catalogue[0])
    every = exhaustive(whole).ask(10**6)
    search = order(whole)
    given = list(search.ask(20))
    known = [made for made in every[::3] if made.name not in {one.name for one in given}]
    for made in (*known, *given):
        search.tell(Trial(made, "ok", times_us=(5.0,)))
    assert search.left == whole.count - len(known) - len(given)
    while asked := search.ask(50):
        given += asked
    assert sorted(made.name for made in (*given, *known)) == sorted(made.name for made in every)
    assert search.left == 0


@pytest.mark.parametrize(("family", "spec"), EVERY, ids=[f"{family.name}_{spec.label}" for family, spec in EVERY])
def test_a_variant_has_the_number_that_stands_for_it(family: Any, spec: Any) -> None:
    whole = Space(family, spec)
    for number in range(0, whole.size, max(whole.size // 500, 1)):
        made = whole.at(number)
        assert made is None or whole.number(made) == number
    asked = [one for one in base_variants(family, spec) if one.algorithm.excluded_from_tuning is not None]
    assert [whole.number(made) for made in asked] == [None] * len(asked)


def test_an_unknown_rule_is_an_error_in_words() -> None:
    with pytest.raises(UnknownNameError, match="must be one of all, none, spills"):
        read_rules(["slow"])
    assert read_rules(["none"]) == frozenset()
    assert read_rules(["all"]) == frozenset(RULES)
    assert read_rules(["spills", "occupancy"]) == {"spills", "occupancy"}


@given(st.integers(0, 2**31))
def test_near_are_the_numbers_that_differ_in_one_parameter(place: int) -> None:
    whole = Space(REDUCTION, REDUCTION.catalogue[0])
    numbers = ((place + on) % whole.size for on in range(whole.size))
    number, made = next((number, made) for number in numbers if (made := whole.at(number)) is not None)
    near = whole.neighbours(number)
    parameters = made.config.parameters()
    assert len(set(near)) == len(near) == sum(len(parameter.values) - 1 for parameter in parameters)
    for other in filter(None, map(whole.at, near)):
        assert other.algorithm is made.algorithm
        differs = [p.field for p in parameters if getattr(other.config, p.field) != getattr(made.config, p.field)]
        assert len(differs) == 1


@settings(max_examples=10)
@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_climb_finds_the_top_of_a_hill_in_a_small_part_of_the_space(a: int, b: int, c: int) -> None:
    family = FakeFamily()
    family.algorithms = {"wide": Wide(Plan(()))}
    search = Climb(Space(family, FakeSpec("x", ())))

    def us(config: Any) -> float:
        return float(1 + abs(config.a - a) + abs(config.b - b) + abs(config.c - c))

    best, tried = math.inf, 0
    while best > 3 and tried < 3000:  # the top may be illegal, or reached by two steps at once
        for made in search.ask(32):
            trial = Trial(made, "ok", times_us=(us(made.config),))
            tried += 1
            best = min(best, trial.median_us)
            search.tell(trial)
    assert best <= 3


def test_a_climb_looks_around_the_fastest_of_what_is_known_whoever_gave_it() -> None:
    family = FakeFamily()
    family.algorithms = {"wide": Wide(Plan(()))}
    whole = Space(family, FakeSpec("x", ()))
    search = Climb(whole)
    top = WideConfig(a=50, b=50, c=50)
    configs = [top, *(WideConfig(a=2 * place % 100, b=0, c=place) for place in range(FIRST_SAMPLE_VARIANTS))]
    for place, config in enumerate(configs):
        made = Variant(family, whole.spec, family.algorithms["wide"], config)
        search.tell(Trial(made, "ok", times_us=(5.0 + place,)))
    found: list[Any] = [made.config for made in search.ask(20)]
    near = [one for one in found if (one.a != 50) + (one.b != 50) + (one.c != 50) == 1]
    assert len(near) == 10
    assert top not in found


@dataclass(frozen=True, kw_only=True)
class WideConfig(Config):
    """A million combinations, of which half are legal."""

    a: int = tunable("a", tuple(range(100)), base=0, help="")
    b: int = tunable("b", tuple(range(100)), base=0, help="")
    c: int = tunable("c", tuple(range(100)), base=0, help="")

    def illegal(self) -> str | None:
        return "a and b are odd together" if (self.a + self.b) % 2 else None


class Wide(FakeAlgorithm):
    """Computes nothing."""

    config: type[Any] = WideConfig


def test_a_large_space_is_sampled_without_making_all_of_it() -> None:
    family = FakeFamily()
    family.algorithms = {"wide": Wide(Plan(()))}
    start = time.process_time()
    search = Climb(Space(family, FakeSpec("x", ())))
    found = search.ask(100)
    assert time.process_time() - start < 1
    assert len({made.name for made in found}) == 100
    assert search.left == pytest.approx(10**6 / 2, rel=0.1)  # every second number stands for no variant


def compiled(made: Variant, registers: int = 32, spilled: int = 0, shared: int = 0) -> Entrant:
    used = Resources(registers, spilled, spilled, 0, shared, 0)
    return Entrant(made, Compiled(made.name, "sm_90", b"", defaultdict(lambda: used, {made.name: used})))


def test_spills_prune_beyond_what_is_harmless() -> None:
    made = exhaustive(Space(REDUCTION, LARGE.spec)).ask(1)[0]
    rules = Pruning(LARGE, H100)
    assert rules.before_timing(compiled(made, spilled=MAX_SPILLED_BYTES)) is None
    assert (
        rules.before_timing(compiled(made, spilled=MAX_SPILLED_BYTES + 4))
        == f"a thread spills {MAX_SPILLED_BYTES + 4} bytes"
    )
    assert replace(rules, rules=frozenset()).before_timing(compiled(made, spilled=400)) is None
    assert rules.before_timing(Entrant(made, Compiled(made.name, "sm_90", b"", {}))) is None  # nobody says


def test_too_little_in_flight_prunes_large_problems_alone() -> None:
    rules, found = Pruning(LARGE, H100), exhaustive(Space(REDUCTION, LARGE.spec)).ask(10**6)
    found = [
        one for one in found if one.algorithm.unsupported_extents(one.spec, one.config, LARGE.extents, H100) is None
    ]
    pruned = {made.name: rules.before_compiling(made) for made in found}
    few = [made for made in found if pruned[made.name] is not None]
    assert 0 < len(few) < len(found) / 5
    needed = H100.needed_bytes_in_flight
    assert needed is not None
    for made in few:
        config: Any = made.config
        in_flight = config.threads_per_block * config.unroll * config.vec_bytes * config.blocks_per_sm
        assert in_flight * IN_FLIGHT_DIVISOR < needed
    assert all(Pruning(SMALL, H100).before_compiling(made) is None for made in found)
    assert all(replace(rules, rules=frozenset({"spills"})).before_compiling(made) is None for made in found)
    ample = Pruning(LARGE, replace(H100, needed_bytes_in_flight=None))  # of which nobody knows what it needs
    assert all(ample.before_compiling(made) is None for made in found)


def test_a_multiprocessor_with_hardly_a_warp_prunes_where_the_grid_has_more() -> None:
    found = exhaustive(Space(REDUCTION, LARGE.spec)).ask(10**6)
    made = next(made for made in found if made.algorithm.name == "shfl")
    most = 227 * 1024 // 2  # two blocks of two warps would need less shared memory
    rules = Pruning(LARGE, H100)
    warps = made.plan.launches[0].block[0] // 32
    reason = rules.before_timing(compiled(made, shared=most + 1024))
    assert (reason is not None) == (warps < MIN_WARPS)
    alone: Extents = {"n": 1}
    assert Pruning(replace(LARGE, extents=alone), H100).before_timing(compiled(made)) is None
