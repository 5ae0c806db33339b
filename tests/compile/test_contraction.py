"""The text of a kernel decides its bits: a compiler that may fuse products and sums makes the same machine code of it.

So a kernel gives the same results however it is compiled, and those that the CPU run has proven. Each reduction here
has all that is multiplied and added: squares, means and moments.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cuda.core import Program, ProgramOptions

import gen
from gen.dtypes import C64, F16, F64
from gen.emit.render import linked_with, render
from gen.families import FAMILIES
from gen.families.base import Algorithm, Family, Spec, Variant
from gen.families.names import find_family, legal_space, variant
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.families.transpose import TransposeSpec
from gen.families.transpose.values import Values
from gen.toolchain.compiled import code_digest
from gen.toolchain.headers import headers_folder
from gen.toolchain.nvrtc import Nvrtc
from tests.part_of_cases import DEEP

U, V, M = gen.fields("u v m")
MOMENTS = ("mean", "sumsq", "var")
REDUCTIONS = (
    ReductionSpec(MOMENTS),
    ReductionSpec(MOMENTS, axis=(1,)),
    ReductionSpec(MOMENTS, axis=(0,)),
    ReductionSpec(MOMENTS, axis=(0, 2)),
)
OTHERS: tuple[tuple[str, Spec], ...] = (
    ("reduction", ReductionSpec(("norm",), F16)),  # states side by side, and elements that become others
    ("stencil", StencilSpec("any", (0.1,) * 9)),
    ("system", gen.system({U: (2 * U - V) * U + M * V - (U * V - M) * U.laplace(order=4) - M, V: V - 3 * U * (V - M)})),
    ("transpose", TransposeSpec(dtype=C64, values=Values(C64, C64, 2.5, conjugate=True))),
)
PARTS = 3  # of a family's algorithms, for several workers: together they take most of a minute
TWO_SUMS = """
extern "C" __global__ void two_sums(float* out, float a, float b, float c) { *out = %s; }
"""


def contracted(name: str, text: str) -> bytes:
    """Machine code of a compiler that may fuse products and sums, which is NVRTC's default."""
    folder = str(headers_folder())
    options = ProgramOptions(
        name=f"{name}.cu", arch="sm_90", std="c++17", include_path=[folder], minimal=True, fma=True
    )
    return bytes(Program(text, "c++", options).compile("cubin").code)


def same_code(name: str, text: str) -> bool:
    apart = Nvrtc(None).compile(name, text, "sm_90").cubin
    return code_digest(apart, name) == code_digest(contracted(name, text), name)


def in_the_middle(family: Family[Any], spec: Spec, algorithm: Algorithm[Any, Any]) -> Iterator[Variant]:
    configs = legal_space(algorithm, spec)
    if configs:
        yield variant(family, spec, algorithm, configs[len(configs) // 2])


def chosen() -> Iterator[Variant]:
    """A variant of every algorithm that adds, where the form of the array is the one it is made for."""
    family = find_family(FAMILIES, "reduction")
    whole, rows, columns, strided = REDUCTIONS
    forms = {"rows": rows, "columns": columns, "stream": columns, "strided": strided}
    for name, algorithm in family.algorithms.items():
        yield from in_the_middle(family, forms.get(name, whole), algorithm)
    for name, spec in OTHERS:
        family = find_family(FAMILIES, name)
        yield from in_the_middle(family, spec, family.algorithms[family.base(spec, family.shape_classes(spec)[0])[0]])


def of_every_algorithm(family: Family[Any], part: int) -> Iterator[Variant]:
    """A variant of every algorithm for every other spec of its catalogue; reductions have moments of all types instead.

    Of these each algorithm has one form of the array for each type, in turns: what is fused hangs on no more of it.
    Permutations that only move elements have no product.
    """
    own = [family.extra_proof_specs[name] for name in family.algorithms if name in family.extra_proof_specs]
    every = [*family.catalogue, *own, *(spec for name, spec in OTHERS if name == family.name)]
    every = [spec for spec in every if not isinstance(spec, TransposeSpec) or spec.values is not None]
    for place, algorithm in enumerate(family.algorithms.values()):
        if place % PARTS != part:
            continue
        specs = every[place % 2 :: 2] if len(every) > 2 and not DEEP else every
        if family.name == "reduction":
            specs = [family.extra_proof_specs.get(algorithm.name, family.catalogue[0]), OTHERS[0][1]]
            for turn, dtype in enumerate((F64, F16)):
                forms = [ReductionSpec(MOMENTS, dtype, axis=form.axis) for form in REDUCTIONS]
                taken = [spec for spec in forms if legal_space(algorithm, spec)]
                specs += taken[(place + turn) % len(taken) :][:1] if taken else []
        for spec in specs:
            yield from in_the_middle(family, spec, algorithm)


@pytest.mark.parametrize("made", tuple(chosen()), ids=lambda made: made.name)
def test_no_product_and_sum_are_fused_that_the_text_does_not_fuse(made: Variant) -> None:
    assert same_code(made.name, render(made))


@pytest.mark.further
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_no_product_and_sum_are_fused_anywhere(family: Family[Any], part: int) -> None:
    texts = {made.name: render(made) for made in of_every_algorithm(family, part)}
    assert [name for name, text in texts.items() if not linked_with(text) and not same_code(name, text)] == []


def test_a_compiler_that_may_fuse_does_and_ours_does_not() -> None:
    assert not same_code("two_sums", TWO_SUMS % "a * b + c")
    assert same_code("two_sums", TWO_SUMS % "fmaf(a, b, c)")
