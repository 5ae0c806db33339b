"""`gen spec`: specs that are made on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gen
from gen.store.folder import read_specs
from tests.host.cli.command import run


def test_a_stencil_gets_the_name_that_python_gives_it_and_every_command_knows_it(home: Path) -> None:
    weights = [[0, 1, 0], [1, -4, 1], [0, 1, 0]]
    asked = ("--weights", str(weights), "--boundary", "mirror", "--boundary", "constant:frozen", "--cval", "2.5")
    name = run("spec", "stencil", *asked, "--dtype", "f64", "--word", "mine").out.strip()
    boundary: Any = ["mirror", ("constant", "frozen")]
    spec = gen.stencil(weights, boundary=boundary, dtype="f64", cval=2.5, word="mine")
    assert name == f"stencil_{spec.label}"
    assert read_specs(home)[name] == spec.to_json()
    assert name in run("show", name).out


def test_terms_are_reassociated_where_that_is_asked_for(home: Path) -> None:
    name = run("spec", "stencil", "--weights", "[[1,2,1],[2,4,2],[1,2,1]]", "--reassociate").out.strip()
    assert name == f"stencil_{gen.stencil([[1, 2, 1], [2, 4, 2], [1, 2, 1]], reassociate=True).label}"
    assert read_specs(home)[name]["reassociate"] is True


def test_flags_have_no_type_in_the_help() -> None:
    assert "<bool>" not in run("spec", "stencil", "--help").out


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--weights", "0 1 0"), "--weights must be numbers in lists of JSON"),
        (("--weights", "[[1],[2,3]]"), "stencil.weights must be an array whose rows are equally long"),
        (("--weights", "[1,2,1]", "--boundary", "round"), "got"),
        (("--weights", "[1,2,1]", "--dtype", "f33"), "stencil.dtype must be one of"),
    ],
)
def test_what_makes_no_stencil_is_refused_with_the_rule(asked: tuple[str, ...], says: str) -> None:
    ended = run("spec", "stencil", *asked)
    assert ended.status == 2
    assert says in ended.err
