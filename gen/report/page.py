"""One HTML page about a folder of results: winners, the limits of the memory, search spaces, the kernels themselves.

It needs no network, no GPU and no server: plots are drawn by plotly, whose program stands in the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.arch import DEFAULT_ARCH, Limits
from gen.emit.render import render
from gen.errors import GenError, MissingToolError
from gen.families.base import WIDEST, Family, Variant
from gen.families.config import word_of
from gen.families.extents import sizes_in_words
from gen.families.names import Known, find_variant, named_variant
from gen.paths import how_to_install

if TYPE_CHECKING:
    from gen.gpu.timing import Calibration
    from gen.store.trials import Row
    from gen.store.tuned import Winner

OK = "ok"
FEWEST_TRIALS = 2  # of a search space that is drawn
FASTEST = 8  # variants whose samples are shown beside each other
MOST_REASONS = 5  # of what was not right, for each status
BLUE, GREY = "#3987e5", "#8c959f"


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
    rows: tuple[Row, ...]

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
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """For instance `transpose_10_b32, rows 8192, cols 8192, on NVIDIA H200`."""
        return f"{self.spec}, {sizes_in_words(self.extents, pitches=False)}, on {self.device}"

    @property
    def right(self) -> tuple[Row, ...]:
        """Trials that ran and were right."""
        return tuple(row for row in self.rows if row.status == OK and row.median_us is not None)

    def parameters(self) -> Mapping[str, tuple[object, ...]]:
        """The values that each tuning parameter took, where there were several, for the algorithm of the fastest."""
        rows = self.of_fastest_algorithm()
        names = dict.fromkeys(name for row in rows for name in row.config)
        found = {name: tuple(dict.fromkeys(row.config[name] for row in rows if name in row.config)) for name in names}
        return {name: tuple(sorted(values, key=_order)) for name, values in found.items() if len(values) > 1}

    def of_fastest_algorithm(self) -> tuple[Row, ...]:
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


def _time(row: Row) -> float:
    return row.median_us or float("inf")


@dataclass(frozen=True)
class Rung:
    """A kernel of the literature among the trials of a problem.

    Attributes:
        name: as the literature has it.
        row: its trial.
        over: how many times as fast it is as the one above; None for the first.
    """

    name: str
    row: Row
    over: float | None


def ladders(spaces: Sequence[SearchSpace], families: Sequence[Family[Any]]) -> tuple[tuple[str, tuple[Rung, ...]], ...]:
    """The kernels of the literature that were tried on a problem, in its order; the title of each problem first."""
    named = [
        (one.name, named_variant(family, one).name)
        for family in families
        for one in sorted(family.named, key=lambda one: one.rank)
    ]
    found = []
    for space in spaces:
        times = {row.variant: row for row in space.right}
        rungs: list[Rung] = []
        for name, variant in named:
            row = times.get(variant)
            if row is not None:
                rungs.append(Rung(name, row, _time(rungs[-1].row) / _time(row) if rungs else None))
        if len(rungs) > 1:
            found.append((space.title, tuple(rungs)))
    return tuple(found)


def search_spaces(rows: Sequence[Row]) -> tuple[SearchSpace, ...]:
    """The problems of these trials, those with most trials first."""
    grouped: dict[tuple[str, str, str, str], list[Row]] = {}
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


def _ended(row: Row) -> str:
    return row.ended


def chosen(
    winners: Sequence[Winner], rows: Sequence[Row], families: Sequence[Family[Any]], known: Known
) -> tuple[Chosen, ...]:
    """The winners with their kernels and trials."""
    by_name: dict[tuple[str, str], list[Row]] = {}
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


def _traffic(made: Variant, extents: Any) -> str:
    """What a variant moves and issues at the sizes at which it was measured; empty where no estimate is made."""
    try:
        demand = made.algorithm.demand(made.spec, made.config, extents or {}, WIDEST, Limits.of(DEFAULT_ARCH))
    except KeyError:  # sizes that an earlier version called otherwise, or none
        demand = None
    if demand is None:
        return ""
    return (
        f"{demand.moved_bytes / 2**20:,.4g} MiB between memory and the second-level cache; blocks of a launch: "
        f"{demand.blocks:,.0f}; of one thread {demand.bytes_in_flight:.0f} bytes on their way at once, and "
        f"{demand.instructions:,.0f} instructions"
    )


def page(
    winners: Sequence[Winner], rows: Sequence[Row], calibrations: Sequence[Calibration],
    families: Sequence[Family[Any]], known: Known,
) -> str:  # fmt: skip
    """The page's text.

    Args:
        winners: of all devices.
        rows: the trials.
        calibrations: what the memories of the devices can do.
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
        devices=sorted({one.device for one in winners} | {row.device for row in rows}),
        chosen=own,
        ladders=ladders(spaces, families),
        spaces=[(space, _plots(space), tuple(space.reasons())) for space in spaces],
        limits=[_html(_limits(calibration, winners)) for calibration in calibrations],
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


