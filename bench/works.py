"""What is computed in a case, said without any library: operator, permutation or weights, element type, shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import product
from math import log2, prod
from typing import Any, Literal

from gen.dtypes import DType, read_dtype
from gen.errors import SpecError
from gen.families.reduction.operators import OPERATORS

Shape = tuple[int, ...]
MOST_ELEMENTS = 1 << 48  # more than any memory holds, and sizes in bytes still fit into 64 bits


@dataclass(frozen=True)
class Reduce:
    """Operators over axes of an array, all from one read.

    Attributes:
        ops: `("sum",)`, or several: `("sum", "sumsq", "min", "max")`. `var` divides by the number of elements.
        axes: those that disappear; None for all.
    """

    ops: tuple[str, ...]
    axes: tuple[int, ...] | None = None

    family = "reduction"

    @property
    def label(self) -> str:
        """For instance `sum` or `sum+max`."""
        return "+".join(self.ops)

    @property
    def how(self) -> str:
        """The axes, in words."""
        return "" if self.axes is None else f" axis {','.join(map(str, self.axes))}"


@dataclass(frozen=True)
class Permute:
    """The axes in another order: axis i of the result is axis `axes[i]` of the input."""

    axes: tuple[int, ...]

    family = "transpose"

    @property
    def label(self) -> str:
        """Always `transpose`."""
        return "transpose"

    @property
    def how(self) -> str:
        """The permutation, but for that of a matrix."""
        return "" if self.axes == (1, 0) else f" to {''.join(map(str, self.axes))}"


@dataclass(frozen=True)
class Sweep:
    """Steps of a stencil: each cell becomes the weighted sum of its neighbours.

    The weights grow in row-major order and add up to 1, so that a mirrored or transposed stencil shows, and many steps
    leave the cells bounded.

    Attributes:
        form: `star` (along the axes) or `box`.
        ndim, radius: its extent.
        boundary: `frozen` (cells within the radius of the rim keep their values) or `wrap`.
        steps: how often it is applied.
    """

    form: Literal["star", "box"]
    ndim: int
    radius: int
    boundary: Literal["frozen", "wrap"] = "frozen"
    steps: int = 1

    family = "stencil"

    @property
    def label(self) -> str:
        """As the literature has it: `star2d1r`."""
        return f"{self.form}{self.ndim}d{self.radius}r"

    @property
    def how(self) -> str:
        """Boundary and steps."""
        return f" {self.boundary}" + (f" x{self.steps}" if self.steps > 1 else "")

    @property
    def taps(self) -> tuple[tuple[Shape, float], ...]:
        """Offset and weight of each neighbour, in row-major order."""
        reach = range(-self.radius, self.radius + 1)
        offsets = [
            offset for offset in product(reach, repeat=self.ndim)
            if self.form == "box" or sum(step != 0 for step in offset) <= 1
        ]  # fmt: skip
        total = sum(range(1, len(offsets) + 1))
        return tuple((offset, place / total) for place, offset in enumerate(offsets, 1))

    @property
    def weights(self) -> tuple[float, ...]:
        """All weights of the cube around a cell in row-major order, 0 where nothing is read."""
        known = dict(self.taps)
        reach = range(-self.radius, self.radius + 1)
        return tuple(known.get(offset, 0.0) for offset in product(reach, repeat=self.ndim))


Work = Reduce | Permute | Sweep
_WORKS: Mapping[str, type[Reduce] | type[Permute] | type[Sweep]] = {
    work.family: work for work in (Reduce, Permute, Sweep)
}


@dataclass(frozen=True)
class Case:
    """One thing to compute at one size.

    Attributes:
        work: what.
        dtype: of the input's elements.
        shape: the input's.
    """

    work: Work
    dtype: DType
    shape: Shape

    @property
    def family(self) -> str:
        """The family whose purpose it is."""
        return self.work.family

    @property
    def name(self) -> str:
        """For instance `sum f32 2^20`, `transpose u8 4097x4099`, `star2d1r f32 8192x8192 wrap x16`."""
        return f"{self.work.label} {self.dtype.name} {_shape_text(self.shape)}{self.work.how}"

    @property
    def elements(self) -> int:
        """Of the input."""
        return prod(self.shape)

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        return {"family": self.family, "dtype": self.dtype.name, "shape": list(self.shape), **asdict(self.work)}

    @classmethod
    def from_json(cls, content: object) -> Case:
        """The inverse of `to_json`; its own name may stand there too. Raises SpecError for anything else."""
        subject = "A case"
        if not isinstance(content, dict):
            raise SpecError(subject, "must be an object", repr(content))
        values = dict(content)
        family, shape = values.pop("family", None), values.pop("shape", None)
        if not isinstance(family, str) or family not in _WORKS:
            raise SpecError(f"{subject}.family", "must be one of " + ", ".join(_WORKS), repr(family))
        if not isinstance(shape, list) or not all(type(n) is int and n > 0 for n in shape) or not shape:
            raise SpecError(f"{subject}.shape", "must be a list of positive numbers", repr(shape))
        dtype = read_dtype(values.pop("dtype", None), f"{subject}.dtype")
        name = values.pop("name", None)
        _check_fields(family, values)
        make: Any = _WORKS[family]
        work = make(**{key: tuple(v) if isinstance(v, list) else v for key, v in values.items()})
        case = cls(work, dtype, tuple(shape))
        _check(case)
        if name not in (None, case.name):  # rows, and --case, go by the name
            rule = f"must be {case.name!r}, as what is computed has it"
            raise SpecError(f"{subject}.name", rule, repr(name), next_step="It can be left out")
        return case


def _check_fields(family: str, values: Mapping[str, object]) -> None:
    """Raises SpecError where a field of that family's work is missing, or one is none of it."""
    known = fields(_WORKS[family])
    every = "name, family, dtype, shape, " + ", ".join(field.name for field in known)
    for key in values:
        if key not in [field.name for field in known]:
            raise SpecError("A case's field", f"must be one that a {family} has: {every}", repr(key))
    for field in known:
        if field.default is MISSING and field.name not in values:
            raise SpecError(f"A case.{field.name}", f"must be there: a {family} has {every}")


