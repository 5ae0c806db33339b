"""The family of reductions: many elements to one, along any axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from gen.arch import Limits
from gen.dtypes import DTYPES
from gen.families.base import WIDEST, Algorithm, Array, Expected, Extents, Family, Layout, Named, Work
from gen.families.config import Config
from gen.families.reduction import classes, heuristics
from gen.families.reduction.blocks import Interleaved, Shfl
from gen.families.reduction.canonical import extents_of, layouts_of
from gen.families.reduction.cluster import Cluster
from gen.families.reduction.columns import Columns
from gen.families.reduction.flags import Flags
from gen.families.reduction.grid import Grid
from gen.families.reduction.nested import NESTED, Nested
from gen.families.reduction.oracle import expected, expected_at
from gen.families.reduction.rows import Rows
from gen.families.reduction.single import Single
from gen.families.reduction.spec import ReductionSpec, from_json, spell
from gen.families.reduction.stream import Stream
from gen.families.reduction.strided import Strided
from gen.families.reduction.tree import NAMED, Tree
from gen.paths import templates_root


class Reduction(Family[ReductionSpec]):
    """The family of reductions."""

    name = "reduction"
    summary = "many elements to one"
    algorithms: Mapping[str, Algorithm[ReductionSpec, Any]] = {
        a.name: a
        for a in (
            *(Grid(), Flags(), Cluster(), Single(), Rows(), Columns(), Stream(), Strided()),
            *(Interleaved(), Shfl(), Tree(), Nested()),  # the literature's
        )
    }
    named = (
        Named("reduceInterleaved", "interleaved", {"unroll": 1}, {}, rank=3, published=1.34),
        Named("reduceUnrolling2", "interleaved", {"unroll": 2}, {}, rank=4),
        Named("reduceUnrolling4", "interleaved", {"unroll": 4}, {}, rank=5),
        Named("reduceUnrolling8", "interleaved", {"unroll": 8}, {}, rank=6, over="reduceInterleaved", published=4.90),
        Named("reduceUnrolling16", "interleaved", {"unroll": 16}, {}, rank=7),
        Named("reduceShfl", "shfl", {"unroll": 1}, {}, rank=18, over="reduceSmem", published=1.40),
        *NAMED,
        *NESTED,
    )
    catalogue = (ReductionSpec(),)
    extra_proof_specs: Mapping[str, ReductionSpec] = {
        "rows": ReductionSpec(axis=(1,)),
        "columns": ReductionSpec(axis=(0,)),
        "stream": ReductionSpec(axis=(0,)),
        "strided": ReductionSpec(axis=(0, 2)),
    }
    templates = templates_root()
    label_help = (
        "sum_f32 or var_f16_ddof1_axis0x2: an operator and a type, one of "
        f"{', '.join(dtype.name for dtype in DTYPES.values() if dtype.kind != 'bits')}"
    )

    def from_label(self, label: str) -> ReductionSpec | None:
        """Every spec has a label that says all of it."""
        return spell(label)

    def from_json(self, content: Mapping[str, Any]) -> ReductionSpec:
        """The inverse of `ReductionSpec.to_json`."""
        return from_json(content)

    def for_outputs(self, spec: ReductionSpec, outputs: Mapping[str, np.dtype[Any]]) -> ReductionSpec:
        """As NumPy's `out=`, but only of a dtype that holds the result: it is computed in that dtype."""
        if len(outputs) != 1 or len(spec.op) > 1:
            return spec
        (meant,) = outputs.values()
        for dtype in DTYPES.values():
            if dtype.kind != "bits" and dtype.numpy == meant and spec.result.casts_to(dtype):
                return replace(spec, dtype_of_result=dtype)
        return spec

    def extents(self, spec: ReductionSpec, layouts: Mapping[str, Layout]) -> Extents:
        """`n` for a whole array without gaps; else its canonical form, shape, and strides if it has gaps."""
        return extents_of(spec, layouts)

    def layouts(self, spec: ReductionSpec, extents: Extents) -> Mapping[str, Layout]:
        """The array, and the results."""
        return layouts_of(spec, extents)

    def oracle(self, spec: ReductionSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """NumPy's definition in a wider type."""
        return expected(spec, inputs["in"])

    def oracle_at(
        self, spec: ReductionSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """Of a whole array the sum of what was read; partial results of 0 change it in nothing."""
        if index:
            return expected_at(spec, inputs["in"], index)[name]
        return expected(spec, inputs["in"])[name] if spec.op == ("sum",) and extents.keys() == {"n"} else None

    def work(self, spec: ReductionSpec, extents: Extents) -> Work:
        """Each element read once, each result written once."""
        layouts = layouts_of(spec, extents)
        moved = {name: prod(layout.shape) * layout.dtype.itemsize for name, layout in layouts.items()}
        return Work(moved.pop("in"), sum(moved.values()), prod(layouts["in"].shape), "read")

    def shape_classes(self, spec: ReductionSpec) -> tuple[str, ...]:
        """By the form, and how many elements there are to a result."""
        return classes.shape_classes(spec)

    def shape_class(self, spec: ReductionSpec, extents: Extents, alignment: int = WIDEST) -> str:
        """By the form, and how many elements there are to a result."""
        return classes.shape_class(extents).value

    def can_share_tuning(self, spec: ReductionSpec, other: ReductionSpec) -> bool:
        """The same along other axes: once they are merged, a class tells what lies where."""
        return replace(spec, axis=None, keepdims=False) == replace(other, axis=None, keepdims=False)

    def representative(self, spec: ReductionSpec, shape_class: str) -> Extents:
        """The size that stands for a class when it is tuned."""
        return classes.representative(spec, shape_class)

    def cases(self, spec: ReductionSpec) -> Iterator[Extents]:
        """Nothing, one, one off a warp, a vector, a block's share; primes; pitched rows."""
        return classes.cases(spec)

    def base(self, spec: ReductionSpec, shape_class: str) -> tuple[str, Config]:
        """The stated default of a device on which nothing was tuned."""
        return heuristics.base(spec, classes.ShapeClass(shape_class))

    def heuristic_configs(
        self, spec: ReductionSpec, shape_class: str, limits: Limits
    ) -> tuple[tuple[str, Config], ...]:
        """The stated default, and what is faster for some problems of the class."""
        return heuristics.heuristic_configs(spec, classes.ShapeClass(shape_class))
