"""Results are kept by case, peer and protocol; what else stands in a file is refused; tables say what rows say."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.results import Change, Difference, Results, Run, differences, in_order, origin, read_results, write_results
from bench.table import full, lines, lost, summary, text_of
from gen.compare.row import OURS, Row, said
from gen.errors import GenError, StoreError
from gen.gpu.timing import METHOD

RUN = Run("python -m bench", "2026-11-22", "NVIDIA H100", "580", {"read": 3000.0}, {"torch": "2.11"}, "", METHOD)
OLD = replace(RUN, method="cold 4")


def row(case: str, peer: str, ratio: float | None = None, protocol: str = "cold", **values: Any) -> Row:
    if ratio is None:
        return Row("transpose", case, peer, protocol, **values)
    verdict = "WIN" if ratio > 1.01 else "LOSS" if ratio < 0.99 else "TIE"
    found = Row(
        "transpose", case, peer, protocol, 10.0, 10.0 * ratio, ratio, ratio - 0.01, ratio + 0.01, 0.9, verdict,
        **{"pairs": 30, **values},
    )  # fmt: skip
    return replace(found, verdict="-") if peer == OURS else found


ROWS = (
    row("a", OURS, 1.0, variant="transpose_10_b32__tiled_t64"), row("a", "torch", 2.0), row("a", "cub", 0.9),
    row("a", OURS, 1.0, "hot"), row("a", "torch", 1.5, "hot"),
    row("b", OURS, 1.0, note="base: nothing"), row("b", "torch", 4.0), row("b", "jax", note="failed: no"),
    row("c", OURS, note="not offered: no such dtype"),
)  # fmt: skip
RESULTS = Results().with_run(RUN, ROWS)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    write_results(file, RESULTS)
    assert read_results(file) == RESULTS
    content = json.loads(file.read_text())
    assert set(content) == {"schema", "meta", "rows"}
    wanted = {
        "family", "case", "peer", "ours_us", "peer_us", "ratio", "low", "high", "of_limit", "verdict", "variant"
    }  # fmt: skip
    assert all(wanted <= set(one) for one in content["rows"])
    assert len(file.read_text().splitlines()) == len(ROWS) + 11


def test_what_is_written_is_judged_by_the_digits_that_are_written(tmp_path: Path) -> None:
    ours = replace(row("a", OURS, 1.0), low=0.99908, high=1.0)
    peer = replace(row("a", "torch", 1.0017), low=1.00094, high=1.0023, verdict="WIN")
    assert peer.against(ours.noise) == "WIN"
    file = tmp_path / "h100.json"
    write_results(file, Results().with_run(RUN, (ours, peer)))
    read = {one.peer: one for one in read_results(file).rows}
    assert read["torch"].low == 1.0009
    assert read["torch"].verdict == read["torch"].against(read[OURS].noise) == "TIE"


def test_the_measured_files_say_what_their_numbers_say() -> None:
    for name in ("h100", "h200"):
        results = read_results(Path(__file__).parents[2] / "bench" / f"{name}.json")
        ours = {(one.family, one.case, one.protocol): one for one in results.rows if one.peer == OURS}
        for one in results.rows:
            if one.peer != OURS and one.ratio is not None:
                assert one.verdict == one.against(ours[one.family, one.case, one.protocol].noise), one


def test_a_failure_is_told_without_the_folders_of_a_machine() -> None:
    error = ValueError("/tmp/tmp1/x/ab.cu(80): error: a/b is no 'path', see (/usr/include/c.h)")
    assert said(error) == "ValueError: ab.cu(80): error: a/b is no 'path', see (c.h)"


def test_no_file_is_no_results(tmp_path: Path) -> None:
    assert read_results(tmp_path / "none.json") == Results()


def test_a_later_run_replaces_rows_of_its_cases_and_keeps_the_others() -> None:
    later = replace(RUN, date="2026-11-23")
    merged = RESULTS.with_run(later, [row("a", "torch", 3.0), row("d", OURS, 1.0)])
    by_key = {one.key: one for one in merged.rows}
    assert len(by_key) == len(merged.rows) == len(ROWS) + 1
    found = by_key["transpose", "a", "torch", "cold"]
    assert (found.ratio, merged.runs[found.run].date) == (3.0, "2026-11-23")
    assert merged.runs[by_key["transpose", "b", "torch", "cold"].run].date == "2026-11-22"


def test_a_run_of_which_no_row_is_left_is_forgotten() -> None:
    again = RESULTS.with_run(replace(RUN, date="2026-11-23"), ROWS)
    assert [run.date for run in again.runs] == ["2026-11-23"]
    assert all(one.run == 0 for one in again.rows)


def test_results_of_two_devices_do_not_mix() -> None:
    with pytest.raises(StoreError, match="were measured on NVIDIA H100"):
        RESULTS.with_run(replace(RUN, device="NVIDIA H200"), [])


def test_rows_stand_in_the_order_of_cases_and_peers() -> None:
    ordered = in_order(RESULTS, [("transpose", "b"), ("transpose", "a")], ["cub", "torch"])
    assert [(one.case, one.protocol, one.peer) for one in ordered.rows] == [
        ("b", "cold", OURS), ("b", "cold", "torch"), ("b", "cold", "jax"), ("a", "cold", OURS), ("a", "cold", "cub"),
        ("a", "cold", "torch"), ("a", "hot", OURS), ("a", "hot", "torch"), ("c", "cold", OURS),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "spoil",
    [
        lambda content: content.update(schema=2),
        lambda content: content.pop("meta"),
        lambda content: content["rows"][0].update(ratio="fast"),
        lambda content: content["rows"][0].update(ratio=-1.0),
        lambda content: content["rows"][0].update(ratio=10**400),
        lambda content: content["rows"][0].update(run=7),
        lambda content: content["rows"][0].update(more=1),
        lambda content: content["rows"].append("x"),
        lambda content: content["rows"][0].update(verdict="FOO"),
        lambda content: content["meta"]["runs"][0].pop("date"),
        lambda content: content["meta"]["runs"][0].update(versions=6),
        lambda content: content["meta"]["runs"][0].update(versions={"torch": 2}),
        lambda content: content["meta"]["runs"][0].update(calibration=[]),
        lambda content: content["meta"]["runs"][0].update(device=None),
    ],
)
def test_a_file_that_gen_did_not_write_is_refused(tmp_path: Path, spoil: Any) -> None:
    file = tmp_path / "h100.json"
    write_results(file, RESULTS)
    content = json.loads(file.read_text())
    spoil(content)
    file.write_text(json.dumps(content))
    with pytest.raises(StoreError, match=r"h100.json (is not what python -m bench writes|must have schema 1)"):
        read_results(file)


def test_the_best_peer_is_the_one_that_comes_closest() -> None:
    cold, hot, other, missing = lines(RESULTS)
    assert (cold.best and cold.best.peer, cold.verdict) == ("cub", "LOSS")
    assert (hot.protocol, hot.verdict) == ("hot", "WIN")
    assert other.verdict == "WIN"
    assert (missing.best, missing.verdict) == (None, "-")
    assert text_of(cold) == ("a", "cold", "10", "0.900", "1.0 %", "cub", "0.900 [0.890, 0.910]", "LOSS")
    assert text_of(missing)[2:] == ("-",) * 6


def test_no_peer_that_may_be_faster_hides_behind_another() -> None:
    ours, steady = row("a", OURS, 1.0), row("a", "torch", 1.05)
    for low, high, word in ((0.95, 1.2, "TIE"), (0.5, 0.9, "LOSS"), (1.04, 1.2, "WIN")):
        wide = replace(row("a", "cub", 1.1), low=low, high=high)
        (line,) = lines(Results().with_run(RUN, [ours, steady, wide]))
        assert line.verdict == word
        assert line.best is not None
        assert line.best.peer == ("torch" if word == "WIN" else "cub")


def test_the_summary_counts_every_case_and_every_loss() -> None:
    text = summary(RESULTS)
    assert "| transpose | 3 | 2 | 0 | 1 | 0.900 | 1.754 | 2.289 | 1 | 0 |" in text
    assert "- transpose: 1 to cub, 0.90; the worst: a (cold)\n" in text
    assert "Measured on one NVIDIA H100 (driver 580), 2026-11-22, by `python -m bench`" in text


@pytest.mark.parametrize("note", ["wrong: out: 3 cells are wrong", "failed: it failed", "crashed while timing", "hung"])
def test_what_failed_is_not_counted_as_what_is_not_offered(note: str) -> None:
    results = Results().with_run(RUN, [*ROWS, row("d", OURS, note=note)])
    assert "| transpose | 4 | 2 | 0 | 1 | 0.900 | 1.754 | 2.289 | 1 | 1 |" in summary(results)


def test_a_difference_within_the_noise_of_a_line_is_a_tie() -> None:
    rows = [replace(row("a", OURS, 1.0), low=0.999, high=1.15), replace(row("a", "torch", 1.1), verdict="WIN")]
    (line,) = lines(Results().with_run(RUN, rows))
    assert line.verdict == text_of(line)[-1] == "TIE"


def test_few_pairs_are_said_and_too_few_give_no_interval() -> None:
    few, fewest = (
        lines(Results().with_run(RUN, [row("a", OURS, 1.0), row("a", "torch", 2.0, pairs=n)]))[0] for n in (12, 3)
    )
    assert text_of(few)[-2:] == ("2.000 [1.990, 2.010]", "WIN")
    assert text_of(fewest)[-2:] == ("2.000 -", "-")
    rows = [row("a", OURS, 1.0), row("a", "torch", 2.0, pairs=12)]
    assert "| WIN (12 pairs) |" in full(Results().with_run(RUN, rows))
    assert "pairs)" not in full(RESULTS)


def test_rows_of_another_kernel_of_ours_do_not_stay() -> None:
    old = [
        row("a", OURS, 1.0, variant="v"), row("a", "torch", 2.0, variant="v"), row("a", "cub", 0.9, variant="v"),
        row("a", "jax", variant="v", note="not offered: no"),
        row("a", OURS, 1.0, "hot", variant="v"), row("a", "cub", 0.9, "hot", variant="v"), row("b", OURS, 1.0),
    ]  # fmt: skip

    def left(*later: Row) -> set[tuple[str, str, str]]:
        merged = Results().with_run(RUN, old).with_run(replace(RUN, date="2026-11-23"), later)
        return {(one.case, one.peer, one.protocol) for one in merged.rows if one.run == 0 and len(merged.runs) > 1}

    everything = {(one.case, one.peer, one.protocol) for one in old}
    again = {("a", OURS, "cold"), ("a", "torch", "cold")}
    same = [row("a", OURS, 1.0, variant="v"), row("a", "torch", 3.0, variant="v")]
    assert left(*same) == everything - again
    slower = [replace(one, ours_us=10.6) for one in same]
    assert left(*slower) == everything - again - {("a", "cub", "cold")}, "of another time of ours"
    other = [replace(one, variant="w") for one in same]
    assert left(*other) == {("a", "jax", "cold"), ("b", OURS, "cold")}, "of another variant of ours"
    assert left(row("a", OURS, note="failed: no")) == {
        ("a", "jax", "cold"), ("b", OURS, "cold")
    }, "there is nothing of ours to compare with"  # fmt: skip


def test_what_failed_is_measured_again_and_what_cannot_be_is_not() -> None:
    assert all(row("a", peer, 1.0).is_done for peer in (OURS, "torch"))
    for note in ("not offered: no", "cannot be captured in a graph", "base: nothing is tuned"):
        assert row("a", "torch", note=note).is_done
    for note in ("failed: no", "crashed while timing", "hung for 5 s", "took the device down while", "left out: it"):
        assert not row("a", "torch", note=note).is_done
    assert row("a", "torch", note="wrong: out").is_done
    assert not row("a", OURS, note="wrong: out").is_done


def test_losses_are_told_by_peer_and_listed_worst_first() -> None:
    more = [row("d", OURS, 1.0), row("d", "cub", 0.5), row("e", OURS, 1.0), row("e", "jax", 0.7)]
    results = Results().with_run(RUN, [*ROWS, *more])
    found = [str(loss) for loss in lost(lines(results))]
    assert found == ["d (cold) cub 0.50", "e (cold) jax 0.70", "a (cold) cub 0.90"]
    assert f"Losses, peer / ours: {'; '.join(found)}.\n" in full(results)
    text = summary(results)
    assert "- transpose: 2 to cub, 0.50 to 0.90, the median 0.70; the worst: d (cold)\n" in text
    assert "- transpose: 1 to jax, 0.70; the worst: e (cold)\n" in text
    won = Results().with_run(RUN, [row("a", OURS, 1.0), row("a", "torch", 2.0)])
    assert "Losses" not in summary(won) + full(won)


def test_versions_and_drivers_of_all_runs_are_told() -> None:
    later = replace(RUN, driver="590", versions={"torch": "2.12", "cub": "3.5.0"})
    text = summary(RESULTS.with_run(later, ROWS[:3]))
    assert "each run on one (driver 580 and 590)" in text
    assert "; torch 2.11 and 2.12, cub 3.5.0. " in text
    assert "; torch 2.11, cub 3.5.0. " in summary(RESULTS.with_run(later, ROWS[:1])), "torch was not timed again"
    only_torch = replace(RUN, versions={})
    assert "; torch 2.11. " in summary(RESULTS.with_run(only_torch, ROWS[:1])), "which other rows are by"


def test_several_runs_are_counted_and_the_last_is_quoted() -> None:
    again = RESULTS.with_run(replace(RUN, command="python -m bench --part 2/2"), ROWS[:1])
    assert "2026-11-22, in 2 runs, the last by `python -m bench --part 2/2`" in summary(again)
    assert "Measured on NVIDIA H100s, each run on one (driver 580)" in summary(again)


def test_which_gen_was_measured_is_said_where_it_was_written_down(tmp_path: Path) -> None:
    file = tmp_path / "h100.json"
    write_results(file, Results().with_run(replace(RUN, origin="commit 12ab"), ROWS))
    assert "torch 2.11; gen's commit 12ab. " in summary(read_results(file))
    content = json.loads(file.read_text())
    del content["meta"]["runs"][0]["origin"]  # as earlier ones wrote it
    file.write_text(json.dumps(content))
    assert "torch 2.11. " in summary(read_results(file))


def test_the_origin_is_a_commit_or_the_digest_of_what_is_installed(tmp_path: Path) -> None:
    code = tmp_path / "gen"
    code.mkdir()
    (code / "a.py").write_text("a = 1\n")
    before = origin(code)
    assert re.fullmatch("files [0-9a-f]{12}", before)
    assert origin(code) == before
    (code / "a.py").write_text("a = 2\n")
    assert origin(code) != before
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "One"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch("commit [0-9a-f]{7,}", origin(code))
    (code / "a.py").write_text("a = 3\n")
    assert origin(code).endswith("-dirty")


def test_times_of_an_older_method_go_with_the_first_of_the_new_one() -> None:
    """Peers' too; what was never offered has no time, and stays."""
    rows = [row("a", OURS, 1.0), row("a", "torch", 2.0), row("a", "jax", note="not offered: no"), row("b", OURS, 1.0)]
    before = Results().with_run(OLD, rows)
    assert [before.is_old(one) for one in before.rows] == [True, True, False, True]
    after = before.with_run(RUN, [row("a", OURS, 1.0)])
    assert sorted((one.case, one.peer) for one in after.rows) == [("a", OURS), ("a", "jax"), ("b", OURS)]
    assert [one.case for one in after.rows if after.is_old(one)] == ["b"]
    assert "1 of the cases were timed by an older method" in full(after)
    assert "older method" not in full(RESULTS)
    same = before.with_run(replace(OLD, date="2026-11-23"), [row("a", OURS, 1.0)])
    assert len(same.rows) == len(rows)


