"""Exported libraries without code, which choose and plan, and what gen itself says of the same problems."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod
from pathlib import Path
from types import ModuleType
from typing import Any

from gen.errors import ConfigError
from gen.export.folder import _kind, files_of, write
from gen.export.program import Problem, Program, Target, arrays_of
from gen.families.base import WIDEST, Extents, Family, Layout, Operand, Spec, Variant
from gen.runtime.dispatch import Chooser

ADDRESS = 1 << 40
FLAGS = ("-O0", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")


@dataclass(frozen=True)
class Said:
    """What is launched: the variant's name, and a line for each launch; no variant where sizes are refused."""

    variant: str
    launches: str = ""


def built(folder: Path, name: str, programs: Sequence[Program]) -> ModuleType:
    """The Python module of a library without code, which is built in the folder."""
    write(folder, files_of(name, programs, None))
    module = folder / "python" / name / "__init__.py"
    library = module.with_name(f"lib{name}.so")
    code = f"-DGEN_CODE_FILE={folder}/src/{name}.code"
    subprocess.run(
        [shutil.which("g++") or "g++", *FLAGS, f"-I{folder}/include", code, "-o", library, folder / f"src/{name}.cpp",
         "-ldl"],
        check=True,
    )  # fmt: skip
    found = importlib.util.spec_from_file_location(name, module)
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


def tensor(module: ModuleType, operand: Operand, layout: Layout, address: int) -> Any:
    """An array of this layout there."""
    kind, size = _kind(operand.dtype), operand.dtype.size
    strides = [stride // size for stride in layout.strides]
    return module._tensor(address, layout.shape, strides, (3 if kind < 0 else kind, 8 * size), 0)


def by_library(module: ModuleType, name: str, spec: Spec, target: Target, problem: Problem) -> Said:
    """What the library launches for a problem on a target."""
    tensors = [
        tensor(module, one, problem.layouts[one.name], (ADDRESS << place) + problem.alignment)
        for place, one in enumerate(arrays_of(spec))
    ]
    numbers = [ctypes.c_int64(value) for value in problem.parameters.values()]
    found = module._Plan()
    device = (target.device or target.arch).encode()
    status = getattr(module._library, f"{name}_plan")(
        *map(ctypes.byref, tensors), *numbers, device, ctypes.byref(found)
    )
    if status != 0:
        assert "cannot take these sizes" in module._library.demo_error().decode()
        return Said("")
    return Said(found.variant.decode(), found.launches.decode())


def by_gen(family: Family[Any], spec: Spec, chooser: Chooser, target: Target, problem: Problem) -> Said:
    """What gen launches for it."""
    extents = problem.extents(family, spec)
    large = [one for one in arrays_of(spec) if prod(problem.layouts[one.name].shape) * one.dtype.size > WIDEST]
    alignment = gcd(WIDEST, *(problem.alignment for _ in large))
    try:
        variant = chooser.covering(chooser.choose(extents, alignment), extents).variant
    except ConfigError:
        return Said("")
    return Said(variant.name, launches(variant, {**extents, **target.limits.sizes()}))


def launches(variant: Variant, sizes: Extents) -> str:
    """The launches of a variant, in the library's words."""
    plan, operands = variant.plan, arrays_of(variant.spec)
    shown = {scratch.name: f"scratch{place}" for place, scratch in enumerate(plan.scratch)}
    slots = [*(one.name for one in operands), *shown]
    lines = []
    for launch in plan.launches:
        grid = tuple(extent.at(sizes) for extent in launch.grid)
        arguments = ", ".join(
            shown.get(one, one) if isinstance(one, str) else str(one[1].at(sizes)) for one in launch.arguments
        )
        swaps = "".join(f", swap {slots.index(one)} {slots.index(other)}" for one, other in launch.swap)
        head = f"{launch.entry}<<<{grid}, {launch.block}, {launch.shared_bytes.at(sizes)}>>>({arguments})"
        lines.append(f"{head} {launch.times.at(sizes)} times{swaps}\n")
    return "".join(lines)
