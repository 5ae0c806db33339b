"""What `gen show` says of a spec and of a variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gen
from gen.arch import Limits
from gen.cli.app import app
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.gpu.device import GpuInfo
from gen.store import winners as store
from gen.store.stale import algorithms, provenance
from tests.fake_device import FakeDevice

SUM, LARGE = "reduction_sum_f32", "more than 2^20 elements"
TUNED = "reduction_sum_f32__grid_tpb256_u8_v16_bpm4_ldcs"
WINNER = {"device": "NVIDIA H100 80GB HBM3", "spec": SUM, "shape": LARGE, "variant": TUNED}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one winner, whose file is written."""
    monkeypatch.setenv("GEN_HOME", str(tmp_path))
    write(tmp_path, {**WINNER, "median_us": 355.2, "of_limit": 0.953})
    (tmp_path / f"{TUNED}.cu").write_text("// it")
    monkeypatch.setattr(store, "shipped", lambda _: None)
    here(monkeypatch, None)
    return tmp_path


def write(home: Path, *winners: dict[str, Any]) -> None:
    (home / "tuned.json").write_text(json.dumps({"schema": 1, "winners": winners}))


def here(monkeypatch: pytest.MonkeyPatch, device: GpuInfo | None) -> None:
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda: device)


def shown(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, ["show", *arguments], prog_name="gen")
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_spec(home: Path) -> None:
    text = shown(SUM)
    for part in (SUM, "The sum of all f32 elements", LARGE, TUNED, "355.2 us", "95.3 %", str(home / f"{TUNED}.cu")):
        assert part in text
    assert "Without a GPU: what gen.load gives on NVIDIA H100 80GB HBM3" in text
    (winner,) = json.loads(shown(SUM, "--json"))["winners"]
    assert winner["device"] == "NVIDIA H100 80GB HBM3"


def test_shape_classes_stand_in_the_order_of_the_family(home: Path) -> None:
    classes = ("at most 2^12 elements", "2^12 to 2^15 elements", "2^15 to 2^20 elements", LARGE)
    gone = "a class that was dropped"
    write(home, *({**WINNER, "shape": shape} for shape in sorted((*classes, gone))))
    winners = json.loads(shown(SUM, "--json"))["winners"]
    assert [winner["shape"] for winner in winners] == [*classes, gone]


def test_parts_of_a_class_stand_beside_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = {**WINNER, "variant": "reduction_sum_f32__shfl_tpb256_u8", "within": {"n": [0, 2**22]}}
    write(home, part, WINNER)
    here(monkeypatch, GpuInfo("NVIDIA H100 80GB HBM3", Limits.of("sm_90")))
    report = json.loads(shown(SUM, "--json"))
    words = [LARGE, f"{LARGE}, n up to 2^22"]
    assert [winner["for"] for winner in report["winners"]] == words
    assert [winner["within"] for winner in report["winners"]] == [{}, {"n": [0, 2**22]}]
    assert [one["variant"] for one in report["choices"] if one["shape"] in words] == [TUNED, part["variant"]]
    assert f"{LARGE}, n up to 2^22: {part['variant']}" in shown(SUM)


def test_a_spec_on_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, GpuInfo("NVIDIA H100 80GB HBM3", Limits.of("sm_90")))
    text = shown(SUM)
    assert "what gen.load gives on NVIDIA H100 80GB HBM3" in text
    assert f"tuned on NVIDIA H100 80GB HBM3 for {LARGE}: median 355.2 us, 95.3 % of the limit" in text
    assert "base, because nothing is tuned for reduction_sum_f32 (2^12 to 2^15 elements)" in text
    here(monkeypatch, GpuInfo("A GPU to come", Limits.of("sm_999")))
    assert json.loads(shown(SUM, "--json"))["device"] == "A GPU to come"


