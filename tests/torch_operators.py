"""What holds of gen's operators of torch on any device; who imports these tests has a fixture `place`: the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gen
import gen.torch
from gen.errors import GenError
from gen.families.stencil.spec import BOUNDARIES

SMOOTH = ("sum", "mean", "var", "std", "vector_norm", "min", "max", "prod")
"""Reductions that have gradients."""
BLUR = [[0.0, 1.0, 0.0], [2.0, -3.0, 0.5], [0.0, 1.0, 0.25]]


def numbers(*shape: int, place: str, dtype: Any = torch.float64, seed: int = 0) -> Any:
    """Numbers that are all different, and none of them 0."""
    count = int(np.prod(shape))
    values = np.random.default_rng(seed).permutation(count) * 0.25 - count / 8 + 0.1
    return torch.tensor(values, device=place).reshape(shape).to(dtype)


def reference(name: str, x: Any, axis: int) -> Any:
    """The same of torch's own."""
    if name in ("min", "max"):
        return getattr(torch, f"a{name}")(x, axis)
    if name in ("var", "std"):
        return getattr(torch, name)(x, axis, correction=0)
    if name == "vector_norm":
        return torch.linalg.vector_norm(x, dim=axis)
    return getattr(torch, name)(x, axis)


@pytest.mark.parametrize("name", SMOOTH)
def test_reductions_and_their_gradients_are_those_of_torch(name: str, place: str) -> None:
    function: Callable[..., Any] = getattr(gen.torch, name)
    ours = numbers(3, 4, place=place).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    found, wanted = function(ours, axis=1), reference(name, theirs, 1)
    torch.testing.assert_close(found, wanted)
    weights = numbers(3, place=place, seed=1)
    (found * weights).sum().backward()
    (wanted * weights).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert torch.autograd.gradcheck(lambda x: function(x, axis=1, keepdims=True), ours)
    assert torch.autograd.gradgradcheck(lambda x: function(x, axis=1), ours)


@pytest.mark.parametrize("zeros", [1, 2])
def test_the_gradient_of_a_product_with_zeros(zeros: int, place: str) -> None:
    x = numbers(3, 4, place=place)
    x[1, :zeros] = 0
    x.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: gen.torch.prod(x, axis=1), x)
    assert torch.autograd.gradgradcheck(lambda x: gen.torch.prod(x, axis=1), x)


def test_elements_that_are_equally_great_share_the_gradient(place: str) -> None:
    x = torch.tensor([[2.0, 5.0, 5.0, 1.0]], device=place, dtype=torch.float64, requires_grad=True)
    gen.torch.max(x, axis=1).sum().backward()
    torch.testing.assert_close(x.grad, x.new_tensor([[0.0, 0.5, 0.5, 0.0]]))


@pytest.mark.parametrize("name", ["std", "vector_norm"])
def test_where_a_root_is_0_its_gradient_is_0(name: str, place: str) -> None:
    x = torch.zeros(3, 4, device=place, dtype=torch.float64, requires_grad=True)
    getattr(gen.torch, name)(x, axis=1).sum().backward()
    assert x.grad is not None
    assert not x.grad.any()


def test_results_have_the_dtypes_of_numpy(place: str) -> None:
    x = torch.tensor([[1, 2, -3, 0]], dtype=torch.int8, device=place)
    for name, dtype in (("sum", torch.int64), ("argmax", torch.int64), ("any", torch.bool), ("max", torch.int8)):
        found = getattr(gen.torch, name)(x, axis=1)
        assert found.dtype == dtype
        assert found.item() == getattr(np, name)(x.cpu().numpy(), axis=1)[0]


@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1), (-1, -2, -3)])
def test_permutations_and_their_gradients(axes: tuple[int, ...], place: str) -> None:
    x = numbers(2, 3, 4, place=place).requires_grad_()
    found = gen.torch.permute_dims(x, axes)
    assert found.is_contiguous()
    assert torch.equal(found, x.permute(axes))
    assert torch.autograd.gradcheck(lambda x: gen.torch.permute_dims(x, axes), x)
    assert torch.equal(gen.torch.permute_dims(found, axes), found.permute(axes))
    for view in (x.permute(axes), x[:, ::2], x[:1].expand(2, 3, 4)):
        assert torch.equal(gen.torch.permute_dims(view, axes), view.permute(axes))


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("mode", [*BOUNDARIES, [("mirror", "frozen"), ("nearest", "wrap")]], ids=str)
def test_stencils_and_their_gradients(mode: Any, steps: int, place: str) -> None:
    x = numbers(4, 5, place=place).requires_grad_()
    step = gen.torch.operator(gen.stencil(BLUR, boundary=mode, dtype="f64", cval=1.5 if mode == "constant" else 0.0))
    assert torch.autograd.gradcheck(lambda x: step(x, steps=steps), x, eps=1e-3)  # linear: no step is too long
    if steps == 1:
        found = gen.torch.correlate(x, BLUR, mode, 1.5)
        torch.testing.assert_close(found, step(x))
        assert torch.autograd.gradgradcheck(step, x, eps=1e-3)


