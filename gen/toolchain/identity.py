"""What cubins hold: whether two have the same machine code, whatever their kernels are called; how much of it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_NOBITS = 8
INSTRUCTION_BYTES = 16  # since sm_70
_CODE = (b".text.", b".nv.constant", b".nv.shared.", b".nv.global")


@dataclass(frozen=True)
class _Section:
    name: bytes
    kind: int
    info: int
    content: bytes
    size: int


def code_digest(cubin: bytes, symbol: str) -> str:
    """A digest of what runs: instructions, constants, and the sizes of shared and global memory.

    The whole file is never the same: it holds the kernel's name.

    Args:
        cubin: an ELF file of 64 bits.
        symbol: what the kernels' names begin with; what follows it tells those of one file apart.
    """
    digest = hashlib.sha256()
    for section in sorted(_sections(cubin), key=lambda one: one.name):
        if section.name.startswith(_CODE):
            name = section.name.replace(symbol.encode(), b"")
            for part in (name, str((section.info >> 24, section.size)).encode(), section.content):
                digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def instructions(cubin: bytes) -> dict[str, int]:
    """How many instructions there are in the machine code of each kernel, by symbol; padding counts."""
    prefix = b".text."
    return {
        section.name.removeprefix(prefix).decode(): section.size // INSTRUCTION_BYTES
        for section in _sections(cubin)
        if section.name.startswith(prefix)
    }


def _sections(cubin: bytes) -> Iterator[_Section]:
    """Every section; of an ELF file of 64 bits, little-endian, as all cubins are."""
    if cubin[:6] != b"\x7fELF\x02\x01" or len(cubin) < 64:
        yield _Section(b".text.", 0, 0, cubin, len(cubin))  # of another kind: all of it counts
        return
    (start,) = struct.unpack_from("<Q", cubin, 40)
    entry, count, names = struct.unpack_from("<HHH", cubin, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + place * entry) for place in range(count)]
    table = headers[names][4]
    for name, kind, _, _, offset, size, _, info, _, _ in headers:
        end = cubin.index(b"\0", table + name)
        content = b"" if kind == _NOBITS else cubin[offset : offset + size]
        yield _Section(cubin[table + name : end], kind, info, content, size)
