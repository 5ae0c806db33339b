"""`gen report`: one HTML page about all that was tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gen.cli import output
from gen.cli.common import Home, Json, families_of, home_of
from gen.errors import StoreError


def report(
    ctx: typer.Context,
    page: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The page to write.")] = Path("report.html"),
    results: Home = None,
    json: Json = False,
) -> None:
    """Write one HTML page about what was tuned: winners, rooflines, other libraries, search spaces, kernels.

    It is made from the folder of results alone, without a GPU too, and needs no network to be read. Rooflines show the
    winners, and what gen compare has measured of other libraries, below the limits of the memory. Further plots show
    how a search converged, what each parameter does, which trials failed and why, and how much the samples of the
    fastest differ. Tables can be sorted and filtered.

    Examples: `gen report`, `gen report -o tuned.html`.
    """
    from gen.compare.results import read_compared
    from gen.report.page import page as text_of
    from gen.store.folder import known_specs, stored_calibrations
    from gen.store.trials import FILE, StoredTrial, Trials
    from gen.store.winners import all_winners

    families, home = families_of(ctx), home_of(results)
    if results is not None and not home.is_dir():
        raise StoreError(str(home), "must be a folder of results", next_step="gen tune makes one on a GPU")
    rows: tuple[StoredTrial, ...] = ()
    if (home / FILE).is_file():
        store = Trials(home)
        try:
            rows = tuple(store.rows())
        finally:
            store.close()
    winners, comparisons = all_winners(home), read_compared(home)
    text = text_of(winners, rows, stored_calibrations(home), comparisons, families, known_specs(families, home))
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(str(page), f"cannot be written: {error.strerror}", next_step="Give another -o FILE") from None
    size = page.stat().st_size
    if json:
        counts = {"winners": len(winners), "trials": len(rows), "comparisons": len(comparisons)}
        output.data({"file": str(page), "bytes": size, **counts})
        return
    output.text(
        f"{page}: {len(winners)} winners, {len(rows)} trials, {len(comparisons)} comparisons, {size / 1e6:.1f} MB"
    )
