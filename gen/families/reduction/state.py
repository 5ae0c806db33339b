"""The state of a reduction, what is known of the elements seen so far: its parts and their types, as templates read it.

What an operator is in C++ stands in `reduction/_operators.cu.jinja`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from gen.dtypes import BF16, BOOL, F16, F64, U32, U64, DType
from gen.families.reduction.operators import Operator, real_type, value_type
from gen.families.reduction.spec import ReductionSpec

_HEADERS = {F16: "fp16", BF16: "bf16"}
_PARTS = {
    "sum": "sum", "mean": "total", "prod": "product", "sumsq": "squares", "norm": "length", "min": "least",
    "max": "greatest", "any": "found", "all": "full", "count_nonzero": "nonzero", "argmin": "place", "argmax": "place",
    "var": "moments", "std": "moments",
}  # fmt: skip
_ADDED = ("sum", "total", "squares", "length", "nonzero")


@dataclass(frozen=True)
class Part:
    """A part of a state.

    Attributes:
        name: of the member: `sum`.
        type: in C++.
        scalar: the type in C++ in which it computes.
        rounds: whether that is a floating-point type.
        converts: whether an element is converted to that type.
        scalars: what follows the member's name for each scalar in it: one empty text, or `.count`, `.mean`, `.m2`.
        size: bytes.
        alignment: of it, in bytes.
    """

    name: str
    type: str
    scalar: str
    rounds: bool
    converts: bool
    scalars: tuple[str, ...]
    size: int
    alignment: int

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number."""
        return self.scalars == ("",)

    @property
    def fused(self) -> bool:
        """Whether it is a sum of floating-point squares, whose product and sum are rounded at once."""
        return self.rounds and self.name in ("squares", "length")


@dataclass(frozen=True)
class Result:
    """One output: name and type, the operator, the part of the state and the type from which it is computed."""

    name: str
    type: str
    operator: str
    part: Part
    real: str


