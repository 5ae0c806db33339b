"""What every translation unit of the CPU run begins with, read by g++ once: headers take longer than a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock

from gen.proof.gpp import Gpp
from gen.proof.workplace import Workplace
from gen.toolchain.cache import Cache, write_whole


@cache
def preludes_in(folder: Path) -> Preludes:
    """Those kept in a folder, for all builders of this process."""
    return Preludes(folder)


class Preludes:
    """Headers as g++ keeps them when it has read them (`.h.gch`), beside the text it falls back on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries = Cache(folder, ".h.gch")
        self._known: dict[str, Path] = {}
        self._lock = Lock()

    def header(self, key: str, headers: Sequence[str], gpp: Gpp, arguments: Sequence[str]) -> Path:
        """The file to include, once and first, for these of the headers that not every text needs.

        Args:
            key: of all that decides what g++ makes of it.
            headers: as `Source.headers` says.
            gpp: the compiler.
            arguments: those with which units are compiled; others would not take what is kept.
        """
        with self._lock:
            if key not in self._known or not self._known[key].exists():
                kept = self._entries.file(key) or self._read(key, _text(headers), gpp, arguments)
                self._known[key] = kept.with_suffix("")
                write_whole(self._known[key], _text(headers).encode())
            return self._known[key]

    def _read(self, key: str, text: str, gpp: Gpp, arguments: Sequence[str]) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        with Workplace(self._folder.parent) as place:
            written, kept = place / "prelude.h", place / "prelude.h.gch"
            written.write_text(text)
            gpp.compile(
                [*arguments, "-x", "c++-header", str(written), "-o", str(kept)], "The CPU run's header", written
            )
            return self._entries.write(key, kept.read_bytes())


def _text(headers: Sequence[str]) -> str:
    return "".join(f"#define CUDA_ON_HOST_{header.upper()}\n" for header in headers) + '#include "cuda_on_host.h"\n'
