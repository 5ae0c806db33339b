"""The folder of an exported library: C++, a header, a CMake package, a Python module, and where all of it came from."""

from __future__ import annotations

import hashlib
import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gen
from gen.arch import Architecture
from gen.dtypes import DType
from gen.emit.folder import write_whole
from gen.emit.render import environment_of, fill, render
from gen.errors import GenError
from gen.export.operators import calls_of
from gen.export.program import Candidate, Chosen, ClassRow, Function, Program, arrays_of
from gen.families.base import Operand, Variant
from gen.paths import templates_root

_CODE_PART = 64  # bytes, of which every kernel's code begins at a multiple
_KINDS = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bits": -1}
_HEADS = {
    "bool": "bool {}(const Int* sizes, const Limits& device, Int alignment)",
    "double": "double {}(const Int* sizes, const Limits& device, Int alignment)",
    "misfit": "int {}(const View* arrays, std::string* words)",
    "real": "double {}(const Int* sizes, const Limits& device, Int alignment)",
    "whole": "Int {}(const Int* sizes, const Limits& device, Int alignment)",
    "real_of_arrays": "double {}(const View* arrays)",
    "whole_of_arrays": "Int {}(const View* arrays)",
    "class": "int {}(const Int* sizes, const Limits& device, Int alignment)",
    "measure": "int {}(const View* arrays, [[maybe_unused]] Int* sizes, std::string* words)",
    "results": "int {}(const View* arrays, View* results, std::string* words)",
}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TARGETS = frozenset(("all", "clean", "depend", "help", "install", "package", "test"))
"""Names that CMake keeps for targets of its own."""
_PARAMETERS = frozenset((
    "addresses", "bytes", "choice", "device", "ndim", "ndims", "parameters", "restrict", "results", "shape",
    "steps", "stream", "tensors", "workspace",
))  # fmt: skip
"""What functions name beside a system's arrays, whose names have no underscores; and a word of C alone."""
_LICENSE = """MIT License

Copyright (c) the gen contributors

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""

Compile = Callable[[Variant, str, bool], bytes]
"""Machine code of a variant for an architecture, or PTX where the last argument says so."""


@dataclass(frozen=True)
class Code:
    """Where the code of a variant begins; `arch` as it was asked for."""

    variant: int
    arch: str
    ptx: bool
    offset: int


def check_name(name: str) -> None:
    """Raises GenError unless C, CMake and Python take the name."""
    if not _NAME.fullmatch(name):
        raise GenError("--name", "must begin with a letter and go on with letters, digits and underscores", repr(name))
    if keyword.iskeyword(name) or name in _TARGETS:
        raise GenError("--name", "must be no word of Python's or CMake's own", repr(name))


def check_folder(folder: Path) -> None:
    """Raises GenError if something is there already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GenError(str(folder), "must be a new or an empty folder", next_step="Name another with -o, or empty it")


