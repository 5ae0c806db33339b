"""`cluster`: blocks of a cluster bring their results together in shared memory before one of them goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gen.arch import WARP
from gen.dtypes import I64, U32
from gen.families.base import Extents, Launch, Limits, Plan
from gen.families.config import tunable
from gen.families.expr import ONE, Expr, size
from gen.families.reduction.finish import Finish, arguments, beyond_resident, scratch
from gen.families.reduction.sharing import Sharing, SharingConfig, has_rows
from gen.families.reduction.spec import ReductionSpec
from gen.families.reduction.text import state_bytes

ALONE = 0  # blocks for each multiprocessor: one cluster for a row, whatever its length
TREE = 5  # roundings of a warp's shuffles
LARGEST = 8  # blocks in a cluster that every device with clusters allows
MOST_OF_THREAD = 256  # elements of a row that one cluster reduces: with more, more blocks are faster by far


@dataclass(frozen=True, kw_only=True)
class ClusterConfig(SharingConfig):
    """How `cluster` divides rows between clusters, blocks and threads."""

    threads_per_block: int = tunable("tpb", (256, 512, 1024), base=512, help="threads in a block")
    unroll: int = tunable("u", (2, 4, 8), base=2, help="vector loads each thread has in flight")
    vec_bytes: int = tunable("v", (8, 16), base=16, help="bytes of one vector load")
    blocks_per_sm: int = tunable(
        "bpm", (ALONE, 1, 2), base=ALONE, help=f"most blocks for each multiprocessor; {ALONE}: a row has one cluster"
    )
    blocks_per_cluster: int = tunable("c", (2, 4, LARGEST), base=LARGEST, help="blocks in a cluster")

    def unsearched(self) -> str | None:
        """Narrow vectors spread a small array over more threads; several clusters serve long rows."""
        if self.vec_bytes < 16 and (self.unroll > 2 or self.blocks_per_sm != ALONE):
            return "vectors under 16 bytes serve one cluster that reads little"
        if self.blocks_per_sm != ALONE and (self.blocks_per_cluster < LARGEST or self.unroll < 4):
            return f"where a row has several clusters they have {LARGEST} blocks, and 4 loads a thread in flight"
        return beyond_resident(self.threads_per_block, self.blocks_per_sm)


class Cluster(Sharing[ClusterConfig]):
    """The warps' results of a cluster in one block's shared memory; those of several clusters as in `grid`."""

    name = "cluster"
    template = "reduction/cluster.cu.jinja"
    summary = (
        "One launch: the blocks of a cluster stride through a row with vector loads, and every warp leaves its result "
        "in the shared memory of the first of them, which combines them in order. Where a row has one cluster, that is "
        "all: no scratch memory, no fence, no atomic. Else the cluster that finishes last combines the partial results "
        "in index order."
    )
    config = ClusterConfig
    not_sampled = "blocks of a cluster wait for each other"

    def finish(self, config: ClusterConfig) -> Finish:
        """The last cluster of a row, where it has several."""
        return Finish.TICKET

    def illegal(self, spec: ReductionSpec, config: ClusterConfig) -> str | None:
        """A result has more than one element, which the blocks of a cluster share."""
        if spec.axis == ():
            return "no axis is reduced: a cluster of blocks would share single elements"
        return super().illegal(spec, config)

    def unsearched(self, spec: ReductionSpec, config: ClusterConfig) -> str | None:
        """Vectors under 16 bytes spread a small array over more threads; rows are many."""
        return "rows are read 16 bytes at a time" if has_rows(spec) and config.vec_bytes < 16 else None

    def unsupported_extents(
        self, spec: ReductionSpec, config: ClusterConfig, extents: Extents, limits: Limits
    ) -> str | None:
        """Rows of neighbouring elements, no longer than one cluster takes if there is to be no other.

        And, where there are several, no shorter than to give each thread of a cluster something to do.
        """
        threads = config.blocks_per_cluster * config.threads_per_block
        if extents.get("outer", 1) > 1 and extents["n"] < threads:
            return f"it takes an element at least of each of several rows a thread of {threads}"
        if config.blocks_per_sm == ALONE and extents["n"] > MOST_OF_THREAD * threads:
            return f"it takes at most {MOST_OF_THREAD} elements of a row a thread"
        return super().unsupported_extents(spec, config, extents, limits)

    def inputs(self, spec: ReductionSpec, config: ClusterConfig) -> Mapping[str, object]:
        """All that the template reads."""
        return {
            **super().inputs(spec, config),
            "cluster": config.blocks_per_cluster,
            "alone": config.blocks_per_sm == ALONE,
        }

    def clusters(self, spec: ReductionSpec, config: ClusterConfig) -> Expr:
        """Clusters of a row: one for every `unroll` vectors a thread, up to its part of `blocks_per_sm`."""
        if config.blocks_per_sm == ALONE:
            return ONE
        per_block = config.threads_per_block * config.unroll * (config.vec_bytes // spec.dtype.size)
        return size("n").ceil_div(per_block * config.blocks_per_cluster).at_most(self._most(spec, config)).at_least(1)

    def plan(self, spec: ReductionSpec, config: ClusterConfig) -> Plan:
        """One launch; what counts the clusters of a row that are done is 0 again with the last."""
        clusters = self.clusters(spec, config).called("clusters")
        results, rows = tuple(name for name, _, _ in spec.results), has_rows(spec)
        alone, tickets = config.blocks_per_sm == ALONE, "tickets" if rows else "ticket"
        shared = () if alone else arguments(Finish.TICKET, tickets=tickets)
        numbers = ((I64, size("n")), (I64, size("outer_pitch")), (U32, clusters))
        launch = Launch(
            grid=((size("outer") if rows else ONE) * clusters * config.blocks_per_cluster, ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", *results, *shared, *numbers[: 1 if not rows else 2 if alone else 3]),
            cluster=(config.blocks_per_cluster, 1, 1),
        )
        if alone:
            return Plan((launch,))
        state = state_bytes(spec)
        if not rows:
            return Plan((launch,), scratch(Finish.TICKET, clusters, clusters, state))
        most = size("multiprocessors") * config.blocks_per_sm // config.blocks_per_cluster
        return Plan((launch,), scratch(Finish.TICKET, clusters, most, state, most))

    def roundings(self, spec: ReductionSpec, config: ClusterConfig, extents: Extents, limits: Limits) -> int:
        """Those of a thread, a warp, the warps' states of a lane, a warp again; the partials of a lane, a warp."""
        clusters = self.clusters(spec, config).at({**extents, **limits.sizes()})
        warps = config.blocks_per_cluster * config.threads_per_block // WARP
        end = -(-clusters // WARP) + TREE if clusters > 1 else 0
        return self.roundings_after(
            spec, config, extents["n"], clusters * config.blocks_per_cluster, TREE + -(-warps // WARP) + TREE + end
        )

    def _most(self, spec: ReductionSpec, config: ClusterConfig) -> Expr:
        """Clusters that there may be of a row."""
        most = size("multiprocessors") * config.blocks_per_sm // config.blocks_per_cluster
        return most // size("outer").at_least(1) if has_rows(spec) else most
