"""Exported libraries on a GPU: the C++ example prints what NumPy computes; the module takes torch and CuPy arrays."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gen
from gen.cli.app import app
from gen.gpu.device import find_gpu

SPECS = ("reduction_sum_f32", "transpose_10_b32", "stencil_heat_de794a2b_f32")
SHAPES = ("2^20", "1000x1003", "4096x4096")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("export") / "demo"
    device = find_gpu()
    assert device is not None
    shapes = [word for shape in SHAPES for word in ("--shape", shape)]
    command = ["export", *SPECS, "-o", str(made), "--name", "demo", "--arch", device.limits.arch, *shapes]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    code = f"-DGEN_CODE_FILE={made}/src/demo.code"
    library = made / "python" / "demo" / "libdemo.so"
    flags = ["-O2", "-std=c++17", "-ffp-contract=off", f"-I{made}/include"]
    subprocess.run(
        ["g++", *flags, "-shared", "-fPIC", code, "-o", library, made / "src/demo.cpp", "-ldl"], check=True
    )  # fmt: skip
    subprocess.run(
        ["g++", *flags, "-o", made / "example/example", made / "example/main.cpp", library, "-ldl",
         f"-Wl,-rpath,{library.parent}"],
        check=True,
    )  # fmt: skip
    return made


@pytest.fixture(scope="module")
def module(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", folder / "python" / "demo" / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("shape", [(1_000_003,), (1000, 1003), (5,)])
def test_the_example_prints_the_sum_that_numpy_computes(folder: Path, shape: tuple[int, ...]) -> None:
    done = subprocess.run(
        [folder / "example/example", *map(str, shape)], capture_output=True, text=True, check=False, timeout=60
    )
    if len(shape) == 1 and "exported for" in done.stderr:
        pytest.skip("exported for other numbers of axes")
    assert done.returncode == 0, done.stderr
    printed = re.search(r"^sum: (\S+)$", done.stdout, re.MULTILINE)
    assert printed is not None
    wanted = (np.arange(np.prod(shape)) % 7).sum()
    assert float(printed[1]) == pytest.approx(float(wanted), rel=1e-6)


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_the_module_computes_what_gen_computes(module: ModuleType, library: str) -> None:
    arrays: Any = pytest.importorskip(library)
    make = (lambda x: arrays.from_numpy(x).cuda()) if library == "torch" else arrays.asarray
    back = (lambda x: x.cpu().numpy()) if library == "torch" else arrays.asnumpy
    content = np.random.default_rng(3).integers(-4, 5, (1000, 1003)).astype(np.float32)
    there = make(content)
    assert back(module.reduction_sum_f32(there)) == content.sum()
    assert (back(module.transpose_10_b32(there)) == content.T).all()
    for steps in (1, 5):
        wanted = gen.load(SPECS[2])(content, steps=steps)
        assert (back(module.stencil_heat_de794a2b_f32(there, steps=steps)) == wanted).all()
    out = make(np.zeros((1003, 1000), np.float32))
    assert module.transpose_10_b32(there, out=out) is out
    assert (back(out) == content.T).all()


@pytest.mark.parametrize("shape", [(2**20,), (1000, 1003)])
def test_the_library_gets_the_variant_that_gen_loads(module: ModuleType, shape: tuple[int, ...]) -> None:
    pytest.importorskip("torch").zeros(1).cuda()  # makes a context current
    told = module.plan(module.reduction_sum_f32, shape).splitlines()[0]
    assert told == gen.load("reduction_sum_f32").variant_for(shape)


def test_a_tensor_on_the_cpu_is_refused(module: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(module.Error, match="must be in a GPU's memory"):
        module.reduction_sum_f32(torch.zeros(5))
