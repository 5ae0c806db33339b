"""The literature's transposes, and its copies and diagnostics, in the order of a ladder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gen.families.base import Named
from gen.families.transpose.moves import COARSE, COPY, FINE, NREPS, TURN

_TILE = 32  # rows and columns of the diagnostics' tiles
_PARTITION = 64  # floats, which take 256 bytes: what lies in one partition of memory
_REPETITIONS = 9  # more than one, in a loop


def literature() -> Iterator[Named]:
    """Every kernel: copies as bounds, straight transposes, tiles, the orders of blocks, repetitions in the kernel."""
    rows = (*_straight(), *_tiles(), *_orders(), *_repeated())
    for rank, (name, algorithm, config, spec, more) in enumerate(rows):
        over, published = _STEPS.get(name, ("", None))
        yield Named(name, algorithm, config, spec, rank, more, over, published)


# Beside which kernel the literature shows what each gains, where that is not the one before, and how much: by the GB/s
# that it prints, of an M2090 in chapter 4, of a K40 in chapter 5.
_STEPS: Mapping[str, tuple[str | None, float | None]] = {
    "copyCol": ("copyRow", 58.76 / 125.67),
    "transposeNaiveRow": ("copyRow", 64.16 / 125.67),
    "transposeNaiveCol": ("transposeNaiveRow", 81.64 / 64.16),
    "transposeUnroll4Row": ("transposeNaiveRow", 44.15 / 64.16),
    "transposeUnroll4Col": ("transposeNaiveCol", 90.20 / 81.64),
    "transposeUnroll8Row": ("transposeUnroll4Row", None),
    "transposeUnroll8Col": ("transposeUnroll4Col", None),
    "transposeDiagonalRow": ("transposeNaiveRow", 73.42 / 64.16),
    "transposeDiagonalCol": ("transposeNaiveCol", 75.92 / 81.64),
    "transposeDiagonalRowUnroll4": ("transposeDiagonalRow", None),
    "transposeDiagonalColUnroll4": ("transposeDiagonalCol", None),
    "copyGmem": (None, None),
    "naiveGmem": ("copyGmem", 68.98 / 177.15),
    "copy": ("copyGmem", None),
    "transposeSmem": ("naiveGmem", 116.82 / 68.98),
    "transposeSmemPad": ("transposeSmem", 121.83 / 116.82),
    "transposeSmemUnrollPad": ("transposeSmemPad", 183.34 / 121.83),
    "transposeSmemUnrollPadDyn": ("transposeSmemUnrollPad", 183.33 / 183.34),
    "transposeSmem32x16": ("transposeSmem", None),
    "transposeSmemUnrollPadDyn16x16": ("transposeSmemUnrollPadDyn", 185.99 / 183.33),
    "transposeFineGrained": ("copySharedMem", None),
    "transposeCoarseGrained": ("transposeSmemPad", None),
    "transposeDiagonal": ("transposeSmemPad", None),
    "cartesian": ("transposeSmemPad", None),
    "swapped": ("cartesian", None),
    "diagonal-square": ("cartesian", None),
    "diagonal-general": ("cartesian", None),
    "output_pitch_padding": ("transposeSmemPad", None),
    "copyNrepsLaunches": ("copy", None),
    "copySharedMemNrepsLaunches": ("copySharedMem", None),
    "transposeSmemNrepsLaunches": ("transposeSmem", None),
    "transposeSmemPadNrepsLaunches": ("transposeSmemPad", None),
}


_Row = tuple[str, str, Mapping[str, object], Mapping[str, object], Mapping[str, int]]
_COPY: Mapping[str, object] = {"op": COPY}


def _straight() -> Iterator[_Row]:
    for end, order in (("Row", "row"), ("Col", "col")):
        yield f"copy{end}", "naive", {"order": order, "block_x": 16, "block_y": 16, "unroll": 1}, _COPY, {}
    for end, order in (("Row", "row"), ("Col", "col")):
        yield f"transposeNaive{end}", "naive", {"order": order, "unroll": 1}, {}, {}
    for unroll in (4, 8):
        for end, order in (("Row", "row"), ("Col", "col")):
            yield f"transposeUnroll{unroll}{end}", "naive", {"order": order, "unroll": unroll}, {}, {}
    diagonal = {"block_order": "diagonal", "block_x": 16, "block_y": 16}
    for unroll in (1, 4):
        for end, order in (("Row", "row"), ("Col", "col")):
            name = f"transposeDiagonal{end}" + ("Unroll4" if unroll > 1 else "")
            yield name, "naive", {**diagonal, "order": order, "unroll": unroll}, {}, {}
    wide = {"order": "row", "block_x": 32, "block_y": 16, "unroll": 1}
    yield "copyGmem", "naive", wide, _COPY, {}
    yield "naiveGmem", "naive", wide, {}, {}


def _tiles() -> Iterator[_Row]:
    plain = {"padding": 0, "unroll": 1}
    yield "copy", "tiled", {**plain, "direct": True}, _COPY, {}
    yield "copySharedMem", "tiled", plain, _COPY, {}
    squares = {"tile_dim": 32}
    halves = {"tile_dim": 32, "tile_rows": 16, "block_rows": 16}
    for shape, end, padding in ((squares, "", 1), (halves, "32x16", 2)):
        yield f"transposeSmem{end}", "tiled", {**shape, **plain}, {}, {}
        yield f"transposeSmemPad{end}", "tiled", {**shape, "padding": padding, "unroll": 1}, {}, {}
        yield f"transposeSmemUnrollPad{end}", "tiled", {**shape, "padding": padding, "unroll": 2}, {}, {}
        both = {**shape, "padding": padding, "unroll": 2, "dynamic": True}
        yield f"transposeSmemUnrollPadDyn{end}", "tiled", both, {}, {}
    little = {"tile_dim": 16, "block_rows": 16, "padding": 2, "unroll": 2, "dynamic": True}
    yield "transposeSmemUnrollPadDyn16x16", "tiled", little, {}, {}
    for name, op in (("transposeFineGrained", FINE), ("transposeCoarseGrained", COARSE)):
        yield name, "tiled", {"tile_dim": _TILE, "padding": 1, "unroll": 1}, {"op": op, "tile": _TILE}, {}


def _orders() -> Iterator[_Row]:
    orders = {
        "transposeDiagonal": "diagonal", "cartesian": "row", "swapped": "col", "diagonal-square": "square",
        "diagonal-general": "diagonal",
    }  # fmt: skip
    for name, order in orders.items():
        yield name, "tiled", {"padding": 1, "unroll": 1, "block_order": order}, {}, {}
    yield "output_pitch_padding", "tiled", {"padding": 1, "unroll": 1}, {}, {"out_pitch": _PARTITION}


def _repeated() -> Iterator[_Row]:
    """Each as often in a loop of launches, and in a loop inside the kernel."""
    kernels: tuple[tuple[str, dict[str, object], str], ...] = (
        ("copy", {"padding": 0, "direct": True}, COPY),
        ("copySharedMem", {"padding": 0}, COPY),
        ("transposeSmem", {"padding": 0}, TURN),
        ("transposeSmemPad", {"padding": 1}, TURN),
    )
    for name, config, op in kernels:
        for end, in_kernel in (("NrepsLaunches", False), ("NrepsKernel", True)):
            yield (
                name + end,
                "tiled",
                {**config, "unroll": 1, "in_kernel": in_kernel},
                {"op": op},
                {NREPS: _REPETITIONS},
            )