def _check(case: Case) -> None:
    """Raises SpecError for values that no peer could make sense of."""
    work, rank = case.work, len(case.shape)
    if case.elements > MOST_ELEMENTS:
        raise SpecError("A case.shape", f"must have {MOST_ELEMENTS} elements or fewer", case.shape)
    if isinstance(work, Reduce):
        ops: object = work.ops  # which are of any type, as they were read; so are the axes
        if not isinstance(ops, tuple) or not ops or not all(op in list(OPERATORS) for op in ops):
            rule = "must be a list of operators, each one of " + ", ".join(OPERATORS)
            raise SpecError("A case.ops", rule, repr(ops))
        axes = () if work.axes is None else _ints(work.axes)
        if axes is None or not all(0 <= axis < rank for axis in axes) or len(set(axes)) < len(axes) or work.axes == ():
            rule = f"must be different axes, from 0 to {rank - 1}, or null for all"
            raise SpecError("A case.axes", rule, repr(work.axes))
    elif isinstance(work, Permute):
        if sorted(_ints(work.axes) or ()) != list(range(rank)):
            raise SpecError("A case.axes", f"must be a permutation of {rank} axes", repr(work.axes))
    elif (
        work.form not in ("star", "box")
        or work.boundary not in ("frozen", "wrap")
        or not all(type(n) is int and n > 0 for n in (work.ndim, work.radius, work.steps))
        or work.ndim != rank
    ):
        rule = "must be a star or box of a radius, frozen or wrap, of as many axes as its shape, of steps above 0"
        raise SpecError("A case", rule, repr(work))
    elif work.boundary == "wrap" and min(case.shape) < work.radius:  # peers look for neighbours one array away
        raise SpecError("A case.shape", f"must be {work.radius}, the radius, or more along each axis", case.shape)


def _ints(values: object) -> tuple[int, ...] | None:
    """Whole numbers; None for anything else."""
    if not isinstance(values, tuple) or not all(type(value) is int for value in values):
        return None
    return values


def _shape_text(shape: Shape) -> str:
    if len(shape) == 1:
        exponent = log2(shape[0])
        return f"2^{int(exponent)}" if exponent.is_integer() and exponent >= 10 else str(shape[0])
    return "x".join(map(str, shape))
