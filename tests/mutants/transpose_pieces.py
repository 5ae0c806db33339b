"""Changes to the templates of the transposes that move pieces: few columns or rows, small matrices, whole runs."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import (
    MISALIGNED,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

FLAT = "transpose/_flat.cu.jinja"
FEW_COLS = "transpose/_few_cols.cu.jinja"
FEW_ROWS = "transpose/_few_rows.cu.jinja"
SKINNY = "transpose/skinny.cu.jinja"
SMALL = "transpose/small.cu.jinja"
ROW_COPY = "transpose/row_copy.cu.jinja"

ON_FEW_COLS = "transpose_10_b32__skinny_cols_b4096_tpb128"
ON_MANY_FEW = "transpose_021_b32__skinny_cols_b4096_tpb128"
ON_FEW_ROWS = "transpose_10_b32__skinny_rows_b16384_tpb256"
ON_NARROW_COLS = "transpose_10_b8__skinny_cols_b4096_tpb128"
ON_WIDE_COLS = "transpose_10_b8__skinny_cols_b4096_tpb128_v16"
ON_NARROW_ROWS = "transpose_10_b8__skinny_rows_b4096_tpb128"
ON_NARROW_SMALL = "transpose_021_b8__small_b4096_tpb128"
ON_SMALL = "transpose_021_b32__small_b4096_tpb128"
ON_ROW_COPY = "transpose_102_b32__row_copy_x16_tpb256_u2"
ON_NARROW_RUNS = "transpose_102_b8__row_copy_x16_tpb256_u2"

MUTANTS = (
    # skinny
    Mutant(
        "few columns: no barrier after filling the tile [5]", ON_FEW_COLS, SKINNY, "", "", (RACE, UNINITIALISED),
        at="columns by vectors",
    ),
    Mutant(
        "few columns: no barrier where their number is odd [5]", ON_FEW_COLS, SKINNY, "", "", (RACE, UNINITIALISED),
        at="columns by elements",
    ),
    Mutant(
        "few columns: read as spread, and not written so", ON_FEW_COLS, SKINNY, "write_columns<true>",
        "write_columns<false>", (WRONG, UNINITIALISED),
    ),
    Mutant(
        "few rows: no barrier after filling the tile [5]", ON_FEW_ROWS, SKINNY, "", "", (RACE, UNINITIALISED),
        at="rows",
    ),
    Mutant(
        "few columns: rows past the last", ON_FEW_COLS, SKINNY, "min(static_cast<long long>(full), rows - first)",
        "full", OUTSIDE_READ,
    ),
    Mutant(
        "few rows: columns past the last", ON_FEW_ROWS, SKINNY, "min(static_cast<long long>(full), cols - first)",
        "full", OUTSIDE_READ,
    ),
    Mutant(
        "few columns: tiles of the matrices before not counted off", ON_MANY_FEW, SKINNY,
        "(blockIdx.x - matrix * {{ tiles }})", "(blockIdx.x)", ("hang", UNTOUCHED, OUTSIDE_READ),
    ),
    Mutant(
        "few columns: a matrix for every block", ON_MANY_FEW, SKINNY,
        "divided(blockIdx.x, {{ tiles }}_inverse)", "blockIdx.x", (OUTSIDE_READ, WRONG, UNTOUCHED),
    ),
    Mutant(
        "few columns: one row too many [2]", ON_FEW_COLS, FEW_COLS, "row < length; row += along) {",
        "row <= length; row += along) {", (OUTSIDE_WRITE, UNINITIALISED, RACE),
    ),
    Mutant(
        "few columns: wrong pitch of the output", ON_FEW_COLS, FEW_COLS, "* column = to + col * out_pitch",
        "* column = to + col * length", (OUTSIDE_WRITE, RACE, WRONG), at="column",
    ),
    Mutant(
        "few columns: squares past the last column", ON_NARROW_COLS, FEW_COLS, "if (q < left) ", "",
        (OUTSIDE_WRITE, RACE, WRONG), at="stored words",
    ),
    Mutant(
        "few columns: columns left out", ON_FEW_COLS, FEW_COLS, "col += kThreadsPerBlock / along",
        "col += kThreadsPerBlock", WRONG, at="columns",
    ),
    Mutant(
        "few rows: words end with their column", ON_NARROW_ROWS, FEW_ROWS, "filled < kElements;", "filled < 0;", WRONG,
    ),
    Mutant(
        "few rows: all words of a vector are its first", ON_NARROW_ROWS, FEW_ROWS, '"." ~ field if', '".x" if', WRONG,
    ),
    Mutant(
        "few rows: squares past the last row", ON_NARROW_ROWS, FEW_ROWS, "if (square * kElements + e < count) {",
        "if (true) {", OUTSIDE_READ,
    ),
    Mutant(
        "few rows: rows begin between vectors", ON_FEW_ROWS, FEW_ROWS, "if (length == full && together % 16 == 0",
        "if (length == full", MISALIGNED, at="by vectors",
    ),
    Mutant(
        "few columns: half words past the last row", ON_NARROW_COLS, FEW_COLS,
        "if (row >= 0 && row + kElements <= length) {", "if (row >= 0 && row < length) {", (OUTSIDE_WRITE, RACE),
    ),
    Mutant(
        "few columns: words of other rows", ON_NARROW_COLS, FEW_COLS, "aparts[e] * 8 * kSize", "0", WRONG,
        at="shifted words",
    ),
    Mutant(
        "few columns: vectors begin between vectors", ON_WIDE_COLS, FEW_COLS,
        "if ((together | length * kSize) % 16 == 0) {", "if ((together | length * kSize) % 4 == 0) {",
        (MISALIGNED, WRONG),
    ),
    Mutant(
        "few columns: squares of one vector alike", ON_WIDE_COLS, FEW_COLS, "(group * kUnits + s) * count",
        "group * kUnits * count", WRONG,
    ),
    Mutant(
        "few columns: columns that begin within words taken for whole", ON_WIDE_COLS, FEW_COLS,
        "if ((count | early) % kElements == 0) {", "if (count % kElements == 0) {", WRONG,
    ),
    Mutant(
        "few columns: vectors past the last column", ON_WIDE_COLS, FEW_COLS, "if (q < left) ", "",
        (OUTSIDE_WRITE, RACE, WRONG), at="stored vectors",
    ),
    # pieces, which these and small matrices share
    Mutant(
        "piece: elements before the first vector of the output left out", ON_NARROW_SMALL, FLAT,
        "  for (int i = threadIdx.x; i < head; i += kThreadsPerBlock) {\n    to[i] = {{ one }};",
        "  for (int i = threadIdx.x; i < 0; i += kThreadsPerBlock) {\n    to[i] = {{ one }};", WRONG,
    ),
    Mutant(
        "piece: one vector too many [2]", ON_FEW_COLS, FLAT, "/ kVector", "/ kVector + 1", OUTSIDE_READ,
        at="last vector",
    ),
    Mutant(
        "piece: a vector before the first element", ON_FEW_COLS, FLAT,
        "const int first = early > 0;  // number of the first whole vector", "const int first = 0;", OUTSIDE_READ,
        at="first vector",
    ),
    Mutant(
        "piece: head longer than the piece", ON_FEW_COLS, FLAT, "const int head = min(units, first * kUnits);",
        "const int head = first * kUnits;", OUTSIDE_READ,
    ),
    Mutant(
        "piece: tail dropped [1]", ON_FEW_COLS, FLAT, "i = tail + threadIdx.x; i < units;",
        "i = tail + threadIdx.x; i < 0;", UNINITIALISED,
    ),
    Mutant(
        "piece: vectors begin at the first element", ON_FEW_COLS, FLAT, "reinterpret_cast<const uint4*>(from - early)",
        "reinterpret_cast<const uint4*>(from)", MISALIGNED,
    ),
    Mutant(
        "piece: tail of the output dropped [1]", ON_FEW_ROWS, FLAT, "i = tail + threadIdx.x; i < count;",
        "i = tail + threadIdx.x; i < 0;", WRONG,
    ),
    # small
    Mutant(
        "small: no barrier after filling the tile [5]", ON_SMALL, SMALL, "", "", (RACE, UNINITIALISED), at="filled",
    ),
    Mutant(
        "small: matrices past the last", ON_SMALL, SMALL, "min(static_cast<long long>(together), matrices - first)",
        "together", OUTSIDE_READ,
    ),
    Mutant(
        "small: every block turns the first matrices", ON_SMALL, SMALL, "static_cast<long long>(blockIdx.x) * together",
        "0", (RACE, WRONG),
    ),
    Mutant(
        "small: copies [9]", ON_SMALL, SMALL, "matrix + row * width + col\" %}", "i\" %}", WRONG,
    ),
    Mutant(
        "small: heights and widths exchanged [6]", ON_SMALL, SMALL, "per_column = inverse_of(height)",
        "per_column = inverse_of(width)", (WRONG, "out-of-bounds read", UNINITIALISED),
    ),
    Mutant("small: no barrier after the turn [5]", ON_NARROW_SMALL, SMALL, "", "", (RACE, UNINITIALISED), at="turned"),
    Mutant(
        "small: squares of other matrices", ON_NARROW_SMALL, SMALL, "divide(i, per_area) * high * wide",
        "divide(i, per_area) * high", (WRONG, UNINITIALISED, RACE),
    ),
    # row_copy
    Mutant("runs: past the last", ON_ROW_COPY, ROW_COPY, "", "", (OUTSIDE_READ, RACE), at="guard"),
    Mutant(
        "runs: begin between vectors", ON_ROW_COPY, ROW_COPY, "if ((in_address | out_address) % 16 == 0) {",
        "if (true) {", MISALIGNED,
    ),
    Mutant("runs: tail dropped [1]", ON_ROW_COPY, ROW_COPY, "i < last", "i < 0", WRONG, at="tail"),
    Mutant(
        "runs: one vector too many [2]", ON_ROW_COPY, ROW_COPY, "if (v < vectors) {{", "if (v <= vectors) {{",
        (OUTSIDE_READ, RACE),
    ),
    Mutant(
        "runs: past their ends", ON_ROW_COPY, ROW_COPY, "last = min(run, first + kSpan)", "last = first + kSpan",
        (OUTSIDE_READ, RACE),
    ),
    Mutant("runs: words before the first are read", ON_NARROW_RUNS, ROW_COPY, "i >= apart && ", "", OUTSIDE_READ,
           at="whole word"),
    Mutant("runs: words of a vector stay", ON_NARROW_RUNS, ROW_COPY, "words[w + step]", "words[w]", WRONG,
           at="words before"),
    Mutant("runs: a piece ends behind the next one's begin", ON_NARROW_RUNS, ROW_COPY, "last -= early", "last -= 0",
           RACE, at="pieces"),
    Mutant("runs: vectors are written between vectors", ON_NARROW_RUNS, ROW_COPY, "early_of<16>(out + first)", "0",
           MISALIGNED, at="first vector"),
    Mutant("runs: vectors before the first are read", ON_NARROW_RUNS, ROW_COPY, "begin += kVector", "begin += 0",
           OUTSIDE_READ, at="vector before"),
    Mutant("runs: vectors behind the last are read", ON_NARROW_RUNS, ROW_COPY,
           "min(last, run + apart - kVector)", "last", OUTSIDE_READ, at="vector behind"),
    Mutant("runs: the second vector is not read", ON_NARROW_RUNS, ROW_COPY, "apart > 0", "false", WRONG,
           at="second vector"),
    Mutant("runs: vectors are not shifted", ON_NARROW_RUNS, ROW_COPY, "apart * kSize", "0", WRONG, at="joined"),
    Mutant("runs: vectors are copied by words again", ON_NARROW_RUNS, ROW_COPY, "vectors > 0 ? behind : first", "first",
           RACE, at="behind"),
)  # fmt: skip

LARGE = (
    Mutant(
        "small: number of a matrix in 31 bits", ON_SMALL, SMALL,
        "const long long first = static_cast<long long>(blockIdx.x)", "const int first = static_cast<int>(blockIdx.x)",
        OVERFLOW,
    ),
    Mutant(
        "small: number of a matrix in 32 bits", ON_SMALL, SMALL,
        "const long long first = static_cast<long long>(blockIdx.x)", "const unsigned first = blockIdx.x", RACE,
    ),
)  # fmt: skip
UNCHANGED: tuple[Unchanged, ...] = ()
