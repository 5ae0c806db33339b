"""Which variants are tried, what becomes of those that fail, and what is promised of a GPU."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from multiprocessing import active_children
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gen.cli import output
from gen.emit.folder import base_of_catalogue
from gen.errors import CompileError, MissingToolError, UnknownNameError
from gen.families import FAMILIES
from gen.families.base import Family, Limits, Spec, Variant
from gen.families.config import pairs
from gen.families.names import base_variants, find_family, find_spec, find_variant, illegal, named_variant, search_space
from gen.paths import cache_home, output_home
from gen.proof import verdicts as proofs
from gen.proof.cases import cases_of, edge_cases
from gen.proof.prover import unsupported_extents
from gen.proof.verdicts import Host, Verdict, verdicts, with_registers
from gen.toolchain.compiled import Compiled, Resources
from gen.tune.rehearse import prospects, rehearse
from gen.tune.targets import select, to_tune
from tests.fakes import FakeCompiler, InProcess, OracleRunner

H100 = Limits.of("sm_90")


@pytest.fixture
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proofs are on a part of their cases."""
    monkeypatch.setattr("gen.proof.verdicts.cases_of", lambda *asked: tuple(cases_of(*asked))[::9])


def named(name: str) -> Variant:
    return find_variant(FAMILIES, name, {})


def spelled(name: str) -> tuple[Family[Any], Spec]:
    return find_spec(FAMILIES, name, {}, to_tune(FAMILIES, name))


def chosen(target: str | None, *, cover: bool = False, limits: Limits = H100) -> tuple[Variant, ...]:
    return select(FAMILIES, target, named, spelled, cover=cover, limits=limits)


def few() -> tuple[Variant, ...]:
    """Six stencils, of every algorithm."""
    found = chosen("stencil")
    return found[:: len(found) // 6][:6]


def test_without_a_name_and_a_cover_the_catalogue_is_its_base_and_named_variants() -> None:
    expected = {made.name for made in base_of_catalogue(FAMILIES)}
    expected |= {named_variant(family, one).name for family in FAMILIES for one in family.named}
    found = chosen(None)
    assert {made.name for made in found} == expected
    assert len(found) == len(expected)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_named_family_brings_every_feasible_pair_of_values(family: Family[Any]) -> None:
    found = chosen(family.name)
    assert {made.family.name for made in found} == {family.name}
    assert {made.name for made in chosen(None) if made.family is family} <= {made.name for made in found}
    for spec in family.catalogue:
        for algorithm in family.algorithms.values():
            met = {pair for m in found if m.algorithm is algorithm and m.spec == spec for pair in pairs(m.config)}
            assert met >= {pair for config in search_space(algorithm, spec, H100) for pair in pairs(config)}
    assert all(illegal(made.algorithm, made.spec, made.config) is None for made in found)


def test_a_spec_and_a_variant_can_be_named_too() -> None:
    of_spec = {made.name for made in chosen("transpose") if made.spec.label == "10_b32"}
    assert {made.name for made in chosen("transpose_10_b32")} == of_spec
    assert chosen("reduceShfl") == (named("reduceShfl"),)
    full = named("reduceShfl").name
    assert [made.name for made in chosen(full)] == [full]


@pytest.mark.parametrize(
    "name", ["transpose_0312_b16", "transpose_10_b32_in_place", "transpose_copy_b8", "reduction_max_i32_axis0"]
)
def test_a_spec_of_no_catalogue_brings_base_and_every_feasible_pair_of_values(name: str) -> None:
    family, spec = find_spec(FAMILIES, name, {})
    assert spec not in family.catalogue
    found = chosen(name)
    assert {made.spec for made in found} == {spec}
    assert {made.name for made in base_variants(family, spec)} <= {made.name for made in found}
    for algorithm in family.algorithms.values():
        met = {pair for made in found if made.algorithm is algorithm for pair in pairs(made.config)}
        assert met == {pair for config in search_space(algorithm, spec, H100) for pair in pairs(config)}


@pytest.mark.parametrize(("name", "near"), [("redution", "reduction"), ("transpose_10_b3", "transpose_10_b32")])
def test_a_name_that_finds_nothing_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"Did you mean {near}\b"):
        chosen(name)


def test_right_variants_are_proven_and_wrong_ones_are_not() -> None:
    variants = few()
    bad = variants[2].name
    found = list(verdicts(OracleRunner(wrong=(bad,)), variants))
    assert [verdict.variant for verdict in found] == list(variants)
    assert {verdict.variant.name for verdict in found if verdict.status == "failed"} == {bad}
    for verdict in (verdict for verdict in found if verdict.status == "proven"):
        made = verdict.variant
        known = (*cases_of(made.family, made.spec), *edge_cases(made))
        taken = [
            case
            for case in known
            if unsupported_extents(made, case, replace(H100, multiprocessors=case.multiprocessors)) is None
        ]
        shared = any(
            case in taken for case in cases_of(made.family, made.spec)
        )  # else its tiles are too large for them
        assert verdict.cases == len(taken) > (20 if shared else 5)
    reason = next(verdict.reason for verdict in found if verdict.status == "failed")
    assert "must be" in reason
    assert "rows" in reason


