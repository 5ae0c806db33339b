"""What `gen trials` lists, leaves out and exports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.predict import read_table
from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.store.trials import FILE, Trials
from tests.host.test_trial_files import ROW, WRONG

SLOW = replace(ROW, key="a", variant="transpose_10_b32__naive_x32", algorithm="naive", times_us=(20.0,), others=())
SUM = replace(ROW, key="b", spec="reduction_sum_f32", variant="reduction_sum_f32__shfl", extents={"n": 2**20})
EXTENTS = {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 64}
ALL = (SLOW, WRONG, replace(ROW, extents=EXTENTS), replace(SUM, device="NVIDIA A100"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with some trials."""
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "home"))
    store = Trials(tmp_path / "home")
    store.add(ALL)
    store.close()
    return tmp_path / "home"


def gen(*arguments: str | Path, status: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "250"}).invoke(app, ["trials", *map(str, arguments)], prog_name="gen")
    assert result.exit_code == status, result.output
    return result.output


def keys(*arguments: str) -> set[str]:
    return {row["key"] for row in json.loads(gen(*arguments, "--json"))}


@pytest.mark.usefixtures("home")
def test_a_name_that_nothing_has_is_answered_with_the_nearest_that_something_has(tmp_path: Path) -> None:
    for at in ((), ("--home", tmp_path / "empty")):
        assert "Did you mean transpose_10_b32" in gen("transpose_10_b23", *at, status=2)
        assert "(got 'nosuch'). gen trials lists what was tuned" in gen("nosuch", *at, status=2)
        assert "Did you mean reduceShfl" in gen("reduceShf", *at, status=2)
        assert "must be one of" in gen("transpose_10_b32__nosuch", *at, status=2)
    assert "No trial is recorded" in gen("stencil", "--home", tmp_path / "empty")
    assert "No trial is like that" in gen("stencil")
    assert "No trial is like that" in gen("reduction_max_i32")
    assert "No trial is like that" in gen("transpose_10_b32", "--status", "timeout")


def test_a_variant_is_named_by_its_number_and_as_the_literature_calls_it(home: Path) -> None:
    numbered = json.loads(CliRunner().invoke(app, ["show", "reduction_sum_f32", "--json"]).stdout)["choices"][0]
    padded = find_variant(FAMILIES, "transposeSmemPad", {}).name
    store = Trials(home)
    store.add([replace(ROW, key="c", variant=padded), replace(SUM, key="d", variant=numbered["variant"])])
    store.close()
    assert keys("transposeSmemPad") == {"c"}
    assert keys(f"reduction_sum_f32:{numbered['number']}") == {"d"}


@pytest.mark.usefixtures("home")
def test_without_a_filter_there_is_a_line_for_each_problem() -> None:
    lines = gen().splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["NVIDIA", "A100", "reduction_sum_f32", "1048576", "1", "1", "0", "10.25", "shfl"]
    assert lines[2].split()[5:] == ["64x96", "2", "2", "0", "10.25", "tiled_t64_r8_p1_u1"]
    assert lines[3].split()[5:] == ["64x96", "at", "4", "bytes", "1", "0", "1"]
    assert "Name a spec to list its trials" in lines[4]


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["transpose"], {"a", "1f", "2e"}),
        (["transpose_10_b32"], {"a", "1f", "2e"}),
        ([ROW.variant], {"1f", "2e"}),
        (["--status", "wrong_result"], {"2e"}),
        (["--device", "a100"], {"b"}),
        (["--shape", "64x96", "--status", "ok"], {"a", "1f"}),
        (["--shape", "2^20"], {"b"}),
        (["--algorithm", "naive"], {"a"}),
    ],
)
def test_filters_leave_the_rest_out(arguments: list[str], found: set[str]) -> None:
    assert keys(*arguments) == found


@pytest.mark.usefixtures("home")
def test_trials_stand_fastest_first_with_what_is_to_be_known_of_them() -> None:
    lines = gen("transpose").splitlines()
    assert [line.split()[0] for line in lines[1:4]] == [ROW.variant, SLOW.variant, WRONG.variant]
    assert "beside process 7 (python3), 512 MiB" in lines[1]
    assert 'out: 3 "elements" µ' in lines[3]
    assert "1 more; --limit shows them." in gen("transpose", "--limit", "2")
    assert "No trial is like that" in gen("--status", "timeout")


def test_text_of_others_cannot_disturb_a_terminal(home: Path) -> None:
    store = Trials(home)
    store.add([replace(ROW, key="theirs", spec="theirs", variant="a\x1b[2J", reason="\x07")])
    store.close()
    assert "\x1b" not in gen("theirs")
    assert "\x07" not in gen()
    assert (home / FILE).is_file()


def test_what_is_exported_says_how_many(tmp_path: Path, home: Path) -> None:
    exported = tmp_path / "trials.json"
    assert gen("transpose", "--export", exported) == f"3 trials are in {exported}.\n"
    assert len(json.loads(exported.read_text())["results"]) == 3
    assert home.is_dir()


@pytest.mark.usefixtures("home")
def test_a_program_reads_json_whatever_it_asked_for(tmp_path: Path) -> None:
    exported = tmp_path / "trials.json"
    assert json.loads(gen("--export", exported, "--json")) == {"trials": 4, "file": str(exported), "form": "t4"}
    assert [row["median_us"] for row in json.loads(gen("transpose", "--limit", "1", "--json"))] == [
        min(row.median_us or 99.0 for row in ALL if row.spec == ROW.spec)
    ]
    assert "more; --limit shows them" in gen("--limit", "1")


@pytest.mark.usefixtures("home")
def test_a_table_is_exported_by_its_name(tmp_path: Path) -> None:
    place = tmp_path / "h100.csv.gz"
    gen("--export", place)
    assert len(list(read_table(place))) == 4


@pytest.mark.usefixtures("home")
def test_files_that_cannot_be_used_are_errors_in_words(tmp_path: Path) -> None:
    assert "cannot be written" in gen("--export", tmp_path / "no" / "folder.json", status=1)
    assert "--limit and --export do not go together" in gen("--limit", "3", "--export", "b", status=2)
    assert "--shape must be numbers joined by x" in gen("--shape", "wide", status=2)
    assert "--status must be one of ok, wrong_result" in gen("--status", "lost", status=2)


def test_where_nothing_was_recorded_that_is_said_and_nothing_is_made(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    assert "No trial is recorded in" in gen("--home", empty)
    assert json.loads(gen("--home", empty, "--json")) == []
    assert "must hold trials for --export" in gen("--home", empty, "--export", tmp_path / "all.json", status=1)
    assert list(tmp_path.iterdir()) == []
