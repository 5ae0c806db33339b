"""What every command prints, where it prints it, and the status it ends with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gen
from gen.cli.app import app
from gen.cli.doctor import OPTIONAL
from gen.doctor import Finding, examine
from gen.emit.generate import all_of_catalogue, base_of_catalogue
from gen.emit.render import render
from gen.errors import MissingToolError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.names import find_variant
from gen.families.stencil import StencilSpec
from gen.proof.cases import cases_of
from gen.store.tuned import read_winners
from gen.tune.processes import Host
from gen.tune.select import feasible
from gen.tune.verdicts import Verdict, verdicts
from tests.fakes import OracleRunner

CHECKOUT = Path(__file__).parents[2]
COMMANDS = ("list", "render", "generate", "prove", "resources", "doctor", "tune", "calibrate", "show", "bench")


class Ended:
    """How a command ended."""

    def __init__(self, arguments: Sequence[str]) -> None:
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(arguments), prog_name="gen")
        self.status, self.out, self.err = result.exit_code, result.stdout, result.stderr
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def run(*arguments: str | Path) -> Ended:
    """Runs a command in this process. What is no planned end fails the test."""
    return Ended([str(argument) for argument in arguments])


def start(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gen", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False, **options
    )


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results that no other test has."""
    folder = tmp_path / "home"
    monkeypatch.setenv("GEN_HOME", str(folder))
    return folder


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> OracleRunner:
    """Proofs run on NumPy, on few cases."""
    runner = OracleRunner()
    monkeypatch.setattr("gen.tune.verdicts.cases_of", lambda *asked: tuple(cases_of(*asked))[::9])

    def prove(host: Host, variants: Any) -> Iterator[Verdict]:
        return verdicts(runner, variants, seed=host.seed, kept=host.kept)

    monkeypatch.setattr(Host, "verdicts", prove)
    monkeypatch.setattr("gen.cli.prove.compiler_at_hand", lambda _: None)
    return runner


def test_the_help_names_every_command_and_the_exit_statuses() -> None:
    for arguments in ((), ("--help",)):
        shown = run(*arguments)
        assert shown.status == 0
        assert all(command in shown.out for command in COMMANDS)
        assert "Exit status" in shown.out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_an_example(command: str) -> None:
    shown = run(command, "--help")
    assert shown.status == 0
    assert f"gen {command}" in shown.out.partition("Examples:")[2]


def test_the_version_is_gens() -> None:
    assert run("--version").out == f"gen {gen.__version__}\n"


