"""The winners of tuning runs: `tuned.json`, one winner a line.

The file: `{"schema": 1, "winners": [{"device", "spec", "shape", "within", "variant", ...}]}`. `within` bounds the part
of the shape class that a winner is for, `{"rows": [1, 64]}`; without it, a winner is for all sizes of the class that no
other is for. What else stands in a winner is its evidence.

Beside it `tuned.lock` may lie, `{"schema": 1, "lock": {"sha256"}}`, the digest of the file: then the winners in that
folder are all that count there, and nothing changes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from gen.emit.folder import write_if_changed
from gen.errors import StoreError
from gen.families.base import html_table
from gen.families.regions import WHOLE, Region
from gen.paths import cache_home, shipped

TUNED_FILE = "tuned.json"
SCHEMA = 1
LOCK_FILE = "tuned.lock"
UNLOCK = "gen lock --off unlocks it"
_KEYS = ("device", "spec", "shape", "variant")
_MEANINGS = {  # of evidence whose name in the file does not say it
    "median_us": "median, us", "interval_us": "95 % interval of the median, us",
    "noise": "half of the 95 % interval of its times over themselves", "hot_us": "in a graph of many launches, us",
    "settled": "settled that none is faster", "sm_mhz": "lowest and highest clock, MHz",
    "throttled": "throttled by", "beside": "others on the GPU", "of_limit": "of the limit", "floor_us": "the limit, us",
    "limit": "limited by the bandwidth of a", "gb_per_s": "GB/s", "over_base": "time over that of base",
    "extents": "measured at", "protocol": "caches", "registers": "registers a thread", "text": "digest of its text",
    "template": "digest of its template", "algorithms": "algorithms that there were", "trials": "trials by outcome",
}  # fmt: skip
_WITHIN = "within"


@dataclass(frozen=True)
class Winner:
    """The variant chosen for a device, a spec and a shape class or a part of it, with the evidence it was chosen on."""

    device: str
    spec: str
    shape: str
    variant: str
    evidence: Mapping[str, Any]
    region: Region = WHOLE

    @property
    def words(self) -> str:
        """What it is for: `more than 2^20 elements, aligned to 4 bytes`."""
        return ", ".join(part for part in (self.shape, self.region.words) if part)

    @property
    def told(self) -> tuple[tuple[str, str], ...]:
        """The evidence for people: what each figure is, and its value in words."""
        return tuple((_MEANINGS.get(name, name), _in_words(value)) for name, value in self.evidence.items())

    def _repr_html_(self) -> str:
        return html_table(self.variant, (("for", f"{self.spec}, {self.words}"), ("on", self.device), *self.told))

    @property
    def key(self) -> tuple[str, str, str, Region]:
        """Spec, shape class, device and region: there is one winner for each."""
        return self.spec, self.shape, self.device, self.region


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "not measured" if value is None else "yes" if value is True else "no" if value is False else str(value)


def all_winners(home: Path) -> tuple[Winner, ...]:
    """All that count: the winners that came with gen, over them those in `home`, over these those of first calls.

    Where `home` is locked, its own alone. Raises StoreError if a file is not what gen writes.
    """
    if is_locked(home):
        return read_winners(home)
    table = shipped(TUNED_FILE)
    is_own = isinstance(table, Path) and table.resolve() == (home / TUNED_FILE).resolve()
    came = () if table is None or is_own else _parse(table)
    return merged((*came, *read_winners(home)), found_at_first_calls(home))


def read_winners(home: Path) -> tuple[Winner, ...]:
    """Those in `home`, of `gen tune`. Raises StoreError if the file is not what gen writes, or was locked."""
    if is_locked(home):
        content = read_json(home / LOCK_FILE, SCHEMA, "lock", dict, UNLOCK)
        if content.get("sha256") != _digest(home):
            raise StoreError(
                str(home / TUNED_FILE), f"must be as it was when {LOCK_FILE} was written", next_step=UNLOCK
            )
    return _parse(home / TUNED_FILE) if (home / TUNED_FILE).is_file() else ()


def is_locked(home: Path) -> bool:
    """Whether nothing may change the winners in `home`."""
    return (home / LOCK_FILE).exists()


def check_unlocked(home: Path) -> None:
    """Raises StoreError where nothing may change the winners in `home`."""
    if is_locked(home):
        raise StoreError(
            str(home), f"is locked by {LOCK_FILE}: its winners stay as they are",
            next_step=f"{UNLOCK}; or name another folder with --home",
        )  # fmt: skip


def write_lock(home: Path) -> None:
    """Locks the winners in `home`, for one who is alone there."""
    content = {"schema": SCHEMA, "lock": {"sha256": _digest(home)}}
    write_if_changed(home / LOCK_FILE, json.dumps(content) + "\n")


def _digest(home: Path) -> str:
    return hashlib.sha256((home / TUNED_FILE).read_bytes() if (home / TUNED_FILE).is_file() else b"").hexdigest()


def first_calls_of(home: Path) -> Path:
    """The file of winners that were found at first calls, each for one problem. It lies with what can be made again."""
    return cache_home(home) / "first_calls.json"


def found_at_first_calls(home: Path) -> tuple[Winner, ...]:
    """Those that were found at first calls. Raises StoreError if the file is not what gen writes."""
    place = first_calls_of(home)
    return _parse(place) if place.is_file() else ()


def forget_first_calls(home: Path, winners: Iterable[Winner]) -> None:
    """Removes those of first calls for which `gen tune` has winners, for one who is alone there: it looks further."""
    found, keys = found_at_first_calls(home), {winner.key for winner in winners}
    left = [winner for winner in found if winner.key not in keys]
    if len(left) < len(found):
        write_if_changed(first_calls_of(home), text_of_winners(left))


def _parse(place: Traversable) -> tuple[Winner, ...]:
    winners = read_json(place, SCHEMA, "winners", list, "Tune again, or restore the file")
    return tuple(_winner(place, number, entry) for number, entry in enumerate(winners))


def read_json(place: Traversable, schema: int, key: str, kind: type, next_step: str) -> Any:
    """What a JSON file of this schema holds under a key.

    Args:
        place: the file.
        schema: that it must have.
        key: of its content.
        kind: of that: `list` or `dict`.
        next_step: what a user may do about another file.

    Raises:
        StoreError: it is another file.
    """
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(str(place), "must be JSON", error, next_step=next_step) from error
    if not isinstance(content, dict) or content.get("schema") != schema:
        found = content.get("schema") if isinstance(content, dict) else type(content).__name__
        raise StoreError(str(place), f"must have schema {schema}", repr(found), next_step=next_step)
    if not isinstance(content.get(key), kind):
        got = type(content.get(key)).__name__
        raise StoreError(str(place), f"must have a {kind.__name__} of {key}", got, next_step=next_step)
    return content[key]


def _winner(place: Traversable, number: int, entry: object) -> Winner:
    subject, again = f"{place}: winner {number}", "Tune again, or restore the file"
    if not isinstance(entry, dict):
        raise StoreError(subject, "must be an object", repr(entry), next_step=again)
    for key in _KEYS:
        if not isinstance(entry.get(key), str):
            raise StoreError(subject, f"must have a text {key!r}", repr(entry.get(key)), next_step=again)
    try:
        region = Region.from_json(entry.get(_WITHIN, {}))
    except ValueError:
        rule = f'must have bounds in {_WITHIN!r}, such as {{"rows": [1, 64]}}'
        raise StoreError(subject, rule, repr(entry[_WITHIN]), next_step=again) from None
    evidence = {key: value for key, value in entry.items() if key not in (*_KEYS, _WITHIN)}
    return Winner(entry["device"], entry["spec"], entry["shape"], entry["variant"], evidence, region)


def text_of_winners(winners: Iterable[Winner]) -> str:
    """The file's text: sorted, one winner a line."""
    entries = [
        {"device": w.device, "spec": w.spec, "shape": w.shape, **_within(w), "variant": w.variant, **w.evidence}
        for w in sorted(winners, key=lambda w: (w.spec, w.shape, w.device, w.region.words))
    ]
    if not entries:
        return json.dumps({"schema": SCHEMA, "winners": []}) + "\n"
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    return f'{{\n  "schema": {SCHEMA},\n  "winners": [\n{lines}\n  ]\n}}\n'


def merged(old: Iterable[Winner], new: Iterable[Winner]) -> tuple[Winner, ...]:
    """All winners, a new one in the place of the old one of its device, spec, shape class and region."""
    return tuple({winner.key: winner for winner in (*old, *new)}.values())


def _within(winner: Winner) -> dict[str, Any]:
    return {_WITHIN: winner.region.to_json()} if winner.region.bounds else {}
