"""The public cases: fixed before anything was measured, large and small, even and odd, easy for us or for others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from bench.works import Case, Permute, Reduce, Sweep
from gen.dtypes import BF16, F16, F32, F64, I32, U8
from gen.errors import SpecError, StoreError

SCHEMA = 1
STATISTICS = ("sum", "sumsq", "min", "max")


def public_cases() -> tuple[Case, ...]:
    """All of them, families one after another."""
    return (*_reductions(), *_transposes(), *_stencils())


def _reductions() -> Iterator[Case]:
    for exponent in (10, 16, 20, 24, 28):
        for dtype in (F32, F64, F16, BF16, I32, U8):
            yield Case(Reduce(("sum",)), dtype, (2**exponent,))
    for cols in (8, 32, 100, 128, 512, 1000, 4096, 65536):
        yield Case(Reduce(("sum",), (1,)), F32, (2**24 // cols, cols))
    yield Case(Reduce(("sum",), (1,)), F32, (4, 2**24))
    for matrix in ((4096, 4096), (8192, 3072), (65536, 64), (10**7, 8), (100, 10**6)):
        yield Case(Reduce(("sum",), (0,)), F32, matrix)
    yield Case(Reduce(("sum",), (1,)), F32, (64, 1024, 512))
    for dtype in (F32, U8):
        yield Case(Reduce(("argmax",)), dtype, (2**26,))
    yield Case(Reduce(STATISTICS), F32, (2**26,))


def _transposes() -> Iterator[Case]:
    matrices = (
        (1024, 1024), (4096, 4096), (8192, 8192), (16384, 16384), (4096, 16384), (32768, 2048), (4097, 4099),
        (1000, 1000), (10**7, 3), (10**7, 16), (8, 4 * 10**6),
    )  # fmt: skip
    for shape in matrices:
        for dtype in (U8, F16, F32, F64):
            yield Case(Permute((1, 0)), dtype, shape)
    for batch in ((4096, 32, 32), (65536, 16, 16), (256, 512, 512)):
        yield Case(Permute((0, 2, 1)), F32, batch)
    for dtype in (F16, F32):
        yield Case(Permute((0, 2, 1, 3)), dtype, (32, 128, 16, 64))
    for dtype in (U8, F32):
        yield Case(Permute((0, 3, 1, 2)), dtype, (64, 224, 224, 3))
        yield Case(Permute((0, 2, 3, 1)), dtype, (64, 3, 224, 224))
    yield Case(Permute((3, 2, 1, 0)), F32, (128, 128, 128, 16))


def _stencils() -> Iterator[Case]:
    flat: tuple[tuple[Literal["star", "box"], int], ...] = (("star", 1), ("star", 2), ("box", 1), ("box", 2))
    solid: tuple[tuple[Literal["star", "box"], int], ...] = (("star", 1), ("star", 2), ("star", 4), ("box", 1))
    large, middle, cube = (16384, 16384), (8192, 8192), (512, 512, 512)
    for form, radius in flat:
        for dtype in (F32, F64):
            for steps in (1, 16):
                yield Case(Sweep(form, 2, radius, "frozen", steps), dtype, large)
        for steps in (1, 16):
            yield Case(Sweep(form, 2, radius, "wrap", steps), F32, large)
            yield Case(Sweep(form, 2, radius, "frozen", steps), F32, middle)
        yield Case(Sweep(form, 2, radius, "frozen", 1000), F32, middle)
    for steps in (1, 16):
        yield Case(Sweep("star", 2, 1, "frozen", steps), F16, large)
    for dtype in (F32, F64):
        yield Case(Sweep("star", 2, 1, "frozen", 1000), dtype, large)
    for form, radius in solid:
        for dtype in (F32, F64):
            yield Case(Sweep(form, 3, radius, "frozen", 1), dtype, cube)
        yield Case(Sweep(form, 3, radius, "wrap", 1), F32, cube)
        for steps in (16, 1000):
            yield Case(Sweep(form, 3, radius, "frozen", steps), F32, cube)
    for steps in (1, 16, 1000):
        yield Case(Sweep("star", 2, 1, "frozen", steps), F32, (2048, 2048))
        yield Case(Sweep("star", 3, 1, "frozen", steps), F32, (256, 256, 256))
    yield Case(Sweep("star", 2, 1, "wrap", 1000), F32, (2048, 2048))


def read_cases(path: Path) -> tuple[Case, ...]:
    """The cases in a file: `{"schema": 1, "cases": [{"family", "dtype", "shape", ...}]}`.

    Raises:
        StoreError: the file cannot be read, or is of another schema.
        SpecError: a case makes no sense, or stands there twice.
    """
    again = 'Write {"schema": 1, "cases": [...]}; python -m bench --list prints examples'
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(str(path), "must be a file of JSON", error, next_step=again) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("cases"), list):
        raise StoreError(str(path), f"must have schema {SCHEMA} and a list of cases", next_step=again)
    if not content["cases"]:
        raise StoreError(str(path), "must have a case at least", next_step=again)
    entries = content["cases"]
    found: list[Case] = []
    for number, entry in enumerate(entries, 1):
        subject = f"{path}, case {number} of {len(entries)}:"
        try:
            case = Case.from_json(entry)
        except SpecError as error:
            raise SpecError(subject, str(error)) from error
        names = [(one.family, one.name) for one in found]
        if (case.family, case.name) in names:  # which rows go by
            rule = f"is case {names.index((case.family, case.name)) + 1} again"
            raise SpecError(subject, rule, repr(case.name), next_step="Leave one out")
        found.append(case)
    return tuple(found)


def text_of_cases(cases: Sequence[Case]) -> str:
    """The text of such a file, a case a line."""
    lines = ",\n".join(f"    {json.dumps({'name': case.name, **case.to_json()})}" for case in cases)
    return f'{{\n  "schema": {SCHEMA},\n  "cases": [\n{lines}\n  ]\n}}\n'
