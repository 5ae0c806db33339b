"""All commands, the options before them, and what becomes of an error."""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import getdoc
from multiprocessing import active_children
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import gen
from gen.cli import new, spec
from gen.cli.catalogue import list_families, render
from gen.cli.common import Command, Invocation, status_of
from gen.cli.compare import compare
from gen.cli.doctor import doctor
from gen.cli.explain import explain
from gen.cli.export import export
from gen.cli.generate import generate
from gen.cli.gpu import calibrate
from gen.cli.ladder import ladder
from gen.cli.lock import lock
from gen.cli.prove import prove
from gen.cli.report import report
from gen.cli.resources import resources
from gen.cli.show import show
from gen.cli.trials import trials
from gen.cli.tune import merge, tune
from gen.errors import GenError

_HELP = """Writes CUDA kernels from templates, proves that they compute what NumPy computes, and finds the fastest.

Only measuring needs a GPU. Begin with `gen doctor` and `gen list`; read a kernel with `gen render reduceShfl`.
"""
_STATUS = (
    "Exit status: 0 fine; 1 something was found wrong, or a tool is missing; 2 bad usage: an unknown name, an illegal "
    "config, a bad option; 130 stopped by Ctrl-C."
)
_STOPPED = 130  # by Ctrl-C
_BROKEN_PIPE = 141  # what a shell reports of a program that was ended by SIGPIPE


@contextmanager
def errors_told() -> Iterator[None]:
    """Ends whatever a user can cause in one message and an exit status, never in a traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here, where a reader that went away can still be dealt with
    except GenError as error:
        _complain(str(error))
        raise typer.Exit(status_of(error)) from None
    except KeyboardInterrupt as stopped:
        for process in active_children():  # which would finish what they are at
            process.kill()
        typer.echo(str(stopped) or "Stopped.", err=True)
        raise typer.Exit(_STOPPED) from None
    except OSError as error:
        _forget_output()
        if error.errno == errno.EPIPE:
            raise typer.Exit(_BROKEN_PIPE) from None
        reason = error.strerror or str(error)
        if error.filename:
            _complain(f"{error.filename} cannot be used: {reason}")
        elif error.errno == errno.ENOSPC:
            _complain(f"The output cannot be written: {reason}. Make room, or send it elsewhere")
        else:
            _complain(f"The system refuses: {reason}")
        raise typer.Exit(1) from None


class Commands(TyperGroup):
    """All commands; an error of the one that is run is told in a message."""

    def get_params(self, ctx: Any) -> Any:
        """The options before a command, without the types that Typer adds."""
        return _without_types(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name, its parameters likewise."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            for one in (found, *getattr(found, "commands", {}).values()):
                _without_types(one.get_params(ctx))
        return found

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Takes `--help-all` before a command for `--help`."""
        return super().parse_args(ctx, ["--help"] if args[:1] == ["--help-all"] else args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command that was named."""
        with errors_told():
            return super().invoke(ctx)


def _without_types(params: Any) -> Any:
    """Flags take no value, and an argument's metavar says what it is: without `<bool>` and `<str>`."""
    for one in params:
        if getattr(one, "is_bool_flag", False) and one.metavar is None:
            one.metavar = ""
        if one.param_type_name == "argument" and hasattr(one, "display_type_rich"):
            one.display_type_rich = lambda ctx: None  # noqa: ARG005  as Typer calls it
    return params


def _forget_output() -> None:
    """Drops what stdout cannot take: Python would try again when it ends, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    typer.echo(f"error: {message}", err=True)


app = typer.Typer(
    cls=Commands,
    help=_HELP,
    epilog=_STATUS,
    add_completion=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gen {gen.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    family: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE:NAME", help="A family from outside gen, beside the built-in ones; repeatable."),
    ] = None,
    version: Annotated[  # noqa: ARG001  read by its callback
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print gen's version and stop.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Log what is compiled and built, and how long it takes, to stderr.")
    ] = False,
) -> None:
    logging.basicConfig(format="%(levelname)s: %(message)s")
    for level in (logging.INFO, logging.WARNING):
        logging.addLevelName(level, logging.getLevelName(level).lower())
    logging.getLogger("gen").setLevel(logging.INFO if verbose else logging.NOTSET)
    ctx.obj = Invocation(tuple(family or ()))
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _add(panel: str, *commands: Callable[..., None]) -> None:
    """Adds commands under a heading. The end of a docstring, its examples, stands behind the options."""
    for command in commands:
        text, _, examples = (getdoc(command) or "").rpartition("\n\nExamples: ")
        name = "list" if command is list_families else command.__name__
        epilog = f"Examples: {examples}".replace("\n", " ")
        app.command(name, cls=Command, help=text, epilog=epilog, rich_help_panel=panel)(command)


_YOURS = "Programs and kernels of your own"
_add("Look at kernels, and prove them", list_families, render, prove, explain, resources, ladder, generate)
_add("Find the fastest on a GPU", tune, compare, calibrate)
_add("See and keep what was found", show, trials, report, merge, lock)
_add(_YOURS, export)
spec.add_to(app, _YOURS)
new.add_to(app, _YOURS)
_add("This machine", doctor)
