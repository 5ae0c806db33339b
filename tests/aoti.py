"""A model with gen's operators as a package of AOTInductor, and what runs it without Python."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import gen

SPECS = (gen.reduction("mean", "float32", axis=-1), gen.permutation((1, 0), "float32"))
SHAPE = (64, 32)  # of the model's input, which aoti_run.cpp makes
_MODEL = """
import sys
import torch
import gen.torch

class Centred(torch.nn.Module):
    def forward(self, x):
        return gen.torch.permute_dims(x - gen.torch.mean(x, axis=-1, keepdims=True), (1, 0))

place, package = sys.argv[1:]
exported = torch.export.export(Centred(), (torch.rand(64, 32, device=place),))
torch._inductor.aoti_compile_and_package(exported, package_path=package)
"""


def _compiled(torch: Any, flags: Sequence[object]) -> None:
    from torch.utils.cpp_extension import include_paths, library_paths

    include = [word for path in include_paths() for word in ("-isystem", path)]
    link = [word for path in library_paths() for word in (f"-L{path}", f"-Wl,-rpath,{path}")]
    cuda = ["-Wl,--no-as-needed", "-ltorch_cuda", "-lc10_cuda"] if torch.version.cuda else []
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"
    command = [
        "g++",
        "-O0",
        "-std=c++17",
        abi,
        *include,
        *flags,
        *link,
        *cuda,
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        "-ldl",
    ]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def operators(folder: Path, name: str) -> Path:
    """Builds an exported folder's library, and beside it the one of its operators of torch, which this gives."""
    torch = pytest.importorskip("torch")
    source, own, found = folder / "src", folder / f"lib{name}.so", folder / f"lib{name}_torch.so"
    shared = ["-shared", "-fPIC", f"-I{folder}/include"]
    code = f"-DGEN_CODE_FILE={source}/{name}.code"
    subprocess.run(
        ["g++", "-O0", "-std=c++17", "-ffp-contract=off", *shared, code, "-o", own, source / f"{name}.cpp", "-ldl"],
        check=True,
    )  # fmt: skip
    _compiled(torch, [*shared, "-Wall", "-o", found, source / f"{name}_torch.cpp", own, f"-Wl,-rpath,{folder}"])
    return found


def run(folder: Path, library: Path, place: str) -> tuple[int, str]:
    """Compiles the model for a device, and runs it by C++ alone: the exit status, and what is printed."""
    torch, package, program = pytest.importorskip("torch"), folder / "model.pt2", folder / "aoti_run"
    made = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _MODEL, place, str(package)], capture_output=True, text=True, check=False
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    _compiled(torch, ["-o", program, Path(__file__).with_name("aoti_run.cpp")])
    done = subprocess.run([program, library, package, place], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout
