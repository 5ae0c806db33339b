"""Draws the picture of the README: `python bench/picture.py`, from `bench/h100.json`, once for light and once for dark.

Each dot is a public case of 50 us or more under the cold protocol: how much of the memory's limit gen reaches, and how
much the fastest other library does that offers the same work. Stencils are single sweeps; many steps are bound by
arithmetic, and stand in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.program import ended
from bench.results import Results, read_results
from bench.table import lines

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "bench" / "h100.json"
SHORTEST_US = 50.0  # below, the launch itself is much of the time
MOST_OF_LIMIT = 1.3  # over 1 where caches keep what is written


@dataclass(frozen=True)
class Theme:
    """Colours of a picture, for a page of that colour."""

    name: str
    text: str
    gen: str
    peer: str


THEMES = (Theme("light", "#24292f", "#0969da", "#8c959f"), Theme("dark", "#e6edf3", "#58a6ff", "#7d8590"))


@dataclass(frozen=True)
class Shares:
    """What a family reaches of the memory's limit, case by case."""

    family: str
    gen: tuple[float, ...]
    peer: tuple[float, ...]


def shares(results: Results) -> Iterator[Shares]:
    """The shares of each family: the limit over our time, and over the time of the fastest peer."""
    found = [
        (line.family, line.ours.of_limit, min(row.ratio for row in line.peers if row.ratio is not None))
        for line in lines(results)
        if line.protocol == "cold"
        and line.ours.of_limit is not None
        and (line.ours.ours_us or 0.0) >= SHORTEST_US
        and any(row.ratio is not None for row in line.peers)
        and not _many_steps(line.case)
    ]
    for family in dict.fromkeys(name for name, _, _ in found):
        own = [(share, share / ratio) for name, share, ratio in found if name == family]
        yield Shares(family, tuple(ours for ours, _ in own), tuple(peers for _, peers in own))


def _many_steps(case: str) -> bool:
    """Whether the case is one of many steps: its name ends in their number, `x16`."""
    return case.rpartition(" ")[2].startswith("x")


def draw(found: list[Shares], device: str, theme: Theme, path: Path) -> None:
    """One picture, as SVG whose text stays text."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "gen", "font.size": 11, "text.color": theme.text}):
        figure, axes = plt.subplots(figsize=(8.0, 3.2))
        ticks = []
        for place, one in enumerate(found):
            for row, (who, values, colour) in enumerate(
                (("gen", one.gen, theme.gen), ("fastest other library", one.peer, theme.peer))
            ):
                y = -(2.6 * place + row)
                axes.plot(values, [y] * len(values), "o", ms=4, alpha=0.45, color=colour, mew=0)
                axes.plot([median(values)], [y], "|", ms=18, mew=3, color=colour)
                axes.text(MOST_OF_LIMIT + 0.02, y, f"{median(values):.2f}", va="center", color=colour)
                ticks.append((y, f"{one.family}: {who}" if row == 0 else who))
        axes.axvline(1.0, color=theme.text, lw=0.8, ls=":")
        axes.set_xlim(0.0, MOST_OF_LIMIT)
        axes.set_yticks([y for y, _ in ticks], [label for _, label in ticks], color=theme.text)
        axes.set_xlabel(f"share of the memory's limit on one {device}; | is the median", color=theme.text)
        axes.tick_params(colors=theme.text, length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        figure.tight_layout()
        figure.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(figure)


def main() -> int:
    """Writes both pictures."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    results = read_results(MEASURED)
    found = list(shares(results))
    for theme in THEMES:
        draw(found, results.device.removesuffix("s"), theme, ROOT / "docs" / f"speed-{theme.name}.svg")
    for one in found:
        print(f"{one.family}: {len(one.gen)} cases, medians gen {median(one.gen):.3f}, others {median(one.peer):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
