"""Where gen reads and writes: the folder of results, its cache, its own files, the tables that came with it."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from gen import __version__
from gen.errors import GenError


def output_home(given: Path | None = None) -> Path:
    """The folder of results: `given`, else $GEN_HOME, else `out/local/` in a checkout, else the user's data folder.

    In a checkout git ignores it. Nothing is made on disk.

    Raises:
        GenError: the folder asked for is a file.
    """
    if given is not None:
        return _folder("--home", given)
    home = os.environ.get("GEN_HOME")
    if home:
        return _folder("$GEN_HOME", Path(home))
    checkout = _checkout()
    if checkout is not None:
        return checkout / "out" / "local"
    from platformdirs import user_data_path  # only an installed gen that was told no folder needs it

    return user_data_path("gen-cuda", appauthor=False)


def catalogue_home() -> Path | None:
    """The folder of the catalogue's kernels where that is not the folder of results: a checkout's `out/`."""
    checkout = _checkout()
    return None if checkout is None or os.environ.get("GEN_HOME") else checkout / "out"


def cache_home(home: Path) -> Path:
    """The folder for what can be made again: compiled kernels, sources that did not compile."""
    return home / ".cache"


def lock_of(home: Path) -> Path:
    """The file that whoever changes what `home` holds has locked."""
    return cache_home(home) / "lock"


def templates_root() -> Traversable:
    """The folder of the built-in templates and the partials that every family shares."""
    checkout = _checkout()
    return files("gen") / "templates" if checkout is None else checkout / "templates"


@cache
def exact_version() -> str:
    """The version of this gen, with a digest of its sources: a variant must mean the same in every process."""
    digest = hashlib.sha256()
    for root, suffix in ((Path(__file__).parent, "py"), (Path(str(templates_root())), "jinja")):
        for path in sorted(root.rglob(f"*.{suffix}")):
            digest.update(path.read_bytes())
    return f"{__version__}, sources {digest.hexdigest()[:8]}"


def shipped(name: str) -> Traversable | None:
    """A table that came with gen, `tuned.json` or `calibration.json`; None if it came without."""
    checkout = _checkout()
    table = (files("gen") if checkout is None else checkout / "out") / name
    return table if table.is_file() else None


def how_to_install(extra: str = "") -> str:
    """The command that installs gen with what it needs: from the index, or from the checkout that it runs in.

    Args:
        extra: what is needed beside, for instance `report`; empty: nothing.
    """
    checkout, extras = _checkout(), f"[{extra}]" if extra else ""
    if checkout is None:
        return shlex.join(["pip", "install", f"gen-cuda{extras}"])
    return shlex.join([sys.executable, "-m", "pip", "install", "--editable", f"{checkout}{extras}"])


def _checkout() -> Path | None:
    """The root of the checkout this file lies in; None when gen is installed as a package."""
    root = Path(__file__).resolve().parent.parent
    # A folder of packages can hold anything, but not gen's own project file next to its templates.
    return root if (root / "pyproject.toml").is_file() and (root / "templates").is_dir() else None


def _folder(subject: str, path: Path) -> Path:
    path = path.expanduser().absolute()  # a worker process may run in another folder
    if path.exists() and not path.is_dir():
        raise GenError(subject, "must be a folder", path)
    return path
