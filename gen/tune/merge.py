"""Several folders of results become one: what the jobs of a tuning run found, or what several people did."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.emit.folder import holding, write_if_changed
from gen.errors import StoreError
from gen.families.base import Family
from gen.paths import lock_of
from gen.store.folder import SPECS_FILE, known_specs, read_calibrations, read_specs, store_calibration, text_of_specs
from gen.store.trials import FILE as TRIALS_FILE
from gen.store.trials import Trials
from gen.store.winners import Winner, check_unlocked, read_winners
from gen.tune.several_problems import keep


@dataclass(frozen=True)
class Merged:
    """How many winners, trials and specs came from other folders."""

    winners: int
    trials: int
    specs: int


def merge(folders: Sequence[Path], families: Sequence[Family[Any]], home: Path) -> Merged:
    """Takes into `home` the winners, trials, specs and calibrations of other folders of results.

    Of two winners for the same device, spec and sizes the later stays, of two of one day the faster; so the order of
    the folders does not matter. A trial that `home` has stays, and so does the calibration of a device.

    Raises:
        StoreError: a folder is none of results, or `home` is locked, or it or a folder holds what gen does not write,
            or a spec that has the name of another.
    """
    check_unlocked(home)
    for folder in folders:
        if not folder.is_dir():
            raise StoreError(str(folder), "must be a folder of results", next_step="gen tune --home DIR makes one")
    winners = [winner for folder in folders for winner in read_winners(folder)]
    known = known_specs(families, home)
    specs: dict[str, Any] = {}
    for folder in folders:
        for name, content in read_specs(folder).items():
            if {**known, **specs}.get(name, content) != content:
                raise StoreError(str(folder / SPECS_FILE), f"holds another spec than {home} under a name", name)
            specs[name] = content
    calibrations = [found for folder in folders for found in read_calibrations(folder)]
    with holding(lock_of(home)):
        old = read_specs(home)
        new = {name: content for name, content in specs.items() if name not in old}
        if new:
            write_if_changed(home / SPECS_FILE, text_of_specs({**old, **new}))
    has = {one.device for one in read_calibrations(home)}
    for calibration in calibrations:
        if calibration.device not in has:
            store_calibration(home, calibration)
            has.add(calibration.device)
    before = read_winners(home)
    keep(home, families, lambda now: _best((*now, *winners)))
    taken = [winner for winner in read_winners(home) if winner not in before]
    return Merged(len(taken), _merge_trials(folders, home), len(new))


def _merge_trials(folders: Iterable[Path], home: Path) -> int:
    """How many trials came from the folders that hold any."""
    taken, store = 0, Trials(home)
    try:
        for folder in folders:
            if not (folder / TRIALS_FILE).is_file():
                continue
            other = Trials(folder)
            try:
                taken += store.add(other.rows())
            finally:
                other.close()
    finally:
        store.close()
    return taken


def _best(winners: Iterable[Winner]) -> tuple[Winner, ...]:
    """One for each device, spec and sizes: the latest, of one day the fastest."""
    found: dict[object, Winner] = {}
    for winner in sorted(winners, key=_preference):
        found.setdefault(winner.key, winner)
    return tuple(found.values())


def _preference(winner: Winner) -> tuple[int, float, str]:
    date = str(winner.evidence.get("date", "")).replace("-", "")
    time = winner.evidence.get("median_us")
    us = float(time) if isinstance(time, int | float) else float("inf")
    return -int(date) if date.isdigit() else 0, us, winner.variant
