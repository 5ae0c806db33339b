"""Exported libraries without code, which choose and plan, and what gen itself says of the same problems."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import numpy as np

from gen.errors import ConfigError, GenError
from gen.export.folder import Compile, _kind, files_of, write
from gen.export.program import Program, RandomProblem, Target, arrays_of
from gen.families.base import WIDEST, Extents, Family, Layout, Operand, Spec, Variant
from gen.families.extents import dense_strides
from gen.runtime.arrays import Given, Kind
from gen.runtime.dispatch import Chooser
from gen.runtime.signature import Signature

ADDRESS = 1 << 40
FLAGS = ("-O0", "-std=c++17", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off")


@dataclass(frozen=True)
class Said:
    """What is launched: the variant's name, and a line for each launch; no variant where sizes are refused."""

    variant: str
    launches: str = ""


def built(folder: Path, name: str, programs: Sequence[Program], compile_for: Compile | None = None) -> ModuleType:
    """The Python module of a library, without code or with what `compile_for` gives, which is built in the folder."""
    write(folder, files_of(name, programs, compile_for))
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


def by_library(module: ModuleType, name: str, spec: Spec, target: Target, problem: RandomProblem) -> Said:
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
        words = module._library.demo_error().decode()
        return Said("") if "cannot take these sizes" in words else Said("", words)
    return Said(found.variant.decode(), found.launches.decode())


FAULTS = ("dtype", "axes", "extent", "stride", "address", "overlap")


def faulty(draw: Random, spec: Spec, problem: RandomProblem) -> tuple[dict[str, Layout], dict[str, int]]:
    """The arrays of a problem, one of them wrong in one way, and their addresses."""
    operands = arrays_of(spec)
    layouts = dict(problem.layouts)
    addresses = {one.name: ADDRESS << place for place, one in enumerate(operands)}
    wrong, fault = draw.choice(operands).name, draw.choice(FAULTS)
    layout = layouts[wrong]
    axis = draw.randrange(len(layout.shape)) if layout.shape else 0
    shape, strides = list(layout.shape), list(layout.strides)
    if fault == "dtype":
        layouts[wrong] = dense_as(layout, np.dtype(draw.choice(("i4", "f8", "u1", "f2", "c8", "i8", "?"))))
        return layouts, addresses
    if fault == "axes" and draw.random() < 0.5:
        del shape[axis : axis + 1], strides[axis : axis + 1]
    elif fault == "axes":
        shape, strides = [2, *shape], [64, *strides]
    elif fault == "extent" and shape:
        shape[axis] += draw.choice((-1, 1)) if shape[axis] else 1
    elif fault == "stride" and shape:
        strides[axis] = draw.choice((strides[axis] + layout.dtype.itemsize, -strides[axis], 0, 2 * strides[axis]))
    elif fault == "address":
        addresses[wrong] += draw.choice((1, 2, 4, 8))
    elif fault == "overlap":
        addresses[wrong] = addresses[draw.choice(operands).name]
    layouts[wrong] = replace(layout, shape=tuple(shape), strides=tuple(strides))
    return layouts, addresses


def dense_as(layout: Layout, dtype: np.dtype[Any]) -> Layout:
    """The layout of an array of the same shape without gaps, of other elements."""
    return Layout(layout.shape, dense_strides(layout.shape, dtype.itemsize), dtype)


def refused_by_gen(family: Family[Any], spec: Spec, layouts: Mapping[str, Layout], addresses: Mapping[str, int],
                   parameters: Mapping[str, int]) -> str:  # fmt: skip
    """What `gen.load`'s kernels say of a call, without what to do next; nothing where it is right."""
    signature = Signature(family, spec)
    given = {
        name: Given(Kind.OTHER, addresses[name], one.shape, one.strides, one.dtype, True, 0, None, None)
        for name, one in layouts.items()
    }
    try:
        signature.check(given, parameters)
        signature.check_overlap(given)
    except GenError as error:
        # A kernel may add in wider types that a caller brings, of which a library has no kernels.
        return without_advice(re.sub(r", or those of a type that holds every \w+", "", str(error)))
    return ""


def refused_by_library(module: ModuleType, name: str, spec: Spec, layouts: Mapping[str, Layout],
                       addresses: Mapping[str, int], parameters: Mapping[str, int]) -> str:  # fmt: skip
    """What the library says of the same call, up to the launch."""
    codes = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
    tensors = [
        module._tensor(
            addresses[one.name], layout.shape, [stride // layout.dtype.itemsize for stride in layout.strides],
            (codes[layout.dtype.kind], 8 * layout.dtype.itemsize), 0,
        )
        for one in arrays_of(spec)
        for layout in (layouts[one.name],)
    ]  # fmt: skip
    numbers = [ctypes.c_int64(value) for value in parameters.values()]
    status = getattr(module._library, name)(*map(ctypes.byref, tensors), *numbers, None)
    refused = 1  # other statuses are those of the driver, which is asked last
    return without_advice(module._library.demo_error().decode()) if status == refused else ""


def without_advice(words: str) -> str:
    """An error's subject, rule and value."""
    return words.partition("). ")[0].removesuffix(")")


def by_gen(family: Family[Any], spec: Spec, chooser: Chooser, target: Target, problem: RandomProblem) -> Said:
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
        head += " cooperative" if launch.cooperative else ""
        lines.append(f"{head} {launch.times.at(sizes)} times{swaps}\n")
    return "".join(lines)
