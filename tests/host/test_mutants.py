"""Templates broken on purpose: the CPU run finds every mutant, and each by the detector that is meant to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from gen.emit.render import MARK, render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Family, Limits, Variant
from gen.families.names import find_variant, variant
from gen.paths import cache_home, output_home, templates_root
from gen.proof.build import VARIANTS_PER_UNIT
from gen.proof.cases import cases_of
from gen.proof.host import HostRunner
from gen.proof.prover import prove, unsupported_extents
from gen.proof.sampled import far_cases, sampled_cases
from tests.mutants import LARGE_MUTANTS, MUTANTS, UNCHANGED
from tests.mutants.change import REFUSED, Mutant, Unchanged, apply
from tests.outside.scan_family.scan import Scan


def by_kind(mutants: tuple[Mutant, ...]) -> tuple[tuple[Mutant, ...], tuple[Mutant, ...]]:
    """The first mutant of each template and detector, and the others."""
    firsts = {(mutant.file, mutant.detector): mutant for mutant in reversed(mutants)}
    return (
        tuple(mutant for mutant in mutants if mutant in firsts.values()),
        tuple(mutant for mutant in mutants if mutant not in firsts.values()),
    )


KINDS, OTHERS = by_kind(MUTANTS)
CHANGES: tuple[Mutant | Unchanged, ...] = (*KINDS, *LARGE_MUTANTS, *UNCHANGED, *OTHERS)
TOGETHER = 2 * VARIANTS_PER_UNIT  # two translation units, for two cores
# Those of exhaustive tests are not built with the others.
TOGETHER_WITH = {
    change: tuple(part[start : start + TOGETHER])
    for part in (CHANGES[: -len(OTHERS)], OTHERS)
    for start in range(0, len(part), TOGETHER)
    for change in part[start : start + TOGETHER]
}


@cache
def whole(name: str) -> Variant:
    """The variant as it is."""
    return find_variant((*FAMILIES, Scan()), name, {})


def changed(change: Mutant | Unchanged, folder: Path) -> Variant:
    """Its variant, of a family whose templates have the change, under a name that no other variant has."""
    made = whole(change.variant)
    own, shared = Path(str(made.family.templates)), Path(str(templates_root()))
    if own != shared:
        shutil.copytree(own, folder)
    place = folder / change.file
    text = (place if place.exists() else shared / change.file).read_text()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(apply(change, text))
    # Variants of one translation unit have different names, since their kernels are extern "C".
    name = f"m{crc32(change.name.encode()):08x}_{made.family.name}"
    family: Family[Any] = type("Changed", (type(made.family),), {"name": name, "templates": folder})()
    return variant(family, made.spec, made.algorithm, made.config)


@cache
def text_of(made: Variant) -> str:
    """The text of its file, rendered once."""
    return render(made)


def body(made: Variant, name: str) -> str:
    """What is compiled, as if the variant had this name."""
    return text_of(made).partition(MARK)[2].replace(made.name, name)


@pytest.fixture(scope="session")
def runner() -> HostRunner:
    """The CPU run; what it builds is kept between runs of the tests, and what it renders for all tests."""
    return HostRunner(Limits.of("sm_90"), cache=cache_home(output_home()), text=text_of)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, runner: HostRunner) -> Callable[[Mutant | Unchanged], Variant]:
    """Gives the variant of a change, built together with its neighbours in the table."""
    folder = tmp_path_factory.mktemp("templates")

    @cache
    def part(changes: tuple[Mutant | Unchanged, ...]) -> Mapping[str, Variant]:
        made: dict[str, Variant] = {}
        for change in changes:
            with suppress(AssertionError):  # its text has no such line: told by its own test, below
                made[change.name] = changed(change, folder / str(CHANGES.index(change)))
        # One text that g++ refuses would have all others of its translation unit built one by one.
        together = [change for change in changes if change.name in made and REFUSED not in detectors(change)]
        runner.load([made[change.name] for change in together])
        return made

    def own(change: Mutant | Unchanged) -> Variant:
        made = part(TOGETHER_WITH[change]).get(change.name)
        return made or changed(change, folder / f"alone-{CHANGES.index(change)}")

    return own


def detectors(change: Mutant | Unchanged) -> tuple[str, ...]:
    """What may find it."""
    if isinstance(change, Unchanged):
        return ()
    return (change.detector,) if isinstance(change.detector, str) else change.detector


@pytest.mark.parametrize(
    "mutant",
    [
        *(pytest.param(mutant, id=mutant.name) for mutant in KINDS),
        *(pytest.param(mutant, id=mutant.name, marks=pytest.mark.exhaustive) for mutant in OTHERS),
    ],
)
def test_mutant_is_caught(
    mutant: Mutant,
    built: Callable[[Mutant | Unchanged], Variant],
    runner: HostRunner,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("mutant", "caught")  # counted in tests/conftest.py, if this test passes
    made = built(mutant)
    assert body(made, mutant.variant) != body(whole(mutant.variant), mutant.variant)
    if mutant.detector == REFUSED:
        with pytest.raises(CompileError, match="static assertion failed"):
            runner.load([made])
        return
    (proof,) = prove(runner, [made])
    assert proof.failure is not None, "nothing was reported"
    assert proof.failure.kind in detectors(mutant), str(proof.failure)


@pytest.mark.parametrize("mutant", LARGE_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught_on_a_large_problem(
    mutant: Mutant,
    built: Callable[[Mutant | Unchanged], Variant],
    runner: HostRunner,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("mutant", "caught")
    made = built(mutant)
    assert body(made, mutant.variant) != body(whole(mutant.variant), mutant.variant)
    (proof,) = prove(runner, [made], (*sampled_cases(made.family, made.spec), *far_cases(made.family, made.spec)))
    assert proof.failure is not None, "nothing was reported"
    assert proof.failure.kind in detectors(mutant), str(proof.failure)


@pytest.mark.parametrize("change", UNCHANGED, ids=lambda change: change.name)
def test_change_without_effect_is_proven(
    change: Unchanged,
    built: Callable[[Mutant | Unchanged], Variant],
    runner: HostRunner,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("mutant", "without effect")
    made = built(change)
    assert body(made, change.variant) != body(whole(change.variant), change.variant)
    (proof,) = prove(runner, [made])
    assert proof.failure is None, str(proof.failure)


@pytest.mark.further  # covers of the same algorithms are proven in test_variants.py
def test_variants_without_the_changes_are_proven(runner: HostRunner) -> None:
    """On a part of their cases: `gen prove` and tests/host/test_variants.py have them all."""
    variants = [whole(name) for name in sorted({change.variant for change in CHANGES})]
    runner.load(variants)
    for made in variants:
        taken = [
            case
            for case in cases_of(made.family, made.spec)
            if unsupported_extents(made, case, replace(runner.limits, multiprocessors=case.multiprocessors)) is None
        ]
        (proof,) = prove(runner, [made], taken[::5]) if taken else prove(runner, [made])  # its own cases alone
        assert proof.failure is None, str(proof.failure)
        assert proof.cases > 0, made.name


def test_every_marker_in_a_template_is_of_a_change() -> None:
    root = Path(str(templates_root()))
    texts = {str(file.relative_to(root)): file.read_text() for file in root.rglob("*.jinja")}
    markers = {(name, found) for name, text in texts.items() for found in re.findall(r"\{# mutants: (.*) #\}", text)}
    assert markers == {(change.file, change.at) for change in CHANGES if change.at is not None}


def test_no_two_changes_are_one() -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES)
    edits = {(change.variant, change.file, change.at, change.old, change.new, change.also) for change in CHANGES}
    assert len(edits) == len(CHANGES)


def test_every_algorithm_has_mutants() -> None:
    mutated = {(whole(mutant.variant).family.name, whole(mutant.variant).algorithm.name) for mutant in MUTANTS}
    runnable = {
        (family.name, name)
        for family in FAMILIES
        for name, algorithm in family.algorithms.items()
        if algorithm.not_on_host is None
    }
    assert mutated == runnable | {("scan", name) for name in Scan().algorithms}
