"""Files of kernels as they stand on disk: which variant one is of, by its header, and whether it is launched as now."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gen.emit.folder import read
from gen.emit.launch import HOST_ONLY, without_comments
from gen.emit.render import MARK, host_lines, render
from gen.errors import GenError, UnknownNameError
from gen.families.base import Family, Variant
from gen.families.names import find_variant

SUFFIX = ".cu"
_PLAN = ("Let", "Launch", "Room", "Scratch", "Compile")  # what a header says of a call
_FIELD = re.compile(rf"// ({'|'.join(_PLAN)}|Spec|Config|Template): +(.*)")
_MORE = "//           "  # begins a line that goes on with the field above it
_AGAIN = "gen render {name} prints what gen writes now"


@dataclass(frozen=True)
class KernelFile:
    """A file of one variant.

    Attributes:
        path: as it was named.
        variant: whose it is, by its header.
        text: all of it.
    """

    path: Path
    variant: Variant
    text: str


def read_kernel(families: Sequence[Family[Any]], path: Path) -> KernelFile:
    """Reads a kernel that gen wrote, whatever has been changed in it below its header.

    Raises:
        GenError: the file is not there, or is no text.
        UnknownNameError: its header is none of gen's, names no variant, or states another call than gen makes now; or
            its functions for the host, which no CPU run executes, are others than gen writes for its kernels.
    """
    text = read(path)
    if text is None:
        raise UnknownNameError(str(path), "is no file or folder", next_step="gen list shows names that gen prove takes")
    fields = list(_fields(text))
    contents = {label: value for label, value in fields if label in ("Spec", "Config")}
    name = _name(text)
    if name is None or len(contents) < 2:
        rule = "must begin with the header of a kernel that gen wrote: // NAME, and below it // Spec: and // Config:"
        first = text.partition("\n")[0].strip()[:80]
        raise UnknownNameError(
            str(path), rule, repr(first), next_step="gen render NAME prints a kernel with its header"
        )
    variant = _variant(families, path, name, contents)
    written = [field for field in fields if field[0] in _PLAN]
    now = [field for field in _fields(render(variant)) if field[0] in _PLAN]
    if written != now:
        found, wanted = next((a, b) for a, b in zip_longest(written, now) if a != b)
        there, here = (": ".join(field) if field else "nothing" for field in (found, wanted))
        rule = f"must be launched as gen launches {name} now: `{here}`"
        raise UnknownNameError(str(path), rule, f"`{there}` in its header", next_step=_AGAIN.format(name=name))
    _check_host(path, variant, text)
    return KernelFile(path, variant, text)


def _check_host(path: Path, variant: Variant, text: str) -> None:
    """Raises UnknownNameError unless the text's functions for the host, if it has any, are those of its kernels."""
    kernels, guard, functions = text.partition(HOST_ONLY)
    if not guard:
        return
    # How lines are wrapped is left to whoever formats them.
    written = _tokens(without_comments(functions).rpartition("#endif")[0])
    wanted = _tokens(without_comments("\n".join(host_lines(variant, kernels))))
    if written != wanted:
        there, here = next((a, b) for a, b in zip_longest(written, wanted, fillvalue="nothing") if a != b)
        rule = f"must have the functions for the host that gen writes for its kernels, there `{here}`: none is run here"
        next_step = f"Change the kernels alone. {_AGAIN.format(name=variant.name)}"
        raise UnknownNameError(str(path), rule, f"`{there}` below its kernels", next_step=next_step)


def _tokens(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def kernels_in(folder: Path) -> tuple[Path, ...]:
    """The `.cu` files of a folder. Raises UnknownNameError if it holds none."""
    found = tuple(sorted(folder.glob(f"*{SUFFIX}")))
    if not found:
        raise UnknownNameError(str(folder), f"must hold {SUFFIX} files", next_step="gen generate writes those of out/")
    return found


def changed_files(variants: Iterable[Variant], folder: Path) -> tuple[Path, ...]:
    """The files of these variants in a folder that hold other text than gen writes for them."""
    paths = ((made, folder / f"{made.name}{SUFFIX}") for made in variants)
    return tuple(path for made, path in paths if (text := read(path)) is not None and text != render(made))


def _variant(families: Sequence[Family[Any]], path: Path, name: str, contents: dict[str, str]) -> Variant:
    """The variant that a header names. Raises UnknownNameError where its fields do not agree, or are not read."""
    place = f"{path}: {name}"
    try:
        spec, config = json.loads(contents["Spec"]), json.loads(contents["Config"])
    except ValueError as error:
        raise UnknownNameError(place, "must have a spec and a config in JSON in its header", error) from None
    try:
        found = find_variant(families, name, {name.partition("__")[0]: spec})
    except GenError as error:
        raise UnknownNameError(str(path), "must hold a variant of the families at hand", error) from None
    except (TypeError, ValueError, AttributeError, LookupError) as error:  # content that a family does not expect
        raise UnknownNameError(place, "has a spec in its header that cannot be read", error) from None
    for what, written, named in (
        ("spec", spec, found.spec.to_json()), ("config", config, found.config.to_json()),
    ):  # fmt: skip
        if written != json.loads(json.dumps(named)):
            rule = f"must have the {what} in its header that its name says, {json.dumps(named, sort_keys=True)}"
            raise UnknownNameError(place, rule, contents[what.capitalize()], next_step=_AGAIN.format(name=name))
    return found


def _name(text: str) -> str | None:
    """The name on the first line of a header."""
    found = re.match(r"// (\w+)\s*\n", text)
    return found[1] if found else None


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """What a header says under a label, in order, lines that were wrapped put together again."""
    label, words = "", ""
    for line in text.partition(MARK)[0].splitlines():
        if not line.startswith("//"):
            break
        if found := _FIELD.fullmatch(line.rstrip()):
            if label:
                yield label, words
            label, words = found[1], found[2]
        elif label and line.startswith(_MORE):
            words += " " + line.removeprefix(_MORE).strip()
        elif label:
            yield label, words
            label = ""
    if label:
        yield label, words
