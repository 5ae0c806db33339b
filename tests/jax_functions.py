"""What holds of gen's functions in programs of JAX, on any device that JAX has; `place` is a fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import gen
import gen.jax
from gen.errors import GenError
from gen.families.stencil.spec import BOUNDARIES

SMOOTH = ("sum", "mean", "var", "std", "vector_norm", "min", "max", "prod")
"""Reductions that have gradients."""
BLUR = [[0.0, 1.0, 0.0], [2.0, -3.0, 0.5], [0.0, 1.0, 0.25]]

pytestmark = pytest.mark.usefixtures("place")


def numbers(*shape: int, seed: int = 0) -> Any:
    """Numbers that are all different, and none of them 0."""
    count = int(np.prod(shape))
    values = np.random.default_rng(seed).permutation(count) * 0.25 - count / 8 + 0.1
    return jnp.asarray(values.reshape(shape), jnp.float32)


def reference(name: str, x: Any, axis: int) -> Any:
    """The same of JAX's own."""
    return jnp.linalg.norm(x, axis=axis) if name == "vector_norm" else getattr(jnp, name)(x, axis)


@pytest.mark.parametrize("name", SMOOTH)
def test_reductions_and_their_gradients_are_those_of_jax(name: str) -> None:
    x, weights = numbers(3, 4), numbers(3, seed=1)

    def weighted(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: (function(x) * weights).sum()

    ours: Callable[[Any], Any] = lambda x: getattr(gen.jax, name)(x, axis=1)  # noqa: E731
    theirs: Callable[[Any], Any] = lambda x: reference(name, x, 1)  # noqa: E731
    np.testing.assert_allclose(jax.jit(ours)(x), theirs(x), rtol=1e-5)
    found, wanted = (jax.jit(jax.grad(weighted(one)))(x) for one in (ours, theirs))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    found, wanted = (jax.grad(lambda x, one=one: jax.grad(weighted(one))(x)[0].sum())(x) for one in (ours, theirs))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)


def test_elements_that_are_equally_great_share_the_gradient() -> None:
    x = jnp.asarray([2.0, 5.0, 5.0, 1.0])
    np.testing.assert_array_equal(jax.grad(gen.jax.max)(x), [0.0, 0.5, 0.5, 0.0])


def test_integers_have_the_types_of_jax() -> None:
    x = jnp.asarray([[1, 2, -3, 0]], jnp.int8)
    for name in ("sum", "argmax", "argmin", "count_nonzero", "any", "max", "mean"):
        found = jax.jit(getattr(gen.jax, name))(x)
        wanted = getattr(jnp, name)(x)
        assert found == wanted
        if name != "sum":  # which JAX adds in the type of the elements
            assert found.dtype == wanted.dtype


@pytest.mark.parametrize("axes", [(1, 0, 2), (-1, -2, -3)])
def test_permutations_and_their_gradients(axes: tuple[int, ...]) -> None:
    x = numbers(2, 3, 4)
    function = jax.jit(lambda x: gen.jax.permute_dims(x, axes))
    np.testing.assert_array_equal(function(x), jnp.transpose(x, axes))
    check_grads(function, (x,), order=2, modes=["rev"])


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("mode", [*BOUNDARIES, [("mirror", "frozen"), ("constant", "wrap")]], ids=str)
def test_stencils_and_their_gradients(mode: Any, steps: int) -> None:
    x, y = numbers(4, 5), numbers(4, 5, seed=1)
    step = gen.jax.operator(gen.stencil(BLUR, boundary=mode))
    forward, pulled = jax.vjp(lambda x: step(x, steps=steps), x)
    np.testing.assert_allclose(jnp.vdot(forward, y), jnp.vdot(x, pulled(y)[0]), rtol=1e-4)
    if steps == 1:
        np.testing.assert_allclose(forward, gen.jax.correlate(x, BLUR, mode))


def test_filters_are_those_of_scipy() -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x, weights = numbers(4, 5), np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]])
    for name in ("correlate", "convolve"):
        wanted = getattr(ndimage, name)(np.asarray(x), weights, mode="mirror", origin=(0, -1))
        found = jax.jit(lambda x, name=name: getattr(gen.jax, name)(x, weights, "mirror", origin=(0, -1)))(x)
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(gen.jax.laplace(x), ndimage.laplace(np.asarray(x)), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "bfloat16"])
def test_stencils_of_small_cells_round_to_the_nearest_and_saturate(dtype: str) -> None:
    x = jnp.arange(40, 60).reshape(4, 5).astype(dtype)
    found = gen.jax.correlate(x, [[0.5, 1.0, 4.0]], "wrap")
    wanted = gen.jax.correlate(x.astype(jnp.float32), [[0.5, 1.0, 4.0]], "wrap")
    if dtype != "bfloat16":
        wanted = jnp.clip(jnp.round(wanted), *((0, 255) if dtype == "uint8" else (-32768, 32767)))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(jnp.float32), wanted.astype(dtype).astype(jnp.float32))


