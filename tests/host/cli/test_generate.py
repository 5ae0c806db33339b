"""`gen generate`: what it writes, what it removes, and what it calls stale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import gen
from gen.emit.folder import all_of_catalogue, base_of_catalogue
from gen.emit.render import render
from gen.errors import GenError
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.store.winners import read_winners
from tests.host.cli.command import run


def test_generate_writes_the_catalogue_once(home: Path) -> None:
    first = run("generate", "--json").data
    variants = {made.name for made in base_of_catalogue(FAMILIES)} | {won.variant for won in read_winners(home)}
    expected = {f"{name}.cu" for name in variants}
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


def test_generate_leaves_the_specs_alone_that_were_written_down(home: Path) -> None:
    mine = gen.remember(gen.stencil(gen.box(2, 2)), home=home)
    gen.remember(gen.permutation((0, 3, 1, 2), "f2"), home=home)  # whose name says all of it
    before = (home / "specs.json").read_text()
    assert json.loads(before)["specs"].keys() == {mine}
    run("generate")
    assert run("generate", "--check").status == 0
    assert (home / "specs.json").read_text() == before
    assert run("show", mine).status == 0


def test_a_torn_file_of_specs_stays_until_it_is_mended(home: Path) -> None:
    home.mkdir()
    (home / "specs.json").write_text("{torn")
    with pytest.raises(GenError, match="move it away"):
        gen.remember(gen.stencil(gen.box(2, 2)), home=home)
    assert (home / "specs.json").read_text() == "{torn"
    (home / "specs.json").unlink()
    assert gen.remember(gen.stencil(gen.box(2, 2)), home=home)


def test_generate_writes_what_was_tuned(home: Path) -> None:
    home.mkdir()
    made = find_variant(FAMILIES, "reduceShfl", {})
    winner = {"device": "H100", "spec": "reduction_sum_f32", "shape": "any", "variant": made.name}
    (home / "tuned.json").write_text(json.dumps({"schema": 1, "winners": [winner]}))
    assert f"{made.name}.cu" in run("generate", "--json").data["changed"]
    assert (home / f"{made.name}.cu").read_text() == render(made)


def test_generate_all_writes_every_variant_that_tuning_tries_there_and_nothing_at_home(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = tuple(family for family in FAMILIES if family.name in ("probe", "system", "merge"))  # of the fewest variants
    monkeypatch.setattr("gen.cli.generate.families_of", lambda _: few)
    assert run("generate", "--all", "--home", tmp_path / "all").status == 0
    expected = {f"{made.name}.cu" for made in all_of_catalogue(few)}
    assert {path.name for path in (tmp_path / "all").iterdir()} == expected
    assert not home.exists()