def test_times_of_two_methods_are_not_compared() -> None:
    before = Results().with_run(OLD, [row("a", OURS, 1.0)])
    (one,) = differences(before, Results().with_run(RUN, [replace(row("a", OURS, 1.0), ours_us=20.0)]))
    assert one.change is Change.UNCLEAR
    assert "older method" in one.note


def test_noise_is_how_far_a_kernel_is_from_itself() -> None:
    assert row("a", OURS, 1.0).noise == pytest.approx(0.01)
    assert replace(row("a", OURS, 1.0), low=0.985, high=0.987).noise == pytest.approx(0.015)
    assert row("a", OURS).noise == 0


@pytest.mark.parametrize(
    ("us", "cell"), [(4.12345, "4.123"), (9999.4, "9999"), (20640.4, "20640"), (1234567.0, "1234567")]
)
def test_a_long_time_is_written_out(us: float, cell: str) -> None:
    results = Results((replace(row("a", OURS, 1.0), ours_us=us),))
    assert text_of(lines(results)[0])[2] == cell
    assert f"| {cell} |" in full(results)


def test_nothing_is_a_summary_too() -> None:
    assert summary(Results()) == "Nothing is measured yet.\n"


def test_the_full_table_has_every_peer_and_every_note() -> None:
    text = full(RESULTS)
    assert "| a | cold | `tiled_t64` | 10 | 0.900 | LOSS | 2.000 | 0.900 |" in text
    assert "- jax: failed: no: b" in text
    assert "- gen: not offered: no such dtype: c" in text


