"""Building emitted text for the CPU: what is refused and how it is said, what is kept, what is mended."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.dtypes import F32
from gen.errors import CompileError, MissingToolError, StoreError
from gen.families.base import Launch, Limits, Operand, Plan, Variant
from gen.families.expr import ONE
from gen.proof.build import (
    ABANDONED_SECONDS,
    GAP,
    LINE,
    LOCALS_GXX,
    LOCKING_SECONDS,
    PREFIX,
    VARIANTS_PER_UNIT,
    Builder,
    Gpp,
    Source,
    Workplace,
    aligned_as_declared,
    set_apart,
)
from gen.proof.host import HostFault, HostRunner
from gen.toolchain import headers
from gen.toolchain.cache import Cache
from gen.toolchain.headers import NEEDED
from tests.fake_family import fake_variant

OUT = Operand("out", "out", F32)
PLAN = Plan((Launch((ONE, ONE, ONE), (1, 1, 1), ("out",)),))


def store(variant: Variant) -> str:
    """A kernel that stores the last digits of its name."""
    digits = "".join(letter for letter in variant.spec.label if letter.isdigit()) or "0"
    return f'extern "C" __global__ void {variant.name}(float* out) {{ out[threadIdx.x] = {digits}.0f; }}\n'


def made(label: str) -> Variant:
    return fake_variant(label, (OUT,), PLAN)


def runner(cache: Path, text: Callable[[Variant], str] = store) -> HostRunner:
    return HostRunner(Limits.of("sm_90"), cache=cache, text=text)


def result(cache: Path, label: str = "v7", text: Callable[[Variant], str] = store) -> float:
    (kernel,) = runner(cache, text).load([made(label)])
    out = np.zeros((), np.float32)
    kernel.run({}, {"out": out})
    return float(out)


def test_what_a_killed_process_left_behind_goes_and_what_others_build_stays(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, pathlib\n"
        "from gen.proof.build import Workplace\n"
        "with Workplace(pathlib.Path(sys.argv[1])) as place:\n"
        "    (place / 'deep').mkdir()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    with Workplace(tmp_path) as place:
        Builder(tmp_path)
        assert {*tmp_path.iterdir()} == {left, place}  # its owner may be about to lock it
        for folder in (left, place):
            os.utime(folder, (time.time() - 2 * LOCKING_SECONDS,) * 2)
        Builder(tmp_path)
        assert {*tmp_path.iterdir()} == {place}
    assert not [*tmp_path.iterdir()]


def test_where_there_are_no_locks_it_goes_a_day_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", refuse)
    old, young = (tmp_path / f"{PREFIX}{name}" for name in ("old", "young"))
    for folder, age in ((old, ABANDONED_SECONDS + 60), (young, ABANDONED_SECONDS - 3600)):
        folder.mkdir()
        os.utime(folder, (time.time() - age,) * 2)
    Builder(tmp_path)
    assert {*tmp_path.iterdir()} == {young}


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Path:
    """A cache that holds the runtime, which all tests share, and v7."""
    Builder(cache).runtime  # noqa: B018 - builds it
    folder = tmp_path_factory.mktemp("warm")
    shutil.copytree(cache / "runtime", folder / "runtime")
    assert result(folder) == 7.0
    return folder


def forbid_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run

    def run(arguments: list[str], *others: Any, **named: Any) -> Any:
        assert arguments[1:] == ["--version"], "the compiler was called"
        return real(arguments, *others, **named)

    monkeypatch.setattr(subprocess, "run", run)


def test_what_is_built_is_not_built_again(warm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_compiling(monkeypatch)
    assert result(warm) == 7.0


def test_another_text_of_the_same_name_is_another_kernel(warm: Path) -> None:
    assert result(warm, text=lambda variant: store(variant).replace("7.0f", "8.0f")) == 8.0
    assert result(warm) == 7.0


def test_more_variants_than_a_unit_holds(warm: Path) -> None:
    variants = [made(f"v{number}") for number in range(2 * VARIANTS_PER_UNIT + 3)]
    out = np.zeros((), np.float32)
    for number, kernel in enumerate(runner(warm).load(variants)):
        kernel.run({}, {"out": out})
        assert out == number
    assert len(list(warm.glob("kernels/*/*.so"))) >= 3


@pytest.mark.parametrize(
    "kind", ["kernels/*/*.so", pytest.param("runtime/*/*.so", marks=pytest.mark.exhaustive), "slots/*/*.json"]
)
def test_damaged_cache_is_set_aside_and_rebuilt(warm: Path, tmp_path: Path, kind: str) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    victims = list(cache.glob(kind))
    assert victims
    for path in victims:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
    assert result(cache) == 7.0
    assert not list(cache.glob("building-*"))
    assert list(cache.glob(f"{kind}.corrupt"))


def test_headers_are_read_once_for_all_texts(warm: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    assert result(cache, "v98") == 98.0
    (text,) = cache.glob("headers/*/*.h")
    text.write_text("#error read again\n")
    assert result(cache, "v99") == 99.0


def test_damaged_headers_are_set_aside_and_read_again(warm: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    (kept,) = cache.glob("headers/*/*.gch")
    kept.write_bytes(kept.read_bytes()[:1000])
    assert result(cache, "v98") == 98.0
    assert kept.exists()
    assert kept.with_name(f"{kept.name}.corrupt").stat().st_size == 1000


def test_library_that_does_not_load_is_set_aside_and_rebuilt(warm: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    for path in list(cache.glob("kernels/*/*.so")):
        Cache(cache / "kernels", ".so").write(path.stem, b"whole, yet no library")
    assert result(cache) == 7.0
    assert list(cache.glob("kernels/*/*.corrupt"))


@pytest.mark.parametrize("held", ["runtime", pytest.param("nothing", marks=pytest.mark.exhaustive)])
def test_the_same_is_built_in_one_cache_by_many_at_once(held: str, warm: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    if held == "runtime":
        shutil.copytree(warm / "runtime", cache / "runtime")
    source = Source("fake_v8__fake", store(made("v8")), ("fake_v8__fake",), 900)
    with ThreadPoolExecutor(2) as pool:
        codes = list(pool.map(lambda _: Builder(cache).load([source])[0], range(2)))
    assert {code.name for code in codes} == {"fake_v8__fake"}
    assert not list(cache.rglob("*.corrupt"))
    assert not (cache / "refused").exists()


def test_checks_work_from_every_cache_of_a_process(warm: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    for place in (warm, cache):
        with pytest.raises(HostFault) as caught:
            result(place, "v9", lambda variant: store(variant).replace("threadIdx.x", "threadIdx.x + 1"))
        assert caught.value.kind == "out-of-bounds write"
        assert caught.value.line == 1


def test_refused_variant_is_named_among_many(warm: Path) -> None:
    def text(variant: Variant) -> str:
        return store(variant).replace("=", "= nothing +" if variant.spec.label == "v3" else "=")

    with pytest.raises(CompileError) as caught:
        runner(warm, text).load([made(f"v{number}") for number in range(5)])
    assert "fake_v3__fake does not compile" in str(caught.value)
    assert "fake_v3__fake.cu:1" in caught.value.log
    assert "nothing" in caught.value.source.read_text()
    assert caught.value.source.name == "fake_v3__fake.cu"


def test_shared_array_that_fell_out_of_its_section(warm: Path) -> None:
    text = """
    template <int count>
    __device__ float lost(int i) { __shared__ float tile[count]; tile[i] = 1.0f; return tile[i]; }
    extern "C" __global__ void NAME(float* out) { *out = lost<32>(threadIdx.x); }
    """
    with pytest.raises(CompileError, match=r"tile.*outside shared and constant memory"):
        result(warm, text=lambda variant: text.replace("NAME", variant.name))


@pytest.mark.parametrize(
    "text",
    [
        '__device__ int counter;\nextern "C" __global__ void NAME(float* out) { *out = counter++; }\n',
        'extern "C" __global__ void NAME(float* out) { static int counter; *out = counter++; }\n',
    ],
    ids=["device variable", "static local"],
)
def test_a_variable_that_outlives_its_launch_is_refused(warm: Path, text: str) -> None:
    with pytest.raises(CompileError, match=r"\ncounter is a variable outside shared.*`__device__` variables"):
        result(warm, text=lambda variant: text.replace("NAME", variant.name))


HELD = "const float* p;\n{ float kept[2] = {1.0f, 2.0f}; p = kept; SOON }\nout[0] = LATER;"


@pytest.mark.skipif(Gpp().major < LOCALS_GXX, reason="g++ does not look for them")
def test_a_pointer_to_a_local_that_is_gone_is_refused(warm: Path) -> None:
    def text(body: str) -> str:
        return f'extern "C" __global__ void NAME(float* out) {{\n{body}\n}}\n'

    clean, faulty = (
        text(HELD.replace("SOON", soon).replace("LATER", later))
        for soon, later in (("out[0] = p[1];", "out[0]"), ("", "p[threadIdx.x]"))
    )
    assert result(warm, text=lambda variant: clean.replace("NAME", variant.name)) == 2.0
    with pytest.raises(CompileError, match="dangling pointer"):
        result(warm, text=lambda variant: faulty.replace("NAME", variant.name))


@pytest.mark.skipif(Gpp().major < LOCALS_GXX, reason="g++ fills no locals")
@pytest.mark.parametrize(("kind", "use"), [("float", "x"), ("int", "x"), ("float", "fminf(x, 9.0f)"), ("int", "x + 1")])
def test_a_scalar_that_one_path_leaves_unset_is_not_what_another_makes_it(warm: Path, kind: str, use: str) -> None:
    body = f"{kind} x = 7;\nif (out[0] > 100.0f) x = 7;\n"
    kernel = 'extern "C" __global__ void NAME(float* out) {\nout[0] = threadIdx.x;\nBODY out[0] = USE;\n}\n'
    clean = kernel.replace("BODY", body).replace("USE", use)
    right = result(warm, text=lambda variant: clean.replace("NAME", variant.name))
    assert right in (7.0, 8.0)
    faulty = clean.replace("x = 7;", "x;", 1)
    assert result(warm, text=lambda variant: faulty.replace("NAME", variant.name)) != right


def test_dynamic_shared_memory_has_one_form(warm: Path) -> None:
    text = 'extern "C" __global__ void NAME(float* out) { extern __shared__ float tile[]; *out = tile[0]; }\n'
    with pytest.raises(CompileError, match="declared in one form"):
        result(warm, text=lambda variant: text.replace("NAME", variant.name))


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("#ifdef __CUDACC__", "__CUDACC__"), ("#if !defined(__CUDACC_RTC__)", "__CUDACC_RTC__"),
        ("  #  if __CUDA_ARCH__ >= 800 && \\\n  !defined(NDEBUG)", "NDEBUG"), ("#ifndef CUDA_ON_HOST", "CUDA_ON_HOST"),
        ("#define GPU __NVCC__\n#if GPU", "__NVCC__"), ("#if 1\n#elif __x86_64__", "__x86_64__"),
    ],
)  # fmt: skip
def test_a_text_that_tells_the_compilers_apart_is_refused(warm: Path, condition: str, named: str) -> None:
    told = f"\n{condition}\n*out = 8.0f;\n#endif\n"
    with pytest.raises(CompileError, match=rf"\.cu:\d+: `{named}` is known to some compilers alone"):
        result(warm, text=lambda variant: store(variant).replace("}", f"{told}}}", 1))


def test_a_text_may_ask_for_the_architecture_and_its_own_macros(warm: Path) -> None:
    told = "\n#define SEVEN 7  // __CUDACC__\n#if SEVEN == 7 && __CUDA_ARCH__ >= 700\n*out = SEVEN;\n#endif\n"
    assert result(warm, text=lambda variant: store(variant).replace("}", f"{told}}}", 1)) == 7.0


@pytest.mark.parametrize("forbidden", ["INFINITY", "uint32_t(1)", 'printf("")', "std::min(1, 2)"])
def test_what_nvrtc_lacks_is_refused_here_too(warm: Path, forbidden: str) -> None:
    with pytest.raises(CompileError):
        result(warm, text=lambda variant: store(variant).replace("7.0f", forbidden))


def test_kernel_that_its_plan_names_is_missing(warm: Path) -> None:
    with pytest.raises(CompileError, match="fake_v7__fake"):
        result(warm, text=lambda variant: store(variant).replace(variant.name, "another"))


def test_a_folder_of_any_name_holds_what_is_built(warm: Path, tmp_path: Path) -> None:
    cache = tmp_path / "quo\"te, new\nline, back\\slash, a 'b' $c %d"
    shutil.copytree(warm / "runtime", cache / "runtime")
    assert result(cache, "v5") == 5.0
    with pytest.raises(HostFault) as caught:
        result(cache, "v9", lambda variant: "\n" + store(variant).replace("threadIdx.x", "threadIdx.x + 1"))
    assert caught.value.line == 2


@pytest.mark.parametrize("step", ["-S", "-c"])
def test_a_full_disk_is_no_fault_of_the_source(tmp_path: Path, step: str) -> None:
    (source := tmp_path / "right.cpp").write_text("int right() { return 7; }\n")
    with pytest.raises(StoreError, match=r"g\+\+ cannot write what it makes .*No space left on device.* Make room"):
        Gpp().compile([step, str(source), "-o", "/dev/full"], "right", source)


def test_missing_compiler_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingToolError, match="apt install g"):
        result(tmp_path)


def test_missing_headers_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partly = tmp_path / "include"
    partly.mkdir()
    for name in NEEDED[:-1]:
        (partly / name).touch()
    monkeypatch.setattr(headers, "places", lambda: iter([tmp_path, partly]))
    monkeypatch.setattr("gen.proof.build.places", lambda: iter([partly]))
    with pytest.raises(MissingToolError, match=r"no crt/host_defines\.h.*pip install nvidia-cuda-runtime"):
        result(tmp_path)


def test_headers_are_taken_from_the_first_place_that_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tmp_path / "toolkit" / "include"
    for name in NEEDED:
        (whole / name).parent.mkdir(parents=True, exist_ok=True)
        (whole / name).touch()
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_header_directory", lambda _: str(tmp_path))
    monkeypatch.setattr(headers, "find_spec", lambda _: None)
    monkeypatch.setenv("CUDA_HOME", str(whole.parent))
    assert headers.headers_for_gpp() == whole


@pytest.mark.parametrize(
    ("declared", "element"),
    [
        ("__shared__ float tile[64];", "float"),
        ("__shared__ volatile unsigned long long tile[kRows][kCols + 1], last;", "unsigned long long"),
        ("__shared__ __align__(16) Pair<float, 2> tile[64];", "Pair<float, 2>"),
        ("  __shared__ detail::State state;", "detail::State"),
        ("extern int tile[64];", ""),
    ],
)
def test_shared_arrays_are_aligned_as_they_say(declared: str, element: str) -> None:
    before, shared, after = declared.partition("__shared__")
    attribute = f" __attribute__((aligned(alignof({element}))))" if element else ""
    assert aligned_as_declared(declared) == before + shared + attribute + after


def test_there_is_a_gap_before_each_shared_array_and_nowhere_else() -> None:
    first, second = ("\t.align 16\n\t.type\tone, @object\none:", "\t.type\tlast, @object\nlast:")
    text = '\t.section\t{},"aw"\n' + first + "\n" + second + "\n\t.text\n\t.align 8\n\t.type\ttwo, @object"
    assert set_apart(text.format("constant_0")) == text.format("constant_0")
    gaps = re.findall(r"balign (\d+)\n\t.zero (\d+)", set_apart(text.format("shared_0")))
    assert gaps == [(str(LINE), str(GAP + 16)), (str(LINE), str(GAP + 1))]


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright", 12),
        ("g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n", 11),
        ("g++ (GCC) 15.1.1 20250425 (Red Hat 15.1.1-1)\n", 15),
        ("something else", 0),
    ],
)
def test_the_version_of_gpp(said: str, major: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpp, "version", said)
    assert Gpp().major == major
