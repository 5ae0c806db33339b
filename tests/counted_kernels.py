"""Kernels of which the hardware's counters are compared with what the CPU run predicts, each with its sizes."""

from __future__ import annotations

from gen.families.base import Extents

SQUARE = {"rows": 2048, "cols": 2048, "in_pitch": 2048, "out_pitch": 2048}
ODD = {"rows": 2047, "cols": 2049, "in_pitch": 2049, "out_pitch": 2047}
SUM = {"n": 1 << 22}
RECORDED: list[tuple[str, Extents]] = [  # in counters-nvidia-h200.csv
    ("transposeSmem", SQUARE),
    ("transposeSmemPad", SQUARE),
    ("transposeSmemUnrollPadDyn32x16", SQUARE),
    ("transposeNaiveRow", SQUARE),
    ("transposeDiagonalColUnroll4", ODD),
    ("transpose_10_b32__vector_tile_v16_x16_g16_swz_ocol_ldg", SQUARE),
    ("copySharedMemNrepsKernel", {**SQUARE, "nreps": 3}),
    ("copyCol", {**SQUARE, "nreps": 2}),
    ("reduceNeighbored", SUM),
    ("reduceSmem", SUM),
    ("reduceShfl", SUM),
    ("readOffset11", {"n": 1 << 20}),
    ("AoS", {"n": 1 << 20}),
    ("setColReadRow", {"tiles": 1024}),
    ("setRowReadColPad32x16", {"tiles": 1024}),
]
COUNTED: list[tuple[str, Extents]] = [
    *RECORDED,
    ("reduction_sum_f32__grid_tpb256_u4_v16_bpm2", SUM),
    ("stencil_1d", {"cols": 1 << 20, "steps": 1}),
    ("stencil_1d_read_only", {"cols": 1 << 20, "steps": 1}),
    ("stencil_1d_gmem", {"cols": 1 << 20, "steps": 1}),
    ("kernel_2dfd", {**SQUARE, "steps": 1}),
]
