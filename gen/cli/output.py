"""How results look: tables and text on stdout, progress on stderr."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from time import monotonic

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

_WIDE = 240  # columns where nobody looks at a terminal, and COLUMNS says nothing: no name is cut, no row broken


class _Output(Console):
    """Leaves a reader that went away to whoever runs the command; rich would end the program itself, with status 1."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, "the reader went away")


def _stdout() -> Console:
    # Made anew for every call, since tests exchange sys.stdout.
    asked = os.environ.get("COLUMNS", "")
    known = sys.stdout.isatty() or (asked.isdecimal() and int(asked) > 0)  # which rich looks up
    return _Output(markup=False, emoji=False, highlight=False, width=None if known else _WIDE)


def text(line: str = "", style: str = "", *, indent: int = 0) -> None:
    """Prints a line or a paragraph; terminals wrap it between words."""
    if line:
        _print(Text(line, style=style), indent)
    else:
        sys.stdout.write("\n")


def _print(content: Text | Table, indent: int) -> None:
    console = _stdout()
    with console.capture() as captured:
        console.print(Padding(content, (0, 0, 0, indent), expand=False))
    # rich fills lines up with blanks
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def data(content: object) -> None:
    """Prints JSON."""
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, indent: int = 0) -> None:
    """Prints a table; columns of numbers stand on the right."""
    _print(_table(columns, rows), indent)


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        numbers = bool(rows) and all(isinstance(row[place], int) for row in rows)
        made.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    return made


@contextmanager
def live(*, quiet: bool) -> Iterator[Callable[[Sequence[str], Sequence[Sequence[object]]], None]]:
    """A table on a terminal's stderr that is gone at the end; nothing elsewhere, or if it should be quiet.

    Gives what draws it: from its columns and rows. Any thread may call it.
    """
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _columns, _rows: None
        return
    from rich.live import Live

    with Live(console=console, transient=True, auto_refresh=False) as shown:
        yield lambda columns, rows: shown.update(_table(columns, rows), refresh=True)


def note(line: str) -> None:
    """Prints a line for people to stderr, where it does not disturb what is piped on."""
    sys.stdout.flush()
    sys.stderr.write(line + "\n")


@contextmanager
def progress(**totals: int) -> Iterator[Callable[[str], None]]:
    """Bars by name. Gives the function that moves one of them by a step; any thread may call it."""
    done, lock = dict.fromkeys(totals, 0), Lock()
    with bars() as update:
        for name, total in totals.items():
            update(name, 0, total)

        def step(name: str) -> None:
            with lock:
                done[name] += 1
                update(name, done[name], totals[name])

        yield step


def hint(line: str) -> None:
    """Prints a line on stderr where that is no terminal: on one, bars show how far it is."""
    if not sys.stderr.isatty():
        note(line)


@contextmanager
def groups(totals: Mapping[str, int]) -> Iterator[Callable[[str, str], None]]:
    """A line on stderr for each group whose steps have all been taken; nothing on a terminal, which has bars.

    Gives the function that is told of each step: its group, and what is said when that is complete. Any thread may
    call it.
    """
    start, left, lock = monotonic(), dict(totals), Lock()

    def step(name: str, said: str) -> None:
        with lock:
            left[name] -= 1
            if not left[name]:
                hint(f"{name}: {said}, {monotonic() - start:.0f} s")

    yield step


@contextmanager
def bars() -> Iterator[Callable[[str, int, int], None]]:
    """Bars on a terminal's stderr, nothing elsewhere.

    Gives the function that sets one: its name, what is done, of how much.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    times = (TimeElapsedColumn(), TextColumn("gone,"), TimeRemainingColumn(), TextColumn("to go"))
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(), *times)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        tasks: dict[str, TaskID] = {}

        def update(name: str, done: int, every: int) -> None:
            if name not in tasks:
                tasks[name] = shown.add_task(name, total=every)
            shown.update(tasks[name], completed=done)

        yield update


def verbatim(content: str) -> None:
    """Prints text as it is."""
    sys.stdout.write(content)
