"""Where gen loses on cases that nobody chose: `python -m bench.potholes --seed N --json FILE`.

On a GPU: what `gen.load` gives with nothing tuned at home, in turns with torch, torch.compile, and CuPy where torch is
weak, from cold caches; results are checked as `gen compare` checks them. `--tune SECONDS` also times what tuning at the
first call gives. Without a GPU, `--model` says what dispatch loses by the counted model, `--estimate 0.1` by estimates
against a tenth of all configs, and `--explain FILE` what bounds the kernels that lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from math import exp, log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from bench.ahead import Ahead, turn
from bench.program import as_called, ended, need_gpu
from bench.random_cases import RandomCase, random_cases
from bench.results import origin
from gen.arch import DEFAULT_ARCH, Limits
from gen.cli.gpu import alone
from gen.compare.case import ComparisonCase
from gen.compare.checks import Checks, Prepare
from gen.compare.comparison import Comparison, ours
from gen.compare.gpu import ComparisonGpu
from gen.compare.peers.base import Contender, NotOfferedError, Peer, SharedArray
from gen.compare.peers.cupy import Cupy, CupyxNdimage
from gen.compare.peers.torch import Torch, TorchCompile
from gen.compare.process import Comparisons, LibrariesFactory
from gen.compare.row import FAILED, OURS, PairedTimes, Row, said
from gen.emit.folder import check_writable
from gen.errors import GenError, StoreError
from gen.families import FAMILIES
from gen.families.reduction import ReductionSpec
from gen.families.stencil import StencilSpec
from gen.gpu.timing import Protocol
from gen.paths import output_home
from gen.runtime.load import load
from gen.workers import Report

if TYPE_CHECKING:
    from gen.tune.gpu_session import CalibratedGpu

SCHEMA = 1
TUNED = "gen tuned"
COMPILE_SECONDS = 45.0  # for which a case waits for torch.compile, beside what was done ahead
MOST_PASSES = 20_000  # of an eager stencil in one call
WORST = 20
LOGGED = 1 << 16  # characters of what libraries printed, the last
CLOSE_RATIO = 0.95  # of the peer's speed: a case that nobody would call lost
_WEAK = frozenset({"bool", "i8", "i16", "i32", "i64", "u16", "u32", "u64"})  # of which torch lacks some statistics


@dataclass(frozen=True)
class Pothole:
    """A case, and what became of it.

    Attributes:
        family, case: which one it is.
        untuned_us: of what `gen.load` gives; None where it was not timed.
        tuned_us: of what tuning gave; None where it was not asked for.
        peer: the fastest.
        peer_us: its time.
        ratio: of the pairs' peer / ours, the median: under 1, ours is slower.
        verdict: WIN, TIE or LOSS beyond the noise; `-` without a peer.
        variant: of ours.
        tuned: whether it was measured to be the fastest of its class before.
        shape_class: of the problem.
        of_limit: the least time of the work over ours.
        others: times of all peers.
        notes: what else is to be known, by contender; the error of ours under `gen`.
        reason: what bounds our kernel, by `gen explain`.
        problem: what it takes to make the case again.
    """

    family: str
    case: str
    untuned_us: float | None = None
    tuned_us: float | None = None
    peer: str = ""
    peer_us: float | None = None
    ratio: float | None = None
    verdict: str = "-"
    variant: str = ""
    tuned: bool = False
    shape_class: str = ""
    of_limit: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    problem: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.untuned_us is None:
            return f"     -  {self.case}: {self.notes.get(OURS, 'not timed')}"
        tuned = "" if self.tuned_us is None else f", tuned {self.tuned_us:.2f}"
        peer = "no peer" if self.peer_us is None else f"{self.peer} {self.peer_us:.2f}"
        ratio = "     -" if self.ratio is None else f"{self.ratio:6.2f}"
        tag = self.variant.partition("__")[2]
        return f"{ratio}  {self.case}: {self.untuned_us:.2f} us{tuned}, {peer}; {tag} ({self.shape_class})"


@dataclass(frozen=True)
class Only:
    """A peer that is asked for some cases alone."""

    peer: Peer
    wanted: Callable[[ComparisonCase], bool]

    @property
    def name(self) -> str:
        """The peer's."""
        return self.peer.name

    def version(self) -> str:
        """The peer's."""
        return self.peer.version()

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: Any) -> Contender:
        """As the peer does. Raises NotOfferedError for other cases."""
        if not self.wanted(case):
            raise NotOfferedError(self.name, "is not asked here for such a case", case.name)
        return self.peer.prepare(case, source, gpu)


