"""docs/json.md names every key that `--json` prints: `run(...).data` holds it, in every test of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import documented, paths
from tests.host.cli.command import run


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
    assert run(*arguments, "--json").data is not None


@pytest.mark.exhaustive
def test_what_is_exported_is_documented(tmp_path: Path) -> None:
    exported = run("export", "reduction_sum_f32", "-o", tmp_path / "sums", "--shape", "1024", "--json").data
    assert [one["name"] for one in exported["functions"]] == ["reduction_sum_f32"]


def test_what_is_locked_is_documented(tmp_path: Path) -> None:
    assert run("lock", "--json", "--home", tmp_path).data["locked"] is True


def test_what_is_reported_is_documented(tmp_path: Path) -> None:
    run("generate", "--home", tmp_path)
    shown = run("report", "-o", tmp_path / "page.html", "--home", tmp_path, "--json").data
    assert (shown["file"], shown["bytes"]) == (
        str(tmp_path / "page.html"), (tmp_path / "page.html").stat().st_size,
    )  # fmt: skip
    assert set(paths(shown)) == documented()["report"]


@pytest.mark.parametrize("what", [("algorithm", "transpose"), ("family",)], ids="".join)
def test_what_new_writes_is_documented(tmp_path: Path, what: tuple[str, ...]) -> None:
    shown = run("new", *what, "other", "-o", tmp_path, "--json").data
    assert all(Path(file).is_file() for file in shown["files"])
    assert set(paths(shown)) == documented()["new"]


def test_what_is_merged_is_documented(tmp_path: Path) -> None:
    run("generate", "--home", tmp_path / "one")
    assert run("merge", tmp_path / "one", "--json").data["winners"] == 0
