"""The public cases, and those of a file: what each is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.cases import permute, public_cases, read_cases, reduce, sweep, text_of_cases, weights
from bench.results import read_results
from gen.compare.case import ComparisonCase
from gen.dtypes import F32, U8
from gen.errors import SpecError, StoreError
from gen.families import FAMILIES
from tests.outside.scan_family.scan import Scan

PUBLIC = public_cases()
ROOT = Path(__file__).resolve().parents[2]


def test_public_cases_have_names_of_their_own() -> None:
    names = [(case.family.name, case.name) for case in PUBLIC]
    assert len(set(names)) == len(names) == 169
    for file in ("h100.json", "h200.json"):
        assert set(read_results(ROOT / "bench" / file).cases()) <= set(names)


@pytest.mark.parametrize(
    ("case", "name"),
    [
        (reduce(("sum",), F32, (2**20,)), "sum f32 2^20"),
        (reduce(("sum", "max"), F32, (4096, 64), 0), "sum+max f32 4096x64 axis 0"),
        (permute((1, 0), U8, (1000, 3)), "transpose u8 1000x3"),
        (permute((0, 2, 1), U8, (9, 1000, 3)), "transpose u8 9x1000x3 to 021"),
        (sweep("box", 2, F32, (64, 64), "wrap", 16), "box2d2r f32 64x64 wrap x16"),
        (sweep("star", 4, F32, (64, 64, 32)), "star3d4r f32 64x64x32 frozen"),
    ],
)
def test_a_name_says_what_is_computed(case: ComparisonCase, name: str) -> None:
    assert case.name == name


def test_cases_are_read_back_from_a_file_also_of_a_family_from_outside(tmp_path: Path) -> None:
    file, scan = tmp_path / "cases.json", Scan()
    cases = (*PUBLIC, ComparisonCase(scan, scan.catalogue[0], (1000,)))
    file.write_text(text_of_cases(cases))
    assert read_cases(file, (*FAMILIES, scan)) == cases
    assert cases[-1].name == "scan_sum_f32 1000"


MATRIX: dict[str, Any] = {"family": "transpose", "spec": {"axes": [1, 0], "dtype": "b32"}, "shape": [4, 5]}
STENCIL = sweep("star", 1, F32, (8, 8)).spec.to_json()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("x", "A case must be an object"),
        ({**MATRIX, "family": "sort"}, "The family must be one of"),
        ({**MATRIX, "family": []}, "The family must be one of"),
        ({**MATRIX, "shape": []}, "A case.shape must be a list of positive numbers"),
        ({**MATRIX, "shape": [0, 4]}, "A case.shape must be a list of positive numbers"),
        ({**MATRIX, "shape": [4]}, "in must have 2 axes"),
        ({**MATRIX, "shape": [10**400, 1]}, "shape must be of arrays of less than 2^63 bytes"),
        ({**MATRIX, "spec": "transpose"}, "A case.spec must be what a spec of transpose is in JSON|transpose."),
        ({**MATRIX, "spec": {"axes": [0, 0], "dtype": "b32"}}, "transpose.axes must hold each of 0, 1"),
        (
            {**MATRIX, "runtime_parameters": {"steps": 0}},
            "A case.runtime_parameters must be an object of positive numbers",
        ),
        ({**MATRIX, "runtime_parameters": {"steps": 2}}, "steps is no runtime parameter of transpose_10_b32"),
        ({**MATRIX, "name": 3}, "A case.name must be a text"),
        (
            {**MATRIX, "axis": 1},
            "A case's field must be one of name, family, spec, shape, runtime_parameters (got 'axis')",
        ),
        ({"family": "reduction", "spec": {"op": ["kurtosis"], "dtype": "f32"}, "shape": [4]}, "kurtosis"),
        ({"family": "stencil", "spec": {**STENCIL, "shape": None}, "shape": [8, 8]}, "stencil.weights must be"),
        (MATRIX, "is case 1 again (got 'transpose_10_b32 4x5'). Leave one out"),
    ],
)
def test_a_case_that_makes_no_sense_is_refused_in_words(tmp_path: Path, entry: object, says: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(json.dumps({"schema": 3, "cases": [MATRIX, entry]}))
    with pytest.raises(SpecError, match=r"cases.json, case 2 of 2: ") as caught:
        read_cases(file)
    assert any(words in str(caught.value) for words in says.split("|"))


@pytest.mark.parametrize(
    "text", ["{", '{"schema": 1, "cases": []}', '{"schema": 3}', "[]", '{"schema": 3, "cases": []}']
)
def test_a_file_of_another_schema_or_without_cases_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(text)
    with pytest.raises(StoreError, match=r"cases.json must .*python -m bench --list prints examples"):
        read_cases(file)
    with pytest.raises(StoreError, match="must be a file of JSON"):
        read_cases(tmp_path / "none.json")


def test_weights_add_up_to_one_and_differ() -> None:
    for form, radius in (("star", 1), ("box", 2)):
        made = weights(form, 2, radius)  # type: ignore[arg-type]
        assert sum(made) == pytest.approx(1)
        read = [weight for weight in made if weight]
        assert read == sorted(set(read))
        assert len(made) == (2 * radius + 1) ** 2


def test_a_problem_is_for_the_sizes_of_its_case_alone() -> None:
    for case in PUBLIC:
        assert case.problem.region.holds(case.problem.sizes)
        assert case.problem.region.one, case.name
