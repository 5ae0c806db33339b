"""What the README shows is what is there."""

from __future__ import annotations

import re
from pathlib import Path

from bench.readme import tables, updated
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import find_variant

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_excerpt_stands_in_the_file_it_names() -> None:
    ((name, excerpt),) = re.findall(r"<!-- excerpt: (\w+) -->\n```cuda\n(.*?)```", README, re.DOTALL)
    assert excerpt in render(find_variant(FAMILIES, name, {}))
    assert f"out/{name}.cu" in README


def test_the_measured_figures_are_those_of_the_files_they_name() -> None:
    named = re.findall(r"<!-- (\w+): (bench/[^>]+) -->", README)
    assert named == [
        ("measured", "bench/tune-h200.json"),
        ("stencils", "bench/stencil-nvidia-h200.json"),
        ("bench", "bench/h100.json"),
        ("afterwards", "bench/afterwards-h100.json"),
        ("bench", "bench/h200.json"),
        ("steps", "bench/h100.json bench/h200.json"),
        ("predicted", "bench/predict.json"),
        ("ladder", "bench/ladder-h200.json"),
    ]
    assert updated(README) == README, "stale: run python bench/readme.py"


def test_the_comparison_with_other_libraries_is_that_of_its_file() -> None:
    for path, text in tables(README).items():
        assert path.read_text(encoding="utf-8") == text, "stale: run python bench/readme.py"


def test_the_layout_names_every_package() -> None:
    layout = README[README.index("## Layout") :]
    for package in (ROOT / "gen").iterdir():
        if (package / "__init__.py").is_file():
            assert f"  {package.name}/" in layout
