"""Trials are found again under the conditions they were measured in, and survive what happens to files."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gen.emit.render import render
from gen.errors import GenError, StoreError
from gen.families import FAMILIES
from gen.families.base import Operand
from gen.families.config import plain
from gen.families.names import base_variants, find_family, find_variant, search_space, variant
from gen.families.stencil import StencilSpec
from gen.store import trials as module
from gen.store.trials import FILE, Problem, Setting, Trial, Trials, key

STENCIL = find_family(FAMILIES, "stencil")
SPEC: StencilSpec = STENCIL.catalogue[0]
EXTENTS = {"rows": 64, "cols": 96, "in_pitch": 96, "out_pitch": 96}
PROBLEM = Problem(STENCIL, SPEC, EXTENTS)
SETTING = Setting("Fake GPU", "1.0", "nvrtc 13", "cold", "-std=c++17")
VARIANT = base_variants(STENCIL, SPEC)[0]
OTHER = variant(STENCIL, SPEC, VARIANT.algorithm, search_space(VARIANT.algorithm, SPEC)[-1])
OK = Trial(VARIANT, "ok", (10.25, 1 / 3, 11.0), 32, 8, 4096, "", 31.5, ("process 7, 512 MiB",), 1980, "power", "twin")
WRONG = Trial(OTHER, "wrong_result", (), 20, 0, 0, 'out: 3 elements are "wrong"\nµ')


@pytest.mark.parametrize(
    "trial",
    [OK, WRONG, Trial(VARIANT, "infeasible", reason="too many threads"), Trial(OTHER, "pruned", reason="spills")],
)
def test_a_trial_is_found_as_it_was_recorded(tmp_path: Path, trial: Trial) -> None:
    trials = Trials(tmp_path)
    assert trials.find(SETTING, PROBLEM, "text", trial.variant) is None
    trials.record(SETTING, PROBLEM, "text", trial)
    assert trials.find(SETTING, PROBLEM, "text", trial.variant) == trial
    trials.close()
    again = Trials(tmp_path)
    assert again.find(SETTING, PROBLEM, "text", trial.variant) == trial
    assert again.count() == 1
    again.close()


def test_a_row_can_be_read_without_gen(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    trials.record(SETTING, PROBLEM, "text", OK)
    trials.record(SETTING, PROBLEM, "other text", WRONG)
    trials.close()
    with sqlite3.connect(tmp_path / FILE) as base:
        base.row_factory = sqlite3.Row
        good, bad = base.execute("SELECT * FROM trials ORDER BY status")
    base.close()
    assert (good["device"], good["driver"], good["compiler"], good["protocol"]) == (
        "Fake GPU", "1.0", "nvrtc 13", "cold",
    )  # fmt: skip
    assert (good["spec"], good["variant"]) == (PROBLEM.spec_name, VARIANT.name)
    assert json.loads(good["extents"]) == EXTENTS
    assert (good["options"], good["alignment"], good["compile_ms"]) == ("-std=c++17", 16, 31.5)
    assert good["algorithm"] == VARIANT.algorithm.name
    assert json.loads(good["config"]) == {field.field: plain(field.base) for field in VARIANT.config.parameters()}
    assert json.loads(good["others"]) == ["process 7, 512 MiB"]
    assert json.loads(good["times_us"]) == list(OK.times_us)
    assert (good["median_us"], bad["median_us"]) == (10.25, None)
    assert bad["reason"] == WRONG.reason
    assert good["ended"].startswith("20")


def test_a_trial_replaces_the_one_before(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    trials.record(SETTING, PROBLEM, "text", OK)
    worse = replace(OK, status="wrong_result", times_us=(), reason="later")
    trials.record(SETTING, PROBLEM, "text", worse)
    assert trials.find(SETTING, PROBLEM, "text", VARIANT) == worse
    assert trials.count() == 1
    trials.close()


def test_variants_are_named_that_were_tried_under_the_same_conditions_the_fastest_first(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    third = variant(STENCIL, SPEC, VARIANT.algorithm, search_space(VARIANT.algorithm, SPEC)[1])
    backwards = replace(PROBLEM, extents=dict(reversed(EXTENTS.items())))
    trials.record(SETTING, PROBLEM, "a", WRONG)
    trials.record(SETTING, PROBLEM, "b", OK)
    trials.record(SETTING, backwards, "c", replace(OK, variant=third, times_us=(9.0,)))
    other = replace(OK, variant=variant(STENCIL, SPEC, VARIANT.algorithm, search_space(VARIANT.algorithm, SPEC)[2]))
    for setting in (replace(SETTING, **{name: "other"}) for name in ("device", "driver", "compiler", "protocol")):
        trials.record(setting, PROBLEM, "d", other)
    for problem in (replace(PROBLEM, alignment=4), replace(PROBLEM, extents={**EXTENTS, "rows": 65})):
        trials.record(SETTING, problem, "d", other)
    trials._base.execute("UPDATE trials SET extents = '{' WHERE alignment = 4")
    assert trials.names(SETTING, PROBLEM) == [third.name, VARIANT.name, OTHER.name]
    trials.close()


def differing() -> dict[str, str]:
    """A key for each part that is another, all else the same."""
    weights = tuple(weight / 2 for weight in SPEC.weights)
    return {
        "the same": key(SETTING, PROBLEM, "text"),
        "device": key(replace(SETTING, device="Other GPU"), PROBLEM, "text"),
        "driver": key(replace(SETTING, driver="1.1"), PROBLEM, "text"),
        "compiler": key(replace(SETTING, compiler="nvrtc 14"), PROBLEM, "text"),
        "protocol": key(replace(SETTING, protocol="hot"), PROBLEM, "text"),
        "options": key(replace(SETTING, options="-maxrregcount=32"), PROBLEM, "text"),
        "alignment": key(SETTING, replace(PROBLEM, alignment=4), "text"),
        "extents": key(SETTING, replace(PROBLEM, extents={**EXTENTS, "rows": 65}), "text"),
        "pitch": key(SETTING, replace(PROBLEM, extents={**EXTENTS, "in_pitch": 97}), "text"),
        "spec": key(SETTING, replace(PROBLEM, spec=replace(SPEC, weights=weights)), "text"),
        "text": key(SETTING, PROBLEM, "text "),
        "moved border": key(replace(SETTING, device="Fake GPU1", driver=".0"), PROBLEM, "text"),
        "exchanged": key(replace(SETTING, device=SETTING.driver, driver=SETTING.device), PROBLEM, "text"),
    }


def test_a_key_changes_with_each_part() -> None:
    keys = differing()
    assert len(set(keys.values())) == len(keys)


@dataclass(frozen=True)
class Relabelled:
    """A spec whose label does not say all of it."""

    weight: int
    label: str = "same"
    summary: str = ""
    operands: tuple[Operand, ...] = ()

    def to_json(self) -> Mapping[str, Any]:
        return {"weight": self.weight}


def test_a_key_holds_what_a_specs_label_does_not_say() -> None:
    one, other = (replace(PROBLEM, spec=Relabelled(weight)) for weight in (1, 2))
    assert one.spec_name == other.spec_name
    assert key(SETTING, one, "text") != key(SETTING, other, "text")


def test_a_key_changes_with_nothing_else(tmp_path: Path) -> None:
    backwards = dict(reversed(EXTENTS.items()))
    assert key(SETTING, Problem(STENCIL, SPEC, backwards), "text") == key(SETTING, PROBLEM, "text")
    trials = Trials(tmp_path)
    trials.record(SETTING, PROBLEM, "text", OK)
    trials.record(SETTING, PROBLEM, "text", replace(OK, times_us=(1.0,), registers=99))
    assert trials.count() == 1
    trials.close()


def test_a_value_added_to_a_parameter_keeps_every_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trials, kind = Trials(tmp_path), type(VARIANT.config)
    trials.record(SETTING, PROBLEM, render(VARIANT), OK)
    before = len(list(kind.space()))
    more = tuple(replace(one, values=(*one.values, 64)) if one.field == "unroll" else one for one in kind.parameters())
    monkeypatch.setattr(kind, "_parameters", more)
    assert len(list(kind.space())) > before
    again = variant(STENCIL, SPEC, VARIANT.algorithm, kind.from_json(VARIANT.config.to_json()))
    assert trials.find(SETTING, PROBLEM, render(again), again) == OK
    trials.close()


def torn_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3" + bytes(range(256)) * 20)


def no_database(path: Path) -> None:
    path.write_text("device,driver\n" * 200)


def cut_short(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 100])


def torn_inside(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize("tear", [torn_header, no_database, cut_short, torn_inside])
def test_a_torn_file_is_set_aside_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tear: Callable[[Path], None]
) -> None:
    trials = Trials(tmp_path)
    for number in range(100):
        trials.record(SETTING, PROBLEM, f"text {number}", OK)
    trials.close()
    tear(tmp_path / FILE)
    torn = (tmp_path / FILE).read_bytes()
    with caplog.at_level(logging.WARNING):
        trials = Trials(tmp_path)
    assert trials.count() == 0
    trials.record(SETTING, PROBLEM, "text", OK)
    assert trials.find(SETTING, PROBLEM, "text", VARIANT) == OK
    trials.close()
    assert (tmp_path / f"{FILE}.corrupt").read_bytes() == torn
    (warning,) = caplog.messages
    assert str(tmp_path / FILE) in warning
    assert f"{FILE}.corrupt" in warning


def test_a_second_torn_file_is_set_aside_beside_the_first(tmp_path: Path) -> None:
    torn = [b"one" * 999, b"two" * 999, b"three" * 999]
    for content in torn:
        (tmp_path / FILE).write_bytes(content)
        Trials(tmp_path).close()
    kept = [tmp_path / f"{FILE}.corrupt{end}" for end in ("", "-2", "-3")]
    assert [path.read_bytes() for path in kept] == torn


@pytest.mark.parametrize(("table", "version"), [("birds", 0), ("birds", 2), ("trials", 0), ("trials", 2)])
def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path, table: str, version: int) -> None:
    with sqlite3.connect(tmp_path / FILE) as base:
        base.execute(f"CREATE TABLE {table} (name TEXT)")
        base.execute(f"PRAGMA user_version = {version}")
    base.close()
    content = (tmp_path / FILE).read_bytes()
    words = rf"must be a database of gen's trials \(got the tables {table}\)\. Move it away"
    with pytest.raises(StoreError, match=words):
        Trials(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content


def test_an_empty_file_is_begun_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).touch()
    trials = Trials(tmp_path)
    assert trials.count() == 0
    trials.close()
    assert not caplog.messages


def test_a_file_of_a_newer_gen_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    trials.record(SETTING, PROBLEM, "text", OK)
    trials.close()
    with sqlite3.connect(tmp_path / FILE) as base:
        base.execute(f"PRAGMA user_version = {module.SCHEMA + 1}")
    base.close()
    with pytest.raises(StoreError, match=r"must have schema 3 \(got 4\)\. Move it away, or use a newer gen") as caught:
        Trials(tmp_path)
    assert str(tmp_path / FILE) in str(caught.value)
    with sqlite3.connect(tmp_path / FILE) as base:
        assert base.execute("SELECT count(*) FROM trials").fetchone() == (1,)
    base.close()
    assert not (tmp_path / f"{FILE}.corrupt").exists()


SCHEMA_1 = """
CREATE TABLE trials (
    key TEXT PRIMARY KEY, device TEXT NOT NULL, driver TEXT NOT NULL, compiler TEXT NOT NULL, protocol TEXT NOT NULL,
    spec TEXT NOT NULL, shape_class TEXT NOT NULL, extents TEXT NOT NULL, variant TEXT NOT NULL,
    status TEXT NOT NULL, median_us REAL, times_us TEXT NOT NULL, reason TEXT NOT NULL,
    registers INTEGER NOT NULL, spill_bytes INTEGER NOT NULL, shared_bytes INTEGER NOT NULL, ended TEXT NOT NULL
);
INSERT INTO trials VALUES ('old', 'GPU', '1', 'c', 'cold 2', 's', 'any size', '{"n": 1}', 'v', 'ok', 2.0, '[2.0]', '',
    20, 0, 0, '2026-01-01T00:00:00+00:00');
