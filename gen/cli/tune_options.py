"""What `gen tune` is asked for: options read, and held against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gen.cli.common import OptionError

if TYPE_CHECKING:
    from gen.tune.tuner import Options

_TIME = re.compile(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)([smh]?)")


def read_seconds(text: str) -> float:
    """The seconds that a text spells: `60s`, `5m`, `1h`, `12.5`."""
    found = _TIME.fullmatch(text.strip().lower())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not seconds > 0:
        raise OptionError("--budget", "must be a positive time such as 60s, 5m or 1h", text)
    return seconds


def options_of(search: str, prune: list[str], stop_at: float | None) -> Options:
    """How a problem is searched. Raises OptionError or UnknownNameError for what there is not."""
    from gen.tune.prune import read_rules
    from gen.tune.search import find_search
    from gen.tune.tuner import Options

    if stop_at is not None and not 0 < stop_at <= 1:
        raise OptionError("--stop-at", "must be a fraction above 0, up to 1", stop_at)
    return Options(find_search(search), read_rules(prune), stop_at)


def check_together(what: Mapping[str, bool], which: Mapping[str, Any], how: Mapping[str, Any]) -> None:
    """Raises OptionError for options that contradict each other; each by its name, with what was given."""
    asked = [name for name, value in what.items() if value]
    if len(asked) > 1:
        raise OptionError(" and ".join(asked), "do not go together")
    if which["--param"] and not which["--shape"]:
        raise OptionError("--param", "must come with --shape: a shape class has its own runtime parameters")
    if which["--shape"] and which["--class"]:
        raise OptionError("--shape and --class", "do not go together")
    if which["--shape"] and what["--regret"]:
        raise OptionError("--shape and --regret", "do not go together: a single shape has no other sizes")
    if which["--alignment"] and what["--verify"] and not which["--shape"]:
        rule = "do not go together: a winner of a class is timed at the alignment that it is for"
        raise OptionError("--alignment and --verify", rule)
    if which["--compiler"] and what["--frozen"]:
        raise OptionError("--compiler and --frozen", "do not go together: nothing is compiled")
    idle = [name for name, value in how.items() if value is not None]
    if idle and (what["--verify"] or what["--frozen"]):
        raise OptionError(f"{asked[0]} and {idle[0]}", "do not go together: nothing is searched")


def needs(given: list[str]) -> tuple[str, str]:
    """Subject and rule where options were given that only a GPU can honour."""
    return " and ".join(given), "needs a GPU" if len(given) == 1 else "need a GPU"
