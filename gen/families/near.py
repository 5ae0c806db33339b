"""Names near one that finds nothing, and what is said of a label that no spec has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches
from heapq import nlargest

from gen.dtypes import C64, C128, DTYPES
from gen.errors import SpecError, UnknownNameError

OWN_SPECS = "In Python, gen.remember(spec) writes one of your own down and says its name"
"""What to do next where a name finds no spec."""
_LEAST = 0.5  # likeness of a name that may be meant
_BESIDE_BEST = 0.75  # of the likeness of the likest
_TYPES = (*DTYPES, C64.name, C128.name)


def near(name: str, choices: Iterable[str]) -> list[str]:
    """The names that may be meant, the likest first, three at most; where one differs in its case alone, that one."""
    likeness = {one: SequenceMatcher(None, one.lower(), name.lower()).ratio() for one in choices}
    best = nlargest(3, likeness, key=lambda one: likeness[one])
    least = max((likeness[one] for one in best), default=0.0)
    least = 1.0 if least == 1.0 else max(_LEAST, _BESIDE_BEST * least)
    return [one for one in best if likeness[one] >= least]


def did_you_mean(names: Sequence[str]) -> str:
    """What to do next, where there are names that may be meant."""
    return "Did you mean " + " or ".join(names) + "?" if names else ""


def misspelled(
    family: str, label: str, spelling: str, known: Iterable[str], spell: Callable[[str], object]
) -> UnknownNameError:
    """The error for a label that no spec of a family has.

    Args:
        family: its name.
        label: what no spec has.
        spelling: labels, and what they are made of, in words.
        known: labels of specs that there are.
        spell: gives the spec of a label that says all of it, else None.
    """
    meant = _respelled(label, spell) or near(label, known)
    return UnknownNameError(
        "The spec",
        f"must be {family}_LABEL, with a LABEL such as {spelling}",
        repr(f"{family}_{label}"),
        next_step=did_you_mean([f"{family}_{one}" for one in meant]) or OWN_SPECS,
    )


def _respelled(label: str, spell: Callable[[str], object]) -> list[str]:
    """The label in small letters, or with the likest type in the place of one of its words: those that a spec has."""
    words = label.lower().split("_")
    found = {label.lower(): None}
    for place, word in enumerate(words):
        for name in get_close_matches(word, _TYPES, n=1, cutoff=_LEAST):
            found["_".join([*words[:place], name, *words[place + 1 :]])] = None
    return [one for one in found if _is_spelled(one, spell)]


def _is_spelled(label: str, spell: Callable[[str], object]) -> bool:
    try:
        return spell(label) is not None
    except SpecError:  # words that do not go together
        return False
