"""The specs by name, for those whose content no name can hold: `specs.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gen.errors import StoreError
from gen.families.base import Family

FILE = "specs.json"
SCHEMA = 1


def text_of_specs(families: Sequence[Family[Any]], others: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """The file's text: every spec of every catalogue, and `others` by name, a line each."""
    named: dict[str, Mapping[str, Any]] = dict(others or {})
    named |= {family.name_of(spec): spec.to_json() for family in families for spec in family.catalogue}
    lines = [f"    {json.dumps(name)}: {json.dumps(named[name], sort_keys=True)}" for name in sorted(named)]
    return f'{{\n  "schema": {SCHEMA},\n  "specs": {{\n' + ",\n".join(lines) + "\n  }\n}\n"


def read_specs(home: Path) -> Mapping[str, Mapping[str, Any]]:
    """The specs in `home` by name; none if it has no such file.

    Raises StoreError if the file is not what gen writes.
    """
    place, again = home / FILE, "Mend it, or move it away and run gen generate, which writes that of the catalogue anew"
    if not place.is_file():
        return {}
    try:
        content = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(str(place), "must be JSON", error, next_step=again) from error
    specs = content.get("specs") if isinstance(content, dict) and content.get("schema") == SCHEMA else None
    if not isinstance(specs, dict) or not all(isinstance(spec, dict) for spec in specs.values()):
        raise StoreError(str(place), f"must have schema {SCHEMA} and specs", next_step=again)
    return specs