@pytest.mark.usefixtures("few_cases")
def test_a_variant_that_is_refused_fails_alone() -> None:
    variants = few()
    bad = (variants[0].name, variants[-1].name)
    found = list(verdicts(OracleRunner(refused=bad), variants))
    assert len(found) == len(variants)
    for verdict in found:
        assert (verdict.status == "failed") == (verdict.variant.name in bad)
        assert ("unit.cpp:3: no" in verdict.reason) == (verdict.variant.name in bad)


def test_what_is_no_variants_fault_is_not_blamed_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise CompileError("The CPU runtime", "no", Path("runtime.cpp"))

    monkeypatch.setattr(OracleRunner, "load", broken)
    with pytest.raises(CompileError, match="The CPU runtime"):
        list(verdicts(OracleRunner(), few()))


def test_a_variant_that_takes_no_case_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = named("reduceShfl")
    monkeypatch.setattr(type(made.algorithm), "unsupported_extents", lambda *_: "too large")
    (verdict,) = verdicts(OracleRunner(), [made])
    assert (verdict.status, verdict.kind, verdict.cases) == ("failed", "no case", 0)
    assert f"{made.name} takes none of the problems that it was to be proven on: too large" in verdict.reason


def test_another_seed_gives_other_numbers() -> None:
    seen = []
    for seed in (0, 0, 1):
        runner = OracleRunner()
        assert next(verdicts(runner, [named("transposeSmem")], seed=seed)).status == "proven"
        seen.append(runner.seen)
    assert all(np.array_equal(a, b) for a, b in zip(seen[0], seen[1], strict=True))
    same = [np.array_equal(a, b) for a, b in zip(seen[0], seen[2], strict=True) if a.shape == b.shape]
    assert len(same) > len(seen[0]) / 2
    assert not all(same)


@pytest.mark.usefixtures("few_cases")
def test_a_rehearsal_holds_compiled_code_and_a_verdict_for_every_variant_in_order() -> None:
    variants = chosen(None)
    steps: list[str] = []
    told: set[Variant] = set()

    def tick(step: str, made: Variant) -> None:
        steps.append(step)
        told.add(made)

    done = rehearse(variants, H100, FakeCompiler(), InProcess(OracleRunner), tick=tick)
    assert told == set(variants)
    assert done.ok
    assert [one.variant for one in done.variants] == list(variants)
    for one in done.variants:
        assert isinstance(one.compiled, Compiled)
        assert one.compiled.name == one.verdict.variant.name == one.variant.name
        assert one.infeasible is None
    assert {step: steps.count(step) for step in steps} == dict.fromkeys(
        ("emitted", "compiled", "proven"), len(variants)
    )


@pytest.mark.usefixtures("few_cases")
def test_what_the_time_does_not_reach_is_left_out_of_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = few()
    none = rehearse(variants, H100, FakeCompiler(), InProcess(OracleRunner), deadline=time.monotonic() - 1)
    assert (none.variants, none.left_out) == ((), variants)
    proven: list[Variant] = []

    def tick(step: str, made: Variant) -> None:
        if step == "proven":
            proven.append(made)

    monkeypatch.setattr("gen.tune.rehearse.time", SimpleNamespace(monotonic=lambda: float(len(proven))))
    some = rehearse(variants, H100, FakeCompiler(), InProcess(OracleRunner), deadline=3.0, tick=tick)
    names = [one.variant for one in some.variants]
    assert len(names) == 3
    assert set(names) | set(some.left_out) == set(variants)
    assert len(some.left_out) == len(variants) - 3


