"""`python -m bench`: gen's kernels against other libraries, on the public cases, in the same run."""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from gen.cli import gpu as gpus
from gen.cli import output
from gen.cli.app import errors_told
from gen.cli.common import Home, Invocation, OptionError, families_of, home_of, option
from gen.cli.gpu import Gpu

if TYPE_CHECKING:
    from bench.results import Difference, Results, Run
    from bench.run import Bench, Tune
    from gen.compare.case import ComparisonCase
    from gen.compare.process import Comparisons
    from gen.compare.row import Row
    from gen.tune.device import IsolatedDevice


class _Command(TyperCommand):
    """The one command; an error is told in a message."""

    def invoke(self, ctx: Any) -> Any:
        """Runs it."""
        with errors_told():
            return super().invoke(ctx)


app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command(
    cls=_Command,
    epilog="Examples: `python -m bench transpose --peers torch,cublas`, `python -m bench --case 'sum f32*' --tune 20`, "
    "`python -m bench --json bench/h100.json --missing --budget 500`.",
)
def bench(
    ctx: typer.Context,
    family: Annotated[
        str | None, typer.Argument(metavar="FAMILY", show_default=False, help="A family. Default: all.")
    ] = None,
    peers: Annotated[str | None, option("--peers", "NAME,...", "Whom to measure against. Default: all.")] = None,
    cases: Annotated[
        str, typer.Option(metavar="public|FILE", help="The public cases, or those in a file of JSON.")
    ] = "public",
    case: Annotated[
        list[str] | None, option("--case", "TEXT", "Only cases whose name holds this, or matches it; repeatable.")
    ] = None,
    protocol: Annotated[
        str, typer.Option(metavar="cold|dirty|hot", help="What the caches hold before a launch.")
    ] = "cold",
    seconds: Annotated[
        float | None, option("--tune", "SECONDS", "Tune each case first, for so long. Default: what is tuned.")
    ] = None,
    budget: Annotated[float | None, option("--budget", "SECONDS", "The time that the whole run may take.")] = None,
    json: Annotated[
        Path | None,
        option(
            "--json",
            "FILE",
            "Keep the results here, in the place of older ones of the same case, peer and protocol. Rows of other "
            "peers stay if our kernel is the same one still, and takes as long within 5 %.",
        ),
    ] = None,
    missing: Annotated[
        bool,
        typer.Option(
            "--missing",
            help="Only cases of which the file of --json lacks our row or a peer's under this protocol, or has "
            "one that failed.",
        ),
    ] = False,
    part: Annotated[
        str | None,
        option(
            "--part",
            "K/N",
            "Only the K-th of N parts of the cases: on N GPUs, N runs with the same --json make one table.",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        option(
            "--against",
            "FILE",
            "Compare with an earlier run; exit status 1 if a kernel of ours is slower now or fails, 2 if there is "
            "nothing to compare.",
        ),
    ] = None,
    families: Annotated[
        list[str] | None, typer.Option("--family", metavar="MODULE:NAME", help="A family from outside gen; repeatable.")
    ] = None,
    gpu: Gpu = 0,
    folder: Home = None,
    list_cases: Annotated[bool, typer.Option("--list", help="Print the cases as JSON, and measure nothing.")] = False,
) -> None:
    """Measure against other libraries: torch, torch.compile, CuPy, cupyx, CUB, cuBLAS, JAX, and a plain kernel.

    Every result is checked before it is timed: against NumPy's, and stencils at each cell against a plain kernel in
    double at which NumPy looks. Two contenders are timed in turns, A B B A, in one process: 30 pairs or more, fewer
    if a pair takes over 66 ms, never under 6. Their median ratio has a 95 % interval. It is a WIN or a LOSS if all of
    that lies further from 1 than our kernel does from itself on this case, else a TIE. A library that crashes or hangs
    is named, and the case goes on without it; after a second time, the run does.
    """
    ctx.obj = Invocation(tuple(families or ()))
    from bench.cases import public_cases, read_cases, text_of_cases
    from bench.peers import PEERS
    from bench.results import Results, differences, read_results
    from bench.run import Bench, compare_public, tuning
    from gen.compare.peers import find_peers
    from gen.compare.process import Comparisons, LibrariesFactory
    from gen.emit.folder import ELSEWHERE, check_writable
    from gen.gpu.timing import Protocol
    from gen.paths import cache_home
    from gen.store.winners import all_winners
    from gen.tune.device import IsolatedDevice

    asked = find_peers(None if peers is None else peers.split(","), PEERS)
    names = tuple(peer.name for peer in asked)
    if protocol not in [known.value for known in Protocol]:
        raise OptionError("--protocol", "must be cold, dirty or hot", protocol)
    for name, value in (("--budget", budget), ("--tune", seconds)):
        if value is not None and not value > 0:
            raise OptionError(name, "must be a positive number of seconds", value)
    wanted = select_cases(
        public_cases() if cases == "public" else read_cases(Path(cases), families_of(ctx)), family, case
    )
    if part is not None:
        wanted = part_of(wanted, part)
    if missing and json is None:
        raise OptionError("--missing", "needs --json FILE: what is missing is missing there")
    before = None if against is None else read_results(against)
    if before is not None and not before.rows:
        raise OptionError("--against", "must be a file that python -m bench --json wrote", against)
    kept = Results() if json is None else read_results(json)
    if missing:
        wanted = missing_in(wanted, kept, protocol, names)
    if before is not None and wanted:
        check_common(before, wanted, protocol)
    if list_cases:
        output.verbatim(text_of_cases(wanted))
        return
    if not wanted:
        output.text("Nothing is missing.")
        return
    if json is not None:
        check_writable(json)
    home = home_of(folder)
    all_winners(home)  # gen.load would only warn, and all be measured untuned
    end = None if budget is None else time.monotonic() + budget
    log = cache_home(home) / "bench.log"
    check_writable(log, ELSEWHERE)
    with ExitStack() as opened:
        compiled = Path(opened.enter_context(TemporaryDirectory(prefix="gen-bench-", ignore_cleanup_errors=True)))
        opened.enter_context(gpus.alone(gpu, budget, _command()))
        device = opened.enter_context(IsolatedDevice(LibrariesFactory(gpu, home, log, compiled, calibrate=True)))
        tune = None
        if seconds is not None:
            tune = opened.enter_context(tuning(device, families_of(ctx), home, seconds))
        benched = Bench(Comparisons(device, asked, Protocol(protocol), home, compare_public))
        run = _run(device, benched.comparisons, home)
        results = _measure(benched, run, wanted, json, before, end, tune, protocol if missing else None)
    if results is None:
        return
    _end(results, tuned=seconds is not None)
    if benched.lost is not None:
        raise benched.lost
    if before is not None and _compare(differences(before, results), results):
        raise typer.Exit(1)


def _keep(path: Path, run: Run, rows: Sequence[Row], cases: Sequence[ComparisonCase]) -> None:
    """Puts all rows of a run so far in the place of older ones, also where other runs keep theirs at the same time."""
    from bench.peers import PEERS
    from bench.results import in_order, lock_of, read_results, write_results
    from gen.emit.folder import holding

    with holding(lock_of(path)):
        kept = read_results(path)
        order = _order(kept, [(case.family.name, case.name) for case in cases])
        write_results(path, in_order(kept.with_run(run, rows), order, [peer.name for peer in PEERS]))


def _run(device: IsolatedDevice, comparisons: Comparisons, home: Path) -> Run:
    """What stands beside the results of this run."""
    import platform

    import numpy as np

    import gen
    from bench.results import Run, origin
    from gen.gpu.timing import METHOD
    from gen.paths import cache_home
    from gen.toolchain.nvrtc import Nvrtc

    versions = {
        "python": platform.python_version(), "gen": gen.__version__, "numpy": np.__version__,
        "compiler": Nvrtc(cache_home(home)).version, **comparisons.versions,
    }  # fmt: skip
    day, calibration = time.strftime("%Y-%m-%d"), asdict(device.about)
    return Run(_command(), day, device.name, device.driver, calibration, versions, origin(), METHOD)


def _measure(
    bench: Bench, run: Run, cases: Sequence[ComparisonCase], file: Path | None, before: Results | None,
    end: float | None, tune: Tune | None, missing_under: str | None,
) -> Results | None:  # fmt: skip
    """Measures, prints and keeps one case after another, until a time; None if nothing is missing.

    Where a protocol is given, only what is missing under it in the file.
    """
    from bench.results import Results, read_results
    from bench.table import COLUMNS, lines, text_of

    output.text(f"{run.device}, driver {run.driver}; " + _limits(run.calibration))
    for name, reason in bench.comparisons.missing.items():
        output.text(f"Without {name}: {reason}")
    if before is not None and before.device != run.device:
        rule = f"was measured on {before.device}: nothing can be compared with it here"
        raise OptionError("--against", rule, run.device)
    peers = [peer.name for peer in bench.comparisons.peers]
    if file is not None:
        kept = read_results(file)
        kept.with_run(run, [])  # raises what it would raise after the first case
        if missing_under is not None:
            cases = missing_in(cases, kept, missing_under, peers)
    if not cases:
        output.text("Nothing is missing.")
        return None
    output.text("  ".join(COLUMNS))
    rows: list[Row] = []
    budget = None if end is None else end - time.monotonic()
    for _, found in bench.rows(cases, budget, tune):
        rows += found
        for line in lines(Results(tuple(found))):
            output.text("  ".join(text_of(line)))
        for row in found:
            if row.note:
                output.text(f"{row.peer}: {row.note}", indent=4)
        if file is not None:
            _keep(file, run, rows, cases)
    for case in bench.left_out:
        why = "for want of time" if bench.lost is None else "as the device was lost"
        output.text(f"Left out {why}: {case.name}")
    return Results().with_run(run, rows)


def _order(kept: Results, names: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The cases in the order in which they are declared, then others."""
    from bench.cases import public_cases

    declared = [(case.family.name, case.name) for case in public_cases()]
    return list(dict.fromkeys([*declared, *kept.cases(), *names]))


def _command() -> str:
    """This command, as it can be repeated."""
    return "python -m bench " + shlex.join(sys.argv[1:])


def _limits(calibration: Mapping[str, Any]) -> str:
    return (
        f"read {calibration['read']:.0f}, write {calibration['write']:.0f}, copy {calibration['copy']:.0f} GB/s; "
        f"empty kernel {calibration['empty_pair_us']:.2f} us, in a graph {calibration['empty_node_us']:.2f} us"
    )


def _end(results: Results, *, tuned: bool) -> None:
    """What the run came to."""
    from bench.table import summary
    from gen.compare.row import OURS

    ours = [row for row in results.rows if row.peer == OURS]
    timed = {row.case for row in ours if row.ours_us is not None}
    untuned = timed & {row.case for row in ours if row.untuned}
    compiled = [row.seconds for row in results.rows if row.peer == "torch.compile" and row.seconds]
    ready = [row.seconds for row in ours if row.seconds]
    output.text()
    output.verbatim(summary(results))
    if ready:
        what = "Tuning and loading" if tuned else "Loading, without tuning,"
        line = f"{what} took gen {sum(ready) / len(ready):.1f} s a case"
        if compiled:
            line += f"; torch.compile, whose caches were empty, {sum(compiled) / len(compiled):.1f} s to compile one"
        output.text(line + ".")
    if untuned:
        output.text(
            f"{len(untuned)} of {len(timed)} cases ran untuned: python -m bench --tune SECONDS tunes them first."
        )


def _compare(found: Sequence[Difference], results: Results) -> bool:
    """Prints what became of each case, and how many are new; whether one is slower, or has no time any more.

    Raises OptionError if there is nothing to compare.
    """
    from gen.compare.row import OURS, digits

    if not found:
        raise OptionError("--against", "has none of the cases that were measured")
    rows = [
        (
            one.case, one.protocol, digits(one.before_us), "-" if one.now_us is None else digits(one.now_us),
            one.change.value,
        )
        for one in found
    ]  # fmt: skip
    output.table(("case", "protocol", "us before", "us now", "change"), rows)
    for one in found:
        if one.note:
            output.text(f"{one.case} ({one.protocol}): {one.note}")
    measured = {row.case for row in results.rows if row.peer == OURS and row.ours_us is not None}
    new = measured - {one.case for one in found}
    if new:
        output.text(f"{len(new)} of {len(measured)} cases have no time there to compare with.")
    return any(one.change.value in ("SLOWER", "BROKEN") for one in found)


def missing_in(
    cases: Sequence[ComparisonCase], kept: Results, protocol: str, peers: Sequence[str]
) -> tuple[ComparisonCase, ...]:  # fmt: skip
    """The cases of which our row or a peer's is not there under a protocol, has failed, or is of an older method."""
    from gen.compare.row import OURS

    found = []
    for case in cases:
        rows = [row for row in kept.rows if (row.family, row.case) == (case.family.name, case.name)]
        there = {row.peer: row for row in rows if row.protocol == protocol}
        if not {OURS, *peers} <= there.keys() or not all(row.is_done and not kept.is_old(row) for row in rows):
            found.append(case)
    return tuple(found)


def check_common(before: Results, cases: Sequence[ComparisonCase], protocol: str) -> None:
    """Raises OptionError if an earlier run has none of these cases."""
    from gen.compare.row import OURS

    known = {
        (row.family, row.case) for row in before.rows if row.peer == OURS and row.ours_us and row.protocol == protocol
    }
    if not any((case.family.name, case.name) in known for case in cases):
        rule = f"must have a time of ours for one of these {len(cases)} cases, {protocol}"
        raise OptionError("--against", rule, before.path, next_step="python -m bench --json FILE writes it")


def select_cases(
    cases: Sequence[ComparisonCase], family: str | None, filters: Sequence[str] | None
) -> tuple[ComparisonCase, ...]:
    """The cases meant. Raises UnknownNameError if there are none."""
    from gen.errors import UnknownNameError
    from gen.families.names import unknown

    families = list(dict.fromkeys(case.family.name for case in cases))
    if family is not None and family not in families:
        raise unknown("The family", family, families)
    found = tuple(case for case in cases if family in (None, case.family.name))
    if filters:
        found = tuple(
            case for case in found if any(text in case.name or fnmatchcase(case.name, text) for text in filters)
        )
    if not found:
        raise UnknownNameError(
            "--case",
            "must be a part of a case's name, or a pattern such as 'sum f32*' that all of one matches",
            ", ".join(filters or ()),
            next_step="python -m bench --list has the names",
        )
    return found


def part_of(cases: Sequence[ComparisonCase], part: str) -> tuple[ComparisonCase, ...]:
    """Every N-th case, from the K-th. Raises OptionError for what is no part."""
    found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", part)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise OptionError("--part", "must be K/N, K from 1 to N", part)
    chosen = tuple(cases[int(found[1]) - 1 :: int(found[2])])
    if not chosen:
        raise OptionError("--part", f"leaves nothing: there are {len(cases)} cases", part)
    return chosen
