"""The public cases, and those of a file: what each is, and whether gen has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from bench.cases import public_cases, read_cases, text_of_cases
from bench.offers import counts_of, problem_of
from bench.works import Case, Permute, Reduce, Sweep
from gen.dtypes import F32, U8
from gen.errors import GenError, SpecError, StoreError
from gen.families import FAMILIES

PUBLIC = public_cases()


def test_public_cases_have_names_of_their_own() -> None:
    assert len({(case.family, case.name) for case in PUBLIC}) == len(PUBLIC)
    assert {case.family for case in PUBLIC} <= {family.name for family in FAMILIES}


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (Case(Reduce(("sum",)), F32, (2**20,)), "sum f32 2^20"),
        (Case(Reduce(("sum", "max"), (0,)), F32, (4096, 64)), "sum+max f32 4096x64 axis 0"),
        (Case(Permute((1, 0)), U8, (1000, 3)), "transpose u8 1000x3"),
        (Case(Permute((0, 2, 1)), U8, (9, 1000, 3)), "transpose u8 9x1000x3 to 021"),
        (Case(Sweep("box", 2, 2, "wrap", 16), F32, (64, 64)), "box2d2r f32 64x64 wrap x16"),
    ],
)
def test_a_name_says_what_is_computed(case: Case, name: str) -> None:
    assert case.name == name


def test_cases_are_read_back_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text(text_of_cases(PUBLIC))
    assert read_cases(file) == PUBLIC


@pytest.mark.parametrize(
    "entry",
    [
        "x",
        {"family": "sort", "dtype": "f32", "shape": [4]},
        {"family": "reduction", "dtype": "f33", "shape": [4], "ops": ["sum"]},
        {"family": "reduction", "dtype": "f32", "shape": [], "ops": ["sum"]},
        {"family": "reduction", "dtype": "f32", "shape": [0], "ops": ["sum"]},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": []},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": ["sum"], "axes": [1]},
        {"family": "reduction", "dtype": "f32", "shape": [4]},
        {"family": [], "dtype": "f32", "shape": [4], "ops": ["sum"]},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": "sum"},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": ["bogus"]},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": [["sum"]]},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": 3},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": ["sum"], "axes": 0},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": ["sum"], "axes": ["a"]},
        {"family": "reduction", "dtype": "f32", "shape": [4], "ops": ["sum"], "axes": []},
        {"family": "reduction", "dtype": "f32", "shape": [2**31, 2**31], "ops": ["sum"]},
        {"family": "transpose", "dtype": "u8", "shape": [10**400, 1], "axes": [1, 0]},
        {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": [0, "a"]},
        {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": [1, False]},
        {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": "10"},
        {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": None},
        {"family": "stencil", "dtype": "f32", "shape": [4, 5], "form": [], "ndim": 2, "radius": 1},
        {"family": "stencil", "dtype": "f32", "shape": [4, 5], "form": "star", "ndim": 2, "radius": "1"},
        {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": [0, 0]},
        {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": [1, 0], "more": 1},
        {"family": "stencil", "dtype": "f32", "shape": [4, 5], "form": "ring", "ndim": 2, "radius": 1},
        {
            "family": "stencil",
            "dtype": "f32",
            "shape": [2, 5],
            "form": "box",
            "ndim": 2,
            "radius": 3,
            "boundary": "wrap",
        },
        {"family": "stencil", "dtype": "f32", "shape": [4, 5], "form": "star", "ndim": 3, "radius": 1},
        {"family": "stencil", "dtype": "f32", "shape": [4, 5], "form": "star", "ndim": 2, "radius": 1, "steps": 0},
    ],
)
def test_a_case_that_makes_no_sense_is_refused(tmp_path: Path, entry: object) -> None:
    file = tmp_path / "cases.json"
    sound = {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": [1, 0]}
    file.write_text(json.dumps({"schema": 1, "cases": [sound, entry]}))
    with pytest.raises(SpecError, match=r"cases.json, case 2 of 2: A case"):
        read_cases(file)


MATRIX = {"family": "transpose", "dtype": "f32", "shape": [4, 5], "axes": [1, 0]}


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({**MATRIX, "axis": 1}, "A case's field must be one that a transpose has: name, .*, shape, axes (got 'axis')"),
        (
            {name: value for name, value in MATRIX.items() if name != "axes"},
            "A case.axes must be there: a transpose has name, family, dtype, shape, axes",
        ),
        ({**MATRIX, "family": "stencil"}, "A case's field must be one that a stencil has: .*, form, .* (got 'axes')"),
        (
            {**MATRIX, "name": "mine"},
            "A case.name must be 'transpose f32 4x5', as what is computed has it (got 'mine'). It can be left out",
        ),
        ({**MATRIX, "shape": [5, 4]}, "is case 1 again (got 'transpose f32 5x4'). Leave one out"),
    ],
)
def test_a_case_says_all_that_it_is_in_fields_that_there_are(tmp_path: Path, entry: object, says: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"schema": 1, "cases": [{**MATRIX, "shape": [5, 4]}, entry]}))
    with pytest.raises(SpecError, match=r"case 2 of 2: " + re.escape(says).replace(r"\.\*", ".*") + "$"):
        read_cases(file)


@pytest.mark.parametrize("text", ["{", '{"schema": 2, "cases": []}', '{"schema": 1}', "[]"])
def test_a_file_of_another_schema_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(text)
    with pytest.raises(StoreError, match=r"cases.json must .*python -m bench --list"):
        read_cases(file)
    with pytest.raises(StoreError, match="must be a file of JSON"):
        read_cases(tmp_path / "none.json")


def test_a_file_without_cases_says_what_to_write(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text('{"schema": 1, "cases": []}')
    with pytest.raises(
        StoreError, match=r"must have a case at least\. Write .*; python -m bench --list prints examples"
    ):
        read_cases(file)


def test_a_public_case_is_a_problem_of_its_family_or_refused_in_words() -> None:
    offered = 0
    for case in PUBLIC:
        try:
            problem = problem_of(case, FAMILIES)
        except GenError:  # in words, which a row says
            continue
        offered += 1
        layouts = problem.family.layouts(problem.spec, problem.extents)
        first = next(operand for operand in problem.spec.operands if operand.role == "in")
        assert problem.family.name == case.family
        assert np.prod(layouts[first.name].shape) == case.elements
        assert first.dtype.size == case.dtype.size
        assert problem.extents.get("steps", 1) == counts_of(case).get("steps", 1)
        assert problem.region.holds(problem.sizes)
    assert offered > len(PUBLIC) / 2


def test_weights_add_up_to_one_and_differ() -> None:
    for form, radius in (("star", 1), ("box", 2)):
        work = Sweep(form, 2, radius)  # type: ignore[arg-type]
        assert sum(work.weights) == pytest.approx(1)
        taps = [weight for _, weight in work.taps]
        assert len(set(taps)) == len(taps)
        assert len(work.weights) == (2 * radius + 1) ** 2


@pytest.mark.parametrize("work", [Sweep("box", 2, 10**6), Sweep("box", 40, 1)])
def test_a_stencil_of_more_weights_than_can_be_counted_up_is_not_offered(work: Sweep) -> None:
    with pytest.raises(SpecError, match=r"stencil\.weights must be 1 to 17 along each of 1 or 2 axes"):
        problem_of(Case(work, F32, (8,) * work.ndim), FAMILIES)