@dataclass(frozen=True)
class State:
    """The state that a spec needs, and what templates ask about its elements.

    Attributes:
        headers: CUDA's headers of narrow floating-point types: `fp16`.
        item: an element in memory. A bool is read as a byte.
        value: an element in a register.
        kind: of the elements: `bool`, `int`, `uint` or `float`.
        item_bytes: of an element in memory.
        parts: each once.
        results: the outputs.
        indexed: whether the first result is a place.
        ddof: what is subtracted from the number of elements that a variance is divided by.
        moments: the type of a mean, where there is one of a variance.
        bytes_summed: whether bytes may be added four at a time.
        packed: how the best of small integers is found two at a time, as CUDA's functions call it: `maxu`; else empty.
        best: which element that is, in words: `greatest`.
    """

    headers: tuple[str, ...]
    item: str
    value: str
    kind: str
    item_bytes: int
    parts: tuple[Part, ...]
    results: tuple[Result, ...]
    indexed: bool
    ddof: int
    moments: str
    bytes_summed: bool
    packed: str
    best: str

    @property
    def alone(self) -> bool:
        """Whether the state is its only part."""
        return len(self.parts) == 1

    @property
    def scalars(self) -> tuple[str, ...]:
        """Every scalar in a state, as what follows the state's name."""
        return tuple(("" if self.alone else f".{part.name}") + scalar for part in self.parts for scalar in part.scalars)

    @property
    def fused(self) -> bool:
        """Whether a product and a sum of a part are rounded at once."""
        return any(part.fused for part in self.parts)

    @property
    def nan(self) -> bool:
        """Whether there is NaN among the elements."""
        return self.kind == "float"

    @property
    def signed(self) -> bool:
        """Whether elements are signed integers."""
        return self.kind == "int"

    @property
    def light(self) -> bool:
        """Whether a state is a number, and two of them are one operation away from their state."""
        return self.alone and self.parts[0].is_scalar

    @property
    def is_sum(self) -> bool:
        """Whether a state is an integer, and two of them their sum: there is an instruction for those of a warp."""
        return self.light and self.parts[0].name in _ADDED and self.parts[0].type in (U32.cuda, U64.cuda)

    @cached_property
    def bytes(self) -> int:
        """The size of a state, as C++ lays it out."""
        end, alignment = 0, 1
        for part in self.parts:
            end = -(-end // part.alignment) * part.alignment + part.size
            alignment = max(alignment, part.alignment)
        return -(-end // alignment) * alignment

    def chains(self, vec_bytes: int) -> int:
        """How many states a thread keeps side by side where it reads vectors of so many bytes."""
        if self.indexed or self.bytes_summed or self.packed or not all(part.is_scalar for part in self.parts):
            return 1
        return min(vec_bytes // self.item_bytes, 4 if self.alone else 2)

    def run(self, unroll: int, vec_bytes: int) -> int:
        """How many of the vectors loaded at once have their mean found at once: no more than registers hold."""
        words = vec_bytes // self.item_bytes * (2 if self.moments == F64.cuda else 1)
        return max(min(unroll, 32 // words), 1)


@lru_cache(maxsize=256)
def state_of(spec: ReductionSpec) -> State:
    """The state that a spec needs."""
    results = tuple(_result(spec, name, operator, dtype) for name, operator, dtype in spec.results)
    narrow = (_HEADERS[dtype] for dtype in (spec.dtype, *(d for _, _, d in spec.results)) if dtype in _HEADERS)
    moments = (result.real for result in results if result.part.name == "moments")
    dtype = spec.dtype
    return State(
        headers=tuple(dict.fromkeys(narrow)),
        item="unsigned char" if dtype == BOOL else dtype.cuda,
        value=value_type(dtype).cuda,
        kind="bool" if dtype == BOOL else dtype.kind,
        item_bytes=dtype.size,
        parts=tuple(dict.fromkeys(result.part for result in results)),
        results=results,
        indexed=spec.indexed,
        ddof=spec.ddof,
        moments=next(moments, ""),
        bytes_summed=_bytes_summed(spec, results[0].part),
        packed=_packed(spec),
        best="least" if spec.op[0].endswith("min") else "greatest",
    )


def _result(spec: ReductionSpec, name: str, operator: Operator, dtype: DType) -> Result:
    accumulator, value = operator.accumulator(spec.dtype, dtype), value_type(spec.dtype)
    part = "place" if spec.indexed else _PARTS[operator.name]
    scalars: tuple[str, ...]
    match part:
        case "moments":
            scalar = real_type(accumulator)
            type_, scalars, size, alignment = "Moments", (".count", ".mean", ".m2"), 8 + 2 * scalar.size, 8
        case "place":
            scalar = value
            type_, scalars, size, alignment = "Place", (".index", ".value"), 16, 8
        case _:
            scalar = accumulator
            type_, scalars, size, alignment = scalar.cuda, ("",), scalar.size, scalar.size
    rounds = scalar.kind == "float"
    own = Part(part, type_, scalar.cuda, rounds, scalar != value, scalars, size, alignment)
    return Result(name, dtype.cuda, operator.name, own, real_type(dtype).cuda)


def _bytes_summed(spec: ReductionSpec, part: Part) -> bool:
    """Whether bytes are added up as integers: four at a time there is an instruction for."""
    counted = spec.op == ("count_nonzero",) and spec.dtype == BOOL
    added = spec.op in (("sum",), ("mean",)) and not part.rounds
    return spec.dtype.size == 1 and (counted or added)


def _packed(spec: ReductionSpec) -> str:
    """Whether there is an instruction for the best of two pairs of elements, and which."""
    if spec.dtype.kind == "float" or spec.dtype.size > 2 or len(spec.op) > 1:
        return ""
    which = {"min": "min", "argmin": "min", "max": "max", "argmax": "max"}.get(spec.op[0], "")
    return which and which + ("s" if spec.dtype.kind == "int" else "u")
