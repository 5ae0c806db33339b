"""Research codes beside gen: commands, times, and cells compared; with a plain program that stands for them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import gen
from bench import foreign
from bench.foreign import Peer, Turn, difference, run_peer, table
from bench.program import ended
from gen.errors import GenError

PLAIN = f"{shlex.quote(sys.executable)} {Path(__file__).parents[1] / 'foreign_plain.py'}"
CALL = f"{PLAIN} {{extents}} {{steps}} {{dtype}} {{input}} {{output}}"


@pytest.fixture(autouse=True)
def _without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda *_: None)
    monkeypatch.setattr(foreign, "LONG_ENOUGH", 0.0)


def called(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The status of the program."""
    monkeypatch.setattr("sys.argv", ["foreign", "--shape", "9x33", "--steps", "5", *arguments])
    return ended(foreign.main)


def test_a_plain_program_is_timed_in_turns_and_compared_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, words = tmp_path / "found.json", CALL.replace("{output}", "-").replace("{extents}", "9 33")
    silent = f"silent={words}"
    arguments = ("--peer", f"plain={CALL}", "--peer", silent, "--rounds", "2", "--dtype", "f64", "--json", str(file))
    assert called(monkeypatch, *arguments) == 0
    found = json.loads(file.read_text())
    assert [turn["contender"] for turn in found["turns"]] == ["gen", "plain", "silent", "silent", "plain", "gen"]
    assert all(0 < turn["seconds"] < 3 for turn in found["turns"])
    assert all(0 < one["largest"] <= one["allowed"] < 1e-13 for one in found["differences"])
    assert [one["peer"] for one in found["differences"]] == ["plain", "plain"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["gen", "plain", "silent"]
    assert lines[4].endswith("wrote no result")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--peer", f"plain={CALL}", "--boundary", "wrap"), r"The cell \(.*\) of plain must be within .* away"),
        (("--peer", f"plain={CALL.replace('{extents}', '9 32')}"), "cannot reshape"),
        (("--peer", "plain=/no/such/program"), "must be a program that can be run"),
        (("--peer", "plain=true"), "must print its time as .*--time plain=REGEX"),
        (("--peer", "plain=echo {size}"), "has places of these names only: shape, .*'{size}'"),
        (("--peer", "gen=true"), "neither gen nor a path"),
        (("--peer", "plain=true", "--time", "plane=x"), "must name one of the peers: plain"),
        (("--peer", "plain=true", "--time", "plain=([0-9]+)"), "must have two groups"),
        (("--peer", "plain=true", "--stencil", "cross1"), "must be star or box and a radius"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(
    arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(monkeypatch, *arguments) != 0
    told = capsys.readouterr()
    assert told.err.startswith("error: ")
    assert re.search(message, " ".join(told.err.split()))


def test_a_time_is_the_last_one_or_what_a_pattern_finds() -> None:
    printed = "echo 'load 2 s kernel 12.5 ms total 3e2 us'"
    assert run_peer(Peer("one", printed), {}) == pytest.approx(3e-4)
    assert run_peer(Peer("one", printed, r"kernel ([0-9.]+) (ms)"), {}) == pytest.approx(0.0125)


def test_a_result_with_a_cell_that_is_no_number_is_refused(tmp_path: Path) -> None:
    cells = np.ones((3, 4), np.float32)
    spec = gen.stencil(gen.star(2, 1))
    result = tmp_path / "output"
    assert difference(Peer("one", ""), result, cells, spec, cells, 1) is None
    cells.tofile(result)
    same = difference(Peer("one", ""), result, cells, spec, cells, 1)
    assert same is not None
    assert same.largest == 0 < same.allowed
    broken = cells.copy()
    broken[2, 1] = np.nan
    broken.tofile(result)
    with pytest.raises(GenError, match=r"The cell \(2, 1\) of one"):
        difference(Peer("one", ""), result, cells, spec, cells, 1)
    np.ones(5, np.float32).tofile(result)
    with pytest.raises(GenError, match=r"must write 12 cells of f32 .*5"):
        difference(Peer("one", ""), result, cells, spec, cells, 1)


def test_ratios_are_taken_round_by_round_and_energy_by_cell_and_step() -> None:
    turns = [Turn("gen", 1e-3, 1700, 0.5), Turn("a", 4e-3, 1600), Turn("a", 4e-3, 1500), Turn("gen", 2e-3, 1980, 0.5)]
    own, peer = table(turns, [], 10**9)[1:]
    assert own.split()[:4] == ["gen", "1.500", "0.667", "1.00x"]
    assert own.endswith("2.00 x 10^9 cell-steps a joule")
    assert peer.split()[:5] == ["a", "4.000", "0.250", "3.00x", "1500-1600"]
