"""NVRTC compiles, explains what it refuses, and is asked once for each content."""

from __future__ import annotations

import logging
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from gen.errors import CompileError, GenError, MissingToolError, UnknownNameError
from gen.toolchain import nvrtc as module
from gen.toolchain.compiled import Compiled, Compiler, Resources, compile_each, read_ptxas
from gen.toolchain.nvrtc import Nvrtc

CHECKOUT = Path(__file__).parents[2]

REVERSE = """
extern "C" __global__ void reverse(float* x) {
  __shared__ float tile[256];
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
HALF = """
#include <cuda_fp16.h>
extern "C" __global__ void widen(const __half* x, float* y) { y[threadIdx.x] = __half2float(x[threadIdx.x]); }
"""
TWO = REVERSE + 'extern "C" __global__ void zero(float* x) { x[threadIdx.x] = 0; }\n'
SPILLS = """
extern "C" __global__ BOUNDS void many(const float* x, float* y, int n) {
  float kept[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) kept[i] = x[i * n];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) y[i * n] = kept[95 - i] * kept[i];
}
"""
STACK = """
__device__ __noinline__ float pick(const float* x, int n) {
  float local[32];
  for (int i = 0; i < n; ++i) local[i * 7 % 32] = x[i];
  return local[n % 32];
}
extern "C" __global__ void calls(const float* x, float* y, int n) { y[0] = pick(x, n) + pick(x, n + 1); }
"""
BROKEN = 'extern "C" __global__ void broken(float* x) { x[0] = misspelt; }\n'
TOO_MUCH = """
extern "C" __global__ void hoards(float* x) {
  __shared__ float tile[20000];
  tile[threadIdx.x] = x[0];
  __syncthreads();
  x[1] = tile[(int)x[0]];
}
"""


@pytest.fixture(scope="module")
def fresh() -> Nvrtc:
    return Nvrtc(None)


class Counting(Nvrtc):
    """Counts what it really compiles."""

    count = 0

    def _compile(self, name: str, text: str, arch: str) -> Compiled:
        self.count += 1
        return super()._compile(name, text, arch)


def test_it_is_a_compiler(fresh: Nvrtc) -> None:
    compiler: Compiler = fresh
    assert compiler.version.startswith("nvrtc 13.0")


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_90a", "sm_100"])
def test_kernels_become_machine_code(fresh: Nvrtc, arch: str) -> None:
    compiled = fresh.compile("two", TWO, arch)
    assert (compiled.name, compiled.arch) == ("two", arch)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.resources.keys() == {"reverse", "zero"}


def test_shared_memory_and_registers_are_of_each_kernel(fresh: Nvrtc) -> None:
    resources = fresh.compile("two", TWO, "sm_90").resources
    assert resources["reverse"].static_shared_bytes == 1024
    assert resources["zero"].static_shared_bytes == 0
    assert all(0 < used.registers <= 255 for used in resources.values())


def test_spills_are_counted() -> None:
    compiler, bounded = Nvrtc(None), SPILLS.replace("BOUNDS", "__launch_bounds__(1024, 2)")
    many = compiler.compile("many", bounded, "sm_90").resources["many"]
    assert many.registers <= 32
    assert many.spill_store_bytes > 0
    assert many.spill_load_bytes > 0
    unbounded = SPILLS.replace("BOUNDS", "")
    assert compiler.compile("many", unbounded, "sm_90").resources["many"].spill_store_bytes == 0


def test_a_called_functions_stack_is_its_callers(fresh: Nvrtc) -> None:
    resources = fresh.compile("calls", STACK, "sm_90").resources
    assert resources.keys() == {"calls"}
    assert resources["calls"].stack_bytes >= 128


def test_half_precision_has_its_header(fresh: Nvrtc) -> None:
    assert "widen" in fresh.compile("widen", HALF, "sm_90").resources


def test_the_same_source_gives_the_same_code(fresh: Nvrtc) -> None:
    assert fresh.compile("one", TWO, "sm_90").cubin == fresh.compile("other", TWO, "sm_90").cubin


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BROKEN, 'broken_one.cu(1): error: identifier "misspelt" is undefined'),
        (TOO_MUCH, "uses too much shared data"),
        ('#include "absent.h"\n', 'cannot open source file "absent.h"'),
        ('extern "C" __global__ void k() { asm("nonsense;"); }\n', "ptxas"),
    ],
)
def test_a_refused_source_is_kept_with_the_compilers_words(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        Nvrtc(tmp_path).compile("broken_one", text, "sm_90")
    assert caught.value.source == tmp_path / "failed" / "broken_one.cu"
    assert caught.value.source.read_text() == text
    assert said in caught.value.log
    for part in ("broken_one does not compile", said, str(caught.value.source)):
        assert part in str(caught.value)
    assert "\0" not in str(caught.value)
    assert "Compile time" not in str(caught.value)


def test_a_refused_source_is_kept_without_a_cache_too(fresh: Nvrtc) -> None:
    with pytest.raises(CompileError) as caught:
        fresh.compile("broken", BROKEN, "sm_90")
    assert caught.value.source.read_text() == BROKEN


def test_a_refused_source_stays_in_its_folder_whatever_its_name(tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        Nvrtc(tmp_path).compile("../../up", BROKEN, "sm_90")
    assert caught.value.source.parent == tmp_path / "failed"


@pytest.mark.parametrize("arch", ["sm_13", "sm_80a", "sm_90f", "compute_90", "90", ""])
def test_an_unknown_architecture_is_refused_before_compiling(tmp_path: Path, arch: str) -> None:
    compiler = Counting(tmp_path)
    with pytest.raises(UnknownNameError, match=r"The architecture must be one that nvrtc .* knows: sm_75, .*sm_90"):
        compiler.compile("reverse", REVERSE, arch)
    assert compiler.count == 0
    assert list(tmp_path.iterdir()) == []


def test_a_second_compiler_finds_what_the_first_made(tmp_path: Path) -> None:
    made = Nvrtc(tmp_path).compile("first", TWO, "sm_90")
    second = Counting(tmp_path)
    assert second.compile("second", TWO, "sm_90") == replace(made, name="second")
    assert second.count == 0


def test_a_refused_source_is_tried_again(tmp_path: Path) -> None:
    compiler = Counting(tmp_path)
    for _ in range(2):
        with pytest.raises(CompileError):
            compiler.compile("broken", BROKEN, "sm_90")
    assert compiler.count == 2


def test_a_corrupt_entry_is_compiled_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiler = Counting(tmp_path)
    made = compiler.compile("reverse", REVERSE, "sm_90")
    (entry,) = tmp_path.rglob("*.cubin")
    entry.write_bytes(entry.read_bytes()[:1000])
    with caplog.at_level(logging.WARNING):
        assert compiler.compile("reverse", REVERSE, "sm_90") == made
    assert compiler.count == 2
    assert [path.name for path in tmp_path.rglob("*.corrupt")] == [f"{entry.name}.corrupt"]
    assert "corrupt" in caplog.text


def test_what_is_kept_is_the_same_every_time(tmp_path: Path) -> None:
    for folder in ("one", "other"):
        Nvrtc(tmp_path / folder).compile("reverse", REVERSE, "sm_90")
    one, other = sorted(tmp_path.rglob("*.cubin"))
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()  # ptxas's compile time is not in it


def test_every_part_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Nvrtc(None)
    keys = [usual.key(REVERSE, "sm_90"), usual.key(TWO, "sm_90"), usual.key(REVERSE, "sm_90a")]
    keys.append(Nvrtc(None, line_info=True).key(REVERSE, "sm_90"))
    for function in ("nvrtc_version", "headers_version"):
        with monkeypatch.context() as patch:
            patch.setattr(module, function, lambda: "13.0.1")
            keys.append(Nvrtc(None).key(REVERSE, "sm_90"))
    assert len(set(keys)) == len(keys)
    assert Nvrtc(None).key(REVERSE, "sm_90") == keys[0]


def test_the_key_names_no_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert Nvrtc(tmp_path).key(REVERSE, "sm_90") == Nvrtc(None).key(REVERSE, "sm_90")


def test_threads_may_share_a_compiler_and_what_it_refuses_is_told_apart(tmp_path: Path) -> None:
    items = [(f"k{i}", f'extern "C" __global__ void k{i}(int* x) {{ x[0] = {i}; }}\n') for i in range(6)]
    items.insert(2, ("broken", BROKEN))
    compiler = Nvrtc(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        results = [found for (found,) in pool.map(lambda item: list(compile_each(compiler, [item], "sm_90")), items)]
    assert [one.name if isinstance(one, Compiled) else one.subject for one in results] == [name for name, _ in items]
    assert [isinstance(one, CompileError) for one in results] == [name == "broken" for name, _ in items]


def test_a_packed_result_comes_back() -> None:
    compiled = Compiled("k", "sm_90", b"\x7fELF\n\0{}", {"k": Resources(1, 2, 3, 4, 5, 6)})
    assert Compiled.unpack("k", compiled.pack()) == compiled
    assert Compiled.unpack("other", compiled.pack()).name == "other"


def test_a_log_of_another_form_is_refused() -> None:
    with pytest.raises(GenError, match="must say what k uses"):
        read_ptxas("ptxas info    : Compiling entry function 'k' for 'sm_90'\nptxas info    : it took 12 registers\n")


def test_constant_memory_is_read_where_it_is_told() -> None:
    log = (
        "ptxas info    : 0 bytes gmem, 400 bytes cmem[3]\n"
        "ptxas info    : Compiling entry function 'k' for 'sm_75'\n"
        "ptxas info    : Function properties for k\n"
        "ptxas         .     128 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n"
        "ptxas info    : Used 21 registers, used 1 barriers, 160 bytes cumulative stack size, 1024 bytes smem, "
        "372 bytes cmem[0], 8 bytes cmem[2]\n"
        "ptxas info    : Compile time = 5.625 ms\n"
    )
    assert read_ptxas(log) == {"k": Resources(21, 4, 8, 160, 1024, 380)}


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise RuntimeError("no libnvrtc")

    monkeypatch.setattr("gen.toolchain.nvrtc.nvrtc.nvrtcVersion", absent)
    with pytest.raises(MissingToolError, match=r"pip install 'nvidia-cuda-nvrtc==13\.0\.\*'"):
        Nvrtc(None)


def test_missing_headers_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_header_directory", lambda _: None)
    with pytest.raises(MissingToolError, match=r"pip install 'nvidia-cuda-runtime==13\.0\.\*'"):
        Nvrtc(None)


@pytest.mark.parametrize("absent", ["cuda.bindings", "cuda.pathfinder"])
def test_missing_packages_say_what_to_install(absent: str) -> None:
    code = (
        f"import sys; sys.modules[{absent!r}] = None\n"
        "from gen.errors import MissingToolError\n"
        "try: import gen.toolchain.nvrtc\n"
        "except MissingToolError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'cuda-bindings>=13,<14' 'cuda-pathfinder>=1.4.2'" in done.stdout


def test_ctrl_c_interrupts_a_wait_after_something_was_compiled() -> None:
    code = (
        "import os, queue, signal, threading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # whoever runs the tests may ignore it
        "from gen.toolchain.nvrtc import Nvrtc\n"
        f"Nvrtc(None).compile('reverse', {REVERSE!r}, 'sm_90')\n"
        "threading.Timer(0.5, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()\n"
        "try: queue.SimpleQueue().get()\n"
        "except BaseException as error: print(type(error).__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout == b"KeyboardInterrupt\n"