PRAGMA user_version = 1;
"""


def test_trials_of_an_older_gen_are_kept_beside_new_ones(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as base:
        base.executescript(SCHEMA_1)
    base.close()
    start, failed = threading.Barrier(4), list[BaseException]()

    def work(number: int) -> None:
        try:
            start.wait()
            trials = Trials(tmp_path)
            trials.record(SETTING, PROBLEM, f"text {number}", OK)
            trials.close()
        except BaseException as error:  # noqa: BLE001 - told below, in the thread that can fail the test
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    trials = Trials(tmp_path)
    assert trials.count() == 5
    assert trials.find(SETTING, PROBLEM, "text 3", VARIANT) == OK
    row = trials._base.execute("SELECT * FROM trials WHERE key = 'old'").fetchone()
    assert (row["median_us"], row["options"], row["alignment"], row["config"]) == (2.0, "", 16, "{}")
    trials.close()


def test_parameters_that_were_renamed_have_their_new_names_in_older_trials(tmp_path: Path) -> None:
    family = FAMILIES[0]
    names = ("grid_tpb128_u8_v16_bpm2_secondpass", "single_tpb128_u4_v16_shared")
    made = [find_variant((family,), f"reduction_sum_f32__{name}", {}) for name in names]
    trials = Trials(tmp_path)
    for one in made:
        trials.record(SETTING, replace(PROBLEM, spec=one.spec), one.name, replace(OK, variant=one))
    trials._base.execute("""UPDATE trials SET config = replace(replace(config, '"combine"', '"finish"'),
        '"block_reduce"', '"ending"')""")
    trials._base.execute("PRAGMA user_version = 2")
    trials.close()
    trials = Trials(tmp_path)
    configs = {row.variant: row.config for row in trials.rows()}
    assert configs == {one.name: one.config.values() for one in made}
    trials.close()


def test_two_at_once_see_each_others_trials(tmp_path: Path) -> None:
    one, other = Trials(tmp_path), Trials(tmp_path)
    one.record(SETTING, PROBLEM, "a", OK)
    other.record(SETTING, PROBLEM, "b", WRONG)
    assert other.find(SETTING, PROBLEM, "a", VARIANT) == OK
    assert one.find(SETTING, PROBLEM, "b", OTHER) == WRONG
    assert one.count() == other.count() == 2
    one.close()
    other.close()


def test_many_may_begin_and_record_at_the_same_time(tmp_path: Path) -> None:
    start, failed = threading.Barrier(8), list[BaseException]()

    def work(number: int) -> None:
        try:
            start.wait()
            trials = Trials(tmp_path / "new")
            for turn in range(10):
                trials.record(SETTING, PROBLEM, f"{number} {turn}", OK)
            trials.close()
        except BaseException as error:  # noqa: BLE001 - told below, in the thread that can fail the test
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    trials = Trials(tmp_path / "new")
    assert trials.count() == 80
    trials.close()


WRITER = """
import sys
from dataclasses import replace
from pathlib import Path
from gen.store.trials import Trials
from tests.host.test_trials import OK, PROBLEM, SETTING
trials = Trials(Path(sys.argv[1]))
print(flush=True)
for number in range(10**6):
    trials.record(SETTING, PROBLEM, f"{sys.argv[2]} {number}", OK)
    print(number, flush=True)
