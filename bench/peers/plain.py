"""A plain kernel, as anybody writes it first: a dozen lines, the best of several blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.resources import files
from math import prod

from bench.gpu import BenchGpu
from bench.peers.cub import axes_of, types
from bench.stencils import is_plain, listed, macros_of, steps_of
from gen.compare.case import ComparisonCase
from gen.compare.peers.base import Contender, Handle, NotOfferedError, Outputs, SharedArray, check_permutation, stepped
from gen.dtypes import I64, DType
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.families.transpose import TransposeSpec

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

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: BenchGpu) -> Contender:
        """Sums, permutations, stencils."""
        spec = case.spec
        if isinstance(spec, ReductionSpec):
            return _sum(case, spec, source, gpu)
        if isinstance(spec, TransposeSpec):
            return _permute(case, spec, source, gpu)
        if isinstance(spec, StencilSpec):
            return _step(case, spec, source, gpu)
        raise NotOfferedError("The plain kernel", "adds, permutes axes, and steps stencils", case.name)


def _sum(case: ComparisonCase, spec: ReductionSpec, source: SharedArray, gpu: BenchGpu) -> Contender:
    if spec.op != ("sum",) or spec.dtype_of_result is not None:
        raise NotOfferedError("The plain kernel", "adds", case.name)
    axes = axes_of(spec, len(case.shape))
    outer, n, inner = _merged(case, axes)
    accumulator, result = types("sum", case.dtype)
    stream = Handle()
    out = Outputs(gpu, tuple(x for axis, x in enumerate(case.shape) if axis not in axes), result)
    if inner > 1:
        columns = gpu.compile("plain", _text("COLUMNS", case.dtype, accumulator, result))

        def add_columns(block: Block) -> None:
            grid = -(-outer * inner // block[0])
            numbers = [(I64, n), (I64, inner), (I64, outer * inner)]
            columns(stream.stream, (grid, 1, 1), block, [source.address, out.now.address, *numbers])

        return _best(gpu, stream, FLAT, add_columns, out)
    if outer > 1:
        rows = gpu.compile("plain", _text("SUM", case.dtype, accumulator, result))

        def add_rows(block: Block) -> None:
            rows(stream.stream, (outer, 1, 1), block, [source.address, out.now.address, (I64, outer * n), (I64, n)])

        return _best(gpu, stream, FLAT, add_rows, out)
    parts = gpu.array((PARTS,), accumulator)
    first = gpu.compile("plain", _text("SUM", case.dtype, accumulator, accumulator))
    second = gpu.compile("plain", _text("SUM", accumulator, accumulator, result))

    def add_all(block: Block) -> None:
        chunk = [(I64, n), (I64, -(-n // PARTS))]
        first(stream.stream, (PARTS, 1, 1), block, [source.address, parts.address, *chunk])
        second(stream.stream, (1, 1, 1), block, [parts.address, out.now.address, (I64, PARTS), (I64, PARTS)])

    return _best(gpu, stream, FLAT, add_all, out)


def _permute(case: ComparisonCase, spec: TransposeSpec, source: SharedArray, gpu: BenchGpu) -> Contender:
    check_permutation("The plain kernel", spec)
    if spec.values is not None:
        raise NotOfferedError("The plain kernel", "moves elements, and converts none", case.name)
    stream = Handle()
    shape = tuple(case.shape[axis] for axis in spec.axes)
    out = Outputs(gpu, shape, case.dtype)
    if spec.axes == (1, 0):
        rows, cols = case.shape
        matrix = gpu.compile("plain", _text("TRANSPOSE", case.dtype, case.dtype, case.dtype))

        def transpose(block: Block) -> None:
            grid = -(-cols // block[0]) * -(-rows // block[1])
            matrix(stream.stream, (grid, 1, 1), block, [source.address, out.now.address, (I64, rows), (I64, cols)])

        return _best(gpu, stream, MATRIX, transpose, out)
    strides = [prod(case.shape[axis + 1 :]) for axis in spec.axes]
    macros = {"kDim": str(len(shape)), "kExtents": listed(shape), "kStrides": listed(strides)}
    kernel = gpu.compile("plain", _text("PERMUTE", case.dtype, case.dtype, case.dtype, macros))

    def permute(block: Block) -> None:
        grid = -(-case.elements // block[0])
        kernel(stream.stream, (grid, 1, 1), block, [source.address, out.now.address, (I64, case.elements)])

    return _best(gpu, stream, FLAT, permute, out)


def _step(case: ComparisonCase, spec: StencilSpec, source: SharedArray, gpu: BenchGpu) -> Contender:
    if not is_plain(spec):
        raise NotOfferedError("The plain kernel", "has one radius, and wraps or is frozen", case.name)
    stream = Handle()
    accumulator = types("sum", case.dtype)[0]
    macros = macros_of(case)
    kernel = gpu.compile("plain", _text("SWEEP", case.dtype, accumulator, case.dtype, macros))
    rows, cols = case.elements // case.shape[-1], case.shape[-1]
    arrays = [source, gpu.copy(source), gpu.copy(source)]

    def step(block: Block, one: SharedArray, other: SharedArray) -> None:
        grid = -(-cols // block[0]) * -(-rows // block[1])
        kernel(stream.stream, (grid, 1, 1), block, [one.address, other.address, (I64, rows), (I64, cols)])

    best = min(CELLS, key=lambda block: gpu.time_us(lambda: step(block, arrays[0], arrays[1])))
    return stepped(gpu, stream.on, arrays, lambda one, other: step(best, one, other), steps_of(case), _note(best))


def _best(
    gpu: BenchGpu, stream: Handle, blocks: Sequence[Block], launch: Callable[[Block], None], out: Outputs
) -> Contender:
    best = min(blocks, key=lambda block: gpu.time_us(lambda: launch(block)))

    def launch_best() -> Sequence[SharedArray]:
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


def _merged(case: ComparisonCase, axes: Sequence[int]) -> tuple[int, int, int]:
    """The shape as what comes before the reduced axes, they themselves, and what comes after."""
    if list(axes) != list(range(axes[0], axes[-1] + 1)):
        raise NotOfferedError("The plain kernel", "adds along axes that follow each other", case.name)
    shape = case.shape
    return prod(shape[: axes[0]]), prod(shape[axes[0] : axes[-1] + 1]), prod(shape[axes[-1] + 1 :])