@pytest.mark.parametrize("origin", [0, (0, -1)])
def test_filters_are_those_of_scipy(origin: Any, place: str) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x, weights = numbers(4, 5, place=place), [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]
    cells = x.cpu().numpy()
    for name in ("correlate", "convolve"):
        wanted = getattr(ndimage, name)(cells, np.array(weights), mode="mirror", origin=origin)
        torch.testing.assert_close(getattr(gen.torch, name)(x, weights, "mirror", origin=origin).cpu().numpy(), wanted)
    torch.testing.assert_close(gen.torch.laplace(x).cpu().numpy(), ndimage.laplace(cells))
    along = gen.torch.laplace(x, "wrap", axes=(1,)).cpu().numpy()
    torch.testing.assert_close(along, ndimage.laplace(cells, mode="wrap", axes=(1,)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.bfloat16, torch.float16])
def test_stencils_of_small_cells_round_to_the_nearest_and_saturate(dtype: Any, place: str) -> None:
    x = torch.arange(40, 60, device=place).reshape(4, 5).to(dtype)
    found = gen.torch.correlate(x, [[0.5, 1.0, 4.0]], "wrap")
    wanted = gen.torch.correlate(x.to(torch.float32), [[0.5, 1.0, 4.0]], "wrap").cpu()
    if not dtype.is_floating_point:
        wanted = wanted.round().clamp(*((0, 255) if dtype == torch.uint8 else (-32768, 32767)))
    assert found.dtype == dtype
    assert torch.equal(found.cpu().float(), wanted.to(dtype).float())


OPERATORS: list[tuple[gen.torch.Operator, tuple[Any, ...]]] = [
    (gen.torch.REDUCE, ("sum", [1], 0, None)), (gen.torch.REDUCE, ("var", [0, 1], 1, None)),
    (gen.torch.REDUCE, ("max", [1], 0, None)), (gen.torch.REDUCE, ("argmax", [1], 0, None)),
    (gen.torch.PERMUTE, ([1, 0],)),
    (gen.torch.CORRELATE, ([1.0, 2.0, 4.0], [1, 3], "constant,mirror", 0.0, [0, 0], 1)),
    (gen.torch.CORRELATE_ADJOINT, ([1.0, 2.0, 4.0], [1, 3], "constant,mirror", [0, 0], 1)),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "arguments"), OPERATORS)
def test_torch_finds_nothing_wrong_with_the_operators(
    operator: gen.torch.Operator, arguments: tuple[Any, ...], place: str
) -> None:
    for grad in (False, True):
        torch.library.opcheck(operator.defined, (numbers(3, 4, place=place).requires_grad_(grad), *arguments))


VMAPPED: list[tuple[str, Callable[[Any], Any]]] = [
    ("sum", lambda x: gen.torch.sum(x, axis=0)),
    ("argmax of all", gen.torch.argmax),
    ("permutation", lambda x: gen.torch.permute_dims(x, (1, 0))),
    ("stencil", lambda x: gen.torch.correlate(x, BLUR, "mirror")),
    ("gradient", torch.func.grad(gen.torch.vector_norm)),
    ("gradient of a stencil", torch.func.grad(lambda x: (gen.torch.correlate(x, BLUR, "mirror") ** 2).sum())),
]


@pytest.mark.parametrize(("name", "function"), VMAPPED)
@pytest.mark.parametrize("axis", [0, 2])
def test_vmap_is_one_call_after_another(name: str, function: Callable[[Any], Any], axis: int, place: str) -> None:
    del name
    x = numbers(3, 4, 5, place=place)
    found = torch.vmap(function, in_dims=axis)(x)
    torch.testing.assert_close(found, torch.stack([function(one.contiguous()) for one in x.unbind(axis)]))


