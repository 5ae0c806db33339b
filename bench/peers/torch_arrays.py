"""What both peers of torch share: arrays in place, and what a case is in torch's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from bench.arrays import Shared
from bench.peers.base import NotOfferedError, check_squares
from bench.works import Case, Permute, Reduce, Sweep


def tensor(torch: Any, array: Shared) -> Any:
    """The array as a tensor, in place."""
    made = torch.as_tensor(array, device="cuda")
    return made.view(torch.bfloat16) if array.dtype.name == "bf16" else made


def on_stream(torch: Any, handle: int) -> AbstractContextManager[object]:
    """A foreign stream as the current one."""
    context: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.ExternalStream(handle))
    return context


def function(torch: Any, case: Case) -> Callable[[Any], Sequence[Any]]:
    """The case as a function of a tensor. Raises NotOfferedError for an operator that torch does not have."""
    work = case.work
    if isinstance(work, Permute):
        return lambda x: (x.permute(work.axes).contiguous(),)
    assert isinstance(work, Reduce)
    check_squares("torch", case, work.ops)
    operators = [_operator(torch, op, work.axes) for op in work.ops]
    return lambda x: tuple(operator(x) for operator in operators)


def sweep(torch: Any, work: Sweep) -> Callable[[Any, Any], Any]:
    """The weighted sum of shifted views of a tensor into another, all cells that change, as one expression."""
    if work.boundary == "wrap":
        axes = tuple(range(work.ndim))

        def wrapped(source: Any, target: Any) -> Any:
            terms = [weight * torch.roll(source, tuple(-step for step in offset), axes) for offset, weight in work.taps]
            return target.copy_(_sum(terms))

        return wrapped

    def frozen(source: Any, inner: Any) -> Any:
        return inner.copy_(_sum([weight * source[window(work, offset)] for offset, weight in work.taps]))

    return frozen


def window(work: Sweep, offset: Sequence[int]) -> tuple[slice, ...]:
    """The neighbours at an offset of all cells that are not within the radius of the rim."""
    return tuple(slice(work.radius + step, (step - work.radius) or None) for step in offset)


def inner(work: Sweep, target: Any) -> Any:
    """What a step writes of an array: all of it, or all but a frozen rim."""
    return target if work.boundary == "wrap" else target[window(work, (0,) * work.ndim)]


def _sum(terms: Sequence[Any]) -> Any:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def _operator(torch: Any, op: str, axes: tuple[int, ...] | None) -> Callable[[Any], Any]:
    where: Any = {} if axes is None else {"dim": axes}
    if op in ("argmax", "argmin"):
        find = getattr(torch, op)
        return lambda x: find(x, dim=None if axes is None else axes[0])
    simple = {"sum": "sum", "mean": "mean", "min": "amin", "max": "amax", "any": "any", "all": "all"}
    if op in simple:
        reduce = getattr(torch, simple[op])
        return lambda x: reduce(x, **where)
    if op == "sumsq":
        return lambda x: torch.sum(x * x, **where)
    if op in ("var", "std"):
        spread = getattr(torch, op)
        return lambda x: spread(x, correction=0, **where)
    raise NotOfferedError("torch", "has no such reduction over these axes", op)
