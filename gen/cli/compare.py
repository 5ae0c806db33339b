"""`gen compare`: is our kernel faster than what the caller uses now, on the caller's shape?"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.cli import gpu as gpus
from gen.cli import output
from gen.cli.common import Home, Json, OptionError, RuntimeParameters, complete_spec, families_of, home_of, option
from gen.cli.gpu import Gpu

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gen.compare.case import ComparisonCase
    from gen.compare.peers.base import Peer
    from gen.compare.row import Row
    from gen.errors import GenError

_VERDICTS = {"WIN": "gen is faster", "LOSS": "gen is slower", "TIE": "no difference beyond the noise"}


def compare(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="SPEC", autocompletion=complete_spec, help="A spec such as reduction_sum_f32.")
    ],
    shape: Annotated[
        str, typer.Option("--shape", metavar="SHAPE", help="The shape of the first input: 8192x8192, 2^28.")
    ],
    parameters: RuntimeParameters = None,
    peers: Annotated[
        str | None,
        option(
            "--peers",
            "NAME,...",
            "The libraries to compare with: torch, torch.compile, cupy, cupyx, jax. Default: all that are installed.",
        ),
    ] = None,
    gpu: Gpu = 0,
    results: Home = None,
    json: Json = False,
) -> None:
    """Compare the kernel that gen.load gives for a spec and a shape with torch, torch.compile, CuPy and JAX.

    Every result is checked against NumPy's first, where NumPy needs too long on a smaller shape. Then our kernel and a
    peer are timed in alternating rounds, A B B A, behind the same flush of the caches. The ratio of their times is a
    median with a 95 % interval; gen is faster, or slower, if all of that lies further from 1 than the interval of our
    kernel against itself. Under 20 us a launch is also timed as one of 50 in a CUDA graph (hot). The times are kept in
    comparisons.json, in the folder of results: `gen report` shows them beside the limits of the memory.

    Examples: `gen compare transpose_10_b32 --shape 4096x4096`, `gen compare reduction_sum_f32 --shape 2^24 --peers
    torch,torch.compile`.
    """
    from gen.compare.case import ComparisonCase
    from gen.compare.peers import find_peers
    from gen.compare.row import FAILED, OURS, WRONG
    from gen.families.extents import check_runtime_parameters
    from gen.runtime.dispatch import family_and_spec
    from gen.tune.targets import read_runtime_parameters, read_shape

    asked = find_peers(None if peers is None else peers.split(","))
    home = home_of(results)
    family, spec = family_and_spec(families_of(ctx), name, home)
    runtime_parameters = read_runtime_parameters(parameters or ())
    check_runtime_parameters(runtime_parameters, [(family, spec)])
    case = ComparisonCase(family, spec, read_shape(shape), runtime_parameters)
    if 0 in case.shape:
        raise OptionError("--shape", "must have elements to compare", shape)
    found = measured([case], asked, gpu, home)
    if json:
        output.data(found.as_json()[0])
    else:
        found.show()
    if found.lost is not None:
        raise found.lost
    (rows,) = found.rows
    if any(row.peer == OURS and (row.ours_us is None or row.note.startswith((WRONG, FAILED))) for row in rows):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Measured:
    """Cases beside other libraries.

    Attributes:
        rows: of each case.
        limits: the least time of each case, by what the caches hold.
        missing: why libraries took no part.
        lost: why the GPU could no longer be used; None if it could.
    """

    cases: Sequence[ComparisonCase]
    rows: Sequence[Sequence[Row]]
    limits: Sequence[Mapping[str, float]]
    device: str
    driver: str
    missing: Mapping[str, str]
    lost: GenError | None

    def show(self) -> None:
        """Prints a table for each case."""
        for case, rows, limits in zip(self.cases, self.rows, self.limits, strict=True):
            output.text(f"{case.name} on {self.device}, driver {self.driver}")
            _print(rows, limits)
        for peer, reason in self.missing.items():
            output.note(f"Without {peer}: {reason}")

    def as_json(self) -> list[dict[str, Any]]:
        """What `gen compare --json` prints of each case."""
        every = zip(self.cases, self.rows, self.limits, strict=True)
        return [_as_json(case, rows, limits, self.device, self.driver, self.missing) for case, rows, limits in every]


def measured(
    cases: Sequence[ComparisonCase], peers: Sequence[Peer], gpu: int, home: Path, doing: str = "gen compare"
) -> Measured:
    """Times cases beside libraries, and keeps that in the folder of results.

    Raises:
        StoreError: what is kept there cannot be read or written.
        DeviceError: there is no GPU to use.
    """
    from gen.compare.process import Comparisons, LibrariesFactory
    from gen.compare.results import compared, keep, read_compared
    from gen.emit.folder import ELSEWHERE, check_writable
    from gen.gpu.timing import Protocol
    from gen.paths import cache_home
    from gen.store.winners import all_winners
    from gen.tune.device import IsolatedDevice

    all_winners(home)  # what cannot be read would only be logged, and the kernel be untuned
    read_compared(home)  # or what cannot be read would be met when all is measured
    log = cache_home(home) / "compare.log"
    check_writable(log, ELSEWHERE)
    with gpus.alone(gpu, None, doing), IsolatedDevice(LibrariesFactory(gpu, home, log)) as device:
        comparisons = Comparisons(device, peers, Protocol.COLD, home)
        rows = [comparisons.rows(case) for case in cases]
        about = device.about
        works = [case.family.work(case.spec, case.extents) for case in cases]
        protocols = (Protocol.COLD, Protocol.HOT)
        limits = [{one.value: about.floor_us(work, one) for one in protocols} for work in works]
    date = time.strftime("%Y-%m-%d")
    for case, found in zip(cases, rows, strict=True):
        keep(home, compared(case, found, about, device.name, device.driver, date))
    return Measured(cases, rows, limits, device.name, device.driver, comparisons.missing, comparisons.lost)


def _print(rows: Sequence[Row], limits: Mapping[str, float]) -> None:
    """A line for each contender and protocol, then why others have none."""
    from gen.compare.row import OURS, digits

    cells = []
    for row in rows:
        us = row.ours_us if row.peer == OURS else row.peer_us
        if us is None or row.ratio is None or row.low is None or row.high is None:
            continue
        ours = row.peer == OURS
        ratio = "" if ours else f"{row.ratio:.3f} [{row.low:.3f}, {row.high:.3f}]"
        limit = f"{limits[row.protocol] / us:.3f}"
        who = f"gen: {row.variant.partition('__')[2]}" if ours else row.peer
        verdict = f"noise {100 * row.noise:.1f} %" if ours else _VERDICTS.get(row.verdict, "too few samples")
        cells.append((who, row.protocol, digits(us), limit, ratio, verdict))
    if cells:
        output.table(("contender", "protocol", "us", "of the limit", "its time / gen's", "verdict"), cells)
    notes = dict.fromkeys((row.peer, row.note) for row in rows if row.note)
    for peer, note in notes:
        output.text(f"{peer}: {note}", indent=2)


def _as_json(
    case: ComparisonCase, rows: Sequence[Row], limits: Mapping[str, float], device: str, driver: str,
    missing: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    from dataclasses import asdict

    return {
        "spec": case.family.name_of(case.spec),
        "shape": list(case.shape),
        "runtime_parameters": dict(case.runtime_parameters),
        "device": device,
        "driver": driver,
        "limit_us": limits,
        "rows": [asdict(row) for row in rows],
        "missing": missing,
    }
