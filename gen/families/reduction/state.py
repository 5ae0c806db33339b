"""What templates read of a spec: the state of a reduction as C++ text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gen.dtypes import BF16, BOOL, F16, F32, F64, I64, U32, U64, DType
from gen.families.reduction.operators import Operator, Rounds, real_type, value_type
from gen.families.reduction.spec import ReductionSpec

_HEADERS = {F16: "fp16", BF16: "bf16"}
_BITS = {4: "__int_as_float", 8: "__longlong_as_double"}
_INFINITY = {4: "0x7f800000", 8: "0x7ff0000000000000ll"}


@dataclass(frozen=True)
class Part:
    """A part of a state.

    Attributes:
        name: of the member: `sum`.
        type: in C++.
        what: in words.
        identity: the part of no elements.
        lift: of one element, the value x; empty where it is a square that is added by a fused multiply-add.
        factor: what is squared there; else empty.
        combine: of two, a and b.
        scalars: what follows the member's name for each scalar in it: one empty text, or `.count`, `.mean`, `.m2`.
        size: bytes.
        alignment: of it, in bytes.
    """

    name: str
    type: str
    what: str
    identity: str
    lift: str
    combine: str
    scalars: tuple[str, ...] = ("",)
    size: int = 4
    alignment: int = 4
    factor: str = ""

    @property
    def one(self) -> bool:
        """Whether it is a scalar."""
        return self.scalars == ("",)

    @property
    def fma(self) -> str:
        """The fused multiply-add of its type."""
        return "fma" if self.type == F64.cuda else "fmaf"


@dataclass(frozen=True)
class Result:
    """One output: its name, its type in C++, and its value from a state and the number of elements."""

    name: str
    type: str
    value: str


def parts(spec: ReductionSpec) -> tuple[Part, ...]:
    """The parts of the state that a spec needs, each once."""
    found: dict[Part, None] = {}
    for name, operator, _ in spec.results:
        result = spec.result if name == "out" else operator.result(spec.dtype)
        found.setdefault(_part(operator, spec.dtype, operator.accumulator(spec.dtype, result)))
    return tuple(found)


def state_bytes(spec: ReductionSpec) -> int:
    """The size of a state, as C++ lays it out."""
    end, alignment = 0, 1
    for part in parts(spec):
        end = -(-end // part.alignment) * part.alignment + part.size
        alignment = max(alignment, part.alignment)
    return -(-end // alignment) * alignment


@dataclass(frozen=True)
class StateText:
    """All that the partial `reduction/_state.cu.jinja` reads.

    Attributes:
        headers: CUDA's headers of narrow floating-point types: `fp16`.
        item: an element in memory.
        value: an element in a register.
        value_of: the value of `item`.
        parts: of the state.
        scalars: every scalar in a state, as what follows the state's name.
        results: the outputs.
        indexed: whether the result is a place.
        better: whether value a comes before value b wherever they stand, for places.
        replaces: whether value x takes the place of `best` in a run of elements, equals and all.
        nan: whether there is NaN among the elements.
        moments: the type of a mean, where there is one of a variance.
        bytes_summed: whether bytes may be added four at a time.
        signed: whether elements are signed.
        packed: how the best of small integers is found two at a time, as CUDA's functions call it: `maxu`; else empty.
        best: which that is, in words: `greatest`.
    """

    headers: tuple[str, ...]
    item: str
    value: str
    value_of: str
    parts: tuple[Part, ...]
    scalars: tuple[str, ...]
    results: tuple[Result, ...]
    indexed: bool
    better: str
    replaces: str
    nan: bool
    moments: str
    bytes_summed: bool
    signed: bool
    packed: str
    best: str

    @property
    def alone(self) -> bool:
        """Whether the state is its only part."""
        return len(self.parts) == 1

    @property
    def fused(self) -> bool:
        """Whether a part is a sum of floating-point squares, whose product and sum are rounded at once."""
        return any(part.factor for part in self.parts)

    @property
    def fma(self) -> str:
        """The fused multiply-add of the type of a mean."""
        return "fma" if self.moments == F64.cuda else "fmaf"

    @property
    def multiply(self) -> str:
        """A product of that type, which no compiler makes part of a fused multiply-add."""
        return "__dmul_rn" if self.moments == F64.cuda else "__fmul_rn"


def state_text(spec: ReductionSpec) -> StateText:
    """The state of a spec as text."""
    own = parts(spec)
    alone = len(own) == 1
    headers = dict.fromkeys(_HEADERS[dtype] for dtype in (spec.dtype, *_dtypes(spec)) if dtype in _HEADERS)
    moments = next((real_type(dtype) for _, op, dtype in spec.results if op.rounds is Rounds.MOMENTS), None)
    return StateText(
        headers=tuple(headers),
        item=item_type(spec.dtype),
        value=value_type(spec.dtype).cuda,
        value_of={F16: "__half2float(item)", BF16: "__bfloat162float(item)"}.get(spec.dtype, "item"),
        parts=own,
        scalars=tuple(("" if alone else f".{part.name}") + scalar for part in own for scalar in part.scalars),
        results=tuple(_result(spec, operator, name, dtype, alone) for name, operator, dtype in spec.results),
        indexed=spec.indexed,
        better=_better(spec),
        replaces=_replaces(spec),
        nan=spec.dtype.kind == "float",
        moments=moments.cuda if moments else "",
        bytes_summed=_bytes_summed(spec),
        signed=spec.dtype.kind == "int",
        packed=_packed(spec),
        best="least" if spec.op[0].endswith("min") else "greatest",
    )


def item_type(dtype: DType) -> str:
    """An element in memory. A bool is read as a byte."""
    return "unsigned char" if dtype == BOOL else dtype.cuda


def chains(spec: ReductionSpec, items: int) -> int:
    """How many states a thread keeps side by side where it reads vectors of so many items."""
    own = parts(spec)
    if spec.indexed or _bytes_summed(spec) or _packed(spec) or any(not part.one for part in own):
        return 1
    return min(items, 4 if len(own) == 1 else 2)


def is_light(spec: ReductionSpec) -> bool:
    """Whether a state is a number, and two of them are one operation away from their state."""
    own = parts(spec)
    return len(own) == 1 and own[0].one


def is_sum(spec: ReductionSpec) -> bool:
    """Whether a state is an integer, and two of them their sum: there is an instruction for those of a warp."""
    return is_light(spec) and parts(spec)[0].combine == "a + b" and parts(spec)[0].type in (U32.cuda, U64.cuda)


def run(spec: ReductionSpec, unroll: int, items: int) -> int:
    """How many of the vectors loaded at once have their mean found at once: no more than registers hold."""
    double = any(real_type(dtype) == F64 for _, op, dtype in spec.results if op.rounds is Rounds.MOMENTS)
    return max(min(unroll, 32 // (items * (2 if double else 1))), 1)


def _dtypes(spec: ReductionSpec) -> tuple[DType, ...]:
    return tuple(dtype for _, _, dtype in spec.results)


def _bytes_summed(spec: ReductionSpec) -> bool:
    """Whether bytes are added up as integers: four at a time there is an instruction for."""
    counted = spec.op == ("count_nonzero",) and spec.dtype == BOOL
    added = spec.op in (("sum",), ("mean",)) and parts(spec)[0].type in (U32.cuda, U64.cuda)
    return spec.dtype.size == 1 and (counted or added)


def _packed(spec: ReductionSpec) -> str:
    """Whether there is an instruction for the best of two pairs of elements, and which."""
    if spec.dtype.kind == "float" or spec.dtype.size > 2 or len(spec.op) > 1:
        return ""
    which = {"min": "min", "argmin": "min", "max": "max", "argmax": "max"}.get(spec.op[0], "")
    return which and which + ("s" if spec.dtype.kind == "int" else "u")


def _part(operator: Operator, dtype: DType, accumulator: DType) -> Part:
    value = value_type(dtype)
    zero, one = _number(accumulator, 0), _number(accumulator, 1)
    lift = "x" if accumulator == value else f"static_cast<{accumulator.cuda}>(x)"
    square, factor = (f"{lift} * {lift}", "") if accumulator.kind != "float" else ("", lift)
    or_nan = " || a != a" if accumulator.kind == "float" else ""

    def scalar(name: str, what: str, identity: str, lift: str, combine: str) -> Part:
        return Part(name, accumulator.cuda, what, identity, lift, combine, ("",), accumulator.size, accumulator.size)

    match operator.name:
        case "sum":
            return scalar("sum", "their sum", zero, lift, "a + b")
        case "mean":
            return scalar("total", "their sum", zero, lift, "a + b")
        case "prod":
            return scalar("product", "their product", one, lift, "a * b")
        case "sumsq":
            return replace(scalar("squares", "the sum of their squares", zero, square, "a + b"), factor=factor)
        case "norm":
            return replace(scalar("length", "the sum of their squares", zero, square, "a + b"), factor=factor)
        case "min":
            greatest = _end(accumulator, dtype, least=False)
            return scalar("least", "the least", greatest, "x", f"a < b{or_nan} ? a : b")
        case "max":
            least = _end(accumulator, dtype, least=True)
            return scalar("greatest", "the greatest", least, "x", f"a > b{or_nan} ? a : b")
        case "any":
            return scalar("found", "whether one is not 0", "0u", "x != 0", "a | b")
        case "all":
            return scalar("full", "whether none is 0", "1u", "x != 0", "a & b")
        case "count_nonzero":
            return scalar("nonzero", "how many are not 0", zero, "x != 0", "a + b")
        case "argmin" | "argmax":
            end = _end(accumulator, dtype, least=operator.name == "argmax")
            nowhere, here = f"Place{{kNowhere, {end}}}", "Place{index, x}"
            scalars = (".index", ".value")
            return Part("place", "Place", "the first of the best", nowhere, here, "first_of(a, b)", scalars, 16, 8)
    return _moments(lift, F64 if accumulator == F64 else F32)


def _moments(lift: str, real: DType) -> Part:
    zero, scalars = _number(real, 0), (".count", ".mean", ".m2")
    apart = "x - x" if lift == "x" else zero  # NaN where x is infinite, which no integer is
    none, one = f"Moments{{0, {zero}, {zero}}}", f"Moments{{1, {lift}, {apart}}}"
    what, size = "their number, mean, and squares about it", 8 + 2 * real.size
    return Part("moments", "Moments", what, none, one, "merge(a, b)", scalars, size, 8)


def _number(dtype: DType, number: int) -> str:
    return f"{number}.0f" if dtype == F32 else f"{number}.0" if dtype == F64 else str(number)


def _end(accumulator: DType, dtype: DType, *, least: bool) -> str:
    """The least or greatest value of the elements' type, as the accumulator holds it."""
    if dtype.kind == "float":
        sign = "-" if least else ""
        return f"{sign}{_BITS[accumulator.size]}({_INFINITY[accumulator.size]})"
    if dtype == BOOL:
        return "0u" if least else "1u"
    if dtype.kind == "uint":
        if least:
            return "0u" if dtype.size < 8 else "0ull"
        return {1: "0xffu", 2: "0xffffu", 4: "0xffffffffu", 8: "0xffffffffffffffffull"}[dtype.size]
    greatest = {1: "127", 2: "32767", 4: "2147483647", 8: "9223372036854775807ll"}[dtype.size]
    return f"-{greatest} - 1" if least else greatest


