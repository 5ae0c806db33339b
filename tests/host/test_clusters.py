"""Clusters on the CPU run: each planted fault is found at its line, each clean twin passes and gives what it should."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32, I32
from gen.errors import RunError
from gen.families.base import Launch, Limits, Operand, Plan, Scratch, Variant
from gen.families.expr import ONE, constant, size
from gen.proof.code import cluster
from gen.proof.host import HostFault, HostKernel, HostRunner
from tests.fake_family import fake_variant

N = size("n")
BLOCKS, THREADS, COUNT, CLUSTER = 8, 64, 512, 4
H100 = Limits.of("sm_90")
HEAD = "(const float* in, float* out, float* part, unsigned* flag, int n)"
OPERANDS = (Operand("in", "in", F32, ("n",)), Operand("out", "inout", F32, ("n",)))


@dataclass(frozen=True)
class Planted:
    """A kernel of 8 blocks of 64 threads, 4 in a cluster, with a fault in a line that ends in `// here`; and without.

    Attributes:
        says: what the report must hold beside the line.
        shared_bytes: of dynamic shared memory.
    """

    name: str
    kind: str
    buffer: str
    faulty: str
    clean: str
    says: str = ""
    shared_bytes: int = 0


ARRIVE, RELAXED = "__cluster_barrier_arrive();\n", "__cluster_barrier_arrive_relaxed();\n"
WAIT = "__cluster_barrier_wait();\n"
MEET = ARRIVE + WAIT
BEGIN = """const int t = threadIdx.x;
const unsigned rank = __clusterRelativeBlockRank();
__shared__ float mine[64];
__shared__ __align__(8) float parts[4];
"""


def there(array: str, rank: str) -> str:
    return f"((float*)__cluster_map_shared_rank({array}, {rank}))"


def pushed(
    begin: str = RELAXED + WAIT, write: str = f"if (t == 0) {there('parts', '0')}[rank] = in[blockIdx.x];\n",
    meet: str = MEET, read: str = "if (rank == 0 && t < 4) out[blockIdx.x + t] = parts[t];\n",
) -> str:  # fmt: skip
    """Every block leaves a number with the first of its cluster."""
    return BEGIN + begin + write + meet + read


def pulled(
    meet: str = MEET, read: str = f"out[blockIdx.x * 64 + t] = {there('mine', '(rank + 1) % 4')}[t];\n", end: str = MEET
) -> str:
    """Every block reads what the next one of its cluster has."""
    return BEGIN + "mine[t] = in[blockIdx.x * 64 + t];\n" + meet + read + end


def marked(line: str) -> str:
    return line.rstrip("\n") + "  // here\n"


def last_block(before: str) -> str:
    """Whether a block comes last, of all of the grid."""
    ticket = f"if (t == 0) {{\n{before}last = atomicInc(flag, 7) == 7;\n__threadfence();\n}}\n"
    return f"__shared__ bool last;\n{ticket}__syncthreads();\n"


ZEROS = "if (t < 4) parts[t] = 0.0f;\n" + MEET
PUSH = f"if (t == 0) {there('parts', '0')}[rank] = in[blockIdx.x];\n"
PULL = f"out[blockIdx.x * 64 + t] = {there('mine', '(rank + 1) % 4')}[t];\n"
READ = "if (rank == 0 && t < 4) out[blockIdx.x + t] = parts[t];\n"
DYNAMIC = "extern __shared__ __align__(16) unsigned char shared_bytes[];\nfloat* const tile = (float*)shared_bytes;\n"

PLANTED = (
    # Whether a block is there.
    Planted("reaches_before_all_have_begun", "lifetime", "parts", pushed(begin="", write=marked(PUSH)), pushed(),
            "may not have begun"),
    Planted("returns_while_others_read", "lifetime", "mine", pulled(read=marked(PULL), end=""), pulled(),
            "may return"),
    Planted("returns_after_a_relaxed_arrival", "lifetime", "mine",
            pulled(read=marked(PULL), end=RELAXED + WAIT), pulled(end=ARRIVE + WAIT)),
    Planted("maps_what_is_not_shared", "lifetime", "",
            BEGIN + MEET + f"if (t == 0) out[blockIdx.x] = {there('in', '1')}[0];  // here\n" + MEET,
            BEGIN + MEET + f"if (t == 0) {there('parts', '1')}[rank] = in[0];\n" + MEET),
    Planted("rank_beyond_the_cluster", "index", "",
            pushed(write=marked(PUSH.replace(", 0)", ", rank + 1)"))),
            pushed(write=PUSH.replace(", 0)", ", (rank + 1) % 4)"),
                   read="if (t == (rank + 3) % 4) out[blockIdx.x] = parts[t];"),
            "rank 4 in a cluster of 4 blocks"),
    # Order.
    Planted("reads_before_the_others_have_written", "race", "mine",
            pulled(meet=MEET + "mine[t] = 1.0f;  // here\n", read=marked(PULL)),
            pulled(meet=MEET + "mine[t] = 1.0f;\n" + MEET), "no barrier of their cluster orders the two"),
    Planted("first_reads_without_waiting", "race", "parts",
            pushed(write=ZEROS + marked(PUSH), meet="", read=marked(READ) + MEET), pushed(write=ZEROS + PUSH)),
    Planted("arrival_relaxed", "race", "parts", pushed(write=PUSH, meet=RELAXED + WAIT, read=marked(READ) + MEET),
            pushed()),
    Planted("two_blocks_write_one_place", "race", "parts", pushed(write=marked(PUSH.replace("[rank]", "[rank / 2]"))),
            pushed()),
    Planted("write_after_others_read", "race", "mine",
            pulled(read=marked(PULL) + "mine[t] = 1.0f;  // here\n"), pulled(read=PULL + MEET + "mine[t] = 1.0f;\n")),
    Planted("plain_count_of_all", "race", "parts",
            pushed(write=ZEROS + f"if (t == 0) {there('parts', '0')}[0] += 1.0f;  // here\n"),
            pushed(write=ZEROS + f"if (t == 0) atomicAdd({there('parts', '0')}, 1.0f);\n")),
    Planted("global_without_meeting", "race", "part",
            BEGIN + "part[blockIdx.x * 64 + t] = 1.0f;  // here\n" + RELAXED + WAIT
            + "out[blockIdx.x * 64 + t] = part[(blockIdx.x ^ 1) * 64 + t];  // here\n",
            BEGIN + "part[blockIdx.x * 64 + t] = 1.0f;\n" + MEET
            + "out[blockIdx.x * 64 + t] = part[(blockIdx.x ^ 1) * 64 + t];\n"),
    Planted("global_of_another_cluster", "race", "part",
            BEGIN + "part[blockIdx.x * 64 + t] = 1.0f;  // here\n" + MEET
            + "out[blockIdx.x * 64 + t] = part[(blockIdx.x ^ 4) * 64 + t];  // here\n",
            BEGIN + "part[blockIdx.x * 64 + t] = 1.0f;\n" + MEET
            + "out[blockIdx.x * 64 + t] = part[(blockIdx.x ^ 3) * 64 + t];\n"),
    Planted("arrival_is_no_fence_for_others", "race", "part",
            BEGIN + "if (t == 0) part[blockIdx.x] = 1.0f;\n" + MEET + last_block("")
            + "if (last && t < 8) out[t] = part[t];  // here\n",
            BEGIN + "if (t == 0) part[blockIdx.x] = 1.0f;\n" + MEET + last_block("__threadfence();\n")
            + "if (last && t < 8) out[t] = part[t];\n"),
    # Places.
    Planted("past_the_end_of_the_others_array", "out-of-bounds write", "parts",
            pushed(write=marked(PUSH.replace("[rank]", "[rank + 1]"))), pushed()),
    Planted("far_past_the_end", "out-of-bounds write", "parts",
            pushed(write=marked(PUSH.replace("[rank]", "[rank + 5000]"))), pushed()),
    Planted("others_never_wrote_it", "uninitialised read", "mine",
            pulled().replace("mine[t] = in", "if (t < 63) mine[t] = in").replace(PULL, marked(PULL)), pulled()),
    Planted("misaligned_there", "misaligned", "parts",
            pushed(write=f"if (t == 0) *(float2*)({there('parts', '0')} + 1) = make_float2(0.0f, 1.0f);  // here\n"),
            pushed(write=f"if (t + rank == 0) *(float2*)({there('parts', '0')} + 2) = make_float2(0.0f, 1.0f);\n",
                   read="if (rank == 0 && t > 1 && t < 4) out[blockIdx.x + t] = parts[t];\n")),
    Planted("dynamic_past_the_end", "out-of-bounds read", "shared_bytes",
            DYNAMIC + BEGIN + "tile[t] = in[blockIdx.x * 64 + t];\n" + MEET
            + f"out[blockIdx.x * 64 + t] = {there('tile', 'rank ^ 1')}[t + 1];  // here\n" + MEET,
            DYNAMIC + BEGIN + "tile[t] = in[blockIdx.x * 64 + t];\n" + MEET
            + f"out[blockIdx.x * 64 + t] = {there('tile', 'rank ^ 1')}[63 - t];\n" + MEET, shared_bytes=256),
    # The barrier.
    Planted("half_a_block_meets", "cluster barrier", "",
            BEGIN + "if (t < 32) {\n" + ARRIVE + marked(WAIT) + "}\n", BEGIN + MEET, "did not come: it has returned"),
    Planted("a_block_returns_before", "cluster barrier", "",
            BEGIN + "if (rank == 3) return;\n" + ARRIVE + marked(WAIT), BEGIN + MEET + "if (rank == 3) return;\n",
            "did not come: it has returned"),
    Planted("barrier_of_the_block_instead", "cluster barrier", "",
            BEGIN + ARRIVE + "if (rank == 2) __syncthreads();\nelse\n" + marked(WAIT) + "if (rank == 2)\n" + WAIT + MEET
            + "if (rank == 0 && t < 32) __syncthreads();\nelse {\n" + ARRIVE + marked(WAIT) + "}\n",
            BEGIN + ARRIVE + "if (rank == 2) __syncthreads();\n" + WAIT, "waits at the barrier of line"),
    Planted("arrives_twice", "cluster barrier", "", BEGIN + ARRIVE + marked(ARRIVE) + WAIT, BEGIN + MEET + MEET,
            "has not waited since"),
    Planted("waits_alone", "cluster barrier", "", BEGIN + MEET + marked(WAIT), BEGIN + MEET, "has not arrived"),
    Planted("returns_between_the_halves", "cluster barrier", "",
            BEGIN + "if (rank > 0) {\n" + marked(ARRIVE) + "return;\n}\n" + MEET,
            BEGIN + ARRIVE + WAIT + "if (rank > 0) return;\n", "returns without having waited"),
)  # fmt: skip


def plan(shared_bytes: int = 0, *, size_of_cluster: int = CLUSTER, blocks: int = BLOCKS) -> Plan:
    launch = Launch(
        (constant(blocks), ONE, ONE), (THREADS, 1, 1), ("in", "out", "part", "flag", (I32, N)),
        shared_bytes=constant(shared_bytes), cluster=(size_of_cluster, 1, 1),
    )  # fmt: skip
    return Plan((launch,), (Scratch("part", N * 4, zeroed=True), Scratch("flag", constant(256), zeroed=True)))


def text_of(name: str, body: str, dims: str = "__cluster_dims__(4, 1, 1)") -> str:
    return f'extern "C" __global__ void {dims} __launch_bounds__(64)\n    {name}{HEAD} {{\n{body}\n}}\n'


def arrays() -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return {"in": np.arange(COUNT, dtype=np.float32), "out": np.zeros(COUNT, np.float32)}


@pytest.fixture(scope="module")
def kernels(cache: Path) -> Mapping[str, tuple[HostKernel, HostKernel]]:
    variants: dict[str, tuple[Variant, Variant]] = {}
    texts = {}
    for one in PLANTED:
        faulty = fake_variant(f"{one.name}_faulty", OPERANDS, plan(one.shared_bytes))
        clean = fake_variant(one.name, OPERANDS, plan(one.shared_bytes))
        variants[one.name] = faulty, clean
        texts[faulty.name], texts[clean.name] = text_of(faulty.name, one.faulty), text_of(clean.name, one.clean)
    runner = HostRunner(H100, cache=cache, text=lambda variant: texts[variant.name])
    made = iter(runner.load([variant for pair in variants.values() for variant in pair]))
    return {name: (next(made), next(made)) for name in variants}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_planted_fault_of_a_cluster_is_found(
    planted: Planted, kernels: Mapping[str, tuple[HostKernel, HostKernel]]
) -> None:
    kernel, _ = kernels[planted.name]
    for _ in range(2):  # in two orders
        with pytest.raises(HostFault) as caught:
            kernel.run({"n": COUNT}, arrays())
        fault = caught.value
        assert fault.kind == planted.kind, str(fault)
        assert fault.buffer == planted.buffer, str(fault)
        assert fault.source.endswith("// here"), str(fault)
        assert planted.says in str(fault)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_clean_twin_in_a_cluster_passes(planted: Planted, kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    _, kernel = kernels[planted.name]
    for _ in range(2):
        kernel.run({"n": COUNT}, arrays())


def test_blocks_of_a_cluster_exchange_what_they_have(kernels: Mapping[str, tuple[HostKernel, HostKernel]]) -> None:
    found = arrays()
    kernels["returns_while_others_read"][1].run({"n": COUNT}, found)
    blocks = found["in"].reshape(2, 4, 64)
    np.testing.assert_array_equal(found["out"].reshape(2, 4, 64), np.roll(blocks, -1, axis=1))
    found = arrays()
    kernels["reaches_before_all_have_begun"][1].run({"n": COUNT}, found)
    np.testing.assert_array_equal(found["out"][:8], found["in"][:8])


PLACES = """const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
const dim3 idx = __clusterIdx(), grid = __clusterGridDimInClusters(), in_it = __clusterRelativeBlockIdx();
__shared__ int number;
number = block;
__cluster_barrier_arrive();
__cluster_barrier_wait();
const unsigned rank = __clusterRelativeBlockRank();
const unsigned last = __clusterSizeInBlocks() - 1;
int* const other = (int*)__cluster_map_shared_rank(&number, last - rank);
const int of_other = *other;
if (__cluster_query_shared_rank(other) == last - rank)
  out[block] = 1000 * (idx.x + grid.x * (idx.y + grid.y * idx.z)) + 100 * (in_it.x + 2 * in_it.y) + of_other;
