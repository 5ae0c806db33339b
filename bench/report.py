"""The report on what this folder holds of an H100 and an H200: `python bench/report.py [-o report.html] [--picture]`.

It fills a folder of results with the search spaces of bench/trials, the comparisons with other libraries of
bench/h100.json and bench/h200.json, and the winners and calibrations of out/, and writes the page that `gen report`
makes of it. The tables of trials hold medians alone, of configurations that were right, in no order of time: plots of
samples and of convergence are left out. `--picture` also draws docs/report.png, by a headless Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.cases import public_cases
from bench.predict import TRIALS, config_of, spaces
from bench.program import ended
from bench.results import Results, read_results
from gen.cli.app import app
from gen.compare.results import Compared, compared, keep
from gen.errors import GenError, MissingToolError
from gen.families import FAMILIES
from gen.families.names import find_spec, variant
from gen.gpu.timing import Calibration
from gen.store.trials import StoredTrial, Trials

ROOT = Path(__file__).resolve().parents[1]
COMPARED = (ROOT / "bench" / "h100.json", ROOT / "bench" / "h200.json")
DEVICES = {"nvidia-h100-80gb-hbm3": "NVIDIA H100 80GB HBM3", "nvidia-h200": "NVIDIA H200"}  # by file of bench/trials
PICTURE = ROOT / "docs" / "report.png"
PART, SIZE = "rooflines", "1200,1100"  # what the picture shows, and its size
# A long page is not drawn around a fragment: all else is taken out.
ONLY = """<script>{
  let on = false;
  for (const one of [...document.body.children]) {
    if (one.tagName === "H2") on = one.id === "%s";
    if (!on && one.tagName !== "SCRIPT") one.remove();
  }
}</script></body>"""
NOT_RECORDED = 0  # registers and the like, which the tables of trials leave out, and then the page


def comparisons(results: Results) -> Iterator[Compared]:
    """The public cases among the results, as `gen compare` keeps them."""
    cases = {(case.family.name, case.name): case for case in public_cases()}
    for key, rows in results.cases().items():
        for row in rows if key in cases else ():
            run = results.runs[row.run]
            about = Calibration(**run.calibration)
            yield from compared(cases[key], (row,), about, run.device, run.driver, run.date)


def trials(file: Path) -> Iterator[StoredTrial]:
    """The configurations of a table that gen still has, as trials."""
    device = DEVICES[file.name.partition(".")[0]]
    for (spec_name, shape), space in spaces(file).items():
        family, spec = find_spec(FAMILIES, spec_name, {})
        extents = {name: int(size) for name, size in (part.split("=") for part in shape.split())}
        for number, one in enumerate(space):
            algorithm = family.algorithms.get(one.algorithm)
            config = None if algorithm is None else config_of(algorithm.config, one.config)
            if config is None or one.time_ms is None:
                continue
            try:
                name = variant(family, spec, one.algorithm, config).name
            except GenError:  # no longer legal
                continue
            yield StoredTrial(
                key=f"{device} {spec_name} {shape} {number}", device=device, driver="", compiler="", protocol="cold",
                spec=spec_name, shape_class=family.shape_class(spec, extents, 16), extents=extents, variant=name,
                algorithm=one.algorithm, config=config.to_json(), status="ok", times_us=(1000 * one.time_ms,),
                reason="", registers=NOT_RECORDED, spill_bytes=NOT_RECORDED, shared_bytes=NOT_RECORDED, ended="",
                compile_ms=one.compile_ms,
            )  # fmt: skip


def fill(home: Path) -> None:
    """Makes a folder of results of what is committed."""
    for name in ("tuned.json", "calibration.json"):
        shutil.copyfile(ROOT / "out" / name, home / name)
    for file in COMPARED:
        keep(home, tuple(comparisons(read_results(file))))
    store = Trials(home)
    try:
        for file in sorted(TRIALS.glob("*.csv.gz")):
            store.add(tuple(trials(file)))
    finally:
        store.close()


def picture(page: Path, place: Path) -> None:
    """Draws a part of the page. Raises MissingToolError without Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        raise MissingToolError("--picture", "needs Chromium, which is not here", next_step="apt install chromium")
    with TemporaryDirectory() as profile:
        part = Path(profile) / "part.html"
        part.write_text(page.read_text(encoding="utf-8").replace("</body>", ONLY % PART), encoding="utf-8")
        subprocess.run(
            (browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={SIZE}",
             f"--user-data-dir={profile}", "--virtual-time-budget=30000", f"--screenshot={place}",
             part.as_uri()),
            check=True, capture_output=True, timeout=300,
        )  # fmt: skip


def main() -> int:
    """Writes the page, and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("report.html"), help="the page (%(default)s)")
    parser.add_argument("--picture", action="store_true", help=f"also draw {PICTURE.relative_to(ROOT)}")
    options = parser.parse_args()
    with TemporaryDirectory() as home:
        fill(Path(home))
        app(["report", "-o", str(options.out), "--home", home], standalone_mode=False)
    if options.picture:
        picture(options.out, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
