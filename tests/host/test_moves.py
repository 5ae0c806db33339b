"""Copies and diagnostics beside the transposes: what they compute, in which tiles, and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gen.dtypes import B8, B32, B64, B128, F32
from gen.errors import ConfigError, SpecError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.config import pairwise
from gen.families.names import find_family, find_variant, named_variant, parse_label, search_space, variant
from gen.families.plans import steps
from gen.families.transpose import MoveSpec, TransposeSpec
from gen.families.transpose.algorithms.tiled import TiledConfig
from gen.proof.host import HostRunner
from gen.proof.prover import prove
from gen.runtime.dispatch import family_and_spec

FAMILY = find_family(FAMILIES, "transpose")
LIMITS = Limits.of("sm_90")
SPECS = (MoveSpec(), MoveSpec("turn", 0, B64), MoveSpec("fine", 32, B8), MoveSpec("coarse", 16, B128))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_a_cover_of_the_variants_equals_numpy(spec: MoveSpec, host_runner: HostRunner) -> None:
    # Of what transposes vary too, some; small tiles say as much as large ones, and are run in less time.
    configs = [
        config
        for algorithm in ("naive", "tiled")
        for place, config in enumerate(pairwise(search_space(FAMILY.algorithms[algorithm], spec)))
        if place % 5 == 0 or (isinstance(config, TiledConfig) and (config.direct or config.in_kernel))
    ]
    small = [config for config in configs if not isinstance(config, TiledConfig) or config.tile_dim <= 32]
    made = [variant(FAMILY, spec, "tiled" if isinstance(one, TiledConfig) else "naive", one) for one in small]
    assert len(made) >= 5
    for proof in prove(host_runner, made):
        assert proof.failure is None, str(proof.failure)


@pytest.mark.exhaustive
def test_kernels_of_the_literature_outside_the_catalogue_equal_numpy(host_runner: HostRunner) -> None:
    named = [named_variant(FAMILY, one) for one in FAMILY.named]
    made = {one.name: one for one in named if one.spec not in FAMILY.catalogue}
    assert len(made) >= 12
    for proof in prove(host_runner, list(made.values())):
        assert proof.failure is None, str(proof.failure)


def oracle(spec: MoveSpec, matrix: Any) -> list[Any]:
    found: list[Any] = FAMILY.oracle(spec, {"in": matrix}, {})["out"].value.tolist()
    return found


def test_tiles_are_turned_in_place_or_moved_as_they_are() -> None:
    matrix = np.arange(32 * 64, dtype=np.uint32).reshape(32, 64)
    tiles = matrix.reshape(2, 16, 4, 16)
    assert oracle(MoveSpec("coarse", 16), matrix) == tiles.transpose(2, 1, 0, 3).reshape(64, 32).tolist()
    assert oracle(MoveSpec("fine", 16), matrix) == tiles.transpose(0, 3, 2, 1).reshape(32, 64).tolist()
    # Either after the other is a transpose.
    fine = np.array(oracle(MoveSpec("fine", 16), matrix), np.uint32)
    assert oracle(MoveSpec("coarse", 16), fine) == matrix.T.tolist()
    assert oracle(MoveSpec("turn"), matrix) == matrix.T.tolist()
    assert oracle(MoveSpec("copy"), matrix) == matrix.tolist()


@pytest.mark.parametrize("spec", [*SPECS, MoveSpec("coarse", 32)], ids=lambda spec: spec.label)
def test_single_elements_are_those_of_the_whole(spec: MoveSpec) -> None:
    matrix = np.arange(64 * 96).reshape(64, 96)
    whole = FAMILY.oracle(spec, {"in": matrix}, {})["out"].value
    index = tuple(np.indices(whole.shape).reshape(2, -1))
    part = FAMILY.oracle_at(spec, {"in": matrix}, {}, "out", index)
    assert part is not None
    assert np.array_equal(part.value, whole[index])


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.label)
def test_a_label_says_all_of_a_spec(spec: MoveSpec) -> None:
    assert parse_label(FAMILY, spec.label, {}) == spec
    assert FAMILY.from_json(spec.to_json()) == spec
    assert family_and_spec(FAMILIES, spec, LIMITS)[0] is FAMILY  # type: ignore[arg-type]


def test_repetitions_are_launches_or_a_loop_in_the_kernel_and_0_are_1() -> None:
    def launched(name: str, nreps: int) -> list[Any]:
        made = find_variant(FAMILIES, name, {})
        sizes = {"rows": 64, "cols": 64, "in_pitch": 64, "out_pitch": 64, "nreps": nreps}
        return [step.arguments[8:] for step in steps(made.plan, sizes)]

    for nreps, times in ((0, 1), (1, 1), (5, 5)):
        assert launched("copySharedMemNrepsLaunches", nreps) == [()] * times
        assert [arguments[0][1] for arguments in launched("copySharedMemNrepsKernel", nreps)] == [times]


def test_what_is_repeated_counts_as_often() -> None:
    sizes = {"rows": 8, "cols": 4, "in_pitch": 4, "out_pitch": 4}
    once, thrice = (FAMILY.work(MoveSpec(), {**sizes, "nreps": nreps}) for nreps in (0, 3))
    assert (once.bytes_read, once.bytes_written, once.cells) == (128, 128, 32)
    assert thrice == replace(once, bytes_read=384, bytes_written=384, cells=96)


def test_tiles_that_are_no_squares_leave_and_enter_by_whole_warps() -> None:
    made = find_variant(FAMILIES, "transposeSmemUnrollPadDyn32x16", {})
    (launch,) = made.plan.launches
    assert launch.block == (32, 16, 1)
    assert launch.shared_bytes.at({}) == 16 * (64 + 2) * 4


def copies(tag: str, spec: str = "copy_b32") -> Callable[[], Any]:
    return lambda: find_variant(FAMILIES, f"transpose_{spec}__{tag}", {})


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: MoveSpec("move"), SpecError, "transpose.op must be one of copy, turn, fine, coarse (got 'move')"),
    (lambda: MoveSpec("copy", 32), SpecError, "transpose.tile must be 0 where op is copy (got 32)"),
    (lambda: MoveSpec("fine"), SpecError, "transpose.tile must be 16, 32, 64 where op is fine (got 0)"),
    (lambda: MoveSpec("fine", True), SpecError, "(got True)"),
    (lambda: MoveSpec(dtype=F32), SpecError, "transpose.dtype must be b8, b16, b32, b64, b128 (got f32)"),
    (copies("vector_tile_v16_x16_g16_swz_ocol_ldg"), ConfigError, "it computes no copy_b32"),
    (copies("naive_row_x32_y8_u1", "fine32_b32"), ConfigError, "it has no tiles, which the spec needs"),
    (copies("tiled_t16_r8_p1_u1", "fine32_b32"), ConfigError, "its tiles must be 32 x 32, as in the spec"),
    (copies("tiled_t32_r8_p0_u1_direct", "fine32_b32"), ConfigError, "fine needs tiles in shared memory"),
    (copies("tiled_t64_r8_p0_u1_direct_dyn"), ConfigError, "without shared memory padding, swizzle and dynamic"),
    (copies("tiled_t32_r8_p1_u1_swz"), ConfigError, "swizzle replaces padding"),
    (copies("tiled_t32_r8_p1_u1_direct"), ConfigError, "without shared memory padding, swizzle and dynamic"),
    (
        copies("tiled_t32_r8_p1_u1_nreps", "10_b32"),
        ConfigError,
        "a transpose is computed once: in_kernel is for copies that repeat",
    ),
    (copies("naive_row_x64_y32_u1"), ConfigError, "a block would have 2048 threads; CUDA allows at most 1024"),
]


@pytest.mark.parametrize(("make", "error", "says"), WRONG, ids=[says for _, _, says in WRONG])
def test_what_is_none_is_refused(make: Callable[[], Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert says in str(caught.value)


def test_tiles_must_divide_the_matrix_only_where_the_result_depends_on_them() -> None:
    sizes = {"rows": 64, "cols": 48, "in_pitch": 48, "out_pitch": 48, "nreps": 1}
    fine = find_variant(FAMILIES, "transposeFineGrained", {})
    reason = fine.algorithm.unsupported_extents(fine.spec, fine.config, sizes, LIMITS)
    assert reason == "cols must be a multiple of the tile extent 32, and is 48"
    plain = find_variant(FAMILIES, "copySharedMem", {})
    assert plain.algorithm.unsupported_extents(plain.spec, plain.config, sizes, LIMITS) is None


def test_transposes_stay_what_they_were() -> None:
    assert FAMILY.takes(TransposeSpec((0, 2, 1), B32))
    assert not FAMILY.takes("transpose_10_b32")
    assert parse_label(FAMILY, "021_b16", {}) == FAMILY.from_json({"axes": [0, 2, 1], "dtype": "b16"})