def test_the_command_line_loads_nothing_heavy_before_a_command_runs() -> None:
    code = (
        "import sys, gen.cli.app; print([m for m in ('numpy', 'jinja2', 'cuda', 'gen.families') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_list_as_json_has_every_family_algorithm_parameter_and_named_variant() -> None:
    listed = run("list", "--json").data["families"]
    assert [family["name"] for family in listed] == [family.name for family in FAMILIES]
    for family, content in zip(FAMILIES, listed, strict=True):
        assert [algorithm["name"] for algorithm in content["algorithms"]] == list(family.algorithms)
        for algorithm in content["algorithms"]:
            fields = family.algorithms[algorithm["name"]].config.parameters()
            assert [parameter["name"] for parameter in algorithm["parameters"]] == [field.field for field in fields]
            for parameter in algorithm["parameters"]:
                assert parameter.keys() == {"name", "label", "values", "base", "off", "help"}
                assert parameter["base"] in parameter["values"]
        assert {named["name"] for named in content["named_variants"]} == {named.name for named in family.named}
        for named in content["named_variants"]:
            assert find_variant(FAMILIES, named["name"], {}).name == named["variant"]


def test_list_counts_what_generate_all_writes() -> None:
    counted = sum(a["legal_configs"] for family in run("list", "--json").data["families"] for a in family["algorithms"])
    assert counted == len({(made.algorithm, made.config) for made in all_of_catalogue(FAMILIES)})


def test_list_shows_the_same_as_tables_of_one_family_if_asked() -> None:
    shown = run("list", "transpose")
    assert shown.status == 0
    for name in ("transpose_10_b32", "naive", "tiled", "block_rows", "transposeSmemPad"):
        assert name in shown.out
    assert "reduction" not in shown.out
    assert not any(line.endswith(" ") for line in shown.out.splitlines())


def test_render_prints_the_text_and_nothing_else() -> None:
    made = find_variant(FAMILIES, "reduceShfl", {})
    assert run("render", "reduceShfl").out == render(made)
    assert run("render", made.name).out == render(made)


def test_render_as_json_says_what_the_kernel_is() -> None:
    content = run("render", "reduceShfl", "--json").data
    made = find_variant(FAMILIES, "reduceShfl", {})
    assert content["name"] == made.name
    assert content["text"] == render(made)
    assert content["config"] == made.config.to_json()
    assert content["spec"] == made.spec.to_json()
    assert [launch["kernel"] for launch in content["plan"]["launches"]] == [made.name, f"{made.name}_finish"]


def test_render_finds_a_spec_that_only_the_folder_of_results_knows(home: Path) -> None:
    spec = StencilSpec("mine", (0, 1, 0, 0, 2, 0, 0, 0, 0))
    name = f"stencil_{spec.label}__naive_x32_y2_u1"
    assert run("render", name).status == 2
    home.mkdir()
    content = {"schema": 1, "specs": {f"stencil_{spec.label}": spec.to_json()}}
    (home / "specs.json").write_text(json.dumps(content))
    shown = run("render", name)
    assert shown.status == 0
    assert name in shown.out


def test_generate_writes_the_catalogue_once(home: Path) -> None:
    first = run("generate", "--json").data
    variants = {made.name for made in base_of_catalogue(FAMILIES)} | {won.variant for won in read_winners(home)}
    expected = {f"{name}.cu" for name in variants} | {"specs.json"}
    assert set(first["changed"]) == {path.name for path in home.iterdir()} == expected
    times = {path: path.stat().st_mtime_ns for path in home.iterdir()}
    again = run("generate", "--json").data
    assert (again["changed"], again["removed"], again["unchanged"]) == ([], [], len(expected))
    assert {path: path.stat().st_mtime_ns for path in home.iterdir()} == times


def test_check_shows_what_is_stale_and_changes_nothing(home: Path) -> None:
    run("generate")
    assert run("generate", "--check").status == 0
    path = next(home.glob("reduction*.cu"))
    path.write_text(path.read_text().replace("constexpr", "const"))
    edited = path.read_text()
    shown = run("generate", "--check")
    assert shown.status == 1
    assert "-const int kThreadsPerBlock" in shown.out
    assert "+constexpr int kThreadsPerBlock" in shown.out
    assert "gen generate" in shown.err
    assert path.read_text() == edited
    data = run("generate", "--check", "--json")
    assert data.status == 1
    assert data.data["stale"] is True


def test_generate_removes_its_own_old_kernels_and_leaves_other_files_alone(home: Path) -> None:
    run("generate")
    old, foreign = home / "reduction_sum_f32__shfl_tpb128_u1.cu", home / "mine.cu"
    old.write_text(run("render", "reduceShfl").out)
    foreign.write_text("// mine\n")
    assert run("generate", "--check").status == 1
    assert run("generate", "--json").data["removed"] == [old.name]
    assert foreign.is_file()
    assert not old.exists()


def test_generate_writes_what_was_tuned(home: Path) -> None:
    home.mkdir()
    made = find_variant(FAMILIES, "reduceShfl", {})
    winner = {"device": "H100", "spec": "reduction_sum_f32", "shape": "any", "variant": made.name}
    (home / "tuned.json").write_text(json.dumps({"schema": 1, "winners": [winner]}))
    assert f"{made.name}.cu" in run("generate", "--json").data["changed"]
    assert (home / f"{made.name}.cu").read_text() == render(made)


def test_generate_all_writes_every_legal_variant_there_and_nothing_at_home(home: Path, tmp_path: Path) -> None:
    assert run("generate", "--all", tmp_path / "all").status == 0
    expected = {f"{made.name}.cu" for made in all_of_catalogue(FAMILIES)}
    assert {path.name for path in (tmp_path / "all").iterdir()} == expected
    assert not home.exists()


@pytest.mark.usefixtures("oracle")
def test_prove_shows_every_verdict() -> None:
    shown = run("prove")
    assert shown.status == 0
    data = run("prove", "--json").data
    assert data["failed"] == 0
    assert data["proven"] + data["skipped"] == len(data["variants"])
    assert data["proven"] > len(base_of_catalogue(FAMILIES))
    assert all(one["name"] in shown.out and one["verdict"] in ("proven", "skipped") for one in data["variants"])
    skipped = {one["name"]: one["reason"] for one in data["variants"] if one["verdict"] == "skipped"}
    recursive = ("gpuRecursiveReduce", "gpuRecursiveReduceNosync", "gpuRecursiveReduce2")
    assert skipped.keys() == {find_variant(FAMILIES, name, {}).name for name in recursive}
    assert all("it is proven on a GPU only" in reason for reason in skipped.values())
    assert "reduction_sum_f32__nested_tpb512_sync and 2 more skipped:" in shown.out


def test_prove_takes_every_algorithm_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def prove(_: Host, variants: Any) -> Iterator[Verdict]:
        return (Verdict(made, "proven", 1) for made in variants)

    monkeypatch.setattr(Host, "verdicts", prove)
    monkeypatch.setattr("gen.cli.prove.compiler_at_hand", lambda _: None)
    base, everything = (run("prove", *options, "--json").data for options in ((), ("--all-algorithms",)))
    assert everything["proven"] == len(everything["variants"]) > base["proven"]
    assert {one["name"] for one in base["variants"]} < {one["name"] for one in everything["variants"]}


def test_prove_prints_a_failure_whole_keeps_it_and_ends_with_1(oracle: OracleRunner, home: Path) -> None:
    bad = find_variant(FAMILIES, "transposeSmemPad", {}).name
    oracle.wrong = (bad,)
    shown = run("prove", "transpose")
    assert shown.status == 1
    assert f"{bad} failed:" in shown.out
    assert "rows" in shown.out.partition(f"{bad} failed:")[2]
    data = run("prove", "transpose", "--json")
    assert data.status == 1
    failed = [(one["name"], one["kind"]) for one in data.data["variants"] if one["verdict"] == "failed"]
    assert failed == [(bad, "wrong result")]
    assert "failed: wrong result" in shown.out
    lines = (home / "failed_cases.jsonl").read_text().splitlines()
    assert [json.loads(line)["variant"] for line in lines] == [bad]
    assert f"1 failing case is kept in {home / 'failed_cases.jsonl'}" in " ".join(shown.err.split())
    assert run("prove", "transposeSmem").status == 0


def test_prove_runs_the_emitted_text() -> None:
    content = run("prove", "reduceShfl", "--seed", "5", "--json", "--out", CHECKOUT / "out").data
    assert content["seed"] == 5
    (one,) = content["variants"]
    assert one["verdict"] == "proven"
    assert one["cases"] >= 30


def test_tune_compiles_and_proves_and_says_what_a_gpu_would_measure(
    oracle: OracleRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gen.tune.device.find_device", lambda _index=0: None)
    shown = run("tune", "reduceShfl", "--arch", "sm_80")
    assert shown.status == 0
    counts = {arch: feasible(FAMILIES[0], FAMILIES[0].catalogue[0], Limits.of(arch)) for arch in ("sm_80", "sm_90")}
    for words in ("sm_80", "no GPU here", f"{counts['sm_80']} feasible variants", "read bandwidth"):
        assert words in shown.out
    content = run("tune", "reduceShfl", "--json").data
    assert content["arch"] == "sm_90"
    assert content["measured"] is False
    (one,) = content["variants"]
    assert one["compiled"] is True
    assert 10 <= one["registers"] <= 255
    assert [would["feasible"] for would in content["would_measure"]] == [counts["sm_90"]]
    oracle.wrong = (find_variant(FAMILIES, "reduceShfl", {}).name,)
    assert run("tune", "reduceShfl").status == 1


@pytest.mark.usefixtures("oracle")
def test_tune_rehearses_where_a_gpu_is_if_it_is_told_an_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.tune.device import Device

    monkeypatch.setattr("gen.tune.device.find_device", lambda _index=0: Device("NVIDIA T4", "sm_75"))
    shown = run("tune", "transposeSmem", "--arch", "sm_80")
    assert shown.status == 0
    for words in ("sm_80", "NVIDIA T4", "Nothing was measured"):
        assert words in shown.out


@pytest.mark.parametrize(
    "options",
    [("--shape", "64x64"), ("--shape", "64x64", "--count", "steps=9"), ("--budget", "5"), ("--verify",),
     ("--frozen", "--gpu", "3"), ("--class", "any"), ("--alignment", "3"), ("--regret", "--search", "random")],
)  # fmt: skip
def test_tune_refuses_what_only_a_gpu_can_do(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    named = " and ".join(option for option in options if option.startswith("--"))
    monkeypatch.setattr("gen.tune.device.find_device", lambda _index=0: None)
    shown = run("tune", "transpose", *options)
    assert shown.status == 2
    assert f"error: {named} need" in shown.err
    assert "GPU (got none here)" in shown.err
    assert "(got --arch sm_80)" in run("tune", *options, "--arch", "sm_80").err


def test_a_count_comes_with_a_shape() -> None:
    shown = run("tune", "stencil", "--count", "steps=9")
    assert shown.status == 2
    assert "error: --count must come with --shape: a shape class has its own counts" in shown.err
    for command in ("explain", "ladder"):
        assert "error: --count must be NAME=N" in run(command, "transpose", "--count", "nreps").err


def test_tune_does_not_rehearse_instead_of_what_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is a GPU, but nothing to talk to it with."""
    from gen.tune.device import Device

    def missing() -> None:
        raise MissingToolError("PyCUDA", "is needed to use a GPU")

    monkeypatch.setattr("gen.tune.device.find_device", lambda _index=0: Device("NVIDIA T4", "sm_75"))
    monkeypatch.setattr("gen.cli.gpu.importable", missing)
    shown = run("tune", "transpose", "--verify")
    assert (shown.status, "PyCUDA is needed to use a GPU" in shown.err) == (1, True)


def test_tune_on_a_gpu_takes_no_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    from gen.tune.device import Device

    monkeypatch.setattr("gen.tune.device.find_device", lambda _index=0: Device("NVIDIA T4", "sm_75"))
    shown = run("tune", "reduction_sum_f32__shfl_tpb128_u1")
    assert shown.status == 2
    assert "Give reduction_sum_f32" in shown.err


def test_doctor_fails_only_for_what_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {finding.name for finding in examine()} >= OPTIONAL
    for name, status in [("PyCUDA", 0), ("g++", 1)]:
        missing = Finding(name, None, "this", "that cannot be done", False, "install it so")
        monkeypatch.setattr("gen.doctor.examine", lambda missing=missing: (missing,))
        shown = run("doctor")
        assert shown.status == status
        assert "that cannot be done" in shown.out
        assert "install it so" in shown.out
        data = run("doctor", "--json")
        assert data.status == status
        assert data.data["findings"][0]["required"] == bool(status)


BAD_USAGE = [
    (("list", "reductoin"), "Did you mean reduction"),
    (("render", "reduceShf"), "Did you mean reduceShfl"),
    (("render", "reduction_sum_f32"), "FAMILY_SPEC__ALGORITHM_TAG"),
    (("render", "reduction_sum_f64__grid_tpb128_u1_v4_bpm1"), "vec_bytes 4 holds no f64"),
    (("render", "reduction_sum_f32__gird_tpb128"), "grid"),
    (("render", "reduction_sum_f32__grid_tpb100_u1_v4_bpm1"), "tpb128"),
    (("render", "transpose_10_b32__tiled_t64_r16_p0_u4"), "shared memory"),
    (("render", "stencil_heat_00000000_f32__naive_x32_y2_u1"), "stencil_heat"),
    (("prove", "transpos"), "Did you mean transpose"),
    (("prove", "--seed", "-1"), "--seed"),
    (("tune", "--arch", "sm_12"), "sm_90"),
    (("tune", "--arch", "sm_70"), "sm_75"),
    (("generate", "--out", __file__), "must be a folder"),
    (("generate", "--all", __file__), "must be a folder"),
    (("generate", "--all", "x", "--out", "y"), "--out"),
    (("--family", "no.such:Thing", "list"), "no.such:Thing"),
    (("--family", "gen.errors:GenError", "list"), "gen.errors:GenError"),
    (("nonsense",), "nonsense"),
    (("generate", "--nonsense"), "--nonsense"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD_USAGE, ids=lambda value: " ".join(value)[-60:])
def test_bad_usage_ends_with_2_and_says_what_would_do(arguments: tuple[str, ...], says: str) -> None:
    shown = run(*arguments)
    assert shown.status == 2
    assert shown.out == ""
    assert says in shown.err


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 9}', '{"schema": 1, "winners": [{"device": 1}]}', "\x00"])
def test_a_corrupt_file_of_winners_is_named(home: Path, content: str) -> None:
    home.mkdir()
    (home / "tuned.json").write_text(content)
    shown = run("generate")
    assert shown.status == 1
    assert "tuned.json" in shown.err


def test_a_winner_that_there_is_not_is_named(home: Path) -> None:
    home.mkdir()
    winner = {"device": "H100", "spec": "s", "shape": "any", "variant": "reduction_sum_f32__grid_tpb7"}
    (home / "tuned.json").write_text(json.dumps({"schema": 1, "winners": [winner]}))
    shown = run("generate")
    assert shown.status == 1
    assert "tuned.json" in shown.err
    assert "tpb7" in shown.err


@pytest.mark.parametrize("content", ["{", '{"schema": 1, "specs": {"stencil_mine_0_f32": {"weights": 7}}}'])
def test_a_corrupt_file_of_specs_ends_in_a_message(home: Path, content: str) -> None:
    home.mkdir()
    (home / "specs.json").write_text(content)
    shown = run("render", "stencil_mine_0_f32__naive_x32_y2_u1")
    assert shown.status in (1, 2)
    assert shown.err.startswith("error: ")
    assert run("render", "reduceShfl").status == 0


@pytest.mark.parametrize("command", ["generate", "prove"])
def test_a_folder_that_cannot_be_made_is_named(command: str) -> None:
    shown = run(command, "--out", f"{__file__}/below")
    assert shown.status == 1
    assert "below" in shown.err


def test_without_gxx_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    shown = run("prove", "reduceShfl")
    assert shown.status == 1
    assert "g++" in shown.err
    assert "nstall" in shown.err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gen.store.folder.base_of_catalogue", interrupted)
    assert run("generate").status == 130


@pytest.mark.usefixtures("oracle")
def test_a_family_from_outside_is_listed_generated_and_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from gen.families.reduction import Reduction\nclass Other(Reduction):\n    name = 'other'\n    named = ()\n"
    (tmp_path / "an_outside_family.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    outside = ("--family", "an_outside_family:Other")
    assert "other" in [family["name"] for family in run(*outside, "list", "--json").data["families"]]
    assert any(name.startswith("other_sum_f32__") for name in run(*outside, "generate", "--json").data["changed"])
    assert run(*outside, "prove", "other_sum_f32").status == 0


@pytest.mark.skipif(not hasattr(os, "pipe2"), reason="no pipes")
def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "gen", "list"], cwd=CHECKOUT, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(("redirection", "status"), [(">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("2>&- bogus", 2)])
def test_a_stream_may_be_closed_from_the_start(redirection: str, status: int) -> None:
    command = f'exec "$0" -m gen list {redirection}'
    done = subprocess.run(["sh", "-c", command, sys.executable], cwd=CHECKOUT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (status, b"")


@pytest.mark.parametrize(("package", "command"), [("typer", "doctor"), ("rich", "list"), ("jinja2", "render")])
def test_a_package_that_is_missing_is_named(package: str, command: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from gen.cli import main; main()"
    arguments = [sys.executable, "-c", code, command, *(["reduceShfl"] if command == "render" else [])]
    done = subprocess.run(arguments, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"error: The Python package {package} must be installed. Run: pip install gen-cuda\n"


def test_a_message_goes_to_stderr_without_a_traceback() -> None:
    done = start("render", "reduceShf")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
