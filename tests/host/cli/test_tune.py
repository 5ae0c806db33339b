"""`gen tune` where there is no GPU, or none that can be talked to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import gen
from gen.cli.first_minute import _Progress
from gen.emit.render import render
from gen.errors import CompileError
from gen.families import FAMILIES
from gen.families.base import Family, Limits
from gen.families.names import find_variant, heuristic_variants
from gen.proof.verdicts import Verdict
from gen.tune import rehearse
from gen.tune.rehearse import Rehearsal, Rehearsed
from gen.tune.targets import Sample, feasible, of_spec, problems, sample
from tests.fakes import OracleRunner
from tests.host.cli.command import run

SUM = "reduction_sum_f32"

pytestmark = pytest.mark.usefixtures("runtime_at_home")


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rehearsal is of one variant of a spec."""
    monkeypatch.setattr("gen.tune.targets.of_spec", lambda *_: (find_variant(FAMILIES, "reduceShfl", {}),))


@pytest.mark.usefixtures("alone")
def test_tune_compiles_and_proves_and_says_what_a_gpu_would_measure(
    oracle: OracleRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    shown = run("tune", SUM, "--arch", "sm_80")
    assert shown.status == 0
    counts = {arch: feasible(FAMILIES[0], FAMILIES[0].catalogue[0], Limits.of(arch)) for arch in ("sm_80", "sm_90")}
    for words in (
        "sm_80",
        "no GPU here",
        "gen tune reduction_sum_f32 measures",
        f"{counts['sm_80']} feasible variants",
        "read bandwidth",
    ):
        assert words in shown.out
    content = run("tune", SUM, "--json").data
    assert content["arch"] == "sm_90"
    assert content["measured"] is False
    (one,) = content["variants"]
    assert one["compiled"] is True
    assert 10 <= one["registers"] <= 255
    assert [would["feasible"] for would in content["would_measure"]] == [counts["sm_90"]]
    oracle.wrong = (find_variant(FAMILIES, "reduceShfl", {}).name,)
    assert run("tune", SUM).status == 1


@pytest.mark.parametrize("target", [None, "transpose", "transpose_10_b32"])
def test_what_a_gpu_would_measure_is_what_it_measures(target: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much is rehearsed."""
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    monkeypatch.setattr("gen.tune.rehearse.rehearse", lambda variants, *_, **__: Rehearsal("sm_90", (), variants))
    named = [] if target is None else [target]
    measured = {f"{one.family.name}_{one.spec.label}" for one in problems(FAMILIES, target, {})}
    shown = run("tune", *named, "--all")  # which compiles and proves nothing here
    assert f"On a GPU, {' '.join(['gen', 'tune', *named])} measures:" in shown.out
    assert set(re.findall(r"^  (\w+): \d+ feasible variants", shown.out, re.MULTILINE)) == measured
    assert {would["spec"] for would in run("tune", *named, "--all", "--json").data["would_measure"]} == measured


def test_without_a_gpu_and_a_name_a_sample_is_proven_and_ranked_and_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fault is a barrier that is taken out; the line that is named is the barrier's."""
    names = ("transpose_10_b32__tiled_t32_r8_p1_u1", "transpose_10_b32__tiled_t32_r8_p0_u1")
    family = FAMILIES[1]
    variants = tuple(find_variant(FAMILIES, name, {}) for name in names)
    two = Sample(family, family.catalogue[0], "aligned rows", variants)
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    monkeypatch.setattr("gen.tune.targets.sample", lambda one, _limits: two if one is family else None)
    content = run("tune", "--json").data
    padded, plain = content["variants"]
    assert [one["name"] for one in (padded, plain)] == list(names)  # banks conflict without padding
    assert 0 < padded["predicted_us"] < plain["predicted_us"]
    assert {one["verdict"] for one in (padded, plain)} == {"proven"}
    fault = content["planted"]
    assert fault["verdict"] == "failed"
    assert fault["kind"] in ("race", "uninitialised read")
    text = render(find_variant(FAMILIES, fault["name"], {})).splitlines()
    assert text[fault["line"] - 1].strip() == "__syncthreads();"
    counted = rehearse.predicted

    def some(one: Rehearsed, *rest: Any) -> Any:
        return None if one.variant.name == names[0] else counted(one, *rest)

    monkeypatch.setattr(rehearse, "predicted", some)
    shown = run("tune").out
    assert "__global__ void" in shown
    assert f"was deleted from line {fault['line']}" in shown
    assert "Proven, but not ranked: 1. Such a variant does not take these sizes" in shown
    refused = CompileError(names[0], "not here", Path("not.cu"))
    proven = Rehearsed(variants[0], None, refused, Verdict(variants[0], "proven", 3))
    assert [*_Progress((two,), results={names[0]: proven}).left_out()] == [
        "The minute was over before 1 of the variants were proven.",
        "Proven, but not ranked, since the minute was over: 1.",
    ]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_sample_takes_the_sizes_that_stand_for_its_class_and_begins_with_what_is_often_fast(
    family: Family[Any],
) -> None:
    limits = Limits.of("sm_90")
    found = sample(family, limits)
    if found is None:
        assert family.name in ("probe", "system", "merge")
        return
    extents = family.representative(found.spec, found.shape_class)
    assert found.variants[0] == next(heuristic_variants(family, found.spec, found.shape_class, limits))
    assert len({one.algorithm.name for one in found.variants}) > 1
    for one in found.variants:
        assert one.algorithm.unsupported_extents(one.spec, one.config, extents, limits) is None


@pytest.mark.usefixtures("oracle")
def test_a_rehearsal_takes_specs_of_no_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    shown = run("tune", "probe_set_row_read_row_16x16_b8", "--json")
    assert (shown.status, shown.data["left_out"]) == (0, [])
    assert {one["name"].partition("__")[0] for one in shown.data["variants"]} == {"probe_set_row_read_row_16x16_b8"}
    assert all(one["compiled"] and one["verdict"] == "proven" for one in shown.data["variants"])
    spec = gen.stencil([1.0, 2.0, 1.0], word="mine")
    ended = run("tune", gen.remember(spec), "--budget", "1e-9", "--json")
    assert ended.status == 1
    assert "Give --budget more" in ended.err
    left_out = ended.data["left_out"]
    assert left_out == [made.name for made in of_spec(FAMILIES[2], spec, True, Limits.of("sm_90"))]


@pytest.mark.usefixtures("oracle", "alone")
def test_tune_rehearses_where_a_gpu_is_if_it_is_told_an_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.gpu.device import GpuInfo

    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: GpuInfo("NVIDIA T4", Limits.of("sm_75")))
    shown = run("tune", SUM, "--arch", "sm_80")
    assert shown.status == 0
    for words in ("sm_80", "NVIDIA T4", "Nothing was measured"):
        assert words in shown.out


@pytest.mark.parametrize(
    "options",
    [("--shape", "64x64"), ("--shape", "64x64", "--param", "steps=9"), ("--verify",), ("--prune", "none"),
     ("--frozen", "--gpu", "3"), ("--class", "any"), ("--alignment", "3"), ("--stale", "--prune", "none"),
     ("--compiler", "nvcc"), ("--param", "steps=3")],
)  # fmt: skip
def test_tune_refuses_what_only_a_gpu_can_do(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    named = " and ".join(option for option in options if option.startswith("--"))
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    shown = run("tune", "transpose", *options)
    assert shown.status == 1
    assert f"error: {named} need" in shown.err
    assert "GPU (got none here)" in shown.err
    contradicted = run("tune", *options, "--arch", "sm_80")
    assert contradicted.status == 2
    assert "(got --arch sm_80)" in contradicted.err


def test_a_count_comes_with_a_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.gpu.device import GpuInfo

    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: GpuInfo("NVIDIA T4", Limits.of("sm_75")))
    shown = run("tune", "stencil", "--param", "steps=9")
    assert shown.status == 2
    assert "error: --param must come with --shape: a shape class has its own runtime parameters" in shown.err
    for command in ("explain", "ladder"):
        assert "error: --param must be NAME=N" in run(command, "transpose", "--param", "nreps").err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("reduction_sum_f32__shfl_tpb128_u1", "tuning chooses the variant (got 'reduction_sum_f32__shfl_tpb128_u1')"),
        ("transposeSmem", "tuning chooses the variant (got 'transposeSmem'). Give transpose_10_b32"),
        ("out/transpose_10_b32__naive.cu", "tuning chooses the variant (got 'out/transpose_10_b32__naive.cu')"),
        (
            "transposeSmmem",
            "must be a family or a spec, FAMILY_LABEL, such as reduction_sum_f32 (got 'transposeSmmem')",
        ),
        ("transpos", "Did you mean transpose"),
        ("transpose_10_b3", "Did you mean transpose_10_b32?"),
        ("", "must be a family or a spec, FAMILY_LABEL"),
    ],
)
def test_tune_takes_no_variant_and_says_the_same_with_a_gpu_and_without(
    name: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gen.gpu.device import GpuInfo

    said = []
    for device in (GpuInfo("NVIDIA T4", Limits.of("sm_75")), None):
        monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0, device=device: device)
        shown = run("tune", name)
        assert (shown.status, shown.out) == (2, "")
        said.append(shown.err)
    assert says in said[0]
    assert said == [said[0]] * 2


@pytest.mark.usefixtures("oracle", "alone")
def test_a_rehearsal_ends_with_its_budget_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    shown = run("tune", SUM, "--budget", "1e-9")
    assert shown.status == 1
    assert "Left out for want of time: 1 variant of reduction_sum_f32." in shown.out
    assert "proven on the CPU" not in shown.out
    assert run("tune", SUM, "--budget", "1e-9", "--json").data["left_out"] == [
        find_variant(FAMILIES, "reduceShfl", {}).name
    ]
    ample = run("tune", SUM, "--budget", "1h", "--json")
    assert (ample.status, ample.data["left_out"], len(ample.data["variants"])) == (0, [], 1)


@pytest.mark.usefixtures("oracle", "alone")
def test_a_rehearsal_compiles_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC takes Ctrl-C for itself while it compiles."""

    def here(*_: object) -> None:
        pytest.fail("It compiles in this process.")

    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    monkeypatch.setattr("gen.toolchain.nvrtc.Nvrtc._compile", here)
    (one,) = run("tune", SUM, "--json").data["variants"]
    assert one["compiled"] is True
