"""The kernels that the measuring side runs beside those it measures, each on the CPU run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import clang_format  # type: ignore[import-untyped]
import numpy as np
import pytest

from gen.dtypes import B32, BF16, F16, F32, F64, I32, I64, U8, U32, U64, DType
from gen.families.base import Array, Launch, Limits, Operand, Plan
from gen.families.expr import ONE, Expr, size
from gen.gpu.elements import Rows, kind_of
from gen.paths import cache_home, output_home
from gen.proof.host import HostKernel, HostRunner
from tests.fake_family import called_variant

CHECKOUT = Path(__file__).parents[2]
SOURCE = (files("gen.gpu") / "kernels.cu").read_text(encoding="utf-8")
THREADS = 256
NOT_FOUND = 2**64 - 1
WORDS = ("n",)
OPERANDS = (
    Operand("source", "in", U32, WORDS),
    Operand("other", "in", U32, WORDS),
    Operand("to", "out", U32, WORDS),
    Operand("sink", "inout", U32, WORDS),
    Operand("count", "inout", U64, WORDS),
    Operand("first", "inout", U64, WORDS),
    Operand("open", "in", I32, WORDS),
    Operand("bytes", "in", U8, WORDS),
    Operand("kept", "in", U8, WORDS),
    Operand("expected", "in", F64, WORDS),
    Operand("magnitude", "in", F64, WORDS),
    Operand("seed", "number", U32),
    Operand("relative", "number", F64),
    Operand("unit", "number", F64),
    Operand("absolute", "number", F64),
    Operand("largest", "number", F64),
)
LONG = (I64, size("n"))
ROWS = ((I64, size("row")), (I64, size("pitch")))
ARGUMENTS: Mapping[str, tuple[str | tuple[DType, Expr], ...]] = {
    "empty": (),
    "gate": ("open", LONG),
    "fill": ("to", "seed", LONG),
    "copy": ("source", "to", LONG),
    "read": ("source", "sink", LONG),
    "claim": ("source", "sink", LONG),
    "release": ("source", LONG),
    "random": ("to", "seed", (I32, size("kind")), LONG),
    "checksum": ("source", "count", LONG),
    "compare_words": ("source", "other", "count", "first", LONG),
    "compare_elements": ("bytes", "kept", (I32, size("size")), *ROWS, "count", "first", LONG),
    "compare_gaps": ("bytes", "seed", *ROWS, "count", "first", LONG),
    "compare_bound": (
        "bytes",
        (I32, size("kind")),
        (I32, size("size")),
        *ROWS,
        "expected",
        "magnitude",
        "relative",
        "unit",
        "absolute",
        "largest",
        "count",
        "first",
        LONG,
    ),
}
PLAN = Plan(
    tuple(
        Launch((size("blocks"), ONE, ONE), (THREADS, 1, 1), arguments, f"_{entry}", times=size(entry))
        for entry, arguments in ARGUMENTS.items()
    )
)
GEN = called_variant("gen", OPERANDS, PLAN)
NO_ROWS = Rows(0, 0, 1, 0)
POISON = 0xFFC1A5B6
SIZES = (0, 1, 255, 256, 257, 1000, 4999)
each_size = pytest.mark.parametrize("n", SIZES)
each_grid = pytest.mark.parametrize("blocks", [1, 3])


@pytest.fixture(scope="module")
def kernels() -> dict[int, HostKernel]:
    """The file, built once; by the seed of the order in which blocks and threads run."""
    cache = cache_home(output_home())  # by content
    runners = {seed: HostRunner(Limits.of("sm_90"), cache=cache, text=lambda _: SOURCE, seed=seed) for seed in (0, 1)}
    return {seed: runner.load([GEN])[0] for seed, runner in runners.items()}


class Service:
    """Runs one of the kernels on arrays and numbers by operand name; what a kernel does not take is empty."""

    def __init__(self, kernels: Mapping[int, HostKernel]) -> None:
        self._kernels = kernels

    def __call__(
        self, entry: str, n: int, *, blocks: int = 3, dtype: DType = B32, rows: Rows = NO_ROWS, order: int = 0,
        **given: Any,
    ) -> None:  # fmt: skip
        row = rows.elements * rows.size if entry == "compare_gaps" else rows.elements
        extents = {
            **dict.fromkeys(ARGUMENTS, 0), entry: 1, "n": n, "blocks": blocks, "kind": kind_of(dtype),
            "size": rows.size, "row": row, "pitch": rows.pitch,
        }  # fmt: skip
        nothing = {o.name: np.zeros(0, o.dtype.numpy) if o.axes else 0 for o in OPERANDS}
        self._kernels[order].run(extents, nothing | given)

    def random(self, n: int, seed: int, **options: Any) -> Array:
        to = np.zeros(n, np.uint32)
        self("random", n, to=to, seed=seed, **options)
        return to

    def checksum(self, words: Array, **options: Any) -> int:
        count = np.zeros(1, np.uint64)
        self("checksum", len(words), count=count, source=words, **options)
        return int(count[0])

    def differing(self, one: Array, other: Array, **options: Any) -> tuple[int, int]:
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        self("compare_words", len(one), source=one, other=other, count=count, first=first, **options)
        return int(count[0]), int(first[0])

    def beyond(
        self, got: Any, expected: Any, magnitude: Any = 1.0, relative: float = 0.0, absolute: float = 0.0, *,
        unit: float = 0.0, largest: float = np.inf, dtype: DType = F32,
    ) -> tuple[int, int]:  # fmt: skip
        got = np.atleast_1d(np.asarray(got).astype(dtype.numpy))
        expected, magnitude = (
            np.ascontiguousarray(np.broadcast_to(np.asarray(x, np.float64), got.shape)) for x in (expected, magnitude)
        )
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        self(
            "compare_bound", len(got), bytes=got.view(np.uint8), expected=expected, magnitude=magnitude,
            relative=relative, unit=unit, absolute=absolute, largest=largest, count=count, first=first, dtype=dtype,
            rows=Rows(1, len(got), dtype.size, got.nbytes),
        )  # fmt: skip
        return int(count[0]), int(first[0])

    def differing_elements(self, one: Array, other: Array, rows: Rows) -> tuple[int, int]:
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        self("compare_elements", rows.total, bytes=one, kept=other, count=count, first=first, rows=rows)
        return int(count[0]), int(first[0])

    def gaps_written(self, memory: Array, rows: Rows, poison: int) -> tuple[int, int]:
        count, first = np.zeros(1, np.uint64), np.full(1, NOT_FOUND, np.uint64)
        gaps = (rows.count - 1) * (rows.pitch - rows.elements * rows.size)
        self("compare_gaps", gaps, bytes=memory, seed=poison, count=count, first=first, rows=rows)
        return int(count[0]), int(first[0])


@pytest.fixture(scope="module")
def service(kernels: dict[int, HostKernel]) -> Service:
    return Service(kernels)


def words(n: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, 2**32, n, np.uint32)


def test_every_kernel_of_the_file_is_tried_here() -> None:
    assert set(re.findall(r"\bgen_(\w+)\(", SOURCE)) == ARGUMENTS.keys()


@pytest.mark.parametrize("entry", ["empty", "gate"])
def test_a_kernel_without_data_touches_none(service: Service, entry: str) -> None:
    service(entry, 1000)


@each_size
@each_grid
def test_fill_writes_one_word_everywhere_and_nothing_behind(service: Service, n: int, blocks: int) -> None:
    to = np.zeros(4 * n + 4, np.uint32)
    service("fill", n, blocks=blocks, to=to, seed=0x7FA15A5A)
    assert (to[: 4 * n] == 0x7FA15A5A).all()
    assert (to[4 * n :] == 0).all()


@each_size
@each_grid
def test_copy_copies_whole_vectors(service: Service, n: int, blocks: int) -> None:
    source, to = words(4 * n + 4), np.zeros(4 * n + 4, np.uint32)
    service("copy", n, blocks=blocks, to=to, source=source)
    assert np.array_equal(to[: 4 * n], source[: 4 * n])
    assert (to[4 * n :] == 0).all()


@pytest.mark.parametrize("n", [*SIZES, 3 * 8 * THREADS])
@pytest.mark.parametrize("entry", ["read", "claim"])
def test_read_normally_writes_nothing(service: Service, entry: str, n: int) -> None:
    sink = np.full(1, 42, np.uint32)
    service(entry, n, sink=sink, source=words(4 * n))
    assert sink[0] == 42


@each_size
def test_release_changes_nothing(service: Service, n: int) -> None:
    source = words(4 * n)
    service("release", n, source=source)
    assert np.array_equal(source, words(4 * n))


LAST = 4 * 8 * THREADS * 2 + 400 - 1  # of two rounds of eight vectors a thread, and some more


@pytest.mark.parametrize(
    "place", [0, 1, 2, 3, 4 * THREADS, 4 * 7 * THREADS + 1, 4 * 8 * THREADS - 1, 4 * 15 * THREADS, LAST - 401, LAST]
)
@pytest.mark.parametrize("entry", ["read", "claim"])
def test_read_folds_every_word(service: Service, entry: str, place: int) -> None:
    source, sink = np.zeros(LAST + 1, np.uint32), np.zeros(1, np.uint32)
    source[place] = 0xDEADBEEF  # the one fold that is written
    service(entry, len(source) // 4, blocks=1, sink=sink, source=source)
    assert sink[0] == 0xDEADBEEF


def test_read_folds_all_words_of_a_thread_together(service: Service) -> None:
    """Every thread's fold is the word: an even number of them cancels, an odd one does not."""
    vectors = 11 * THREADS  # eight loads at once and three more
    source = words(4 * vectors).reshape(11, THREADS, 4)
    source[-1, :, 3] ^= np.bitwise_xor.reduce(source, axis=(0, 2)) ^ np.uint32(0xDEADBEEF)
    for threads in (THREADS, THREADS - 1):
        sink = np.zeros(1, np.uint32)
        source[-1, threads:, 3] ^= 1
        service("read", vectors, blocks=1, sink=sink, source=source.reshape(-1))
        assert sink[0] == (0xDEADBEEF if threads % 2 else 0)