def test_a_reason_that_several_cases_share_is_told_once() -> None:
    refused = [row(case, "cub", note=f"not offered: CUB reduces rows (got {case})") for case in "abcd"]
    timed = [
        row("a", "torch", 2.0, note="accumulates in f32; gen took 6 us beside it"),
        row("b", "torch", 2.0, note="accumulates in f32"),
        row("c", "torch", 2.0),
        row("d", "torch", note="failed: one; two"),
    ]
    text = full(Results().with_run(RUN, [*(row(case, OURS, 1.0) for case in "abcd"), *refused, *timed]))
    assert [line for line in text.splitlines() if line.startswith("- ")] == [
        "- cub: not offered: CUB reduces rows: a, b, c and 1 more",
        "- torch: accumulates in f32: a, b",
        "- torch: failed: one; two: d",
        "- torch: gen took 6 us beside it: a",
    ]


def test_changes_are_told_by_our_own_times() -> None:
    now = Results().with_run(
        RUN,
        [
            replace(ROWS[0], ours_us=12.0),
            replace(ROWS[3], ours_us=10.05),
            replace(ROWS[5], ours_us=8.0),
            ROWS[8],
        ],
    )
    assert differences(RESULTS, now) == (
        Difference("transpose", "a", "cold", 10.0, 12.0, Change.SLOWER),
        Difference("transpose", "a", "hot", 10.0, 10.05, Change.SAME),
        Difference("transpose", "b", "cold", 10.0, 8.0, Change.FASTER),
    )


def test_a_kernel_that_gives_no_time_any_more_is_broken() -> None:
    now = Results().with_run(RUN, [row("a", OURS, note="wrong: out: 1 elements are wrong")])
    (found,) = differences(RESULTS, now)
    assert (found.before_us, found.now_us, found.change) == (10.0, None, Change.BROKEN)
    assert found.note == "wrong: out: 1 elements are wrong"


@pytest.mark.parametrize(("note", "word"), [("base: nothing", "base"), ("untuned: nothing", "untuned"), ("slow", "")])
def test_the_full_table_says_which_kernels_were_not_tuned(note: str, word: str) -> None:
    ours = row("a", OURS, 1.0, variant="stencil_a__stream_u2", note=note)
    assert ours.untuned == word
    said = f"`stream_u2 ({word})` |" if word else "`stream_u2` |"
    assert said in full(Results((ours,)))


def test_results_that_cannot_be_written_need_another_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(GenError, match=r"file/h\.json cannot be written \(got .*\)\. Name another file$"):
        write_results(tmp_path / "file" / "h.json", RESULTS)