VMAPPED: list[tuple[str, Callable[[Any], Any]]] = [
    ("sum", lambda x: gen.jax.sum(x, axis=0)),
    ("argmax of all", gen.jax.argmax),
    ("permutation", lambda x: gen.jax.permute_dims(x, (1, 0))),
    ("stencil", lambda x: gen.jax.correlate(x, BLUR, "mirror")),
    ("gradient", jax.grad(gen.jax.vector_norm)),
    ("gradient of a stencil", jax.grad(lambda x: (gen.jax.correlate(x, BLUR, "mirror") ** 2).sum())),
]


@pytest.mark.parametrize(("name", "function"), VMAPPED)
@pytest.mark.parametrize("axis", [0, 2])
def test_vmap_is_one_call_after_another(name: str, function: Callable[[Any], Any], axis: int) -> None:
    del name
    x = numbers(3, 4, 5)
    found = jax.jit(jax.vmap(function, in_axes=axis))(x)
    wanted = jnp.stack([function(one) for one in jnp.moveaxis(x, axis, 0)])
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_axes_may_be_numbers_of_numpy_and_arrays_lists() -> None:
    x, turned = numbers(3, 4), np.array([1, 0])
    axes: Any = turned
    for axis in (np.int64(1), [1], turned[:1]):
        np.testing.assert_array_equal(gen.jax.sum(x, axis=axis), gen.jax.sum(x, axis=1))
    np.testing.assert_array_equal(gen.jax.permute_dims(x, axes), np.asarray(x).T)
    assert jax.jit(gen.jax.sum)([[1.0, 2.0], [3.0, 4.0]]) == 10


def test_bfloat16_is_added_in_32_bits() -> None:
    x = jnp.ones(300, jnp.bfloat16)
    assert gen.jax.sum(x, dtype=jnp.float32) == 300
    assert jax.grad(lambda x: gen.jax.sum(x, dtype=jnp.float32))(x).dtype == jnp.bfloat16


OPERATOR: Any = gen.jax.operator
HEAT: Any = OPERATOR(gen.stencil(gen.star(2, 1)))
WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: gen.jax.sum(x, axis=2), "axis must name axes from -2 to 1 once each"),
    *((lambda x, odd=odd: gen.jax.sum(x, axis=odd), "axis must name axes from -2 to 1") for odd in ("a", 0.5, True)),
    *(
        (lambda x, odd=odd: gen.jax.permute_dims(x, odd), "axes must name each of the 2 axes of x once")
        for odd in ((0, 0), "ab", None, (0.0, 1.0))
    ),
    (lambda x: gen.jax.sum(x, dtype="zz"), "dtype must be one of"),
    (lambda x: gen.jax.var(x, correction=-1), "correction must be a whole number"),
    *((lambda _, odd=odd: gen.jax.sum(odd), "x must be what JAX makes an array of") for odd in (None, "a")),
    (lambda _: gen.jax.transpose(jax.random.key(0)), "x must hold numbers"),
    (lambda x: gen.jax.transpose(x.astype("int4")), "x must hold elements of whole bytes .*int4"),
    (jax.jit(lambda x: gen.jax.correlate(x, x)), "weights must be known while a program is traced"),
    (lambda _: OPERATOR(gen.reduction("sum")), "spec must be a stencil"),
    (lambda _: OPERATOR(5), "spec must be a stencil"),
    *((lambda x, odd=odd: HEAT(x, steps=odd), "steps must be a whole number") for odd in (-1, 1.5)),
    (lambda x: jax.jit(HEAT)(x, 3), "steps must be known while a program is traced .*static_argnames"),
    (lambda x: HEAT(x[0]), "must (be|have) 2 "),
    (lambda x: HEAT(x.astype("float16")), r"x must hold f32 elements \(got float16\)"),
    (lambda x: gen.jax.vector_norm(x, ord=1), "ord must be 2"),
    (lambda x: gen.jax.correlate(x, [1.0]), "weights must have 2 axes"),
    (jax.jit(gen.sum), r"x must have memory .*Call the function of gen.jax"),
]


@pytest.mark.parametrize(("call", "says"), WRONG)
def test_wrong_arguments_are_refused(call: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(GenError, match=says):
        call(numbers(3, 4))
