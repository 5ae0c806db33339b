"""`gen report`: one page that holds what the folder of results holds, and asks no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.names import search_space, variant
from gen.paths import output_home
from gen.report.page import ladders, page, search_spaces
from gen.store.folder import known_specs, stored_calibrations
from gen.store.trials import Row, Trials
from gen.store.tuned import read_winners
from tests.host.cli.command import run

TRANSPOSE = FAMILIES[1]
SPEC = TRANSPOSE.catalogue[0]
TILED = TRANSPOSE.algorithms["tiled"]


def rows() -> tuple[Row, ...]:
    """Trials of tiled transposes: slower for larger tiles, and every fifth one wrong."""
    found = []
    for number, config in enumerate(search_space(TILED, SPEC, Limits.of("sm_90"))):
        made, wrong = variant(TRANSPOSE, SPEC, TILED, config), number % 5 == 4
        values = config.to_json()
        time = 100.0 + float(values["tile_dim"]) + number / 100
        found.append(
            Row(
                key=str(number), device="NVIDIA H200", driver="580", compiler="nvrtc 13", protocol="cold",
                spec="transpose_10_b32", shape_class="aligned rows", extents={"rows": 512, "cols": 256},
                variant=made.name, algorithm="tiled", config=values, registers=32, spill_bytes=0, shared_bytes=4096,
                status="wrong_result" if wrong else "ok", reason="<b>row 3</b> differs" if wrong else "",
                times_us=() if wrong else (time, time + 1.0, time + 2.0), ended=f"2026-11-23T00:00:{number % 60:02d}",
            )
        )  # fmt: skip
    return tuple(found)


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
    return page(read_winners(home), rows(), stored_calibrations(home), FAMILIES, known_specs(FAMILIES, home))


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
    assert [rung.over is None for rung in rungs] == [True] + [False] * (len(rungs) - 1)
    for before, rung in pairwise(rungs):
        assert before.row.median_us is not None
        assert rung.row.median_us is not None
        assert rung.over == before.row.median_us / rung.row.median_us
        assert f"<td>{rung.name}</td>" in made


# What a reader does: sorts the winners by time, filters them by a name, follows a link; then what the page shows.
READER = """
<script>
addEventListener("load", () => {
  const table = document.getElementById("winners-table"), rows = () => [...table.tBodies[0].rows];
  [...table.querySelectorAll("th button")].find(button => button.textContent === "us").click();
  const times = rows().map(row => Number(row.children[4].textContent)).filter(time => time > 0);
  const link = table.querySelector("a");
  location.hash = link.hash;
  const filter = document.querySelector("input[data-filter]");
  filter.value = "TRANSPOSE_10_B32";
  filter.dispatchEvent(new Event("input"));
  setTimeout(() => {
    document.title = JSON.stringify({
      times, shown: rows().filter(row => !row.hidden).map(row => row.textContent),
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
    assert found["shown"]
    assert all("transpose_10_b32" in row for row in found["shown"])
    assert found["opened"]
    assert found["plots"] > 5
    assert found["empty"] == 0
    assert found["points"] > len(rows())
    _, said = browsed("<title>faulty</title><script>missing()</script>")  # else an error would not be seen
    assert "missing is not defined" in said[0]


def test_the_command_writes_a_page_from_the_folder_of_results(tmp_path: Path) -> None:
    store = Trials(tmp_path)
    store.add(rows()[:12])
    store.close()
    file = tmp_path / "mine.html"
    shown = run("report", "-o", file, "--out", tmp_path)
    assert (shown.status, shown.err) == (0, "")
    assert "12 trials" in shown.out
    assert re.search(r"12 trials,\s+10 right", read(file.read_text(encoding="utf-8")).text)
    refused = run("report", "-o", tmp_path / "absent" / "x.html", "--out", tmp_path)
    assert refused.status != 0
    assert "cannot be written" in refused.err
    misspelt = run("report", "-o", file, "--out", tmp_path / "misspelt")
    assert misspelt.status == 1
    assert not (tmp_path / "misspelt").exists()
