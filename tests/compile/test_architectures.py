"""Each architecture that NVRTC compiles for goes through all that asks for one, and some that it does not know do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gen.arch import Limits
from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.names import base_variants, find_family, find_variant, variant
from gen.families.stencil.algorithms.temporal import TemporalConfig
from gen.paths import output_home
from gen.store.trials import Problem
from gen.toolchain.compiled import Compiled, Resources
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.device import Entrant
from gen.tune.prune import Pruning
from tests.fake_tuning import FakeTuningDevice, let_tune_find

COMPILED = Nvrtc(None).architectures
# Of each architecture one, and of suffixes each once, which change nothing but what is compiled.
WALKED = [arch for arch in COMPILED if arch[-1] not in "af" or arch in ("sm_90a", "sm_103f", "sm_121a", "sm_121f")]
UNKNOWN = ("sm_72", "sm_130a")  # to the table, and to NVRTC 13.0
STENCIL = find_family(FAMILIES, "stencil")
PROBE = "probe_aos2_f32"
KERNEL = f"{PROBE}__records_tpb128_u4"
# What needs more than the oldest has, and the compute capability from which on it is there.
NEEDY = {
    find_variant(FAMILIES, "reduction_sum_f32__cluster_tpb512_u2_v16_bpm0_c8", {}): (9, 0),
    variant(STENCIL, STENCIL.catalogue[0], "temporal", TemporalConfig(steps=4)): (8, 0),
}
OUT = str(output_home())  # what is built is kept between runs of the tests, by content


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments, prog_name="gen")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


def test_all_from_turing_to_blackwell_are_there() -> None:
    assert {"sm_75", "sm_87", "sm_90a", "sm_100f", "sm_103", "sm_110", "sm_121", "sm_121a", "sm_121f"} <= set(COMPILED)


def test_every_family_says_what_runs_there() -> None:
    for arch in (*COMPILED, *UNKNOWN):
        limits = Limits.of(arch)
        for family in FAMILIES:
            for made in base_variants(family, family.catalogue[0]):
                assert made.algorithm.infeasible(made.spec, made.config, limits) is None, arch
        for made, least in NEEDY.items():
            reason = made.algorithm.infeasible(made.spec, made.config, limits)
            assert (reason is None) == (limits.compute_capability >= least), arch


@pytest.mark.parametrize("arch", WALKED)
def test_what_can_be_compiled_is_looked_at(arch: str) -> None:
    status, out, err = run("resources", KERNEL, "--arch", arch, "--home", OUT)
    assert (status, out.splitlines()[0]) == (0, f"{KERNEL} on {arch}")
    stood_in = err
    status, out, err = run("explain", KERNEL, "--arch", arch, "--shape", "2048x2", "--home", OUT)
    assert (status, out.splitlines()[0]) == (0, f"{KERNEL} on {arch}, at n 2048")
    known = Limits.of(arch).stand_in
    assert err == stood_in == ("" if known is None else f"{known}\n")  # once a run


@pytest.mark.parametrize("arch", ["sm_9", "sm_999"])
def test_every_command_refuses_an_architecture_in_the_same_words(arch: str, tmp_path: Path) -> None:
    spec, said = "reduction_sum_f32", set()
    for command in (
        ("resources", KERNEL), ("show", spec), ("show", spec, "--shape", "64"), ("export", spec, "-o", str(tmp_path)),
        ("tune",), ("tune", spec), ("ladder", "reduction"), ("explain", KERNEL),
        *[("render", KERNEL), ("render", spec, "--shape", "64")][: 2 * (arch == "sm_9")],  # needs no compiler
    ):  # fmt: skip
        status, out, err = run(*command, "--arch", arch, *(() if command[0] == "export" else ("--home", OUT)))
        assert (status, out) == (2, ""), command
        said.add(err.splitlines()[-1].replace("; or fermi, fermi-uncached, kepler", ""))
    (only,) = said
    assert only.startswith("error: The architecture must be ")


@pytest.mark.parametrize("arch", ["sm_70", *UNKNOWN])
def test_what_cannot_be_compiled_is_said(arch: str) -> None:
    for command in ("resources", "explain"):
        status, out, err = run(command, KERNEL, "--arch", arch, "--home", OUT)
        assert (status, out) == (2, "")
        assert "error: The architecture must be one that nvrtc" in err
        assert f"(got '{arch}')" in err
        assert ("those of sm_" in err) == (arch != "sm_70")


@pytest.mark.parametrize("arch", [*WALKED, *UNKNOWN])
def test_it_is_pruned_and_tuned_there(arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, limits = find_variant(FAMILIES, KERNEL, {}), Limits.of(arch)
    rules = Pruning(Problem(made.family, made.spec, {"n": 2**26}), limits)
    used = Compiled(made.name, arch, b"", {made.name: Resources(32, 0, 0, 0, 0, 0)})
    assert rules.before_compiling(made) is None
    assert rules.before_timing(Entrant(made, used)) is None
    let_tune_find(FakeTuningDevice(limits=limits), monkeypatch)
    status, out, err = run("tune", PROBE, "--home", str(tmp_path))
    assert (status, "records_tpb" in out) == (0, True), err
    assert err.count("those of sm_") == (limits.stand_in is not None)