def files_of(
    name: str, programs: Sequence[Program], compile_for: Compile | None, ptx_for: str | None = None
) -> dict[str, bytes]:
    """Every file of the folder by its path.

    Args:
        name: of the library.
        programs: what it knows of each spec.
        compile_for: makes code; None: the library has none, and can only be asked for plans.
        ptx_for: the architecture whose PTX later ones translate; None: there is none.
    """
    blob = bytearray()
    codes = [_codes(program, compile_for, ptx_for, blob) for program in programs]
    environment = environment_of(programs[0].family)
    specs = [_spec(program, found) for program, found in zip(programs, codes, strict=True)]
    about = "for " + ", ".join(dict.fromkeys(target.arch for one in programs for target in one.targets))
    written = dict.fromkeys(one for program in programs for one in program.files)
    headers = {Path(one).name.replace(".", f"_of_{Path(one).parent.name}."): one for one in written}
    common: dict[str, object] = {"name": name, "version": gen.__version__, "about": about, "specs": specs}
    provenance = _provenance(name, programs, ptx_for)
    operators = calls_of(programs)
    common |= {"operators": operators, "operator_specs": {call.spec for call in operators}}
    common |= {"headers": list(headers), "identity": f"{gen.__version__} {hashlib.sha256(provenance).hexdigest()[:8]}"}

    def made(template: str, **more: object) -> bytes:
        return fill(environment, f"export/{template}.jinja", {**common, **more}).encode()

    found = {
        f"src/{name}.cpp": made("library.cpp"),
        "src/host.hpp": (templates_root() / "export" / "host.hpp").read_bytes(),
        f"src/{name}.code": bytes(blob),
        f"include/{name}.h": made("header.h"),
        "CMakeLists.txt": made("CMakeLists.txt"),
        "example/CMakeLists.txt": made("example_CMakeLists.txt"),
        f"python/{name}/__init__.py": made("module.py"),
        f"python/{name}/py.typed": b"",
        "pyproject.toml": made("pyproject.toml"),
        "backend.py": made("backend.py"),
        "README.md": made("README.md"),
        "LICENSE": _LICENSE.encode(),
        "provenance.json": provenance,
    }
    found |= {f"src/{one}": (templates_root() / path).read_bytes() for one, path in headers.items()}
    found |= {f"src/{spec['name']}.hpp": made("spec.hpp", spec=spec) for spec in specs}
    if operators:
        found[f"src/{name}_torch.cpp"] = made("torch.cpp")
    example = next((spec for spec in specs if spec["example"]), None)
    if example is not None:
        found["example/main.cpp"] = made("main.cpp", spec=example)
    for program in programs:
        for variant in _used(program):
            found[f"kernels/{variant.name}.cu"] = render(variant).encode()
    return found


