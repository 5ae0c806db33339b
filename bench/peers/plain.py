"""A plain kernel, as anybody writes it first: a dozen lines, the best of several blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from math import prod

from bench.arrays import Shared
from bench.peers.base import Contender, Handle, NotOfferedError, Outputs, Place, sweeps
from bench.peers.cub import types
from bench.works import Case, Permute, Reduce, Sweep
from gen.dtypes import DType

Block = tuple[int, int, int]
FLAT: tuple[Block, ...] = ((128, 1, 1), (256, 1, 1), (512, 1, 1), (1024, 1, 1))
MATRIX: tuple[Block, ...] = ((32, 8, 1), (32, 16, 1), (32, 32, 1), (16, 16, 1), (8, 32, 1))
CELLS: tuple[Block, ...] = ((32, 8, 1), (64, 4, 1), (128, 2, 1), (256, 1, 1), (128, 4, 1))
PARTS = 1024  # blocks of a sum over a whole array
_HEADERS = {"f16": "#include <cuda_fp16.h>\n", "bf16": "#include <cuda_bf16.h>\n"}


class Plain:
    """Kernels of this project that nobody tuned; compiled like ours."""

    name = "plain"

    def version(self) -> str:
        """They have none."""
        return "plain.cu"

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Sums, permutations, stencils."""
        work = case.work
        if isinstance(work, Reduce):
            return _sum(case, work, source, place)
        return _permute(case, work, source, place) if isinstance(work, Permute) else _sweep(case, work, source, place)