@pytest.mark.parametrize("terminal", [False, True])
def test_where_no_bars_are_seen_a_line_tells_of_each_group_that_is_complete(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    said: list[str] = []
    with output.groups({"first": 2, "second": 1}) as step:
        for name in ("first", "second", "first"):
            step(name, f"all of the {name}")
            said.append(capsys.readouterr().err)
    if terminal:
        assert said == [""] * 3
    else:
        assert said[0] == ""
        assert said[1].startswith("second: all of the second, ")
        assert said[2].startswith("first: all of the first, ")


def test_a_kernel_of_which_no_block_fits_has_failed() -> None:
    made = find_variant(FAMILIES, "reduction_sum_f32__shfl_tpb1024_u1", {})

    def verdict(**registers: int) -> Verdict:
        used = {made.name + entry: Resources(count, 0, 0, 0, 0, 0) for entry, count in registers.items()}
        return with_registers(Verdict(made, "proven", 7), Compiled(made.name, "sm_90", b"", used))

    assert verdict(_finish=64).status == "proven"
    found = verdict(_finish=65)
    assert (found.status, found.kind, found.cases) == ("failed", "refused launch", 7)
    assert "must not need over 65536 registers a block, and needs 65 a thread" in found.reason
    skipped = Verdict(made, "skipped", 0, "no")
    assert with_registers(skipped, None) is skipped
    assert with_registers(skipped, CompileError(made.name, "no", Path("a.cu"))) is skipped


@pytest.mark.usefixtures("few_cases")
def test_registers_are_those_of_the_greediest_kernel() -> None:
    variants = (named("reduceShfl"), named("transposeSmem"))
    done = rehearse(variants, H100, FakeCompiler(), InProcess(OracleRunner))
    compiled = [one.compiled for one in done.variants if isinstance(one.compiled, Compiled)]
    assert [one.registers for one in compiled] == [30, 20]  # the reduction has a finishing kernel
    assert [one.spill_bytes for one in compiled] == [8, 0]


@pytest.mark.usefixtures("few_cases")
def test_a_source_that_does_not_compile_is_found_wrong_and_the_rest_goes_on() -> None:
    variants = few()
    done = rehearse(variants, H100, FakeCompiler(refused=(variants[1].name,)), InProcess(OracleRunner))
    assert not done.ok
    assert [one.ok for one in done.variants] == [made is not variants[1] for made in variants]


@pytest.mark.usefixtures("few_cases")
def test_a_wrong_variant_is_found_wrong() -> None:
    variants = few()
    done = rehearse(variants, H100, FakeCompiler(), InProcess(lambda: OracleRunner(wrong=(variants[0].name,))))
    assert not done.ok
    assert [one.ok for one in done.variants] == [made is not variants[0] for made in variants]


@pytest.mark.usefixtures("few_cases")
def test_what_cannot_run_on_the_device_is_said() -> None:
    turing = replace(Limits.of("sm_75"), threads_per_multiprocessor=512)
    base = base_of_catalogue(FAMILIES)
    done = rehearse(base, turing, FakeCompiler(), InProcess(OracleRunner))
    for one in done.variants:
        assert one.infeasible == one.variant.algorithm.infeasible(one.variant.spec, one.variant.config, turing)
    assert any(one.infeasible for one in done.variants)  # a block of 1024 threads is more than it holds


def test_the_prospect_counts_every_feasible_variant_and_names_the_limit() -> None:
    family = find_family(FAMILIES, "reduction")
    (prospect,) = prospects([(family, family.catalogue[0])], H100)
    feasible = sum(
        algorithm.infeasible(prospect.spec, config, H100) is None
        for algorithm in family.algorithms.values()
        if algorithm.excluded_from_tuning is None
        for config in search_space(algorithm, prospect.spec)
    )
    assert prospect.feasible == feasible > 100
    assert prospect.limit == "read"
    stencil = find_family(FAMILIES, "stencil")
    (prospect,) = prospects([(stencil, stencil.catalogue[0])], H100)
    assert prospect.limit == "copy"


@pytest.mark.exhaustive
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_processes_come_to_the_same_verdicts_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "VARIANTS_PER_PROCESS", 2)
    variants = few()[:4]
    host = Host(H100, cache_home(output_home()))  # what is built is kept, by content
    many = {verdict.variant.name: verdict for verdict in host.verdicts(variants)}
    one = {verdict.variant.name: verdict for verdict in verdicts(host.runner(), variants)}
    assert {name: (verdict.status, verdict.cases) for name, verdict in many.items()} == {
        name: ("proven", verdict.cases) for name, verdict in one.items()
    }


@dataclass
class Aborting(OracleRunner):
    """Ends its process when it runs a variant that is wrong."""

    def _spoil(self, name: str) -> Any:
        return (lambda *_: os.abort()) if name in self.wrong else super()._spoil(name)


@dataclass(frozen=True)
class AbortingHost(Host):
    wrong: tuple[str, ...] = ()

    def runner(self) -> Any:
        return Aborting(limits=self.limits, wrong=self.wrong)


def test_a_variant_that_ends_its_process_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "VARIANTS_PER_PROCESS", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    variants = few()[:2]
    found = {
        one.variant.name: one for one in AbortingHost(H100, tmp_path, wrong=(variants[1].name,)).verdicts(variants)
    }
    assert [found[made.name].status for made in variants] == ["proven", "failed"]
    assert "the process that proves died of it" in found[variants[1].name].reason
    assert active_children() == []


def test_processes_end_at_the_deadline_whatever_they_are_at(tmp_path: Path) -> None:
    assert list(Host(H100, tmp_path).verdicts(few()[:2], time.monotonic())) == []  # before anything is built
    assert active_children() == []


def test_without_a_compiler_the_processes_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    with pytest.raises(MissingToolError, match=r"g\+\+.*[Ii]nstall"):
        list(Host(H100, tmp_path).verdicts(chosen(None)))
