"""`gen report`: one page that holds what the folder of results holds, and asks no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from gen.compare.results import Compared
from gen.compare.row import OURS
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.names import named_variant, search_space, variant
from gen.gpu.timing import Calibration
from gen.paths import output_home
from gen.report.page import ladders, page, rooflines, search_spaces
from gen.store.folder import known_specs, stored_calibrations
from gen.store.trials import StoredTrial, Trials
from gen.store.winners import read_winners
from tests.host.cli.command import run

TRANSPOSE = FAMILIES[1]
SPEC = TRANSPOSE.catalogue[0]
TILED = TRANSPOSE.algorithms["tiled"]


def rows() -> tuple[StoredTrial, ...]:
    """Trials of tiled transposes: slower for larger tiles, and every fifth one wrong."""
    found = []
    for number, config in enumerate(search_space(TILED, SPEC, Limits.of("sm_90"))):
        made, wrong = variant(TRANSPOSE, SPEC, TILED, config), number % 5 == 4
        values = config.to_json()
        time = 100.0 + float(values["tile_dim"]) + number / 100
        found.append(
            StoredTrial(
                key=str(number), device="NVIDIA H200", driver="580", compiler="nvrtc 13", protocol="cold",
                spec="transpose_10_b32", shape_class="aligned rows", extents={"rows": 512, "cols": 256},
                variant=made.name, algorithm="tiled", config=values, registers=32, spill_bytes=0, shared_bytes=4096,
                status="wrong_result" if wrong else "ok", reason="<b>row 3</b> differs" if wrong else "",
                times_us=() if wrong else (time, time + 1.0, time + 2.0), ended=f"2026-11-23T00:00:{number % 60:02d}",
            )
        )  # fmt: skip
    return tuple(found)


def comparison(contender: str, us: float, **other: Any) -> Compared:
    """A contender that takes so long for a transpose, gen taking 10 us."""
    given: dict[str, Any] = {
        "device": "NVIDIA H200", "driver": "580", "date": "2026-11-26", "spec": "transpose_10_b32",
        "extents": {"rows": 512, "cols": 256}, "protocol": "cold", "contender": contender, "us": us, "gen_us": 10.0,
        "ratio": us / 10, "low": us / 11, "high": us / 9, "verdict": "WIN", "variant": "transpose_10_b32__tiled",
        "least_bytes": 2**20, "limit": "copy", "limit_us": 4.0,
    }  # fmt: skip
    return Compared(**{**given, **other})


COMPARISONS = (
    comparison(OURS, 10.0), comparison("torch", 20.0), comparison("cupy", 40.0),
    comparison("torch", 7.0, protocol="hot"),
    comparison("torch", 30.0, spec="stencil_heat_de794a2b_f32", extents={"rows": 512, "cols": 256, "steps": 8}),
    comparison("torch", 30.0, spec="stencil_heat_de794a2b_f32", extents={"rows": 512, "cols": 256, "steps": 1}),
    comparison("jax", 50.0, device="NVIDIA H100 80GB HBM3"),
)  # fmt: skip


class Tags(HTMLParser):
    """Counts tags that stay open, and what the page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag not in {"meta", "input", "link", "br", "img"}:
            self.open.append(tag)
        self.fetched += [value for name in ("src", "srcset") if (value := given.get(name))]
        if identifier := given.get("id"):
            assert identifier not in self.ids
            self.ids.add(identifier)
        if tag == "a":
            self.links.add((given["href"] or "").removeprefix("#"))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open:
            self.text += data


def read(text: str) -> Tags:
    found = Tags()
    found.feed(text)
    return found


@pytest.fixture(scope="module")
def made() -> str:
    home = output_home()
    known = known_specs(FAMILIES, home)
    return page(read_winners(home), rows(), stored_calibrations(home), COMPARISONS, FAMILIES, known)


def test_the_page_is_whole_and_fetches_nothing(made: str) -> None:
    found = read(made)
    assert found.open == []
    assert found.fetched == []
    assert found.links <= found.ids


def test_every_winner_stands_in_it_with_its_kernel(made: str) -> None:
    found = read(made)
    for winner in read_winners(output_home()):
        assert winner.variant.partition("__")[2] in found.text
        assert f"{winner.variant} on {winner.device}" in " ".join(found.text.split())
    shares = [share for winner in read_winners(output_home()) if (share := winner.evidence.get("over_base"))]
    assert min(shares) < 0.5  # the winner takes under half of base's time
    for share in shares:
        assert f"<td>{1 / share:.2f}</td>" in made
    assert found.text.count("__global__") >= len(read_winners(output_home())) / 2
    assert found.text.count("MiB between memory and the second-level cache") >= len(read_winners(output_home())) / 2
    assert "By estimate: 512 MiB between memory" in found.text  # a copy's worth of 8192 x 8192 words, turned