def _limits(calibration: Calibration, winners: Sequence[Winner]) -> Any:
    """Bandwidth that the winners of a device reach, beside what its memory can do."""
    figure = _figure(f"Winners on {calibration.device}", "median time, us", "GB/s")
    figure.update_xaxes(type="log", dtick=1)
    figure.update_layout(showlegend=True)
    points = [one for one in winners if one.device == calibration.device and "gb_per_s" in one.evidence]
    for family in dict.fromkeys(one.spec.partition("_")[0] for one in points):
        own = [one for one in points if one.spec.partition("_")[0] == family]
        figure.add_scatter(
            x=[one.evidence["median_us"] for one in own], y=[one.evidence["gb_per_s"] for one in own],
            text=[f"{one.spec}, {one.words}<br>{one.variant.partition('__')[2]}" for one in own],
            mode="markers", name=family, marker={"size": 10},
        )  # fmt: skip
    times = [one.evidence["median_us"] for one in points] or [1.0]
    for name, dash in (("read", "dash"), ("write", "dot"), ("copy", "solid")):
        reached = getattr(calibration, name)
        figure.add_scatter(
            x=[min(times) / 2, 2 * max(times)], y=[reached, reached], mode="lines", line={"dash": dash, "color": GREY},
            name=f"{name} {reached:.0f} GB/s",
        )  # fmt: skip
    return figure


def _plots(space: SearchSpace) -> list[str]:
    """Convergence, what each parameter does, two parameters together, and how stable the fastest are."""
    if not space.right:
        return []
    found = [_convergence(space), _stability(space)]
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
    figure.update_yaxes(type="log")
    return figure


def _stability(space: SearchSpace) -> Any:
    figure = _figure(f"All samples of the {FASTEST} fastest", "us", "")
    for row in sorted(space.right, key=_time)[:FASTEST]:
        figure.add_box(x=row.times_us, name=row.variant.partition("__")[2], marker={"color": BLUE}, boxpoints="all")
    figure.update_yaxes(autorange="reversed")
    return figure


def _marginal(rows: Sequence[Row], name: str, values: Sequence[object]) -> Any:
    figure = _figure(f"{name}, for {rows[0].algorithm}", name, "us")
    for value in values:
        own = [row for row in rows if row.config.get(name) == value]
        figure.add_box(
            y=[row.median_us for row in own], text=[row.variant.partition("__")[2] for row in own], name=word_of(value),
            marker={"color": BLUE}, boxpoints="all",
        )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="log")
    return figure


def _best(rows: Sequence[Row], wanted: Mapping[str, object]) -> float | None:
    """The least median of the trials with these values."""
    times = [_time(row) for row in rows if all(row.config.get(name) == value for name, value in wanted.items())]
    return min(times, default=None)


def _spread(rows: Sequence[Row], name: str, values: Sequence[object]) -> float:
    """How much the best time differs between the values of a parameter."""
    best = [time for value in values if (time := _best(rows, {name: value})) is not None]
    return max(best) / min(best) if best else 1.0


def _heat_map(rows: Sequence[Row], across: str, up: str, parameters: Mapping[str, Sequence[object]]) -> Any:
    figure = _figure(f"The best us by {across} and {up}", across, up)
    figure.add_heatmap(
        x=[word_of(value) for value in parameters[across]], y=[word_of(value) for value in parameters[up]],
        z=[[_best(rows, {across: x, up: y}) for x in parameters[across]] for y in parameters[up]],
        colorscale="Blues", reversescale=True, texttemplate="%{z:.1f}",
    )  # fmt: skip
    figure.update_xaxes(type="category")
    figure.update_yaxes(type="category")
    return figure
