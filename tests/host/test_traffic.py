"""Sectors, lines and wavefronts of single requests; samples of blocks stand for all."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gen.arch import LITERATURE, MODERN, MemoryModel
from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.base import Array, Limits
from gen.families.extents import extents_of
from gen.families.names import find_family, find_variant
from gen.families.stencil import shapes
from gen.proof import trace
from gen.proof.host import HostRunner
from gen.proof.native import TOUCHED_BY_READ, TOUCHED_BY_WRITE
from gen.proof.trace import WHOLE, traffic
from gen.proof.traffic import CONSTANT, EVENT, Counted, count

H100 = Limits.of("sm_90")
KEPLER = LITERATURE["kepler"]
LANES = range(32)


def events(addresses: Sequence[int], size: int, *, shared: bool = False, touch: int = TOUCHED_BY_READ) -> Array:
    """One request: an access of each lane."""
    found = np.zeros(len(addresses), EVENT)
    found["address"], found["bytes"], found["thread"] = addresses, size, range(len(addresses))
    found["space"], found["touch"] = shared, touch
    return found


def one(found: Array, model: MemoryModel = MODERN, weight: float = 1.0) -> Counted:
    (only,) = count(found, np.full(len(found), weight), model)
    return only


@pytest.mark.parametrize(
    ("step", "size", "sectors", "lines"),
    [(4, 4, 4, 1), (0, 4, 1, 1), (8, 4, 8, 2), (32, 4, 32, 8), (128, 4, 32, 32), (16, 16, 16, 4), (1, 1, 1, 1),
     (64, 8, 32, 16)],
)  # fmt: skip
def test_a_request_moves_the_sectors_and_lines_that_it_touches(step: int, size: int, sectors: int, lines: int) -> None:
    found = one(events([4096 + step * lane for lane in LANES], size))
    assert (found.requests, found.lanes, found.sectors, found.lines) == (1, 32, sectors, lines)


def test_an_access_across_a_boundary_moves_both_sides() -> None:
    found = one(events([4096 + 28], 8))
    assert (found.sectors, found.lines) == (2, 1)


@pytest.mark.parametrize(
    ("step", "size", "wavefronts", "least"),
    [
        (4, 4, 1, 1), (0, 4, 1, 1), (8, 4, 2, 1), (16, 4, 4, 1), (128, 4, 32, 1), (132, 4, 1, 1), (1, 1, 1, 1),
        (2, 2, 1, 1), (8, 8, 2, 2), (16, 16, 4, 4), (128, 8, 32, 2), (32, 16, 8, 4),
    ],
)  # fmt: skip
def test_a_request_takes_a_wavefront_for_each_word_of_the_fullest_bank(
    step: int, size: int, wavefronts: int, least: int
) -> None:
    found = one(events([step * lane for lane in LANES], size, shared=True))
    assert (found.wavefronts, found.least_wavefronts) == (wavefronts, least)
    assert (found.sectors, found.lines) == (0, 0)


def test_banks_of_eight_bytes_give_two_words_32_apart() -> None:
    assert one(events([128 * lane for lane in LANES], 4, shared=True), KEPLER).wavefronts == 16
    assert one(events([8 * lane for lane in LANES], 4, shared=True), KEPLER).wavefronts == 1
    wide = one(events([8 * lane for lane in LANES], 8, shared=True), KEPLER)
    assert (wide.wavefronts, wide.least_wavefronts) == (1, 1)


@given(st.lists(st.integers(0, 255), min_size=1, max_size=32), st.sampled_from((1, 4)))
def test_no_request_takes_less_than_the_least_or_more_than_a_lane_at_a_time(words: list[int], bank_words: int) -> None:
    model = MemoryModel(bank_bytes=4 * (1 + (bank_words > 1)))
    found = one(events([4 * word for word in words], 4, shared=True), model)
    assert 1 == found.least_wavefronts <= found.wavefronts <= len(set(words))


def test_the_kth_access_of_a_lane_belongs_to_the_kth_request() -> None:
    twice = np.concatenate([events([4 * lane for lane in LANES], 4), events([4096 + 4 * lane for lane in range(5)], 4)])
    found = one(twice)
    assert (found.requests, found.lanes, found.sectors) == (2, 37, 4 + 1)


def test_reads_and_writes_are_told_apart_and_weighted() -> None:
    both = TOUCHED_BY_READ | TOUCHED_BY_WRITE
    kinds = [one(events([0], 4, touch=touch)).kind for touch in (TOUCHED_BY_READ, TOUCHED_BY_WRITE, both)]
    assert kinds == ["load", "store", "atomic"]
    found = one(events([4 * lane for lane in LANES], 4), weight=100.0)
    assert (found.requests, found.lanes, found.sectors, found.block_sectors) == (100, 3200, 400, 400)


def test_a_cache_of_a_block_keeps_what_it_has_seen() -> None:
    same = events([4 * (thread % 32) for thread in range(64)], 4)
    found = one(same)
    assert (found.requests, found.sectors, found.block_sectors) == (2, 8, 4)


@pytest.mark.parametrize("name", ["transposeSmemPad", "transposeNaiveCol", "AoS", "reduceShfl"])
def test_a_sample_of_blocks_stands_for_all(name: str, host_runner: HostRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    made = find_variant(FAMILIES, name, {})
    (kernel,) = host_runner.load([made])
    side = {"rows": 256, "cols": 256, "in_pitch": 256, "out_pitch": 256}
    sizes = side if name.startswith("transpose") else {"n": 1 << 13}
    whole = traffic(kernel, H100, sizes, MODERN)
    assert whole.traced == whole.blocks <= WHOLE
    monkeypatch.setattr("gen.proof.trace.WHOLE", 0)
    sampled = traffic(kernel, H100, sizes, MODERN)
    assert sampled.traced <= whole.traced
    for a, b in zip(whole.accesses, sampled.accesses, strict=True):
        assert (a.line, a.source, a.buffer, a.kind) == (b.line, b.source, b.buffer, b.kind)
        assert b.requests == pytest.approx(a.requests, rel=0.02)
        assert b.sectors == pytest.approx(a.sectors, rel=0.02)
        assert b.wavefronts == pytest.approx(a.wavefronts, rel=0.02)


@pytest.mark.parametrize("name", ["grid_tpb1024_u1_v4_bpm1", "grid_tpb128_u8_v8_bpm1", "shfl_tpb1024_u16"])
def test_blocks_that_go_round_many_times_are_counted_by_their_first_rounds(name: str, host_runner: HostRunner) -> None:
    made = find_variant(FAMILIES, f"reduction_sum_f32__{name}", {})
    (kernel,) = host_runner.load([made])
    n = 1 << 28
    found = traffic(kernel, H100, {"n": n}, MODERN)
    loads = [access for access in found.of("global", "load") if access.buffer == "in"]
    assert sum(access.requested_bytes for access in loads) == pytest.approx(4 * n, rel=0.01)
    assert sum(access.sectors for access in loads) == pytest.approx(n / 8, rel=0.01)
    assert found.traced < found.blocks


def test_a_grid_that_is_gone_over_diagonally_is_sampled_all_over(host_runner: HostRunner) -> None:
    # 129 tiles down: the last ones have one column, and blocks a fixed step apart would have met no others.
    made = find_variant(FAMILIES, "transpose_10_b32__naive_col_x16_y16_u4_odiagonal", {})
    (kernel,) = host_runner.load([made])
    odd = {"rows": 2047, "cols": 2049, "in_pitch": 2049, "out_pitch": 2047}
    found = traffic(kernel, H100, odd, MODERN)
    # As an H200 counts them.
    assert sum(access.sectors for access in found.of("global", "load")) == pytest.approx(2_360_063, rel=0.01)
    assert sum(access.sectors for access in found.of("global", "store")) == pytest.approx(753_664, rel=0.01)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("reduction_sum_f32__flags_tpb512_u8_v16_bpm2", (2**28,)),
        ("reduction_sum_f32_axis0__columns_x16_y32_u8_v4_bpm2_flags", (2**22, 16)),
    ],
)
def test_blocks_that_wait_for_others_find_what_they_wait_for_though_those_do_not_run(
    name: str, shape: tuple[int, ...], host_runner: HostRunner
) -> None:
    """What the last block does is counted as often as it is done."""
    made = find_variant(FAMILIES, name, {})
    (kernel,) = host_runner.load([made])
    found = traffic(kernel, H100, extents_of(made.family, made.spec, shape), MODERN)
    assert found.traced < found.blocks
    assert any(one.buffer == "slots" and one.kind == "load" for one in found.accesses)
    assert sum(one.lanes for one in found.accesses if one.buffer == "out") == prod(shape[1:])


def test_blocks_whose_neighbours_do_not_run_find_marks_of_all_exchanges(host_runner: HostRunner) -> None:
    """Words that others write change at each second exchange: here there are five."""
    spec = find_family(FAMILIES, "stencil").catalogue[0]
    made = find_variant(FAMILIES, f"stencil_{spec.label}__persistent_c4_y2_w12_t4", {})
    (kernel,) = host_runner.load([made])
    found = traffic(kernel, H100, shapes.extents_of(spec, (200, 600), 21), MODERN)
    assert found.traced < found.blocks
    written = sum(one.lanes * one.bytes for one in found.accesses if (one.buffer, one.kind) == ("out", "store"))
    assert written == pytest.approx(4 * 200 * 600, rel=0.1)


def test_accesses_are_named_by_line_and_buffer(host_runner: HostRunner) -> None:
    (kernel,) = host_runner.load([find_variant(FAMILIES, "transposeSmemPad", {})])
    found = traffic(kernel, H100, {"rows": 64, "cols": 64, "in_pitch": 64, "out_pitch": 64}, MODERN)
    named = sorted((access.buffer, access.kind) for access in found.accesses)
    assert named == [("in", "load"), ("out", "store"), ("shared", "load"), ("shared", "store")]
    assert all("tile[" in access.source for access in found.accesses)
    assert (found.efficiency("load"), found.efficiency("store"), found.conflict_degree) == (1, 1, 1)


@pytest.mark.parametrize("coefficients", ["const", "ldg", "gmem"])
def test_weights_are_told_apart_by_where_they_lie(coefficients: str, host_runner: HostRunner) -> None:
    name = {"const": "stencil_1d", "ldg": "stencil_1d_read_only", "gmem": "stencil_1d_gmem"}[coefficients]
    (kernel,) = host_runner.load([find_variant(FAMILIES, name, {})])
    found = traffic(kernel, H100, {"cols": 4096, "steps": 1}, MODERN)
    weights = [access for access in found.accesses if access.buffer == "weights" and access.kind == "load"]
    assert weights
    assert all("weights" in access.source for access in weights)
    space = "constant" if coefficients == "const" else "global"
    assert {(access.space, access.read_only) for access in weights} == {(space, coefficients == "ldg")}
    assert all("weights[" not in access.source for access in found.accesses if access.buffer == "in")
    if coefficients == "const":  # all lanes ask for the same: one turn each, and no sector
        assert all(access.wavefronts == access.least_wavefronts == access.requests for access in weights)
        assert sum(access.sectors for access in weights) == 0
        assert (found.efficiency("load") or 2) <= 1


def test_constant_memory_takes_a_turn_for_every_different_address() -> None:
    same, apart = events([64] * 32, 4), events([4 * (lane // 8) for lane in LANES], 4)
    for found, turns in ((same, 1), (apart, 4)):
        found["space"] = CONSTANT
        told = one(found, weight=2.0)
        assert (told.space, told.wavefronts, told.least_wavefronts) == ("constant", 2 * turns, 2)
        assert (told.sectors, told.lines, told.block_sectors) == (0, 0, 0)


RAGGED = {"rows": 200, "cols": 301, "in_pitch": 301}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("stencil_heat_de794a2b_f32__naive_x32_y8_u1", {**RAGGED, "out_pitch": 301, "steps": 1}),
        ("transposeSmemPad", {**RAGGED, "rows": 301, "out_pitch": 301}),
        ("reduction_sum_f32__grid_tpb256_u4_v16_bpm2_ldcs", {"n": (1 << 20) + 777}),
    ],
)
def test_blocks_at_the_edges_weigh_what_they_weigh(
    name: str, sizes: dict[str, int], host_runner: HostRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel,) = host_runner.load([find_variant(FAMILIES, name, {})])
    monkeypatch.setattr("gen.proof.trace.EVENTS", 1 << 24)
    whole = traffic(kernel, H100, sizes, MODERN)
    assert whole.traced == whole.blocks
    monkeypatch.undo()
    monkeypatch.setattr("gen.proof.trace.WHOLE", 0)
    monkeypatch.setattr("gen.proof.trace.SAMPLES", (24, 8, 3, 2))
    found = traffic(kernel, H100, sizes, MODERN)
    assert found.traced < whole.traced
    assert found.moved_bytes() == pytest.approx(whole.moved_bytes(), rel=0.02)
    assert found.efficiency("load") == pytest.approx(whole.efficiency("load"), abs=0.01)
    assert found.active_lanes == pytest.approx(whole.active_lanes, rel=0.01)


def test_one_block_does_not_stand_for_all_of_a_scheme_with_edges(host_runner: HostRunner) -> None:
    # A block of 128 columns and 64 rows loads 72 rows of them, and 8 cells beside each row; less at the edges.
    (kernel,) = host_runner.load([find_variant(FAMILIES, "kernel_2dfd", {})])
    found = traffic(kernel, H100, {"rows": 8192, "cols": 8192, "in_pitch": 8192, "out_pitch": 8192, "steps": 1}, MODERN)
    lanes = sum(access.lanes for access in found.of("global", "load"))
    assert lanes / 8192**2 == pytest.approx((72 * 128 + 64 * 8) / (64 * 128) - 2 * 4 / 8192 - 2 * 4 / 8192, rel=1e-3)
    assert found.efficiency("store") == 1


def test_what_runs_whole_is_exact_though_only_some_of_it_is_noted(host_runner: HostRunner) -> None:
    n = 1 << 22
    made = find_variant(FAMILIES, "reduction_sum_f32__grid_tpb256_u4_v16_bpm2_ldcs", {})
    (kernel,) = host_runner.load([made])
    found = traffic(kernel, H100, {"n": n}, MODERN)
    (loads,) = [access for access in found.of("global", "load") if access.buffer == "in"]
    assert (loads.requested_bytes, loads.sectors, loads.requests) == pytest.approx((4 * n, n / 8, n / 128))
    assert found.moved_bytes() >= 4 * n  # what must be read at least
    # What only the last block does is there too.
    assert "partials" in {access.buffer for access in found.of("global", "load")}


def test_threads_that_do_more_than_is_looked_at_are_no_fault(
    host_runner: HostRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "STEPS_PER_THREAD", 1000)
    made = find_variant(FAMILIES, "reduction_sum_f32__grid_tpb128_u1_v4_bpm1", {})
    (kernel,) = host_runner.load([made])
    with pytest.raises(RunError) as caught:
        traffic(kernel, H100, extents_of(made.family, made.spec, (2**26,)), MODERN)
    assert str(caught.value).endswith("which is more than is looked at. Give smaller sizes")
