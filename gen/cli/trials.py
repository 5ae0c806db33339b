"""`gen trials`: what was tried and what came of it; as files for other tuners."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from gen.cli import output
from gen.cli.common import Home, Json, OptionError, complete_any, families_of, find, home_of, option, resolved
from gen.errors import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gen.families.base import Family
    from gen.store.trials import StoredTrial


LISTED_TRIALS = 20


def trials(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="FAMILY|SPEC|NAME",
            autocompletion=complete_any,
            show_default=False,
            help="Only those of a family, a spec or a variant.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only trials on devices whose names contain this text.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only trials with this status: ok, wrong_result.")
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="SHAPE", help="Only trials of these sizes, as listed: 8192x8192, 2^28."),
    ] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="NAME", help="Only trials of this algorithm.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, show_default=False, help=f"How many to list, fastest first. Default: {LISTED_TRIALS}."
        ),
    ] = None,
    export: Annotated[
        Path | None,
        option(
            "--export",
            "FILE",
            "Write them to a file instead of listing them: as a table where its name ends in .csv or .csv.gz, else as "
            "T4 results.",
        ),
    ] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """List what was tried, one line a trial, or one a problem where nothing is asked for.

    Trials can be exported as T4 results, which other auto-tuners read, or as a table to replay searches on.

    Examples: `gen trials`, `gen trials transpose_10_b32 --status wrong_result`, `gen trials --export trials.json`.
    """
    from gen.families.names import find_named
    from gen.store.trials import FILE, Trials

    home, families = home_of(results), families_of(ctx)
    if target is not None:
        is_named = find_named(families, target) is not None
        target = find(families, target, home).name if is_named else resolved(families, target, home)
    chosen = {"a name": target, "--device": device, "--status": status, "--shape": shape, "--algorithm": algorithm}
    if limit is not None and export is not None:
        raise OptionError("--limit and --export", "do not go together: a file holds all")
    _check_status(status)
    if not (home / FILE).is_file():
        _check_target(families, target, home, ())
        _answer_none(home / FILE, export, json)
        return
    store = Trials(home)
    try:
        rows = [
            row
            for row in store.rows(**({"status": status} if status else {}))
            if _wanted(row, target, device, shape, algorithm)
        ]
        if not rows:
            _check_target(families, target, home, list(store.rows()))
    finally:
        store.close()
    if export is not None:
        give(rows, export, json=json)
    elif json:
        output.data([_as_json(row) for row in (rows if limit is None else _fastest_first(rows)[:limit])])
    elif any(chosen.values()) or limit is not None:
        _list(rows, limit or LISTED_TRIALS)
    elif rows:
        _summarise(rows)
    else:
        _say_none(home / FILE)


def _answer_none(place: Path, export: Path | None, json: bool) -> None:
    """What is said where there is no file of trials: a program that reads JSON, or a file, is not misled."""
    from gen.errors import StoreError

    if export is not None:
        raise StoreError(
            str(place), "must hold trials for --export to write; gen tune records them on a GPU", "no file"
        )
    if json:
        output.data([])
    else:
        _say_none(place)


def _say_none(place: Path) -> None:
    output.text(f"No trial is recorded in {place}. On a machine with a GPU, gen tune records them.")


def _check_target(
    families: tuple[Family[Any], ...], target: str | None, home: Path, rows: Sequence[StoredTrial]
) -> None:
    """Raises UnknownNameError for what is no name of a family, a spec or a variant, nor of a trial that is there."""
    from gen.families.names import find_spec, unknown
    from gen.store.folder import read_specs

    named = [named.name for family in families for named in family.named]
    if target is None or target in [family.name for family in families] or any(_of(row, target) for row in rows):
        return
    if "__" in target:
        find(families, target, home)
        return
    try:
        find_spec(families, target, read_specs(home))
    except UnknownNameError:
        specs = [family.name_of(spec) for family in families for spec in family.catalogue]
        choices = dict.fromkeys([*(family.name for family in families), *specs, *(row.spec for row in rows), *named])
        rule = "must be a family, a spec, or a variant's full name"
        raise unknown("The name", target, list(choices), rule, otherwise="gen trials lists what was tuned") from None


def _check_status(status: str | None) -> None:
    from gen.store.trials import Status

    if status is not None and status not in get_args(Status):
        raise OptionError("--status", "must be one of " + ", ".join(get_args(Status)), status)


def _wanted(row: StoredTrial, target: str | None, device: str | None, shape: str | None, algorithm: str | None) -> bool:
    return (
        (target is None or _of(row, target))
        and (device is None or device.lower() in row.device.lower())
        and (shape is None or _sizes(row) == _canonical(shape))
        and (algorithm is None or row.algorithm == algorithm)
    )


def _of(row: StoredTrial, target: str) -> bool:
    return target in (row.spec, row.variant) or row.spec.startswith(f"{target}_")


def _canonical(shape: str) -> str:
    from gen.tune.targets import read_shape

    return "x".join(str(extent) for extent in read_shape(shape))


def _sizes(row: StoredTrial) -> str:
    """The sizes without what only says how rows follow each other."""
    from gen.families.extents import told_extents

    return "x".join(map(str, told_extents(row.extents, pitches=False).values()))


def _fastest_first(rows: Sequence[StoredTrial]) -> list[StoredTrial]:
    return sorted(rows, key=lambda row: (row.median_us is None, row.median_us, row.variant))


def _list(rows: Sequence[StoredTrial], limit: int) -> None:
    ordered = _fastest_first(rows)
    lines = [
        (
            _clean(row.variant), _at(row), row.status,
            "" if row.median_us is None else f"{row.median_us:.2f}", row.registers, row.spill_bytes, row.shared_bytes,
            _clean(_notes(row)), row.ended[:19],
        )
        for row in ordered[:limit]
    ]  # fmt: skip
    if not ordered:
        output.text("No trial is like that: gen trials alone lists what was tuned.")
        return
    columns = ("variant", "sizes", "status", "us", "registers", "spills", "shared", "notes", "ended")
    output.table(columns, lines)
    if len(ordered) > limit:
        output.text(f"{len(ordered) - limit} more; --limit shows them.")


def _summarise(rows: Sequence[StoredTrial]) -> None:
    groups: dict[tuple[str, str, str], list[StoredTrial]] = {}
    for row in rows:
        groups.setdefault((row.device, row.spec, _at(row)), []).append(row)
    lines = []
    for (device, spec, at), found in sorted(groups.items()):
        right = [row for row in found if row.median_us is not None]
        best = min(right, key=lambda row: row.median_us or 0.0, default=None)
        bad = sum(row.status not in ("ok", "infeasible", "pruned") for row in found)
        lines.append(
            (
                _clean(device), _clean(spec), at, len(found), len(right), bad,
                "" if best is None else f"{best.median_us:.2f}",
                "" if best is None else _clean(best.variant.partition("__")[2] or best.variant),
            )
        )  # fmt: skip
    output.table(("device", "spec", "sizes", "trials", "right", "failed", "best us", "by"), lines)
    if lines:
        output.text("Name a spec to list its trials, fastest first; gen show says which variants were chosen.")


def _at(row: StoredTrial) -> str:
    return _sizes(row) + (f" at {row.alignment} bytes" if row.alignment < 16 else "")


def _notes(row: StoredTrial) -> str:
    """What a reader should know of a trial beside its time."""
    notes = [row.reason, f"same code as {row.same_as.partition('__')[2]}" if row.same_as else "", row.throttled]
    notes += [f"beside {other}" for other in row.others]
    return "; ".join(note for note in notes if note)


def _clean(text: str) -> str:
    """What a terminal shows as it is: the text may come from a file of somebody else's."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _as_json(row: StoredTrial) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(row), "median_us": row.median_us}


def give(rows: Sequence[StoredTrial], place: Path, *, json: bool) -> None:
    """Exports trials to a file of the form that its name says, and says how many."""
    from gen.errors import StoreError
    from gen.store.trial_files import text_of_t4, write_table

    form = "csv" if place.name.endswith((".csv", ".csv.gz")) else "t4"
    try:
        if form == "csv":
            write_table(place, rows)
        else:
            place.write_text(text_of_t4(rows), encoding="utf-8", newline="\n")
    except OSError as error:
        raise StoreError(str(place), "cannot be written", error.strerror, next_step="Name another file") from error
    if json:
        output.data({"trials": len(rows), "file": str(place), "form": form})
    else:
        output.text(f"{len(rows)} trials are in {place}.")
