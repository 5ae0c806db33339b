"""What is built installs anywhere and renders what the checkout renders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import gen

CHECKOUT = Path(__file__).parents[2]
TABLES = ("tuned.json", "calibration.json")
RENDER = ["-m", "gen", "render", "reduceShfl"]


def run(*command: str | Path, cwd: Path) -> str:
    """Runs a program as a user would, with nothing of this checkout in its environment."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "GEN_HOME")}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and in `from_sdist` the wheel made from it, in `direct` that made from the checkout."""
    folder = tmp_path_factory.mktemp("built")
    build = [sys.executable, "-m", "build", "--no-isolation"]
    run(*build, "--outdir", folder / "from_sdist", CHECKOUT, cwd=folder)  # the sdist, then a wheel from it
    run(*build, "--wheel", "--outdir", folder / "direct", CHECKOUT, cwd=folder)
    return folder


def wheel(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


def environment(folder: Path) -> Path:
    """Makes an environment that sees this one's packages after its own, and returns its Python."""
    venv.create(folder)
    scheme = sysconfig.get_preferred_scheme("prefix")
    inside = Path(sysconfig.get_path("purelib", scheme, {"base": str(folder), "platbase": str(folder)}))
    # A line of a .pth file only lengthens the path: an editable gen over there is not seen from here.
    (inside / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(
        *pip, "--disable-pip-version-check", "--no-deps", "--no-index", "--no-build-isolation", *what, cwd=python.parent
    )


@pytest.fixture(scope="module")
def expected() -> str:
    return run(sys.executable, *RENDER, cwd=CHECKOUT)


@pytest.mark.exhaustive
def test_an_installed_wheel_renders_from_another_folder(built: Path, expected: str, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, wheel(built / "from_sdist"))
    where = run(python, "-c", "import gen; print(gen.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    assert run(python, *RENDER, cwd=tmp_path) == expected
    for script in ("gen", "gen-cuda"):
        assert run(python.with_name(script), *RENDER[2:], cwd=tmp_path) == expected


@pytest.mark.exhaustive
def test_an_editable_install_renders_from_another_folder(expected: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("gen", "templates", "out"):
        ignored = shutil.ignore_patterns("__pycache__", ".cache")
        shutil.copytree(CHECKOUT / name, checkout / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, checkout)
    python = environment(tmp_path / "venv")
    install(python, "--editable", checkout)
    where = run(python, "-c", "import gen; print(gen.__file__)", cwd=tmp_path)
    assert Path(where.strip()) == checkout / "gen" / "__init__.py"
    assert run(python, *RENDER, cwd=tmp_path) == expected


def test_the_wheel_from_the_sdist_is_the_wheel_from_the_checkout(built: Path) -> None:
    contents = []
    for folder in ("from_sdist", "direct"):
        with zipfile.ZipFile(wheel(built / folder)) as archive:
            contents.append({name: archive.read(name) for name in archive.namelist()})
    assert contents[0] == contents[1]


def test_the_wheel_holds_all_of_gen_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(wheel(built / "from_sdist")) as archive:
        names = {name for name in archive.namelist() if not name.startswith("gen_cuda-")}
        came = {name: archive.read(f"gen/{name}") for name in TABLES}
    assert came == {name: (CHECKOUT / "out" / name).read_bytes() for name in TABLES}
    here = {path.relative_to(CHECKOUT) for root in ("gen", "templates") for path in (CHECKOUT / root).rglob("*")}
    files = {path for path in here if (CHECKOUT / path).is_file() and "__pycache__" not in path.parts}
    assert "gen/py.typed" in names
    assert names == {
        str(Path("gen") / path if path.parts[0] == "templates" else path) for path in files
    } | {f"gen/{name}" for name in TABLES}  # fmt: skip


def test_the_sdist_holds_templates_and_winners(built: Path) -> None:
    (sdist,) = (built / "from_sdist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "out/tuned.json", "gen/py.typed"} <= names
    assert any(name.startswith("templates/reduction/") for name in names)
    assert not any(name.startswith(("tests/", "out/.cache", ".venv")) for name in names)


def test_the_metadata_says_what_the_project_says(built: Path) -> None:
    file = wheel(built / "from_sdist")
    with zipfile.ZipFile(file) as archive:
        root = f"gen_cuda-{gen.__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{root}/METADATA").decode())
        scripts = archive.read(f"{root}/entry_points.txt").decode()
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    assert (metadata["Name"], metadata["Version"]) == ("gen-cuda", gen.__version__)
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert len(needed) == len(project["dependencies"])
    assert "gen = gen.cli:main" in scripts


def test_importing_gen_loads_neither_numpy_nor_a_compiler() -> None:
    code = "import sys, gen; print([name for name in ('numpy', 'cuda', 'jinja2', 'pycuda') if name in sys.modules])"
    assert run(sys.executable, "-c", code, cwd=CHECKOUT).strip() == "[]"


def test_public_names_are_there_when_asked_for() -> None:
    from gen.errors import GenError

    assert gen.GenError is GenError
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = gen.absent
