"""The tables of docs/arrays.md: what becomes of arrays that lie in memory in every way, asked of the kernels.

`PYTHONPATH=. python tests/arrays_table.py` prints them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import gen
from gen.errors import GenError
from tests.fake_device import FakeDevice, OnDevice

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Way:
    """How an array lies, made of one that is dense; `out`: it is the result, else the input."""

    words: str
    made: Callable[[Array], Array]
    out: bool = False


def _wider(array: Array, gap: int = 4) -> Array:
    """The same shape, with a gap after each row."""
    return (
        np.zeros((array.shape[0], array.shape[1] + gap), array.dtype)[:, : array.shape[1]] if array.ndim > 1 else array
    )


def _apart(array: Array) -> Array:
    """Every second element of a longer array."""
    return np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]


def _odd(array: Array) -> Array:
    """The same, from an address that the size of an element does not divide."""
    return np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _alike(array: Array) -> Array:
    """Every row is the same memory."""
    return np.lib.stride_tricks.as_strided(array, array.shape, (0, *array.strides[1:]))


WAYS = (
    Way("rows with gaps between them", _wider),
    Way("axes in another order, `x.T`", lambda array: np.zeros(array.shape[::-1], array.dtype).T),
    Way("every second element of a row", _apart),
    Way("negative strides of rows", lambda array: array[::-1]),
    Way("negative strides in rows", lambda array: array[:, ::-1]),
    Way("strides of 0, as after broadcasting", _alike),
    Way("no elements", lambda array: array[:0]),
    Way("an address that the elements' size does not divide", _odd),
    Way("read-only", _frozen),
    Way("bytes in foreign order", lambda array: array.astype(array.dtype.newbyteorder())),
    Way("`out=` with gaps between rows", _wider, out=True),
    Way("`out=` with every second element of a row", _apart, out=True),
    Way("`out=` with negative strides", lambda array: array[::-1], out=True),
    Way("`out=` whose rows share memory", _alike, out=True),
    Way("`out=` that is read-only", _frozen, out=True),
    Way("`out=` with bytes in foreign order", lambda array: array.astype(array.dtype.newbyteorder()), out=True),
)


@dataclass(frozen=True)
class Asked:
    """A kernel, and the shapes of an input and its result."""

    words: str
    spec: Any
    shape: tuple[int, ...]
    result: tuple[int, ...]


ASKED = (
    Asked("reduction", gen.reduction("sum", "float32", axis=-1), (6, 8, 5), (6, 8)),
    Asked("permutation", gen.permutation((1, 0), "float32"), (6, 8), (8, 6)),
    Asked("stencil", gen.stencil(gen.star(2, 1)), (6, 8), (6, 8)),
)


def _on_gpu(array: Array) -> Any:
    return OnDevice(array, {"data": (array.__array_interface__["data"][0], not array.flags.writeable)})


def outcome(asked: Asked, way: Way, wrap: Callable[[Array], Any]) -> str:
    """What a call does: it takes the array, or says by which rule not; then nothing is launched."""
    device = FakeDevice()
    x, out = np.ones(asked.shape, np.float32), np.ones(asked.result, np.float32)
    try:
        if way.out:
            gen.load(asked.spec, device=device)(wrap(x), out=wrap(way.made(out)))
        else:
            gen.load(asked.spec, device=device)(wrap(way.made(x)))
    except GenError as error:
        assert not device.launched
        return re.sub(r"(of|least|elements) \d+ bytes", r"\1 N bytes", error.rule)
    return "yes"


def table(wrap: Callable[[Array], Any]) -> Iterator[str]:
    """A line a way."""
    yield "| array | " + " | ".join(one.words for one in ASKED) + " |"
    yield "| --- |" + " --- |" * len(ASKED)
    for way in WAYS:
        cells = [outcome(asked, way, wrap) for asked in ASKED]
        yield f"| {way.words} | " + " | ".join(cells) + " |"


def tables() -> tuple[str, ...]:
    """Of arrays on a GPU, and of NumPy's."""
    return tuple("\n".join(table(wrap)) for wrap in (_on_gpu, lambda array: array))


if __name__ == "__main__":
    sys.stdout.write("\n\n".join(tables()) + "\n")
