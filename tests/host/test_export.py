"""An exported library chooses, plans and refuses as gen does; it is built by g++ and needs no GPU for that."""

from __future__ import annotations

import ctypes
import logging
import os
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import gen
from gen.errors import GenError, SpecError
from gen.export import trace
from gen.export.folder import check_folder, check_name, files_of
from gen.export.program import (
    MOST_RANK,
    Program,
    RandomProblem,
    Target,
    arrays_of,
    problems,
    program_of,
    ranks_of,
    targets_of,
)
from gen.families import FAMILIES
from gen.families.base import Layout
from gen.paths import output_home
from gen.runtime.dispatch import family_and_spec, winners_of
from tests.exported import (
    ADDRESS,
    built,
    by_gen,
    by_library,
    faulty,
    refused_by_gen,
    refused_by_library,
    tensor,
)

SPECS = ("reduction_sum_f32", "transpose_10_b32", "stencil_heat_de794a2b_f32", "system_wave_7d72a419_f32")
SHAPES = {"transpose_10_b32": ((1000, 1003), (4096, 4096), (8, 8), (3, 5000))}  # of specs that are exported for these
SAMPLES = 300
CHECKOUT = Path(__file__).parents[2]
DRIVER = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
PROBLEMS = 100  # of each spec on each target
WINNERS = winners_of(output_home())
TARGETS = tuple(target for target in targets_of(["sm_90"], WINNERS) if "H100" not in target.device)


def program(name: str) -> Program:
    family, spec = family_and_spec(FAMILIES, name, output_home())
    return program_of(family, spec, TARGETS, WINNERS, SHAPES.get(name, ()), SAMPLES)


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    logging.getLogger("gen").setLevel(logging.ERROR)
    made = {name: program(name) for name in SPECS}
    logging.getLogger("gen").setLevel(logging.NOTSET)
    return made


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, programs: dict[str, Program]) -> ModuleType:
    return built(tmp_path_factory.mktemp("exported"), "demo", tuple(programs.values()), lambda *_: b"code")


