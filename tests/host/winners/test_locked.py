"""`gen lock`: nothing changes the winners of a locked folder, nor adds any, whatever comes later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import gen
from gen.errors import StoreError
from gen.families import FAMILIES
from gen.store.folder import read_specs, remember
from gen.store.winners import (
    LOCK_FILE,
    TUNED_FILE,
    Winner,
    all_winners,
    first_calls_of,
    found_at_first_calls,
    is_locked,
    read_winners,
    text_of_winners,
)
from gen.tune import locked
from gen.tune.merge import merge
from gen.tune.several_problems import keep
from tests.fake_tuning import FakeTuningDevice
from tests.host.cli.command import run
from tests.host.winners.given import EVERY, TALL, WIDE

EVIDENCE = {"date": "2026-11-24", "median_us": 10.0}
WINNER = Winner("Fake GPU", "transpose_10_b32", "any size", WIDE.name, EVIDENCE)
OTHER = replace(WINNER, device="Other GPU", variant=TALL.name)
THIRD = replace(WINNER, device="Third GPU")


def written(place: Path, *winners: Winner) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text_of_winners(winners))
    return place


@pytest.fixture
def came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The winners that came with gen."""
    place = written(tmp_path / "came.json", replace(WINNER, variant=EVERY[3].name), OTHER)
    monkeypatch.setattr("gen.store.winners.shipped", lambda _: place)
    return place


def test_what_counts_is_locked_and_nothing_that_comes_later_counts(came: Path, home: Path) -> None:
    written(home / TUNED_FILE, WINNER)
    written(first_calls_of(home), THIRD)
    before = {winner.key: winner for winner in all_winners(home)}
    assert run("lock", "--home", home).out == f"{home} is locked with 3 winners.\n"
    written(came, replace(WINNER, device="Fourth GPU"), replace(OTHER, variant=WIDE.name))
    written(first_calls_of(home), replace(THIRD, variant=TALL.name))
    assert {winner.key: winner for winner in all_winners(home)} == before
    assert (home / f"{TALL.name}.cu").is_file()
    assert run("lock", "--json", "--home", home).data == {
        "folder": str(home), "locked": True, "winners": 3, "workers": {},
    }  # fmt: skip


@pytest.mark.parametrize("off", [(), ("--off",)])
def test_a_misspelt_folder_is_not_made(off: tuple[str, ...], tmp_path: Path) -> None:
    ended = run("lock", *off, "--home", tmp_path / "misspelt")
    assert (ended.status, "--home must name a folder that there is" in ended.err) == (2, True)
    assert not (tmp_path / "misspelt").exists()


def test_nothing_is_written_into_a_locked_folder(gpu: FakeTuningDevice, home: Path, tmp_path: Path) -> None:
    written(home / TUNED_FILE, WINNER)
    written(tmp_path / "part" / TUNED_FILE, OTHER)
    locked.lock(home, FAMILIES)
    before = {path: path.read_bytes() for path in home.iterdir() if path.is_file()}
    ended = run("tune", "transpose_10_b32", "--home", home)
    assert (ended.status, gpu.seen) == (1, [])
    assert f"error: {home} is locked by {LOCK_FILE}: its winners stay as they are. gen lock --off unlocks" in ended.err
    assert "is locked by" in run("merge", tmp_path / "part", "--home", home).err
    with pytest.raises(StoreError, match="is locked by"):  # by a run that began before
        keep(home, FAMILIES, lambda _: (OTHER,))
    with pytest.raises(StoreError, match="is locked by"):
        merge([tmp_path / "part"], FAMILIES, home)
    assert {path: path.read_bytes() for path in home.iterdir() if path.is_file()} == before
    assert run("tune", "transpose_10_b32", "--frozen", "--home", home).status == 0
    assert run("lock", "--off", "--home", home).out == f"{home} is unlocked.\n"
    assert run("lock", "--off", "--home", home).out == f"{home} was not locked.\n"
    assert run("tune", "transpose_10_b32", "--home", home).status == 0


