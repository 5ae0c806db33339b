"""Files of specs and winners: read as written, and refused in words when they are anything else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.errors import StoreError
from gen.families import FAMILIES
from gen.families.extents import told_extents
from gen.families.names import find_spec, find_variant
from gen.families.regions import Bound, Region
from gen.paths import shipped
from gen.store import folder
from gen.store import winners as store
from gen.store.folder import read_specs, text_of_specs
from gen.store.winners import TUNED_FILE, Winner, all_winners, first_calls_of, merged, read_winners, text_of_winners
from gen.tune.verify import problem_of
from tests.strategies import json_values

WINNER = {"device": "H100", "spec": "reduction_sum_f32", "shape": "any size", "variant": "reduceShfl"}
READERS = {"specs.json": read_specs, "tuned.json": read_winners}
each_file = pytest.mark.parametrize("name", READERS)


def write(folder: Path, name: str, content: Any) -> Path:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def of_catalogues() -> dict[str, Any]:
    return {family.name_of(spec): spec.to_json() for family in FAMILIES for spec in family.catalogue}


def test_the_files_are_named_once() -> None:
    assert {folder.SPECS_FILE, TUNED_FILE} == READERS.keys()


def test_every_spec_of_the_catalogues_is_read_back(tmp_path: Path) -> None:
    known = read_specs(write(tmp_path, "specs.json", text_of_specs(of_catalogues())))
    catalogue = [(family, spec) for family in FAMILIES for spec in family.catalogue]
    assert len(known) == len(catalogue)
    for family, spec in catalogue:
        name = f"{family.name}_{spec.label}"
        assert family.from_json(known[name]) == spec
        assert find_spec(FAMILIES, name, known) == (family, spec)


def test_specs_are_written_sorted_one_a_line() -> None:
    text = text_of_specs(dict(reversed(of_catalogues().items())))
    assert text == text_of_specs(of_catalogues())
    lines = [line for line in text.splitlines() if line.startswith("    ")]
    assert lines == sorted(lines)
    assert len(lines) == sum(len(family.catalogue) for family in FAMILIES)
    assert text.endswith("}\n")


def test_without_a_file_no_specs_are_known(tmp_path: Path) -> None:
    assert read_specs(tmp_path) == {}
    assert read_specs(tmp_path / "absent") == {}


def test_winners_are_read_with_their_evidence(tmp_path: Path) -> None:
    write(tmp_path, "tuned.json", {"schema": 1, "winners": [{**WINNER, "us": 12.5, "driver": "580"}, WINNER]})
    evidence = {"us": 12.5, "driver": "580"}
    plain = Winner(WINNER["device"], WINNER["spec"], WINNER["shape"], WINNER["variant"], {})
    assert read_winners(tmp_path) == (replace(plain, evidence=evidence), plain)


def test_winners_for_parts_of_a_class_stand_beside_that_of_the_class(tmp_path: Path) -> None:
    plain = Winner(WINNER["device"], WINNER["spec"], WINNER["shape"], WINNER["variant"], {})
    narrow = replace(plain, region=Region((Bound("rows", 1, 64), Bound("alignment", 0, 8))))
    one = replace(plain, region=Region.exactly({"rows": 4, "alignment": 16}))
    write(tmp_path, "tuned.json", text_of_winners([narrow, one, plain]))
    found = read_winners(tmp_path)
    assert set(map(str, found)) == set(map(str, (plain, narrow, one)))
    assert text_of_winners(found) == (tmp_path / "tuned.json").read_text()
    assert [winner.words for winner in found] == [
        "any size",
        "any size, rows 4, aligned to 16 bytes",
        "any size, rows from 1 up to 64, aligned to 8 bytes at most",
    ]
    better = replace(narrow, variant="better")
    assert sorted(w.variant for w in merged(found, [better])) == ["better", plain.variant, plain.variant]


@pytest.mark.parametrize("within", [None, [], {"rows": 3}, {"rows": [5, 1]}, {"rows": ["1", None]}])
def test_bounds_that_are_none_are_refused(within: object, tmp_path: Path) -> None:
    write(tmp_path, "tuned.json", {"schema": 1, "winners": [{**WINNER, "within": within}]})
    with pytest.raises(StoreError, match=r"winner 0 must have bounds in 'within', such as"):
        read_winners(tmp_path)


def test_own_winners_lie_over_those_that_came_with_gen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    came, own = tmp_path / "shipped.json", tmp_path / "own"
    own.mkdir()
    other = {**WINNER, "device": "A100"}
    came.write_text(json.dumps({"schema": 1, "winners": [WINNER, other]}))
    monkeypatch.setattr(store, "shipped", lambda _: came)
    assert read_winners(own) == ()
    assert [(winner.device, winner.variant) for winner in all_winners(own)] == [
        ("H100", "reduceShfl"), ("A100", "reduceShfl")
    ]  # fmt: skip
    mine = {**WINNER, "variant": "reduceUnroll8"}
    write(own, "tuned.json", {"schema": 1, "winners": [mine]})
    assert [winner.variant for winner in all_winners(own)] == ["reduceUnroll8", "reduceShfl"]
    first_calls_of(own).parent.mkdir()
    first_calls_of(own).write_text(json.dumps({"schema": 1, "winners": [{**mine, "variant": "reduceShfl"}]}))
    assert [winner.variant for winner in all_winners(own)] == ["reduceShfl", "reduceShfl"]
    monkeypatch.setattr(store, "shipped", lambda _: own / "tuned.json")  # as of `--home out` in a checkout
    assert len(all_winners(own)) == 1
    monkeypatch.setattr(store, "shipped", lambda _: None)
    assert all_winners(tmp_path) == ()


def test_the_winners_that_come_with_gen_can_be_read(tmp_path: Path) -> None:
    came = shipped("tuned.json")
    assert came is not None
    winners = json.loads(came.read_text())["winners"]
    assert [winner.variant for winner in all_winners(tmp_path)] == [winner["variant"] for winner in winners]


# What gen wrote on 2026-11-22: specs, shape classes and variants by their names, and the problems they won.
OLDER = (
    ("probe_aos2_f32", "any size", "records_tpb128_u2", {"n": 1 << 25}),
    ("reduction_sum_f32", "2^15 to 2^20 elements", "grid_tpb256_u2_v16_bpm8_ldcg", {"n": 1 << 20}),
    ("reduction_sum_f32", "at most 2^12 elements", "single_tpb128_u4_v16_shared", {"n": 1 << 10}),
    ("stencil_heat_de794a2b_f32", "many steps", "temporal_v1_r8_n2_t16",
     {"rows": 8192, "cols": 8192, "in_pitch": 8192, "out_pitch": 8192, "steps": 48}),
    ("transpose_10_b32", "aligned rows", "tiled_t64_r8_p1_u1_ocol",
     {"rows": 8192, "cols": 8192, "in_pitch": 8192, "out_pitch": 8192}),
    ("transpose_10_b32", "few columns", "vector_tile_v8_x8_g32_swz_ocol_ldg",
     {"rows": 1 << 22, "cols": 16, "in_pitch": 16, "out_pitch": 1 << 22}),
)  # fmt: skip


@pytest.mark.parametrize(("spec", "shape", "tag", "extents"), OLDER, ids=[one[1] for one in OLDER])
def test_a_winner_of_an_older_gen_is_still_a_variant_and_of_a_problem(
    spec: str, shape: str, tag: str, extents: dict[str, int], tmp_path: Path
) -> None:
    entry = {"device": "H100", "spec": spec, "shape": shape, "variant": f"{spec}__{tag}", "extents": extents}
    write(tmp_path, "tuned.json", {"schema": 1, "winners": [entry]})
    (winner,) = read_winners(tmp_path)
    known = folder.known_specs(FAMILIES, tmp_path)
    assert find_variant(FAMILIES, winner.variant, known).name == winner.variant
    problem = problem_of(winner, FAMILIES, known)
    assert (problem.spec_name, problem.shape_class, told_extents(problem.extents)) == (spec, shape, extents)


@each_file
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "must be JSON"),
        ("{", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("\x00", "must be JSON"),
        ("[]", "must have schema 1"),
        ("null", "must have schema 1"),
        ("{}", "must have schema 1"),
        ('{"schema": 2, "winners": [], "specs": {}}', "must have schema 1"),
        ('{"schema": 1}', "must have"),
        ('{"schema": 1, "winners": {}, "specs": []}', "must have"),
        ('{"schema": 1, "winners": [3], "specs": {"a": 3}}', "must "),
    ],
)
def test_a_file_that_gen_would_not_write_is_refused_by_its_path(
    name: str, content: str, says: str, tmp_path: Path
) -> None:
    write(tmp_path, name, content)
    with pytest.raises(StoreError) as caught:
        READERS[name](tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert says in str(caught.value)


@each_file
def test_a_file_that_is_no_text_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b'{"schema": \xff}')
    with pytest.raises(StoreError, match="must be JSON"):
        READERS[name](tmp_path)


@pytest.mark.parametrize("key", WINNER)
def test_a_winner_without_one_of_its_texts_is_refused_by_its_place(key: str, tmp_path: Path) -> None:
    for value in (None, 3):
        write(tmp_path, "tuned.json", {"schema": 1, "winners": [WINNER, {**WINNER, key: value}]})
        with pytest.raises(StoreError) as caught:
            read_winners(tmp_path)
        assert f"winner 1 must have a text '{key}'" in str(caught.value)


def likely_files() -> st.SearchStrategy[str]:
    """JSON that looks more or less like a file of gen, and any text."""
    winner = st.fixed_dictionaries({}, optional={key: st.one_of(st.text(max_size=5), json_values()) for key in WINNER})
    content = st.fixed_dictionaries(
        {"schema": st.one_of(st.just(1), json_values())},
        optional={
            "winners": st.one_of(st.lists(st.one_of(winner, json_values()), max_size=3), json_values()),
            "specs": st.one_of(st.dictionaries(st.text(max_size=5), json_values(), max_size=3), json_values()),
        },
    )
    return st.one_of(st.one_of(content, json_values()).map(json.dumps), st.text(max_size=30))


@each_file
@given(text=likely_files())
def test_any_file_is_read_or_refused(name: str, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text.encode(errors="surrogatepass"))
    try:
        found: Any = READERS[name](folder)
    except StoreError as error:
        said = str(error)
        assert str(folder / name) in said
    else:
        content = json.loads(text)
        assert len(found) == len(content["specs" if name == "specs.json" else "winners"])
