"""One HTML page about a folder of results: winners, rooflines, other libraries, search spaces, the kernels themselves.

It needs no network, no GPU and no server: plots are drawn by plotly, whose program stands in the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise
from math import ceil, floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.arch import DEFAULT_ARCH, Limits
from gen.compare.row import OURS
from gen.emit.render import render
from gen.errors import GenError, MissingToolError
from gen.families.base import WIDEST, Family, Variant, Work
from gen.families.config import word_of
from gen.families.extents import sizes_in_words
from gen.families.names import Known, find_variant, named_variant
from gen.paths import how_to_install

if TYPE_CHECKING:
    from gen.compare.results import Compared
    from gen.families.estimates import Demand
    from gen.gpu.timing import Calibration
    from gen.store.trials import StoredTrial
    from gen.store.winners import Winner

OK = "ok"
FEWEST_TRIALS = 2  # of a search space that is drawn
FASTEST = 8  # variants whose samples are shown beside each other
MOST_REASONS = 5  # of what was not right, for each status
BLUE, GREY = "#3987e5", "#8c959f"
COLD = "cold"  # the protocol of rooflines: other protocols have other limits
OTHERS = ("#e8710a", "#2da44e", "#8b5cf6", "#cf222e", "#0ea5a5", "#9a8c00", "#e85aad", "#8d5a3b")  # colours of peers
ROOF_POINTS = 60  # of a curve


@dataclass(frozen=True)
class Chosen:
    """A winner, and the kernel that it is.

    Attributes:
        anchor: its place in the page.
        source: its text; empty where this version of gen cannot write it.
        why_not: why it cannot.
        traffic: what it moves and issues, by the estimates that choose variants; empty where there are none.
        rows: the trials of the variant, fastest first.
    """

    winner: Winner
    anchor: str
    source: str
    why_not: str
    traffic: str
    rows: tuple[StoredTrial, ...]

    @property
    def base_over_winner(self) -> str:
        """How many times as long base takes, to two digits after the point; empty where nobody timed it."""
        share = self.winner.evidence.get("over_base")
        return f"{1 / share:.2f}" if share else ""


@dataclass(frozen=True)
class SearchSpace:
    """The trials of one problem on one device, in the order in which they ended."""

    device: str
    spec: str
    shape_class: str
    extents: Mapping[str, int]
    rows: tuple[StoredTrial, ...]

    @property
    def title(self) -> str:
        """For instance `transpose_10_b32, rows 8192, cols 8192, on NVIDIA H200`."""
        return f"{self.spec}, {sizes_in_words(self.extents, pitches=False)}, on {self.device}"

    @property
    def right(self) -> tuple[StoredTrial, ...]:
        """Trials that ran and were right."""
        return tuple(row for row in self.rows if row.status == OK and row.median_us is not None)

    def parameters(self) -> Mapping[str, tuple[object, ...]]:
        """The values that each tuning parameter took, where there were several, for the algorithm of the fastest."""
        rows = self.of_fastest_algorithm()
        names = dict.fromkeys(name for row in rows for name in row.config)
        found = {name: tuple(dict.fromkeys(row.config[name] for row in rows if name in row.config)) for name in names}
        return {name: tuple(sorted(values, key=_order)) for name, values in found.items() if len(values) > 1}

    def of_fastest_algorithm(self) -> tuple[StoredTrial, ...]:
        """The right trials of the algorithm to which the fastest belongs."""
        right = self.right
        best = min(right, key=_time, default=None)
        return () if best is None else tuple(row for row in right if row.algorithm == best.algorithm)

    def reasons(self) -> Iterator[tuple[str, int, str]]:
        """How many trials ended otherwise than right: the status, how many, why."""
        for status, count in Counter(row.status for row in self.rows if row.status != OK).most_common():
            said = Counter(row.reason.partition("\n")[0] for row in self.rows if row.status == status)
            for reason, number in said.most_common(MOST_REASONS):
                yield status, number, reason
            if len(said) > MOST_REASONS:
                yield status, count - sum(n for _, n in said.most_common(MOST_REASONS)), "for other reasons"


def _time(row: StoredTrial) -> float:
    return row.median_us or float("inf")


@dataclass(frozen=True)
class TriedKernel:
    """A kernel of the literature among the trials of a problem.

    Attributes:
        name: as the literature has it.
        row: its trial.
        beside: the kernel beside which the literature shows what it gains, or one before that; empty without one.
        over: how many times as fast as that it is; None without one.
        demand: what it moves and issues by estimate; None where there is none.
    """

    name: str
    row: StoredTrial
    beside: str
    over: float | None
    demand: Demand | None


def ladders(
    spaces: Sequence[SearchSpace], families: Sequence[Family[Any]]
) -> tuple[tuple[str, tuple[TriedKernel, ...]], ...]:
    """The kernels of the literature that were tried on a problem, in its order; the title of each problem first."""
    named = [
        (one.name, before.name if one.over == "" and before else one.over or "", named_variant(family, one))
        for family in families
        for before, one in pairwise((None, *sorted(family.named, key=lambda one: one.rank)))
        if one is not None
    ]
    shown_beside = {name: beside for name, beside, _ in named}
    found = []
    for space in spaces:
        rows = {row.variant: row for row in space.right}
        times = {name: _time(rows[made.name]) for name, _, made in named if made.name in rows}
        rungs: list[TriedKernel] = []
        for name, beside, made in named:
            if name in times:
                timed = beside
                while timed and timed not in times:
                    timed = shown_beside.get(timed, "")
                over = times[timed] / times[name] if timed else None
                rungs.append(TriedKernel(name, rows[made.name], timed, over, _demand(made, space.extents)))
        if len(rungs) > 1:
            found.append((space.title, tuple(rungs)))
    return tuple(found)


def search_spaces(rows: Sequence[StoredTrial]) -> tuple[SearchSpace, ...]:
    """The problems of these trials, those with most trials first."""
    grouped: dict[tuple[str, str, str, str], list[StoredTrial]] = {}
    for row in rows:
        grouped.setdefault((row.device, row.spec, str(dict(row.extents)), row.protocol), []).append(row)
    found = [
        SearchSpace(own[0].device, own[0].spec, own[0].shape_class, own[0].extents, tuple(sorted(own, key=_ended)))
        for own in grouped.values()
        if len(own) >= FEWEST_TRIALS
    ]
    return tuple(sorted(found, key=lambda space: -len(space.rows)))


def _order(value: object) -> tuple[float, str]:
    """Numbers by size, words by the alphabet."""
    return (float(value), "") if isinstance(value, int | float) else (0.0, str(value))


def _ended(row: StoredTrial) -> str:
    return row.ended


def chosen(
    winners: Sequence[Winner], rows: Sequence[StoredTrial], families: Sequence[Family[Any]], known: Known
) -> tuple[Chosen, ...]:
    """The winners with their kernels and trials."""
    by_name: dict[tuple[str, str], list[StoredTrial]] = {}
    for row in rows:
        by_name.setdefault((row.device, row.variant), []).append(row)
    found = []
    for number, winner in enumerate(winners):
        source, why_not, traffic = "", "", ""
        try:
            made = find_variant(families, winner.variant, known)
            source, traffic = render(made), _traffic(made, winner.evidence.get("extents"))
        except GenError as error:  # of a version that had other parameters
            why_not = str(error)
        own = sorted(by_name.get((winner.device, winner.variant), ()), key=_time)
        found.append(Chosen(winner, f"kernel-{number}", source, why_not, traffic, tuple(own)))
    return tuple(found)


def _demand(made: Variant, extents: Mapping[str, int]) -> Demand | None:
    """What a variant moves and issues at some sizes by the estimates that choose variants; None without one."""
    try:
        return made.algorithm.demand(made.spec, made.config, extents, WIDEST, Limits.of(DEFAULT_ARCH))
    except KeyError:  # sizes that an earlier version called otherwise, or none
        return None


def _traffic(made: Variant, extents: Any) -> str:
    """The same in words; empty without an estimate."""
    demand = _demand(made, extents or {})
    if demand is None:
        return ""
    return (
        f"{demand.moved_bytes / 2**20:,.4g} MiB between memory and the second-level cache; blocks of a launch: "
        f"{demand.blocks:,.0f}; of one thread {demand.bytes_in_flight:.0f} bytes on their way at once, and "
        f"{demand.instructions:,.0f} instructions"
    )


def page(
    winners: Sequence[Winner], rows: Sequence[StoredTrial], calibrations: Sequence[Calibration],
    comparisons: Sequence[Compared], families: Sequence[Family[Any]], known: Known,
) -> str:  # fmt: skip
    """The page's text.

    Args:
        winners: of all devices.
        rows: the trials.
        calibrations: what the memories of the devices can do.
        comparisons: with other libraries.
        families: all families.
        known: specs by name.

    Raises:
        MissingToolError: plotly is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingToolError(
            "gen report", "needs plotly, which is not here", next_step=f"Run: {how_to_install('report')}"
        ) from None
    from jinja2 import Environment, StrictUndefined

    own = chosen(winners, rows, families, known)
    spaces = search_spaces(rows)
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    text = (Path(__file__).parent / "page.html.jinja").read_text(encoding="utf-8")
    return template.from_string(text).render(
        plotly=get_plotlyjs(),
        devices=sorted({one.device for group in (winners, rows, comparisons) for one in group}),
        chosen=own,
        compared=comparisons,
        ours=OURS,
        ladders=ladders(spaces, families),
        spaces=[(space, _plots(space), tuple(space.reasons())) for space in spaces],
        rooflines=[_html(one) for calibration in calibrations for one in rooflines(calibration, winners, comparisons)],
        trials=len(rows),
        sizes_in_words=sizes_in_words,
    )


