"""The hardware's counters: how they are asked for and read, and that an H200 counted what the CPU run predicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gen.errors import MissingToolError, RunError
from gen.families import FAMILIES
from gen.families.base import Extents, Limits
from gen.families.names import find_variant
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.report.counters import (
    LOAD_SECTORS,
    METRICS,
    SHARED_LOAD_WAVEFRONTS,
    SHARED_STORE_WAVEFRONTS,
    STORE_SECTORS,
    WARP_INSTRUCTIONS,
    counters,
    parse,
    request,
    total,
)
from tests.counted_kernels import ODD, SQUARE, SUM
from tests.counted_kernels import RECORDED as KERNELS
from tests.outside.scan_family.scan import Scan

LIMITS = Limits.of("sm_90")
# What `ncu --csv --page raw` printed for the kernels below on one NVIDIA H200, 2026-11-22, but for columns that nobody
# asked for.
RECORDED = (Path(__file__).parents[1] / "counters-nvidia-h200.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "extents"), KERNELS, ids=[name for name, _ in KERNELS])
def test_an_h200_counted_the_sectors_and_turns_that_are_predicted(
    name: str, extents: Extents, host_runner: HostRunner
) -> None:
    made = find_variant(FAMILIES, name, {})
    (kernel,) = host_runner.load([made])
    found = traffic(kernel, LIMITS, extents)
    counted = {key: value for key, value in parse(RECORDED).items() if key in (made.name, f"{made.name}_finish")}
    for space, kind, what, metrics in (
        ("global", "load", "sectors", LOAD_SECTORS),
        ("global", "store", "sectors", STORE_SECTORS),
        ("shared", "load", "wavefronts", SHARED_LOAD_WAVEFRONTS),
        ("shared", "store", "wavefronts", SHARED_STORE_WAVEFRONTS),
    ):
        predicted = sum(
            getattr(access, what) for access in found.accesses if (access.space, access.kind) == (space, kind)
        )
        # A sample of the blocks of an odd matrix is not quite like all of them; everything else is exact.
        within = 0.01 if extents is ODD else 1e-6
        assert predicted == pytest.approx(total(counted, metrics), rel=within), (kind, what)


def test_metrics_of_several_launches_are_added_up_and_averages_are_not() -> None:
    head = f'"ID","Kernel Name","{WARP_INSTRUCTIONS[0]}","{METRICS[-2]}"\n"","","",""\n'
    text = f'==PROF== Connected\n{head}"0","kern","1,000","50.5"\n"1","kern","234","60.25"\n"2","other","7","n/a"\n'
    found = parse(text)
    assert found == {
        "kern": {WARP_INSTRUCTIONS[0]: 1234.0, "sm__warps_active.avg.pct_of_peak_sustained_active": 60.25},
        "other": {WARP_INSTRUCTIONS[0]: 7.0},
    }
    assert total(found, WARP_INSTRUCTIONS) == 1241
    assert total(found, LOAD_SECTORS) is None
    assert parse("==ERROR== nothing was profiled\n") == {}


def test_what_is_asked_of_the_process_that_is_looked_at_names_all_that_it_needs(tmp_path: Path) -> None:
    made = find_variant(FAMILIES, "copyCol", {})
    asked = request(made, SQUARE, tmp_path)
    assert json.loads(json.dumps(asked)) == {
        "families": [],
        "specs": {"transpose_copy_b32": {"op": "copy", "tile": 0, "dtype": "b32"}},
        "cache": str(tmp_path / ".cache"),
        "runs": [{"name": made.name, "extents": SQUARE}],
    }
    scan = find_variant((*FAMILIES, Scan()), "scan_sum_f32__block_tpb64", {})
    assert request(scan, {"n": 1}, tmp_path)["families"] == ["tests.outside.scan_family.scan:Scan"]


@pytest.fixture
def profiler(tmp_path: Path) -> Callable[[str, int], Path]:
    """A program that notes how it was called, prints a text, and ends with a status."""

    def make(text: str, status: int = 0) -> Path:
        place = tmp_path / "ncu"
        place.write_text(
            f"#!{sys.executable}\nimport json, sys\n"
            f"json.dump(sys.argv[1:], open({str(tmp_path / 'called.json')!r}, 'w'))\n"
            f"print({text!r})\nsys.exit({status})\n"
        )
        place.chmod(0o755)
        return place

    return make


def test_the_profiler_is_asked_for_the_kernels_of_the_plan_alone(profiler: Callable[..., Path], tmp_path: Path) -> None:
    made = find_variant(FAMILIES, "reduceNeighbored", {})
    found = counters(profiler(RECORDED), made, SUM, LIMITS, tmp_path)
    assert found.keys() >= {made.name, f"{made.name}_finish"}
    called: list[Any] = json.loads((tmp_path / "called.json").read_text())
    assert called[called.index("--kernel-name") + 1] == f"regex:^({made.name}|{made.name}_finish)$"
    assert called[called.index("--clock-control") + 1] == "none"
    assert called[-3:-1] == ["-m", "gen.report.counters"]


@pytest.mark.parametrize(
    ("text", "status", "error", "says"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM", 1, MissingToolError, "must be allowed to read the GPU's counters"),
        ("==ERROR== Failed to find metric", 1, RunError, "Failed to find metric"),
        (RECORDED.replace("interleaved", "other"), 0, RunError, "must count what reduction_sum_f32__tree"),
        (RECORDED, 9, RunError, "must count what reduction_sum_f32__tree"),
    ],
    ids=["permission", "metric", "missing kernel", "status"],
)  # fmt: skip
def test_a_profiler_that_fails_says_why(
    text: str, status: int, error: type[Exception], says: str, profiler: Callable[..., Path], tmp_path: Path
) -> None:
    made = find_variant(FAMILIES, "reduceSmem", {})
    with pytest.raises(error) as caught:
        counters(profiler(text, status), made, SUM, LIMITS, tmp_path)
    assert says in str(caught.value)


def test_a_profiler_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    made = find_variant(FAMILIES, "reduceSmem", {})
    with pytest.raises(RunError, match="Nsight Compute must count what a kernel does"):
        counters(tmp_path / "nothing", made, SUM, LIMITS, tmp_path)
