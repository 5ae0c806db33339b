"""The family of merges: sizes, cases, oracle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle
from types import MappingProxyType
from typing import Any

import numpy as np
from typing_extensions import override

from gen.dtypes import BF16, BOOL, DTYPES, F16, F32, F64, I64, U64, DType
from gen.errors import SpecError
from gen.families.base import Algorithm, Array, Expected, Extents, Operand
from gen.families.config import Config
from gen.families.extents import DenseFamily
from gen.families.merge.spec import COUNTS, MergeSpec, from_json
from gen.families.merge.units import Units, UnitsConfig
from gen.families.reduction.operators import OPERATORS, SEVERAL, WITH_PLACES, Operator, Rounds, real_type
from gen.families.reduction.oracle import LARGEST_GAMMA, product_of
from gen.families.reduction.spec import ReductionSpec, spell
from gen.paths import templates_root

_DTYPES = tuple(dtype for dtype in DTYPES.values() if dtype.kind != "bits")


class Merges(DenseFamily[MergeSpec]):
    """The family of merges."""

    name = "merge"
    summary = "partial results of units of elements to the results of all"
    algorithms: Mapping[str, Algorithm[MergeSpec, Any]] = {a.name: a for a in (Units(),)}
    catalogue = (MergeSpec(ReductionSpec()),)
    extra_proof_specs = MappingProxyType({"units": MergeSpec(ReductionSpec(("var",)))})
    templates = templates_root()
    label_help = (
        "sum_f32 or argmax_f16: that of a reduction of a whole array, of one of "
        f"{', '.join(dtype.name for dtype in _DTYPES)}"
    )
    from_json = staticmethod(from_json)

    @override
    def from_label(self, label: str) -> MergeSpec | None:
        whole = spell(label)
        if whole is None or whole.axis is not None or whole.keepdims:
            return None
        try:
            return MergeSpec(whole)
        except SpecError:
            return None

    @override
    def holds_places(self, spec: MergeSpec, operand: Operand) -> bool:
        return operand.name == COUNTS or operand.name in ("partial_argmin", "partial_argmax")

    def oracle(self, spec: MergeSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """NumPy's definitions, in a wider type, of the units that have elements."""
        counts = np.asarray(inputs[COUNTS], np.int64)
        used = np.flatnonzero(np.maximum(counts, 0))
        counts = counts[used]
        found = {name: inputs[name][used] for name, _, _ in spec.partials}
        with np.errstate(all="ignore"):
            return {
                name: _expected(spec.whole, operator, dtype, found, counts)
                for name, operator, dtype in spec.whole.results
            }

    def oracle_at(
        self, spec: MergeSpec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """Each result depends on partial results of its own."""
        own = {one: array if one == COUNTS else array[:, index[0]] for one, array in inputs.items()}
        return self.oracle(spec, own, extents)[name]

    def representative(self, spec: MergeSpec, shape_class: str) -> Extents:
        """The columns of a matrix on several devices."""
        return {"units": 64, "n": 16384}

    def cases(self, spec: MergeSpec) -> Iterator[Extents]:
        """Nothing, one, one off a block; few units and many."""
        for units, n in (
            (1, 0),
            (0, 3),
            (1, 1),
            (2, 1),
            (3, 5),
            (7, 33),
            (8, 127),
            (9, 64),
            (64, 1),
            (33, 129),
            (5, 300),
        ):
            yield {"units": units, "n": n}

    @override
    def proof_cover(self) -> Iterator[tuple[str, MergeSpec, Config]]:
        """Every operator, with three types each."""
        dtypes = cycle(_DTYPES)
        configs = cycle(UnitsConfig.space())
        for names in (*((op,) for op in OPERATORS), *SEVERAL.values(), *WITH_PLACES):
            for _ in range(3):
                try:
                    spec = MergeSpec(ReductionSpec(names, next(dtypes)))
                except SpecError:  # f16 beside statistics that take no wider type
                    continue
                yield "units", spec, next(configs)

    def base(self, spec: MergeSpec, shape_class: str) -> tuple[str, Config]:
        """The usual block."""
        return "units", UnitsConfig()


def _expected(
    whole: ReductionSpec, operator: Operator, dtype: DType, found: Mapping[str, Array], counts: Array
) -> Expected:  # fmt: skip
    """What one output must hold."""
    if operator.name in ("var", "std"):
        return _moments(whole, operator, dtype, found, counts)
    if whole.indexed:
        return _places(whole, operator, dtype, found, counts)
    partial = found[f"partial_{ {'mean': 'sum', 'norm': 'sumsq'}.get(operator.name, operator.name).replace('_', '') }"]
    if operator.rounds is Rounds.NEVER:
        return Expected(_exact(whole, operator, partial).astype(dtype.numpy))
    accumulator = operator.accumulator(whole.dtype, dtype)
    if accumulator.kind != "float":
        bits = partial.astype(accumulator.numpy)
        total = np.asarray((np.multiply if operator.name == "prod" else np.add).reduce(bits, axis=0))
        if operator.name == "mean":
            exact = total.view(np.int64) if whole.dtype.kind == "int" else total
            return Expected(exact.astype(np.float64) / np.float64(counts.sum()))
        return Expected(total.astype(dtype.numpy))
    real = real_type(dtype)
    wide = np.longdouble if real == F64 else np.float64
    terms = partial.astype(wide)
    if operator.name == "prod":
        return product_of(np.ascontiguousarray(terms.T), real)
    value, magnitude = terms.sum(axis=0), np.where(np.isfinite(terms), np.abs(terms), 0).sum(axis=0)
    unbounded = magnitude > real.largest
    if operator.name == "mean":
        value, magnitude = value / wide(counts.sum()), magnitude / wide(max(counts.sum(), 1))
    elif operator.name == "norm":
        unbounded |= (np.sign(terms) == -1).any(axis=0) | (
            magnitude * real.unit_roundoff < len(counts) * real.smallest_normal
        )
        value, magnitude = np.sqrt(value), np.sqrt(magnitude)
    return Expected(value, np.where(unbounded, np.inf, magnitude), real)


def _exact(whole: ReductionSpec, operator: Operator, partial: Array) -> Array:
    """What is found, not computed; of no units what no element is beyond."""
    match operator.name:
        case "any":
            return np.asarray(partial.any(axis=0))
        case "all":
            return np.asarray(partial.all(axis=0))
        case "min" | "max":
            values = _values(whole, partial)
            if len(values) == 0:
                return np.full(values.shape[1:], _end(whole, least=operator.name == "max"), values.dtype)
            found = np.asarray(values.min(axis=0) if operator.name == "min" else values.max(axis=0))
            return found + 0 if whole.dtype.kind == "float" else found  # -0 is 0
        case _:
            return np.asarray(partial.astype(U64.numpy).sum(axis=0, dtype=U64.numpy).astype(I64.numpy))


def _places(
    whole: ReductionSpec, operator: Operator, dtype: DType, found: Mapping[str, Array], counts: Array
) -> Expected:  # fmt: skip
    """The first of the best, and what stands there."""
    kind = whole.op[0][3:]
    values, own = _values(whole, found[f"partial_{kind}"]), found[f"partial_arg{kind}"]
    end = np.asarray(_end(whole, least=kind == "max"), values.dtype)
    if len(values) == 0:
        best = np.full(values.shape[1:], end, values.dtype)
        return Expected((np.zeros(best.shape, np.int64) if operator.indexed else best).astype(dtype.numpy))
    best = values.min(axis=0) if kind == "min" else values.max(axis=0)
    if not operator.indexed:
        return Expected(best.astype(dtype.numpy))
    places = own + (np.cumsum(counts) - counts)[:, None]
    are_best = (values == best) | ((values != values) & (best != best))
    first = np.where(are_best, places, np.iinfo(np.int64).max).min(axis=0)
    return Expected(np.where(best == end, 0, first).astype(dtype.numpy))


def _moments(
    whole: ReductionSpec, operator: Operator, dtype: DType, found: Mapping[str, Array], counts: Array
) -> Expected:  # fmt: skip
    """The bound is that of `gen.families.reduction.oracle`, of whose means and squares these are sums."""
    real = real_type(dtype)
    wide = np.longdouble if real == F64 else np.float64
    means, variances = (found[f"partial_{name}"].astype(wide) for name in ("mean", "var"))
    each, n = np.asarray(counts.astype(wide))[:, None], int(counts.sum())
    freedom = max(n - whole.ddof, 0)
    if n == 0:
        return Expected(np.full(means.shape[1:], np.nan), np.zeros(means.shape[1:]), real)
    about = means - (each * means).sum(axis=0) / n
    m2, size = ((each * (v + about**2)).sum(axis=0) for v in (variances, np.abs(variances)))
    variance, largest = m2 / wide(freedom), size / wide(max(freedom, 1))
    deviation, reach = np.sqrt(largest), np.abs(means).max(axis=0)
    error = deviation + 3 * reach * np.sqrt(n / max(freedom, 1))
    magnitude = 2 * deviation * error + LARGEST_GAMMA[real] * error**2
    value = variance
    if operator.name == "std":
        value, magnitude = np.sqrt(variance), error
    outside = ~np.isfinite(means).all(axis=0) | ~np.isfinite(variances).all(axis=0) | (freedom == 0)
    outside |= (n * (2 * reach) ** 2 > real.largest) | (size > real.largest)
    outside |= (np.sign(variances) == -1).any(axis=0) & (operator.name == "std")
    tiny = np.maximum(reach**2, largest)
    outside |= (tiny > 0) & (tiny < real.smallest_normal / real.unit_roundoff)
    return Expected(value, np.where(outside, np.inf, magnitude), real)


def _values(whole: ReductionSpec, partial: Array) -> Array:
    """Elements in the type in which they are compared."""
    return partial.astype(F32.numpy) if whole.dtype in (F16, BF16) else partial


def _end(whole: ReductionSpec, *, least: bool) -> Any:
    """The least or the greatest value that an element can have."""
    if whole.dtype.kind == "float":
        return -np.inf if least else np.inf
    if whole.dtype == BOOL:
        return not least
    ends = np.iinfo(whole.dtype.numpy)
    return ends.min if least else ends.max
