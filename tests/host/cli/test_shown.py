"""What there is: help, version, lists, the text of a kernel, what is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gen
from gen.cli import output
from gen.cli.common import (
    complete_any,
    complete_family,
    complete_family_or_spec,
    complete_spec,
    complete_spec_or_variant,
)
from gen.cli.doctor import Finding, examine
from gen.emit.folder import all_of_catalogue
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.families.stencil import StencilSpec
from gen.paths import output_home
from gen.store.winners import all_winners
from tests.host.cli.command import CHECKOUT, run, start

COMMANDS = (
    "list",
    "render",
    "generate",
    "prove",
    "resources",
    "doctor",
    "tune",
    "calibrate",
    "show",
    "compare",
    "report",
)


def test_a_shell_completes_families_specs_and_kernels_of_the_literature(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reduceShfl" in complete_any("reduceS")
    assert {"transpose", "transpose_10_b32"} <= set(complete_family_or_spec("transp"))
    assert complete_any("absent") == []
    assert all_winners(output_home())[0].variant in complete_spec_or_variant("")
    assert complete_family("st") == ["stencil"]
    assert {"transpose", "transposeSmem"}.isdisjoint(complete_spec("transp"))  # gen compare and gen export refuse these
    assert "transpose" not in complete_spec_or_variant("transp")
    monkeypatch.setenv("_GEN_COMPLETE", "complete_bash")  # as Bash asks for completions
    monkeypatch.setenv("COMP_WORDS", "gen show reduceS")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert "reduceShfl" in run().out.split()


def test_the_help_names_every_command_and_the_exit_statuses() -> None:
    for arguments in ((), ("--help",)):
        shown = run(*arguments)
        assert shown.status == 0
        assert all(command in shown.out for command in COMMANDS)
        assert "Exit status" in shown.out


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_shows_an_example(command: str) -> None:
    shown = run(command, "--help")
    assert not re.search(r"<(bool|str|list|int)", shown.out)  # types of Python say nothing that a metavar does not
    assert shown.status == 0
    assert f"gen {command}" in shown.out.partition("Examples:")[2]


def test_options_that_are_rarely_needed_are_shown_on_demand() -> None:
    usual, all_of_them = run("tune", "--help").out, run("tune", "--help-all").out
    assert {*re.findall(r"--[a-z-]+", usual)} < {*re.findall(r"--[a-z-]+", all_of_them)}
    for rare in ("--frozen", "--class", "--alignment", "--prune", "--part"):
        assert (rare in usual, rare in all_of_them) == (False, True)
    assert run("tune", "--help").out == usual  # what was shown once is not shown from then on
    for command in ((), ("compare",), ("spec", "stencil")):  # which have none
        assert run(*command, "--help-all").out == run(*command, "--help").out


def test_what_is_compiled_is_logged_if_asked(tmp_path: Path) -> None:
    logged, quiet = (start(*flags, "resources", "reduceShfl", "--home", str(tmp_path / name)).stderr for name, flags in
                     (("logged", ["-v"]), ("quiet", [])))  # fmt: skip
    assert re.search(r"^info: NVRTC on reduction_sum_f32__shfl_\w+ for sm_90: \d+ ms$", logged, re.MULTILINE)
    assert quiet == ""


def test_an_algorithm_without_a_config_for_the_catalogue_says_why() -> None:
    listed = json.loads(run("list", "--json").out)
    algorithms = [one for family in listed["families"] for one in family["algorithms"]]
    assert any(one["legal_configs"] == 0 for one in algorithms)
    for one in algorithms:
        assert (one["why_none"] is None) == (one["legal_configs"] > 0)
        assert "None" not in str(one["why_none"] or "")
    assert (
        "none for transpose_10_b32: elements of 4 bytes and more are whole words: they need no shifting"
        in run("list").out
    )


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
    counted = sum(
        a["searched_configs"] for family in run("list", "--json").data["families"] for a in family["algorithms"]
    )
    assert counted == len({(made.algorithm, made.config) for made in all_of_catalogue(FAMILIES)})


def test_list_shows_the_same_as_tables_of_one_family_if_asked() -> None:
    shown = run("list", "transpose")
    assert shown.status == 0
    for name in ("transpose_10_b32", "naive", "tiled", "block_rows", "transposeSmemPad"):
        assert name in shown.out
    assert "reduction" not in shown.out
    assert not any(line.endswith(" ") for line in shown.out.splitlines())


@pytest.mark.parametrize(
    ("columns", "least", "most"),
    [("60", 40, 60), ("100", 70, 100), ("", 120, 240), ("0", 120, 240), ("wide", 120, 240)],
)
def test_lists_are_as_wide_as_columns_says_and_break_no_line_where_it_says_nothing(
    columns: str, least: int, most: int
) -> None:
    shown = start("list", "probe", env={**os.environ, "COLUMNS": columns})
    assert least < max(len(line) for line in shown.stdout.splitlines()) <= most


def test_render_prints_the_text_and_nothing_else() -> None:
    made = find_variant(FAMILIES, "reduceShfl", {})
    assert run("render", "reduceShfl").out == render(made)
    assert run("render", made.name).out == render(made)


def test_an_architecture_without_figures_is_said_to_have_those_of_the_nearest() -> None:
    shown = run("show", "reduction_sum_f32", "--shape", "100", "--arch", "sm_88")
    assert shown.status == 0
    assert "sm_88" in shown.err
    assert "sm_89" in shown.err


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


def test_doctor_fails_only_for_what_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    required = {finding.name for finding in examine() if finding.required}
    assert required == {"Python", "gen", "NVRTC", "cuda-bindings", "CUDA headers", "g++"}
    for status in (0, 1):
        missing = Finding("a tool", None, "this", "that cannot be done", "install it so", False, bool(status))
        monkeypatch.setattr("gen.cli.doctor.examine", lambda _, missing=missing: (missing,))
        shown = run("doctor")
        assert shown.status == status
        assert "that cannot be done" in shown.out
        assert "install it so" in shown.out
        data = run("doctor", "--json")
        assert data.status == status
        assert data.data["findings"][0]["required"] == bool(status)


def test_bars_say_what_how_far_and_how_long_yet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # which has rich take the stream for a terminal
    monkeypatch.setenv("COLUMNS", "120")
    with output.bars() as update:
        update("kernels", 0, 4)
        update("kernels", 1, 4)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert re.search(r"kernels \S+ 1/4 \d:\d\d:\d\d gone, \S+ to go", shown), shown
    monkeypatch.delenv("FORCE_COLOR")
    with output.bars() as update:
        update("kernels", 0, 4)
    assert capsys.readouterr() == ("", ""), "a pipe gets no bars"


def test_commands_stand_below_what_they_are_for() -> None:
    shown = run("--help").out
    headings = (
        "Look at kernels",
        "Find the fastest on a GPU",
        "See and keep",
        "Programs and kernels of your own",
        "This machine",
    )
    parts = re.split("|".join(headings), shown)
    for part, first in zip(parts[1:], ("list", "tune", "show", "export", "doctor"), strict=True):
        assert re.search(r"^\W*(\w+)", part.partition("\n")[2], re.MULTILINE)[1] == first  # type: ignore[index]
    assert "─ Commands ─" not in shown, "a command stands below no heading"