def test_reasons_are_text_and_not_markup(made: str) -> None:
    assert "&lt;b&gt;row 3&lt;/b&gt; differs" in made


def test_plots_show_every_trial_that_was_right_and_how_the_search_converged(made: str) -> None:
    (space,) = search_spaces(rows())
    assert len(space.rows) == len(rows())
    assert len(space.right) == sum(row.status == "ok" for row in rows())
    assert "The fastest so far" in made
    for name in space.parameters():
        assert f"{name}, for tiled" in made
    names = {name for row in space.right for name in row.config}
    varied = {name for name in names if len({row.config.get(name) for row in space.right} - {None}) > 1}
    assert set(space.parameters()) == varied
    assert {"tile_dim", "padding"} <= varied
    ((_, wrong, _),) = space.reasons()
    assert wrong == len(rows()) - len(space.right)


def test_the_kernels_of_the_literature_stand_in_their_order_with_what_each_gains(made: str) -> None:
    ((title, rungs),) = ladders(search_spaces(rows()), FAMILIES)
    assert title == "transpose_10_b32, rows 512, cols 256, on NVIDIA H200"
    by_name = {rung.name: rung for rung in rungs}
    assert {"transposeSmemUnrollPad", "transposeDiagonal"} <= set(by_name)
    assert by_name["transposeSmemUnrollPadDyn16x16"].beside == "transposeSmemUnrollPad"  # not the one above
    assert rungs[0].beside == ""
    for rung in rungs:
        assert f"<td>{rung.name}</td>" in made
        assert (rung.over is None) == (rung.beside == "")
        if rung.beside:
            before = by_name[rung.beside].row.median_us
            assert before is not None
            assert rung.row.median_us is not None
            assert rung.over == before / rung.row.median_us


def test_kernels_of_the_literature_say_what_they_move_where_that_is_estimated() -> None:
    sizes = {"rows": 8192, "cols": 8192, "in_pitch": 8192, "out_pitch": 8192}
    naive = [
        replace(
            rows()[0],
            key=name,
            variant=named_variant(TRANSPOSE, one).name,
            algorithm="naive",
            times_us=(us,),
            extents=sizes,
        )
        for one in TRANSPOSE.named
        for name, us in (("transposeNaiveRow", 30.0), ("transposeNaiveCol", 20.0))
        if one.name == name
    ]
    ((_, (row, col)),) = ladders(search_spaces(naive), FAMILIES)
    assert (row.name, col.name, col.beside, col.over) == (
        "transposeNaiveRow", "transposeNaiveCol", "transposeNaiveRow", 1.5,
    )  # fmt: skip
    assert row.demand is not None
    assert row.demand.moved_bytes >= 2 * 4 * 8192 * 8192
    text = page((), naive, (), (), FAMILIES, {})
    assert f"<td>{row.demand.moved_bytes / 2**20:.4g}</td>" in text
    assert f"<td>{row.demand.bytes_in_flight:.0f}</td>" in text


def test_rooflines_have_ours_and_others_below_what_the_device_can_do() -> None:
    about = Calibration("NVIDIA H200", "580", 4500.0, 4700.0, 4300.0, 4.4, 0.6)
    winners = [one for one in read_winners(output_home()) if one.device == about.device]
    drawn = {figure.layout.title.text: figure for figure in rooflines(about, winners, COMPARISONS)}
    assert {
        "transpose, on NVIDIA H200", "stencil, on NVIDIA H200", "stencil, several steps a call, on NVIDIA H200"
    } <= set(drawn)  # fmt: skip
    (torch,) = (one for one in drawn["transpose, on NVIDIA H200"].data if one.name == "torch")
    assert (tuple(torch.x), tuple(torch.y)) == ((2**20,), (2**20 / 20.0 / 1e3,))
    (several,) = (one for one in drawn["stencil, several steps a call, on NVIDIA H200"].data if one.name == "torch")
    assert (tuple(several.x), tuple(several.y)) == ((8 * 2**20,), (8 * 2**20 / 30.0 / 1e3,))
    names = {one.name for figure in drawn.values() for one in figure.data}
    assert {OURS, "torch", "cupy", "limit: copy 4300 GB/s", "limit: read 4500 GB/s"} <= names
    assert "jax" not in names  # of another device
    for figure in drawn.values():
        for roof in (one for one in figure.data if one.mode == "lines"):
            bandwidth = float(roof.name.split()[2])
            assert list(roof.y) == sorted(roof.y)
            assert all(y < bandwidth for y in roof.y)
            assert roof.y[0] == pytest.approx(roof.x[0] / (about.empty_pair_us + roof.x[0] / bandwidth / 1e3) / 1e3)
    by_spec = {one.spec for one in winners if "gb_per_s" in one.evidence}
    words = " ".join(text for figure in drawn.values() for one in figure.data for text in one.text or ())
    assert all(spec in words for spec in by_spec)


