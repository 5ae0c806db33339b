"""A folder of files named by their content's key, shared by threads and processes without locks.

An entry appears whole, by rename, or not at all. It ends in a digest of what stands before it: a file that a full disk
or a crash cut short is noticed, set aside and made again. Loaders of ELF files ignore what follows the last section, so
a shared library can be loaded straight from its entry.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gen.emit.folder import remove_abandoned, write_whole
from gen.errors import StoreError
from gen.toolchain.compiled import Compiled

SCHEMA = 1  # raise it when the meaning of keys or entries changes

Part = str | bytes | int | Sequence[str]

_log = logging.getLogger(__name__)
_MARK = b"\0gen cache, sha256 "
_TRAILER = len(_MARK) + hashlib.sha256().digest_size * 2


def content_key(parts: Mapping[str, Part]) -> str:
    """The key of an entry: a digest of all that determines its content, as 64 hexadecimal digits.

    Every label and value goes in with its type and length: no two different mappings read alike. Their order does not
    matter.
    """
    digest = hashlib.sha256(_field("schema", SCHEMA))
    for label in sorted(parts):
        digest.update(_field(label, parts[label]))
    return digest.hexdigest()


def _field(label: str, part: Part) -> bytes:
    match part:
        case str():
            kind, values = "text", [part.encode()]
        case bytes():
            kind, values = "bytes", [part]
        case int():
            kind, values = "number", [str(part).encode()]
        case _:
            kind, values = "list", [value.encode() for value in part]
    fields = [label.encode(), kind.encode(), b"%d" % len(values), *values]
    return b"".join(b"%d:%s" % (len(field), field) for field in fields)


@dataclass(frozen=True)
class Cache:
    """Entries of one kind.

    Attributes:
        folder: holds the entries, in sub-folders by the first digits of their keys; made when first written to.
        suffix: what the names of entries end in: `.cubin`.
    """

    folder: Path
    suffix: str = ""

    def fetch(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The entry's content, made and kept if there is none. What `make` raises passes through; nothing is kept."""
        content = self.read(key)
        if content is None:
            content = make()
            self.write(key, content)
        return content

    def read(self, key: str) -> bytes | None:
        """The entry's content, or None if there is none. A corrupted entry is set aside as `*.corrupt`."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.set_aside(key, error.strerror or str(error))
            return None
        content = raw[:-_TRAILER]
        if raw[-_TRAILER:] != _trailer(content):
            self.set_aside(key, "its digest does not match")
            return None
        return content

    def file(self, key: str) -> Path | None:
        """The path of an intact entry, for what has to be loaded from disk; None if there is none."""
        return None if self.read(key) is None else self._path(key)

    def write(self, key: str, content: bytes) -> Path:
        """Keeps an entry and returns its path. Of several writers the last one stays; they agree on the content.

        What killed processes left half written beside it goes.

        Raises:
            StoreError: the folder cannot be written to.
        """
        path = self._path(key)
        remove_abandoned(path.parent)
        write_whole(path, content + _trailer(content))
        return path

    def set_aside(self, key: str, reason: str) -> None:
        """Renames an entry to `*.corrupt`, for whoever wants to know why: it will be made again.

        Raises:
            StoreError: it cannot be renamed.
        """
        path = self._path(key)
        aside = path.with_name(f"{path.name}.corrupt")
        try:
            path.replace(aside)
        except FileNotFoundError:
            return  # another process was faster
        except OSError as error:
            rule = f"cannot be read, nor be set aside to be made again: {reason}"
            raise StoreError(str(path), rule, error.strerror, next_step="Remove it") from error
        _log.warning("A cache entry is corrupt (%s). It is set aside as %s and made again.", reason, aside)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}{self.suffix}"


def compiled_once(entries: Cache, key: str, name: str, compile_it: Callable[[], Compiled]) -> Compiled:
    """The compiled source that an entry holds; made, and kept, if there is none."""
    made: list[Compiled] = []

    def make() -> bytes:
        made.append(compile_it())
        return made[0].pack()

    content = entries.fetch(key, make)
    return made[0] if made else Compiled.unpack(name, content)


def _trailer(content: bytes) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode()
