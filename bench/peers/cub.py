"""CUB, built by nvcc for the case: the newest headers that are installed, else those of the toolkit."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.gpu import BenchGpu
from gen.compare.case import ComparisonCase
from gen.compare.peers.base import Contender, Handle, NotOfferedError, Outputs, SharedArray
from gen.dtypes import DTYPES, U8, DType
from gen.errors import CompileError, MissingToolError, RunError
from gen.families.reduction import ReductionSpec
from gen.paths import cache_home, output_home

Version = tuple[int, int, int]
OPS = ("sum", "min", "max", "argmin", "argmax")
_C = {"f16": "__half", "bf16": "__nv_bfloat16"}
_INDEX_AT = 16  # bytes from the extreme value to its index
_LONG_ROW = 2**31  # CUB counts the elements of a row in 32 bits


class Cub:
    """`cub::DeviceReduce` and `cub::DeviceSegmentedReduce`. Temporary memory is allocated before anything is timed."""

    name = "cub"

    def version(self) -> str:
        """Of CUB. Raises MissingToolError if nothing can be built and nothing was built before."""
        headers, built = _headers(), sorted(_folder(cache_home(output_home())).glob("*.so"), key=_version_of)
        if built and (headers is None or _version_of(built[-1]) >= _version_in(headers)):
            return _text_of(_version_of(built[-1]))
        if headers is None:
            raise MissingToolError("nvcc", "is needed to build CUB", next_step="Install the CUDA toolkit")
        return _text_of(_version_in(headers))

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: BenchGpu) -> Contender:
        """Whole arrays, and rows of a matrix."""
        spec = case.spec
        if not isinstance(spec, ReductionSpec) or len(spec.op) != 1 or spec.op[0] not in OPS:
            raise NotOfferedError("CUB", "reduces by one operator at a time, " + ", ".join(OPS), case.name)
        if spec.dtype_of_result is not None:
            raise NotOfferedError("CUB", "is not asked here for a result of another type", case.name)
        op = spec.op[0]
        rows = _rows(case, spec)
        if rows is not None and op.startswith("arg"):
            raise NotOfferedError("CUB", "is not asked here for the places of extremes of rows", case.name)
        accumulator, result = types(op, case.dtype)
        library = ctypes.CDLL(str(build(gpu.cache, gpu.arch, op, case.dtype)))
        stream = Handle()
        before = _INDEX_AT if op.startswith("arg") else 0  # bytes from what CUB writes to the result
        shape = () if rows is None else (rows,)

        def result_in(raw: SharedArray) -> SharedArray:
            return SharedArray(raw.address + before, shape, result, raw.owner)

        out = Outputs(gpu, (before + (rows or 1) * result.size,), U8, result_in)
        needed = ctypes.c_size_t()

        def call(temporary: int | None) -> None:
            numbers = [case.elements] if rows is None else [rows, case.elements // rows]
            function = library.gen_cub_reduce if rows is None else library.gen_cub_rows
            status = function(
                ctypes.c_void_p(temporary), ctypes.byref(needed), ctypes.c_void_p(source.address),
                ctypes.c_void_p(out.now.address - before), *map(ctypes.c_longlong, numbers),
                ctypes.c_void_p(stream.stream),
            )  # fmt: skip
            if status != 0:
                raise RunError("CUB", "failed", f"status {status}")

        call(None)
        temporary = gpu.array((max(needed.value, 1),), U8)

        def launch() -> Sequence[Any]:
            call(temporary.address)
            return (out.now,)

        notes = [f"accumulates in {accumulator.name}"] if accumulator != case.dtype else []
        if op != "sum" and case.dtype.kind == "float":
            notes.append("compares by < alone: a NaN may get lost, which NumPy and gen give")
        return Contender(launch, stream.on, "; ".join(notes), places=out.places, use=out.use)


def types(op: str, dtype: DType) -> tuple[DType, DType]:
    """In what CUB is told to accumulate, and what it gives: sums as NumPy has them, but for halves in f32."""
    if op.startswith("arg"):
        return dtype, DTYPES["i64"]
    if op != "sum":
        return dtype, dtype
    if dtype.kind == "float":
        return (DTYPES["f32"] if dtype.size == 2 else dtype), dtype
    wide = DTYPES["i64" if dtype.kind == "int" else "u64"]
    return wide, wide


def build(cache: Path, arch: str, op: str, dtype: DType) -> Path:
    """The shared library for an operator and a type, from the cache if it is there.

    Raises:
        MissingToolError: it is not, and there is no nvcc.
        CompileError: nvcc refuses it.
    """
    accumulator, result = types(op, dtype)
    flags = [
        f"-DGEN_{op.upper()}",
        *(f"-DGEN_{role}={_C.get(one.name, one.cuda)}"
          for role, one in (("IN", dtype), ("ACCUMULATOR", accumulator), ("OUT", result))),
    ]  # fmt: skip
    source = files("bench.peers") / "cub.cu"
    digest = hashlib.sha256("\n".join([source.read_text(encoding="utf-8"), arch, *flags]).encode()).hexdigest()[:16]
    nvcc, headers, folder = _nvcc(), _headers(), _folder(cache)
    built = sorted(folder.glob(f"{digest}-*.so"), key=_version_of)
    if built and (headers is None or _version_of(built[-1]) >= _version_in(headers)):
        return built[-1]
    if nvcc is None or headers is None:
        raise MissingToolError("nvcc", "is needed to build CUB", next_step="Install the CUDA toolkit")
    library = folder / f"{digest}-{_text_of(_version_in(headers))}.so"
    folder.mkdir(parents=True, exist_ok=True)
    made = library.with_suffix(f".{os.getpid()}")
    command = [
        nvcc, "-O3", "-std=c++17", f"-arch={arch}", "-shared", "-Xcompiler", "-fPIC", "-I", str(headers), *flags,
        "-o", str(made), str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"CUB's {op} of {dtype.name}", done.stderr, Path(str(source)))
    made.replace(library)
    return library


def _rows(case: ComparisonCase, spec: ReductionSpec) -> int | None:
    """How many rows are reduced; None for the whole array. Raises NotOfferedError for other axes."""
    rank = len(case.shape)
    axes = axes_of(spec, rank)
    if len(axes) == rank:
        return None
    kept = rank - len(axes)
    if axes != tuple(range(kept, rank)):
        raise NotOfferedError("CUB", "reduces whole arrays and rows", case.name)
    rows = 1
    for extent in case.shape[:kept]:
        rows *= extent
    if case.elements // rows >= _LONG_ROW:
        raise NotOfferedError("CUB", "takes rows of under 2^31 elements", case.name)
    return rows


def axes_of(spec: ReductionSpec, rank: int) -> tuple[int, ...]:
    """The axes that a reduction of an array of so many axes reduces, in order."""
    return tuple(range(rank)) if spec.axis is None else tuple(sorted(axis % rank for axis in spec.axis))


def _folder(cache: Path) -> Path:
    return cache / "cub"


def _nvcc() -> str | None:
    found = shutil.which("nvcc")
    usual = Path("/usr/local/cuda/bin/nvcc")
    return found or (str(usual) if usual.is_file() else None)


def _headers() -> Path | None:
    """Where the newest `cub/` lies, in the package nvidia-cuda-cccl or in the toolkit; None without nvcc."""
    nvcc = _nvcc()
    if nvcc is None:
        return None
    spec = find_spec("nvidia")
    packages = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    places = [place / "cu13" / "include" / "cccl" for place in packages]
    places += [place / "cuda_cccl" / "include" for place in packages]
    places += [root / "include" / "cccl" for root in (Path(nvcc).resolve().parents[1], Path("/usr/local/cuda"))]
    sound = [place for place in places if (place / "cub" / "version.cuh").is_file()]
    return max(sound, key=_version_in, default=None)


def _version_in(headers: Path) -> Version:
    text = (headers / "cub" / "version.cuh").read_text(encoding="utf-8")
    found = re.search(r"#define CUB_VERSION (\d+)", text)
    number = int(found.group(1)) if found else 0
    return number // 100000, number // 100 % 1000, number % 100


def _version_of(library: Path) -> Version:
    found = re.fullmatch(r".*-(\d+)\.(\d+)\.(\d+)", library.stem)
    return (int(found.group(1)), int(found.group(2)), int(found.group(3))) if found else (0, 0, 0)


def _text_of(version: Version) -> str:
    return ".".join(map(str, version))