@dataclass(frozen=True)
class Tuned:
    """Our own kernel, tuned at its first call."""

    home: Path
    budget: str

    name = TUNED

    def version(self) -> str:
        """How it was tuned."""
        return "gen.load(tune=)"

    def prepare(self, case: ComparisonCase, source: SharedArray, gpu: Any) -> Contender:
        """Loads it; tuning at the first call happens now."""
        contender = ours(load(case.spec, device=gpu.backend, home=self.home, tune=self.budget), case, (source,), gpu)
        contender.launch()
        return contender


class _Checks(Checks):
    """Checks ours at any size, and peers where NumPy computes the case as it is: no peer is compiled twice."""

    def wrong(self, contender: Contender, prepare: Prepare, *, roundings: int | None = None) -> str | None:
        """What is wrong with a contender's results, in words."""
        if roundings is None and self._provable is not self._case:
            return None
        return super().wrong(contender, prepare, roundings=roundings)


class _InTurn(Comparison):
    """Times nothing while others try kernels on the GPU."""

    turns: Path

    def _paired(self, other: Contender, caches: Protocol) -> PairedTimes:
        with turn(self.turns):
            return super()._paired(other, caches)


def compare(
    bench: CalibratedGpu, report: Report, case: ComparisonCase, peers: Sequence[Peer], caches: Protocol, home: Path,
    tuned_seconds: float,
) -> None:  # fmt: skip
    """A job of the process that drives the GPU: one case."""
    comparison = _InTurn(ComparisonGpu(bench), case, caches, report, _Checks, short_hot_too=False)
    comparison.turns = home
    comparison.run(peers, home, tuned_seconds)


def cupy_wanted(case: ComparisonCase) -> bool:
    """Where torch is weak: doubles, complex numbers, statistics of integers."""
    statistics = isinstance(case.spec, ReductionSpec) and case.dtype.name in _WEAK
    return case.dtype.name in ("f64", "c128") or statistics


def eager_wanted(case: ComparisonCase) -> bool:
    """Not where a call would be too many passes."""
    if not isinstance(case.spec, StencilSpec):
        return True
    return len(case.spec.taps) * case.runtime_parameters.get("steps", 1) <= MOST_PASSES


PEERS: tuple[Peer, ...] = (
    Only(Torch(), eager_wanted), TorchCompile(), Only(Cupy(), cupy_wanted), CupyxNdimage(),
)  # fmt: skip


def not_timed(case: ComparisonCase) -> Pothole:
    """The row of a case before anything is known of it."""
    problem: dict[str, Any] = {
        "spec": case.spec.to_json(), "shape": list(case.shape), "gap": case.gap, "offset": case.offset,
        "runtime_parameters": dict(case.runtime_parameters),
    }  # fmt: skip
    return Pothole(case.family.name, case.name, shape_class=case.problem.shape_class, problem=problem)


def pothole_of(case: ComparisonCase, rows: Sequence[Row], seconds: float) -> Pothole:
    """What the rows of a case come to."""
    empty = not_timed(case)
    mine = next((row for row in rows if row.peer == OURS), None)
    notes = {row.peer: row.note for row in rows if row.note}
    notes["seconds"] = f"{seconds:.1f}"
    if mine is None or mine.ours_us is None:
        notes.setdefault(OURS, f"{FAILED}nothing was timed")
        return replace(empty, notes=notes, variant=mine.variant if mine else "")
    timed = [row for row in rows if row.peer not in (OURS, TUNED) and row.ratio is not None and row.peer_us is not None]
    found = replace(
        empty, untuned_us=_rounded(mine.ours_us), variant=mine.variant, tuned=not mine.untuned,
        of_limit=_rounded(mine.of_limit), notes=notes, others={row.peer: round(row.peer_us or 0, 3) for row in timed},
    )  # fmt: skip
    tuned = next((row for row in rows if row.peer == TUNED and row.peer_us is not None), None)
    if tuned is not None:
        found = replace(found, tuned_us=_rounded(tuned.peer_us))
    if timed:
        best = min(timed, key=lambda row: row.ratio or 0.0)
        found = replace(
            found, peer=best.peer, peer_us=_rounded(best.peer_us), ratio=_rounded(best.ratio), verdict=best.verdict
        )
    return found


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)


