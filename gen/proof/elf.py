"""Reads where a shared object keeps its variables: enough of ELF, 64 bits, little-endian, for libraries built here."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE, _ALLOCATED, _WRITABLE, _EXECUTABLE, _OBJECT = 2, 2, 1, 4, 1


@dataclass(frozen=True)
class Section:
    """A part of a library that is loaded; addresses count from where the library is loaded."""

    name: str
    address: int
    bytes: int
    writable: bool
    executable: bool


@dataclass(frozen=True)
class Symbol:
    """A function or variable, mangled as the compiler names it."""

    name: str
    address: int
    bytes: int
    section: Section
    is_object: bool


@dataclass(frozen=True)
class Layout:
    """Sections and symbols of a library."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]


def read(content: bytes) -> Layout:
    """The layout of a library. Raises ValueError for what is none."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    try:
        return _read(content)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"a damaged ELF file: {error}") from error


def _read(content: bytes) -> Layout:
    _, _, _, _, _, table, _, _, _, _, entry_bytes, count, names_index = _HEADER.unpack_from(content)
    headers = [_SECTION.unpack_from(content, table + i * entry_bytes) for i in range(count)]
    names_at = headers[names_index][4]
    sections = [
        Section(_text(content, names_at + name), address, size, bool(flags & _WRITABLE), bool(flags & _EXECUTABLE))
        for name, _, flags, address, _, size, *_ in headers
    ]
    loaded = tuple(
        section for section, header in zip(sections, headers, strict=True) if header[2] & _ALLOCATED and section.bytes
    )
    return Layout(loaded, tuple(_symbols(content, headers, sections)))


def _symbols(content: bytes, headers: list[tuple[int, ...]], sections: list[Section]) -> Iterator[Symbol]:
    for header in headers:
        if header[1] != _SYMBOL_TABLE:
            continue
        start, size, strings_at = header[4], header[5], headers[header[6]][4]
        for name, info, _, index, address, symbol_bytes in _SYMBOL.iter_unpack(content[start : start + size]):
            if name and 0 < index < len(sections):
                text = _text(content, strings_at + name)
                yield Symbol(text, address, symbol_bytes, sections[index], info & 15 == _OBJECT)


def _text(content: bytes, start: int) -> str:
    return content[start : content.index(b"\0", start)].decode("ascii")