def compared(library: ModuleType, program: Program, target: Target, count: int, seed: int) -> None:
    family, spec = program.family, program.spec
    chooser = target.chooser(family, spec, WINNERS)
    number = program.targets.index(target)
    known = {program.entries[place].variant.name for place in program.codes[number]}
    left_out = 0
    for problem in problems(family, spec, ranks_of(family, spec), count, seed, SHAPES.get(program.name, ())):
        wanted = by_gen(family, spec, chooser, target, problem)
        found = by_library(library, program.name, spec, target, problem)
        if found != wanted and wanted.variant not in known:  # none of the problems that were asked had got it
            left_out += 1
            continue
        assert found == wanted, problem
    assert left_out <= count // 20


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.device or target.arch)
@pytest.mark.parametrize("name", SPECS)
def test_the_library_launches_what_gen_launches(
    library: ModuleType, programs: dict[str, Program], name: str, target: Target
) -> None:
    compared(library, programs[name], target, PROBLEMS, seed=7)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("transpose_10_b32", marks=pytest.mark.further),
        pytest.param("reduction_var", marks=pytest.mark.exhaustive),
        pytest.param("fields", marks=pytest.mark.exhaustive),
    ],
)
def test_libraries_for_arrays_of_any_size_choose_and_refuse_as_gen_does(name: str) -> None:
    command = [sys.executable, "bench/choices.py", "--only", name, "--problems", "400"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("400 problems, 0 chosen otherwise")


def refusal(library: ModuleType, name: str, *tensors: Any, steps: int | None = None) -> str:
    numbers = [] if steps is None else [ctypes.c_int64(steps)]
    status = getattr(library._library, name)(*map(ctypes.byref, tensors), *numbers, None)
    assert status != 0
    return str(library._library.demo_error().decode())


def vector(library: ModuleType, extent: int, place: int = 0) -> Any:
    return library._tensor(ADDRESS << place, (extent,), None, (2, 32), 0)


def test_what_the_library_refuses_it_names_with_rule_and_value(library: ModuleType) -> None:
    scalar = library._tensor(ADDRESS << 4, (), None, (2, 32), 0)
    ints = library._tensor(ADDRESS, (5,), None, (0, 32), 0)
    assert refusal(library, SPECS[0], ints, scalar).startswith("in must hold f32 elements (got i32)")
    assert refusal(library, SPECS[0], vector(library, 5), vector(library, 5, 4)) == (
        "out must have no axes (got (5,)). Pass one that does, or none: then it is made"
    )
    assert refusal(library, SPECS[0], vector(library, 5), vector(library, 1)).startswith("out must have no axes")
    inside = library._tensor(ADDRESS + 8, (), None, (2, 32), 0)
    assert refusal(library, SPECS[0], vector(library, 5), inside) == "out must not overlap in (got 0x10000000008)"
    host = vector(library, 5)
    host.device.device_type = 1
    assert refusal(library, SPECS[0], host, scalar).startswith("in must be in a GPU's memory")
    many = library._tensor(ADDRESS, (1,) * 5, None, (2, 32), 0)
    assert "must have as many axes as reduction_sum_f32 was exported for: 1, 2, 3 (got 5)" in refusal(
        library, SPECS[0], many, scalar
    )
    other = vector(library, 5, 4)
    other.device.device_id = 1
    assert refusal(library, SPECS[0], vector(library, 5), other).startswith("out must be on device 0, as in is")
    grid = [library._tensor(ADDRESS << place, (8, 8), None, (2, 32), 0) for place in (0, 4)]
    assert refusal(library, SPECS[2], *grid, steps=-1) == (
        "steps must be a whole number, not negative and below 2^31 (got -1)"
    )
    assert refusal(library, SPECS[1], grid[0], library._tensor(1 << 50, (8, 7), None, (2, 32), 0)) == (
        "out must have 8 rows (got (8, 7)). Pass one that does, or none: then it is made"
    )
    fields = [library._tensor(ADDRESS << place, (8, 8), None, (2, 32), 0) for place in range(5)]
    assert refusal(library, SPECS[3], fields[0], vector(library, 8, 1), *fields[2:], steps=1) == (
        "v must have 2 axes (got (8,))"
    )
    fields[2] = library._tensor(ADDRESS << 2, (8, 8), (9, 1), (2, 32), 0)
    assert refusal(library, SPECS[3], *fields, steps=1).startswith("m must be contiguous (got strides (36, 4) at shape")


@pytest.mark.parametrize("name", SPECS)
def test_the_library_refuses_what_gen_refuses_in_the_same_words(
    library: ModuleType, programs: dict[str, Program], name: str
) -> None:
    family, spec = programs[name].family, programs[name].spec
    draw, said = Random(5), 0
    for problem in problems(family, spec, ranks_of(family, spec), PROBLEMS, 3, SHAPES.get(name, ())):
        layouts, addresses = faulty(draw, spec, problem)
        if name == SPECS[0] and len(layouts["in"].shape) not in range(1, MOST_RANK + 1):
            continue  # gen takes any number of axes there
        wanted = refused_by_gen(family, spec, layouts, addresses, problem.parameters)
        found = refused_by_library(library, name, spec, layouts, addresses, problem.parameters)
        assert found == wanted, (layouts, addresses)
        said += wanted != ""
    assert said > PROBLEMS // 4


def test_words_about_shapes_and_strides_are_those_of_gen(library: ModuleType, programs: dict[str, Program]) -> None:
    made = programs["stencil_heat_de794a2b_f32"]
    first, second = arrays_of(made.spec)
    odd = Layout((8, 8), (36, 4), first.dtype.numpy, 4)
    for layouts in (
        {"in": odd, "out": Layout((8, 9), (36, 4), second.dtype.numpy, 4)},
        {"in": odd, "out": Layout((8, 8), (8, 64), second.dtype.numpy, 4)},
        {"in": replace(odd, strides=(16, 4)), "out": Layout((8, 8), (32, 4), second.dtype.numpy, 4)},
    ):
        with pytest.raises(GenError) as told:
            made.family.extents(made.spec, layouts)
        tensors = [
            tensor(library, one, layouts[one.name], ADDRESS << 4 * place) for place, one in enumerate((first, second))
        ]
        assert refusal(library, made.name, *tensors, steps=1) == str(told.value)


def test_a_library_of_another_version_is_refused(library: ModuleType) -> None:
    assert library.__file__ is not None
    module = Path(library.__file__)
    text = module.read_text()
    own = re.search(r'demo_check\(b"(.*)"\)', text)
    assert own is not None
    header = (module.parents[2] / "include" / "demo.h").read_text()
    assert f'#define DEMO_VERSION "{own[1]}"' in header
    other = module.with_name("other.py")
    other.write_text(text.replace(own[1], "0.0.1 12345678"))
    with pytest.raises(Exception, match=rf"demo must be of version 0.0.1 12345678, .* \(got {own[1]}\). Build both"):
        runpy.run_path(str(other))


def test_without_a_driver_the_library_says_so(library: ModuleType) -> None:
    if Path(DRIVER).exists():
        pytest.skip("there is a driver")
    scalar = library._tensor(ADDRESS << 4, (), None, (2, 32), 0)
    assert refusal(library, SPECS[0], vector(library, 5), scalar).startswith("There is no CUDA driver on this machine")


def test_calls_reach_the_driver_as_they_were_planned(library: ModuleType, tmp_path: Path) -> None:
    driver = CHECKOUT / "tests" / "driver"
    build: list[str | Path] = [
        "g++",
        "-shared",
        "-fPIC",
        "-std=c++17",
        "-Wall",
        "-o",
        tmp_path / "libcuda.so.1",
        driver / "counted.cpp",
        "-ldl",
    ]
    subprocess.run(build, check=True)
    assert library.__file__ is not None
    done = subprocess.run(
        [sys.executable, "-I", "-S", driver / "exported_calls.py", Path(library.__file__).parent.parent],
        capture_output=True, text=True, check=False,
        env={"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(tmp_path / "libcuda.so.1")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_header_is_of_c99(library: ModuleType, tmp_path: Path) -> None:
    assert library.__file__ is not None
    include = Path(library.__file__).parents[2] / "include"
    text = tmp_path / "program.c"
    text.write_text('#include "demo.h"\nint main(void) { return demo_check(DEMO_VERSION); }\n')
    strict = ("-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-pedantic", "-Werror")
    done = subprocess.run(["gcc", *strict, f"-I{include}", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_fields_may_be_called_what_functions_call_their_parameters() -> None:
    stream, lambda_ = gen.fields("stream lambda")
    family, spec = family_and_spec(FAMILIES, gen.system({stream: stream + lambda_.laplace()}), output_home())
    made = program_of(family, spec, TARGETS[:1], ())
    files = files_of("demo", [made], None)
    assert f"int {made.name}(const DLTensor* stream_array, const DLTensor* lambda," in files["include/demo.h"].decode()
    compile(files["python/demo/__init__.py"], "demo", "exec")


def test_the_module_needs_python_alone(library: ModuleType) -> None:
    assert library.__file__ is not None
    with pytest.raises(library.Error, match="must be given a function of this module"):
        library.plan("transpose_10_b32", (1000, 1003))
    code = "import demo; print(demo.plan(demo.transpose_10_b32, (1000, 1003), device='sm_90'))"
    folder = str(Path(library.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {folder!r}); {code}"],
        capture_output=True, text=True, check=True, env={},
    )  # fmt: skip
    assert done.stdout.startswith("transpose_10_b32__")
    assert "(in, out, 1000, 1003, 1003, 1000" in done.stdout


PROGRAM = """#include <cstdint>
#include <cstdio>
#include "reduction_sum_f32.h"
{includes}
int call(DLTensor in, DLTensor out, const void* in_address, void* out_address, void* stream) {{
{body}
  return status;
}}
"""


@pytest.mark.parametrize("page", ["README.md", "docs/export.md"])
def test_what_pages_show_of_programs_fits_what_is_exported(
    page: str, programs: dict[str, Program], tmp_path: Path
) -> None:
    name, text = SPECS[0], (CHECKOUT / page).read_text(encoding="utf-8")
    files = files_of(name, [programs[name]], None)
    (tmp_path / f"{name}.h").write_bytes(files[f"include/{name}.h"])
    (block,) = re.findall(r"^```cpp\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if page == "README.md":
        block = block.replace("(in, out,", "(in_address, out_address,")
    includes = [line for line in block.splitlines() if line.startswith("#include")]
    body = "\n".join(line for line in block.splitlines() if line not in includes)
    (tmp_path / "program.cpp").write_text(PROGRAM.format(includes="\n".join(includes), body=body))
    done = subprocess.run(
        ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fsyntax-only", "program.cpp"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for line in re.findall(r"^(?:find_package|target_link_libraries).*$", text, re.MULTILINE):
        shown = line.replace("program", "example").removesuffix(")")
        assert shown in files["example/CMakeLists.txt"].decode(), line


def test_the_python_that_the_page_shows_runs(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```py\n(.*?)^```", (CHECKOUT / "docs/export.md").read_text(), re.MULTILINE | re.DOTALL)
    monkeypatch.setitem(sys.modules, SPECS[0], library)
    about = {"shape": (5,), "typestr": "<f4", "data": (ADDRESS, False), "strides": None, "version": 3}
    names: dict[str, object] = {"x": SimpleNamespace(__cuda_array_interface__=about)}
    before, call, after = block.partition("total = sums.reduction_sum_f32(x)")
    exec(before, names)
    with pytest.raises(library.Error, match="only torch and CuPy are known to make one"):  # of this stand-in's type
        exec(call, names)
    exec(after, names)
    assert capsys.readouterr().out.startswith("reduction_sum_f32__")


def test_only_variants_for_the_shapes_asked_for_are_in_the_library(programs: dict[str, Program]) -> None:
    family, spec = family_and_spec(FAMILIES, "reduction_sum_f32", output_home())
    made = program_of(family, spec, TARGETS[:1], (), [(2**20,)])
    assert [rank.axes for rank in made.ranks] == [1]
    kept, every = ({one.entries[place].variant.name for place in one.codes[0]} for one in (made, programs[made.name]))
    assert kept < every
    sizes = {"n": 2**20}
    assert TARGETS[0].chooser(family, spec, ()).choose(sizes).variant.name in kept


def test_a_spec_that_cannot_be_traced_for_all_shapes_asks_for_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_PATHS", 40)
    family, spec = family_and_spec(FAMILIES, "transpose_021_b32", output_home())
    with pytest.raises(SpecError, match="Give the shapes that it is called with: --shape"):
        program_of(family, spec, TARGETS[:1], ())
    assert program_of(family, spec, TARGETS[:1], (), [(10, 20, 30)]).dense == (3,)


def test_shapes_of_other_numbers_of_axes_are_refused() -> None:
    family, spec = family_and_spec(FAMILIES, "transpose_10_b32", output_home())
    words = r"--shape must have 2 extents at least once, as arrays of transpose_10_b32 have axes \(got 1 and 3\)"
    with pytest.raises(GenError, match=words):
        program_of(family, spec, TARGETS[:1], (), [(2**20,), (2, 3, 4)])


def test_a_spec_with_arrays_of_sizes_of_their_own_is_refused() -> None:
    u = gen.fields("u")[0]
    spec = gen.system({u: u + u.laplace()}, sources=u)
    family, _ = family_and_spec(FAMILIES, spec, output_home())
    with pytest.raises(SpecError, match="lacks: u_sources"):
        program_of(family, spec, TARGETS[:1], ())


def test_where_an_estimate_cannot_be_traced_the_shapes_asked_for_still_are(monkeypatch: pytest.MonkeyPatch) -> None:
    family, spec = family_and_spec(FAMILIES, "reduction_sum_f32", output_home())
    single = type(family.algorithms["single"])
    usual = single.demand

    def demand(self: Any, spec: Any, config: Any, extents: Any, alignment: int, limits: Any) -> Any:
        return usual(self, spec, config, {**extents, "n": int(extents["n"])}, alignment, limits)

    monkeypatch.setattr(single, "demand", demand)
    with pytest.raises(SpecError, match="--shape"):
        program_of(family, spec, TARGETS[:1], ())
    assert program_of(family, spec, TARGETS[:1], (), [(1000,)]).dense == (1,)


def test_a_folder_that_holds_something_and_a_name_that_c_does_not_take_are_refused(tmp_path: Path) -> None:
    check_folder(tmp_path)
    check_folder(tmp_path / "new")
    (tmp_path / "mine").touch()
    with pytest.raises(GenError, match="must be a new or an empty folder"):
        check_folder(tmp_path)
    with pytest.raises(GenError, match="must begin with a letter"):
        check_name("2fast")
    for word in ("lambda", "all"):
        with pytest.raises(GenError, match="must be no word of Python's or CMake's own"):
            check_name(word)


def test_problems_are_drawn_by_a_seed() -> None:
    family, spec = family_and_spec(FAMILIES, "transpose_10_b32", output_home())
    one, same, other = ([*problems(family, spec, (2,), 20, seed)] for seed in (1, 1, 2))
    assert one == same != other
    assert all(isinstance(problem, RandomProblem) for problem in one)


def test_only_integers_divided_by_one_stay_what_they_are() -> None:
    traced = trace.Trace()
    whole, real = traced.variable("whole"), traced.variable("real", real=True)
    assert (whole // 1).term is whole.term
    assert (real // 1).term is not real.term
    assert (real * 1).term is real.term
