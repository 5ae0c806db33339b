"""Changes to the template of the reductions whose blocks form clusters."""

from __future__ import annotations

from gen.proof.failures import AGAIN, UNTOUCHED, WRONG
from tests.mutants.change import CLUSTER_BARRIER, INDEX, LIFETIME, OUTSIDE_READ, RACE, UNINITIALISED, Mutant, Unchanged

CLUSTER, SHARE = "reduction/cluster.cu.jinja", "reduction/_share.cu.jinja"

ON_CLUSTER = "reduction_sum_f32__cluster_tpb256_u2_v8_bpm0_c2"
ON_CLUSTER_OF_ROWS = "reduction_sum_f32_axis1__cluster_tpb512_u2_v16_bpm0_c8"
ON_CLUSTERS = "reduction_sum_f32__cluster_tpb256_u4_v16_bpm1_c8"

BEGUN = "  __cluster_barrier_wait();  // all blocks have begun, so that their shared memory exists\n"
MEET = "  __cluster_barrier_arrive();\n  __cluster_barrier_wait();\n"

MUTANTS = (
    # A cluster
    Mutant("cluster: half of the first barrier", ON_CLUSTER, CLUSTER, "", "", CLUSTER_BARRIER, at="begun"),
    Mutant("cluster: nobody waits for blocks to begin", ON_CLUSTER, CLUSTER, BEGUN, "", LIFETIME,
           ((MEET, "  __cluster_barrier_wait();\n"),)),
    Mutant("cluster: no barrier before the states are read", ON_CLUSTER, CLUSTER, MEET, "",
           (RACE, UNINITIALISED, LIFETIME)),
    Mutant("cluster: states left behind by a relaxed arrival", ON_CLUSTER, CLUSTER, "__cluster_barrier_arrive();",
           "__cluster_barrier_arrive_relaxed();", (RACE, LIFETIME)),
    Mutant("cluster: a barrier of the block only", ON_CLUSTER, CLUSTER, MEET, "  __syncthreads();\n",
           (RACE, UNINITIALISED, LIFETIME)),
    Mutant("cluster: other blocks return without waiting", ON_CLUSTER, CLUSTER, "__cluster_barrier_arrive();",
           "__cluster_barrier_arrive();\n  if (rank > 0) return state;", CLUSTER_BARRIER),
    Mutant("cluster: only the first warps meet", ON_CLUSTER, CLUSTER, MEET,
           "  if (threadIdx.x < 32) {\n  " + MEET.replace("\n  ", "\n    ") + "  }\n", CLUSTER_BARRIER),
    Mutant("cluster: states stay with each block", ON_CLUSTER, CLUSTER, "(states, 0)", "(states, rank)", UNINITIALISED),
    Mutant("cluster: a rank that there is not", ON_CLUSTER, CLUSTER, "(states, 0)", "(states, kCluster)", INDEX),
    Mutant("cluster: blocks share places", ON_CLUSTER, CLUSTER, "[rank * kWarps + threadIdx.x / 32]",
           "[threadIdx.x / 32]", RACE),
    Mutant(
        "cluster: all lanes leave a state", ON_CLUSTER, CLUSTER, "if (threadIdx.x % 32 == 0) {", "{", RACE,
        at="first lanes",
    ),
    Mutant("cluster: states of the first block only", ON_CLUSTER, CLUSTER, "warp < kCluster * kWarps;",
           "warp < kWarps;", WRONG),
    Mutant("cluster: one state too many", ON_CLUSTERS, CLUSTER, "warp < kCluster * kWarps;",
           "warp <= kCluster * kWarps;", INDEX),
    Mutant("cluster: blocks read the same", ON_CLUSTER, CLUSTER, "kThreadsPerBlock, rank, kCluster",
           "kThreadsPerBlock, 0, kCluster", WRONG),
    Mutant("cluster: every block writes the result", ON_CLUSTER, CLUSTER, "if (rank == 0 && threadIdx.x == 0) write",
           "if (threadIdx.x == 0) write", RACE),
    # Several clusters
    Mutant("clusters: all read the same", ON_CLUSTERS, CLUSTER, "(cluster) * kCluster + rank;", "(0) * 1 + rank;",
           WRONG),
    Mutant("clusters: every block takes a ticket", ON_CLUSTERS, CLUSTER, "if (rank > 0 || threadIdx.x >= 32) return;",
           "if (threadIdx.x >= 32) return;", RACE),
    Mutant("clusters: no fence after the partial", ON_CLUSTERS, CLUSTER, "", "", RACE, at="fence"),
    Mutant("clusters: no fence after the ticket", ON_CLUSTERS, CLUSTER, "    if (is_last_cluster) __threadfence();",
           "   ", RACE),
    Mutant("clusters: lanes in lock-step [4]", ON_CLUSTERS, CLUSTER, "", "", RACE, at="ticket shared"),
    Mutant("clusters: counter not reset", ON_CLUSTERS, CLUSTER, "atomicInc({{ ticket }}, clusters - 1)",
           "atomicAdd({{ ticket }}, 1)", AGAIN),
    Mutant("clusters: last partial left out", ON_CLUSTERS, CLUSTER, "i < clusters;", "i + 1 < clusters;", WRONG),
)  # fmt: skip

LARGE = (
    Mutant("cluster: where a row begins in 32 bits", ON_CLUSTER_OF_ROWS, CLUSTER, "in + row * pitch",
           "in + static_cast<unsigned>(row * pitch)", OUTSIDE_READ),
    Mutant("clusters: tail at an index of 32 bits", ON_CLUSTERS, SHARE, "const long long behind =",
           "const unsigned behind =", UNTOUCHED),
)  # fmt: skip

UNCHANGED = (
    Unchanged(
        "cluster: every warp of the first block combines the states", ON_CLUSTER, CLUSTER,
        "if (rank == 0 && threadIdx.x < 32) {", "if (rank == 0) {",
        "only thread 0 uses the result; the condition saves the other warps their work",
        (("int warp = threadIdx.x;", "int warp = threadIdx.x % 32;"),),
    ),
)  # fmt: skip
