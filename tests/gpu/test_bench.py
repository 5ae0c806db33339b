"""Comparisons on a GPU: every kind of case against torch and the plain kernel; checks where the results are."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.cases import permute, reduce, sweep
from bench.gpu import BenchGpu
from bench.peers import PEERS
from bench.stencils import checks_of, exact
from gen.compare.case import ComparisonCase
from gen.compare.checks import Checks
from gen.compare.comparison import Comparison, ContenderStep
from gen.compare.peers import find_peers
from gen.compare.peers.base import Contender
from gen.compare.row import OURS, Row
from gen.dtypes import BF16, F16, F32, F64, U8, DType
from gen.families import FAMILIES
from gen.families.names import find_family
from gen.families.transpose import permutation
from gen.gpu.timing import Calibration, Instruments, Protocol
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.gpu_session import CalibratedGpu
from tests.host.cli.command import run

CASES = (
    *(reduce(("sum",), dtype, (100_003,)) for dtype in (F32, BF16, U8)),
    reduce(("sum",), F32, (300, 1000), 0),
    reduce(("argmax",), F32, (70_001,)),
    permute((1, 0), U8, (1001, 999)),
    permute((0, 2, 1), F16, (5, 300, 400)),
    sweep("star", 1, F32, (1000, 900)),
    sweep("box", 1, F64, (400, 600), "wrap", 16),
    sweep("star", 1, F16, (500, 400), steps=5),
)
PROBE = find_family(FAMILIES, "probe")
ALONE = (
    *(
        ComparisonCase(PROBE, spec, (64, 32, 32) if "32x32" in spec.label else (1 << 20,))
        for spec in PROBE.catalogue[:2]
    ),
    ComparisonCase(find_family(FAMILIES, "transpose"), permutation((1, 0), "f4", in_place=True), (512, 512)),
)


@pytest.fixture(scope="module")
def gpu(instruments: Instruments, compiler: Nvrtc, tmp_path_factory: pytest.TempPathFactory) -> BenchGpu:
    """The GPU, with figures instead of a calibration."""
    limits = Calibration(instruments.device.name, instruments.device.driver, 3000.0, 3000.0, 3000.0, 4.0, 1.0)
    return BenchGpu(
        CalibratedGpu(instruments.device, instruments.service, instruments.clock, limits),
        compiler,
        tmp_path_factory.mktemp("cache"),
    )


def rows_of(gpu: BenchGpu, case: ComparisonCase, home: Path, *peers: str) -> list[Row]:
    told: list[ContenderStep | Row] = []

    def report(message: ContenderStep | Row, seconds: float | None = None) -> None:  # noqa: ARG001  as it is called
        told.append(message)

    Comparison(gpu, case, Protocol.COLD, report, checks_of).run(find_peers(peers, PEERS), home)
    return [message for message in told if isinstance(message, Row)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_and_two_peers_are_right_and_timed(case: ComparisonCase, gpu: BenchGpu, torch: Any, home: Path) -> None:
    assert torch.cuda.is_available()
    rows = rows_of(gpu, case, home, "torch", "plain")
    assert rows[0].peer == OURS
    for row in rows:
        if not row.note.startswith("not offered"):
            assert row.ours_us is not None, f"{row.peer}: {row.note}"
            assert row.peer_us is not None
            assert 0.3 < row.ours_us < 5000
    assert {row.peer for row in rows if row.ratio is not None} >= {OURS, "torch"}


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_what_no_peer_computes_is_checked_and_timed_alone(case: ComparisonCase, gpu: BenchGpu, home: Path) -> None:
    for row in rows_of(gpu, case, home):
        assert row.ours_us is not None, row.note


def test_the_command_compares_with_what_is_installed(torch: Any, home: Path) -> None:
    assert torch.cuda.is_available()
    rows = run(
        "compare", "stencil_heat_de794a2b_f32", "--shape", "900x1000", "--peers", "torch", "--home", home, "--json"
    )
    assert {row["peer"] for row in rows.data["rows"] if row["ratio"]} == {"gen", "torch"}, rows.data


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("boundary", ["frozen", "wrap"])
def test_what_a_stencil_must_give_is_numpys_in_windows(dtype: DType, boundary: Any, gpu: BenchGpu) -> None:
    case = pickle.loads(
        pickle.dumps(sweep("box", 2, dtype, (1021, 3001), boundary, 20))
    )  # as the process is told of it
    found = exact(gpu, case, gpu.random(case.shape, dtype, 1))
    value, off = (gpu.download(one.address, one.nbytes).view(np.float64) for one in (found.value, found.off))
    assert 1 < np.abs(value).max() < 9
    assert 0 < off.max() < 3000 * dtype.unit_roundoff


def test_one_wrong_element_of_a_large_result_is_found_where_it_is(gpu: BenchGpu) -> None:
    case = permute((1, 0), F32, (700, 600))
    source = gpu.random(case.shape, case.dtype, 1)
    x = gpu.download(source.address, source.nbytes).view(np.float32).reshape(case.shape)
    checks = Checks(gpu, case, [source])
    out = gpu.array(case.shape[::-1], case.dtype)
    contender = Contender(lambda: [out])
    content = np.ascontiguousarray(x.T)
    for reason in (None, "out: 1 elements are wrong"):
        gpu.backend.upload(out.address, content.reshape(-1).view(np.uint8))
        assert checks.wrong(contender, lambda *_: contender) == reason
        content[599, 699] += 1
