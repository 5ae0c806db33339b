"""Element types and cache operators: how CUDA C++ and NumPy spell them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeGuard

import numpy as np

from gen.errors import SpecError


@dataclass(frozen=True)
class DType:
    """One element type.

    Attributes:
        name: the short name in specs, labels and file names: `f32`.
        cuda: the C++ type of one element in a kernel: `float`.
        size: bytes of one element.
        kind: `float`, `int`, `uint`, `complex`, or `bits` for elements that are only moved.
        precision: bits of the significand, hidden one included; 0 unless `kind` is `float`.
    """

    name: str
    cuda: str
    size: int
    kind: str
    precision: int = 0

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype that stores one element. Bits of 16 bytes are stored as `complex128`."""
        if self.name == "bf16":
            import ml_dtypes  # only bfloat16 needs it

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(_NUMPY[self.name])

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next number: 2^-24 for f32. 0 for exact types."""
        return 0.0 if self.precision == 0 else 2.0**-self.precision

    @property
    def largest(self) -> float:
        """The largest finite number. Raises ValueError unless `kind` is `float`."""
        return float(self._info().max)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number of full precision. Raises ValueError unless `kind` is `float`."""
        return float(self._info().smallest_normal)

    @property
    def smallest(self) -> float:
        """The smallest positive number, which is subnormal. Raises ValueError unless `kind` is `float`."""
        return float(self._info().smallest_subnormal)

    def casts_to(self, other: DType) -> bool:
        """Whether NumPy calls a conversion to the other type safe: i32 to f64, not i64 to i32, nor f64 to f32."""
        if BF16 in (self, other):  # of which NumPy knows nothing: 8 bits of a significand, the exponents of f32
            bytes_at_most = self.kind != "bits" and self.kind != "float" and self.size == 1
            return self == other or (other in (F32, F64) if self == BF16 else bytes_at_most)
        return "bits" not in (self.kind, other.kind) and bool(np.can_cast(self.numpy, other.numpy, "safe"))

    def _info(self) -> Any:
        if self.name != "bf16":
            return np.finfo(self.numpy)
        import ml_dtypes  # NumPy knows nothing of bfloat16

        finfo: Any = ml_dtypes.finfo  # its types say nothing of its arguments
        return finfo(self.numpy)

    def holds(self, dtype: np.dtype[Any]) -> bool:
        """Whether an array of NumPy's `dtype` can be read as this type. Bits take any type of their size."""
        if self.kind == "bits":
            return dtype.itemsize == self.size and not dtype.hasobject
        return dtype == self.numpy


_NUMPY = {
    "f16": "float16", "f32": "float32", "f64": "float64",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "bool": "bool",
    "b8": "uint8", "b16": "uint16", "b32": "uint32", "b64": "uint64", "b128": "complex128",
    "c64": "complex64", "c128": "complex128",
}  # fmt: skip

BOOL = DType("bool", "bool", 1, "uint")
F16 = DType("f16", "__half", 2, "float", 11)
BF16 = DType("bf16", "__nv_bfloat16", 2, "float", 8)
F32 = DType("f32", "float", 4, "float", 24)
F64 = DType("f64", "double", 8, "float", 53)
I8 = DType("i8", "signed char", 1, "int")
I16 = DType("i16", "short", 2, "int")
I32 = DType("i32", "int", 4, "int")
I64 = DType("i64", "long long", 8, "int")
U8 = DType("u8", "unsigned char", 1, "uint")
U16 = DType("u16", "unsigned short", 2, "uint")
U32 = DType("u32", "unsigned", 4, "uint")
U64 = DType("u64", "unsigned long long", 8, "uint")
# As PTX's .b8 ... .b128: so many bits, moved and never computed with.
B8 = DType("b8", "unsigned char", 1, "bits")
B16 = DType("b16", "unsigned short", 2, "bits")
B32 = DType("b32", "unsigned", 4, "bits")
B64 = DType("b64", "uint2", 8, "bits")
B128 = DType("b128", "uint4", 16, "bits")
# Real and imaginary part, as they lie. Not among DTYPES: most families compute with real numbers only.
C64 = DType("c64", "uint2", 8, "complex", 24)
C128 = DType("c128", "uint4", 16, "complex", 53)

