"""Changes to the templates of merges."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import OUTSIDE_READ, OUTSIDE_WRITE, RACE, Mutant, Unchanged

UNITS = "merge/units.cu.jinja"

ON_SUM = "merge_sum_f32__units_tpb64"
ON_LEAST = "merge_min_i32__units_tpb64"
ON_PLACE = "merge_argmax_f16__units_tpb128"
ON_MEAN = "merge_mean_f64__units_tpb128"
ON_MOMENTS = "merge_var_f32__units_tpb256"
ON_SEVERAL = "merge_stats_f32__units_tpb128"

MUTANTS = (
    Mutant("merge: no guard [1]", ON_SUM, UNITS, "", "", (OUTSIDE_READ, OUTSIDE_WRITE), at="guard"),
    Mutant("merge: guard one off [2]", ON_SUM, UNITS, ">=", ">", (OUTSIDE_READ, OUTSIDE_WRITE), at="guard"),
    Mutant("merge: last result dropped", ON_SUM, UNITS, "n)", "n - 1)", (WRONG, UNTOUCHED), at="guard"),
    Mutant("merge: blocks overlap", ON_SUM, UNITS, "(blockIdx.x) * kThreadsPerBlock +", "(blockIdx.x) +", RACE),
    Mutant("merge: first unit dropped", ON_SUM, UNITS, "unit = 0;", "unit = 1;", WRONG),
    Mutant("merge: last unit dropped", ON_MOMENTS, UNITS, "unit < units;", "unit < units - 1;", WRONG),
    Mutant("merge: a unit too many", ON_SUM, UNITS, "unit < units;", "unit <= units;", OUTSIDE_READ),
    Mutant("merge: results of units follow each other", ON_SEVERAL, UNITS, "unit * n + result",
           "unit + result * units", WRONG),
    Mutant("merge: units of no elements count", ON_LEAST, UNITS, "count > 0", "true", WRONG, at="none"),
    Mutant("merge: units of one element are left out", ON_PLACE, UNITS, "count > 0", "count > 1", WRONG, at="none"),
    Mutant("merge: places count in their units", ON_PLACE, UNITS, "Place{before + ", "Place{0 + ", WRONG),
    Mutant("merge: elements are not counted", ON_MEAN, UNITS, "before += count;", "before += 1;", WRONG),
    Mutant("merge: variances are taken for sums of squares", ON_MOMENTS, UNITS,
           " * static_cast<{{ s.moments }}>(count)", "", WRONG),
    Mutant("merge: every unit has an element", ON_MOMENTS, UNITS, "Moments{count,", "Moments{1,", WRONG),
    Mutant("merge: the least is merged from the greatest", ON_SEVERAL, UNITS, '"least": "min"', '"least": "max"',
           WRONG),
)  # fmt: skip
LARGE = (
    Mutant("merge: results of units in 31 bits", ON_SUM, UNITS, "unit * n + result", "int(unit) * int(n) + result",
           WRONG),
    Mutant("merge: results of units in 32 bits", ON_PLACE, UNITS, "const long long i =", "const unsigned i =",
           UNTOUCHED),
)  # fmt: skip
UNCHANGED = (
    Unchanged("merge: units are loaded one by one", ON_SUM, UNITS, "kUnroll = 8;", "kUnroll = 1;",
              "how many are loaded at once changes the time alone"),
)  # fmt: skip
