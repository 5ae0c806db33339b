"""Changes to the templates of the scan, the family from outside."""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import ABSENT, OUTSIDE_READ, OUTSIDE_WRITE, RACE, UNINITIALISED, Mutant, Unchanged

SCANS = "scan/_scan.cu.jinja"
TOTALS = "scan/totals.cu.jinja"

ON_SCAN = "scan_sum_f32__block_tpb64"
ON_TOTALS = "scan_sum_f32__totals_tpb128_i4"

MUTANTS = (
    # scan, the family from outside
    Mutant(
        "scan: no barrier at the end of a round [5]", ON_SCAN, SCANS,
        "    __syncthreads();  // all have read warp_sums before the next round writes it\n", "", RACE,
    ),
    Mutant(
        "scan: no barrier after filling shared memory [5]", ON_SCAN, SCANS,
        "sums[threadIdx.x / 32] = sum;\n  __syncthreads();\n", "sums[threadIdx.x / 32] = sum;\n", (RACE, UNINITIALISED),
    ),
    Mutant(
        "scan: no barrier after the warps' sums [5]", ON_SCAN, SCANS, "= running;\n  }\n  __syncthreads();\n",
        "= running;\n  }\n", (RACE, UNINITIALISED),
    ),
    Mutant("scan: distance off by one", ON_SCAN, SCANS, "lane >= distance", "lane > distance", WRONG),
    Mutant("scan: mask without the last lane", ON_SCAN, SCANS, "0xffffffffu", "0x7fffffffu", ABSENT),
    Mutant("scan: reads past the end", ON_SCAN, SCANS, "i < n ? in[i] : 0.0f", "in[i]", OUTSIDE_READ),
    Mutant("scan: writes past the end", ON_TOTALS, TOTALS, "if (i < n) out[i]", "out[i]", OUTSIDE_WRITE),
    Mutant(
        "scan: return before a barrier [3]", ON_SCAN, SCANS, "    const float sum = warp_scan(",
        "    if (i >= n) return;\n    const float sum = warp_scan(", ABSENT,
    ),
    Mutant(
        "scan: total of its own share", ON_TOTALS, TOTALS, "totals[blockIdx.x - 1]", "totals[blockIdx.x]", OUTSIDE_READ,
    ),
    Mutant("scan: carry from the last lane but one", ON_TOTALS, TOTALS, "sums[u], 31", "sums[u], 30", WRONG),
)  # fmt: skip

LARGE: tuple[Mutant, ...] = ()

UNCHANGED: tuple[Unchanged, ...] = ()
