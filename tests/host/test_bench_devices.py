"""`bench/devices.py` without a GPU: devices that are simulated, parts that fail, and times that a test makes up."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench import device_peers, device_rows, devices
from bench.device_rows import Place, Row, Way, read_rows, speedups, write_row
from bench.device_steps import CASES, scaling
from bench.devices import CHECK_SECONDS, PARTS, Part, Program, schedule
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner


def place_of(count: int, folder: Path, *, timed: bool = False) -> Place:
    machine = Machine(seed=count, runner=OracleRunner())
    return Place(tuple(machine.devices(count)), timed, machine, folder)


def test_every_way_has_the_bits_of_one_device(tmp_path: Path) -> None:
    tiny = replace(CASES[0], small=(16, 9), exchanges=(3,))
    rows = list(scaling(place_of(2, tmp_path), tiny))
    assert all(row.equal for row in rows)
    ways = {row.how.partition(", ")[2] for row in rows}
    assert ways == {"", "chosen", "queued by the host", "not overlapped", "streams of one priority",
                    "split along columns"}  # fmt: skip
    assert rows[0].key == ("heat", "5 points f32, 16 x 9 a GPU", "1 steps an exchange, chosen", 2)
    assert {row.case for row in rows} == {"5 points f32, 16 x 9 a GPU", "5 points f32, 16 x 9 in all"}


def test_a_speed_is_told_against_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    ways = [
        Way(Row("heat", "case", how, gpus), lambda gpus=gpus: ran.append(gpus), None, base, gpus)  # type: ignore[misc]
        for how, gpus, base in (("one", 1, None), ("two", 2, 0), ("four", 4, 0))
    ]
    clock = iter(range(10_000))

    def timed(_: object, run: object) -> tuple[float, float]:
        assert callable(run)
        run()
        wrong = 100.0 if next(clock) < len(ways) * device_rows.WARM_UP else 0.0  # the first turns do not count
        return 10.0 + ran[-1] / 4 + wrong, 1.0

    monkeypatch.setattr(device_rows, "timed", timed)
    one, two, four = speedups(ways, ())
    assert ran[:6] == [1, 2, 4, 2, 4, 1]
    assert (one.value, two.value, four.value) == (None, round(2 * 10.25 / 10.5, 4), round(4 * 10.25 / 11, 4))
    assert (two.ms, two.queued_ms) == ((10.5,) * device_rows.TURNS, 1.0)
    assert "NOT EQUAL" in str(Row("heat", "case", "two", 2, equal=False))


CHILD = """
import sys, time
name, file = (sys.argv[sys.argv.index(word) + 1] for word in ("--part", "--child"))
with open(file, "w") as rows:
    rows.write('{"part": "%s", "case": "", "how": "", "gpus": 2, "ms": [], "lines": []}\\n' % name)
sys.exit(3) if name == "fails" else time.sleep(60) if name == "hangs" else None
"""


def nothing(_: Place) -> Iterator[Row]:
    yield from ()


def test_a_part_that_fails_or_hangs_loses_its_own_rows_alone(tmp_path: Path) -> None:
    parts = [Part(name, nothing, 4) for name in ("fails", "hangs", "works")]
    file = tmp_path / "devices.json"
    program = Program(file, tmp_path, 2, 7, 60.0, [sys.executable, "-c", CHILD])
    program.run([(part, True) for part in parts])
    assert [(one.part, one.status) for one in program.ended] == [("fails", 3), ("hangs", None), ("works", 0)]
    content = json.loads(file.read_text())
    assert [row["part"] for row in content["rows"]] == ["fails", "hangs", "works"]
    assert (content["meta"]["gpus"], content["meta"]["simulated"]) == (2, True)
    late = Program(None, tmp_path, 2, None, 5.0)
    late.run([(parts[0], True)])
    assert [one.said for one in late.ended] == ["no time was left"]


def test_rows_are_kept_as_they_come_and_times_keep_what_was_compared(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    assert read_rows(file) == []
    row = Row("heat", "case", "way", 2, equal=True, lines=("a", "b"))
    write_row(file, row)
    with file.open("a") as opened:
        opened.write('{"part": "heat", "ca')  # of a process that was killed
    assert read_rows(file) == [row]
    program = Program(None, tmp_path, 2, None, 5.0)
    program.add(row)
    program.add(Row("heat", "case", "way", 2, ms=(1.0,)))
    [kept] = program.rows.values()
    assert (kept.equal, kept.ms) == (True, (1.0,))


def test_bits_are_compared_before_times() -> None:
    seen: set[str] = set()
    timed = set()
    for group in schedule([part.name for part in PARTS]):
        for part, times in group:
            if times and part.checks and part.name != "processes":  # which compare and time at once
                assert part.name in seen
                timed.add(part.name)
            if not times:
                seen.add(part.name)
        assert len(group) == 1 or not any(times for _, times in group)
    compared = {part.name for part in PARTS if part.checks}
    assert seen == compared - {"processes"}
    assert timed == {name for name in compared if not name.startswith("check") and name not in ("killed", "processes")}
    assert CHECK_SECONDS > 0


@pytest.mark.parametrize("steps", [3, 40])
def test_others_are_compared_with_the_rows_that_they_depend_on(steps: int) -> None:
    now = np.zeros((66, 42))
    now[1:-1, 1:-1] = device_peers.cells(0, 64, 40)
    for _ in range(steps):
        following = np.zeros_like(now)
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        following[1:-1, 1:-1] = 0.125 * around + 0.5 * now[1:-1, 1:-1]
        now = following
    assert np.array_equal(device_peers.expected(64, 40, steps), now[31:35, 1:-1])


def test_a_simulated_run_prints_a_table_and_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--simulated", "2", "--seed", "3", "--part", "reduction", "--json", str(tmp_path / "devices.json")]
    monkeypatch.setattr("sys.argv", ["devices.py", *words])
    assert devices.main() == 0
    out = capsys.readouterr().out
    assert "6 of 6 have the bits of one GPU\nfailed: nothing\n" in out
    assert json.loads((tmp_path / "devices.json").read_text())["meta"]["command"].startswith("python bench/devices.py")
