"""gen's operators of torch on the CPU run; where torch is not installed, all of it is skipped."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gen
from gen.errors import ArgumentError

torch = pytest.importorskip("torch")

import gen.torch  # noqa: E402
from tests.torch_operators import *  # noqa: E402, F403

pytestmark = pytest.mark.filterwarnings("default")  # torch warns of its own


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("GEN_DEVICE", "cpu")
    return "cpu"


def test_tensors_of_the_host_are_refused_unless_the_cpu_run_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GEN_DEVICE")
    with pytest.raises(ArgumentError, match=r"x must lie on a GPU .*cpu.*GEN_DEVICE=cpu"):
        gen.torch.sum(torch.ones(3))


def test_gradients_that_a_kernel_does_not_have_are_pointed_to() -> None:
    with pytest.raises(ArgumentError, match=r"gen.torch, which has gradients"):
        gen.sum(torch.ones(3, requires_grad=True), device="cpu")


def test_tensors_without_memory_are_refused_by_kernels() -> None:
    with torch._subclasses.fake_tensor.FakeTensorMode(), pytest.raises(ArgumentError, match="which can be traced"):
        gen.sum(torch.ones(3), device="cpu")


def test_torch_is_not_imported_unless_the_caller_has_it() -> None:
    asked = "import sys, gen, gen.functions; gen.sum; assert not {'torch', 'jax'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", asked], check=True)
