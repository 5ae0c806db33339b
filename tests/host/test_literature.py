"""Every kernel that the literature names is there, under that name."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.extents import told_extents
from gen.families.names import find_named, find_variant, named_variant
from gen.report.explain import extents_for

# Professional CUDA C Programming, chapters 3 to 5, and Optimizing Matrix Transpose in CUDA.
NAMES = {
    "reduction": """
        reduceNeighbored reduceNeighboredLess reduceInterleaved reduceUnrolling2 reduceUnrolling4 reduceUnrolling8
        reduceUnrolling16 reduceUnrollWarps8 reduceCompleteUnrollWarps8 reduceCompleteUnroll gpuRecursiveReduce
        gpuRecursiveReduceNosync gpuRecursiveReduce2 reduceGmem reduceSmem reduceSmemUnroll reduceSmemUnrollDyn
        reduceShfl
    """,
    "transpose": """
        copyRow copyCol copy copySharedMem transposeNaiveRow transposeNaiveCol transposeUnroll4Row transposeUnroll4Col
        transposeUnroll8Row transposeUnroll8Col transposeDiagonalRow transposeDiagonalCol transposeDiagonalRowUnroll4
        transposeDiagonalColUnroll4 naiveGmem copyGmem transposeSmem transposeSmemPad transposeSmemUnrollPad
        transposeSmemUnrollPadDyn transposeFineGrained transposeCoarseGrained transposeDiagonal cartesian swapped
        diagonal-square diagonal-general output_pitch_padding transposeSmem32x16 transposeSmemPad32x16
        transposeSmemUnrollPad32x16 transposeSmemUnrollPadDyn32x16 transposeSmemUnrollPadDyn16x16 copyNrepsLaunches
        copyNrepsKernel copySharedMemNrepsLaunches copySharedMemNrepsKernel transposeSmemNrepsLaunches
        transposeSmemNrepsKernel transposeSmemPadNrepsLaunches transposeSmemPadNrepsKernel
    """,
    "stencil": "stencil_1d stencil_1d_read_only stencil_1d_gmem kernel_2dfd",
    "probe": """
        readOffset readOffset11 readOffset128 readOffsetUnroll4 readOffset11Unroll4 readOffset128Unroll4 writeOffset
        writeOffset11 writeOffset128 writeOffsetUnroll4 writeOffset11Unroll4 writeOffset128Unroll4 AoS SoA
        setRowReadRow setColReadCol setColReadRow setRowReadCol setRowReadColDyn setRowReadColPad setRowReadColDynPad
        setRowReadRow32x16 setColReadCol32x16 setColReadRow32x16 setRowReadCol32x16 setRowReadColDyn32x16
        setRowReadColPad32x16 setRowReadColDynPad32x16
    """,
}


@pytest.mark.parametrize("family", NAMES)
def test_every_kernel_of_the_literature_is_listed(family: str) -> None:
    listed = CliRunner(env={"COLUMNS": "240"}).invoke(app, ["list", family]).stdout.split()
    assert [name for name in NAMES[family].split() if name not in listed] == []


def test_a_name_means_one_kernel() -> None:
    found = [(family.name, one.name, one.rank) for family in FAMILIES for one in family.named]
    assert len({name for _, name, _ in found}) == len(found)
    assert len({(family, rank) for family, _, rank in found}) == len(found)


def test_every_kernel_takes_what_it_is_shown_at() -> None:
    limits = Limits.of("sm_90")
    for family in FAMILIES:
        for one in family.named:
            made = named_variant(family, one)
            extents = extents_for(made, limits, None, one.more)
            assert made.algorithm.unsupported_extents(made.spec, made.config, extents, limits) is None
            anew = family.extents(made.spec, family.layouts(made.spec, extents))
            assert told_extents(anew).items() <= {**extents}.items() | {
                (name, default) for name, default in family.runtime_parameters(made.spec).items()
            }


def test_a_kernel_may_add_to_the_problem_that_it_is_shown_at() -> None:
    limits = Limits.of("sm_90")

    def shown(name: str) -> dict[str, int]:
        named = find_named(FAMILIES, name)
        assert named is not None
        return told_extents(extents_for(find_variant(FAMILIES, name, {}), limits, "64x96", named.more))

    assert shown("output_pitch_padding") == {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 64 + 64}
    plain = {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 96, "nreps": 1}
    assert shown("copy") == plain
    assert shown("copyNrepsKernel") == shown("copyNrepsLaunches") == plain | {"nreps": 10}
    assert find_named(FAMILIES, "copyNothing") is None
