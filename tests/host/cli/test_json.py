"""docs/json.md names every key that `--json` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.host.cli.command import CHECKOUT, run

PAGE = (CHECKOUT / "docs" / "json.md").read_text(encoding="utf-8")


def documented(command: str) -> set[str]:
    """The paths that the page names for a command, braces resolved."""
    (section,) = re.findall(rf"^## gen {command}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    found = set()
    for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
        for path in re.findall(r"`([^`]+)`", row):
            before, brace, within = path.partition("{")
            found |= {before + key.strip() for key in within.rstrip("}").split(",")} if brace else {path}
    return found


def paths(value: Any, at: str = "") -> Iterator[str]:
    """The paths of all that a value holds."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from paths(one, f"{at}.{key}" if at else key)
    elif isinstance(value, list) and value:
        for one in value:
            yield from paths(one, f"{at}[]")
    else:
        yield at + ("[]" if isinstance(value, list) else ".*" if isinstance(value, dict) else "")


def is_named(path: str, named: set[str]) -> bool:
    """Whether the page names a path, or one that begins it and ends in a star; an empty list names nothing below it."""
    parts = path.split(".")
    begun = {".".join((*parts[:end], "*")) for end in range(1, len(parts))}
    empty = path.endswith("[]") and any(one.startswith(path) for one in named)
    return path in named or bool(begun & named) or empty


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "transpose"),
        ("render", "reduceShfl"),
        ("prove", "transposeSmem"),
        ("resources", "transposeSmemPad"),
        ("explain", "transposeSmem", "--vs", "transposeSmemPad", "--shape", "64x64"),
        ("explain", "transposeSmem", "--shape", "64x64", "--arch", "fermi"),
        ("show", "reduction_sum_f32"),
        ("show", "reduction_sum_f32", "--shape", "2^20"),
        ("spec", "stencil", "--weights", "[1,2,1]"),
        ("trials",),
        ("doctor",),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("runtime_at_home")
def test_every_key_that_is_printed_is_documented(arguments: tuple[str, ...]) -> None:
    named = documented(arguments[0]) if arguments[0] != "trials" else {"[]"}
    for path in set(paths(run(*arguments, "--json").data)):
        assert is_named(path, named), path


@pytest.mark.exhaustive
def test_what_is_exported_is_documented(tmp_path: Path) -> None:
    exported = run("export", "reduction_sum_f32", "-o", tmp_path / "sums", "--shape", "1024", "--json").data
    assert [one["name"] for one in exported["functions"]] == ["reduction_sum_f32"]
    for path in paths(exported):
        assert is_named(path, documented("export")), path


def test_what_is_locked_is_documented(tmp_path: Path) -> None:
    for path in paths(run("lock", "--json", "--out", tmp_path).data):
        assert is_named(path, documented("lock")), path


def test_what_is_reported_is_documented(tmp_path: Path) -> None:
    run("generate", "--out", tmp_path)
    shown = run("report", "-o", tmp_path / "page.html", "--out", tmp_path, "--json").data
    assert (shown["file"], shown["bytes"]) == (
        str(tmp_path / "page.html"), (tmp_path / "page.html").stat().st_size,
    )  # fmt: skip
    assert set(paths(shown)) == documented("report")


@pytest.mark.parametrize("what", [("algorithm", "transpose"), ("family",)], ids="".join)
def test_what_new_writes_is_documented(tmp_path: Path, what: tuple[str, ...]) -> None:
    shown = run("new", *what, "other", "-o", tmp_path, "--json").data
    assert all(Path(file).is_file() for file in shown["files"])
    assert set(paths(shown)) == documented("new")


def test_what_is_merged_is_documented(tmp_path: Path) -> None:
    run("generate", "--out", tmp_path / "one")
    for path in paths(run("merge", tmp_path / "one", "--json").data):
        assert is_named(path, documented("merge")), path
