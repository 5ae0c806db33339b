"""The traffic of kernels is what profilers published for them, in the literature.

Fermi (M2070, M2090): loads move lines of 128 bytes through the first-level cache, stores sectors of 32. Kepler (K40):
banks of 8 bytes. All are kernels that gen writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gen.arch import LITERATURE, MODERN
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Extents, Limits
from gen.families.names import find_variant
from gen.proof.host import HostKernel, HostRunner
from gen.proof.trace import traffic
from gen.proof.traffic import Traffic

LIMITS = Limits.of("sm_90")
POINTS = 0.002  # percentage points, as a share
MILLIONS = 1 << 24  # elements of the literature's reductions
MATRIX = {"rows": 2048, "cols": 2048, "in_pitch": 2048, "out_pitch": 2048, "nreps": 1}

TREE = "reduction_sum_f32__tree_tpb512_u1_{}_gmem_loop"
INTERLEAVED = "reduction_sum_f32__interleaved_tpb512_u"
NAIVE = "transpose_10_b32__naive_{}_x16_y16_u1"
SUM = {"n": MILLIONS}
GLOBAL: list[tuple[str, str, Extents | None, float, float]] = [
    (TREE.format("neighbored"), "fermi", SUM, 0.1674, 0.2500),
    (TREE.format("neighboredless"), "fermi", SUM, 0.1674, 0.2500),
    (INTERLEAVED + "1", "fermi", SUM, 0.7797, 0.9552),
    (INTERLEAVED + "8", "fermi", SUM, 0.9466, 0.9771),
    ("copyRow", "fermi", MATRIX, 0.50, 1.00),
    ("copyCol", "fermi", MATRIX, 0.0625, 0.25),
    (NAIVE.format("row"), "fermi", MATRIX, 0.50, 0.25),
    (NAIVE.format("col"), "fermi", MATRIX, 0.0625, 1.00),
    ("readOffset", "fermi", None, 1.0, 1.0),
    ("readOffset11", "fermi", None, 0.50, 1.0),
    ("readOffset11", "fermi-uncached", None, 0.80, 1.0),
    ("readOffset128", "fermi", None, 1.0, 1.0),
    ("readOffset11Unroll4", "fermi", None, 0.50, 1.0),
    ("writeOffset", "fermi", None, 1.0, 1.0),
    ("writeOffset11", "fermi", None, 1.0, 0.80),
    ("writeOffset128", "fermi", None, 1.0, 1.0),
    ("AoS", "fermi", None, 0.50, 0.50),
    ("SoA", "fermi", None, 1.0, 1.0),
]
TRANSACTIONS: list[tuple[str, int, int]] = [
    ("reduceGmem", 2_883_584, 1_179_648),
    ("reduceSmem", 524_288, 131_072),
    ("reduceSmemUnroll", 524_288, 32_768),
]
WIDE = "transpose_10_b32__tiled_t32_r16_p2_u2_dyn"
SHARED: list[tuple[str, str, float, float]] = [
    ("setRowReadRow", "kepler", 1, 1),
    ("setColReadCol", "kepler", 16, 16),
    ("setColReadRow", "kepler", 16, 1),
    ("setRowReadCol", "kepler", 1, 16),
    ("setRowReadColDyn", "kepler", 1, 16),
    ("setRowReadColPad", "kepler", 1, 1),
    ("setRowReadColDynPad", "kepler", 1, 1),
    ("setRowReadCol32x16", "kepler", 1, 8),
    ("probe_set_row_read_col_16x32_b32__tile_tpb512_p1", "kepler", 1, 2),
    ("setRowReadColPad32x16", "kepler", 1, 1),
    # Banks of 4 bytes, as all GPUs since 2014 have.
    ("setRowReadCol", "sm_90", 1, 32),
    ("setRowReadColPad", "sm_90", 1, 1),
    ("setRowReadCol32x16", "sm_90", 1, 16),
    ("probe_set_row_read_col_16x32_b32__tile_tpb512_p1", "sm_90", 1, 2),
    ("setRowReadColPad32x16", "sm_90", 1, 1),
    ("transposeSmem", "sm_90", 1, 32),
    ("transposeSmemPad", "sm_90", 1, 1),
    (WIDE, "kepler", 1, 2),
    ("transposeSmemUnrollPadDyn32x16", "kepler", 1, 1),
    ("transposeSmemUnrollPadDyn16x16", "kepler", 1.625, 1),
]


@pytest.fixture(scope="module")
def kernels(cache: Path) -> Mapping[str, HostKernel]:
    """All kernels of this file, built together."""
    runner = HostRunner(LIMITS, cache=cache, text=render)
    names = list(
        dict.fromkeys([*(row[0] for row in GLOBAL), *(row[0] for row in TRANSACTIONS), *(row[0] for row in SHARED)])
    )
    made = [find_variant(FAMILIES, name, {}) for name in names]
    return dict(zip(names, runner.load(made), strict=True))


def look(kernel: HostKernel, arch: str, extents: Extents | None = None) -> Traffic:
    """What a kernel moves: by default at the size of the literature's matrices, or at that which stands for all."""
    made = kernel.variant
    sizes = extents or made.family.representative(made.spec, "any size")
    found = traffic(kernel, LIMITS, sizes, LITERATURE.get(arch, MODERN))
    # Published is what the kernel itself does; the sum of the blocks' sums is a launch of its own here.
    return replace(found, accesses=tuple(access for access in found.accesses if access.kernel == made.name))


@pytest.mark.parametrize(("name", "arch", "extents", "load", "store"), GLOBAL)
def test_global_efficiency(
    name: str, arch: str, extents: Extents | None, load: float, store: float, kernels: Mapping[str, HostKernel]
) -> None:
    found = look(kernels[name], arch, extents)
    assert found.efficiency("load") == pytest.approx(load, abs=POINTS)
    assert found.efficiency("store") == pytest.approx(store, abs=POINTS)


@pytest.mark.parametrize(("name", "loads", "stores"), TRANSACTIONS)
def test_global_transactions_of_16_million_elements(
    name: str, loads: int, stores: int, kernels: Mapping[str, HostKernel]
) -> None:
    found = look(kernels[name], "kepler", SUM)
    assert sum(access.lines for access in found.of("global", "load")) == pytest.approx(loads, rel=1e-4)
    assert sum(access.lines for access in found.of("global", "store")) == pytest.approx(stores, rel=1e-4)
    assert found.traced < found.blocks


def transactions(found: Traffic, kind: str) -> float:
    """Wavefronts of shared memory a request."""
    same = [access for access in found.of("shared") if access.kind == kind]
    return sum(access.wavefronts for access in same) / sum(access.requests for access in same)


@pytest.mark.parametrize(("name", "arch", "stores", "loads"), SHARED)
def test_shared_transactions_a_request(
    name: str, arch: str, stores: float, loads: float, kernels: Mapping[str, HostKernel]
) -> None:
    transposes = kernels[name].variant.family.name == "transpose"
    found = look(kernels[name], arch, MATRIX if transposes else None)
    assert transactions(found, "store") == stores
    assert transactions(found, "load") == loads
