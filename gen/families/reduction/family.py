"""The family of reductions: many elements to one, along any axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import cycle, islice, product
from math import prod
from typing import Any, Literal

import numpy as np
from typing_extensions import override

from gen.arch import Limits
from gen.dtypes import DTYPES
from gen.families.base import WIDEST, Algorithm, Array, Expected, Extents, Family, Work, searched_cover
from gen.families.config import Config
from gen.families.estimates import Smallest
from gen.families.reduction import heuristics, shapes
from gen.families.reduction.algorithms.columns import Columns, Stream
from gen.families.reduction.algorithms.flat import FlatColumns, FlatRows
from gen.families.reduction.algorithms.grid import Cluster, Flags, Grid, Strided
from gen.families.reduction.algorithms.literature import NAMED, Interleaved, Nested, Shfl, Tree
from gen.families.reduction.algorithms.rows import Rows, ShortRows, Single
from gen.families.reduction.algorithms.several_axes import MultiColumns, MultiRows
from gen.families.reduction.operators import OPERATORS, SEVERAL
from gen.families.reduction.oracle import expected, expected_at
from gen.families.reduction.spec import ReductionSpec, from_json, spell
from gen.paths import templates_root

_AXES: Mapping[str, tuple[tuple[int, ...] | None, ...]] = {  # along which each algorithm is proven on many specs
    "grid": (None, (-1,)), "flags": (None, (1,)), "cluster": (None, (-1,), (1, 2)), "single": (None, (0,)),
    "rows": ((-1,), (1, 2), ()), "columns": ((0,), (0, 1), (1,)), "stream": ((0,), (0, 1)), "strided": ((0, 2), None),
    "multi_rows": ((0, 2), (-3, -1), None), "multi_columns": ((0, 2), (1,)),
    "flat_columns": ((0,), (0, 2), (1,)), "flat_rows": ((1,), (0, 2), None),
    "short_rows": ((-1,), ()),
}  # fmt: skip

# Of elements some of which are above 0 and, where they have signs, some below: as many zeros more change nothing.
_BEAR_ZEROS = frozenset({"sum", "sumsq", "norm", "count_nonzero", "any", "max"})


class Reduction(Family[ReductionSpec]):
    """The family of reductions."""

    name = "reduction"
    summary = "many elements to one"
    algorithms: Mapping[str, Algorithm[ReductionSpec, Any]] = {
        a.name: a
        for a in (
            *(
                Grid(),
                Flags(),
                Cluster(),
                Single(),
                Rows(),
                ShortRows(),
                Columns(),
                Stream(),
                MultiRows(),
                MultiColumns(),
                FlatColumns(),
                FlatRows(),
                Strided(),
            ),
            *(Interleaved(), Shfl(), Tree(), Nested()),  # the literature's
        )
    }
    named = NAMED
    catalogue = (ReductionSpec(),)
    extra_proof_specs: Mapping[str, ReductionSpec] = {
        "rows": ReductionSpec(axis=(1,)),
        "short_rows": ReductionSpec(axis=(1,)),
        "columns": ReductionSpec(axis=(0,)),
        "stream": ReductionSpec(axis=(0,)),
        "strided": ReductionSpec(axis=(0, 2)),
        "multi_rows": ReductionSpec(axis=(0, 2)),
        "multi_columns": ReductionSpec(axis=(0, 2)),
        "flat_columns": ReductionSpec(axis=(0, 2)),
        "flat_rows": ReductionSpec(axis=(0, 2)),
    }
    templates = templates_root()
    label_help = (
        "sum_f32 or var_f16_ddof1_axis0x2: an operator and a type, one of "
        f"{', '.join(dtype.name for dtype in DTYPES.values() if dtype.kind != 'bits')}"
    )

    from_label = staticmethod(spell)
    from_json = staticmethod(from_json)
    extents = staticmethod(shapes.extents_of)
    layouts = staticmethod(shapes.layouts_of)
    shape_classes = staticmethod(shapes.shape_classes)
    representative = staticmethod(shapes.representative)
    cases = staticmethod(shapes.cases)
    far_cases = staticmethod(shapes.far_cases)

    def for_outputs(self, spec: ReductionSpec, outputs: Mapping[str, np.dtype[Any]]) -> ReductionSpec:
        """As NumPy's `out=`, but only of a dtype that holds the result: it is computed in that dtype."""
        if len(outputs) != 1 or len(spec.op) > 1:
            return spec
        (meant,) = outputs.values()
        for dtype in DTYPES.values():
            if dtype.kind != "bits" and dtype.numpy == meant and spec.result.casts_to(dtype):
                return replace(spec, dtype_of_result=dtype)
        return spec

    def oracle(self, spec: ReductionSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """NumPy's definition in a wider type."""
        return expected(spec, inputs["in"])

    def oracle_at(
        self, spec: ReductionSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """Of results that all blocks share those of what was read, if partial results of 0 change them in nothing."""
        if index:
            return expected_at(spec, inputs["in"], index)[name]
        signed = spec.dtype.kind in ("float", "int")
        bears_zeros = {*_BEAR_ZEROS, "min"} if signed else _BEAR_ZEROS
        return expected(spec, inputs["in"])[name] if bears_zeros.issuperset(spec.op) else None

    def work(self, spec: ReductionSpec, extents: Extents) -> Work:
        """Each element read once, each result written once."""
        layouts = shapes.layouts_of(spec, extents)
        moved = {name: prod(layout.shape) * layout.dtype.itemsize for name, layout in layouts.items()}
        return Work(moved.pop("in"), sum(moved.values()), prod(layouts["in"].shape), "read")

    @override
    def shape_class(self, spec: ReductionSpec, extents: Extents, alignment: int = WIDEST) -> str:
        return shapes.shape_class(extents).value

    @override
    def first_stays(self, shape_class: str) -> float:
        """Of one result what comes first was swept at many sizes; else the least estimate is the better choice.

        By bench/estimates-h200.json.
        """
        return super().first_stays(shape_class) if shapes.ShapeClass(shape_class) in shapes.SWEPT else 0.97

    @override
    def smallest(self, spec: ReductionSpec, extents: Extents, limits: Limits) -> Smallest:
        results = extents.get("outer", 1) * extents.get("inner", 1)
        elements = results * extents["n"]
        columns = extents.get("inner", extents.get("k3", 1))
        return Smallest(elements, elements * spec.dtype.size, results=results, cols=columns)

    def can_share_tuning(self, spec: ReductionSpec, other: ReductionSpec) -> bool:
        """The same along other axes: once they are merged, a class tells what lies where."""
        return replace(spec, axis=None, keepdims=False) == replace(other, axis=None, keepdims=False)

    def proof_cover(self) -> Iterator[tuple[str, ReductionSpec, Config]]:
        """Every operator with every dtype, both with every algorithm; axes, keepdims, ddof and configs in turns."""
        dtypes = [dtype for dtype in DTYPES.values() if dtype.kind != "bits"]
        layouts = {name: cycle(product(axes, (False, True))) for name, axes in _AXES.items()}
        covers = {name: searched_cover(self.algorithms[name]) for name in _AXES}
        configs = {name: cycle(cover) for name, cover in covers.items()}
        # Those that not every algorithm computes come last: all algorithms have had their turn with each dtype by then.
        names = sorted((*OPERATORS, *SEVERAL), key=lambda op: op in OPERATORS and OPERATORS[op].indexed)
        for (place, op), (shift, dtype) in product(enumerate(names), enumerate(dtypes)):
            statistics = SEVERAL.get(op, (op,))
            ddof = shift % 2 if {"var", "std"}.intersection(statistics) else 0
            for turn in range(len(_AXES)):  # the algorithm whose turn it is, or the next one that computes the operator
                name = list(_AXES)[(place + shift + turn) % len(_AXES)]
                axis, keepdims = next(layouts[name])
                if OPERATORS[statistics[0]].indexed and axis is not None:
                    axis = axis[:1] or (0,)
                spec = ReductionSpec(statistics, dtype, None, axis, keepdims, ddof)
                tried = islice(configs[name], len(covers[name]))
                config = next((one for one in tried if self.algorithms[name].illegal(spec, one) is None), None)
                if config is not None:
                    yield name, spec, config
                    break

    @override
    def chosen(self, spec: ReductionSpec) -> Literal["greatest", "least", ""]:
        ends = [op.removeprefix("arg") for op in spec.op]
        return "greatest" if {"max", "any"}.intersection(ends) else "least" if {"min", "all"}.intersection(ends) else ""

    @override
    def base(self, spec: ReductionSpec, shape_class: str) -> tuple[str, Config]:
        return heuristics.base(spec, shapes.ShapeClass(shape_class))

    def heuristic_configs(
        self, spec: ReductionSpec, shape_class: str, limits: Limits
    ) -> tuple[tuple[str, Config], ...]:
        """The stated default, and what is faster for some problems of the class."""
        return heuristics.heuristic_configs(spec, shapes.ShapeClass(shape_class))
