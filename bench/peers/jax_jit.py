"""JAX: the case as a jitted function."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from bench.arrays import Shared
from bench.peers.base import Contender, NotOfferedError, Place, check_squares, module
from bench.peers.torch_arrays import tensor, window
from bench.works import Case, Permute, Reduce, Sweep

MOST_STEPS = 32
NOTE = "on a stream of its own: the hand-over there and back is in its time"


class Jax:
    """`jax.jit`. JAX has a stream of its own and shows no handle of it: DLPack orders it before and after ours."""

    name = "jax"

    def version(self) -> str:
        """Of JAX."""
        # Else it takes three quarters of the device's memory, and reads 64-bit numbers as 32.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        os.environ.setdefault("JAX_ENABLE_X64", "1")
        return str(module("jax").__version__)

    def prepare(self, case: Case, source: Shared, place: Place) -> Contender:
        """Compiles, and runs once."""
        if isinstance(case.work, Sweep) and case.work.steps > MOST_STEPS:
            rule = f"repeats more than {MOST_STEPS} steps in a loop that its host drives, which cannot be queued ahead"
            raise NotOfferedError("JAX", rule, case.work.steps)
        jax, numpy, torch = module("jax"), module("jax.numpy"), module("torch")
        compute = jax.jit(_function(numpy, case))
        x = tensor(torch, source)

        def launch() -> Sequence[Any]:
            outputs = compute(jax.dlpack.from_dlpack(x))
            return tuple(torch.from_dlpack(output) for output in outputs)  # the current stream waits for them

        launch()
        return Contender(launch, note=NOTE)


def _function(numpy: Any, case: Case) -> Callable[[Any], Sequence[Any]]:
    work = case.work
    if isinstance(work, Permute):
        return lambda x: (numpy.transpose(x, work.axes),)
    if isinstance(work, Reduce):
        check_squares("JAX", case, work.ops)
        operators = [_operator(numpy, op, work.axes) for op in work.ops]
        return lambda x: tuple(operator(x) for operator in operators)

    def step(x: Any) -> Any:
        return _step(numpy, work, x)

    def steps(x: Any) -> Sequence[Any]:
        for _ in range(work.steps):
            x = step(x)
        return (x,)

    return steps


def _step(numpy: Any, work: Sweep, x: Any) -> Any:
    if work.boundary == "wrap":
        axes = tuple(range(work.ndim))
        terms = [weight * numpy.roll(x, tuple(-step for step in offset), axes) for offset, weight in work.taps]
        return sum(terms[1:], terms[0])
    terms = [weight * x[window(work, offset)] for offset, weight in work.taps]
    return x.at[window(work, (0,) * work.ndim)].set(sum(terms[1:], terms[0]))


def _operator(numpy: Any, op: str, axes: tuple[int, ...] | None) -> Callable[[Any], Any]:
    if op in ("argmax", "argmin"):
        find = getattr(numpy, op)
        return lambda x: find(x, axis=None if axes is None else axes[0])
    if op == "sumsq":
        return lambda x: numpy.sum(x * x, axis=axes)
    if op not in ("sum", "prod", "min", "max", "mean", "var", "std", "any", "all"):
        raise NotOfferedError("JAX", "has no such reduction", op)
    reduce = getattr(numpy, op)
    return lambda x: reduce(x, axis=axes)


PEER = Jax()
