"""What a warp does together, and the intrinsics of a word, on the CPU run: each gives what NumPy and Python give."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.dtypes import B32, I32, U32
from gen.families.base import Operand
from gen.families.expr import ONE, size
from tests.host.host_kernels import one_launch, run_text

SHUFFLES = """
extern "C" __global__ void NAME(const unsigned* in, unsigned* out, int width) {
  const unsigned all = 0xffffffffu, x = in[threadIdx.x];
  unsigned* mine = out + threadIdx.x * 12;
  mine[0] = __shfl_sync(all, x, 5, width);
  mine[1] = __shfl_up_sync(all, x, 3, width);
  mine[2] = __shfl_down_sync(all, x, 3, width);
  mine[3] = __shfl_xor_sync(all, x, 5, width);
  mine[4] = __ballot_sync(all, x % 3 == 0);
  mine[5] = __any_sync(all, x == 7) + 2 * __all_sync(all, x < 32);
  mine[6] = __reduce_add_sync(all, x);
  mine[7] = __reduce_max_sync(all, x) + 100 * __reduce_min_sync(all, x);
  mine[8] = __reduce_xor_sync(all, x) + __reduce_or_sync(all, x) + __reduce_and_sync(all, x);
  mine[9] = __match_any_sync(all, x % 4);
  mine[10] = __reduce_min_sync(all, (int)x - 16);
  mine[11] = (unsigned)(__shfl_down_sync(all, (unsigned long long)x << 32, 1, width) >> 32);
}
"""


@pytest.mark.parametrize("width", [32, 16, 8, 4])
def test_warp_collectives(cache: Path, width: int) -> None:
    lanes = np.arange(32)
    values = np.random.default_rng(5).permutation(32).astype(np.uint32)
    out = np.zeros((32, 12), np.uint32)
    operands = (Operand("in", "in", U32, ("n",)), Operand("out", "out", U32, ("n",)))
    plan = one_launch(32, ONE, "in", "out", (I32, size("width")))
    run_text(cache, SHUFFLES, operands, plan, {"n": 32, "width": width}, {"in": values, "out": out})
    first = lanes // width * width
    last = first + width - 1

    def sources(wanted: np.ndarray[Any, Any], valid: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return values[np.where(valid, wanted, lanes)]

    always = np.ones(32, bool)
    below, above, across = lanes - 3, lanes + 3, lanes ^ 5
    assert np.array_equal(out[:, 0], sources(first + 5 % width, always))
    assert np.array_equal(out[:, 1], values[np.where(below >= first, below, lanes)])
    assert np.array_equal(out[:, 2], values[np.where(above <= last, above, lanes)])
    assert np.array_equal(out[:, 3], values[np.where(across <= last, across, lanes)])
    assert (out[:, 4] == sum(1 << int(lane) for lane in lanes if values[lane] % 3 == 0)).all()
    assert (out[:, 5] == 3).all()
    assert (out[:, 6] == 31 * 16).all()
    assert (out[:, 7] == 31).all()
    assert (out[:, 8] == 31).all()  # 0..31: exclusive or 0, or 31, and 0
    for lane in lanes:
        equal = sum(1 << int(other) for other in lanes if values[other] % 4 == values[lane] % 4)
        assert out[lane, 9] == equal
    assert (out[:, 10].view(np.int32) == -16).all()
    after = lanes + 1
    assert np.array_equal(out[:, 11], values[np.where(after <= last, after, lanes)])


INTRINSICS = """
extern "C" __global__ void NAME(const unsigned* in, unsigned* out) {
  const unsigned a = in[0], b = in[1], c = in[2];
  out[0] = __byte_perm(a, b, 0x5140);
  out[1] = __byte_perm(a, b, 0xf7a2);
  out[2] = __funnelshift_r(a, b, c);
  out[3] = __funnelshift_l(a, b, c);
  out[4] = __funnelshift_rc(a, b, 40);
  out[5] = __funnelshift_lc(a, b, 40);
  out[6] = __dp4a(a, b, c);
  out[7] = (unsigned)__dp4a((int)a, (int)b, (int)c);
  out[8] = __vminu4(a, b);
  out[9] = __vmaxs4(a, b);
  out[10] = __vadd4(a, b);
  out[11] = (unsigned)__popc(a) + 100u * (unsigned)__clz((int)(a >> 3)) + 10000u * (unsigned)__ffs((int)(a & ~1u));
  out[12] = __brev(a);
  out[13] = __float_as_uint(fmaf(__uint_as_float(0x3f800001u), __uint_as_float(0x3f800001u), -1.0f));
  out[14] = (unsigned)min(3, -5) + max(7u, 4u) + (unsigned)min(9LL, 1LL << 40);
  out[15] = __vmaxu2(a, b);
  out[16] = __umulhi(a, b);
}
"""


def test_intrinsics_of_a_word(cache: Path) -> None:
    a, b, c = 0x81F2037C, 0x7E0DFC83, 13
    out = np.zeros(17, np.uint32)
    operands = (Operand("in", "in", B32, ("n",)), Operand("out", "out", B32, ("n",)))
    plan = one_launch(1, ONE, "in", "out")
    run_text(cache, INTRINSICS, operands, plan, {"n": 17}, {"in": np.array([a, b, c], np.uint32), "out": out})
    bytes_a, bytes_b = a.to_bytes(4, "little"), b.to_bytes(4, "little")
    both = bytes_a + bytes_b

    def signed(byte: int) -> int:
        return byte - 256 if byte > 127 else byte

    def word(parts: Sequence[int]) -> int:
        return int.from_bytes(bytes(part % 256 for part in parts), "little")

    joined = b << 32 | a
    product = np.float32(1.0000001192092896) ** 2
    assert float(product) == 1.000000238418579  # rounded: the fused result keeps 2^-46 more
    exact = np.float32(2.0**-22 + 2.0**-46)
    halves = [max(a >> shift & 65535, b >> shift & 65535) << shift for shift in (0, 16)]
    assert out.tolist() == [
        word([both[0], both[4], both[1], both[5]]),
        word([both[2], 255 * (both[2] >> 7), both[7], 255 * (both[7] >> 7)]),
        joined >> c & 0xFFFFFFFF,
        joined << c >> 32 & 0xFFFFFFFF,
        b,
        a,
        (sum(x * y for x, y in zip(bytes_a, bytes_b, strict=True)) + c) % 2**32,
        (sum(signed(x) * signed(y) for x, y in zip(bytes_a, bytes_b, strict=True)) + c) % 2**32,
        word([min(x, y) for x, y in zip(bytes_a, bytes_b, strict=True)]),
        word([max(signed(x), signed(y)) for x, y in zip(bytes_a, bytes_b, strict=True)]),
        word([x + y for x, y in zip(bytes_a, bytes_b, strict=True)]),
        a.bit_count() + 100 * (32 - (a >> 3).bit_length()) + 10000 * 3,
        int(f"{a:032b}"[::-1], 2),
        int(exact.view(np.uint32)),
        (-5 + 7 + 9) % 2**32,
        sum(halves),
        a * b >> 32,
    ]


def compute(cache: Path, expressions: Sequence[str], rows: np.ndarray[Any, Any], before: str = "") -> Any:
    """For each row of three words a, b, c the value of each expression; out has a column for each."""
    stores = "\n".join(f"mine[{place}] = (unsigned)({text});" for place, text in enumerate(expressions))
    text = f"""{before}
    extern "C" __global__ void NAME(const unsigned* in, unsigned* out) {{
      const unsigned a = in[3 * threadIdx.x], b = in[3 * threadIdx.x + 1], c = in[3 * threadIdx.x + 2];
      unsigned* mine = out + threadIdx.x * {len(expressions)};
      {stores}
    }}
    """
    out = np.zeros((len(rows), len(expressions)), np.uint32)
    operands = (Operand("in", "in", B32, ("n",)), Operand("out", "out", B32, ("n",)))
    plan = one_launch(len(rows), ONE, "in", "out")
    run_text(cache, text, operands, plan, {"n": 1}, {"in": np.ascontiguousarray(rows), "out": out})
    return out


def words(count: int, seed: int = 3) -> np.ndarray[Any, Any]:
    """Rows of three words; many of their bytes are the ends of a range."""
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 256, (count, 12), np.uint8)
    ends = random.choice(np.array([0, 1, 127, 128, 129, 255], np.uint8), drawn.shape)
    return np.where(random.random(drawn.shape) < 0.5, drawn, ends).astype(np.uint8).view(np.uint32)


def simd(lanes: int) -> dict[str, np.ndarray[Any, Any]]:
    """What the intrinsics on so many lanes of a word must give, for `words(64)`."""
    size, bits = 4 // lanes, 32 // lanes
    raw = np.ascontiguousarray(words(64)[:, :2])
    unsigned = [raw[:, i].copy().view(f"u{size}").astype(np.int64).reshape(-1, lanes) for i in range(2)]
    signed = [raw[:, i].copy().view(f"i{size}").astype(np.int64).reshape(-1, lanes) for i in range(2)]
    low, high, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 2**bits - 1
    (a, b), (x, y) = unsigned, signed
    parts = {
        "vminu": np.minimum(a, b), "vmaxu": np.maximum(a, b), "vmins": np.minimum(x, y), "vmaxs": np.maximum(x, y),
        "vadd": a + b, "vaddss": np.clip(x + y, low, high), "vaddus": np.clip(a + b, 0, most),
        "vsub": a - b, "vsubss": np.clip(x - y, low, high), "vsubus": np.clip(a - b, 0, most),
        "vabsdiffs": abs(x - y), "vabsdiffu": abs(a - b), "vhaddu": (a + b) // 2, "vavgu": (a + b + 1) // 2,
        "vavgs": np.where(x + y < 0, (x + y) // 2, (x + y + 1) // 2),
        "vabs": abs(x), "vabsss": np.clip(abs(x), 0, high), "vneg": -x, "vnegss": np.clip(-x, low, high),
    }  # fmt: skip
    compared = {
        "eq": a == b, "ne": a != b, "ges": x >= y, "geu": a >= b, "gts": x > y, "gtu": a > b,
        "les": x <= y, "leu": a <= b, "lts": x < y, "ltu": a < b,
    }  # fmt: skip
    for name, holds in compared.items():
        parts[f"vcmp{name}"] = np.where(holds, most, 0)
        parts[f"vset{name}"] = holds.astype(np.int64)
    shifts = np.arange(lanes) * bits
    found = {f"__{name}{lanes}": ((part & most) << shifts).sum(axis=1) for name, part in parts.items()}
    return {**found, f"__vsads{lanes}": abs(x - y).sum(axis=1), f"__vsadu{lanes}": abs(a - b).sum(axis=1)}


@pytest.mark.parametrize("lanes", [2, 4])
def test_simd_within_a_word(cache: Path, lanes: int) -> None:
    expected = simd(lanes)
    one = ("vabs", "vneg")
    unary = {f"__{name}{suffix}{lanes}" for name in one for suffix in ("", "ss")}
    expressions = [f"{name}(a)" if name in unary else f"{name}(a, b)" for name in expected]
    out = compute(cache, expressions, words(64))
    assert len(expected) == 41
    for column, (name, values) in enumerate(expected.items()):
        assert np.array_equal(out[:, column], values.astype(np.uint32)), name


def test_more_intrinsics_of_a_word(cache: Path) -> None:
    rows = words(64, seed=4)
    unsigned = [[int(value) for value in row] for row in rows]
    signed = [[int(value) for value in row] for row in rows.view(np.int32)]

    def half(word: int, place: int) -> int:
        return int(np.uint16(word >> 16 * place & 65535).view(np.int16))

    def byte(word: int, place: int) -> int:
        return int(np.uint8(word >> 8 * place & 255).view(np.int8))

    def low24(word: int) -> int:
        return (word & 0xFFFFFF) - (1 << 24 if word & 0x800000 else 0)

    def wrapped(value: int) -> int:
        return (value + 2**31) % 2**32 - 2**31

    def halves(word: int) -> list[int]:
        return [half(word, 0), half(word, 1)]

    def joined(parts: Sequence[int]) -> int:
        return parts[0] % 65536 | parts[1] % 65536 << 16

    def wrapped16(value: int) -> int:
        return (value + 2**15) % 2**16 - 2**15

    pairs = [list(zip(*map(halves, row), strict=True)) for row in unsigned]
    table: list[tuple[str, list[int]]] = [
        ("__dp2a_lo(a, b, c)",
         [c + sum((a >> 16 * i & 65535) * (b >> 8 * i & 255) for i in (0, 1)) for a, b, c in unsigned]),
        ("__dp2a_hi((int)a, (int)b, (int)c)",
         [c + sum(half(a, i) * byte(b, i + 2) for i in (0, 1)) for a, b, c in unsigned]),
        ("__hadd((int)a, (int)b)", [(a + b) >> 1 for a, b, _ in signed]),
        ("__rhadd((int)a, (int)b)", [(a + b + 1) >> 1 for a, b, _ in signed]),
        ("__uhadd(a, b)", [(a + b) >> 1 for a, b, _ in unsigned]),
        ("__urhadd(a, b)", [(a + b + 1) >> 1 for a, b, _ in unsigned]),
        ("__mul24((int)a, (int)b)", [low24(a) * low24(b) for a, b, _ in unsigned]),
        ("__umul24(a, b)", [(a % 2**24) * (b % 2**24) for a, b, _ in unsigned]),
        ("__mulhi((int)a, (int)b)", [a * b >> 32 for a, b, _ in signed]),
        ("__mul64hi((long long)(int)a << 32, (long long)(int)b << 32)", [a * b for a, b, _ in signed]),
        ("__umul64hi((unsigned long long)a << 32, b)", [a * b >> 32 for a, b, _ in unsigned]),
        ("__sad((int)a, (int)b, c)", [abs(a - b) + c for a, b, c in signed]),
        ("__usad(a, b, c)", [abs(a - b) + c for a, b, c in unsigned]),
        ("__popcll((unsigned long long)a << 32 | b)", [a.bit_count() + b.bit_count() for a, b, _ in unsigned]),
        ("__clzll((long long)b)", [64 - b.bit_length() for _, b, _ in unsigned]),
        ("__ffsll((long long)a << 32)", [(a & -a).bit_length() + 32 if a else 0 for a, _, _ in unsigned]),
        ("__brevll((unsigned long long)a << 32)", [int(f"{a:032b}"[::-1], 2) for a, _, _ in unsigned]),
        ("__viaddmax_s32((int)a, (int)b, (int)c)", [max(wrapped(a + b), c) for a, b, c in signed]),
        ("__viaddmin_u32(a, b, c)", [min((a + b) % 2**32, c) for a, b, c in unsigned]),
        ("__vimax3_u32(a, b, c)", [max(row) for row in unsigned]),
        ("__vimin3_s32_relu((int)a, (int)b, (int)c)", [max(min(row), 0) for row in signed]),
        ("__vimax_s32_relu((int)a, (int)b)", [max(a, b, 0) for a, b, _ in signed]),
        ("__viaddmin_s16x2_relu(a, b, c)",
         [joined([max(min(wrapped16(x + y), z), 0) for x, y, z in row]) for row in pairs]),
        ("__vimax3_s16x2(a, b, c)", [joined([max(part) for part in row]) for row in pairs]),
        ("__byte_perm(a, b, c)",
         [sum((255 * ((a | b << 32) >> 8 * (n & 7) + 7 & 1) if n & 8 else (a | b << 32) >> 8 * (n & 7) & 255) << 8 * i
              for i in range(4) for n in [c >> 4 * i & 15]) for a, b, c in unsigned]),
    ]  # fmt: skip
    out = compute(cache, [expression for expression, _ in table], rows)
    for column, (expression, values) in enumerate(table):
        assert out[:, column].tolist() == [value % 2**32 for value in values], expression


def test_numbers_become_integers(cache: Path) -> None:
    """Rounded in all four ways; what does not fit becomes the nearest that does, and NaN what PTX says of `cvt`."""
    numbers = np.array([0.5, 1.5, -0.5, -2.5, 2.49, 3e9, -3e9, 5e9, 1e19, -1e19, np.inf, -np.inf, np.nan], np.float32)
    rounds: dict[str, Callable[[float], int]] = {"rn": round, "rz": math.trunc, "rd": math.floor, "ru": math.ceil}
    ranges = {
        "int": (-(2**31), 2**31 - 1), "uint": (0, 2**32 - 1), "ll": (-(2**63), 2**63 - 1), "ull": (0, 2**64 - 1),
    }  # fmt: skip
    expressions, expected = [], []
    for target, (low, high) in ranges.items():
        bits = (high - low).bit_length()
        for (name, rounded), source, first in product(rounds.items(), ("float", "double"), range(0, bits, 32)):
            expressions.append(f"(unsigned)(__{source}2{target}_{name}(__uint_as_float(a)) >> {first})")
            ends = {math.inf: high, -math.inf: low}
            values = [min(max(ends[x] if math.isinf(x) else rounded(x), low), high) for x in map(float, numbers[:-1])]
            not_a_number = 0 if source == "float" and bits == 32 else 1 << (bits - 1)
            expected.append([value >> first & 0xFFFFFFFF for value in (*values, not_a_number)])
    rows = np.repeat(numbers.view(np.uint32)[:, None], 3, axis=1)
    out = compute(cache, expressions, rows)
    for column, expression in enumerate(expressions):
        assert out[:, column].tolist() == expected[column], expression


def test_matches_and_the_active_mask(cache: Path) -> None:
    votes = """
    __device__ unsigned match_all(unsigned mask, unsigned long long value) {
      int all;
      const unsigned lanes = __match_all_sync(mask, value, &all);
      return lanes ^ (all ? 0x10000u : 0u);
    }
    """
    rows = np.zeros((32, 3), np.uint32)
    rows[:, 0] = np.arange(32) // 8
    rows[:16, 1] = 7
    rows[16:, 1] = np.arange(16)
    mask = "(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u)"
    expressions = [
        "__match_any_sync(0xffffffffu, a)", f"match_all({mask}, (unsigned long long)b << 32)", "__activemask()",
        f"__any_sync({mask}, b == 15)", f"__all_sync({mask}, b == 7)", f"__ballot_sync({mask}, a & 1)",
        f"__reduce_add_sync({mask}, b)", f"__reduce_max_sync({mask}, b)", f"__reduce_or_sync({mask}, b)",
    ]  # fmt: skip
    out = compute(cache, expressions, rows, votes)
    lanes = np.arange(32)
    assert out[:, 0].tolist() == [0xFF << lane // 8 * 8 for lane in range(32)]
    assert out[:, 1].tolist() == [0xFFFF ^ 0x10000] * 16 + [0] * 16
    assert (out[:, 2] >> lanes.astype(np.uint32) & 1 == 1).all()
    assert out[:, 3].tolist() == [0] * 16 + [1] * 16
    assert out[:, 4].tolist() == [1] * 16 + [0] * 16
    assert out[:, 5].tolist() == [0x0000FF00] * 16 + [0xFF000000] * 16
    assert out[:, 6].tolist() == [112] * 16 + [120] * 16
    assert out[:, 7].tolist() == [7] * 16 + [15] * 16
    assert out[:, 8].tolist() == [7] * 16 + [15] * 16
