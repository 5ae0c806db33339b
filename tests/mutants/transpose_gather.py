"""Changes to the template of the transposes that move elements one by one."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import MISALIGNED, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

GATHER = "transpose/gather.cu.jinja"

ON_AXES = "transpose_2013_b32__gather_tpb128_u2"
ON_MATRIX = "transpose_10_b8__gather_tpb128_u1"
BY_VECTORS = "transpose_210_b16__gather_tpb128_u2_v8"

MUTANTS = (
    Mutant(
        "gather: reads past the last element", ON_AXES, GATHER, "if (number < elements) loaded[u]", "loaded[u]",
        OUTSIDE_READ,
    ),
    Mutant(
        "gather: writes past the last element", ON_MATRIX, GATHER,
        "if (first + u * kThreadsPerBlock < elements) out", "out", (OUTSIDE_WRITE, UNINITIALISED, RACE, WRONG),
    ),
    Mutant(
        "gather: blocks overlap", ON_AXES, GATHER, "blockIdx.x * (kUnroll * kThreadsPerBlock)",
        "blockIdx.x * kThreadsPerBlock", (RACE, WRONG),
    ),
    Mutant(
        "gather: one place for all of a thread's elements", ON_AXES, GATHER, "first + u * kThreadsPerBlock;",
        "first;", (WRONG, RACE),
    ),
    Mutant(
        "gather: gaps of the output left out", ON_AXES, GATHER, "* out_row", "* extent{{ fastest }}",
        (OUTSIDE_WRITE, WRONG, RACE),
    ),
    Mutant(
        "gather: the slowest axis left out", ON_MATRIX, GATHER, "above{{ slowest }} * in_step{{ slowest }}", "0",
        WRONG,
    ),
    Mutant(
        "gather: quotients one too small", ON_AXES, GATHER, "divided({{ whole }},", "divided({{ whole }} - 1,",
        (WRONG, OUTSIDE_READ, OUTSIDE_WRITE),
    ),
    Mutant(
        "gather: vectors reach past the last element", BY_VECTORS, GATHER,
        "number < elements && number + kElements <= elements", "number < elements", (OUTSIDE_WRITE, OUTSIDE_READ),
    ),
    Mutant(
        "gather: vectors begin where elements do", BY_VECTORS, GATHER, "* kElements - early;", "* kElements;",
        (MISALIGNED, UNINITIALISED),
    ),
    Mutant(
        "gather: a vector's elements all of one row", BY_VECTORS, GATHER,
        "e < lefts[u] ? theres[u] : nexts[u]", "theres[u]", (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "gather: the next row begins early", BY_VECTORS, GATHER, "begin_of(row + 1) - lefts[u]",
        "begin_of(row + 1) - (lefts[u] + 1)", (WRONG, OUTSIDE_READ),
    ),
    Mutant(
        "gather: what lies beside vectors left out", BY_VECTORS, GATHER, "if (number < elements) {",
        "if (number < 0) {", (WRONG, UNINITIALISED),
    ),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
