"""What the README and the pages of docs/ say is what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.pages import tables, updated
from bench.picture import MEASURED, shares
from bench.reference import commands_text, families_text
from bench.results import read_results
from gen.cli.app import app
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import find_variant

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
TEXTS = [README, ROOT / "CONTRIBUTING.md", *PAGES]
MOST_LINES = 150  # of the README


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[str]:
    """The lines after a prompt, and those of scripts that call gen, without comments."""
    lines = [line for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]
    lines += [line for block in blocks(page, "sh") for line in block.splitlines() if line.startswith("gen ")]
    return [re.sub(r"\s+# .*", "", line.removeprefix("$ ")) for line in lines]


def test_the_readme_is_short() -> None:
    assert len(text_of(README).splitlines()) <= MOST_LINES


def test_the_excerpt_stands_in_the_file_it_names() -> None:
    ((name, excerpt),) = re.findall(r"<!-- excerpt: (\w+) -->\n```cuda\n(.*?)```", text_of(README), re.DOTALL)
    assert excerpt in render(find_variant(FAMILIES, name, {}))
    assert f"out/{name}.cu" in text_of(README)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_measured_figures_are_those_of_the_files_they_name(page: Path) -> None:
    assert updated(text_of(page)) == text_of(page), "stale: run python bench/pages.py"


def test_the_full_tables_are_those_of_their_files() -> None:
    found = tables()
    assert {path.name for path in found} == {"h100.md", "h200.md", "ladder-h200.md"}
    for path, text in found.items():
        assert path.read_text(encoding="utf-8") == text, "stale: run python bench/pages.py"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_shows_the_medians_of_the_file_it_names(theme: str) -> None:
    from statistics import median

    drawn = text_of(ROOT / "docs" / f"speed-{theme}.svg")
    for one in shares(read_results(MEASURED)):
        for values in (one.gen, one.peer):
            assert f">{median(values):.2f}<" in drawn, "stale: run python bench/picture.py"


def test_the_layout_names_every_package() -> None:
    layout = text_of(ROOT / "docs" / "extending.md").partition("## Layout")[2]
    for package in (ROOT / "gen").iterdir():
        if (package / "__init__.py").is_file():
            assert f"  {package.name}/" in layout


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text_of(page)):
        path, _, heading = "".join(target).partition("#")
        if not path.startswith("http"):
            file = page.parent / path if path else page
            assert file.is_file(), target
            headings = re.findall(r"^#+ (.*)", text_of(file), re.MULTILINE) if heading else []
            assert not heading or heading in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def test_every_page_stands_in_the_index() -> None:
    index = text_of(ROOT / "docs" / "index.md")
    for page in PAGES:
        assert page.stem == "index" or re.search(rf"^{page.stem}$", index, re.MULTILINE)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_commands_are_ones_that_gen_takes(page: Path) -> None:
    """Up to running them: with --help at their end, names of commands and options are looked up first."""
    for line in commands(page):
        words = shlex.split(line.partition(" > ")[0].removeprefix(".venv/bin/"))
        if words[0] == "gen":
            shown = CliRunner().invoke(app, [*words[1:], "--help"], prog_name="gen")
            assert shown.exit_code == 0, (line, shown.output)


@pytest.mark.parametrize("page", TEXTS, ids=lambda page: page.stem)
def test_make_targets_are_there(page: Path) -> None:
    targets = re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    named = re.findall(r"(?:`|\$ )make ([a-z-]+)", text_of(page))
    assert set(named) <= set(targets)


def test_the_reference_names_every_command_option_algorithm_and_parameter() -> None:
    commands = commands_text()
    for name in ("tune", "new algorithm", "spec stencil"):
        assert f"## gen {name}\n" in commands
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*name.split(), "--help"], prog_name="gen").output
        for option in re.findall(r"--[a-z][a-z-]+", shown.partition("Options")[2]):
            assert option in commands or option == "--help", option
    assert "`--frozen`" in commands  # which --help leaves out
    families = families_text()
    for family in FAMILIES:
        for algorithm in family.algorithms.values():
            section = families.partition(f"### {family.name}: {algorithm.name}\n")[2].partition("### ")[0]
            assert all(f"`{one.field}`" in section for one in algorithm.config.parameters())