def _html(figure: Any) -> str:
    made: str = figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
    )
    return made


def _figure(title: str, across: str, up: str) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title=title, xaxis_title=across, yaxis_title=up, template="none", height=360, showlegend=False,
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", margin={"l": 70, "r": 20, "t": 50, "b": 60},
        font={"color": GREY},
    )  # fmt: skip
    figure.update_xaxes(gridcolor="rgba(128,128,128,.25)", zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor="rgba(128,128,128,.25)", zeroline=False, automargin=True)
    return figure


@dataclass(frozen=True)
class Point:
    """A kernel on a roofline.

    Attributes:
        who: `gen`, or the name of a library.
        limit: the bandwidth that its work is scored against.
        words: what is shown beside it.
    """

    who: str
    least_bytes: float
    us: float
    limit: str
    words: str


def rooflines(
    calibration: Calibration, winners: Sequence[Winner], comparisons: Sequence[Compared]
) -> Iterator[Any]:  # fmt: skip
    """For each family the bandwidth that kernels reach on a device, ours and those of others, and what is possible."""
    found: dict[str, list[Point]] = {}

    def add(who: str, spec: str, extents: Mapping[str, int], moved: float, us: float, limit: str, words: str) -> None:
        steps = extents.get("steps", 1)
        title = spec.partition("_")[0] + (", several steps a call" if steps > 1 else "")
        found.setdefault(title, []).append(Point(who, moved * steps, us, limit, f"{spec}, {words}: {us:.4g} us"))

    for winner in winners:
        shown = winner.evidence
        if winner.device == calibration.device and {"gb_per_s", "limit"} <= set(shown):
            us = float(shown["median_us"])
            words = f"{winner.words}<br>{winner.variant.partition('__')[2]}, the winner"
            moved = shown["gb_per_s"] * us * 1e3
            add(OURS, winner.spec, shown.get("extents") or {}, moved, us, shown["limit"], words)
    for one in comparisons:
        if (one.device, one.protocol) == (calibration.device, COLD):
            what = one.variant.partition("__")[2] if one.contender == OURS else one.contender
            words = f"{sizes_in_words(one.extents, pitches=False)}<br>{what}"
            add(one.contender, one.spec, one.extents, one.least_bytes, one.us, one.limit, words)
    colours = {OURS: BLUE, **dict(zip(sorted({one.contender for one in comparisons} - {OURS}), cycle(OTHERS)))}
    for title, points in sorted(found.items(), key=lambda one: -len(one[1])):
        yield _roofline(f"{title}, on {calibration.device}", points, calibration, colours)


