"""What a notebook shows of specs, variants, choices, winners and kernels."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis.vendor.pretty import pretty

import gen
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import base_variants
from gen.paths import output_home
from gen.store.winners import Winner, read_winners


class Cells(HTMLParser):
    """Reads what a table says; a tag that is not closed fails."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def cells(shown: Any) -> list[str]:
    return Cells(shown._repr_html_()).texts


SPECS = [(family, spec) for family in FAMILIES for spec in family.catalogue]


@pytest.mark.parametrize(("family", "spec"), SPECS, ids=[family.name_of(spec) for family, spec in SPECS])
def test_a_spec_says_what_it_computes_of_which_arrays(family: Any, spec: Any) -> None:
    said = cells(spec)
    assert {spec.label, spec.summary, *(one.name for one in spec.operands)} <= set(said)
    made = base_variants(family, spec)[0]
    assert {made.name, spec.summary, *made.config.values()} <= set(cells(made))
    assert repr(made) == pretty(made) == f"<gen variant {made.name}>"


def test_a_choice_says_why_and_holds_the_source() -> None:
    chosen = gen.choose(gen.permutation((1, 0), "float32"), (64, 80), arch="sm_90")
    said = cells(chosen)
    assert {chosen.variant.name, chosen.why, render(chosen.variant)} <= set(said)


def test_the_evidence_of_a_winner_is_told_in_words() -> None:
    for winner in read_winners(output_home()):
        for text in cells(winner):
            assert not any(mark in text for mark in "[]{}'"), text
    told = dict(Winner("GPU", "a", "b", "c", {"settled": True, "samples": 1, "beside": [], "hot_us": None}).told)
    assert told == {
        "settled that none is faster": "yes", "samples": "1", "others on the GPU": "none",
        "in a graph of many launches, us": "not measured",
    }  # fmt: skip


@pytest.mark.usefixtures("runtime_at_home")
def test_a_kernel_shows_its_variant_or_one_for_each_shape_class() -> None:
    spec = gen.permutation((1, 0), "float32")
    bound, free = (gen.load(spec, shape=shape, device="cpu") for shape in ((64, 80), None))
    assert {bound.variant, bound.why, bound.source} <= set(cells(bound))
    assert {free.spec, free.variant_for((8192, 8192))} <= set(cells(free))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEN_HOME", str(tmp_path))
    return tmp_path
