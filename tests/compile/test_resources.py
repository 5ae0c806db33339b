"""`gen resources`: what a variant occupies, from the compiler's report and arithmetic."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gen
from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.base import Launch, Limits, Plan
from gen.families.config import pairwise
from gen.families.expr import constant
from gen.families.names import find_spec, find_variant, search_space, variant
from gen.families.reduction import GridConfig
from gen.toolchain.compiled import Compiled, Resources
from gen.toolchain.usage import largest, usage
from tests.fake_family import fake_variant

LIMITS = Limits.of("sm_90")
GRID = "reduction_sum_f32__grid_tpb256_u2_v16_bpm4"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEN_HOME", str(tmp_path))


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["resources", *arguments], prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def data(*arguments: str) -> Any:
    status, out, err = run(*arguments, "--json")
    assert status == 0, err
    return json.loads(out)


def test_json_has_what_the_compiler_reports_and_what_follows_from_it() -> None:
    found = data("transposeSmemPad")
    (kernel,) = found["kernels"]
    assert found["name"] == kernel["kernel"] == "transpose_10_b32__tiled_t32_r8_p1_u1"
    assert (found["arch"], found["needed_bytes_in_flight"]) == ("sm_90", 32768)
    assert kernel["threads_per_block"] == 256
    assert kernel["static_shared_bytes"] == 32 * 33 * 4
    assert kernel["spill_store_bytes"] == kernel["spill_load_bytes"] == kernel["dynamic_shared_bytes"] == 0
    assert 0 < kernel["registers"] <= 64
    occupancy = kernel["occupancy"]
    assert occupancy["blocks"] == min(occupancy[key] for key in ("by_registers", "by_shared_memory", "by_threads"))
    assert occupancy["warps"] == 8 * occupancy["blocks"]
    assert occupancy["fraction"] == occupancy["warps"] / 64
    assert occupancy["limiters"]
    assert kernel["resident_blocks"] == occupancy["blocks"]
    # A quarter of the tile's 32 rows each: four elements of four bytes.
    assert kernel["bytes_in_flight"] == 16 * 256 * kernel["resident_blocks"]


def test_the_table_names_every_kernel_its_limiter_and_the_bytes_in_flight() -> None:
    status, out, _ = run("reduceUnrolling8")
    assert status == 0
    assert "reduction_sum_f32__interleaved_tpb128_u8 on sm_90" in out
    for word in ("registers", "spilled", "shared", "occupancy", "limiter", "_copy", "(main)", "_finish", "threads"):
        assert word in out
    assert f"{8 * 4 * 2048} bytes in flight" in out
    assert "sm_90 needs 32768" in out
    assert "is not known" in run("reduceUnrolling8", "--arch", "sm_75")[1]


def test_a_spec_with_a_shape_is_the_variant_that_a_call_gets() -> None:
    found = data("reduction_sum_f32", "--shape", "2^20")
    chosen = gen.choose(find_spec(FAMILIES, "reduction_sum_f32", {})[1], (2**20,), arch="sm_90")
    assert (found["name"], found["extents"]["n"]) == (chosen.variant.name, 2**20)
    assert data(GRID, "--shape", "2^10")["kernels"][0]["resident_blocks"] < data(GRID)["kernels"][0]["resident_blocks"]
    status, _, err = run("transposeSmem", "--shape", "4x4x4")
    assert (status, "must have 2 axes" in err) == (2, True)


def test_a_grid_that_is_no_larger_keeps_fewer_blocks_resident_than_fit() -> None:
    (kernel,) = data(GRID)["kernels"]
    assert kernel["occupancy"]["blocks"] > kernel["resident_blocks"] == 4
    assert kernel["bytes_in_flight"] == 2 * 16 * 256 * 4


def test_the_architecture_counts() -> None:
    by_arch = {arch: data(GRID, "--arch", arch)["kernels"][0]["occupancy"] for arch in ("sm_75", "sm_86", "sm_90")}
    assert [found["by_threads"] for found in by_arch.values()] == [4, 6, 8]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("reduceShfl", "--arch", "sm_1"), "The architecture must be sm_ and the digits"),
        (("reduceShfl", "--arch", "sm_70"), "The architecture must be one that nvrtc "),
        (("reduceShuffle",), "Did you mean reduceShfl"),
    ],
)
def test_a_name_that_finds_nothing_is_bad_usage(arguments: tuple[str, ...], said: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_the_help_shows_an_example() -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert "gen resources" in out.partition("Examples:")[2]


def test_dynamic_shared_memory_and_setup_come_from_the_plan() -> None:
    one, block = constant(1), (128, 1, 1)
    plan = Plan(
        (
            Launch((constant(9999), one, one), block, (), entry="_copy", setup=True),
            Launch((constant(9999), one, one), block, (), shared_bytes=constant(100_000)),
            Launch((constant(200), one, one), block, (), shared_bytes=constant(100_000)),
        )
    )
    made = fake_variant("staged", (), plan)
    used = Resources(40, 0, 0, 0, 1024, 0)
    compiled = Compiled(made.name, "sm_90", b"", {made.name: used, made.name + "_copy": used})
    copy, main = usage(made, compiled, LIMITS, {})  # a kernel launched twice alike is listed once
    assert (copy.setup, main.setup) == (True, False)
    assert (copy.dynamic_shared_bytes, main.dynamic_shared_bytes) == (0, 100_000)
    assert main.occupancy.limiter == "shared memory"
    assert main.occupancy.blocks == main.resident_blocks == 2
    assert copy.bytes_in_flight is main.bytes_in_flight is None  # a fake says nothing of its loads


@pytest.mark.parametrize("name", ["reduceUnrolling4", "transposeUnroll4Row", "transposeSmemUnrollPad"])
def test_the_largest_problem_fills_the_device(name: str) -> None:
    made = find_variant(FAMILIES, name, {})
    plan, sizes = made.plan, {**largest(made, LIMITS), **LIMITS.sizes()}
    assert max(launch.grid[0].at(sizes) for launch in plan.launches) > 16 * LIMITS.multiprocessors


def test_the_largest_problem_is_one_that_the_variant_takes() -> None:
    for family in FAMILIES:
        for spec, algorithm in product(family.catalogue, family.algorithms.values()):
            for config in pairwise(search_space(algorithm, spec)):
                extents = largest(variant(family, spec, algorithm, config), LIMITS)
                assert algorithm.unsupported_extents(spec, config, extents, LIMITS) is None


def test_every_algorithm_says_how_many_bytes_it_has_in_flight() -> None:
    for family in FAMILIES:
        for algorithm in family.algorithms.values():
            for spec in family.catalogue:
                for config in search_space(algorithm, spec):
                    bytes_each = algorithm.bytes_in_flight(spec, config)
                    assert bytes_each > 0, variant(family, spec, algorithm, config).name
                    assert bytes_each % min(operand.dtype.size for operand in spec.operands) == 0
    grid = FAMILIES[0].algorithms["grid"]
    assert grid.bytes_in_flight(FAMILIES[0].catalogue[0], GridConfig(unroll=8, vec_bytes=16)) == 128


def test_what_cannot_run_on_an_architecture_is_not_compiled_for_it() -> None:
    name = "reduction_sum_f32__cluster_tpb512_u2_v16_bpm0_c8"
    status, out, err = run(name, "--arch", "sm_80")
    assert (status, out) == (2, "")
    assert err == (
        f"error: {name} cannot run on sm_80: thread block clusters need sm_90 or later. "
        "Give --arch another architecture\n"
    )
