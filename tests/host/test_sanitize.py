"""What is run under compute-sanitizer, how, and on which arrays."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from bench import sanitize
from bench.runner import bytes_of
from bench.sanitize import command_of, jobs_of, parse
from bench.sanitizer.exact import ExactKernel, gaps_of
from bench.sanitizer.faults import FAULTS, TOOLS, Fault
from bench.sanitizer.jobs import PIECE, pieces
from bench.sanitizer.process import arguments_of, worker_arguments
from bench.sanitizer.worker import chosen, sizes_of
from gen.emit.render import render
from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.config import pairs
from gen.families.names import find_variant, search_space
from gen.gpu.kernel import CudaKernel
from gen.paths import cache_home, output_home
from gen.proof.cases import DRAWN, OFFSETS, Case
from gen.proof.host import HostRunner
from gen.proof.prover import check, prove, unsupported_extents
from gen.toolchain.compiled import Compiled
from tests.fake_device import LEAST, TRANSPOSE, FakeDevice
from tests.fakes import OracleRunner


def test_options_that_make_no_sense_are_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--tool", "leakcheck"], ["--family", "scan"], ["--cases", "0"], ["--jobs", "0"],
        ["--plant", "--family", "reduction"], ["--plant", "--name", "reduceShfl"],
        ["--name", "reduceShfl", "--family", "reduction"], ["--algorithm", "marching"],
        ["--algorithm", "march", "--family", "reduction"], ["--algorithm", "march", "--plant"],
        ["--algorithm", "shfl", "--name", "reduceShfl"],
    ):  # fmt: skip
        with pytest.raises(SystemExit) as caught:
            parse(arguments)
        assert caught.value.code == 2, arguments
    assert "memcheck, racecheck, initcheck, synccheck, not leakcheck" in capsys.readouterr().err


def test_every_tool_runs_on_every_variant_of_every_family_unless_told_otherwise() -> None:
    limits = Limits.of("sm_90")
    families = [family.name for family in FAMILIES]

    def run(*arguments: str) -> list[tuple[str, str]]:
        return [(job.tool, job.family) for job in jobs_of(parse([*arguments]), limits)]

    assert set(run("--jobs", "16")) == {(tool, family) for tool in TOOLS for family in families}
    assert set(run("--tool", "initcheck,memcheck", "--family", "stencil")) == {
        ("initcheck", "stencil"), ("memcheck", "stencil"),
    }  # fmt: skip
    assert run("--tool", "memcheck", "--name", "transposeSmem") == [("memcheck", "transpose")]
    planted = [job for job in jobs_of(parse(["--tool", "memcheck"]), limits) if job.planted]
    assert planted == jobs_of(parse(["--plant", "--tool", "memcheck"]), limits)
    assert dict(run("--plant")) == {
        "memcheck": "reduction", "racecheck": "transpose", "initcheck": "reduction", "synccheck": "reduction",
    }  # fmt: skip
    variants = chosen("reduction", limits, None)
    parts = [job.of(variants) for job in jobs_of(parse(["--family", "reduction", "--tool", "memcheck"]), limits)]
    assert sorted(made.name for part in parts for made in part) == sorted(made.name for made in variants)


def test_jobs_keep_all_workers_busy_to_the_end() -> None:
    jobs = pieces(TOOLS, {"reduction": 264, "probe": 12}, 16)
    sizes = [264 // job.parts if job.family == "reduction" else 12 for job in jobs]
    assert max(sizes) <= PIECE
    assert len(jobs) == len(set(map(str, jobs))) > 16
    assert jobs[0].family == "reduction"
    assert jobs[-1].family == "probe"
    assert [str(job) for job in pieces(["memcheck"], {"reduction": 264}, 1)] == ["memcheck reduction"]


def test_the_command_that_is_kept_runs_the_same_again() -> None:
    assert command_of(parse(["--json", "x.json"])) == "python -m bench.sanitize"
    words = ["--tool", "memcheck", "--family", "stencil", "--cases", "4"]
    assert command_of(parse(words)) == " ".join(["python -m bench.sanitize", *words])
    assert command_of(parse(["--plant"])) == "python -m bench.sanitize --plant"


def test_the_worker_is_started_under_the_tool() -> None:
    words = arguments_of("/opt/compute-sanitizer", "racecheck", ["--tool", "racecheck"])
    assert words[:3] == ["/opt/compute-sanitizer", "--tool", "racecheck"]
    assert words[words.index("--error-exitcode") + 1] == "9"
    assert words[words.index(sys.executable) + 1 :][:2] == ["-m", "bench.sanitize"]
    assert words[-3:] == ["--worker", "--tool", "racecheck"]
    assert "--padding" not in words
    assert "--padding" in arguments_of("cs", "memcheck", [])


def test_algorithms_of_several_families_are_run_alone_with_the_planted_faults() -> None:
    limits, options = Limits.of("sm_90"), parse(["--algorithm", "march,gather", "--cases", "6", "--jobs", "16"])
    jobs = jobs_of(options, limits)
    assert [job.tool for job in jobs if job.planted] == list(TOOLS)
    told = [parse(["--worker", *worker_arguments(job, options)]) for job in jobs]
    assert [one.algorithm for one in told] == [[] if job.planted else ["march", "gather"] for job in jobs]
    assert [(one.part, one.parts, one.plant) for one in told] == [(job.part, job.parts, job.planted) for job in jobs]
    ordinary = [job for job in jobs if not job.planted]
    assert {job.family for job in ordinary} == {"transpose", "stencil", "system"}
    for job in ordinary:
        variants = job.of(chosen(job.family, limits, None, options.algorithm))
        assert {made.algorithm.name for made in variants} <= {"march", "gather"}
        assert variants
    assert command_of(options) == "python -m bench.sanitize --algorithm march,gather --cases 6"


def test_every_pair_of_parameters_of_every_algorithm_is_run() -> None:
    limits = Limits.of("sm_90")
    for family in FAMILIES:
        variants = chosen(family.name, limits, None)
        for spec in family.catalogue:
            for algorithm in family.algorithms.values():
                run = [made.config for made in variants if made.algorithm is algorithm and made.spec == spec]
                assert frozenset().union(*map(pairs, run)) == frozenset().union(
                    *map(pairs, search_space(algorithm, spec, limits))
                )
    assert [made.algorithm.name for made in chosen("reduction", limits, "reduceShfl")] == ["shfl"]


def test_every_awkward_size_is_run_once() -> None:
    made = find_variant(FAMILIES, "reduceShfl", {})
    cases, count = sizes_of(made, sanitize.ALL)
    sizes = [case.extents["n"] for case in cases]
    awkward = [extents["n"] for extents in made.family.cases(made.spec)]
    assert sizes[: len(awkward)] == awkward
    assert len(sizes) == len(awkward) + len(list(made.edge_cases())) + DRAWN
    assert count == len(sizes)
    assert {case.offset for case in cases} == set(OFFSETS)
    few, count = sizes_of(made, 5)
    assert (len(few), count) == (5, len(sizes))
    assert few[0] == cases[0]
    assert sizes_of(made, 1)[0] == cases[:1]
    copies = find_variant(FAMILIES, "transpose_10_b32__flat_copy_tpb128_u2", {})
    limits = replace(Limits.of("sm_90"), multiprocessors=2)
    few, count = sizes_of(copies, 6)  # most matrices have several rows and columns
    assert (len(few), count) == (6, len(sizes_of(copies, sanitize.ALL)[0]))
    assert all(unsupported_extents(copies, case, limits) is None for case in few)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_planted_fault_changes_the_text_in_one_place(tool: str) -> None:
    fault = FAULTS[tool]
    made = find_variant(FAMILIES, fault.variant, {})
    assert fault.text(made) == render(made).replace(fault.old, fault.new) != render(made)


@pytest.mark.parametrize("tool", TOOLS)
def test_the_cpu_run_finds_a_planted_fault_too(tool: str) -> None:
    made = find_variant(FAMILIES, FAULTS[tool].variant, {})
    cases, _ = sizes_of(made, sanitize.ALL)
    for text, right in ((render, True), (FAULTS[tool].text, False)):
        (proof,) = prove(HostRunner(Limits.of("sm_90"), cache=cache_home(output_home()), text=text), [made], cases)
        assert (proof.failure is None) is right, str(proof.failure)


def test_a_fault_that_no_longer_fits_is_an_error() -> None:
    made = find_variant(FAMILIES, "reduceShfl", {})
    with pytest.raises(RunError, match="The fault for memcheck must fit reduceShfl once"):
        Fault("memcheck", "reduceShfl", "Invalid", "what the template says no more", "").text(made)


@pytest.mark.parametrize("blank", [False, True])
def test_a_kernel_runs_on_arrays_with_nothing_behind_them(blank: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    discarded: list[CudaKernel] = []

    def discard(kernel: CudaKernel) -> None:
        discarded.append(kernel)

    monkeypatch.setattr(CudaKernel, "discard_scratch", discard)
    cases = [case for case in sizes_of(TRANSPOSE, sanitize.ALL)[0] if size_of(case) < 2200]
    assert any(case.extents["out_pitch"] > case.extents["rows"] for case in cases)
    for case in cases:
        device, kernel = exact(blank)
        assert check(kernel, device.limits, case) is None
        assert len(discarded) == 1  # the same scratch for both runs of a case
        discarded.clear()
        assert min(device.allocated) >= LEAST  # less would be rounded up, behind the array
        if size_of(case):
            assert all(memory.written[-1] for memory in device.allocations)  # the array ends where its allocation ends


def test_an_output_that_is_not_written_shows_when_it_is_copied_back() -> None:
    case = next(case for case in sizes_of(TRANSPOSE, sanitize.ALL)[0] if case.extents["rows"] == 2)
    device, kernel = exact(True)
    device.skipping.add(TRANSPOSE.name)
    with pytest.raises(AssertionError, match="never written"):
        check(kernel, device.limits, case)
    device, kernel = exact(False)
    device.skipping.add(TRANSPOSE.name)
    assert check(kernel, device.limits, case) is not None


def exact(blank: bool) -> tuple[FakeDevice, ExactKernel]:
    device = FakeDevice(OracleRunner())
    device.enter()
    kernel = CudaKernel(TRANSPOSE, Compiled(TRANSPOSE.name, "sm_90", b"", {}), device, device.limits)
    return device, ExactKernel(TRANSPOSE, kernel, device, blank)


def size_of(case: Case) -> int:
    return case.extents["rows"] * case.extents["cols"]


def test_gaps_are_the_bytes_between_elements() -> None:
    block = np.zeros((3, 8), np.float32)
    assert gaps_of(block) == gaps_of(block[:, :0]) == gaps_of(np.zeros((), np.float32)) == []
    assert gaps_of(block[:, :6]) == [(24, 32), (56, 64)]
    assert gaps_of(block[:2, ::4]) == [(4, 16), (20, 32), (36, 48)]
    assert bytes_of(block[:, :6]).size == 2 * 32 + 24
    bytes_of(block[1:, :6])[0] = 255
    assert block.view(np.uint8)[1, 0] == 255
