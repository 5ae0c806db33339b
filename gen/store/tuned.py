"""The winners of tuning runs: `tuned.json`, one winner a line.

The file: `{"schema": 1, "winners": [{"device", "spec", "shape", "variant", ...}]}`; what else stands in a winner is
its evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gen.errors import StoreError
from gen.paths import shipped_winners

FILE = "tuned.json"
SCHEMA = 1
_KEYS = ("device", "spec", "shape", "variant")


@dataclass(frozen=True)
class Winner:
    """The variant chosen for a device, a spec and a shape class, with the evidence it was chosen on."""

    device: str
    spec: str
    shape: str
    variant: str
    evidence: Mapping[str, Any]


def read_winners(home: Path) -> tuple[Winner, ...]:
    """The winners in `home`; where it has no file of them, those that came with gen.

    Raises StoreError if the file is not what gen writes.
    """
    own = home / FILE
    place: Traversable | None = own if own.is_file() else shipped_winners()
    return () if place is None else _parse(place)


def _parse(place: Traversable) -> tuple[Winner, ...]:
    again = "Tune again, or restore the file"
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(str(place), "must be JSON", error, next_step=again) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise StoreError(str(place), f"must have schema {SCHEMA}", repr(found), next_step=again)
    winners = content.get("winners")
    if not isinstance(winners, list):
        raise StoreError(str(place), "must have a list of winners", type(winners).__name__, next_step=again)
    return tuple(_winner(place, number, entry) for number, entry in enumerate(winners))


def _winner(place: Traversable, number: int, entry: object) -> Winner:
    subject, again = f"{place}: winner {number}", "Tune again, or restore the file"
    if not isinstance(entry, dict):
        raise StoreError(subject, "must be an object", repr(entry), next_step=again)
    for key in _KEYS:
        if not isinstance(entry.get(key), str):
            raise StoreError(subject, f"must have a text {key!r}", repr(entry.get(key)), next_step=again)
    evidence = {key: value for key, value in entry.items() if key not in _KEYS}
    return Winner(entry["device"], entry["spec"], entry["shape"], entry["variant"], evidence)


def text_of_winners(winners: Iterable[Winner]) -> str:
    """The file's text: sorted, one winner a line."""
    entries = [
        {"device": w.device, "spec": w.spec, "shape": w.shape, "variant": w.variant, **w.evidence}
        for w in sorted(winners, key=lambda w: (w.spec, w.shape, w.device))
    ]
    if not entries:
        return json.dumps({"schema": SCHEMA, "winners": []}) + "\n"
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    return f'{{\n  "schema": {SCHEMA},\n  "winners": [\n{lines}\n  ]\n}}\n'


def merged(old: Iterable[Winner], new: Iterable[Winner]) -> tuple[Winner, ...]:
    """All winners, a new one in the place of the old one of its device, spec and shape class."""
    found = {(w.device, w.spec, w.shape): w for w in (*old, *new)}
    return tuple(found.values())
