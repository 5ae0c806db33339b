"""What belongs into the folder of results: variants of every catalogue, specs by name, and calibrations of devices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from gen.emit.folder import alone, base_of_catalogue, write_if_changed
from gen.errors import ConfigError, SpecError, StoreError, UnknownNameError
from gen.families.base import Family, Spec, Variant
from gen.families.names import Known, find_variant, parse_label
from gen.gpu.device import Device
from gen.gpu.timing import Calibration
from gen.paths import lock_of
from gen.store import tuned
from gen.store.tuned import read_json


def variants_of_home(families: Sequence[Family[Any]], home: Path) -> tuple[Variant, ...]:
    """The base variants of every catalogue, and the winners that stand in `home`.

    Raises StoreError if a winner is no variant of these families.
    """
    found = {made.name: made for made in base_of_catalogue(families)}
    winners = tuned.read_winners(home)
    known = known_specs(families, home) if winners else {}
    for winner in winners:
        if not winner.variant.startswith(prefixes_of(families)):
            continue  # of a family that is not at hand
        try:
            made = find_variant(families, winner.variant, known)
        except (UnknownNameError, ConfigError, SpecError) as error:
            raise StoreError(
                tuned.FILE, f"names a winner that there is not: {error}", next_step="Tune again, or remove its line"
            ) from error
        found.setdefault(made.name, made)
    return tuple(found.values())


def known_specs(families: Sequence[Family[Any]], home: Path) -> Known:
    """The JSON of every spec that a name can mean: those of the catalogues, and those written down in `home`."""
    catalogue = {family.name_of(spec): spec.to_json() for family in families for spec in family.catalogue}
    return {**read_specs(home), **catalogue}


def prefixes_of(families: Sequence[Family[Any]]) -> tuple[str, ...]:
    """How the names of these families' kernels begin."""
    return tuple(f"{family.name}_" for family in families)


def other_files(families: Sequence[Family[Any]], home: Path) -> Mapping[str, str]:
    """The text files beside the kernels, by name: the specs of every catalogue, and those that were written down."""
    return {SPECS_FILE: text_of_specs(families, _written_down(families, home))}


def remember(home: Path, families: Sequence[Family[Any]], family: Family[Any], spec: Spec) -> None:
    """Writes a spec down in `home` if its name does not say all of it; other runs may write theirs at the same time."""
    with alone(lock_of(home)):
        write_down(home, families, family, spec)


def write_down(home: Path, families: Sequence[Family[Any]], family: Family[Any], spec: Spec) -> None:
    """The same, for one who is alone there: beside all that is written down."""
    if _says_all(family, spec.label, spec.to_json()):
        return
    others = {**read_specs(home), family.name_of(spec): spec.to_json()}
    write_if_changed(home / SPECS_FILE, text_of_specs(families, others))


def _written_down(families: Sequence[Family[Any]], home: Path) -> Known:
    """The specs in `home` whose names do not say all of them: nobody could write those anew."""
    return {name: content for name, content in read_specs(home).items() if not _is_said(families, name, content)}


def _is_said(families: Sequence[Family[Any]], name: str, content: Mapping[str, Any]) -> bool:
    """Whether a name says all of a spec; not of families that are not at hand."""
    for family in families:
        if name.startswith(f"{family.name}_"):
            return _says_all(family, name.removeprefix(f"{family.name}_"), content)
    return False


def _says_all(family: Family[Any], label: str, content: Mapping[str, Any]) -> bool:
    with suppress(UnknownNameError, SpecError):
        return dict(parse_label(family, label, {}).to_json()) == dict(content)
    return False


SPECS_FILE = "specs.json"
SPECS_SCHEMA = 1


def text_of_specs(families: Sequence[Family[Any]], others: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The file's text: every spec of every catalogue, and `others` by name, a line each."""
    named: dict[str, Mapping[str, Any]] = dict(others or {})
    named |= {family.name_of(spec): spec.to_json() for family in families for spec in family.catalogue}
    lines = [f"    {json.dumps(name)}: {json.dumps(named[name], sort_keys=True)}" for name in sorted(named)]
    return f'{{\n  "schema": {SPECS_SCHEMA},\n  "specs": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def read_specs(home: Path) -> Mapping[str, Mapping[str, Any]]:
    """The specs in `home` by name; none if it has no such file.

    Raises StoreError if the file is not what gen writes.
    """
    place = home / SPECS_FILE
    again = "Mend it, or move it away and run gen generate, which writes that of the catalogue anew"
    found: dict[str, Any] = read_json(place, SPECS_SCHEMA, "specs", dict, again) if place.is_file() else {}
    if not all(isinstance(spec, dict) for spec in found.values()):
        raise StoreError(str(place), "must have an object for each spec", next_step=again)
    return found


CALIBRATION_FILE = "calibration.json"
CALIBRATION_SCHEMA = 1


def stored_calibration(home: Path, device: Device) -> Calibration | None:
    """The calibration of this device under this driver that `home` holds; None without one."""
    for found in _calibrations(home):
        if (found.device, found.driver) == (device.name, device.driver):
            return found
    return None


def store_calibration(home: Path, calibration: Calibration) -> Path:
    """Writes a calibration into `home`, over an earlier one of its device."""
    with alone(lock_of(home)):
        others = [found for found in _calibrations(home) if found.device != calibration.device]
        ordered = sorted((*others, calibration), key=lambda found: found.device)
        content = {"schema": CALIBRATION_SCHEMA, "calibrations": [asdict(found) for found in ordered]}
        write_if_changed(home / CALIBRATION_FILE, json.dumps(content, indent=1) + "\n")
    return home / CALIBRATION_FILE


def _calibrations(home: Path) -> list[Calibration]:
    place, again = home / CALIBRATION_FILE, "Remove it, and run gen calibrate"
    if not place.is_file():
        return []
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
