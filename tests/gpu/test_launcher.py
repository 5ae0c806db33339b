"""Calls that the launcher repeats, with torch and CuPy, on the GPU."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError

if TYPE_CHECKING:
    from gen.gpu.cuda import CudaDevice

SUM, TRANSPOSE = "reduction_sum_f32", "transpose_10_b32"


def launcher_only(kernel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails every further call that the launcher does not do."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("Python was asked")

    monkeypatch.setattr(type(kernel), "_by_python", fail)


@pytest.mark.parametrize("name", ["torch", "cupy"])
@pytest.mark.parametrize("size", [1000, 2**18, 2**22])
def test_repeated_calls_give_what_the_first_gave(
    name: str,
    size: int,
    device: CudaDevice,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    library = request.getfixturevalue(name)
    kernel = gen.load(SUM, device=device, home=home)
    values = [np.random.default_rng(seed).integers(-8, 9, size).astype(np.float32) for seed in range(5)]
    arrays = [library.asarray(one, **({"device": "cuda"} if name == "torch" else {})) for one in values]
    out = library.empty_like(arrays[0][0])
    kernel(arrays[0])
    kernel(arrays[0], out=out)
    launcher_only(kernel, monkeypatch)
    for array, value in zip(arrays, values, strict=True):
        assert float(kernel(array)) == value.sum()
        assert kernel(array, out=out) is out
        assert float(out) == value.sum()


def test_a_transpose_of_views(device: CudaDevice, home: Path, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gen.load(TRANSPOSE, device=device, home=home)
    whole = torch.arange(300 * 512, dtype=torch.float32, device="cuda").reshape(300, 512)
    views = [whole, whole[:, :500], whole[:, 1:500], whole[7:, 4:]]
    for view in views:
        kernel(view)
    launcher_only(kernel, monkeypatch)
    for view in views:
        made = kernel(view)
        assert made.is_contiguous()
        assert torch.equal(made, view.t())


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_a_permutation_of_seven_axes(name: str, device: CudaDevice, home: Path, request: pytest.FixtureRequest) -> None:
    """Its kernels have more arguments than others."""
    library, axes = request.getfixturevalue(name), (0, 1, 5, 2, 6, 3, 4)
    kernel = gen.load(gen.permutation(axes, "b16"), device=device, home=home)
    value = np.arange(5 * 3 * 4 * 17 * 17 * 16 * 15, dtype=np.int32).astype(np.int16).reshape(5, 3, 4, 17, 17, 16, 15)
    array = library.asarray(value, **({"device": "cuda"} if name == "torch" else {}))
    wanted = np.ascontiguousarray(value.transpose(axes))
    for _ in range(3):
        moved = kernel(array)
        assert np.array_equal(moved.cpu().numpy() if name == "torch" else moved.get(), wanted)


def test_what_torch_would_negate_or_differentiate_is_refused(device: CudaDevice, home: Path, torch: Any) -> None:
    kernel = gen.load(SUM, device=device, home=home)
    numbers = torch.ones(64, dtype=torch.complex64, device="cuda")
    plain, negated = numbers.imag, numbers.conj().imag
    assert negated.is_neg()
    for _ in range(2):
        assert float(kernel(plain)) == 0
    with pytest.raises(ArgumentError, match="must hold its own values"):
        kernel(negated)
    for one in (torch.ones(64, device="cuda"), torch.ones(64, device="cuda").requires_grad_()):
        if one.requires_grad:
            with pytest.raises(ArgumentError, match="must not require gradients"):
                kernel(one)
            with torch.no_grad():
                assert float(kernel(one)) == 64
                with pytest.raises(ArgumentError, match="out must not require gradients"):
                    kernel(torch.ones(64, device="cuda"), out=torch.zeros((), device="cuda", requires_grad=True))
        else:
            kernel(one)
            kernel(one)


def test_calls_become_part_of_a_graph(device: CudaDevice, home: Path, torch: Any) -> None:
    kernel = gen.load(SUM, device=device, home=home)
    array, out = torch.ones(2**18, device="cuda"), torch.empty((), device="cuda")
    for _ in range(3):
        kernel(array, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(array, out=out)
        kernel(array, out=out)
    for factor in (2, 3):
        array.fill_(factor)
        graph.replay()
        kernel(array, out=torch.empty((), device="cuda"))
        assert float(out) == factor * 2**18


def test_threads_on_streams_of_their_own(device: CudaDevice, home: Path, torch: Any) -> None:
    kernel = gen.load(SUM, device=device, home=home)
    wrong: list[object] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            arrays = [torch.full((2**18,), float(number + place), device="cuda") for place in range(4)]
            for turn in range(200):
                found = float(kernel(arrays[turn % 4]))
                if found != (number + turn % 4) * 2**18:
                    wrong.append((number, turn, found))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
