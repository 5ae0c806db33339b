"""Trials as files for other tuners, and from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gen.cli import show
from gen.cli.common import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.store.trials import Row

FORMS = ("t4", "csv", "kernel-tuner")


def take(home: Path, place: Path, *, json: bool) -> None:
    """Imports the trials in a file of T4 results, and says how many are new."""
    from gen.errors import StoreError
    from gen.store.exchange import rows_of_t4
    from gen.store.trials import Trials

    try:
        content = place.read_bytes()
    except OSError as error:
        raise StoreError(str(place), "must be a file that can be read", error.strerror) from error
    rows = rows_of_t4(content, place.name)
    store = Trials(home)
    try:
        new = store.add(rows)
    finally:
        store.close()
    if json:
        show.data({"trials": len(rows), "new": new})
    else:
        show.text(f"{new} trials of {len(rows)} are new.")


def give(rows: Sequence[Row], place: Path, form: str | None, *, json: bool) -> None:
    """Exports trials to a file of that form, by default the one that its name says, and says how many."""
    from gen.errors import StoreError
    from gen.store.exchange import text_of_cache, text_of_t4, write_table

    form = form or ("csv" if place.name.endswith((".csv", ".csv.gz")) else "t4")
    if form not in FORMS:
        raise OptionError("--form", "must be one of " + ", ".join(FORMS), form)
    try:
        if form == "csv":
            write_table(place, rows)
        else:
            text = text_of_t4(rows) if form == "t4" else text_of_cache(rows)
            place.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreError(str(place), "cannot be written", error.strerror, next_step="Name another file") from error
    if json:
        show.data({"trials": len(rows), "file": str(place), "form": form})
    else:
        show.text(f"{len(rows)} trials are in {place}.")