def write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes them. Raises StoreError where that fails."""
    for path, content in files.items():
        write_whole(folder / path, content, next_step="Make room, or name another folder with -o")


def _used(program: Program) -> list[Variant]:
    return [program.entries[place].variant for place in sorted({one for codes in program.codes for one in codes})]


def _codes(program: Program, compile_for: Compile | None, ptx_for: str | None, blob: bytearray) -> list[Code]:
    """Appends the code of a program to the blob."""
    wanted: dict[tuple[int, str, bool], None] = {}
    for target, variants in zip(program.targets, program.codes, strict=True):
        for variant in variants:
            wanted[variant, target.arch, False] = None
            if target.arch == ptx_for:
                wanted[variant, target.arch, True] = None
    found = []
    for variant, arch, ptx in wanted if compile_for is not None else ():
        assert compile_for is not None
        blob.extend(bytes(-len(blob) % _CODE_PART))
        found.append(Code(variant, arch, ptx, len(blob)))
        blob.extend(compile_for(program.entries[variant].variant, arch, ptx))
    return found


def _provenance(name: str, programs: Sequence[Program], ptx_for: str | None) -> bytes:
    content = {
        "library": name,
        "gen": gen.__version__,
        "ptx": ptx_for,
        "specs": [
            {
                "name": program.name,
                "spec": dict(program.spec.to_json()),
                "targets": [target.device or target.arch for target in program.targets],
                "ranks": [rank.axes for rank in program.ranks],
                "variants": [variant.name for variant in _used(program)],
            }
            for program in programs
        ],
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _spec(program: Program, codes: Sequence[Code]) -> dict[str, Any]:
    """What templates say of a spec: texts, numbers, and lists of such."""
    spec, family = program.spec, program.family
    operands = arrays_of(spec)
    inputs = [x for x in operands if x.role != "out"]
    outputs = [x for x in operands if x.role == "out"]
    parameters = dict(family.runtime_parameters(spec))
    archs = dict.fromkeys(target.arch for target in program.targets)
    devices = [json.dumps(target.device or target.arch) for target in program.targets]
    ranks = [rank.axes for rank in program.ranks]
    rank_words = f"{' or '.join(map(str, ranks))} {'axis' if ranks == [1] else 'axes'}"
    return {
        "name": program.name,
        "summary": " ".join(spec.summary.split()),
        "sizes": list(program.sizes),
        "functions": [{"head": _head(one), "body": one.body} for one in program.functions],
        "variants": [{"name": one.variant.name, "plan": one.plan} for one in program.entries],
        "targets": [
            {
                "arch": target.arch, "device": target.device, "capability": _capability(target.arch),
                "limits": f"{target.limits.multiprocessors}, {target.limits.clock_hz!r}, "
                f"{target.limits.memory_bytes_per_second!r}",
            }
            for target in program.targets
        ],
        "rows": [_row(program, one) for one in program.rows],
        "classify": ", ".join(program.classify),
        "ranks": [
            f"{one.axes}, {json.dumps(one.axes in program.dense)}, {one.measure}, {one.results}, "
            f"{{{', '.join(one.misfits)}}}"
            for one in program.ranks
        ],
        "operands": [_operand(one) for one in operands],
        "codes": [
            f"{one.variant}, {_capability(one.arch)}, {json.dumps(bool(Architecture.parse(one.arch).suffix))}, "
            f"{json.dumps(one.ptx)}, {one.offset}"
            for one in codes
        ],
        "inputs": len(inputs), "outputs": len(outputs),
        "parameter_count": len(parameters),
        "parameters": "".join(f"int64_t {name}, " for name in parameters),
        "parameter_names": "".join(f"{name}, " for name in parameters),
        "parameter_texts": "".join(f'"{name}", ' for name in parameters),
        "tensors": ", ".join(f"const DLTensor* {_c(x)}" for x in operands),
        "pointers": ", ".join(f"{'const ' if x.role == 'in' else ''}void* {_c(x)}" for x in operands),
        "names": ", ".join(map(_c, operands)),
        "arguments": [
            *(f"{x.name}: {_words(x)}" for x in operands),
            *(f"{name}: a whole number from 0 on, usually {usual}" for name, usual in parameters.items()),
            f"Arrays of {rank_words}.",
        ],
        "devices": " and ".join(devices) + (" needs" if len(devices) == 1 else " need"),
        "first_device": program.targets[0].arch,
        "archs": ", ".join(archs), "rank_words": rank_words,
        "example": _has_example(operands),
        "input_type": _host_type(inputs[0].dtype), "result_type": _host_type((outputs or inputs)[0].dtype),
        "example_arrays": ", ".join(
            [f"in_there[{place}]" for place in range(len(inputs))]
            + [f"out_there[{place}]" for place in range(len(outputs))]
        ),
        "example_shape": ", ".join(["1000", "1003", "5"][: ranks[0]] if len(ranks) == 1 else ["1003"] * ranks[0]),
        "example_parameters": "parameters, " * len(parameters),
        "python_inputs": ", ".join(f"{_python(x)}: Any" for x in inputs),
        "python_texts": "".join(f'"{x.name}", ' for x in inputs),
        "python_names": ", ".join(_python(x) for x in inputs),
        "python_parameters": "".join(f"{name}: int = {usual}, " for name, usual in parameters.items()),
        "python_parameter_names": ", ".join(f'"{name}": {name}' for name in parameters),
        "python_defaults": ", ".join(f'"{name}": {usual}' for name, usual in parameters.items()),
        "python_dtypes": "".join(f'"{_numpy_name(x.dtype)}", ' for x in outputs),
        "python_arguments": [
            *(f"{_python(x)}: {_words(x)}." for x in inputs),
            *(["out: where the result goes; made where it is None, of the kind of the input."] if outputs else []),
            *(f"{name}: a whole number from 0 on." for name in parameters),
        ],
        "dlpack_dtypes": ", ".join(
            f"({3 if _kind(x.dtype) < 0 else _kind(x.dtype)}, {8 * x.dtype.size})" for x in operands
        ),
    }  # fmt: skip


def _has_example(operands: Sequence[Operand]) -> bool:
    """Whether a program can be written that calls it: all inputs of one shape, all outputs of one type."""
    first, last = operands[0], operands[-1]
    alike = all(x.dtype == (last if x.role == "out" else first).dtype for x in operands)
    shaped = all(x.role != "inout" and (x.role == "out" or x.axes == first.axes) for x in operands)
    return alike and shaped and first.dtype.size < 16


def _head(one: Function) -> str:
    of_sizes = ("sizes", "device", "alignment")
    unread = () if one.returns in ("misfit", "whole_of_arrays", "real_of_arrays") else of_sizes
    head = _HEADS[one.returns].format(one.name)
    for name in (*unread, "words", "arrays"):
        head = re.sub(rf"(const \w+[*&] {name}|Int {name}|std::string\* {name})\b", r"[[maybe_unused]] \1", head)
    return head


def _row(program: Program, row: ClassRow) -> dict[str, object]:
    target = program.targets[row.target]
    return {
        "words": f"{target.device or target.arch}: {row.words}",
        "place": f"{row.target}, {row.structure}, {row.number}",
        "parts": ", ".join(map(_part, row.chosen)),
        "others": ", ".join(map(_candidate, row.others)),
        "count": len(row.others),
        "base": f"{_candidate(row.base)}, {row.first_stays!r}, {row.most}",
    }


def _part(one: Chosen) -> str:
    truths = ", ".join(json.dumps(one) for one in (one.measured, one.later))
    return f"{{{one.holds or 'nullptr'}, {truths}, {one.worth!r}, {_candidate(one.candidate)}, {_wider(one.wider)}}}"


def _wider(some: Sequence[Candidate]) -> str:
    """Whether there is one, and which."""
    return f"{json.dumps(bool(some))}, {_candidate(some[0]) if some else '{}'}"


def _candidate(one: Candidate) -> str:
    functions = ", ".join(name or "nullptr" for name in (one.cannot, one.slow, one.estimate))
    return f"{{{one.variant}, {functions}}}"


def _operand(one: Operand) -> str:
    truths = ", ".join(json.dumps(one.role in roles) for roles in (("out", "inout"), ("out",)))
    return f'"{one.name}", "{_elements(one.dtype)}", {_kind(one.dtype)}, {8 * one.dtype.size}, {truths}'


def _elements(dtype: DType) -> str:
    return f"elements of {dtype.size} bytes" if dtype.kind == "bits" else f"{dtype.name} elements"


def _kind(dtype: DType) -> int:
    """DLPack's code of a type; -1 where elements are only moved."""
    return {"bf16": 4, "bool": 6}.get(dtype.name, _KINDS[dtype.kind])