DTYPES = {
    dtype.name: dtype
    for dtype in (BOOL, F16, BF16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, B8, B16, B32, B64, B128)
}


def numpy_dtype(value: Any) -> np.dtype[Any] | None:
    """What NumPy takes a caller's word, type or description of fields for; None where that is no dtype."""
    if value is None:  # which NumPy would take for f64
        return None
    try:
        meant: np.dtype[Any] = np.dtype(value)
    except (TypeError, ValueError, SyntaxError, OverflowError):  # it parses some words as Python
        return None
    return meant


def find_dtype(value: Any, choices: Iterable[DType], subject: str) -> DType | None:
    """The one of these that a caller means: itself, its name, or what NumPy takes for it; None if it is none.

    Raises SpecError, about `subject`, for a string that NumPy reads as another type than gen: `i8` has 64 bits there.
    """
    if isinstance(value, DType):
        return value if value in choices else None
    meant = numpy_dtype(value)
    if isinstance(value, str):
        check_one_meaning(value, meant, subject)
        for known in choices:
            if known.name == value:
                return known
    return next((known for known in choices if meant is not None and known.numpy == meant), None)


def check_one_meaning(word: str, meant: np.dtype[Any] | None, subject: str) -> None:
    """Raises SpecError, about `subject`, if a word is the name of one type here and of another, `meant`, in NumPy."""
    ours = DTYPES.get(word)
    if ours is not None and meant is not None and meant != ours.numpy:
        bits = 8 * ours.size
        rule = (
            f"must mean one type: {word} has {8 * meant.itemsize} bits in NumPy, and {bits} in names of gen's kernels"
        )
        raise SpecError(subject, rule, repr(word), next_step=f"Say {ours.numpy.name} or {meant.name}")


def python_int(value: Any) -> Any:
    """A NumPy integer as a Python int; anything else as it is, for whoever checks it."""
    is_integer = isinstance(value, np.integer) and value.dtype.kind in "iu"  # to NumPy timedelta64 is an integer too
    return int(value) if is_integer else value


def is_whole(value: object) -> TypeGuard[int | np.integer[Any]]:
    """Whether a value is a whole number of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def name_of(dtype: np.dtype[Any]) -> str | None:
    """What gen calls the type of an array's elements: `f16`; None where it has no name for it."""
    return next(
        (known.name for known in (*DTYPES.values(), C64, C128) if known.kind != "bits" and known.holds(dtype)), None
    )


def read_dtype(name: object, subject: str) -> DType:
    """The element type that JSON spells. Raises SpecError, about `subject`, for any other value."""
    if not isinstance(name, str) or name not in DTYPES:
        raise SpecError(subject, "must be one of " + ", ".join(DTYPES), repr(name))
    return DTYPES[name]


class LoadModifier(Enum):
    """The cache operator of a load: its value is what follows `__ld` in the CUDA intrinsic. Names are CUB's."""

    DEFAULT = ""
    CA = "ca"  # cache at all levels
    CG = "cg"  # cache in L2 only
    CS = "cs"  # streaming: evict first
    LDG = "g"  # through the read-only path
    LU = "lu"  # last use
    CV = "cv"  # do not cache
    EVICT_LAST = "el"  # leaves L1 and L2 after all else: no intrinsic, but a function of the templates

    @property
    def intrinsic(self) -> str:
        """The CUDA function, or that of the templates, or an empty string for a plain load."""
        if self is LoadModifier.EVICT_LAST:
            return "ld_evict_last"
        return f"__ld{self.value}" if self.value else ""


class StoreModifier(Enum):
    """The cache operator of a store: its value is what follows `__st` in the CUDA intrinsic. Names are CUB's."""

    DEFAULT = ""
    WB = "wb"  # write back at all levels
    CG = "cg"  # cache in L2 only
    CS = "cs"  # streaming: evict first
    WT = "wt"  # write through
    EVICT_LAST = "el"  # leaves L2 after all else: no intrinsic, but a function of the templates

    @property
    def intrinsic(self) -> str:
        """The CUDA function, or that of the templates, or an empty string for a plain store."""
        if self is StoreModifier.EVICT_LAST:
            return "st_evict_last"
        return f"__st{self.value}" if self.value else ""
