"""Tuning parameters: tags, JSON and labels all derive from one declaration, and read back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from itertools import combinations
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.errors import ConfigError, GenError, UnknownNameError
from gen.families import FAMILIES
from gen.families.config import Config, plain, tunable
from gen.families.reduction import GridConfig
from gen.families.transpose import TiledConfig
from tests.strategies import Json, configs, json_values, spoiled

CONFIGS: tuple[type[Config], ...] = tuple(
    dict.fromkeys(algorithm.config for family in FAMILIES for algorithm in family.algorithms.values())
)
each_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.__module__}.{config.__name__}")


class Order(Enum):
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, kw_only=True)
class Toy(Config):
    """One parameter of each kind."""

    order: Order = tunable("", tuple(Order), base=Order.DOWN, help="an Enum without a label")
    width: int = tunable("w", (1, 2, 4), base=2, help="a number")
    fast: bool = tunable("fast", (False, True), base=True, off=False, help="a switch")
    depth: int = tunable("d", (0, 3, 5), base=3, off=0, help="a number that can be off")

    def illegal(self) -> str | None:
        return "width 4 must not be fast" if self.width == 4 and self.fast else None


def some(config: type[Config]) -> tuple[Config, ...]:
    """All of a space, or a thousand from all over it."""
    space = tuple(config.space())
    return tuple(Random(0).sample(space, min(len(space), 1000)))


@dataclass(frozen=True, kw_only=True)
class LaterTiledConfig(TiledConfig):
    """As if a parameter had been added since."""

    later: int = tunable("z", (0, 8), base=0, off=0, help="added later")


@each_config
def test_every_tag_of_the_space_is_unique_and_reads_back(config: type[Config]) -> None:
    space = tuple(config.space())
    assert space
    assert len({made.tag for made in space}) == len(space)
    for made in some(config):
        assert config.from_tag(made.tag) == made


@each_config
def test_json_of_the_whole_space_reads_back(config: type[Config]) -> None:
    for made in some(config):
        assert config.from_json(made.to_json()) == made


@each_config
def test_the_space_is_the_product_of_the_values_less_what_is_illegal(config: type[Config]) -> None:
    everything = 1
    for parameter in config.parameters():
        everything *= len(parameter.values)
    space = tuple(config.space())
    assert len(set(space)) == len(space) <= everything
    assert all(made.illegal() is None for made in space)


@each_config
def test_labels_and_tokens_are_told_apart(config: type[Config]) -> None:
    parameters = config.parameters()
    labels = [parameter.label for parameter in parameters if parameter.label]  # without one, the value says it all
    assert len(set(labels)) == len(labels)
    tokens = [[token for value in p.values if (token := p.token(value))] for p in parameters]
    for own in tokens:
        assert len(set(own)) == len(own)
        assert all(re.fullmatch(r"[a-z0-9]+", token) for token in own)
    for one, other in combinations(tokens, 2):
        assert set(one).isdisjoint(other)


@each_config
def test_every_field_declares_a_tuning_parameter_with_values_and_help(config: type[Config]) -> None:
    assert [parameter.field for parameter in config.parameters()] == [field.name for field in fields(config)]
    for parameter in config.parameters():
        assert len(parameter.values) > 1
        assert parameter.base in parameter.values
        assert parameter.off is None or parameter.off in parameter.values
        assert len({type(value) for value in parameter.values}) == 1
        assert parameter.help
        assert "\n" not in parameter.help
        assert not parameter.help.endswith(".")
    assert config().illegal() is None
    assert config().unsearched() is None


@each_config
def test_only_values_that_are_not_off_are_in_tag_and_json(config: type[Config]) -> None:
    for made in some(config):
        for parameter in config.parameters():
            value = getattr(made, parameter.field)
            used = parameter.off is None or value != parameter.off
            assert (parameter.field in made.to_json()) == used
            assert (parameter.token(value) in made.tag.split("_")) == used
            if used:
                assert made.to_json()[parameter.field] == plain(value)


def test_tags_say_the_values_in_the_order_of_the_fields() -> None:
    assert Toy().tag == "down_w2_fast_d3"
    assert Toy(order=Order.UP, fast=False, depth=0).tag == "up_w2"
    assert Toy(order=Order.UP, fast=False, depth=0).to_json() == {"order": "up", "width": 2}
    assert GridConfig().tag == "tpb256_u4_v16_bpm2"


def test_the_toy_space_is_without_what_is_illegal() -> None:
    assert len(tuple(Toy.space())) == 2 * 3 * 2 * 3 - 2 * 3
    assert all(Toy.from_tag(made.tag) == made == Toy.from_json(made.to_json()) for made in Toy.space())


def test_a_parameter_added_at_off_renames_nothing() -> None:
    for old in some(TiledConfig):
        values = {parameter.field: getattr(old, parameter.field) for parameter in TiledConfig.parameters()}
        new = LaterTiledConfig(**values)
        assert new.tag == old.tag
        assert new.to_json() == old.to_json()
        assert LaterTiledConfig.from_tag(old.tag) == new == LaterTiledConfig.from_json(old.to_json())
    assert LaterTiledConfig(later=8).tag == TiledConfig().tag + "_z8"


def test_a_derived_config_has_parameters_of_its_own() -> None:
    assert [parameter.field for parameter in TiledConfig.parameters()] == [field.name for field in fields(TiledConfig)]
    assert LaterTiledConfig.parameters()[-1].field == "later"
    assert TiledConfig.parameters() == LaterTiledConfig.parameters()[:-1]


def test_what_json_leaves_out_is_off_or_else_at_its_base() -> None:
    assert Toy.from_json({}) == Toy(order=Order.DOWN, width=2, fast=False, depth=0)


@pytest.mark.parametrize("value", [3, 0, -1, 4.0, "4", True, None, [4], {}, float("nan"), Order.UP])
def test_an_illegal_value_names_parameter_rule_and_value(value: Any) -> None:
    expected = f"GridConfig.unroll must be one of 1, 2, 4, 8 (got {value!r})"
    with pytest.raises(ConfigError) as caught:
        GridConfig(unroll=value)
    assert str(caught.value) == expected
    with pytest.raises(ConfigError) as caught:
        GridConfig.from_json({"unroll": value})
    assert str(caught.value) == expected


@pytest.mark.parametrize("value", [1, 0, "True", None])
def test_a_switch_takes_no_numbers(value: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape("Toy.fast must be one of False, True")):
        Toy(fast=value)
    with pytest.raises(ConfigError, match=re.escape("Toy.fast must be one of False, True")):
        Toy.from_json({"fast": value})


def test_an_unknown_parameter_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        Toy.from_json({"widht": 2})
    assert str(caught.value) == "Toy.widht is no tuning parameter; there are order, width, fast, depth"


@pytest.mark.parametrize(
    ("tag", "place"),
    [
        ("", "at its end: order comes there, one of up, down"),
        ("up", "at its end: width comes there, one of w1, w2, w4"),
        ("up_w3", "at 'w3': width comes there, one of w1, w2, w4"),
        ("w2_up", "at 'w2': order comes there, one of up, down"),
        ("up_w2_d3_fast", "at 'fast': nothing follows the last parameter"),
        ("up_w2_fast_d3_d3", "at 'd3': nothing follows the last parameter"),
        ("up_w2_", "at '': only fast, d3, d5 may follow"),
        ("up__w2", "at '': width comes there, one of w1, w2, w4"),
        ("up_w2__d3", "at '': only fast, d3, d5 may follow"),
        ("up_w02", "at 'w02': width comes there, one of w1, w2, w4"),
    ],
)
def test_an_unreadable_tag_says_where_and_what_was_expected(tag: str, place: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        Toy.from_tag(tag)
    assert str(caught.value) == f"The tag of a Toy cannot be read {place} (got {tag!r})"


@given(st.sampled_from(CONFIGS), st.data())
def test_any_text_is_a_tag_that_reads_back_or_an_error(config: type[Config], data: st.DataObject) -> None:
    tag = data.draw(st.one_of(st.text(max_size=20), configs(config).flatmap(lambda made: spoiled(made.tag))))
    try:
        read = config.from_tag(tag)
    except UnknownNameError as error:
        said = str(error)
        assert repr(tag) in said
    else:
        assert read.tag == tag


@given(st.sampled_from(CONFIGS), st.data())
def test_any_json_object_is_a_config_that_reads_back_or_an_error(config: type[Config], data: st.DataObject) -> None:
    names = st.sampled_from([parameter.field for parameter in config.parameters()])
    legal = st.sampled_from([plain(value) for parameter in config.parameters() for value in parameter.values])
    values: Mapping[str, Json] = data.draw(
        st.dictionaries(st.one_of(names, st.text(max_size=8)), st.one_of(legal, json_values()), max_size=4)
    )
    try:
        read = config.from_json(values)
    except GenError as error:
        said = str(error)
        assert said.startswith(config.__name__)
    else:
        assert all(read.to_json().get(name, value) == value for name, value in values.items())