__cluster_barrier_arrive();
__cluster_barrier_wait();
"""


def test_clusters_have_two_axes(cache: Path) -> None:
    launch = Launch(
        (constant(4), constant(4), ONE), (1, 1, 1), ("in", "out", "part", "flag", (I32, N)), cluster=(2, 2, 1)
    )
    scratch = plan().scratch
    made = fake_variant("two_axes", OPERANDS, Plan((launch,), scratch))
    text = text_of(made.name, PLACES, "__cluster_dims__(2, 2)")
    (kernel,) = HostRunner(H100, cache=cache, text=lambda _: text).load([made])
    found = arrays()
    kernel.run({"n": COUNT}, found)
    expected = np.zeros(16)
    for y in range(4):
        for x in range(4):
            rank = x % 2 + 2 * (y % 2)
            other = (x // 2 * 2 + (3 - rank) % 2) + 4 * (y // 2 * 2 + (3 - rank) // 2)
            expected[x + 4 * y] = 1000 * (x // 2 + 2 * (y // 2)) + 100 * rank + other
    np.testing.assert_array_equal(found["out"][:16], expected)


WRONG = (
    ("plan_without", plan(size_of_cluster=1), "__cluster_dims__(4, 1, 1)", H100, "in clusters of (4, 1, 1) blocks"),
    ("text_without", plan(), "", H100, "in clusters of (1, 1, 1) blocks"),
    ("older_device", plan(), "__cluster_dims__(4)", Limits.of("sm_80"), "which begin with sm_90"),
    ("too_many", plan(size_of_cluster=16, blocks=16), "__cluster_dims__(16)", H100, "at most 8 blocks in a cluster"),
    ("left_over", plan(blocks=6), "__cluster_dims__(4)", H100, "a grid of whole clusters"),
)


@pytest.mark.parametrize(("label", "launches", "dims", "limits", "says"), WRONG, ids=[wrong[0] for wrong in WRONG])
def test_what_no_gpu_launches_is_refused(
    label: str, launches: Plan, dims: str, limits: Limits, says: str, cache: Path
) -> None:
    made = fake_variant(label, OPERANDS, launches)
    (kernel,) = HostRunner(limits, cache=cache, text=lambda _: text_of(made.name, BEGIN, dims)).load([made])
    with pytest.raises(RunError) as caught:
        kernel.run({"n": COUNT}, arrays())
    assert says in str(caught.value)


def test_a_cluster_larger_than_a_small_device_still_runs(cache: Path) -> None:
    made = fake_variant("small", OPERANDS, plan())
    runner = HostRunner(replace(H100, multiprocessors=1), cache=cache, text=lambda _: text_of(made.name, pulled()))
    (kernel,) = runner.load([made])
    kernel.run({"n": COUNT}, arrays())


def test_how_a_kernel_says_its_cluster() -> None:
    text = (
        "void __cluster_dims__(kSize, 1, 1) __launch_bounds__(kMost(1))\n k(int a) {}\n__cluster_dims__(2) void l() {}"
    )
    assert (cluster(text, "k"), cluster(text, "l"), cluster(text, "m")) == ("kSize, 1, 1", "2", "")
