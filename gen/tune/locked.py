"""The choice of kernels is locked: in a folder of results, and in those of a cluster's workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gen.emit.folder import holding, write_if_changed
from gen.errors import StoreError
from gen.families import families
from gen.families.base import Family
from gen.paths import lock_of, output_home
from gen.store.folder import SPECS_FILE, read_specs, text_of_specs
from gen.store.winners import (
    LOCK_FILE,
    TUNED_FILE,
    UNLOCK,
    Winner,
    all_winners,
    check_unlocked,
    is_locked,
    merged,
    read_winners,
    text_of_winners,
    write_lock,
)
from gen.tune.several_problems import keep

if TYPE_CHECKING:
    from pathlib import Path

ASIDE = "before-lock"  # a folder of the winners that a worker had, beside those that it was given


def lock(home: Path, known: Sequence[Family[Any]]) -> tuple[Winner, ...]:
    """Locks the winners that count in `home`, and gives them. Those that came with gen are written there first.

    So another gen, a first call or a tuning run changes nothing: all of these are refused, or read nothing else.

    Raises StoreError if a file is not what gen writes, or was changed since it was locked.
    """
    if not is_locked(home):
        winners = all_winners(home)
        keep(home, known, lambda own: merged(own, winners))
        with holding(lock_of(home)):
            write_lock(home)
    return read_winners(home)


def unlock(home: Path) -> bool:
    """Lets the winners in `home` be changed again; whether they were locked."""
    with holding(lock_of(home)):
        was = is_locked(home)
        (home / LOCK_FILE).unlink(missing_ok=True)
    return was


def accept(winners: Sequence[Winner], specs: Mapping[str, Any]) -> str:
    """Makes the winners those of this process's folder of results, which has no other then, and locks it.

    Runs on the workers of a cluster. The specs that winners are for come too. Winners that the folder had before go to
    the folder `ASIDE` in it, which `gen merge` takes. Gives the folder.

    Raises StoreError if the folder is locked with other winners, or has another spec under one of the names.
    """
    home, known = output_home(), families()
    try:
        _take(winners, specs, home, known)
    except StoreError:
        if not is_locked(home):  # else it was, or another worker that has this folder was quicker
            raise
    found = read_winners(home)
    own, wanted = ({winner.key: winner.variant for winner in some} for some in (found, winners))
    for winner in (*winners, *found):
        here, there = (some.get(winner.key, "nothing") for some in (own, wanted))
        if here != there:
            rule = f"is locked with {here} for {winner.spec}, {winner.words}, on {winner.device}"
            raise StoreError(str(home), rule, there, next_step=UNLOCK)
    return str(home)


def _take(winners: Sequence[Winner], specs: Mapping[str, Any], home: Path, known: Sequence[Family[Any]]) -> None:
    check_unlocked(home)
    with holding(lock_of(home)):
        old = read_specs(home)
        for name in sorted(old.keys() & specs.keys()):
            if old[name] != specs[name]:
                raise StoreError(str(home / SPECS_FILE), "holds another spec under a name", name)
        if specs:
            write_if_changed(home / SPECS_FILE, text_of_specs({**old, **specs}))

    def exactly(before: Iterable[Winner]) -> tuple[Winner, ...]:
        lost = [winner for winner in before if winner not in winners]
        if lost:
            aside = home / ASIDE
            aside.mkdir(exist_ok=True)
            write_if_changed(aside / TUNED_FILE, text_of_winners(merged(read_winners(aside), lost)))
        return tuple(winners)

    keep(home, known, exactly)
    with holding(lock_of(home)):
        write_lock(home)