"""


@pytest.mark.exhaustive
def test_a_writer_that_is_killed_loses_nothing_that_it_recorded(tmp_path: Path) -> None:
    """Two at a time, each killed after another number of milliseconds; what they had told is there."""
    told: dict[str, int] = {}
    for milliseconds in (0, 3, 20):
        running = {}
        for name in (f"a{milliseconds}", f"b{milliseconds}"):
            command = [sys.executable, "-c", WRITER, str(tmp_path), name]
            running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for process in running.values():
            assert process.stdout is not None
            process.stdout.readline()  # it begins
        time.sleep(milliseconds / 1000)
        for name, process in running.items():
            process.kill()
            said = process.communicate()[0].rpartition("\n")[0].split()  # not a line that was cut
            told[name] = len(said)
    trials = Trials(tmp_path)
    for name, count in told.items():
        for number in range(count):
            assert trials.find(SETTING, PROBLEM, f"{name} {number}", VARIANT) == OK
    assert sum(told.values()) <= trials.count() <= sum(told.values()) + len(told)  # one more was on its way
    assert sum(told.values()) > 0
    trials.close()
    assert not (tmp_path / f"{FILE}.corrupt").exists()


def a_file_above(home: Path) -> None:
    home.parent.write_text("a file")


def a_file_in_its_place(home: Path) -> None:
    home.parent.mkdir()
    home.write_text("a file")


def a_folder_for_the_file(home: Path) -> None:
    (home / FILE).mkdir(parents=True)


@pytest.mark.parametrize("spoil", [a_file_above, a_file_in_its_place, a_folder_for_the_file])
def test_a_folder_that_cannot_be_used_is_an_error_in_words(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    home = tmp_path / "above" / "home"
    spoil(home)
    with pytest.raises(GenError) as caught:
        Trials(home)
    assert str(home) in str(caught.value)


def test_a_disk_that_takes_no_more_is_an_error_in_words(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    trials.record(SETTING, PROBLEM, "text", OK)
    trials._base.execute("PRAGMA max_page_count = 1")  # no less than it has
    with pytest.raises(StoreError, match=r"cannot be written.*full") as caught:
        trials.record(SETTING, PROBLEM, "other", replace(WRONG, reason="x" * 100_000))
    assert str(tmp_path / FILE) in str(caught.value)
    assert trials.count() == 1
    assert trials.find(SETTING, PROBLEM, "text", VARIANT) == OK
    trials.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("status", "fine"),
        ("status", "wrong_result"),
        ("times_us", "[]"),
        ("times_us", "[1.0"),
        ("times_us", '["fast"]'),
        ("times_us", "[NaN]"),
        ("times_us", "[-1.0]"),
        ("times_us", "7"),
        ("times_us", b"\xff"),
        ("registers", "few"),
        ("compile_ms", "long"),
        ("others", "[1]"),
        ("others", "{"),
        ("reason", 5),
    ],
)
def test_a_row_edited_by_hand_is_measured_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, column: str, value: object
) -> None:
    trials = Trials(tmp_path)
    trials.record(SETTING, PROBLEM, "text", OK)
    with sqlite3.connect(tmp_path / FILE) as base:
        base.execute(f"UPDATE trials SET {column} = ?", (value,))
    base.close()
    with caplog.at_level(logging.WARNING):
        found = trials.find(SETTING, PROBLEM, "text", VARIANT)
    if column == "reason":  # SQLite makes it a text
        assert found == replace(OK, reason="5")
    else:
        assert found is None
        assert VARIANT.name in caplog.messages[0]
    trials.close()


def test_a_table_that_goes_meanwhile_is_an_error_in_words(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as base:
        base.execute("DROP TABLE trials")
    base.close()
    with pytest.raises(StoreError, match=r"trials\.sqlite cannot be read .*Move it away"):
        trials.find(SETTING, PROBLEM, "text", VARIANT)
    trials.close()
