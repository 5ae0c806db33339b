"""Who is right on a case: what NumPy says. Of stencils, what a plain kernel says in double, where NumPy looks on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from bench.arrays import Shared
from bench.exact import WINDOW_STEPS, exact
from bench.judge import CellJudge, Comparer, Judge
from bench.offers import problem_of
from bench.ours import Ours
from bench.peers.base import Contender, Place
from bench.works import Case, Shape, Sweep
from gen.dtypes import DType
from gen.gpu.trial import Problem

MOST_CELLS, MOST_STEPS = 300, 20  # along an axis: more than any tile, and NumPy takes well under a second


class Bench(Place, Comparer, Protocol):
    """The device, as checking needs it."""

    backend: Any

    def random(self, shape: Shape, dtype: DType, seed: int) -> Shared:
        """New memory with random elements."""
        ...


class Referee:
    """Judges our kernel first, then each peer.

    Attributes:
        note: what the check does not cover, in words.
    """

    def __init__(self, bench: Bench, case: Case, problem: Problem, source: Shared) -> None:
        """Asks NumPy what the case gives, or what less of it gives."""
        self._bench, self._case = bench, case
        self._less = reduced(case)
        self._cells: CellJudge | None = None
        self.note = ""
        if self._less == case:
            self._part, self._source = problem, source
        else:
            self._part = problem_of(self._less, (problem.family,))
            self._source = bench.random(self._less.shape, self._less.dtype, 2)
        self._judge = self._asked()
        if isinstance(case.work, Sweep):
            (out,) = (x for x in self._part.spec.operands if x.role == "out")
            right = exact(bench, case, source)
            self._cells = CellJudge(bench, out, case.shape, right.value, right.off)
            steps = min(case.work.steps, WINDOW_STEPS)
            after = f"after {steps} steps" if steps < case.work.steps else "after all steps"
            self.note = f"checked against a plain kernel in double, and that against NumPy in windows {after}"

    def wrong_ours(self, loaded: Ours, *contenders: Contender) -> str | None:
        """What is wrong with our results, in words."""
        if isinstance(self._case.work, Sweep):
            less = loaded.contender(self._less, self._part, self._source, self._bench)
            try:
                wrong = self._judge.wrong(less.launch())
            finally:
                less.close()
            if wrong is not None:
                return f"on {self._less.name}: {wrong}"
        return next(filter(None, (self._wrong(contender, narrow=False) for contender in contenders)), None)

    def wrong_peer(self, contender: Contender) -> str | None:
        """What is wrong with a peer's results, in words; one that adds halves in halves says so in its row."""
        return self._wrong(contender, narrow=True)

    def _wrong(self, contender: Contender, *, narrow: bool) -> str | None:
        """What is wrong with results, wherever they are written."""
        for number in range(contender.places):
            contender.use(number)
            results = contender.launch()
            wrong = self._judge.wrong(results, narrow=narrow) if self._cells is None else self._cells.wrong(results)
            if wrong is not None:
                return wrong
        return None

    def differences(self, results: Sequence[Any]) -> list[str]:
        """Where results have another type than ours, or another accumulator."""
        return self._judge.differences(results) if self._cells is None else []

    def _asked(self) -> Judge:
        """A judge who knows what NumPy says."""
        problem, source, spec = self._part, self._source, self._part.spec
        (operand,) = (x for x in spec.operands if x.role in ("in", "inout"))
        shape = problem.family.layouts(spec, problem.extents)[operand.name].shape
        content = self._bench.download(source.address, source.nbytes)
        array = content.view(source.dtype.numpy).reshape(shape)
        expected = problem.family.oracle(spec, {operand.name: array}, problem.extents)
        return Judge(self._bench, self._less, spec, expected)


def reduced(case: Case) -> Case:
    """What NumPy is asked: stencils of few cells and steps; all else as it is."""
    work = case.work
    if not isinstance(work, Sweep):
        return case
    most = MOST_CELLS if work.ndim < 3 else MOST_CELLS // 5
    shape = tuple(min(extent, most) for extent in case.shape)
    return replace(case, work=replace(work, steps=min(work.steps, MOST_STEPS)), shape=shape)
