"""`gen lock`: the choice of kernels stays as it is."""

from __future__ import annotations

from typing import Annotated

import typer

from gen.cli import output
from gen.cli.common import Home, Json, OptionError, families_of, home_of, option


def lock(
    ctx: typer.Context,
    off: Annotated[bool, typer.Option("--off", help="Unlock the folder of results.")] = False,
    scheduler: Annotated[
        str | None,
        option(
            "--scheduler",
            "ADDRESS",
            "Bring the winners to the workers of a Dask cluster too, tcp://HOST:8786, and lock them there.",
        ),
    ] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Lock the choice of kernels: from now on nothing changes the winners in the folder of results.

    The winners that came with gen are written into tuned.json beside those in the folder, and the digest of that file
    into tuned.lock. While that lies there, gen.load chooses by these winners alone, whichever gen is installed; gen
    tune and gen merge refuse to write there, a call that would tune raises an error, as in gen.frozen(), and a
    tuned.json that was changed is refused.

    Examples: `gen lock`, `gen lock --scheduler tcp://10.0.0.1:8786`, `gen lock --off`.
    """
    from gen.errors import GenError
    from gen.store.folder import read_specs
    from gen.store.winners import is_locked
    from gen.tune import locked

    home = home_of(results)
    if off and scheduler is not None:
        raise OptionError(
            "--off and --scheduler", "do not go together: each worker's folder is unlocked on its machine"
        )
    if results is not None and not home.is_dir():  # a misspelt one would be made, and locked in vain
        next_step = "mkdir makes one; gen tune and gen merge do, too"
        raise OptionError("--home", "must name a folder that there is", home, next_step=next_step)
    if off:
        was = locked.unlock(home)
        if json:
            output.data({"folder": str(home), "locked": False})
        else:
            output.text(f"{home} is unlocked." if was else f"{home} was not locked.")
        return
    was = is_locked(home)
    winners = locked.lock(home, families_of(ctx))
    places: dict[str, str] = {}
    if scheduler is not None:
        from gen.tune.cluster import on_each_worker

        try:
            places = dict(on_each_worker(scheduler, locked.accept, winners, read_specs(home)))
        except GenError:
            if not was:  # a command that has failed leaves the folder as it was
                locked.unlock(home)
            raise
    if json:
        output.data({"folder": str(home), "locked": True, "winners": len(winners), "workers": places})
        return
    output.text(f"{home} is locked with {len(winners)} winner{'' if len(winners) == 1 else 's'}.")
    for worker, place in sorted(places.items()):
        output.text(f"{worker}: {place} is locked with them.")
