"""`gen tune` without a GPU ranks what is right by prediction, and leaves nothing that could pass for a measurement."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gen.cli.app import app
from gen.paths import cache_home, output_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder without winners; what is built is kept."""
    folder = tmp_path / "home"
    folder.mkdir()
    cache_home(output_home()).mkdir(parents=True, exist_ok=True)
    cache_home(folder).symlink_to(cache_home(output_home()).absolute(), target_is_directory=True)
    return folder


@pytest.mark.exhaustive
def test_a_rehearsal_ranks_and_keeps_no_winner(home: Path) -> None:
    done = CliRunner().invoke(app, ["tune", "probe_aos2_f32", "--arch", "sm_90", "--home", str(home), "--json"])
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["measured"] is False
    (ranking,) = content["predicted"]
    assert (ranking["spec"], ranking["measured"]) == ("probe_aos2_f32", False)
    times = [one["predicted_us"] for one in ranking["variants"]]
    assert times == sorted(times)
    proven = {one["name"] for one in content["variants"] if one["verdict"] == "proven"}
    assert {one["name"] for one in ranking["variants"]} == proven
    # What load reads is not there: a prediction is never taken for a measurement.
    assert not (home / "tuned.json").exists()
    assert not (home / "trials.sqlite").exists()
