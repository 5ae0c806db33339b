"""The public cases: fixed before anything was measured, large and small, even and odd, easy for us or for others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import log2
from pathlib import Path
from typing import Any, Literal

from gen.compare.case import ComparisonCase, Shape
from gen.dtypes import BF16, F16, F32, F64, I32, U8, DType
from gen.errors import GenError, SpecError, StoreError
from gen.families import FAMILIES
from gen.families.base import Family
from gen.families.names import find_family
from gen.families.reduction import reduction
from gen.families.stencil import Boundary, StencilSpec
from gen.families.transpose import permutation

SCHEMA = 3
STATISTICS = ("sum", "sumsq", "min", "max")
Form = Literal["star", "box"]


@cache
def public_cases() -> tuple[ComparisonCase, ...]:
    """All of them, families one after another."""
    return (*_reductions(), *_transposes(), *_stencils())


def reduce(ops: tuple[str, ...], dtype: DType, shape: Shape, axis: int | None = None) -> ComparisonCase:
    """Statistics of a whole array, or along an axis: `sum f32 4096x64 axis 0`."""
    how = "" if axis is None else f" axis {axis}"
    name = f"{'+'.join(ops)} {dtype.name} {_shape_text(shape)}{how}"
    return _case("reduction", reduction(ops, dtype, axis=axis), shape, name)


def permute(axes: tuple[int, ...], dtype: DType, shape: Shape) -> ComparisonCase:
    """Axes in another order, axis i of the result being axis `axes[i]`: `transpose u8 9x1000x3 to 021`."""
    how = "" if axes == (1, 0) else f" to {''.join(map(str, axes))}"
    return _case("transpose", permutation(axes, dtype), shape, f"transpose {dtype.name} {_shape_text(shape)}{how}")


def sweep(
    form: Form, radius: int, dtype: DType, shape: Shape, boundary: Boundary = "frozen", steps: int = 1
) -> ComparisonCase:
    """Time steps of a stencil of as many axes as its array has: `star2d1r f32 8192x8192 wrap x16`."""
    axes = len(shape)
    word = f"{form}{axes}d{radius}r"
    spec = StencilSpec(word, weights(form, axes, radius), (2 * radius + 1,) * axes, dtype, boundary)
    return _case("stencil", spec, shape, stencil_name(word, dtype, shape, boundary, steps), {"steps": steps})


def weights(form: Form, axes: int, radius: int) -> tuple[float, ...]:
    """All weights of a star or a box in row-major order, 0 where nothing is read.

    They grow and add up to 1, so that a mirrored or transposed stencil shows, and many steps leave the cells bounded.
    """
    offsets = list(product(range(-radius, radius + 1), repeat=axes))
    read = [form == "box" or sum(step != 0 for step in offset) <= 1 for offset in offsets]
    total = sum(range(1, sum(read) + 1))
    return tuple(sum(read[: place + 1]) / total if one else 0.0 for place, one in enumerate(read))


def stencil_name(word: str, dtype: DType, shape: Shape, boundary: str, steps: int) -> str:
    """For instance `star2d1r f32 8192x8192 wrap x16`."""
    return f"{word} {dtype.name} {_shape_text(shape)} {boundary}" + (f" x{steps}" if steps > 1 else "")


def read_cases(path: Path, families: Sequence[Family[Any]] = FAMILIES) -> tuple[ComparisonCase, ...]:
    """The cases in a file: `{"schema": 3, "cases": [{"name", "family", "spec", "shape", "runtime_parameters"}]}`.

    A spec is what its `to_json` gives. `runtime_parameters` and the name may be left out.

    Raises:
        StoreError: the file cannot be read, or is of another schema.
        SpecError: a case makes no sense, or stands there twice.
    """
    again = f'Write {{"schema": {SCHEMA}, "cases": [...]}}; python -m bench --list prints examples'
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(str(path), "must be a file of JSON", error, next_step=again) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("cases"), list):
        raise StoreError(str(path), f"must have schema {SCHEMA} and a list of cases", next_step=again)
    entries = content["cases"]
    if not entries:
        raise StoreError(str(path), "must have a case at least", next_step=again)
    found: dict[tuple[str, str], int] = {}
    cases = []
    for number, entry in enumerate(entries, 1):
        subject = f"{path}, case {number} of {len(entries)}:"
        try:
            case = _read_case(entry, families)
        except GenError as error:
            raise SpecError(subject, str(error)) from error
        first = found.setdefault((case.family.name, case.name), number)  # which rows go by
        if first != number:
            raise SpecError(subject, f"is case {first} again", repr(case.name), next_step="Leave one out")
        cases.append(case)
    return tuple(cases)


def text_of_cases(cases: Sequence[ComparisonCase]) -> str:
    """The text of such a file, a case a line."""
    lines = ",\n".join(f"    {json.dumps(_as_json(case))}" for case in cases)
    return f'{{\n  "schema": {SCHEMA},\n  "cases": [\n{lines}\n  ]\n}}\n'


def _reductions() -> Iterator[ComparisonCase]:
    for exponent in (10, 16, 20, 24, 28):
        for dtype in (F32, F64, F16, BF16, I32, U8):
            yield reduce(("sum",), dtype, (2**exponent,))
    for cols in (8, 32, 100, 128, 512, 1000, 4096, 65536):
        yield reduce(("sum",), F32, (2**24 // cols, cols), 1)
    yield reduce(("sum",), F32, (4, 2**24), 1)
    for matrix in ((4096, 4096), (8192, 3072), (65536, 64), (10**7, 8), (100, 10**6)):
        yield reduce(("sum",), F32, matrix, 0)
    yield reduce(("sum",), F32, (64, 1024, 512), 1)
    for dtype in (F32, U8):
        yield reduce(("argmax",), dtype, (2**26,))
    yield reduce(STATISTICS, F32, (2**26,))


def _transposes() -> Iterator[ComparisonCase]:
    matrices = (
        (1024, 1024), (4096, 4096), (8192, 8192), (16384, 16384), (4096, 16384), (32768, 2048), (4097, 4099),
        (1000, 1000), (10**7, 3), (10**7, 16), (8, 4 * 10**6),
    )  # fmt: skip
    for shape in matrices:
        for dtype in (U8, F16, F32, F64):
            yield permute((1, 0), dtype, shape)
    for batch in ((4096, 32, 32), (65536, 16, 16), (256, 512, 512)):
        yield permute((0, 2, 1), F32, batch)
    for dtype in (F16, F32):
        yield permute((0, 2, 1, 3), dtype, (32, 128, 16, 64))
    for dtype in (U8, F32):
        yield permute((0, 3, 1, 2), dtype, (64, 224, 224, 3))
        yield permute((0, 2, 3, 1), dtype, (64, 3, 224, 224))
    yield permute((3, 2, 1, 0), F32, (128, 128, 128, 16))


def _stencils() -> Iterator[ComparisonCase]:
    large, middle, small = (16384, 16384), (8192, 8192), (2048, 2048)
    forms: tuple[tuple[Form, int], ...] = (("star", 1), ("star", 2), ("box", 1), ("box", 2))
    for form, radius in forms:
        for dtype in (F32, F64):
            for steps in (1, 16):
                yield sweep(form, radius, dtype, large, steps=steps)
        for steps in (1, 16):
            yield sweep(form, radius, F32, large, "wrap", steps)
            yield sweep(form, radius, F32, middle, steps=steps)
        yield sweep(form, radius, F32, middle, steps=1000)
    for steps in (1, 16):
        yield sweep("star", 1, F16, large, steps=steps)
    for dtype in (F32, F64):
        yield sweep("star", 1, dtype, large, steps=1000)
    for steps in (1, 16, 1000):
        yield sweep("star", 1, F32, small, steps=steps)
    yield sweep("star", 1, F32, small, "wrap", 1000)
    yield from _stencils_of_three_axes()


def _stencils_of_three_axes() -> Iterator[ComparisonCase]:
    large, small = (512, 512, 512), (256, 256, 256)
    forms: tuple[tuple[Form, int], ...] = (("star", 1), ("star", 2), ("star", 4), ("box", 1))
    for form, radius in forms:
        for dtype in (F32, F64):
            yield sweep(form, radius, dtype, large)
        yield sweep(form, radius, F32, large, "wrap")
        for steps in (16, 1000):
            yield sweep(form, radius, F32, large, steps=steps)
    for steps in (1, 16, 1000):
        yield sweep("star", 1, F32, small, steps=steps)


def _case(
    family: str, spec: Any, shape: Shape, name: str, runtime_parameters: dict[str, int] | None = None
) -> ComparisonCase:  # fmt: skip
    return ComparisonCase(find_family(FAMILIES, family), spec, shape, runtime_parameters or {}, name)


def _as_json(case: ComparisonCase) -> dict[str, Any]:
    content: dict[str, Any] = {"name": case.name, "family": case.family.name, "spec": case.spec.to_json()}
    return {
        **content,
        "shape": list(case.shape),
        **({"runtime_parameters": dict(case.runtime_parameters)} if case.runtime_parameters else {}),
    }


def _read_case(entry: object, families: Sequence[Family[Any]]) -> ComparisonCase:
    """The case of an entry. Raises GenError for what is none."""
    known = ("name", "family", "spec", "shape", "runtime_parameters")
    if not isinstance(entry, dict):
        raise SpecError("A case", "must be an object", repr(entry))
    for key in entry:
        if key not in known:
            raise SpecError("A case's field", "must be one of " + ", ".join(known), repr(key))
    name, shape, runtime_parameters = entry.get("name", ""), entry.get("shape"), entry.get("runtime_parameters", {})
    if not isinstance(name, str):
        raise SpecError("A case.name", "must be a text", repr(name))
    if not isinstance(shape, list) or not all(type(extent) is int and extent > 0 for extent in shape) or not shape:
        raise SpecError("A case.shape", "must be a list of positive numbers", repr(shape))
    if not isinstance(runtime_parameters, dict) or not all(
        type(count) is int and count > 0 for count in runtime_parameters.values()
    ):
        raise SpecError("A case.runtime_parameters", "must be an object of positive numbers", repr(runtime_parameters))
    family = find_family(families, str(entry.get("family")))
    content = entry.get("spec")
    try:
        spec = family.from_json(content if isinstance(content, dict) else {})
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # content that the family does not expect
        raise SpecError("A case.spec", f"must be what a spec of {family.name} is in JSON", repr(content)) from error
    return ComparisonCase(family, spec, tuple(shape), runtime_parameters, name)


def _shape_text(shape: Shape) -> str:
    if len(shape) == 1:
        exponent = log2(shape[0])
        return f"2^{int(exponent)}" if exponent.is_integer() and exponent >= 10 else str(shape[0])
    return "x".join(map(str, shape))
