"""What bench/robustness.py makes of a run's answers, on a GPU that is none."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import robustness
from gen.cli.app import app
from gen.store.winners import TUNED_FILE, text_of_winners
from tests.fake_tuning import FakeTuningDevice


@dataclass
class Ended:
    """A command that has ended; stands in for its process."""

    returncode: int
    out: str

    def communicate(self) -> tuple[str, str]:
        return self.out, ""


@pytest.fixture(autouse=True)
def in_this_process(gpu: FakeTuningDevice, monkeypatch: pytest.MonkeyPatch) -> FakeTuningDevice:
    """Commands run here, on that GPU."""

    def begun(home: Path, *arguments: str) -> Ended:
        result = CliRunner().invoke(app, ["tune", *arguments, "--home", str(home)], prog_name="gen")
        return Ended(result.exit_code, result.stdout)

    monkeypatch.setattr(robustness, "begun", begun)
    return gpu


@pytest.fixture
def bare(home: Path) -> Path:
    home.mkdir()
    (home / TUNED_FILE).write_text(text_of_winners([]))
    return home


@pytest.mark.parametrize("step", [robustness.verified, robustness.insisted])
def test_a_step_is_well_by_itself(step: robustness.Step, bare: Path) -> None:
    assert step(bare)["well"]


def test_verdicts_and_statuses_are_those_of_the_commands(bare: Path) -> None:
    assert robustness.insisted(bare)["statuses"] == [0, 1]
    ((_, verdict, ratio),) = robustness.verified(bare)["verdicts"]
    assert (verdict == "FASTER") == (ratio < 1 / 1.01)


def test_every_step_that_is_asked_for_has_a_row_beside_those_that_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "found.json"
    place.write_text(json.dumps({"meta": {}, "kills": {"well": True}}))
    monkeypatch.setattr("sys.argv", ["robustness.py", "--json", str(place), "--only", "insisted", "--only", "verified"])
    assert robustness.main() == 0
    content = json.loads(place.read_text())
    assert content.keys() == {"meta", "kills", "verified", "insisted"}
    assert content["meta"]["device"] == "Fake GPU"