def _words(one: Operand) -> str:
    elements = _elements(one.dtype)
    role = {"in": "is read", "out": "is written", "inout": "is changed in place"}[one.role]
    return f"{elements}; {role}"


def _host_type(dtype: DType) -> str:
    """A type of C++ on the host; of those that it lacks, the bits."""
    if dtype.name in ("f32", "f64"):
        return dtype.cuda
    sign = "" if dtype.kind == "int" else "u"
    return f"{sign}int{min(8 * dtype.size, 64)}_t"


def _numpy_name(dtype: DType) -> str:
    """As torch and NumPy call it; empty where an output has the input's."""
    return "" if dtype.kind == "bits" else "bfloat16" if dtype.name == "bf16" else dtype.numpy.name


def _c(one: Operand) -> str:
    """An argument's name in C, which a field of a system may have as it is unless the functions use it otherwise."""
    return f"{one.name}_array" if one.name in _PARAMETERS else one.name


def _python(one: Operand) -> str:
    """An argument's name in Python, of which `in` is a word of its own."""
    taken = one.name in _PARAMETERS or keyword.iskeyword(one.name)
    return "array" if one.name == "in" else f"{one.name}_array" if taken else one.name


def _capability(arch: str) -> int:
    major, minor = Architecture.parse(arch).compute_capability
    return 10 * major + minor
