"""Changes to the template of the transposes that move elements one by one."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

GATHER = "transpose/gather.cu.jinja"

ON_AXES = "transpose_2013_b32__gather_tpb128_u2"
ON_MATRIX = "transpose_10_b8__gather_tpb128_u1"

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
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()
UNCHANGED: tuple[Unchanged, ...] = ()
