"""nvcc compiles every file as it is, the pass for the host included, and warns of nothing.

Beside NVRTC, which compiles for the GPU only, nvcc reads each text twice, the second time for the host's compiler, and
after headers that NVRTC does not have. Most of an nvcc process goes into these headers: so a hundred files share one.
Code for the GPU is not made of them, since NVRTC makes the same. With the marker
`exhaustive` come covers of every algorithm, and files alone, whose names meet all that the headers declare: one of
every algorithm, and one of every algorithm that has files in out/, of which code is made.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Family, Spec, Variant
from gen.families.config import pairwise
from gen.families.names import legal_space, variant
from gen.paths import output_home
from gen.toolchain.headers import find_program

TOGETHER = 100  # files of a translation unit
STANDARD = ("-std=c++17", "-Werror", "all-warnings")
SYNTAX = ("-arch=sm_90", "-fdevice-syntax-only")
FILES = sorted(output_home().glob("*.cu"))
EXPORT = Path(__file__).parents[2] / "docs" / "export.md"
each_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


def nvcc(folder: Path, *arguments: str | Path) -> None:
    program = find_program("nvcc")
    assert program is not None, "nvcc is not installed: pip install -e '.[dev]'"
    done = subprocess.run([program, *STANDARD, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def compile_together(folder: Path, files: Sequence[Path], *options: str) -> None:
    """Compiles files in units, as a program that includes several has them: nothing of one clashes with another."""
    for start in range(0, len(files), TOGETHER):
        group = files[start : start + TOGETHER]
        unit = folder / "unit.cu"
        unit.write_text("".join(f'#include "{file}"\n' for file in group))
        nvcc(folder, *SYNTAX, *options, "-c", unit)


def written(folder: Path, variants: Iterable[Variant]) -> list[Path]:
    files = []
    for made in variants:
        files.append(folder / f"{made.name}.cu")
        files[-1].write_text(render(made))
    return files


def cover(family: Family[Any], specs: Sequence[Spec], name: str) -> list[Variant]:
    """Variants of an algorithm in which every pair of parameter values meets, for the first of its specs."""
    algorithm = family.algorithms[name]
    return [variant(family, specs[0], algorithm, config) for config in pairwise(legal_space(algorithm, specs[0]))]


def further(family: Family[Any], specs: Sequence[Spec], name: str) -> list[Variant]:
    """As many of its other specs, in turns."""
    algorithm = family.algorithms[name]
    covers = [(spec, pairwise(legal_space(algorithm, spec))) for spec in specs[1:]]
    turns = zip(range(max((len(each) for _, each in covers), default=0)), cycle(covers), strict=False)
    found = (variant(family, spec, algorithm, configs[place % len(configs)]) for place, (spec, configs) in turns)
    return list({made.name: made for made in found}.values())


def specs_of(family: Family[Any], name: str) -> list[Spec]:
    """Those that the algorithm takes, of its family's catalogue and samples; its own sample first."""
    every = dict.fromkeys((family.extra_proof_specs.get(name), *family.catalogue, *family.extra_proof_specs.values()))
    return [spec for spec in every if spec is not None and legal_space(family.algorithms[name], spec)]


def compile_covers(
    folder: Path, family: Family[Any], cover: Callable[[Family[Any], Sequence[Spec], str], list[Variant]]
) -> None:
    for linked in (False, True):
        names = [name for name, algorithm in family.algorithms.items() if bool(algorithm.links) == linked]
        made = [one for name in names for one in cover(family, specs_of(family, name), name)]
        compile_together(folder, written(folder, made), *(["-rdc=true"] if linked else []))


@pytest.mark.exhaustive
@each_family
def test_a_cover_of_every_algorithm_compiles(family: Family[Any], tmp_path: Path) -> None:
    compile_covers(tmp_path, family, cover)


@pytest.mark.further
@each_family
def test_one_file_of_every_algorithm_compiles_alone(family: Family[Any], tmp_path: Path) -> None:
    firsts = [cover(family, specs_of(family, name), name)[0] for name in family.algorithms]
    nvcc(tmp_path, *SYNTAX, "-rdc=true", "-ptx", *written(tmp_path, firsts))


def test_every_file_of_out_compiles(tmp_path: Path) -> None:
    assert len(FILES) > 40
    compile_together(tmp_path, FILES)


def test_a_program_launches_kernels_of_several_files(tmp_path: Path) -> None:
    """By `launch`, on arrays of the types that a spec names, and of any type of their size where they are moved.

    The second call is the one that docs/export.md shows.
    """
    name = "reduction_sum_f32__grid_tpb512_u8_v16_bpm2"
    (shown,) = re.findall(r"^```cuda\n(.*?)^```", EXPORT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    calls = (
        f"{name}::launch(in, out, nullptr, nullptr, 3, {name}::partials_bytes(3, 2), stream)",
        "turn(in, out, 2, 3, stream)",
    )
    program = (
        f'#include "{name}.cu"\n{shown}'
        f"int call(const float* in, float* out, cudaStream_t stream) {{\n  return {calls[0]} + {calls[1]};\n}}\n"
    )
    (tmp_path / "program.cu").write_text(program)
    nvcc(tmp_path, *SYNTAX, "-I", output_home(), "-c", "program.cu")


@pytest.mark.further
@each_family
def test_further_specs_compile(family: Family[Any], tmp_path: Path) -> None:
    compile_covers(tmp_path, family, further)


def template_of(path: Path) -> str:
    """The template that a file was written from."""
    found = re.search(r"^// Template: (\S+),", path.read_text(), re.MULTILINE)
    assert found is not None, path
    return found[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", {template_of(path): path for path in FILES}.values(), ids=lambda path: path.stem)
def test_a_file_of_out_of_every_algorithm_compiles_alone(path: Path, tmp_path: Path) -> None:
    nvcc(tmp_path, "-arch=sm_90", "-c", path)