def _roofline(title: str, points: Sequence[Point], calibration: Calibration, colours: Mapping[str, str]) -> Any:
    figure = _figure(title, "bytes to move", "GB/s")
    figure.update_layout(showlegend=True, legend={"orientation": "h", "y": -0.3}, height=440)
    sizes = np.geomspace(
        min(one.least_bytes for one in points) / 2, 2 * max(one.least_bytes for one in points), ROOF_POINTS
    )  # fmt: skip
    reached = [one.least_bytes / one.us / 1e3 for one in points]
    for limit, dash in (("read", "dash"), ("write", "dot"), ("copy", "solid")):
        if any(one.limit == limit for one in points):
            least = [calibration.floor_us(Work(int(size), 0, 0, limit)) for size in sizes]  # type: ignore[arg-type]
            roof = [size / us / 1e3 for size, us in zip(sizes, least, strict=True)]
            reached += roof
            figure.add_scatter(
                x=sizes, y=roof, mode="lines", line={"dash": dash, "color": GREY},
                name=f"limit: {limit} {getattr(calibration, limit):.0f} GB/s",
            )  # fmt: skip
    for who in (*sorted({one.who for one in points} - {OURS}), OURS):  # ours last, so that no other covers it
        own = [one for one in points if one.who == who]
        figure.add_scatter(
            x=[one.least_bytes for one in own], y=[one.least_bytes / one.us / 1e3 for one in own],
            text=[one.words for one in own], mode="markers", name=who, hoverinfo="text+y",
            marker={"size": 9 if who == OURS else 6, "color": colours[who], "opacity": 0.75},
        )  # fmt: skip
    figure.update_xaxes(type="log", exponentformat="power", dtick=1)
    figure.update_yaxes(title_standoff=12, **_axis(reached))
    return figure