@each_size
@each_grid
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=lambda dtype: dtype.name)
def test_random_floats_are_whole_numbers_from_1_to_8_with_either_sign(
    service: Service, n: int, blocks: int, dtype: DType
) -> None:
    n += n % 2  # an f64 takes two words
    floats = service.random(n, 1, dtype=dtype, blocks=blocks).view(dtype.numpy).astype(np.float64)
    numbers = {float(number) for magnitude in range(1, 9) for number in (-magnitude, magnitude)}
    assert set(floats.tolist()) <= numbers
    if n > 200:
        found, counts = np.unique(floats, return_counts=True)
        assert set(found.tolist()) == numbers
        assert counts.min() > len(floats) / 16 / 3
        assert counts.max() < len(floats) / 16 * 3


def test_random_halves_of_a_word_differ(service: Service) -> None:
    for dtype in (F16, BF16):
        pairs = service.random(4096, 1, dtype=dtype).view(dtype.numpy).reshape(-1, 2).astype(np.float64)
        assert len(np.unique(pairs, axis=0)) == 16 * 16


@each_size
def test_random_truth_values_are_0_and_1(service: Service, n: int) -> None:
    found = service.random(n, 1, dtype=DType("bool", "bool", 1, "bool")).view(np.uint8)
    assert set(found.tolist()) <= {0, 1}
    assert n < 200 or 0.4 < found.mean() < 0.6


