"""What the folder of results holds: variants of every catalogue, specs of the user's own, calibrations of devices."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.resources.abc import Traversable
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from gen.emit.folder import base_of_catalogue, holding, write_if_changed
from gen.errors import ConfigError, SpecError, StoreError, UnknownNameError
from gen.families.base import Family, Spec, Variant
from gen.families.names import Known, find_variant, parse_label
from gen.gpu.device import Device
from gen.gpu.timing import Calibration
from gen.paths import lock_of, shipped
from gen.store.winners import TUNED_FILE, read_json, read_winners

T = TypeVar("T")


def variants_of_home(families: Sequence[Family[Any]], home: Path) -> tuple[Variant, ...]:
    """The base variants of every catalogue, and the winners that stand in `home`.

    Raises StoreError if a winner is no variant of these families.
    """
    found = {made.name: made for made in base_of_catalogue(families)}
    winners = read_winners(home)
    known = known_specs(families, home) if winners else {}
    for winner in winners:
        if not winner.variant.startswith(prefixes_of(families)):
            continue  # of a family that is not at hand
        try:
            made = find_variant(families, winner.variant, known)
        except (UnknownNameError, ConfigError, SpecError) as error:
            raise StoreError(
                TUNED_FILE, f"names a winner that there is not: {error}", next_step="Tune again, or remove its line"
            ) from error
        found.setdefault(made.name, made)
    return tuple(found.values())


def known_specs(families: Sequence[Family[Any]], home: Path) -> Known:
    """The JSON of every spec that a name can mean: those of the catalogues, and those written down in `home`."""
    catalogue = {family.name_of(spec): spec.to_json() for family in families for spec in family.catalogue}
    return {**read_specs(home), **catalogue}


def find_known(home: Path, find: Callable[[Known], T]) -> T:
    """What a name means by itself, or else by the specs that are written down in `home`; `find` is given these.

    Raises what `find` raises, or StoreError for content that a family does not expect.
    """
    try:
        return find({})
    except UnknownNameError:
        known = read_specs(home)
        if not known:
            raise
    try:
        return find(known)
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        rule, next_step = "holds a spec that cannot be read", "Run gen generate to write it anew"
        raise StoreError(str(home / SPECS_FILE), rule, error, next_step=next_step) from error


def prefixes_of(families: Sequence[Family[Any]]) -> tuple[str, ...]:
    """How the names of these families' kernels begin."""
    return tuple(f"{family.name}_" for family in families)


def remember(home: Path, family: Family[Any], spec: Spec) -> None:
    """Writes a spec down in `home` if its name does not say all of it; other runs may write theirs at the same time."""
    with holding(lock_of(home)):
        write_down(home, family, spec)


def write_down(home: Path, family: Family[Any], spec: Spec) -> None:
    """The same, for one who is alone there: beside all that is written down."""
    if not _says_all(family, spec.label, spec.to_json()):
        write_if_changed(home / SPECS_FILE, text_of_specs({**read_specs(home), family.name_of(spec): spec.to_json()}))


def _says_all(family: Family[Any], label: str, content: Mapping[str, Any]) -> bool:
    with suppress(UnknownNameError, SpecError):
        return dict(parse_label(family, label, {}).to_json()) == dict(content)
    return False


SPECS_FILE = "specs.json"
SPECS_SCHEMA = 1


def text_of_specs(specs: Known) -> str:
    """The file's text: specs by name, a line each."""
    lines = [f"    {json.dumps(name)}: {json.dumps(specs[name], sort_keys=True)}" for name in sorted(specs)]
    return f'{{\n  "schema": {SPECS_SCHEMA},\n  "specs": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def read_specs(home: Path) -> Mapping[str, Mapping[str, Any]]:
    """The specs that were written down in `home`, by name; none if it has no such file.

    Raises StoreError if the file is not what gen writes.
    """
    place = home / SPECS_FILE
    again = "Mend it, or move it away: gen.remember writes specs down anew"
    found: dict[str, Any] = read_json(place, SPECS_SCHEMA, "specs", dict, again) if place.is_file() else {}
    if not all(isinstance(spec, dict) for spec in found.values()):
        raise StoreError(str(place), "must have an object for each spec", next_step=again)
    return found


CALIBRATION_FILE = "calibration.json"
CALIBRATION_SCHEMA = 1


def stored_calibration(home: Path, device: Device) -> Calibration | None:
    """The calibration of this device under this driver that `home` holds, or that came with gen; None without one."""
    for found in stored_calibrations(home):
        if (found.device, found.driver) == (device.name, device.driver):
            return found
    return None


def store_calibration(home: Path, calibration: Calibration) -> Path:
    """Writes a calibration into `home`, over an earlier one of its device."""
    with holding(lock_of(home)):
        others = [found for found in read_calibrations(home) if found.device != calibration.device]
        ordered = sorted((*others, calibration), key=lambda found: found.device)
        content = {"schema": CALIBRATION_SCHEMA, "calibrations": [asdict(found) for found in ordered]}
        write_if_changed(home / CALIBRATION_FILE, json.dumps(content, indent=1) + "\n")
    return home / CALIBRATION_FILE


def stored_calibrations(home: Path) -> list[Calibration]:
    """All that count, one a device: those that came with gen, over them those in `home`.

    Raises StoreError if a file is not what gen writes.
    """
    table = shipped(CALIBRATION_FILE)
    came = [] if table is None else _calibrations(table)
    return list({found.device: found for found in (*came, *read_calibrations(home))}.values())


def read_calibrations(home: Path) -> list[Calibration]:
    """Those in `home`, one a device. Raises StoreError if the file is not what gen writes."""
    return _calibrations(home / CALIBRATION_FILE) if (home / CALIBRATION_FILE).is_file() else []


def _calibrations(place: Traversable) -> list[Calibration]:
    again = "Remove it, and run gen calibrate"
    entries = read_json(place, CALIBRATION_SCHEMA, "calibrations", list, again)
    try:
        return [_calibration(entry) for entry in entries]
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(str(place), "is not what gen writes", error, next_step=again) from error


def _calibration(entry: Mapping[str, Any]) -> Calibration:
    """One that was stored. Raises ValueError for figures that no device has."""
    found = Calibration(**entry)
    figures = {**entry}
    texts = (figures.pop("device"), figures.pop("driver"))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(texts)
    if not all(type(figure) is float and 0 < figure < inf for figure in figures.values()):
        raise ValueError(figures)
    return found