def test_numbers_and_short_names_save_typing() -> None:
    report = json.loads(shown(SUM, "--json"))
    numbers = {one["number"]: one["variant"] for one in (*report["winners"], *report["choices"])}
    assert sorted(numbers) == list(range(1, len(set(numbers.values())) + 1))
    for number, name in numbers.items():
        assert shown(f"{SUM}:{number}").startswith(name)
    text = shown(SUM)
    assert f"gen render {SUM}:1" in text
    whole = "transpose_10_b32__tiled_t64_r8_p1_u1"
    for short in ("transpose_10_b32__tiled_t64", "transpose_10_b32__tiled_t64_u1", whole):
        assert shown(short).startswith(whole)
    assert find_variant(FAMILIES, whole, {}).config.values()["tile_dim"] == 64
    for wrong, rule in (
        (f"{SUM}:99", "must be one from 1 to"),
        ("transpose_10_b32__tiled_t63", "one of t16, t32, t64"),
    ):
        refused = CliRunner().invoke(app, ["show", wrong], prog_name="gen")
        assert refused.exit_code == 2
        assert rule in refused.stderr


def test_a_variant(home: Path) -> None:
    text = shown(TUNED)
    assert f"File: {home / f'{TUNED}.cu'}" in text
    assert "355.2 us" in text
    other = shown("reduceShfl")
    assert "not written; gen render prints it" in other
    assert "It was chosen on no device" in other


def test_a_spec_that_nothing_is_tuned_for() -> None:
    assert "Nothing is tuned for it" in shown("transpose_10_b32")


def test_winners_edited_by_hand(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here(monkeypatch, GpuInfo("NVIDIA H100 80GB HBM3", Limits.of("sm_90")))
    write(home, {**WINNER, "variant": "../secret", "median_us": "fast"})
    (winner,) = json.loads(shown(SUM, "--json"))["winners"]
    assert (winner["median_us"], winner["file"]) == (None, None)
    assert "cannot be used" in shown(SUM)
    write(home, {**WINNER, "device": "NVIDIA H200", "variant": f"{SUM}__grid_tpb128_u3_v16_bpm2"})
    (winner,) = json.loads(shown(SUM, "--json"))["winners"]
    assert "u3" in winner["unusable"]
    assert f"{SUM}__grid_tpb128_u3_v16_bpm2 on NVIDIA H200 cannot be used: " in shown(SUM)
    (home / "tuned.json").write_text("{")
    assert "Nothing is tuned for it" in shown(SUM)


def test_a_time_of_too_many_digits(home: Path) -> None:
    write(home, {**WINNER, "median_us": 10**400, "of_limit": float("inf")})
    assert TUNED in shown(SUM)
    assert json.loads(shown(SUM, "--json"), parse_constant=pytest.fail)["winners"][0]["median_us"] is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("transposeSmmem", "such as reduction_sum_f32 (got 'transposeSmmem'). Did you mean transposeSmem"),
        ("transposesmem", "Did you mean transposeSmem?"),
        ("TRANSPOSE_0312_B16", "(got 'TRANSPOSE_0312_B16'). Did you mean transpose_0312_b16?"),
        ("transpose", "or a spec, FAMILY_LABEL, and this is a family (got 'transpose'). Its catalogue"),
        (f"none/{TUNED}.cu", f"(got 'none/{TUNED}.cu'). Did you mean {TUNED}?"),
    ],
)
def test_a_name_that_is_none_is_told_what_would_be_one(name: str, says: str) -> None:
    assert says in refused(name)


def test_a_file_stands_for_the_variant_whose_text_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "mine.cu"
    file.write_text(render(find_variant(FAMILIES, "reduceShfl", {})))
    assert shown(str(file)) == shown("reduceShfl")
    file.write_text(file.read_text() + "// changed\n")
    assert f"another text). gen prove {file}" in refused(str(file))


def test_a_name_that_is_none_is_told_what_is_written_down() -> None:
    name = gen.remember(gen.stencil([1.0], word="mine"))
    assert f"Did you mean {name}?" in refused(name.replace("stencil", "stencl"))
    assert f"Did you mean {name}?" in refused(name.replace("mine", "mien"))


def refused(name: str) -> str:
    result = CliRunner().invoke(app, ["show", name], prog_name="gen")
    assert result.exit_code == 2
    return result.stderr