def _better(spec: ReductionSpec) -> str:
    sign = "<" if spec.op == ("argmin",) else ">"
    return f"a {sign} b" if spec.dtype.kind != "float" else f"(a {sign} b) | ((a != a) & (b == b))"


def _replaces(spec: ReductionSpec) -> str:
    sign = "<" if spec.op == ("argmin",) else ">"
    return f"x {sign} best" if spec.dtype.kind != "float" else f"x {sign} best || x != x"


def _result(spec: ReductionSpec, operator: Operator, name: str, dtype: DType, alone: bool) -> Result:
    part = _part(operator, spec.dtype, operator.accumulator(spec.dtype, dtype))
    state = "state" if alone else f"state.{part.name}"
    real = real_type(dtype)
    root, signed = "sqrt" if real == F64 else "sqrtf", spec.dtype.kind == "int"
    match operator.name:
        case "mean":
            total = state
            if part.type == U64.cuda:  # exact, and as signed as the elements
                total = f"static_cast<{real.cuda}>({f'static_cast<{I64.cuda}>({state})' if signed else state})"
            value = f"{total} / static_cast<{real.cuda}>(count)"
        case "var" | "std":
            left = "count" if not spec.ddof else f"count - {spec.ddof}"
            freedom = left if not spec.ddof else f"(count > {spec.ddof} ? {left} : 0)"
            value = f"{state}.m2 / static_cast<{real.cuda}>({freedom})"
            if operator.name == "std":
                value = f"{root}({value})"
        case "norm":
            value = f"{root}({state})"
        case "any" | "all":
            value = f"{state} != 0"
        case "argmin" | "argmax":
            end = _end(value_type(spec.dtype), spec.dtype, least=operator.name == "argmax")
            value = f"is_better({state}.value, {end}) ? {state}.index : 0"
        case _:
            value = state
    return Result(name, dtype.cuda, _cast(value, dtype))


def _cast(value: str, dtype: DType) -> str:
    """A value as the result's type."""
    if dtype == F16:
        return f"__float2half_rn({value})"
    if dtype == BF16:
        return f"__float2bfloat16_rn({value})"
    if dtype.kind == "float" or value.endswith(("!= 0", ".index : 0")):
        return value
    return f"{value} != 0" if dtype == BOOL else f"static_cast<{dtype.cuda}>({value})"
