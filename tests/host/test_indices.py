"""No emitted text narrows a product of extents to 32 bits, where the CPU run may not see it: most arrays are small."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from gen.arch import DEFAULT_ARCH, Limits
from gen.emit.render import MARK, render
from gen.families import FAMILIES
from gen.families.base import Family, Variant
from gen.families.config import pairwise
from gen.families.names import find_variant, search_space, variant

COMMENT = re.compile(r"//.*")
FUNCTION = re.compile(r"^\}", re.MULTILINE)  # ends there: names are those of one function
WIDE = re.compile(r"\b(?:long long|u?int64_t|size_t)\s+(?:const\s+)?(?:\(&)?(\w+)")
ANOTHER = re.compile(r"\)?(?:\[\w*\])?\s*(?:=[^,;]*)?,\s*(\w+)(?=\s*[=;,\[])")  # name of the same declaration
NARROW = r"(?:unsigned int|unsigned short|unsigned|int|short)"
CAST = re.compile(rf"\bstatic_cast<{NARROW}>\(|\({NARROW}\)\s*\(|\b{NARROW}\(")
DECLARED = re.compile(rf"^\s*(?:const\s+)?{NARROW}\s+(?:const\s+)?\w+\s*=\s*([^;]*);", re.MULTILINE)
NARROW_NAME = re.compile(rf"\b{NARROW}\s+(?:const\s+)?(\w+)\s*=")
ASSIGNED = re.compile(r"(?<![\w.\]])(\w+)\s*[+-]?=(?!=)\s*([^;=]*);")
WIDENED = re.compile(r"static_cast<long long>\([^()]*\)")  # and so a variable of 64 bits
PRODUCT = re.compile(r"([\w.]+)(?:\[[^\]]*\])?\s*\*\s*([\w.]+)")
# A quotient, a remainder, some of the bits, the smaller of two and what a function makes of it may fit.
BOUNDED = re.compile(r"[%/&?<>]|==|\bmin\b|^\w+\(.*\)$")


def narrowed(text: str) -> Iterator[str]:
    """Every product of 64 bits that a cast, a declaration or an assignment leaves 32 bits of."""
    for code in FUNCTION.split(COMMENT.sub("", text)):
        wide = {*_wide_names(code)}
        inside = [_until_closed(code, found.end()) for found in CAST.finditer(code)]
        names = {*NARROW_NAME.findall(code)} - wide
        assigned = [expression for name, expression in ASSIGNED.findall(code) if name in names]
        for expression in dict.fromkeys((*inside, *DECLARED.findall(code), *assigned)):
            plain = re.sub(r"static_cast<[\w ]+>", "", WIDENED.sub("widened", expression))
            is_wide = any({*wide, "widened"} & {*factors} for factors in PRODUCT.findall(plain))
            if is_wide and not BOUNDED.search(plain):
                yield expression


def _wide_names(code: str) -> Iterator[str]:
    for found in WIDE.finditer(code):
        yield found[1]
        end = found.end()
        while (another := ANOTHER.match(code, end)) is not None:
            yield another[1]
            end = another.end()


def _until_closed(code: str, start: int) -> str:
    depth, end = 1, start
    while depth and end < len(code):
        depth += {"(": 1, ")": -1}.get(code[end], 0)
        end += 1
    return code[start : end - 1]


def specs(family: Family[Any], algorithm: str) -> tuple[Any, ...]:
    """Those of the catalogue, and the one that an algorithm is proven on beside them."""
    own = [spec for name, spec in family.extra_proof_specs.items() if name == algorithm]
    return tuple(dict.fromkeys((*family.catalogue, *own)))


def variants() -> list[Variant]:
    """Of a pairwise cover of every algorithm a third, for each spec that it is proven on."""
    return [
        variant(family, spec, algorithm, config)
        for family in FAMILIES
        for name, algorithm in family.algorithms.items()
        for spec in specs(family, name)
        for config in list(pairwise(search_space(algorithm, spec)))[::3]
    ]


# What fits by what its algorithm refuses: `small` takes matrices that fit in shared memory.
FITS = {("small", "rows * cols")}


def test_no_text_narrows_a_product_of_extents() -> None:
    for made in variants():
        found = {*narrowed(render(made).partition(MARK)[2])}
        assert found <= {product for name, product in FITS if name == made.algorithm.name}, made.name


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("reduction_sum_f32_axis0__stream_tpb128_u4_v16_bpm8", "const long long items =", "const int items ="),
        ("reduction_sum_f32_axis0__columns_x16_y8_u8_v16_bpm4", "matrix * matrix_pitch", "int(matrix * matrix_pitch)"),
        ("reduction_sum_f32_axis1__grid_tpb128_u4_v16_bpm2", "row * splits", "static_cast<unsigned>(row * splits)"),
    ],
)
def test_a_product_that_is_narrowed_in_a_kernel_is_found(name: str, old: str, new: str) -> None:
    text = render(find_variant(FAMILIES, name, {}))
    assert old in text
    assert not [*narrowed(text)]
    assert [*narrowed(text.replace(old, new))]


BEGIN = (
    'extern "C" __global__ void k(const float* in, long long rows, long long pitch) {\n'
    "  const long long row = 1 + rows, col = 2;\n"
)


@pytest.mark.parametrize(
    "line",
    [
        "in[static_cast<int>(row * pitch)]",
        "in[(unsigned)(row * pitch + col)]",
        "in[unsigned(2 + col * 3)]",
        "const int begin = row * pitch;",
        "unsigned begin = static_cast<unsigned>(threadIdx.x) + col * rows;",
        "in + static_cast<unsigned>(blockIdx.x * pitch)",
        "const int i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;",
        "int first = static_cast<long long>(blockIdx.x % 3) * 8 + threadIdx.x;",
        "int first = 0;\n  first += threadIdx.x * pitch;",
    ],
)
def test_a_narrowed_product_is_found(line: str) -> None:
    assert [*narrowed(f"{BEGIN}  {line}\n")]


@pytest.mark.parametrize(
    "line",
    ["in[row * pitch]", "const int first = row * pitch % 4;", "static_cast<int>(row)", "static_cast<int>(kA * kB)"],
)
def test_what_fits_is_left_alone(line: str) -> None:
    assert not [*narrowed(f"{BEGIN}  {line}\n")]


@pytest.mark.parametrize(
    ("name", "stride"),
    [
        ("stencil_heat_de794a2b_f32__naive_x32_y8_u2", "in_pitch"),
        ("reduction_sum_f32_axis0x2__multi_rows_g8_u2_v16_bpm8", "rs2"),
        ("reduction_sum_f32_axis0x2__multi_rows_g256_u2_v8_bpm8_tiles", "ks3"),
        ("reduction_sum_f32_axis0x2__multi_columns_x16_y8_u2_v16", "rs3"),
    ],
)
def test_numbers_of_32_bits_are_refused_where_elements_need_more(name: str, stride: str) -> None:
    limits = Limits.of(DEFAULT_ARCH)
    for made, is_narrow in (
        (find_variant(FAMILIES, name, {}), False),
        (find_variant(FAMILIES, f"{name}_i32", {}), True),
    ):
        for sizes in made.edge_cases():
            apart = {**sizes, stride: 2**31}
            assert made.algorithm.unsupported_extents(made.spec, made.config, sizes, limits) is None
            refused = made.algorithm.unsupported_extents(made.spec, made.config, apart, limits) is not None
            assert refused == is_narrow, apart


def test_stacks_are_refused_where_elements_need_more_than_32_bits() -> None:
    made, limits = find_variant(FAMILIES, "stencil_heat_de794a2b_f32__stacked_tpb256_u4", {}), Limits.of(DEFAULT_ARCH)
    for rows, is_narrow in ((2**27 - 16, False), (2**27, True)):
        sizes = {"rows": rows, "cols": 16, "in_pitch": 16, "out_pitch": 16, "steps": 1}
        refused = made.algorithm.unsupported_extents(made.spec, made.config, sizes, limits) is not None
        assert refused == is_narrow, rows


def test_rows_of_few_elements_have_more_slots_than_elements() -> None:
    made = find_variant(FAMILIES, "reduction_sum_u8_axis0x2__multi_rows_g8_u2_v16_bpm8_i32", {})
    sizes = {**next(iter(made.edge_cases())), "outer": 1, "k3": 1, "n": 2**28, "r2": 2**28, "rs2": 2, "r3": 1}
    assert made.algorithm.unsupported_extents(made.spec, made.config, sizes, Limits.of(DEFAULT_ARCH)) is not None