@pytest.mark.parametrize("harm", ["changed", "gone", "lock"])
def test_a_locked_file_that_was_changed_is_refused(harm: str, home: Path) -> None:
    written(home / TUNED_FILE, WINNER)
    locked.lock(home, FAMILIES)
    if harm == "gone":
        (home / TUNED_FILE).unlink()
    elif harm == "changed":
        written(home / TUNED_FILE, replace(WINNER, variant=TALL.name))
    else:
        (home / LOCK_FILE).write_text("{}")
    with pytest.raises(StoreError, match="gen lock --off"):
        read_winners(home)
    assert "gen lock --off" in run("lock", "--home", home).err
    assert run("lock", "--off", "--home", home).status == 0
    assert len(read_winners(home)) == (harm != "gone")


def test_an_empty_folder_is_locked_too(home: Path) -> None:
    assert locked.lock(home, FAMILIES) == ()
    assert all_winners(home) == ()


def test_winners_are_accepted_and_locked_elsewhere(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the workers of a cluster do, two of which may have one folder."""
    there = tmp_path / "there"
    monkeypatch.setenv("GEN_HOME", str(there))
    written(there / TUNED_FILE, replace(WINNER, variant=TALL.name), THIRD)
    remember(home, FAMILIES[2], gen.stencil([1.0, 2.0, 1.0], word="mine"))
    for _ in range(2):
        assert locked.accept((WINNER, OTHER), read_specs(home)) == str(there)
        assert {winner.key: winner.variant for winner in all_winners(there)} == {
            one.key: one.variant for one in (WINNER, OTHER)
        }
        assert read_winners(there / locked.ASIDE) == (replace(WINNER, variant=TALL.name), THIRD)
        assert is_locked(there)
    assert read_specs(there) == read_specs(home)
    with pytest.raises(
        StoreError, match=rf"is locked with {WIDE.name} for transpose_10_b32, any size, on Fake GPU \(got {TALL.name}"
    ):
        locked.accept((replace(WINNER, variant=TALL.name),), {})
    locked.unlock(there)
    name, content = next(iter(read_specs(home).items()))
    with pytest.raises(StoreError, match="holds another spec under a name"):
        locked.accept((), {name: {**content, "word": "other"}})
    assert found_at_first_calls(there) == ()


@pytest.mark.parametrize("file", [TUNED_FILE, "came.json", "first_calls.json"])
def test_a_worker_that_has_other_winners_chooses_as_all_do(
    file: str, came: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEN_HOME", str(home))
    places = {TUNED_FILE: home / TUNED_FILE, "came.json": came, "first_calls.json": first_calls_of(home)}
    written(places[file], THIRD)
    for _ in range(2):
        locked.accept((WINNER,), {})
        assert all_winners(home) == read_winners(home) == (WINNER,)
    with pytest.raises(StoreError, match=rf"is locked with {WIDE.name} for .*, on Fake GPU \(got nothing\)"):
        locked.accept((), {})
    assert read_winners(home / locked.ASIDE) == ((THIRD,) if file == TUNED_FILE else ())
    locked.unlock(home)
    locked.accept((OTHER,), {})  # what was kept aside before stays there
    assert read_winners(home / locked.ASIDE) == ((WINNER, THIRD) if file == TUNED_FILE else (WINNER,))


def test_one_that_is_quicker_with_the_same_is_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def quicker(_: Path) -> None:
        monkeypatch.undo()
        monkeypatch.setenv("GEN_HOME", str(home))
        locked.accept((WINNER,), {})

    monkeypatch.setenv("GEN_HOME", str(home))
    monkeypatch.setattr("gen.tune.locked.check_unlocked", quicker)
    assert locked.accept((WINNER,), {}) == str(home)


def test_locking_and_unlocking_a_cluster_are_not_asked_at_once(home: Path) -> None:
    ended = run("lock", "--off", "--scheduler", "tcp://127.0.0.1:1", "--home", home)
    assert (ended.status, "--off and --scheduler do not go together" in ended.err) == (2, True)
