"""Who is right on a case: what NumPy says at its size, or where that takes too long, at a smaller one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gen.bench.arrays import Shared
from gen.bench.judge import Comparer, Judge
from gen.bench.offers import smaller
from gen.bench.ours import Ours
from gen.bench.peers.base import Contender, Peer, Place
from gen.bench.works import Case, Shape, Sweep
from gen.dtypes import DType
from gen.errors import RunError
from gen.families.base import Expected
from gen.gpu.trial import Problem

LARGEST = 8.0  # magnitude of an element of random input


class Bench(Place, Comparer, Protocol):
    """The device, as checking needs it."""

    backend: Any

    def random(self, shape: Shape, dtype: DType, seed: int) -> Shared:
        """New memory with random elements."""
        ...


@dataclass(frozen=True)
class Rehearsal:
    """The same work on less, which NumPy computes in seconds."""

    case: Case
    source: Shared
    judge: Judge


class Referee:
    """Judges our kernel first, then each peer.

    Attributes:
        note: what the check does not cover, in words.
    """

    def __init__(self, bench: Bench, case: Case, problem: Problem, source: Shared) -> None:
        """Computes with NumPy what a case gives, at its own size or at the nearest that takes seconds."""
        self._bench, self._case, self._problem = bench, case, problem
        self._judge: Judge | None = None
        self._rehearsal: Rehearsal | None = None
        self.note = ""
        provable = problem.family.provable(problem.spec, problem.extents)
        if provable == problem.extents:
            self._judge = self._made(case, problem, source)
            return
        less, part = smaller(case, problem, provable), replace(problem, extents=provable)
        begin = bench.random(less.shape, less.dtype, 2)
        self._rehearsal = Rehearsal(less, begin, self._made(less, part, begin))
        self.note = f"checked against NumPy on {less.name}, here against gen"

    def wrong_ours(self, loaded: Ours, contender: Contender) -> str | None:
        """What is wrong with our result, in words."""
        if self._judge is not None:
            return self._judge.wrong(contender.launch())
        assert self._rehearsal is not None
        less, begin = self._rehearsal.case, self._rehearsal.source
        part = replace(
            self._problem, extents=self._problem.family.provable(self._problem.spec, self._problem.extents)
        )  # fmt: skip
        small = loaded.contender(less, part, begin, self._bench)
        try:
            wrong = self._rehearsal.judge.wrong(small.launch())
        finally:
            small.close()
        if wrong is not None:
            return f"on {less.name}: {wrong}"
        self._judge = self._trusting(contender.launch())
        return None

    def wrong_peer(self, peer: Peer, contender: Contender) -> str | None:
        """What is wrong with a peer's result, in words."""
        if self._rehearsal is not None:
            small = peer.prepare(self._rehearsal.case, self._rehearsal.source, self._bench)
            try:
                wrong = self._rehearsal.judge.wrong(small.launch())
            finally:
                small.close()
            if wrong is not None:
                return f"on {self._rehearsal.case.name}: {wrong}"
        assert self._judge is not None
        return self._judge.wrong(contender.launch())

    def differences(self, results: Sequence[Any]) -> list[str]:
        """Where results have another type than ours."""
        assert self._judge is not None
        return self._judge.differences(results)

    def _made(self, case: Case, problem: Problem, source: Shared) -> Judge:
        """A judge who knows what NumPy says."""
        spec = problem.spec
        (operand,) = (x for x in spec.operands if x.role in ("in", "inout"))
        shape = problem.family.layouts(spec, problem.extents)[operand.name].shape
        content = self._bench.download(source.address, source.nbytes)
        array = content.view(source.dtype.numpy).reshape(shape)
        expected = problem.family.oracle(spec, {operand.name: array}, problem.extents)
        return Judge(self._bench, case, spec, {name: _loosened(case, one) for name, one in expected.items()})

    def _trusting(self, results: Sequence[Any]) -> Judge:
        """A judge who takes our result for right: stencils may differ from it by what their additions may round."""
        spec = self._problem.spec
        expected: dict[str, Expected] = {}
        for operand, result in zip((x for x in spec.operands if x.role == "out"), results, strict=True):
            if not isinstance(self._case.work, Sweep):
                raise RunError(self._case.name, "is too large for NumPy, and nothing bounds its roundings")
            content = self._bench.download(result.address, result.nbytes)
            value = content.view(operand.dtype.numpy).astype(np.float64).reshape(result.shape)
            growth = max(1.0, sum(abs(weight) for _, weight in self._case.work.taps)) ** self._case.work.steps
            magnitude = np.full(value.shape, 2 * LARGEST * growth)
            expected[operand.name] = Expected(value, magnitude, self._case.dtype)
        return Judge(self._bench, self._case, spec, expected)


def _loosened(case: Case, expected: Expected) -> Expected:
    """Stencils of halves: a library may add in halves, which its note says."""
    if isinstance(case.work, Sweep) and expected.magnitude is not None:
        return replace(expected, accumulator=case.dtype)
    return expected
