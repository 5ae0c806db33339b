"""Kernels that launch kernels become machine code that the driver can load, or a reason says what is missing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda.core import Program, ProgramOptions

from gen.cli.prove import compile_all
from gen.emit.render import render
from gen.errors import CompileError, MissingToolError, UnlinkedError
from gen.families import FAMILIES
from gen.families.base import Limits, Variant
from gen.families.names import find_variant
from gen.paths import how_to_install
from gen.proof.verdicts import Verdict
from gen.toolchain import link as module
from gen.toolchain import nvrtc
from gen.toolchain.compiled import Resources, compile_each, instructions
from gen.toolchain.headers import find_program, headers_folder
from gen.toolchain.link import JitLinker, Linked, Linker, NvccLinker, find_library
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.rehearse import rehearse

NAMES = ("gpuRecursiveReduce", "gpuRecursiveReduceNosync", "gpuRecursiveReduce2")
VARIANTS = tuple(find_variant(FAMILIES, name, {}) for name in NAMES)
ARCH = "sm_90"


def linkers() -> list[type[JitLinker] | type[NvccLinker]]:
    found = []
    for kind in (JitLinker, NvccLinker):
        try:
            kind()
        except MissingToolError:
            continue
        found.append(kind)
    return found


each_linker = pytest.mark.parametrize(
    "kind", linkers() or [pytest.param(None, marks=pytest.mark.skip(reason="neither nvJitLink nor nvcc"))]
)
needs_linker = pytest.mark.skipif(not linkers(), reason="neither nvJitLink nor nvcc")
NVCC = find_program("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc")


def none() -> Linker:
    raise MissingToolError("A linker of device code", "must be installed", next_step="Run: pip install it")


@each_linker
@pytest.mark.parametrize("made", VARIANTS, ids=NAMES)
def test_a_kernel_that_launches_kernels_is_linked(
    made: Variant, kind: type[JitLinker] | type[NvccLinker], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvrtc, "find_linker", kind)
    compiled = Nvrtc(tmp_path).compile(made.name, render(made), ARCH)
    kernels = {made.name + launch.entry for launch in made.plan.launches}
    assert compiled.resources.keys() == kernels
    code = instructions(compiled.cubin)
    assert kernels < code.keys()
    assert len(code) > 20  # CUDA's device runtime is in it
    # The compiler does not know what the runtime takes of the stack; the linker does.
    assert compiled.resources[made.name].stack_bytes > 0
    assert compiled.resources[made.name + "_copy"].stack_bytes == 0
    assert 0 < compiled.registers <= 64
    assert compiled.static_shared_bytes == 4 * made.plan.launches[-1].block[0] // 32
    again = Nvrtc(tmp_path)
    monkeypatch.setattr(again, "_compile", None)  # it is in the cache
    assert again.compile(made.name, render(made), ARCH) == compiled


@needs_linker
def test_the_same_text_gives_the_same_bytes() -> None:
    one, other = (Nvrtc(None).compile(VARIANTS[0].name, render(VARIANTS[0]), ARCH) for _ in range(2))
    assert one.cubin == other.cubin


@needs_nvcc
@pytest.mark.parametrize("made", VARIANTS[2:], ids=NAMES[2:])
def test_nvcc_builds_the_file_as_its_header_says(made: Variant, tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text(render(made))
    (options,) = [line.removeprefix("// Compile:  nvcc ") for line in render(made).splitlines() if "Compile: " in line]
    relocatable, *libraries = options.split()
    program = str(NVCC)
    compile_it = [program, "-arch=sm_90", "-std=c++17", relocatable, "-cubin", "kernel.cu", "-o", "kernel.cubin"]
    beside = f"-L{find_library('cudadevrt', headers_folder()).parent}"  # where pip installs it, nvcc does not look
    link_it = [program, "-arch=sm_90", "-dlink", "-cubin", "kernel.cubin", beside, *libraries, "-o", "linked.cubin"]
    for command in (compile_it, link_it):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert made.name in instructions((tmp_path / "linked.cubin").read_bytes())


@each_linker
def test_a_linker_says_what_it_misses(kind: type[JitLinker] | type[NvccLinker]) -> None:
    text = '__device__ void elsewhere();\nextern "C" __global__ void calls() { elsewhere(); }\n'
    with pytest.raises(CompileError, match=r"calls does not compile(.|\n)*elsewhere") as caught:
        kind().link("calls", relocatable(text), ARCH, [])
    assert not isinstance(caught.value, UnlinkedError)


def relocatable(text: str) -> bytes:
    options = ProgramOptions(arch=ARCH, relocatable_device_code=True, no_cache=True)
    return bytes(Program(text, "c++", options).compile("cubin").code)


def test_without_a_linker_the_text_still_compiles_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nvrtc, "find_linker", none)
    made = VARIANTS[0]
    compiler = Nvrtc(tmp_path)
    with pytest.raises(UnlinkedError) as caught:
        compiler.compile(made.name, render(made), ARCH)
    assert str(caught.value) == (
        f"{made.name} compiles, but is not linked: A linker of device code must be installed. Run: pip install it"
    )
    with pytest.raises(CompileError, match="cudaStreamHeadLaunch") as refused:
        compiler.compile(made.name, render(made).replace("cudaStreamTail", "cudaStreamHead"), ARCH)
    assert not isinstance(refused.value, UnlinkedError)
    # gen prove goes on without its registers.
    found = compile_all(compiler, VARIANTS)
    assert set(found) == {one.name for one in VARIANTS}
    assert all(isinstance(one, UnlinkedError) for one in found.values())
    plain = find_variant(FAMILIES, "reduceShfl", {})
    assert compiler.compile(plain.name, render(plain), ARCH).registers > 0


def test_a_rehearsal_without_a_linker_has_found_nothing_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Skips:
        def verdicts(self, variants: Sequence[Variant], _deadline: float | None) -> list[Verdict]:
            return [Verdict(made, "skipped", 0, "not here") for made in variants]

    monkeypatch.setattr(nvrtc, "find_linker", none)
    compiler: Any = SimpleNamespace(compile_many=partial(compile_each, Nvrtc(tmp_path)))
    done = rehearse(VARIANTS[:1], Limits.of(ARCH), compiler, Skips())  # type: ignore[arg-type]
    assert done.ok
    assert all(isinstance(one.compiled, UnlinkedError) for one in done.variants)


def test_no_linker_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    class Missing:
        def __init__(self) -> None:
            none()

    monkeypatch.setattr(module, "JitLinker", Missing)
    monkeypatch.setattr(module, "find_program", lambda _: None)
    with pytest.raises(MissingToolError, match=rf"nvJitLink or nvcc. Run: {re.escape(how_to_install('link'))}"):
        module.find_linker()


def test_the_library_lies_beside_the_headers(tmp_path: Path) -> None:
    assert find_library("cudadevrt", headers_folder()).name == "libcudadevrt.a"
    (tmp_path / "lib64").mkdir()
    with pytest.raises(MissingToolError, match=r"libcudadevrt\.a must lie beside CUDA's headers"):
        find_library("cudadevrt", tmp_path / "include")
    (tmp_path / "lib64" / "libcudadevrt.a").touch()
    assert find_library("cudadevrt", tmp_path / "include") == tmp_path / "lib64" / "libcudadevrt.a"


def test_the_linkers_log_says_what_kernels_take_now() -> None:
    said = "used 26 registers, used 1 barriers, 16 stack, 1088 bytes smem, 552 bytes cmem[0], 0 bytes lmem"
    log = f"nvlink info    : Function properties for 'f':\nnvlink info    : {said}\n"
    before = {"f": Resources(24, 0, 0, 0, 64, 0), "g": Resources(8, 0, 0, 0, 0, 0)}
    # Shared memory stays the compiler's: the linker counts what the system keeps of it.
    assert Linked(b"", log).resources(before) == {"f": Resources(26, 0, 0, 16, 64, 0), "g": before["g"]}
