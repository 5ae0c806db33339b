"""`python -m bench` on a GPU: every kind of case against torch and the plain kernel; checks where the results are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.arena import Arena
from bench.exact import exact
from bench.judge import Judge
from bench.messages import Found, Message
from bench.offers import problem_of
from bench.peers import find
from bench.place import GpuPlace
from bench.rows import OURS
from bench.works import Case, Permute, Reduce, Sweep
from gen.dtypes import BF16, F16, F32, F64, I32, U8, DType
from gen.families import FAMILIES
from gen.gpu.open import Instruments
from gen.gpu.timing import Calibration, Protocol

CASES = (
    *(Case(Reduce(("sum",)), dtype, (100_003,)) for dtype in (F32, BF16, U8)),
    Case(Reduce(("sum",), (0,)), F32, (300, 1000)),
    Case(Reduce(("argmax",)), F32, (70_001,)),
    Case(Permute((1, 0)), U8, (1001, 999)),
    Case(Permute((0, 2, 1)), F16, (5, 300, 400)),
    Case(Sweep("star", 2, 1, "frozen"), F32, (1000, 900)),
    Case(Sweep("box", 2, 1, "wrap", 16), F64, (400, 600)),
    Case(Sweep("star", 2, 1, "frozen", 5), F16, (500, 400)),
)


@pytest.fixture(scope="module")
def place(instruments: Instruments, tmp_path_factory: pytest.TempPathFactory) -> GpuPlace:
    """The GPU, with figures instead of a calibration."""
    limits = Calibration(instruments.device.name, instruments.device.driver, 3000.0, 3000.0, 3000.0, 4.0, 1.0)
    return GpuPlace(instruments, limits, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_and_two_peers_are_right_and_timed(case: Case, place: GpuPlace, torch: Any, home: Path) -> None:
    assert torch.cuda.is_available()
    told: list[Message] = []
    Arena(place, FAMILIES, home, Protocol.COLD, told.append).run(case, [find("torch"), find("plain")])
    rows = [message.row for message in told if isinstance(message, Found)]
    assert rows[0].peer == OURS
    for row in rows:
        if not row.note.startswith("not offered"):
            assert row.ours_us is not None, f"{row.peer}: {row.note}"
            assert row.peer_us is not None
            assert 0.3 < row.ours_us < 5000
    assert {row.peer for row in rows if row.ratio is not None} >= {OURS, "torch"}


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("boundary", ["frozen", "wrap"])
def test_what_a_stencil_must_give_is_numpys_in_windows(dtype: DType, boundary: Any, place: GpuPlace) -> None:
    dtype = pickle.loads(pickle.dumps(dtype))  # as the process that measures is told of it
    case = Case(Sweep("box", 2, 2, boundary, 20), dtype, (1021, 3001))
    found = exact(place, case, place.random(case.shape, dtype, 1))
    value, off = (place.download(one.address, one.nbytes).view(np.float64) for one in (found.value, found.off))
    assert 1 < np.abs(value).max() < 9
    assert 0 < off.max() < 3000 * dtype.unit_roundoff


def test_one_wrong_element_of_a_large_result_is_found_where_it_is(place: GpuPlace) -> None:
    case = Case(Permute((1, 0)), I32, (700, 600))
    problem = problem_of(case, FAMILIES)
    source = place.random(case.shape, case.dtype, 1)
    x = place.download(source.address, source.nbytes).view(np.int32).reshape(case.shape)
    expected = problem.family.oracle(problem.spec, {"in": x}, problem.extents)
    judge = Judge(place, case, problem.spec, expected)
    out = place.array(case.shape[::-1], case.dtype)
    content = np.ascontiguousarray(x.T)
    place.backend.upload(out.address, content.reshape(-1).view(np.uint8))
    assert judge.wrong([out]) is None
    content[599, 699] += 1
    place.backend.upload(out.address, content.reshape(-1).view(np.uint8))
    assert judge.wrong([out]) == "out: 1 elements are wrong"
