"""`gen explain`: numbers and words of single variants, and of two beside each other."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.extents import told_extents
from gen.families.names import find_variant
from gen.paths import cache_home, output_home
from gen.report.explain import METRICS
from gen.toolchain.sass import CACHE_OPERATORS, asked_for, disassembler, holds_operator, instructions, parse

OUT = str(output_home())  # what is built is kept between runs of the tests, by content


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["explain", *arguments, "--home", OUT], prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def data(*arguments: str) -> Any:
    status, out, err = run(*arguments, "--json")
    assert status == 0, err
    return json.loads(out)


def one(*arguments: str) -> Any:
    (found,) = data(*arguments)["explained"]
    return found


def test_padding_is_what_frees_the_banks() -> None:
    status, out, _ = run("transposeSmem", "--vs", "transposeSmemPad")
    assert status == 0
    assert "changes padding from 0 to 1" in out
    assert "Bank conflicts fall" in out
    assert "begin in other banks" in out
    found = data("transposeSmem", "--vs", "transposeSmemPad")
    assert [(row["name"], row["one"], row["other"]) for row in found["parameters"]] == [("padding", "0", "1")]
    smem, padded = (explained["metrics"] for explained in found["explained"])
    assert (smem["conflict_degree"], padded["conflict_degree"]) == (16.5, 1)
    assert smem["predicted_us"] > 1.4 * padded["predicted_us"]
    assert found["explained"][0]["bound"] == "load and store units"
    assert found["explained"][1]["bound"] == "memory"


def test_padding_is_no_reason_where_another_algorithm_is_compared() -> None:
    told = data("transposeSmem", "--vs", "reduceShfl")["changes"]
    assert any("Bank conflicts fall" in line for line in told)
    assert not any("padding begin in other banks" in line for line in told)
    assert "algorithm from tiled to shfl" in told[1]
    assert not any("-" in line.split() for line in told)


def test_what_has_no_common_measure_is_said() -> None:
    told = data("transposeSmem", "--vs", "reduceShfl")["changes"]
    assert told[0].startswith("They compute different things, transpose_10_b32 and reduction_sum_f32:")
    assert "their speeds have no common measure" in told[0]
    assert not any("times the speed" in line for line in told)


def test_different_problems_are_named_and_compared_by_bytes_a_second() -> None:
    _, out, _ = run("transposeSmem", "--vs", "transposeSmemNrepsLaunches", "--shape", "512x512")
    assert "p0_u1 at b32, rows 512, cols 512 and transpose_turn_b32" in out.splitlines()[0]
    assert "The problems differ: b32, rows 512, cols 512, and b32, rows 512, cols 512, nreps 10." in out
    assert "by the least bytes of each problem over its time the model expects" in out
    assert "It moves" not in out
    told = data("readOffset", "--vs", "AoS")["changes"]
    assert any("f32, n 2^26, and f32, n 2^25" in line for line in told)
    assert "For its problem it moves 2 times the least possible, and moved the least possible." in told


def test_lanes_that_wait_are_told() -> None:
    told = data("reduceNeighbored", "--vs", "reduceNeighboredLess", "--shape", "2^20")["changes"]
    assert any("of a warp's lanes take part" in line and "fewer wait" in line for line in told)


def test_differences_are_told_in_words_for_people() -> None:
    swizzled = "transpose_10_b32__tiled_t32_r8_p0_u1_swz"
    told = data("transposeSmem", "--vs", swizzled, "--shape", "512x512")["changes"]
    assert "swizzle from no to yes" in told[0]
    assert any("takes no more wavefronts than it must, and took 16.5 times" in line for line in told)
    told = data("stencil_1d", "--vs", "kernel_2dfd")["changes"]
    assert "spec weights from 9 numbers to 81 numbers" in told[0]
    assert "e+" not in " ".join(told)


def test_an_inlined_function_is_told_by_its_own_line_and_that_of_the_kernel() -> None:
    _, out, _ = run("stencil_1d", "--shape", "65536")
    (row,) = [line for line in out.splitlines() if " in " in line and " load " in line and "sectors" in line]
    assert "return in[" in row
    text = render(find_variant(FAMILIES, "stencil_1d", {})).splitlines()
    called = re.search(r"\(from line (\d+)\)", row)
    assert called is not None
    assert "(in, " in text[int(called[1]) - 1]


def test_a_kernel_without_shared_memory_is_not_said_to_stage_anything() -> None:
    _, out, _ = run("copyNrepsKernel", "--shape", "512x512")
    assert "go straight from the input to the output, without shared memory" in out
    assert "staged in shared memory" not in out
    assert "Padding" not in out
    assert "every element moves once each time it is asked for (nreps 10)" in out
    assert "no less is possible" not in out
    _, out, _ = run("transposeSmem", "--shape", "512x512")
    assert "staged in shared memory" in out
    assert "Padding" not in out


def test_a_problem_without_work_gets_no_advice() -> None:
    said = one("transposeSmem", "--shape", "0x5")["sentences"]
    assert said == ["The problem is empty: nothing is launched, and nothing moves."]
    said = one("transposeSmem", "--shape", "1x1")["sentences"]
    assert not any("unrolling" in sentence for sentence in said)
    assert any("a problem this small has no more to load" in sentence for sentence in said)


def test_every_metric_is_there_and_shown_with_its_meaning() -> None:
    found = one("transposeSmemPad", "--shape", "512x512")
    assert found["metrics"].keys() == {metric.key for metric in METRICS}
    assert told_extents(found["extents"]) == {"rows": 512, "cols": 512, "in_pitch": 512, "out_pitch": 512}
    assert found["least_bytes"] == 2 * 4 * 512 * 512 == found["metrics"]["moved_bytes"]
    assert (found["metrics"]["load_efficiency"], found["metrics"]["moved_over_least"]) == (1, 1)
    _, out, _ = run("transposeSmemPad", "--shape", "512x512")
    assert all(metric.meaning in out for metric in METRICS if found["metrics"][metric.key] is not None)
    assert "out[col * out_pitch + row] = tile" in out
    assert "free of bank conflicts" in out


def test_what_is_wasted_is_said_with_its_line() -> None:
    said = one("transposeNaiveCol", "--shape", "1024x1024")["sentences"]
    assert any("reads in at 12.5%" in sentence and "32 sectors where 4 would do" in sentence for sentence in said)
    aos = one("AoS", "--shape", "65536x2")
    assert aos["metrics"]["moved_over_least"] == 2
    assert any("8 sectors where 4 would do" in sentence for sentence in aos["sentences"])


def test_fused_steps_are_explained_at_as_many_steps() -> None:
    fused = one("stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12")
    assert fused["extents"]["steps"] == 12
    assert fused["bound"] == "instructions"  # the more steps a launch fuses, the less memory has to do with it
    assert one("stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12", "--param", "steps=24")["extents"]["steps"] == 24


def test_a_few_conflicts_neither_count_nor_are_denied() -> None:
    said = one("stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12")["sentences"]
    assert sum("anks" in sentence or "onflicts" in sentence for sentence in said) == 1
    assert any("too few to matter" in sentence for sentence in said)


def test_a_sector_that_is_hardly_used_is_not_said_to_be_one_too_many() -> None:
    said = one("reduceSmem", "--shape", "2^20")["sentences"]
    assert any("uses 4 bytes of the 32 of its sector" in sentence for sentence in said)
    assert not any("1 sectors where 1 would do" in sentence for sentence in said)
    assert any("; threads allow no more." in sentence for sentence in said)


def test_an_offset_costs_a_fifth_of_the_sectors() -> None:
    assert one("readOffset11", "--shape", "65536")["metrics"]["load_efficiency"] == pytest.approx(0.8, abs=0.002)
    assert one("readOffset128", "--shape", "65536")["metrics"]["load_efficiency"] == pytest.approx(1, abs=0.002)


def test_constant_memory_is_no_global_load() -> None:
    _, out, _ = run("stencil_1d", "--shape", "65536")
    (row,) = [line for line in out.splitlines() if "load, constant" in line]
    assert "weights[0][x]" in row
    assert "1 of 1 wavefronts" in row
    assert "Constant memory holds weights: all lanes of a warp read the same address at once" in out
    _, out, _ = run("stencil_1d_read_only", "--shape", "65536")
    assert "load, read-only" in out
    found = data("stencil_1d", "--vs", "stencil_1d_gmem", "--shape", "65536")
    const, gmem = (explained["metrics"] for explained in found["explained"])
    assert const["load_efficiency"] < 1 < gmem["load_efficiency"]
    assert const["moved_bytes"] < gmem["moved_bytes"]


def test_repetitions_move_as_many_times_the_bytes() -> None:
    found = {count: one("copyNrepsKernel", "--shape", "64x64", "--param", f"nreps={count}") for count in (1, 3)}
    assert found[3]["extents"] == {**found[1]["extents"], "nreps": 3}
    assert found[3]["metrics"]["moved_bytes"] == 3 * found[1]["metrics"]["moved_bytes"]


def test_the_same_twice_has_no_difference() -> None:
    found = data("reduceShfl", "--vs", "reduceShfl", "--shape", "65536")
    assert found["parameters"] == []
    assert found["changes"] == ["Both are the same variant."]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("transposeSmen",), "Did you mean transposeSmem"),
        (("transposeSmem", "--vs", "nothing"), "(got 'nothing')"),
        (("transposeSmem", "--shape", "5"), "--shape must be a shape that transpose_10_b32 takes: in must have 2 axes"),
        (
            ("reduction_sum_f32",),
            "and this is a spec (got 'reduction_sum_f32'). gen show reduction_sum_f32 lists variants of it, such as",
        ),
        (("transposeSmem", "--shape", "many"), "--shape must be numbers"),
        (("transposeSmem", "--arch", "sm_1"), "The architecture must be sm_ and the digits"),
        (("transposeSmem", "--arch", "pascal"), "sm_100f; or fermi, fermi-uncached, kepler (got 'pascal')"),
        (("transposeSmem", "--arch", "sm90"), "sm_90, sm_90a"),
        (
            ("reduction_sum_f32__cluster_tpb512_u2_v16_bpm0_c8", "--arch", "sm_80"),
            "cannot run on sm_80: thread block clusters need sm_90 or later",
        ),
        (
            ("diagonal-square", "--shape", "64x96"),
            "does not take this problem: its block order needs as many tiles down as across",
        ),
        (("copyNrepsKernel", "--param", "reps=3"), "--param must be one of nreps (got 'reps')"),
        (("transposeSmem", "--param", "nreps=3"), "--param must be left out: no kernel here has runtime parameters"),
    ],
)
def test_bad_usage_is_answered(arguments: tuple[str, ...], says: str) -> None:
    status, out, err = run(*arguments)
    assert (status, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_what_no_cpu_runs_points_to_the_ladder() -> None:
    status, out, err = run("gpuRecursiveReduce", "--shape", "65536")
    assert (status, out) == (1, "")
    assert "On a GPU gen ladder reduction shows what it takes" in err


def test_what_moved_on_the_gpus_of_the_literature_is_shown() -> None:
    _, out, _ = run("copyRow", "--arch", "fermi", "--shape", "512x512")
    assert "copy_b32__naive_row_x16_y16_u1 on fermi, at b32, rows 512, cols 512: what moves" in out
    assert "Loads are 50.00% efficient." in out
    assert "2 lines" in out
    assert "us" not in out.split()  # no time is predicted
    for name, turns in (("setRowReadCol", 16), ("setRowReadCol32x16", 8)):
        (found,) = data(name, "--arch", "kepler")["moved"]
        (load,) = [a for a in found["accesses"] if (a["space"], a["kind"]) == ("shared", "load")]
        assert load["wavefronts"] == turns * load["requests"]
        assert f"{turns} of 1 wavefronts" in run(name, "--arch", "kepler")[1]


SASS = """
	.section	.text.kern,"ax",@progbits