def test_random_words_depend_on_seed_and_place_alone(service: Service) -> None:
    one = service.random(1000, 1)
    assert np.array_equal(one, service.random(1000, 1, blocks=1, order=1))
    assert np.array_equal(one[:300], service.random(300, 1))
    assert not np.array_equal(one, service.random(1000, 2))
    assert len(np.unique(one)) > 990
    ones = np.unpackbits(one.view(np.uint8)).reshape(1000, 32).mean(axis=0)
    assert ((ones > 0.4) & (ones < 0.6)).all()  # every bit is as often 1 as 0


def test_random_is_the_finalizer_of_murmur_hash_3(service: Service) -> None:
    """Its value for 1, 0 and all ones, worked out by hand from the published code."""

    def mixed(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        return h ^ h >> 16

    assert mixed(1) == 0x514E28B7
    assert service.random(3, 0xFFFFFFFE).tolist() == [mixed(0xFFFFFFFE), mixed(0xFFFFFFFF), mixed(0xFFFFFFFC)]


@each_size
def test_a_checksum_does_not_depend_on_grid_and_order(service: Service, n: int) -> None:
    content = words(n)
    found = {service.checksum(content, blocks=blocks, order=order) for blocks in (1, 2, 7) for order in (0, 1)}
    expected = sum((int(word) + 0x9E3779B97F4A7C15) * (2 * i + 1) for i, word in enumerate(content)) % 2**64
    assert found == {expected}


@pytest.mark.parametrize("place", [0, 1, 500, 998, 999])
def test_a_checksum_shows_one_changed_and_two_swapped_words(service: Service, place: int) -> None:
    content = words(1000)
    before = service.checksum(content)
    for bit in (0, 31):
        changed = content.copy()
        changed[place] ^= np.uint32(1 << bit)
        assert service.checksum(changed) != before
    swapped = content.copy()
    swapped[[place, 700]] = content[[700, place]]
    assert service.checksum(swapped) != before


def test_a_checksum_shows_a_missing_zero(service: Service) -> None:
    assert len({service.checksum(np.zeros(n, np.uint32)) for n in range(5)}) == 5


@each_size
@each_grid
def test_equal_words_do_not_differ(service: Service, n: int, blocks: int) -> None:
    assert service.differing(words(n), words(n), blocks=blocks) == (0, NOT_FOUND)


@pytest.mark.parametrize("places", [[0], [999], [0, 999], [400, 401, 768], [256], list(range(1000))])
def test_words_that_differ_are_counted_and_the_first_is_found(service: Service, places: list[int]) -> None:
    content, other = words(1000), words(1000)
    other[places] ^= np.uint32(1 << 31)
    for order in (0, 1):
        assert service.differing(content, other, order=order) == (len(places), places[0])


INF, NAN = np.inf, np.nan
FLOAT_MAX = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("got", "expected", "magnitude", "relative", "absolute", "wrong"),
    [
        (1.5, 1.5, 0.0, 0.0, 0.0, False),
        (0.0, -0.0, 0.0, 0.0, 0.0, False),
        (1.5, 1.25, 1.0, 0.25, 0.0, False),  # at the bound
        (1.25, 1.5, 1.0, 0.25, 0.0, False),
        (1.5, 1.2499999, 1.0, 0.25, 0.0, True),
        (1.2499999, 1.5, 1.0, 0.25, 0.0, True),
        (1.5, 1.25, 2.0, 0.125, 0.0, False),  # relative to the magnitude, not to the value
        (1.5, 1.25, 1.9, 0.125, 0.0, True),
        (1.5, 1.25, 0.0, 0.125, 0.25, False),
        (1.5, 1.25, 1.0, 0.125, 0.125, False),  # both together
        (1.5, 1.25, 1.0, 0.125, 0.12, True),
        (-1.5, 1.5, 1.0, 1.0, 1.0, True),
        (NAN, NAN, 1.0, 0.0, 0.0, False),
        (NAN, NAN, NAN, 0.5, 0.0, False),
        (NAN, 1.0, 1.0, 1e30, 0.0, True),
        (1.0, NAN, 1.0, 1e30, 0.0, True),
        (1.0, NAN, NAN, 1e30, 0.0, True),
        (INF, NAN, NAN, 0.0, 0.0, True),
        (NAN, INF, INF, 1.0, 0.0, True),
        (INF, INF, INF, 0.5, 0.0, False),
        (-INF, -INF, INF, 0.5, 0.0, False),
        (-INF, INF, INF, 0.5, 0.0, True),
        (INF, -INF, INF, 0.5, 0.0, True),
        (1.0, INF, INF, 0.5, 0.0, True),
        (0.0, -INF, INF, 0.5, 0.0, True),
        (FLOAT_MAX, INF, INF, 0.5, 0.0, True),
        (INF, 1.0, 1.0, 1e30, 0.0, True),
    ],
)  # fmt: skip
def test_an_element_lies_within_its_bound_or_not(
    service: Service, got: float, expected: float, magnitude: float, relative: float, absolute: float, wrong: bool
) -> None:
    found = service.beyond(got, expected, magnitude, relative, absolute)
    assert found == ((1, 0) if wrong else (0, NOT_FOUND))