def test_comparisons_stand_in_a_table_without_ours(made: str) -> None:
    table = made.partition('<table id="compared-table">')[2].partition("</table>")[0]
    assert table.count("<tr><td>") == len(COMPARISONS) - 1
    for one in COMPARISONS[1:]:
        assert f"<td>{one.contender}</td><td>{one.us}</td><td>10.0</td>" in table
    assert "2.000 [1.818, 2.222]" in table


# What a reader does: sorts the winners by time, filters them by a name, follows a link; then what the page shows.
READER = """
<script>
addEventListener("load", () => {
  const table = document.getElementById("winners-table"), rows = () => [...table.tBodies[0].rows];
  [...table.querySelectorAll("th button")].find(button => button.textContent === "us").click();
  const times = rows().map(row => Number(row.children[3].textContent)).filter(time => time > 0);
  const link = table.querySelector("a");
  location.hash = link.hash;
  const filter = document.querySelector("input[data-filter]");
  filter.value = "TRANSPOSE_10_B32";
  filter.dispatchEvent(new Event("input"));
  const others = document.getElementById("compared-table");
  [...others.querySelectorAll("th button")].find(button => button.textContent === "its time over gen's").click();
  setTimeout(() => {
    document.title = JSON.stringify({
      times, shown: rows().filter(row => !row.hidden).map(row => row.textContent),
      ratios: [...others.tBodies[0].rows].map(row => parseFloat(row.children[5].textContent)),
      opened: document.querySelector(link.hash).open,
      plots: document.querySelectorAll(".plotly-graph-div").length,
      points: document.querySelectorAll(".plotly-graph-div .point").length,
      empty: document.querySelectorAll(".plotly-graph-div:not(:has(.main-svg))").length,
    });
  }, 1000);
});
</script>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the program chromium, a browser")
def test_a_browser_draws_the_plots_sorts_filters_and_follows_links(made: str, tmp_path: Path) -> None:
    def browsed(text: str) -> tuple[str, list[str]]:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        done = subprocess.run(
            ("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
             "--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", file.as_uri()),
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        title = re.search("<title>(.*?)</title>", done.stdout, re.DOTALL)
        assert title is not None
        return title[1], [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    title, said = browsed(made.replace("</body>", READER + "</body>"))
    assert said == []
    found = json.loads(title.replace("&quot;", '"').replace("&amp;", "&"))
    assert len(found["times"]) > 5
    assert found["times"] == sorted(found["times"])
    assert found["ratios"] == sorted(one.ratio for one in COMPARISONS if one.contender != OURS and one.ratio)
    assert found["shown"]
    assert all("transpose_10_b32" in row for row in found["shown"])
    assert found["opened"]
    assert found["plots"] > 5
    assert found["empty"] == 0
    assert found["points"] > len(rows())
    _, said = browsed("<title>faulty</title><script>missing()</script>")  # else an error would not be seen
    assert "missing is not defined" in said[0]


def test_the_command_writes_a_page_from_the_folder_of_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Trials(tmp_path)
    store.add(rows()[:12])
    store.close()
    file = tmp_path / "mine.html"
    shown = run("report", "-o", file, "--home", tmp_path)
    assert (shown.status, shown.err) == (0, "")
    assert "12 trials" in shown.out
    assert "Nothing was compared" in file.read_text(encoding="utf-8")
    assert re.search(r"12 trials,\s+10 right", read(file.read_text(encoding="utf-8")).text)
    refused = run("report", "-o", tmp_path / "absent" / "x.html", "--home", tmp_path)
    assert refused.status != 0
    assert "cannot be written" in refused.err
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "nothing tuned"))  # in a new checkout too, shipped winners are shown
    assert " 0 trials" in run("report", "-o", file).out
    misspelt = run("report", "-o", file, "--home", tmp_path / "misspelt")
    assert misspelt.status == 1
    assert not (tmp_path / "misspelt").exists()
