"""Names of dtypes: what NumPy knows means here what it means there, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import gen
from gen.dtypes import DTYPES
from gen.errors import SpecError

WORDS = sorted({f"{kind}{size}" for kind, size in product("biufc", (1, 2, 4, 8, 16, 32, 64, 128))} | {*DTYPES} | {
    np.dtype(kind).name for kind in np.typecodes["All"] if kind not in "SUVOMm"
})  # fmt: skip


def numpy_meaning(word: str) -> np.dtype[Any] | None:
    try:
        return np.dtype(word)
    except TypeError:
        return None


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    "dtype_of",
    [
        lambda word: gen.reduction("max", word).dtype.numpy,
        lambda word: gen.reduction("sum", "f32", dtype=word).result.numpy,
        lambda word: gen.stencil([1.0], dtype=word).dtype.numpy,
        lambda word: gen.permutation((1, 0), word, alpha=2.0).dtype.numpy,
        lambda word: gen.permutation((1, 0), "f4", to=word, saturate=True).result.numpy,
    ],
    ids=["elements", "result", "cells", "numbers", "to"],
)
def test_a_name_that_numpy_knows_has_its_meaning_or_is_refused(dtype_of: Callable[[str], Any], word: str) -> None:
    known = numpy_meaning(word)
    try:
        found = dtype_of(word)
    except SpecError:
        return
    assert known is None or found == known


@pytest.mark.parametrize("word", WORDS)
def test_elements_that_are_moved_have_the_bytes_that_numpy_gives_them(word: str) -> None:
    known = numpy_meaning(word)
    try:
        found = gen.permutation((1, 0), word).dtype.size
    except SpecError:
        return
    assert known is None or found == known.itemsize


@pytest.mark.parametrize(("word", "meanings"), [("i8", "int8 or int64"), ("u8", "uint8 or uint64"), ("f16", "float16")])
def test_an_ambiguous_name_is_refused_with_both_meanings(word: str, meanings: str) -> None:
    for make in (lambda: gen.reduction("sum", word), lambda: gen.permutation((1, 0), word)):
        with pytest.raises(SpecError, match=rf"{word} has .* bits in NumPy.*Say {meanings}"):
            make()


def test_names_of_specs_keep_the_names_of_gen() -> None:
    assert gen.reduction("sum", "int8").label == "sum_i8"
    assert gen.reduction("sum", "float16").label == "sum_f16"
