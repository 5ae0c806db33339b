"""Reads ELF, 64 bits, little-endian: machine code for GPUs, and the libraries that the CPU run builds."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAGIC = b"\x7fELF\x02\x01"
_SYMBOL_TABLE, _NO_BITS = 2, 8  # types of sections
_WRITABLE, _ALLOCATED = 1, 2  # their flags
_OBJECT = 1  # the type of a symbol


@dataclass(frozen=True)
class Section:
    """A section of a file.

    Attributes:
        address: counts from where the file is loaded.
        info: as the header of the section holds it.
        content: what the file holds of it; nothing of memory that is 0 at first.
        writable, loaded: whether it can be written, and whether it takes memory where the file is loaded.
    """

    name: str
    address: int
    size: int
    info: int
    content: bytes
    writable: bool
    loaded: bool


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
    """Sections and symbols of a file."""

    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]


def is_elf(content: bytes) -> bool:
    """Whether it begins as such a file."""
    return content.startswith(_MAGIC)


def read(content: bytes) -> Layout:
    """The layout of a file. Raises ValueError for what is none."""
    if not is_elf(content):
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
        Section(
            _text(content, names_at + name), address, size, info,
            b"" if kind == _NO_BITS else content[start : start + size], bool(flags & _WRITABLE),
            bool(flags & _ALLOCATED and size),
        )
        for name, kind, flags, address, start, size, _, info, *_ in headers
    ]  # fmt: skip
    return Layout(tuple(sections), tuple(_symbols(content, headers, sections)))


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
