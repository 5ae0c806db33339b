"""Operators of torch in C++, of an exported library: which calls they take; AOTInductor's runtime finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gen
from gen.export.folder import files_of, write
from gen.export.operators import calls_of
from gen.export.program import Program, program_of, targets_of
from gen.families import FAMILIES
from gen.paths import output_home
from gen.runtime.dispatch import family_and_spec
from tests import aoti

TARGET = targets_of(["sm_90"], ())


def program(spec: Any) -> Program:
    family, found = family_and_spec(FAMILIES, spec, output_home())
    return program_of(family, found, TARGET, (), [aoti.SHAPE], 10)


def test_a_library_knows_which_calls_of_operators_mean_its_specs() -> None:
    five = gen.stencil([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0]], boundary=["wrap", ("mirror", "nearest")])
    calls = calls_of([program(spec) for spec in (*aoti.SPECS, gen.reduction("sum", "int32"), five)])
    for spec in (gen.permutation((1, 0), "float32", to="float16"), gen.permutation((1, 0), "float32", in_place=True)):
        assert calls_of([program(spec)]) == ()
    float_, long = "at::ScalarType::Float", "at::ScalarType::Long"
    mean, total = f'"mean", {float_}, 2, {{1}}, 0', '"sum", at::ScalarType::Int, 2, {0, 1}, 0'
    assert [(call.operator, call.key) for call in calls] == [
        ("reduce", f"{mean}, kNotAsked, {float_}"),
        ("reduce", f"{mean}, static_cast<int>({float_}), {float_}"),
        ("permute", "4, {1, 0}"),
        ("reduce", f"{total}, kNotAsked, {long}"),
        ("reduce", f"{total}, static_cast<int>({long}), {long}"),
        ("correlate", f'{float_}, {{0.0, 1.0, 0.0, 1.0, -4.0, 1.0}}, {{2, 3}}, "wrap,mirror/nearest", 0.0, {{0, 0}}'),
    ]


@pytest.mark.exhaustive
def test_the_runtime_of_aotinductor_calls_the_library_up_to_the_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("GEN_DEVICE", "cpu")
    write(tmp_path, files_of("kernels", [program(spec) for spec in aoti.SPECS], None))
    status, said = aoti.run(tmp_path, aoti.operators(tmp_path, "kernels"), "cpu")
    assert status == 1
    assert "in must be in a GPU's memory (got device type 1 of DLPack)" in said