@dataclass
class Results:
    """What a file holds: rows, and what stands beside them."""

    meta: dict[str, Any]
    rows: list[Pothole]
    path: Path | None = None

    def add(self, row: Pothole) -> None:
        """Keeps a row, in the place of an older one of its case."""
        self.rows = [one for one in self.rows if (one.family, one.case) != (row.family, row.case)] + [row]
        self.write()

    def write(self) -> None:
        """Writes the file, whole or not at all."""
        if self.path is not None:
            content = {"schema": SCHEMA, **self.meta, "rows": [asdict(row) for row in self.rows]}
            part = self.path.with_suffix(".part")
            part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
            part.replace(self.path)


def read_results(path: Path) -> Results:
    """What a file holds. Raises StoreError for one that this program did not write."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("schema") != SCHEMA:
            raise ValueError(path)
        rows = [Pothole(**row) for row in content.pop("rows")]
    except (OSError, ValueError, TypeError, KeyError) as error:
        next_step = "Give another file, or move this one away"
        raise StoreError(str(path), "must be a file that this program wrote", error, next_step=next_step) from error
    return Results(content, rows, path)


def resumed(path: Path | None, meta: Mapping[str, Any]) -> Results:
    """A run that goes on where the file ends. Raises StoreError if that is of another seed or device."""
    if path is None or not path.exists():
        return Results(dict(meta), [], path)
    found = read_results(path)
    for name in ("seed", "device"):
        if found.meta.get(name) != meta[name]:
            raise StoreError(str(path), f"must be of the {name} {meta[name]}", found.meta.get(name))
    return replace(found, meta=dict(meta))


def measure(
    comparisons: Comparisons, cases: Sequence[RandomCase], results: Results, seconds: float, ahead: Ahead
) -> None:
    """Measures and prints one case after another until the time is over; what a case throws is a row of it.

    What is compiled already comes before what is not.

    Args:
        comparisons: on the GPU.
        cases: those that are wanted.
        results: takes the rows.
        seconds: after which no case begins.
        ahead: what compiles for torch.
    """
    start, every = time.monotonic(), comparisons.peers
    done = {(row.family, row.case) for row in results.rows}
    left = [case for case in cases if (case.family.name, case.name) not in done]
    ahead.announce(left)
    while left:
        begun = time.monotonic()
        if begun - start > seconds:
            print(f"Left out for want of time: {len(left)} cases", flush=True)
            return
        case = next(filter(ahead.is_ready, left), left[0])
        left.remove(case)
        reason = ahead.wait(case, min(COMPILE_SECONDS, max(seconds - (begun - start), 1.0)))
        ahead.announce(left)
        comparisons.peers = tuple(peer for peer in every if not (reason and peer.name == TorchCompile.name))
        try:
            rows = comparisons.rows(case)
        except GenError as error:
            rows = [Row(case.family.name, case.name, OURS, Protocol.COLD.value, note=f"{FAILED}{said(error)}")]
        if reason:
            rows.append(Row(case.family.name, case.name, TorchCompile.name, Protocol.COLD.value, note=reason))
        results.add(pothole_of(case, rows, time.monotonic() - begun))
        print(results.rows[-1], flush=True)
        if comparisons.lost is not None:
            raise comparisons.lost
    comparisons.peers = every


def explained(row: Pothole, limits: Limits, home: Path) -> Pothole:
    """The row with what bounds our kernel, by the model of `gen explain`."""
    from gen.families.names import find_family, find_variant
    from gen.report.explain import explanations, sentences

    family = find_family(FAMILIES, row.family)
    try:
        case = case_of(row)
        known = {family.name_of(case.spec): case.spec.to_json()}
        made = find_variant(FAMILIES, row.variant, known)
        (found,) = explanations([made], limits, home, [case.extents])
        return replace(row, reason=" ".join([*sentences(found)][:3]))
    except GenError as error:
        return replace(row, reason=f"{FAILED}{said(error)}")


def case_of(row: Pothole) -> RandomCase:
    """The case of a row, made again."""
    from gen.families.names import find_family

    family, problem = find_family(FAMILIES, row.family), row.problem
    spec = family.from_json(problem["spec"])
    parameters = problem["runtime_parameters"]
    return RandomCase(
        family, spec, tuple(problem["shape"]), parameters, row.case, problem["gap"], problem["offset"]
    )  # fmt: skip


def worst_of(rows: Iterable[Pothole]) -> list[Pothole]:
    """The rows that lose most, the worst first."""
    timed = [row for row in rows if row.ratio is not None]
    return sorted(timed, key=lambda row: row.ratio or 0.0)[:WORST]


def summary(rows: Sequence[Pothole]) -> list[str]:
    """A line for all, one for each family, and one for each shape class that loses; then the worst cases."""
    lines = []
    families = list(dict.fromkeys(row.family for row in rows))
    for name in ("", *families):
        mine = [row for row in rows if name in ("", row.family)]
        lines.append(f"{name or 'all'}: {_figures(mine)}")
    classes: dict[tuple[str, str], list[Pothole]] = {}
    for row in rows:
        if row.ratio is not None:
            classes.setdefault((row.family, row.shape_class), []).append(row)
    lost = {place: sum(-log(min(row.ratio or 1.0, 1.0)) for row in found) for place, found in classes.items()}
    lines += [
        f"  lost {lost[place]:.2f} in {place[0]}, {place[1]}: {_figures(classes[place])}"
        for place in sorted(lost, key=lambda place: -lost[place])
        if lost[place] > 0
    ]
    lines.append("Worst:")
    for row in worst_of(rows):
        lines += [str(row), *([f"        {row.reason}"] if row.reason else [])]
    wrong = [row for row in rows if row.untuned_us is None]
    return [*lines, *([f"Not timed: {len(wrong)}", *map(str, wrong)] if wrong else [])]


def _figures(rows: Sequence[Pothole]) -> str:
    ratios = [row.ratio for row in rows if row.ratio]
    if not ratios:
        return f"{len(rows)} cases, none with a peer"
    mean = exp(sum(map(log, ratios)) / len(ratios))
    near = sum(ratio >= CLOSE_RATIO for ratio in ratios) / len(ratios)
    above = f"{near:.0%} at {CLOSE_RATIO} or more"
    text = f"{len(ratios)} of {len(rows)} cases, geomean {mean:.3f}, {above}, worst {min(ratios):.2f}"
    tuned = [row.ratio * row.untuned_us / row.tuned_us for row in rows if row.ratio and row.untuned_us and row.tuned_us]
    if tuned:
        text += (
            f"; tuned, of {len(tuned)}: geomean {exp(sum(map(log, tuned)) / len(tuned)):.3f}, worst {min(tuned):.2f}"
        )
    return text


def on_gpu(options: argparse.Namespace) -> int:
    """Measures."""
    need_gpu("python -m bench.potholes")
    from gen.tune.device import IsolatedDevice

    start = time.monotonic()
    if options.json is not None:
        check_writable(options.json)
    with ExitStack() as opened:
        home = Path(opened.enter_context(TemporaryDirectory(prefix="gen-potholes-", ignore_cleanup_errors=True)))
        tuned_home = home / "tuned"
        tuned_home.mkdir()
        opened.enter_context(alone(0, options.seconds, "bench/potholes.py"))
        names = set(options.peers.split(","))
        ahead = Ahead(home, 0, options.processes if TorchCompile.name in names else 0)
        opened.callback(ahead.close)
        cases = wanted_cases(options)
        ahead.announce(cases)
        asked = tuple(peer for peer in PEERS if peer.name in names)
        if options.tune is not None:
            asked = (*asked, Tuned(tuned_home, f"{options.tune}s"))
        with turn(home):  # calibration is timed too
            device = opened.enter_context(IsolatedDevice(LibrariesFactory(0, home, home / "log", home, calibrate=True)))
        comparisons = Comparisons(device, asked, Protocol.COLD, home, compare)
        meta: dict[str, Any] = {
            "seed": options.seed, "device": device.name, "driver": device.driver, "date": date.today().isoformat(),
            "command": as_called("python -m bench.potholes"), "gen": origin(), "versions": comparisons.versions,
        }  # fmt: skip
        for name, reason in comparisons.missing.items():
            print(f"Without {name}: {reason}")
        results = resumed(options.json, meta)
        if options.losses is not None:
            asked_for = {case.name for case in cases}
            lost = {
                row.case
                for row in results.rows
                if row.case in asked_for and row.ratio is not None and row.ratio < options.losses
            }
            results.rows = [row for row in results.rows if row.case not in lost or row.tuned_us is not None]
            cases = tuple(case for case in cases if case.name in lost)
        measure(comparisons, cases, results, options.seconds - (time.monotonic() - start), ahead)
        limits = device.limits
        if options.json is not None:
            logs = [
                file.read_text(errors="replace")[-LOGGED:]
                for file in (home / "log", home / "ahead.log")
                if file.exists()
            ]
            options.json.with_suffix(".log").write_text("\n\n".join(logs), encoding="utf-8")
    return explain(results, limits, options.seconds - (time.monotonic() - start))


def on_model(options: argparse.Namespace) -> int:
    """Counts."""
    from bench.potholes_by_model import by_model, estimated

    command, limits = as_called("python -m bench.potholes"), Limits.of(DEFAULT_ARCH)
    meta = {
        "seed": options.seed,
        "device": f"model of {limits.arch}",
        "date": date.today().isoformat(),
        "command": command,
    }
    results, cases = Results(meta, [], options.json), wanted_cases(options)
    rows = by_model(cases, limits, output_home(None), options.alternatives, options.seconds)
    if options.estimate is not None:
        rows = (estimated(case, limits, options.estimate) for case in cases)
    for row in rows:
        results.add(row)
        print(row, flush=True)
    for line in summary(results.rows):
        print(line)
    return 0


def explain(results: Results, limits: Limits, seconds: float) -> int:
    """Says why the worst are as slow as they are, as long as there is time, and prints what all comes to."""
    start, home = time.monotonic(), output_home(None)
    for row in worst_of(results.rows):
        if time.monotonic() - start < seconds and row.ratio is not None and row.ratio < CLOSE_RATIO and not row.reason:
            results.add(explained(row, limits, home))
    for line in summary(results.rows):
        print(line)
    return 0


def wanted_cases(options: argparse.Namespace) -> tuple[RandomCase, ...]:
    """The cases of the command line."""
    if options.again is not None:
        cases = tuple(case_of(row) for row in read_results(options.again).rows)
    else:
        cases = random_cases(options.seed, options.count)
    return tuple(
        case for case in cases if options.only in case.name and case.nbytes <= options.most_mib << 20
    )  # fmt: skip


def main() -> int:
    """Prints a line a case, then what all come to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the cases (%(default)s)")
    parser.add_argument("--count", type=int, default=300, help="how many (%(default)s)")
    parser.add_argument("--again", type=Path, metavar="FILE", help="the cases of this file instead, whatever the seed")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument("--most-mib", type=int, default=2048, help="the largest input (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="after which no case begins (%(default)s)")
    parser.add_argument("--peers", default="torch,torch.compile,cupy,cupyx", help="whom to ask (%(default)s)")
    parser.add_argument("--processes", type=int, default=8, help="that compile ahead for torch.compile (%(default)s)")
    parser.add_argument("--tune", type=float, metavar="SECONDS", help="time what tuning for so long gives, too")
    parser.add_argument("--losses", type=float, metavar="RATIO", help="only cases of the file under this ratio")
    parser.add_argument("--json", type=Path, help="keep the results here, and go on where they end")
    parser.add_argument("--model", action="store_true", help="count on the CPU instead; needs no GPU")
    parser.add_argument(
        "--alternatives", type=int, default=0, help="of --model: variants beside the pick (%(default)s)"
    )
    parser.add_argument(
        "--estimate", type=float, metavar="SHARE", help="estimate that share of all configs instead; needs no GPU"
    )
    parser.add_argument("--explain", action="store_true", help="say why the worst of the file lost; needs no GPU")
    options = parser.parse_args()
    if options.explain:
        if options.json is None:
            parser.error("--explain needs --json FILE")
        return explain(read_results(options.json), Limits.of(DEFAULT_ARCH), options.seconds)
    return on_model(options) if options.model or options.estimate is not None else on_gpu(options)


if __name__ == "__main__":
    sys.exit(ended(main))
