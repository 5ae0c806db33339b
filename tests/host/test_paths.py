"""Where gen writes and reads."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from gen import paths
from gen.errors import GenError

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if gen lay in a folder of packages; the user's data folder is in the one returned."""
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "site-packages" / "gen" / "paths.py"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("GEN_HOME", raising=False)
    return tmp_path


def test_the_folder_asked_for_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEN_HOME", str(tmp_path / "environment"))
    assert paths.output_home(tmp_path / "asked") == tmp_path / "asked"


def test_the_environment_wins_over_the_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GEN_HOME", str(tmp_path))
    assert paths.output_home() == tmp_path


@pytest.mark.parametrize("value", [None, ""])
def test_in_a_checkout_results_go_where_git_ignores_them_and_the_catalogue_to_out(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("GEN_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("GEN_HOME", value)
    assert paths.output_home() == CHECKOUT / "out" / "local"
    assert paths.catalogue_home() == CHECKOUT / "out"
    monkeypatch.setenv("GEN_HOME", "/elsewhere")
    assert paths.catalogue_home() is None


def test_an_installed_gen_writes_to_the_users_data_folder(installed: Path) -> None:
    assert paths.output_home() == installed / "data" / "gen-cuda"
    assert paths.catalogue_home() is None


def test_what_is_missing_is_installed_from_where_gen_came_from(installed: Path) -> None:  # noqa: ARG001
    assert paths.how_to_install("gpu") == "pip install 'gen-cuda[gpu]'"
    assert paths.how_to_install() == "pip install gen-cuda"


def test_a_checkout_installs_its_own_extras() -> None:
    python, *words = shlex.split(paths.how_to_install("gpu"))
    assert (python, words[-2:]) == (sys.executable, ["--editable", f"{CHECKOUT}[gpu]"])


def test_asking_makes_no_folder(installed: Path) -> None:
    paths.cache_home(paths.output_home())
    assert list(installed.iterdir()) == []


def test_a_relative_folder_stays_where_it_was_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    home = paths.output_home(Path("mine"))
    monkeypatch.chdir("/")
    assert home == tmp_path / "mine"


def test_a_tilde_is_the_users_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GEN_HOME", "~/kernels")
    assert paths.output_home() == tmp_path / "kernels"


@pytest.mark.parametrize("subject", ["--home", "$GEN_HOME"])
def test_a_file_in_place_of_the_folder_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, subject: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("GEN_HOME", str(file))
    with pytest.raises(GenError) as caught:
        paths.output_home(file if subject == "--home" else None)
    assert str(caught.value) == f"{subject} must be a folder (got {file})"


def test_the_cache_lies_in_the_output_folder(tmp_path: Path) -> None:
    assert paths.cache_home(tmp_path) == tmp_path / ".cache"


def test_a_checkout_reads_its_own_templates_and_tables() -> None:
    assert paths.templates_root() == CHECKOUT / "templates"
    assert paths.shipped("tuned.json") == CHECKOUT / "out" / "tuned.json"


@pytest.mark.usefixtures("installed")
def test_without_winners_there_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "files", lambda package: tmp_path / package)
    assert paths.shipped("tuned.json") is None
    (tmp_path / "gen").mkdir()
    (tmp_path / "gen" / "tuned.json").touch()
    assert paths.shipped("tuned.json") == tmp_path / "gen" / "tuned.json"
    assert paths.templates_root() == tmp_path / "gen" / "templates"
