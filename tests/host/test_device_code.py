"""Texts of variants are kept, and rendered again when anything changes that they are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_variant
from gen.families.plans import Plan
from gen.runtime import device_code
from gen.runtime.device_code import text_of
from tests.fake_family import fake_variant

NAME = "reduction_sum_f32__single_tpb256_u4_v16_shared"


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is rendered."""
    names: list[str] = []

    def count(made: Variant) -> str:
        names.append(made.name)
        return render(made)

    monkeypatch.setattr(device_code, "render", count)
    return names


def test_a_text_is_rendered_once(tmp_path: Path, rendered: list[str]) -> None:
    one, other = (find_variant(FAMILIES, name, {}) for name in (NAME, "transposeSmemPad"))
    for made in (one, one, other, other, one):
        assert text_of(made, tmp_path) == render(made)
    assert rendered == [one.name, other.name]


def test_it_is_rendered_again_when_gen_has_changed(
    tmp_path: Path, rendered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = find_variant(FAMILIES, NAME, {})
    text_of(made, tmp_path)
    (kept,) = (tmp_path / "texts").rglob("*.cu")
    kept.write_bytes(kept.read_bytes().replace(b"float", b"doubt", 1))  # damaged
    assert text_of(made, tmp_path) == render(made)
    monkeypatch.setattr(device_code, "_digest", lambda: "of another gen")
    text_of(made, tmp_path)
    assert len(rendered) == 3


def test_every_file_that_texts_are_made_of_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "common").mkdir()
    partial = tmp_path / "common" / "partial.jinja"
    partial.write_text("one")
    monkeypatch.setattr(device_code, "templates_root", lambda: tmp_path)
    digest = device_code._digest.__wrapped__
    first = digest()
    assert digest() == first
    partial.write_text("two")
    assert digest() != first


def test_a_folder_that_cannot_be_written_to_costs_time_only(tmp_path: Path, rendered: list[str]) -> None:
    (tmp_path / "texts").write_text("a file")
    made = find_variant(FAMILIES, NAME, {})
    assert text_of(made, tmp_path) == render(made)
    assert rendered


def test_texts_of_families_outside_of_gen_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_code, "render", lambda made: made.name)
    assert text_of(fake_variant("elsewhere", (), Plan(())), tmp_path) == "fake_elsewhere__fake"
    assert list(tmp_path.iterdir()) == []
