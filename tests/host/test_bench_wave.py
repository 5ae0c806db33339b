"""The wave of bench/wave.py: what it computes, where, and what it says of that."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import wave
from bench.wave import OnCpu, OnGpu, Result, Run, by_numpy, computed, difference, read_shape, survey_of
from gen.errors import ArgumentError, GenError
from gen.gpu import device as gpus
from gen.proof.host import HostRunner
from tests.fake_device import FakeDevice

TINY = (18, 17, 19)


def test_a_survey_is_stable_and_its_points_lie_inside() -> None:
    """What a wave passes in a step is at most 0.45 cells in three axes, where differences are of order 8."""
    survey = survey_of((40, 30, 50), 90)
    assert survey.courant.max() < 0.45**2
    assert (np.diff(survey.layer.astype(int), axis=0) >= 0).all()
    assert set(np.unique(survey.layer)) == set(range(len(wave.SPEEDS)))
    for points in (survey.sources, survey.receivers):
        assert ((points >= wave.REACH) & (points < np.array((40, 30, 50)) - wave.REACH)).all()
    now, heard = by_numpy(survey)
    assert 0 < np.abs(now).max() < 10
    assert np.abs(heard[-1]).max() > np.abs(heard[5]).max()


def test_one_command_computes_draws_and_writes_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(gpus, "find_gpu", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["wave.py", "--shape", "18x17x19", "--steps", "9", "--out", str(tmp_path)])
    assert wave.main() == 0
    assert capsys.readouterr().out.startswith("18 x 17 x 19 cells, 9 steps, the CPU run")
    assert (tmp_path / "wave.png").stat().st_size > 10_000
    text = (tmp_path / "wave.md").read_text()
    assert f"\npython bench/wave.py --shape 18x17x19 --steps 9 --out {tmp_path}" in text
    assert "GCell/s" not in text


def test_what_takes_the_cpu_run_hours_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "find_gpu", lambda *_: None)
    with pytest.raises(ArgumentError, match="must have at most 1,000,000,000 cells, times steps, without a GPU"):
        computed((512, 512, 512), 1000, tmp_path, "")


def test_a_gpu_gives_what_the_cpu_run_gives_in_parts_and_in_one_call(host_runner: HostRunner) -> None:
    place = OnGpu(FakeDevice(host_runner))
    assert difference(place, TINY, 5) == difference(OnCpu(), TINY, 5) < 1e-6
    whole, parts = Run(place, survey_of(TINY, 4)), Run(place, survey_of(TINY, 4))
    one, heard = whole.advance(0, 4)
    first, last = parts.advance(0, 1), parts.advance(1, 4)
    np.testing.assert_array_equal(one, last[0])
    np.testing.assert_array_equal(heard, np.concatenate([first[1], last[1]]))
    assert whole.seconds() > 0
    assert whole.variant.endswith("__naive_x64_y4")  # so few blocks of another leave multiprocessors idle


def test_a_wrong_wave_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wave, "by_numpy", lambda survey: (np.ones(TINY), np.ones((2, len(survey.receivers)))))
    with pytest.raises(GenError, match=r"The wave on the CPU run must be within 0\.0001 of NumPy's"):
        difference(OnCpu(), TINY, 2)


def test_a_result_says_what_the_memory_allows() -> None:
    found = Result("A GPU", (512, 512, 512), 1000, "march", (("A GPU", 1e-7),), 0.8, 4e12).lines()
    assert found[-2:] == ("800.0 us a step, 167.8 GCell/s", "0.671 of the memory's limit: 16 bytes a cell at 4000 GB/s")


@pytest.mark.parametrize("text", ["", "512", "512x512", "16x512x512", "ax3x4", "-1x20x20"])
def test_a_shape_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match="--shape must"):
        read_shape(text)


def test_a_shape_is_depth_first() -> None:
    assert read_shape("24x20x28") == (24, 20, 28)
