"""`gen new`: what it writes proves at once, under any name, and overwrites nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gen.paths import output_home
from tests.host.cli.command import forget_modules, run

BUILT = str(output_home())  # what proofs build is kept between runs of the tests, by content


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in, whose modules this process forgets when the test ends."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    forget_modules(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "module", "name"),
    [
        (("algorithm", "transpose", "two_words"), "two_words:Transposes", "transpose_10_b32__two_words_x32_y8"),
        (("algorithm", "reduction", "mine"), "mine:Reductions", "reduction_sum_f32__mine_tpb256"),
        (("algorithm", "stencil", "ours"), "ours:Stencils", "stencil_heat_de794a2b_f32__ours_x32_y8"),
        (("family", "ours"), "ours:Ours", "ours_f64__simple_tpb64_u4"),
    ],
    ids=["transpose", "reduction", "stencil", "family"],
)
@pytest.mark.usefixtures("here")
def test_what_is_written_proves_at_once(arguments: tuple[str, ...], module: str, name: str) -> None:
    written = run("new", *arguments)
    assert written.status == 0
    assert (
        f"gen --family {module} prove {name.split('__')[0] if arguments[0] == 'algorithm' else 'ours'}" in written.err
    )
    for place in written.out.split():
        text = Path(place).read_text(encoding="utf-8")
        assert "mine" not in text.lower() or "mine" in arguments
    proven = run("--family", module, "prove", name, "--home", BUILT)
    assert (proven.status, proven.err) == (0, "")
    assert "1 proven, 0 failed" in proven.out
    again = run("new", *arguments)
    assert again.status == 2
    assert "is there already" in again.err


@pytest.mark.usefixtures("here", "runtime_at_home")
def test_an_algorithm_stands_among_those_of_its_family_and_a_fault_in_it_is_named() -> None:
    run("new", "algorithm", "transpose", "ours")
    listed = run("--family", "ours:Transposes", "list", "transpose").out
    assert "algorithm ours, 6 legal configs" in listed
    assert "algorithm vector_tile" in listed
    template = Path("templates/transpose/ours.cu.jinja")
    template.write_text(template.read_text().replace("col < cols", "col <= cols"))
    found = run("--family", "ours:Transposes", "prove", "transpose_10_b32__ours_x32_y8")
    assert found.status == 1
    assert "transpose_10_b32__ours_x32_y8.cu:" in found.out
    assert "col <= cols" in found.out


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("algorithm", "probe", "ours"), "must be one of reduction, stencil, transpose"),
        (("algorithm", "transpose", "tiled"), "an algorithm of transpose of that name"),
        (("algorithm", "transpose", "json"), "Python has a module"),
        (("algorithm", "transpose", "tiles"), "its class would be called Tiles"),
        (("family", "stencil"), "a family of that name"),
        (("family", "Ours"), "small letters"),
        (("family", "two__words"), "small letters"),
        (("family", "class"), "no word of Python"),
    ],
)
def test_names_that_mean_something_else_are_refused(here: Path, arguments: tuple[str, ...], rule: str) -> None:
    refused = run("new", *arguments)
    assert refused.status == 2
    assert rule in refused.err
    assert list(here.iterdir()) == []
