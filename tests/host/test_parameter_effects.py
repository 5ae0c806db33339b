"""Every parameter of every algorithm changes what is executed: a template that ignores one fails here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any

import pytest

from gen.dtypes import B8, LoadModifier, StoreModifier
from gen.emit.render import MARK, render
from gen.families import FAMILIES
from gen.families.base import Algorithm, Family, Variant
from gen.families.config import Config
from gen.families.names import find_variant, legal_space, variant
from gen.families.transpose import MoveSpec, TransposeSpec

CONSTANT = re.compile(r"^\s*constexpr [^=;]*?\b(\w+)\s*=[^;]*;.*\n", re.MULTILINE)
ASSERTION = re.compile(r"^static_assert\([^;]*\);\n", re.MULTILINE)


def executed(text: str, name: str) -> str:
    """A text without its header, comments and assertions, and without constants that nothing reads."""
    code = re.sub(r"//.*", "", text.partition(MARK)[2].replace(name, "NAME"))
    code = ASSERTION.sub("", code)
    while unread := [one for one in CONSTANT.finditer(code) if len(re.findall(rf"\b{one[1]}\b", code)) == 1]:
        for one in unread:
            code = code.replace(one[0], "")
    return code


@cache
def shown(made: Variant) -> tuple[str, str]:
    """What a variant executes: its code, and how it is launched."""
    return executed(render(made), made.name), repr(made.plan).replace(made.name, "NAME")


# Specs outside the catalogues, for parameters that are of small elements, of several axes or of repetitions.
FURTHER = {"transpose": (MoveSpec(), TransposeSpec(dtype=B8), TransposeSpec((0, 2, 1), B8))}


def specs(family: Family[Any], name: str) -> tuple[Any, ...]:
    """Those that an algorithm is proven on, and further ones."""
    own = [spec for key, spec in family.extra_proof_specs.items() if key == name]
    return tuple(dict.fromkeys((*own, *family.catalogue, *FURTHER.get(family.name, ()))))


def neighbours(family: Family[Any], name: str, field: str) -> Iterator[tuple[Variant, Variant]]:
    """Variants that differ in this parameter alone."""
    algorithm: Algorithm[Any, Any] = family.algorithms[name]
    for spec in specs(family, name):
        known: dict[object, Config] = {}
        for config in legal_space(algorithm, spec):
            others = tuple((p.field, getattr(config, p.field)) for p in config.parameters() if p.field != field)
            first = known.setdefault(others, config)
            if getattr(first, field) != getattr(config, field):
                yield variant(family, spec, algorithm, first), variant(family, spec, algorithm, config)


# How large a grid or its dynamic shared memory is: the kernels read it from their launch.
OF_LAUNCHES = ("blocks_per_sm", "piece", "times", "waves")
PARAMETERS = [
    pytest.param(family, name, parameter.field, id=f"{family.name}-{name}-{parameter.field}")
    for family in FAMILIES
    for name, algorithm in family.algorithms.items()
    for parameter in algorithm.config.parameters()
]


@pytest.mark.parametrize(("family", "name", "field"), PARAMETERS)
def test_every_parameter_has_an_effect(family: Family[Any], name: str, field: str) -> None:
    one, other = next(neighbours(family, name, field))
    part = 1 if field in OF_LAUNCHES and shown(one)[0] == shown(other)[0] else 0
    assert shown(one)[part] != shown(other)[part], (one.name, other.name)


@pytest.mark.parametrize(("family", "name", "field"), PARAMETERS)
def test_a_cache_operator_is_called_where_it_is_chosen(family: Family[Any], name: str, field: str) -> None:
    for pair in islice(neighbours(family, name, field), 8):
        for made, other in (pair, pair[::-1]):
            value, instead = getattr(made.config, field), getattr(other.config, field)
            # The function of `evict_last` calls another operator, for GPUs that have none.
            known = (value, instead) if isinstance(value, LoadModifier | StoreModifier) and value.intrinsic else ()
            if known and instead.value != LoadModifier.EVICT_LAST.value:
                call = re.compile(rf"^(?!.*__device__).*\b{value.intrinsic}\(", re.MULTILINE)
                calls = [len(call.findall(shown(one)[0])) for one in (made, other)]
                assert calls[0] > calls[1], (made.name, other.name)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("transpose_10_b32__tiled_t32_r8_p1_u2", "kTileCols + kPadding]", "kTileCols]"),
        ("reduction_sum_f32__grid_tpb128_u4_v16_bpm2", "constexpr int kUnroll = 4;", "constexpr int kUnroll = 8;"),
    ],
)
def test_what_a_text_declares_and_does_not_read_is_no_effect(name: str, old: str, new: str) -> None:
    made = find_variant(FAMILIES, name, {})
    text = render(made)
    assert old in text
    assert executed(text, made.name) != executed(text.replace(old, new), made.name)
    ignored = re.sub(r"kPadding\b(?! =)", "1", text)  # as if the template had a number there
    padded = ignored.replace("kPadding = 1", "kPadding = 2")
    assert executed(ignored, made.name) == executed(padded, made.name)