def _sum(case: Case, work: Reduce, source: Shared, place: Place) -> Contender:
    if work.ops != ("sum",):
        raise NotOfferedError("The plain kernel", "adds", work.label)
    outer, n, inner = _merged(case, work)
    accumulator, result = types("sum", case.dtype)
    stream = Handle()
    out = Outputs(place, tuple(x for axis, x in enumerate(case.shape) if axis not in _axes(case, work)), result)
    if inner > 1:
        columns = place.compile("plain", _text("COLUMNS", case.dtype, accumulator, result))

        def add_columns(block: Block) -> None:
            grid = -(-outer * inner // block[0])
            numbers = [("q", n), ("q", inner), ("q", outer * inner)]
            columns(stream.stream, (grid, 1, 1), block, [source.address, out.now.address, *numbers])

        return _best(place, stream, FLAT, add_columns, out)
    if outer > 1:
        rows = place.compile("plain", _text("SUM", case.dtype, accumulator, result))

        def add_rows(block: Block) -> None:
            rows(stream.stream, (outer, 1, 1), block, [source.address, out.now.address, ("q", outer * n), ("q", n)])

        return _best(place, stream, FLAT, add_rows, out)
    parts = place.array((PARTS,), accumulator)
    first = place.compile("plain", _text("SUM", case.dtype, accumulator, accumulator))
    second = place.compile("plain", _text("SUM", accumulator, accumulator, result))

    def add_all(block: Block) -> None:
        chunk = [("q", n), ("q", -(-n // PARTS))]
        first(stream.stream, (PARTS, 1, 1), block, [source.address, parts.address, *chunk])
        second(stream.stream, (1, 1, 1), block, [parts.address, out.now.address, ("q", PARTS), ("q", PARTS)])

    return _best(place, stream, FLAT, add_all, out)


def _permute(case: Case, work: Permute, source: Shared, place: Place) -> Contender:
    stream = Handle()
    shape = tuple(case.shape[axis] for axis in work.axes)
    out = Outputs(place, shape, case.dtype)
    if work.axes == (1, 0):
        rows, cols = case.shape
        matrix = place.compile("plain", _text("TRANSPOSE", case.dtype, case.dtype, case.dtype))

        def transpose(block: Block) -> None:
            grid = -(-cols // block[0]) * -(-rows // block[1])
            matrix(stream.stream, (grid, 1, 1), block, [source.address, out.now.address, ("q", rows), ("q", cols)])

        return _best(place, stream, MATRIX, transpose, out)
    strides = [prod(case.shape[axis + 1 :]) for axis in work.axes]
    macros = {"kDim": str(len(shape)), "kExtents": _list(shape), "kStrides": _list(strides)}
    kernel = place.compile("plain", _text("PERMUTE", case.dtype, case.dtype, case.dtype, macros))

    def permute(block: Block) -> None:
        grid = -(-case.elements // block[0])
        kernel(stream.stream, (grid, 1, 1), block, [source.address, out.now.address, ("q", case.elements)])

    return _best(place, stream, FLAT, permute, out)


def _sweep(case: Case, work: Sweep, source: Shared, place: Place) -> Contender:
    stream = Handle()
    accumulator = types("sum", case.dtype)[0]
    macros = {
        "kDim": str(work.ndim), "kTaps": str(len(work.taps)), "kRadius": str(work.radius),
        "kFrozen": str(int(work.boundary == "frozen")), "kExtents": _list(case.shape),
        "kOffsets": ", ".join(f"{{{_list(offset)}}}" for offset, _ in work.taps),
        "kWeights": ", ".join(repr(weight) for _, weight in work.taps),
    }  # fmt: skip
    kernel = place.compile("plain", _text("SWEEP", case.dtype, accumulator, case.dtype, macros))
    rows, cols = case.elements // case.shape[-1], case.shape[-1]
    arrays = [source, place.copy(source), place.copy(source)]

    def sweep(block: Block, one: Shared, other: Shared) -> None:
        grid = -(-cols // block[0]) * -(-rows // block[1])
        kernel(stream.stream, (grid, 1, 1), block, [one.address, other.address, ("q", rows), ("q", cols)])

    best = min(CELLS, key=lambda block: place.time_us(lambda: sweep(block, arrays[0], arrays[1])))
    return sweeps(place, stream.on, arrays, lambda one, other: sweep(best, one, other), work.steps, _note(best))


def _best(
    place: Place, stream: Handle, blocks: Sequence[Block], launch: Callable[[Block], None], out: Outputs
) -> Contender:
    best = min(blocks, key=lambda block: place.time_us(lambda: launch(block)))

    def launch_best() -> Sequence[Shared]:
        launch(best)
        return (out.now,)

    return Contender(launch_best, stream.on, _note(best), places=out.places, use=out.use)


def _note(block: Block) -> str:
    return f"blocks of {'x'.join(str(extent) for extent in block if extent > 1)}"


def _text(kernel: str, dtype: DType, accumulator: DType, result: DType, macros: dict[str, str] | None = None) -> str:
    """The source of one of the kernels of plain.cu."""
    headers = "".join({_HEADERS[one.name]: None for one in (dtype, accumulator, result) if one.name in _HEADERS})
    names = {"In": dtype, "Accumulator": accumulator, "Out": result}
    types_text = "".join(f"using {name} = {one.cuda};\n" for name, one in names.items())
    defines = "".join(f"#define {name} {value}\n" for name, value in {f"GEN_{kernel}": "", **(macros or {})}.items())
    return headers + types_text + defines + (files("bench.peers") / "plain.cu").read_text(encoding="utf-8")


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _axes(case: Case, work: Reduce) -> tuple[int, ...]:
    return tuple(range(len(case.shape))) if work.axes is None else work.axes


def _merged(case: Case, work: Reduce) -> tuple[int, int, int]:
    """The shape as what comes before the reduced axes, they themselves, and what comes after."""
    axes = sorted(_axes(case, work))
    if axes != list(range(axes[0], axes[-1] + 1)):
        raise NotOfferedError("The plain kernel", "adds along axes that follow each other", case.name)
    shape = case.shape
    return prod(shape[: axes[0]]), prod(shape[axes[0] : axes[-1] + 1]), prod(shape[axes[-1] + 1 :])


PEER = Plain()