@each_size
def test_elements_beyond_their_bounds_are_counted(service: Service, n: int) -> None:
    expected = np.linspace(1, 2, n)
    got = expected.astype(np.float32)
    magnitude = np.full(n, 2.0**-24)
    assert service.beyond(got, expected, 2 * magnitude, relative=1.0) == (0, NOT_FOUND)
    places = sorted({n // 2, n - 1}) if n else []
    got[places] += np.float32(1e-3)
    assert service.beyond(got, expected, 2 * magnitude, relative=1.0) == (len(places), places[0] if n else NOT_FOUND)


@pytest.mark.parametrize(
    ("got", "expected", "magnitude", "unit", "largest", "wrong"),
    [
        (1.5, 1.25, 0.0, 0.2, INF, False),  # a fifth of the value
        (-1.5, -1.25, 0.0, 0.2, INF, False),
        (1.5, 1.25, 0.0, 0.19, INF, True),
        (NAN, 1.25, 8.0, 0.0, 7.0, False),  # beyond the accumulator's range
        (NAN, 1.25, 8.0, 0.0, 8.0, True),
        (1.0, INF, INF, 0.0, 7.0, False),
    ],
)
def test_a_rounding_of_the_result_and_an_overflow_are_allowed(
    service: Service, got: float, expected: float, magnitude: float, unit: float, largest: float, wrong: bool
) -> None:
    found = service.beyond(got, expected, magnitude, unit=unit, largest=largest)
    assert found == ((1, 0) if wrong else (0, NOT_FOUND))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=lambda dtype: dtype.name)
def test_elements_of_every_floating_type_are_read_as_numpy_reads_them(service: Service, dtype: DType) -> None:
    if dtype.size == 2:
        got = np.arange(2**16, dtype=np.uint16).view(dtype.numpy)  # all there are
    else:
        got = np.ldexp(np.linspace(-2, 2, 1001), np.arange(1001) % 200 - 150).astype(dtype.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaN
        value = got.astype(np.float64)
    assert service.beyond(got, value, dtype=dtype) == (0, NOT_FOUND)
    value[7] = np.nextafter(value[7], 9.0)
    assert service.beyond(got, value, dtype=dtype) == (1, 7)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("gap", [0, 3])
def test_elements_between_gaps_are_compared_and_gaps_are_not(service: Service, size: int, gap: int) -> None:
    rows = Rows(5, 7, size, (7 + gap) * size)
    one = words(rows.span // 4 + 4).view(np.uint8)[: rows.span].copy()
    other = one.copy()
    assert service.differing_elements(one, other, rows) == (0, NOT_FOUND)
    for row in range(4):
        other[row * rows.pitch + 7 * size : (row + 1) * rows.pitch] ^= 0xFF
    assert service.differing_elements(one, other, rows) == (0, NOT_FOUND)
    other[2 * rows.pitch + 3 * size - 1] ^= 0x80  # the last byte of an element
    other[-size] ^= 1  # the first byte of the last
    assert service.differing_elements(one, other, rows) == (2, 2 * 7 + 2)


@pytest.mark.parametrize("size", [1, 2, 4, 16])
def test_a_byte_that_is_written_between_rows_is_found(service: Service, size: int) -> None:
    rows = Rows(5, 7, size, 10 * size)
    memory = np.full(rows.span // 4 + 1, POISON, np.uint32).view(np.uint8)[: rows.span].copy()
    for row in range(5):
        memory[row * rows.pitch : row * rows.pitch + 7 * size] = 0
    assert service.gaps_written(memory, rows, POISON) == (0, NOT_FOUND)
    for place in (7 * size, rows.pitch - 1, 3 * rows.pitch + 8 * size):
        spoilt = memory.copy()
        spoilt[place] ^= 0x10
        assert service.gaps_written(spoilt, rows, POISON) == (1, place)


def test_the_file_is_a_fixed_point_of_clang_format(tmp_path: Path) -> None:
    program = shutil.which("clang-format", path=Path(sys.executable).parent) or clang_format.get_executable(
        "clang-format"
    )
    shutil.copy(CHECKOUT / "out" / ".clang-format", tmp_path)
    (tmp_path / "kernels.cu").write_text(SOURCE)
    done = subprocess.run(
        [program, "--style=file", "kernels.cu"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == SOURCE
    assert max(map(len, SOURCE.splitlines())) <= 100
