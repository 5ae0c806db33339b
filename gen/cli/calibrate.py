"""`gen calibrate`: what a GPU can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gen.cli import show
from gen.cli.common import Json, Out, home_of
from gen.cli.gpu import CompilerName, Gpu, alone, compiler_of, instruments_of

if TYPE_CHECKING:
    import typer


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("calibrate", epilog="Examples: `gen calibrate`, `gen calibrate --json`.")(calibrate)


def calibrate(gpu: Gpu = 0, compiler: CompilerName = "nvrtc", out: Out = None, json: Json = False) -> None:
    """Measure what the GPU can do: bandwidths as slopes between 1 and 4 GiB, and what an empty launch costs.

    Tuning scores every variant against these figures. They are kept beside the winners.
    """
    from dataclasses import asdict

    from gen.gpu.timing import store_calibration

    home = home_of(out)
    with alone(gpu, None, "gen calibrate"):
        found = instruments_of(gpu, compiler_of(compiler, home)).calibrate()
    place = store_calibration(home, found)
    if json:
        show.data(asdict(found))
        return
    show.text(f"{found.device}, driver {found.driver}")
    rows = [("read", f"{found.read:.0f} GB/s"), ("write", f"{found.write:.0f} GB/s"),
            ("copy, read and written", f"{found.copy:.0f} GB/s"),
            ("empty kernel between events", f"{found.empty_pair_us:.2f} us"),
            ("empty kernel in a graph", f"{found.empty_node_us:.2f} us")]  # fmt: skip
    show.table(("what", "at best"), rows)
    show.text(f"kept in {place}")
