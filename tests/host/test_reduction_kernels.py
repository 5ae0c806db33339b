"""Each algorithm of the reductions equals NumPy with any operator and type, along any axes; what each launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gen.emit.render import render
from gen.families.base import Limits, Variant
from gen.families.config import Config
from gen.families.names import variant
from gen.families.reduction import GridConfig
from gen.families.reduction.algorithms.columns import ColumnsConfig, StreamConfig
from gen.families.reduction.algorithms.common import Combine
from gen.families.reduction.algorithms.grid import ALONE, ClusterConfig, FlagsConfig, StridedConfig
from gen.families.reduction.algorithms.rows import BlockReduce, RowsConfig, SingleConfig
from gen.families.reduction.algorithms.several_axes import MultiRows, MultiRowsConfig
from gen.families.reduction.shapes import problem
from gen.proof.cases import MULTIPROCESSOR_COUNTS, OFFSETS, Case
from gen.proof.host import HostRunner
from gen.proof.prover import check, load, unsupported_extents
from tests.host.reductions import FAMILY, H100, NAMES, NUMBERS, spec
from tests.strategies import cases, configs

# Each algorithm as small as it can be, so that small arrays take every turn; its operators take turns at several.
HALVES: dict[str, tuple[Config, ...]] = {
    "grid": (
        GridConfig(threads_per_block=128, unroll=2, vec_bytes=16, blocks_per_sm=2),
        GridConfig(threads_per_block=128, unroll=8, vec_bytes=16, blocks_per_sm=2, combine=Combine.SECOND_PASS),
    ),
    "flags": (FlagsConfig(threads_per_block=128, unroll=2, vec_bytes=16, blocks_per_sm=2),),
    "cluster": (
        ClusterConfig(threads_per_block=256, unroll=2, vec_bytes=8, blocks_per_sm=ALONE, blocks_per_cluster=2),
        ClusterConfig(threads_per_block=256, unroll=4, vec_bytes=16, blocks_per_sm=ALONE, blocks_per_cluster=2),
        ClusterConfig(threads_per_block=256, unroll=4, vec_bytes=16, blocks_per_sm=1, blocks_per_cluster=8),
    ),
    "rows": (
        RowsConfig(threads_per_block=128, group=4, unroll=2, vec_bytes=8),
        RowsConfig(threads_per_block=128, group=128, unroll=2, vec_bytes=8),
    ),
    "rows at once": (RowsConfig(threads_per_block=128, group=4, rows_at_once=4, unroll=2, vec_bytes=8),),
    "columns": (
        ColumnsConfig(columns_x=16, rows_y=8, unroll=2, vec_bytes=8, blocks_per_sm=2),
        ColumnsConfig(columns_x=128, rows_y=1, unroll=4, vec_bytes=16, blocks_per_sm=8),
        ColumnsConfig(columns_x=128, rows_y=1, unroll=2, vec_bytes=8, blocks_per_sm=8, combine=Combine.FLAGS),
        ColumnsConfig(columns_x=16, rows_y=8, unroll=8, vec_bytes=16, blocks_per_sm=2, combine=Combine.SECOND_PASS),
    ),
    "columns flags": (
        ColumnsConfig(columns_x=16, rows_y=8, unroll=2, vec_bytes=8, blocks_per_sm=2, combine=Combine.FLAGS),
    ),
    "stream flags": (
        StreamConfig(threads_per_block=128, unroll=2, vec_bytes=8, blocks_per_sm=2, combine=Combine.FLAGS),
    ),
    "stream": (StreamConfig(threads_per_block=128, unroll=2, vec_bytes=8, blocks_per_sm=2),),
    "strided": (
        StridedConfig(threads_per_block=64, unroll=4),
        StridedConfig(threads_per_block=64, unroll=4, combine=Combine.SECOND_PASS),
    ),
    "single": (
        SingleConfig(threads_per_block=32, unroll=1, vec_bytes=16),
        SingleConfig(threads_per_block=64, unroll=2, vec_bytes=8),
        SingleConfig(threads_per_block=32, unroll=2, vec_bytes=16, block_reduce=BlockReduce.SHARED),
        SingleConfig(threads_per_block=128, unroll=1, vec_bytes=16, block_reduce=BlockReduce.SHARED),
    ),
}
PLACES = {
    "grid": (None, (-1,)),
    "flags": (None, (-1,)),
    "cluster": (None, (-1,)),
    "rows": ((-1,),),
    "rows at once": ((-1,),),
    "columns": ((0,), (1,)),
    "stream": ((0,),),
    "columns flags": ((0,), (1,)),
    "stream flags": ((0,),),
    "strided": (None, (0, 2)),
    "single": (None,),
}


# They differ from others in how a block ends or begins: every second operator, between two of them all.
EACH_SECOND = {"rows at once": 0, "columns flags": 0, "stream flags": 1}


def proven(which: str) -> Iterator[Variant]:
    """Every operator and every type, in pairs that differ from algorithm to algorithm."""
    algorithm = which.split()[0]
    dtypes, turns = cycle(NUMBERS), cycle(product(HALVES[which], PLACES[which]))
    for _ in range(5 * list(HALVES).index(which)):
        next(dtypes)
    for place, op in enumerate(NAMES):
        (config, axis), dtype = next(turns), next(dtypes)
        if place % 2 != EACH_SECOND.get(which, place % 2):
            continue
        if op.startswith("arg") and axis is not None and len(axis) > 1:
            axis = None
        made = spec(op, dtype, axis=axis)
        if FAMILY.algorithms[algorithm].illegal(made, config) is None:
            yield variant(FAMILY, made, algorithm, config)


@pytest.mark.parametrize("algorithm", HALVES)
def test_operators_and_types_equal_numpy_along_any_axes(algorithm: str, host_runner: HostRunner) -> None:
    variants = tuple(proven(algorithm))
    devices = {count: replace(host_runner.limits, multiprocessors=count) for count in MULTIPROCESSOR_COUNTS}
    kernels = {count: load(host_runner, variants, limits) for count, limits in devices.items()}

    @settings(max_examples=max(settings().max_examples // 4, 1))
    @given(st.data())
    def equals_numpy(data: st.DataObject) -> None:
        made = data.draw(st.sampled_from(variants), label="variant")
        case = data.draw(cases(FAMILY, made.spec), label="case")
        assume(unsupported_extents(made, case, devices[case.multiprocessors]) is None)
        failure = check(kernels[case.multiprocessors][made], devices[case.multiprocessors], case)
        assert failure is None, str(failure)

    equals_numpy()


@pytest.mark.exhaustive
def test_every_family_case_of_some_operators(host_runner: HostRunner) -> None:
    variants = [made for name in HALVES for made in tuple(proven(name))[::9]]
    kernels = load(host_runner, variants, host_runner.limits)
    for made in variants:
        for seed, extents in enumerate(made.family.cases(made.spec)):
            case = Case(extents, seed=seed, offset=OFFSETS[seed % len(OFFSETS)])
            if unsupported_extents(made, case, host_runner.limits) is None:
                failure = check(kernels[made], host_runner.limits, case)
                assert failure is None, str(failure)


WAITING = ("flags", "columns", "stream")


@pytest.mark.parametrize("arch", ["sm_75", "sm_86", "sm_90"])
@given(data=st.data())
def test_a_block_that_waits_for_others_has_room_beside_them(arch: str, data: st.DataObject) -> None:
    limits = Limits.of(arch)
    name = data.draw(st.sampled_from(WAITING), label="algorithm")
    made = spec("sum", axis=(-1,) if name == "flags" else (0,))
    algorithm = FAMILY.algorithms[name]
    config = data.draw(configs(algorithm.config), label="config")
    shape = [data.draw(st.integers(1, 3000)), data.draw(st.integers(1, 300_000))]
    extents = problem(made, shape if name == "flags" else shape[::-1])
    if getattr(config, "combine", Combine.FLAGS) is not Combine.FLAGS or algorithm.illegal(made, config) is not None:
        return
    if algorithm.infeasible(made, config, limits) or algorithm.unsupported_extents(made, config, extents, limits):
        return
    plan, sizes = algorithm.plan(made, config), {**extents, **limits.sizes()}
    threads = int(np.prod(plan.launches[0].block))
    blocks = plan.launches[0].grid[0].at(sizes)
    waits = plan.scratch[0].bytes.at(sizes) > 0
    assert not waits or blocks * threads <= limits.multiprocessors * limits.threads_per_multiprocessor


def test_clusters_begin_with_sm_90_and_need_no_scratch_memory_alone() -> None:
    made, algorithm = spec("sum"), FAMILY.algorithms["cluster"]
    alone, several = HALVES["cluster"][0], HALVES["cluster"][-1]
    for config in (alone, several):
        assert algorithm.infeasible(made, config, Limits.of("sm_89")) is not None
        assert all(algorithm.infeasible(made, config, Limits.of(arch)) is None for arch in ("sm_90", "sm_100"))
        for n in (0, 1, 2**16, 2**26):
            launch = algorithm.plan(made, config).launches[0]
            assert launch.grid[0].at({"n": n, **H100.sizes()}) % launch.cluster[0] == 0
    assert algorithm.plan(made, alone).scratch == ()
    assert "<<<2, 256>>>(in, out, n) in clusters of 2 blocks\n" in render(variant(FAMILY, made, "cluster", alone))
    assert algorithm.plan(made, alone).launches[0].arguments[:2] == ("in", "out")
    assert algorithm.unsupported_extents(made, alone, {"n": 2**16}, H100) is None
    assert algorithm.unsupported_extents(made, alone, {"n": 2**28}, H100) is not None


def test_a_second_pass_runs_where_there_are_partial_results() -> None:
    made, config = spec("sum"), HALVES["grid"][-1]
    first, second = FAMILY.algorithms["grid"].plan(made, config).launches
    for n, passes in ((0, 0), (1, 0), (4096, 0), (4097, 1), (2**28, 1)):
        sizes = {"n": n, **H100.sizes()}
        assert (first.grid[0].at(sizes) > 1, second.grid[0].at(sizes)) == (passes == 1, passes)


@pytest.mark.parametrize("axis", [None, (-1,), (0, 2)])
@pytest.mark.parametrize("tiles", [False, True])
def test_some_edge_case_of_multi_rows_has_blocks_that_share_a_result(axis: tuple[int, ...] | None, tiles: bool) -> None:
    made, algorithm = spec("sum", axis=axis), MultiRows()
    config = MultiRowsConfig(group=256, unroll=8, vec_bytes=16, tiles=tiles)
    splits = [
        algorithm.splits(made, config).at({**extents, **H100.sizes()}) for extents in algorithm.edge_cases(made, config)
    ]
    assert max(splits) > 1
