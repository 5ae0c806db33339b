"""Templates broken on purpose: for each fault the run on the CPU must say what is wrong, and where."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Family, Variant
from gen.families.names import find_family, find_variant, variant
from gen.paths import templates_root
from gen.proof.cases import Case, Content
from gen.proof.host import HostRunner
from gen.proof.prover import prove

BLOCK = "_block.cu.jinja"
GRID = "reduction/grid.cu.jinja"
INTERLEAVED = "reduction/interleaved.cu.jinja"
SHFL = "reduction/shfl.cu.jinja"
TILED = "transpose/tiled.cu.jinja"
TURNED = "transpose/naive.cu.jinja"
STENCIL = "stencil/naive.cu.jinja"

ON_GRID = "reduction_sum_f32__grid_tpb128_u4_v16_bpm2"
ON_PAIRS = "reduction_sum_f32__grid_tpb128_u4_v8_bpm2"  # only an empty array ends before its first vector
ON_INTERLEAVED = "reduction_sum_f32__interleaved_tpb128_u4"
ON_SHFL = "reduction_sum_f32__shfl_tpb128_u2"
ON_TILED = "transpose_10_b32__tiled_t32_r8_p1_u2"
ON_TURNED = "transpose_10_b32__naive_row_x32_y8_u4"
ON_STENCIL = "{heat}__naive_x32_y8_u2"


@dataclass(frozen=True)
class Fault:
    """One change to a template.

    Attributes:
        name: what is broken.
        variant: the kernel that is run.
        file: the template or partial.
        old: text that stands there, once.
        new: what stands there instead.
        says: what the report must say.
        cases: the sizes it is run on; none: those of the family.
    """

    name: str
    variant: str
    file: str
    old: str
    new: str
    says: str
    cases: tuple[Case, ...] = ()


WRONG = "must be"  # the result is not NumPy's
SOME = (Case({"n": 1000}, Content.INTEGERS),)
FULL_TILES = (Case({"rows": 64, "cols": 64, "in_pitch": 64, "out_pitch": 64}),)

FAULTS = (
    # barriers
    Fault("barrier of the block's sum", ON_GRID, BLOCK, "  __syncthreads();\n", "", "data race"),
    Fault("barrier after filling the tile", ON_TILED, TILED, "  __syncthreads();\n", "", "uninitialised", FULL_TILES),
    Fault(
        "barrier in divergent code",
        ON_INTERLEAVED,
        INTERLEAVED,
        "data[i] += data[i + stride];\n    __syncthreads();",
        "{ data[i] += data[i + stride]; __syncthreads(); }",
        "barrier",
        SOME,
    ),
    Fault(
        "barrier between the steps",
        ON_INTERLEAVED,
        INTERLEAVED,
        "data[i + stride];\n    __syncthreads();\n",
        "data[i + stride];\n",
        "data race",
    ),
    Fault(
        "return before a barrier",
        ON_SHFL,
        SHFL,
        "if (i < n) sum += in[i];",
        "if (i >= n) return;\n    sum += in[i];",
        "did not come",
        SOME,
    ),
    Fault("mask of a shuffle", ON_SHFL, BLOCK, "0xffffffffu", "0x0000ffffu", "mask"),
    # order between blocks
    Fault(
        "fence before the ticket",
        ON_GRID,
        GRID,
        "    __threadfence();  // the partial result is there before the ticket says so\n",
        "",
        "data race",
    ),
    Fault(
        "fence of the block before the ticket",
        ON_GRID,
        GRID,
        "__threadfence();  // the partial result",
        "__threadfence_block();  // the partial result",
        "data race",
    ),
    Fault("fence after the ticket", ON_GRID, GRID, "  __threadfence();\n  float total", "  float total", "data race"),
    Fault(
        "ticket without an atomic",
        ON_GRID,
        GRID,
        "is_last_block = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;",
        "is_last_block = *ticket == gridDim.x - 1;\n    *ticket = is_last_block ? 0 : *ticket + 1;",
        "data race",
    ),
    Fault("partials through the read-only path", ON_GRID, GRID, "__ldcg(partials", "__ldg(partials", "read-only path"),
    Fault(
        "partials declared const __restrict__",
        ON_GRID,
        GRID,
        "float* __restrict__ out, float* partials, unsigned* ticket,\n        long long n) {",
        "float* __restrict__ out, const float* __restrict__ partials, unsigned* ticket,\n        long long n) {\n"
        "#define partials const_cast<float*>(partials)",
        "read-only path",
    ),
    # tails and heads
    Fault("tail of the vectors", ON_GRID, GRID, "  if (first < tail) sum[0] += in[n - tail + first];\n", "", WRONG),
    Fault("head of the vectors", ON_GRID, GRID, "  if (first < head) sum[0] += in[first];\n", "", WRONG),
    Fault("alignment of the vectors", ON_GRID, GRID, "(in + head)", "(in)", "misaligned"),
    Fault("head of an array that ends before", ON_PAIRS, GRID, "n < to_first ? n : to_first", "to_first", "out-of-b"),
    Fault(
        "vectors that do not fill an unrolled step", ON_GRID, GRID, "i += stride) add", "i += 2 * stride) add", WRONG
    ),
    Fault(
        "unroll drops the tail",
        ON_INTERLEAVED,
        INTERLEAVED,
        "i + u * kThreadsPerBlock < left",
        "kUnroll * kThreadsPerBlock <= left",
        WRONG,
    ),
    Fault("the last block's share", ON_GRID, GRID, "block < gridDim.x", "block + 1 < gridDim.x", WRONG),
    Fault(
        "reset of the ticket",
        ON_GRID,
        GRID,
        "atomicInc(ticket, gridDim.x - 1)",
        "atomicAdd(ticket, 1)",
        "a second run gives other bits",
    ),
    # guards
    Fault("guard of the unrolled loop", ON_GRID, GRID, "i + (kUnroll - 1) * stride < v", "i < v", "out-of-bounds read"),
    Fault(
        "guard of the last vectors",
        ON_GRID,
        GRID,
        "; i < vectors; i += stride",
        "; i <= vectors; i += stride",
        "out-of-bounds read",
    ),
    Fault(
        "guard of the tree",
        ON_INTERLEAVED,
        INTERLEAVED,
        "i < stride && i + stride < left",
        "i < stride",
        "out-of-bounds",
    ),
    Fault(
        "off-by-one guard",
        ON_INTERLEAVED,
        INTERLEAVED,
        "i + u * kThreadsPerBlock < left",
        "i + u * kThreadsPerBlock <= left",
        "out-of-bounds",
    ),
    Fault("guard of a thread's element", ON_SHFL, SHFL, "if (i < n) sum", "sum", "out-of-bounds read"),
    Fault(
        "guard of the tile's loads",
        ON_TILED,
        TILED,
        "if (row < rows && col < cols) {\n        tile",
        "{\n        tile",
        "out-of-bounds read",
    ),
    Fault(
        "guard of the tile's stores",
        ON_TILED,
        TILED,
        "if (row < rows && col < cols) {\n        {{",
        "{\n        {{",
        "uninitialised",
    ),
    Fault(
        "row of the tile too short", ON_TILED, TILED, "[kTileCols + kPadding]", "[kTileCols - 1]", "outside", FULL_TILES
    ),
    Fault(
        "extents exchanged in a guard",
        ON_TURNED,
        TURNED,
        "{{ lane }} < {{ lane }}s)",
        "{{ lane }} < {{ other }}s)",
        WRONG,
    ),
    Fault("rows past the end", ON_TURNED, TURNED, "  if ({{ other }} >= {{ other }}s) return;\n", "", "out-of-bounds"),
    Fault(
        "a transpose that copies", ON_TURNED, TURNED, "out[col * out_pitch + row]", "out[row * in_pitch + col]", WRONG
    ),
    Fault(
        "pitch of the output",
        ON_TURNED,
        TURNED,
        "out[col * out_pitch",
        "out[col * rows",
        "bytes between the rows of out",
    ),
    Fault("halo", ON_STENCIL, STENCIL, "inside ? {{", "true ? {{", "out-of-bounds read"),
    Fault("last rows", ON_STENCIL, STENCIL, "    if (row >= rows) return;\n", "", "out-of-bounds write"),
    Fault("last columns", ON_STENCIL, STENCIL, "  if (col >= cols) return;\n", "", "out-of-bounds write"),
    Fault("a row's neighbours wrap", ON_STENCIL, STENCIL, "0 <= col && col < cols", "true", "out-of-bounds read"),
)


def broken(fault: Fault, folder: Path) -> Variant:
    """The fault's variant, of a family whose templates have the fault."""
    heat = f"stencil_{find_family(FAMILIES, 'stencil').catalogue[0].label}"
    whole = find_variant(FAMILIES, fault.variant.format(heat=heat), {})
    shutil.copytree(Path(str(templates_root())), folder)
    path = folder / fault.file
    text = path.read_text()
    assert text.count(fault.old) == 1, (
        f"{fault.name}: {fault.old!r} stands {text.count(fault.old)} times in {fault.file}"
    )
    path.write_text(text.replace(fault.old, fault.new))
    family: Family[Any] = copy.copy(whole.family)
    family.templates = folder
    return variant(family, whole.spec, whole.algorithm, whole.config)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_fault_is_reported(fault: Fault, tmp_path: Path, host_runner: HostRunner) -> None:
    made = broken(fault, tmp_path / "templates")
    assert render(made) != render(find_variant(FAMILIES, made.name, {}))
    (proof,) = prove(host_runner, [made], fault.cases or None)
    assert proof.failure is not None, f"{fault.name}: nothing was reported"
    assert fault.says in proof.failure.reason


@pytest.mark.parametrize("name", sorted({fault.variant for fault in FAULTS}))
def test_same_kernel_without_the_fault_is_proven(name: str, host_runner: HostRunner) -> None:
    heat = f"stencil_{find_family(FAMILIES, 'stencil').catalogue[0].label}"
    made = find_variant(FAMILIES, name.format(heat=heat), {})
    (proof,) = prove(host_runner, [made])
    assert proof.failure is None, str(proof.failure)
    assert proof.cases > 10
