"""Tuning on the GPU: the right winner, whatever is seeded into the space."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import find_family
from gen.gpu.open import Instruments
from gen.gpu.session import GpuBench
from gen.gpu.trial import Problem
from gen.store.trials import Trials
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.run import run
from gen.tune.tuner import tune

STENCIL = find_family(FAMILIES, "stencil")
SMALL = Problem(
    STENCIL, STENCIL.catalogue[0], {"rows": 1024, "cols": 2048, "in_pitch": 2048, "out_pitch": 2048, "steps": 1}
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(instruments: Instruments) -> GpuBench:
    return instruments.bench(instruments.calibrate())


def test_a_wrong_candidate_never_wins(bench: GpuBench, compiler: Nvrtc, tmp_path: Path) -> None:
    first = tune(SMALL, bench, compiler, Trials(tmp_path / "a"))
    assert first.winner is not None
    fastest = first.winner.variant.name

    def spoiled(made: Variant) -> str:
        text = render(made)
        # Skips the last row of cells: right nearly everywhere, and faster.
        return (
            text.replace("if (row >= rows) return;", "if (row >= rows - 1) return;") if made.name == fastest else text
        )

    second = tune(SMALL, bench, compiler, Trials(tmp_path / "b"), text=spoiled)
    wrong = [trial for trial in second.trials if trial.status == "wrong_result"]
    assert [trial.variant.name for trial in wrong] == [fastest]
    assert "2048 elements are wrong" in wrong[0].reason
    assert second.winner is not None
    assert second.winner.variant.name != fastest


def test_a_candidate_that_does_not_compile_is_a_trial(bench: GpuBench, compiler: Nvrtc, tmp_path: Path) -> None:
    name = "naive_x128_y2_u1"

    def broken(made: Variant) -> str:
        return "int x = ;" if made.name.endswith(name) else render(made)

    outcome = tune(SMALL, bench, compiler, Trials(tmp_path), text=broken)
    assert outcome.statuses["compile_failed"] == 1
    assert outcome.winner is not None


def test_a_run_writes_winners_and_a_rerun_measures_nothing_anew(
    bench: GpuBench, compiler: Nvrtc, tmp_path: Path
) -> None:
    first = run([SMALL], FAMILIES, bench, compiler, tmp_path)
    winners = json.loads((tmp_path / "tuned.json").read_text())["winners"]  # those that came with gen are kept
    (winner,) = [one for one in winners if one["spec"] == SMALL.spec_name and one["device"] == bench.name]
    assert winner["extents"] == dict(SMALL.extents)
    assert 0 < winner["of_limit"] <= 1.05
    assert (tmp_path / f"{winner['variant']}.cu").is_file()
    trials = Trials(tmp_path)
    before = trials.count()
    again = run([SMALL], FAMILIES, bench, compiler, tmp_path)
    assert trials.count() == before == len(first.outcomes[0].trials)
    assert again.outcomes[0].winner is not None
    assert again.outcomes[0].winner.variant.name == winner["variant"]
    assert again.seconds < first.seconds
