"""Which gen it is that was measured: more than its version says."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import gen

CODE = Path(gen.__file__).resolve().parent


def origin(code: Path = CODE) -> str:
    """The commit of a checkout, by `git describe --always --dirty`; where there is none, the digest of the package.

    `commit 1234abc-dirty` or `files 0123456789ab`.
    """
    if (code.parent / ".git").exists():
        try:
            described = subprocess.run(
                ["git", "describe", "--always", "--dirty"], cwd=code.parent, capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            pass
        else:
            return f"commit {described.stdout.strip()}"
    digest = hashlib.sha256()
    for path in sorted(path for path in code.rglob("*") if path.is_file() and path.suffix != ".pyc"):
        digest.update(f"{path.relative_to(code).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return f"files {digest.hexdigest()[:12]}"