def _axis(values: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis with ticks at powers of ten, over less than two decades also at twice and five times these.

    A linear one where all lies within a factor of three.
    """
    found = [value for value in values if value > 0]
    if not found or max(found) < 3 * min(found):
        return {"type": "linear"}
    low, high = log10(min(found)), log10(max(found))
    steps = (1, 2, 5) if high - low < 2 else (1,)
    at = [step * 10**power for power in range(floor(low) - 1, ceil(high) + 1) for step in steps]
    return {"type": "log", "tickvals": at, "ticktext": [f"{tick:,g}" for tick in at]}


def _plots(space: SearchSpace) -> list[str]:
    """Convergence, what each parameter does, two parameters together, and how stable the fastest are."""
    if not space.right:
        return []
    found = [_convergence(space)] if all(row.ended for row in space.rows) else []  # else their order is not known
    if any(len(row.times_us) > 1 for row in space.right):
        found.append(_stability(space))
    parameters = space.parameters()
    rows = space.of_fastest_algorithm()
    found += [_marginal(rows, name, values) for name, values in parameters.items()]
    two = sorted(parameters, key=lambda name: -_spread(rows, name, parameters[name]))[:2]
    if len(two) == 2:
        found.append(_heat_map(rows, two[0], two[1], parameters))
    return [_html(figure) for figure in found]


def _convergence(space: SearchSpace) -> Any:
    times = [row.median_us for row in space.rows if row.status == OK and row.median_us is not None]
    names = [row.variant.partition("__")[2] for row in space.right]
    figure = _figure("The fastest so far, by the number of trials", "trial", "us")
    figure.add_scatter(y=times, text=names, mode="markers", name="a trial", marker={"color": GREY, "size": 4})
    figure.add_scatter(y=list(accumulate(times, min)), mode="lines", name="fastest so far", line={"color": BLUE})
    figure.update_yaxes(**_axis(times))
    return figure


def _stability(space: SearchSpace) -> Any:
    figure = _figure(f"All samples of the {FASTEST} fastest", "us", "")
    for row in sorted(space.right, key=_time)[:FASTEST]:
        figure.add_box(x=row.times_us, name=row.variant.partition("__")[2], marker={"color": BLUE}, boxpoints="all")
    figure.update_yaxes(autorange="reversed")
    return figure


def _marginal(rows: Sequence[StoredTrial], name: str, values: Sequence[object]) -> Any:
    figure = _figure(f"{name}, for {rows[0].algorithm}", name, "us")
    for value in values:
        own = [row for row in rows if row.config.get(name) == value]
        figure.add_box(
            y=[row.median_us for row in own], text=[row.variant.partition("__")[2] for row in own], name=word_of(value),
            marker={"color": BLUE}, boxpoints="all",
        )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(**_axis(row.median_us or 0.0 for row in rows))
    return figure


def _best(rows: Sequence[StoredTrial], wanted: Mapping[str, object]) -> float | None:
    """The least median of the trials with these values."""
    times = [_time(row) for row in rows if all(row.config.get(name) == value for name, value in wanted.items())]
    return min(times, default=None)


def _spread(rows: Sequence[StoredTrial], name: str, values: Sequence[object]) -> float:
    """How much the best time differs between the values of a parameter."""
    best = [time for value in values if (time := _best(rows, {name: value})) is not None]
    return max(best) / min(best) if best else 1.0


def _heat_map(rows: Sequence[StoredTrial], across: str, up: str, parameters: Mapping[str, Sequence[object]]) -> Any:
    figure = _figure(f"The best us by {across} and {up}", across, up)
    figure.add_heatmap(
        x=[word_of(value) for value in parameters[across]], y=[word_of(value) for value in parameters[up]],
        z=[[_best(rows, {across: x, up: y}) for x in parameters[across]] for y in parameters[up]],
        colorscale="Blues", reversescale=True, texttemplate="%{z:.1f}",
    )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category")
    return figure