.text.kern:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
        /*0010*/              @!P0 LDG.E.EF R4, desc[UR4][R2.64] ;
        /*0020*/         @UP1 UIADD3 UR4, UPT, UPT, UR4, 0x1, URZ ;
        /*0030*/                   STG.E desc[UR4][R6.64], R4 ;
        /*0040*/                   EXIT ;
.L_x_1:
        /*0050*/                   BRA `(.L_x_1);
        /*0060*/                   NOP;
	.section	.text.kern_finish,"ax",@progbits
        /*0000*/                   EXIT ;
"""


def test_instructions_are_counted_by_kernel() -> None:
    found = parse(SASS)
    assert found == {
        "kern": Counter({"LDC": 1, "LDG.E.EF": 1, "UIADD3": 1, "STG.E": 1, "EXIT": 1, "BRA": 1}),
        "kern_finish": Counter({"EXIT": 1}),
    }
    assert holds_operator(found["kern"], "__ldcs")
    assert not holds_operator(found["kern"], "__ldcg")
    assert not holds_operator(found["kern"], "__stcs")


def use_of(intrinsic: str) -> str:
    """A kernel that copies a number with an intrinsic."""
    body = f"out[0] = {intrinsic}(in);" if intrinsic.startswith("__ld") else f"{intrinsic}(out, *in);"
    return f'extern "C" __global__ void use{intrinsic}(const float* in, float* out) {{ {body} }}\n'


@pytest.fixture(scope="module")
def uses() -> Mapping[str, Counter[str]]:
    """The instructions of a kernel for every cache operator, and of one without."""
    from gen.toolchain.nvrtc import Nvrtc

    program = disassembler()
    assert program is not None, "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm"
    plain = 'extern "C" __global__ void plain(const float* in, float* out) { out[0] = *in; }\n'
    text = plain + "".join(map(use_of, CACHE_OPERATORS))
    return instructions(Nvrtc(cache_home(Path(OUT))).compile("uses", text, "sm_90").cubin, program)


@pytest.mark.parametrize("intrinsic", CACHE_OPERATORS)
def test_a_cache_operator_that_is_asked_for_is_in_the_machine_code(
    intrinsic: str, uses: Mapping[str, Counter[str]]
) -> None:
    assert holds_operator(uses[f"use{intrinsic}"], intrinsic), uses[f"use{intrinsic}"]
    assert not holds_operator(uses["plain"], intrinsic)


def test_an_operator_that_a_variant_asks_for_is_said_to_be_there_or_not() -> None:
    streaming = one("transpose_10_b32__tiled_t32_r8_p1_u1_stcs", "--shape", "64x64")
    assert "Its stores ask for __stcs, which is in the machine code (.EF)." in streaming["sentences"]
    config = find_variant(FAMILIES, "transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldcs", {}).config
    assert list(asked_for(config, Counter({"LDG.E.128": 4}))) == [
        "Its loads ask for __ldcs, which is not in the machine code (.EF)."
    ]
    kept = one("transpose_10_b32__interleave_cols_n3_tpb128_ldel_stel", "--shape", "4096x3")["sentences"]
    assert "What its loads bring is to leave the caches last, which is in the machine code (.EL)." in kept
    assert "What its stores write is to leave the L2 last, by a policy that no opcode shows." in kept
    plain = find_variant(FAMILIES, "transpose_10_b32__interleave_cols_n3_tpb128_ldel", {}).config
    assert list(asked_for(plain, Counter({"LDG.E.128.CONSTANT": 4}))) == [
        "What its loads bring is to leave the caches last, which is not in the machine code (.EL)."
    ]
    assert not any("ask for" in sentence for sentence in one("reduceShfl", "--shape", "64")["sentences"])
