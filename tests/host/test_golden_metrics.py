"""The traffic of kernels is what profilers published for them, in the literature.

Fermi (M2070, M2090): loads move lines of 128 bytes through the first-level cache, stores sectors of 32. Kepler (K40):
banks of 8 bytes. Kernels that gen's families write are looked at as they are, others as the literature has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gen.dtypes import F32, I32
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Extents, Launch, Layout, Limits, Operand, Plan, Variant
from gen.families.expr import ONE, Expr, constant, size
from gen.families.layout import layouts_of
from gen.families.names import find_variant
from gen.proof.host import HostKernel, HostRunner
from gen.proof.trace import traffic
from gen.proof.traffic import MemoryModel, Traffic
from tests.fake_family import FakeFamily, FakeSpec, fake_variant

LIMITS = Limits.of("sm_90")
N = size("n")
POINTS = 0.002  # percentage points, as a share
MILLIONS = 1 << 24  # elements of the literature's reductions
MATRIX = {"rows": 2048, "cols": 2048, "in_pitch": 2048, "out_pitch": 2048}


class Kernels(FakeFamily):
    """Kernels of this file: their arrays are all that their operands say."""

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        return layouts_of(spec.operands, extents)


@dataclass(frozen=True)
class Book:
    """A kernel as the literature has it, of the parameters (const float* in, float* out, int n)."""

    name: str
    body: str
    grid: Expr
    block: tuple[int, int, int]
    shared_bytes: int = 0

    @property
    def variant(self) -> Variant:
        operands = (Operand("in", "in", F32, ("n",)), Operand("out", "out", F32, ("n",)))
        launch = Launch(
            (self.grid, ONE, ONE), self.block, ("in", "out", (I32, N)), shared_bytes=constant(self.shared_bytes)
        )
        made = fake_variant(self.name, operands, Plan((launch,)))
        return Variant(Kernels(), made.spec, made.algorithm, made.config)

    @property
    def text(self) -> str:
        name = self.variant.name
        return f'extern "C" __global__ void {name}(const float* in, float* out, int n) {{\n{self.body}\n}}\n'


# One row of threads a row of the matrix, 16 x 16 threads a block.
COPY_ROW = """
const int x = blockIdx.x % 128 * 16 + threadIdx.x, y = blockIdx.x / 128 * 16 + threadIdx.y;
out[y * 2048 + x] = in[y * 2048 + x];
"""
COPY_COL = """
const int x = blockIdx.x % 128 * 16 + threadIdx.x, y = blockIdx.x / 128 * 16 + threadIdx.y;
out[x * 2048 + y] = in[x * 2048 + y];
"""


def unroll_pad_dyn(width: int, height: int, padding: int = 2) -> Book:
    """transposeSmemUnrollPadDyn: two tiles side by side, of as many elements as a block has threads."""
    across = 2048 // (2 * width)
    body = f"""
extern __shared__ __align__(16) unsigned char shared_bytes[];
float* tile = (float*)shared_bytes;
constexpr int kWidth = {width}, kHeight = {height}, kPitch = 2 * kWidth + {padding};
const int col = blockIdx.x % {across} * 2 * kWidth, row = blockIdx.x / {across} * kHeight;
const float* from = in + (row + threadIdx.y) * 2048 + col + threadIdx.x;
tile[threadIdx.y * kPitch + threadIdx.x] = from[0];
tile[threadIdx.y * kPitch + threadIdx.x + kWidth] = from[kWidth];
__syncthreads();
const int index = threadIdx.y * kWidth + threadIdx.x, down = index % kHeight, right = index / kHeight;
float* to = out + (col + right) * 2048 + row + down;
to[0] = tile[down * kPitch + right];
to[2048 * kWidth] = tile[down * kPitch + right + kWidth];
"""
    shared = 4 * height * (2 * width + padding)
    return Book(f"unrollPadDyn{width}x{height}", body, N // (2 * width * height), (width, height, 1), shared)


BOOK = {
    made.name: made
    for made in (
        Book("copyRow", COPY_ROW, N // 256, (16, 16, 1)),
        Book("copyCol", COPY_COL, N // 256, (16, 16, 1)),
        *(unroll_pad_dyn(width, height) for width, height in ((32, 32), (32, 16), (16, 16))),
    )
}


TREE = "reduction_sum_f32__tree_tpb512_u1_{}_gmem_loop"
INTERLEAVED = "reduction_sum_f32__interleaved_tpb512_u"
NAIVE = "transpose_10_b32__naive_{}_x16_y16_u1"
SUM = {"n": MILLIONS}
GLOBAL: list[tuple[str, str, Extents | None, float, float]] = [
    (TREE.format("neighbored"), "fermi", SUM, 0.1674, 0.2500),
    (TREE.format("neighboredless"), "fermi", SUM, 0.1674, 0.2500),
    (INTERLEAVED + "1", "fermi", SUM, 0.7797, 0.9552),
    (INTERLEAVED + "8", "fermi", SUM, 0.9466, 0.9771),
    ("copyRow", "fermi", None, 0.50, 1.00),
    ("copyCol", "fermi", None, 0.0625, 0.25),
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
    ("unrollPadDyn32x32", "kepler", 1, 2),
    ("unrollPadDyn32x16", "kepler", 1, 1),
    ("unrollPadDyn16x16", "kepler", 1.625, 1),
]


@pytest.fixture(scope="module")
def kernels(cache: Path) -> Mapping[str, HostKernel]:
    """All kernels of this file, built together."""
    texts = {made.variant.name: made.text for made in BOOK.values()}
    runner = HostRunner(LIMITS, cache=cache, text=lambda made: texts[made.name] if made.name in texts else render(made))
    names = list(
        dict.fromkeys([*(row[0] for row in GLOBAL), *(row[0] for row in TRANSACTIONS), *(row[0] for row in SHARED)])
    )
    made = [BOOK[name].variant if name in BOOK else find_variant(FAMILIES, name, {}) for name in names]
    return dict(zip(names, runner.load(made), strict=True))


def look(kernel: HostKernel, arch: str, extents: Extents | None = None) -> Traffic:
    """What a kernel moves: by default at the size of the literature's matrices, or at that which stands for all."""
    made = kernel.variant
    book = isinstance(made.family, Kernels)
    sizes = extents or ({"n": 2048 * 2048} if book else made.family.representative(made.spec, "any size"))
    found = traffic(kernel, LIMITS, sizes, MemoryModel.of(arch))
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
    found = look(kernels[name], arch, MATRIX if name.startswith("transpose") else None)
    assert transactions(found, "store") == stores
    assert transactions(found, "load") == loads
