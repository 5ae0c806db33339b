"""`gen spec`: a spec from the command line, written down under its name."""

from __future__ import annotations

import json as jsons
from typing import Annotated, Any

import typer

from gen.cli import output
from gen.cli.common import Command, Home, Json, OptionError, home_of, option

_STENCIL = "`gen spec stencil --weights '[[0,1,0],[1,-4,1],[0,1,0]]' --boundary mirror`"
_AXES = "for all axes, or repeated for each"


def add_to(app: typer.Typer, panel: str) -> None:
    """Adds the command under a heading."""
    specs = typer.Typer(no_args_is_help=True)
    specs.callback(
        help="Make a spec whose content no name can hold, and write it down, so that every command knows it."
    )(_specs)
    specs.command(
        "stencil",
        cls=Command,
        epilog=f"Examples: {_STENCIL}, `gen spec stencil --weights '[1,2,1]' --boundary constant:frozen`.",
    )(stencil)
    app.add_typer(specs, name="spec", rich_help_panel=panel, epilog=f"Examples: {_STENCIL}.")


def _specs() -> None:
    """A group of commands needs a function."""


def stencil(
    weights: Annotated[
        str,
        typer.Option(metavar="JSON", help="The weights, in lists of 1 to 3 levels: '[[0,1,0],[1,-4,1],[0,1,0]]'."),
    ],
    boundary: Annotated[
        list[str] | None,
        option(
            "--boundary",
            "KIND",
            f"constant (default), nearest, reflect, mirror, wrap or frozen, {_AXES}; mirror:frozen for the two ends.",
        ),
    ] = None,
    dtype: Annotated[str, typer.Option(metavar="DTYPE", help="The dtype of the cells.")] = "f32",
    cval: Annotated[
        float, typer.Option(metavar="X", help="The value outside the array, with the boundary constant.")
    ] = 0.0,
    origin: Annotated[list[int] | None, option("--origin", "N", f"Shifts the weights, {_AXES}. Default: 0.")] = None,
    reassociate: Annotated[
        bool,
        typer.Option("--reassociate", help="Add the terms of symmetric weights in an order of fewer operations."),
    ] = False,
    word: Annotated[str, typer.Option(metavar="WORD", help="A word for the names of its kernels.")] = "weights",
    results: Home = None,
    json: Json = False,
) -> None:
    """Write down a correlation with given weights, as `gen.stencil` makes it and SciPy computes it, and print its name.

    The name serves wherever a command takes a spec. No GPU is needed.
    """
    import gen

    made = gen.stencil(
        _weights(weights),
        boundary=_axes([tuple(one.split(":")) if ":" in one else one for one in boundary or ["constant"]]),
        dtype=dtype,
        cval=cval,
        origin=_axes(origin or [0]),
        reassociate=reassociate,
        word=word,
    )
    name = gen.remember(made, home=home_of(results))
    if json:
        output.data({"spec": name, "summary": made.summary, "content": dict(made.to_json())})
        return
    output.text(name)
    output.note(f"{made.summary}\nNext: gen prove {name}, gen show {name}, gen tune {name}.")


def _weights(text: str) -> Any:
    try:
        return jsons.loads(text)
    except ValueError:
        rule = "must be numbers in lists of JSON, such as '[[0,1,0],[1,-4,1],[0,1,0]]'"
        raise OptionError("--weights", rule, repr(text)) from None


def _axes(values: list[Any]) -> Any:
    """One value for all axes, or one for each."""
    return values[0] if len(values) == 1 else values
