"""Changes to the templates of the probes."""

from __future__ import annotations

from gen.proof.failures import UNTOUCHED, WRONG
from tests.mutants.change import (
    BARRIER,
    INDEX,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    REFUSED,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

OFFSET = "probe/offset.cu.jinja"
RECORDS = "probe/records.cu.jinja"
TILE = "probe/tile.cu.jinja"
SHARED = "_shared.cu.jinja"

ON_READS = "probe_read11_f32__offset_tpb128_u4"
ON_WRITES = "probe_write11_f32__offset_tpb128_u4"
ON_AOS = "probe_aos2_f32__records_tpb128_u4"
ON_SOA = "probe_soa2_f32__records_tpb128_u4"
ON_TURNED = "probe_set_row_read_col_16x32_b32__tile_tpb128_p1"
ON_DYNAMIC = "probe_set_row_read_col_16x32_b32__tile_tpb128_p1_dyn"
ON_COLUMNS = "probe_set_col_read_col_16x32_b32__tile_tpb128_p1"

MUTANTS = (
    # offset
    Mutant("offset: no guard [1]", ON_READS, OFFSET, "", "", OUTSIDE_WRITE, at="guard"),
    Mutant("offset: guard one off [2]", ON_READS, OFFSET, ">=", ">", OUTSIDE_WRITE, at="guard"),
    Mutant("offset: writes past the end, unguarded [1]", ON_WRITES, OFFSET, "", "", OUTSIDE_READ, at="guard"),
    Mutant("offset: tail dropped", ON_READS, OFFSET, "n)", "n - 1)", (WRONG, UNTOUCHED), at="guard"),
    Mutant("offset: reads do not go on from the start", ON_READS, OFFSET, "", "", OUTSIDE_READ, at="wrap"),
    Mutant("offset: writes do not go on from the start", ON_WRITES, OFFSET, "", "", OUTSIDE_WRITE, at="wrap"),
    Mutant("offset: goes on from the start one too late", ON_READS, OFFSET, ">=", ">", OUTSIDE_READ, at="wrap"),
    Mutant("offset: goes round the end but once", ON_READS, OFFSET, "%=", "-=", OUTSIDE_READ, at="wrap"),
    Mutant("offset: before its place", ON_READS, OFFSET, "i + kOffset;", "i - kOffset;", OUTSIDE_READ),
    Mutant("offset: one operand is not rolled", ON_READS, OFFSET, "b[{{ read }}];", "b[i];", WRONG),
    Mutant("offset: reads and writes swapped", ON_READS, OFFSET, '(shifted, "i") if shifts_read else ("i", shifted)',
           '("i", shifted) if shifts_read else (shifted, "i")', WRONG),
    Mutant("offset: blocks overlap", ON_READS, OFFSET, " * kThreadsPerBlock * kUnroll;", " * kThreadsPerBlock;", RACE),
    Mutant("offset: a thread's elements follow each other", ON_READS, OFFSET, "begin + u * kThreadsPerBlock",
           "begin + u", RACE),
    Mutant("offset: one element of each thread", ON_READS, OFFSET, "u < kUnroll; ++u", "u < 1; ++u",
           (WRONG, UNTOUCHED)),
    # records
    Mutant("records: no guard [1]", ON_AOS, RECORDS, "", "", OUTSIDE_READ, at="guard"),
    Mutant("records: guard one off [2]", ON_AOS, RECORDS, ">=", ">", OUTSIDE_READ, at="guard"),
    Mutant("records: fields without a guard [1]", ON_SOA, RECORDS, "", "", (RACE, OUTSIDE_READ), at="guard"),
    Mutant("records: last field dropped", ON_AOS, RECORDS, "f < kFields;", "f < kFields - 1;", (WRONG, UNTOUCHED)),
    Mutant("records: a field too many [2]", ON_SOA, RECORDS, "f < kFields;", "f <= kFields;", OUTSIDE_READ),
    Mutant("records: a field of the next record", ON_AOS, RECORDS, "f < kFields;", "f <= kFields;",
           (RACE, OUTSIDE_READ)),
    Mutant("records: raised by the field before", ON_AOS, RECORDS, "10 * (f + 1)", "10 * f", WRONG),
    Mutant("records: fields take turns", ON_AOS, RECORDS, '"record * kFields + f" if', '"f * n + record" if', WRONG),
    Mutant("records: wrong pitch of the fields", ON_SOA, RECORDS, "f * n + record", "f * (n - 1) + record",
           (RACE, WRONG)),
    Mutant("records: blocks overlap", ON_SOA, RECORDS, " * kThreadsPerBlock * kUnroll;", " * kThreadsPerBlock;", RACE),
    Mutant("records: a thread's records follow each other", ON_AOS, RECORDS, "begin + u * kThreadsPerBlock",
           "begin + u", RACE),
    # tile
    Mutant("probe's tile: no barrier after filling it [5]", ON_TURNED, TILE, "", "", (UNINITIALISED, RACE),
           at="barrier"),
    Mutant("probe's tile: barrier in divergent code [3]", ON_TURNED, TILE, "__syncthreads",
           "if (threadIdx.x < 32) __syncthreads", (BARRIER, UNINITIALISED, RACE), at="barrier"),
    Mutant("probe's tile: swapped extents [6]", ON_TURNED, TILE, '"tile[i % kHeight][i / kHeight]"',
           '"tile[i % kWidth][i / kWidth]"', (INDEX, OUTSIDE_READ, UNINITIALISED)),
    Mutant("probe's tile: filled along columns with swapped extents [6]", ON_COLUMNS, TILE,
           '"tile[i % kHeight][i / kHeight]"', '"tile[i % kWidth][i / kWidth]"', (INDEX, OUTSIDE_WRITE)),
    Mutant("probe's tile: swapped extents of a dynamic one [6]", ON_DYNAMIC, TILE, '"tile[i % kHeight][i / kHeight]"',
           '"tile[i % kWidth][i / kWidth]"', (INDEX, OUTSIDE_READ, UNINITIALISED)),
    Mutant("probe's tile: read along rows", ON_TURNED, TILE, "= {{ at(reads_rows) }};", "= {{ at(sets_rows) }};",
           WRONG),
    Mutant("probe's tile: every thread begins at the first", ON_TURNED, TILE, "threadIdx.x", "0",
           (RACE, UNINITIALISED), at="fill"),
    Mutant("probe's tile: threads step one element on", ON_TURNED, TILE, "kThreadsPerBlock",
           "kThreadsPerBlock - 1", RACE, at="read"),
    Mutant("probe's tile: last round of filling dropped", ON_TURNED, TILE, "kElements",
           "kElements - kThreadsPerBlock", UNINITIALISED, at="fill"),
    Mutant("probe's tile: a round past the last", ON_TURNED, TILE, "kElements",
           "kElements + kThreadsPerBlock", (INDEX, OUTSIDE_READ), at="fill"),
    Mutant("probe's tile: all blocks take the first", ON_TURNED, TILE, "blockIdx.x) * kElements;", "blockIdx.x);",
           RACE),
    Mutant("probe's tile: as many blocks as threads share one", ON_TURNED, TILE, "static_assert(kElements % kThreads",
           "static_assert(kElements / kThreads", REFUSED),
    Mutant("probe's tile: dynamic rows longer than its memory", ON_DYNAMIC, SHARED,
           "using Array = {{ element }}[{{ height }}][{{ width }}];",
           "using Array = {{ element }}[{{ height }}][{{ width }} + 1];", OUTSIDE_WRITE),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE = (
    Mutant("offset: first element in 31 bits", ON_READS, OFFSET,
           "const long long begin = static_cast<long long>(blockIdx.x)",
           "const int begin = static_cast<int>(blockIdx.x)", OVERFLOW),
    Mutant("offset: first element in 32 bits", ON_READS, OFFSET,
           "const long long begin = static_cast<long long>(blockIdx.x)", "const unsigned begin = blockIdx.x",
           (WRONG, RACE, UNTOUCHED)),
    Mutant("offset: place of reading in 32 bits", ON_READS, OFFSET, "long long shifted = i", "unsigned shifted = i",
           (WRONG, UNTOUCHED)),
    Mutant("offset: place of writing in 32 bits", ON_WRITES, OFFSET, "long long shifted = i", "unsigned shifted = i",
           (WRONG, RACE, UNTOUCHED)),
    Mutant("records: number in 31 bits", ON_AOS, RECORDS,
           "const long long begin = static_cast<long long>(blockIdx.x)",
           "const int begin = static_cast<int>(blockIdx.x)", OVERFLOW),
    Mutant("records: number in 32 bits", ON_SOA, RECORDS, "const long long record = ", "const unsigned record = ",
           (WRONG, RACE, UNTOUCHED)),
    Mutant("records: index in 31 bits", ON_AOS, RECORDS, '"record * kFields + f" if',
           '"static_cast<int>(record) * kFields + f" if', OVERFLOW),
    Mutant("records: index in 32 bits", ON_AOS, RECORDS, '"record * kFields + f" if',
           '"static_cast<unsigned>(record) * kFields + f" if', (WRONG, RACE, UNTOUCHED)),
    Mutant("probe's tile: first element in 31 bits", ON_TURNED, TILE,
           "const long long first = static_cast<long long>(blockIdx.x)",
           "const int first = static_cast<int>(blockIdx.x)", OVERFLOW),
    Mutant("probe's tile: first element in 32 bits", ON_TURNED, TILE,
           "const long long first = static_cast<long long>(blockIdx.x)", "const unsigned first = blockIdx.x",
           (WRONG, RACE, UNTOUCHED)),
)  # fmt: skip

UNCHANGED = (
    Unchanged("offset: goes on past the last element", ON_READS, OFFSET, "return", "continue",
              "a thread's elements grow: none after the first past the end lies within", at="guard"),
    Unchanged("offset: remainder of all places", ON_READS, OFFSET, "if (shifted >= n) ", "",
              "less than n it is its own remainder: the condition saves the division", at="wrap"),
    Unchanged("records: goes on past the last record", ON_AOS, RECORDS, "return", "continue",
              "a thread's records grow: none after the first past the end lies within", at="guard"),
    Unchanged("probe's tile: not padded", ON_TURNED, TILE, '"kWidth + kPadding"', '"kWidth"',
              "padding spreads a column over the banks: it changes the time alone"),
)  # fmt: skip