class Block(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """A layer of a network: a permutation, a norm by our reductions, and a blur of each channel."""

    def forward(self, x: Any) -> Any:
        x = gen.torch.permute_dims(x, (0, 2, 1))
        spread = gen.torch.std(x, axis=(1, 2), correction=1, keepdims=True)
        x = (x - gen.torch.mean(x, axis=(1, 2), keepdims=True)) / spread
        return gen.torch.correlate(torch.relu(x), [1.0, 2.0, 1.0], "mirror", axes=(2,))


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_network_is_compiled_into_one_graph(dynamic: bool, place: str) -> None:
    backend = "inductor" if place == "cuda" else "aot_eager"  # the one compiles C++ for the host, which takes long
    block = Block()
    compiled = torch.compile(block, fullgraph=True, dynamic=dynamic, backend=backend)
    for shape in ((2, 3, 4), (2, 5, 6)):
        one = numbers(*shape, place=place).requires_grad_()
        other = one.detach().clone().requires_grad_()
        found, wanted = compiled(one), block(other)
        torch.testing.assert_close(found, wanted)
        (found**2).sum().backward()
        (wanted**2).sum().backward()
        torch.testing.assert_close(one.grad, other.grad)


def test_a_network_is_exported(place: str) -> None:
    x = numbers(2, 3, 4, place=place)
    exported = torch.export.export(Block(), (x,))
    named = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
    assert {"gen.permute.default", "gen.reduce.default", "gen.correlate.default"} <= named
    torch.testing.assert_close(exported.module()(x), Block()(x))


class Seen(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, _: Any, arguments: Any = (), named: Any = None) -> Any:
        self.names.append(str(function))
        return function(*arguments, **(named or {}))


def test_whatever_looks_on_sees_the_operator(place: str) -> None:
    x = numbers(3, 4, place=place)
    with Seen() as seen:
        gen.torch.sum(x, axis=1)
    assert "gen.reduce.default" in seen.names
    assert gen.torch.sum(x.requires_grad_(), axis=1).grad_fn is not None
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))
        with pytest.raises((RuntimeError, NotImplementedError)):  # and no tangent is lost
            gen.torch.sum(dual, axis=1)


@pytest.mark.parametrize("grad", [False, True])
def test_what_lies_between_the_gradient_and_the_kernel_is_not_passed_by(grad: bool, place: str) -> None:
    numbers_of = torch.view_as_complex(numbers(3, 4, 2, place=place))
    negated = torch.imag(numbers_of.conj())  # torch negates it when somebody looks
    assert negated.is_neg()
    wanted = negated.resolve_neg().sum(1)
    x = negated.detach().requires_grad_(grad)
    for found in (gen.torch.sum(x, axis=1), gen.torch.REDUCE.defined(x, "sum", [1], 0, None)):
        torch.testing.assert_close(found.detach(), wanted)
        assert found.requires_grad == grad
        if grad:
            (given,) = torch.autograd.grad(found.sum(), x)
            torch.testing.assert_close(given.resolve_neg(), torch.ones_like(given.resolve_neg()))
    meta = torch.empty(3, 4, device="meta", requires_grad=grad)
    found = gen.torch.argmax(meta, axis=1)
    assert (found.device.type, found.dtype, tuple(found.shape)) == ("meta", torch.int64, (3,))


def test_gradients_are_recorded_as_torch_records_them(place: str) -> None:
    x, seen = numbers(3, 4, place=place).requires_grad_(), list[Any]()

    def kept(one: Any) -> Any:
        seen.append(one)
        return one

    with torch.autograd.graph.saved_tensors_hooks(kept, kept):
        found = gen.torch.var(x, axis=1)
    assert len(seen) == 2
    wanted = torch.var(x, 1, correction=0)
    each = torch.eye(3, dtype=x.dtype, device=place)
    ours, theirs = (torch.autograd.grad(one, x, each, is_grads_batched=True)[0] for one in (found, wanted))
    torch.testing.assert_close(ours, theirs)
    with pytest.raises(RuntimeError, match="a second time"):
        found.sum().backward()
    changed = x * 1
    found = gen.torch.var(changed, axis=1)
    changed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        found.sum().backward()
    with torch.inference_mode():
        assert gen.torch.var(x, axis=1).is_inference()
    with torch.no_grad():
        assert not gen.torch.REDUCE.defined(x, "var", [1], 0, None).requires_grad


def test_sums_of_bfloat16(place: str) -> None:
    x = torch.ones(300, dtype=torch.bfloat16, device=place, requires_grad=True)
    found = gen.torch.sum(x, dtype=torch.float32)
    assert found.dtype == torch.float32
    assert found.item() == 300
    found.backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.bfloat16


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: gen.torch.sum(x, axis=2), "axis must name axes from -2 to 1 once each"),
    (lambda x: gen.torch.sum(x, axis=(0, -2)), "axis must name axes from -2 to 1 once each"),
    (lambda x: gen.torch.permute_dims(x, (0, 0)), "axes must name each of the 2 axes of x once"),
    (lambda x: gen.torch.vector_norm(x, ord=1), "ord must be 2"),
    (lambda x: gen.torch.correlate(x, [1.0]), "weights must have 2 axes"),
    (lambda x: gen.torch.correlate(x, [[1.0], [1.0, 2.0]]), "weights must be an array whose rows are equally long"),
    (lambda x: gen.torch.correlate(x, [[1.0]], "periodic"), "boundary must be one of"),
    (lambda _: gen.torch.operator(gen.reduction("minmax")), "spec must be a reduction to one statistic"),
    (lambda _: gen.torch.operator(gen.permutation((1, 0), "float32", to="float16")), "a permutation that changes no"),
]


@pytest.mark.parametrize(("call", "says"), WRONG)
def test_wrong_arguments_are_refused(call: Callable[[Any], Any], says: str, place: str) -> None:
    with pytest.raises(GenError, match=says):
        call(numbers(3, 4, place=place))