@pytest.mark.parametrize("name", ["sum", "reduction_product_f32", "reduction_sum_f32__magic", "reduction"])
def test_a_name_that_is_none(name: str) -> None:
    result = CliRunner().invoke(app, ["show", name], prog_name="gen")
    assert result.exit_code == 2
    assert "error: " in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--arch", "sm_90")])
@pytest.mark.parametrize(("shape", "words"), [("2^28", "tuned on NVIDIA H100"), ("5000", "base")])
def test_a_shape_gets_what_load_gives(shape: str, words: str, arguments: tuple[str, ...]) -> None:
    device = FakeDevice(name="NVIDIA H100 80GB HBM3")
    size = int(shape.replace("2^28", str(2**28)))
    kernel = gen.load(SUM, shape=size, device=device)
    report = json.loads(shown(SUM, "--shape", shape, "--json", *arguments))
    assert (report["variant"], report["why"], report["tuned"]) == (kernel.variant, kernel.why, kernel.tuned)
    assert report["why"].startswith(words)
    assert kernel.variant in shown(SUM, "--shape", shape)
    chosen = gen.choose(SUM, size, arch="sm_90")
    assert (chosen.variant.name, chosen.why) == (kernel.variant, kernel.why)


def test_runtime_parameters_count() -> None:
    many, one = (
        json.loads(shown("stencil_heat_de794a2b_f32", "--shape", "512x4096", "--param", f"steps={steps}", "--json"))
        for steps in (100, 1)
    )
    assert many["variant"] != one["variant"]
    assert many["extents"]["steps"] == 100
    chosen = gen.choose("stencil_heat_de794a2b_f32", (512, 4096), steps=100)
    assert chosen.variant.name == many["variant"]


def test_a_gpu_without_winners_takes_its_siblings_and_says_so() -> None:
    device = FakeDevice(name="NVIDIA H100 PCIe")
    kernel = gen.load(SUM, shape=2**28, device=device)
    assert kernel.variant == TUNED
    assert not kernel.tuned
    assert "a sibling of NVIDIA H100 PCIe" in kernel.why
    assert gen.load(SUM, shape=2**28, device=FakeDevice(name="NVIDIA A100-SXM4-80GB")).variant != TUNED


def test_a_winner_whose_text_changed_is_stale_and_no_longer_trusted(home: Path) -> None:
    device = FakeDevice(name="NVIDIA H100 80GB HBM3")
    made = find_variant(FAMILIES, TUNED, {})
    evidence = {"extents": {"n": 2**28}, "within": {"n": [2**28, 2**28], "alignment": [16, 16]}}
    write(home, {**WINNER, **evidence, **provenance(made)})
    kernel = gen.load(SUM, shape=2**28, device=device)
    assert (kernel.variant, "stale" in kernel.why) == (TUNED, False)
    write(home, {**WINNER, **evidence, **provenance(made), "template": "0123456789abcdef"})
    assert "stale" not in gen.load(SUM, shape=2**28, device=device).why  # another comment in the template, say
    write(home, {**WINNER, **evidence, "text": "0123456789abcdef"})
    kernel = gen.load(SUM, shape=2**28, device=device)
    assert "stale" in kernel.why or kernel.variant != TUNED
    assert "is stale: its kernel has another text now" in shown(SUM)
    known = [one for one in algorithms(made.family, made.spec) if one != "flags"]
    write(home, {**WINNER, **evidence, **provenance(made), "algorithms": known})
    assert "is stale: flags came later" in shown(SUM)


@pytest.mark.parametrize("command", ["render", "explain"])
def test_a_spec_with_a_shape_means_what_load_gives(command: str) -> None:
    chosen = gen.choose(SUM, 5000, arch="sm_80").variant.name
    result = CliRunner(env={"COLUMNS": "400"}).invoke(app, [command, SUM, "--shape", "5000", "--arch", "sm_80"])
    assert result.exit_code == 0, result.output
    assert chosen in result.stdout.splitlines()[0]
