"""The built code of a variant: its kernels, and where its shared and constant memory lie."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from gen.emit.launch import parameters, separate, within, without_comments
from gen.toolchain import elf

_CONST = re.compile(r"\bconst\b")
_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(")
_CLUSTER = re.compile(r"\b__cluster_dims__\s*\(")
_RESTRICT = re.compile(r"\b__restrict(__)?\b")


class Taken(IntEnum):
    """What a kernel may do with a buffer, in the order of the runtime's `Taken`."""

    MUTABLE = 0
    CONST = 1
    READ_ONLY = 2  # const and __restrict__: it may be read through the read-only path
    MUTABLE_AND_READ_ONLY = 3  # through two parameters


def taken(text: str, kernel: str) -> tuple[Taken, ...]:
    """How the kernel of this name takes each parameter, as far as the text says; none where it is not found."""
    return tuple(map(_taken, parameters(without_comments(text), kernel) or ()))


def most_threads(text: str, kernel: str) -> str:
    """What the kernel of this name says of threads in its `__launch_bounds__`, an expression; empty if it has none."""
    plain = without_comments(text)
    for match in _BOUNDS.finditer(plain):
        bounds = within(plain, match.end())
        if re.match(rf"\s*{re.escape(kernel)}\s*\(", plain[match.end() + len(bounds) + 1 :]):
            return separate(bounds)[0].strip()
    return ""


def cluster(text: str, kernel: str) -> str:
    """What the kernel of this name says in its `__cluster_dims__`, expressions; empty if it has none."""
    plain = without_comments(text)
    for match in _CLUSTER.finditer(plain):
        size = within(plain, match.end())
        behind = plain[match.end() + len(size) + 1 :]
        if re.match(rf"\s*(\w+\s*\([^{{}};]*?\)\s*)?(void\s+)?{re.escape(kernel)}\s*\(", behind):
            return size.strip()
    return ""


def together(ways: set[Taken]) -> Taken:
    """How a buffer is taken that a launch passes more than once."""
    mutable = Taken.MUTABLE in ways
    if Taken.READ_ONLY in ways:
        return Taken.MUTABLE_AND_READ_ONLY if mutable else Taken.READ_ONLY
    return Taken.CONST if ways == {Taken.CONST} else Taken.MUTABLE


def _taken(parameter: str) -> Taken:
    element, star, pointer = parameter.rpartition("*")
    if not star or not _CONST.search(element):
        return Taken.MUTABLE
    return Taken.READ_ONLY if _RESTRICT.search(pointer) else Taken.CONST


_LOCAL = re.compile(r"E(?P<length>\d+)(?P<rest>\w+)$")


@dataclass(frozen=True)
class Variable:
    """A named range of memory; shared ones by offset in their section, constants by address."""

    name: str
    start: int
    bytes: int


@dataclass(frozen=True)
class Kernel:
    """One `__global__` function.

    Attributes:
        signature: a letter and a digit for each parameter, as `entry.h` writes them.
        most_threads: of a block, as its `__launch_bounds__` says; None where it says nothing.
        cluster: blocks of one along x, y, z, as its `__cluster_dims__` says.
        shared: its static shared arrays.
        taken: how it takes each parameter that is a pointer.
        objects: for each byte of the variant's shared section the number of its array; 0 where none of its own lies.
    """

    name: str
    enter: int
    signature: tuple[str, ...]
    taken: tuple[Taken, ...]
    most_threads: int | None
    cluster: tuple[int, int, int]
    shared: tuple[Variable, ...]
    objects: bytes

    @property
    def shared_bytes(self) -> int:
        """Its static shared memory."""
        return sum(variable.bytes for variable in self.shared)


@dataclass(frozen=True)
class Code:
    """What a variant's text became.

    Attributes:
        library: the shared object it lies in, and `base`, where that is loaded.
        kernels: by name.
        shared_address: where its static shared memory begins.
        constants: its `__constant__` variables.
        read_only: what the compiler put aside for reading: tables, weights.
        machine_code: where the library's functions lie.
        called: the text's name in messages.
    """

    name: str
    text: str
    library: Path
    base: int
    kernels: dict[str, Kernel]
    shared_address: int
    constants: tuple[Variable, ...]
    read_only: tuple[Variable, ...]
    machine_code: Variable
    called: str = ""


class Library:
    """A loaded shared object of up to twenty variants."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._layout = elf.read(path.read_bytes())
        self._handle = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
        anchor = next(symbol for symbol in self._layout.symbols if symbol.name.startswith("enter_"))
        self._base = self._address(anchor.name) - anchor.address

    def code(self, slot: int, name: str, text: str, entries: tuple[str, ...]) -> Code:
        """The variant in this slot. Raises AttributeError if it is not there."""
        section = next((s for s in self._layout.sections if s.name == f"shared_{slot}"), None)
        kernels = {
            entry: self._kernel(f"{slot}_{number}", entry, entries, section, text)
            for number, entry in enumerate(entries)
        }
        constants = tuple(
            Variable(plain_name(symbol.name), self._base + symbol.address, symbol.bytes)
            for symbol in self._layout.symbols
            if symbol.section.name == f"constant_{slot}" and symbol.bytes
        )
        read_only = tuple(
            Variable("the compiler's tables", self._base + s.address, s.size)
            for s in self._layout.sections
            if s.loaded and s.name.startswith((".rodata", ".data.rel.ro"))
        )
        shared_address = self._base + section.address if section else 0
        text_section = next(s for s in self._layout.sections if s.name == ".text")
        machine_code = Variable(".text", self._base + text_section.address, text_section.size)
        return Code(name, text, self.path, self._base, kernels, shared_address, constants, read_only, machine_code)

    def _kernel(
        self, label: str, entry: str, entries: tuple[str, ...], section: elf.Section | None, text: str
    ) -> Kernel:
        describe = getattr(self._handle, f"signature_{label}")
        describe.restype = ctypes.c_char_p
        letters: str = describe().decode("ascii")
        signature = tuple(letters[i : i + 2] for i in range(0, len(letters), 2))
        shared: list[Variable] = []
        objects = bytearray(section.size if section else 0)
        for symbol in self._layout.symbols:
            if section is None or symbol.section is not section or not symbol.bytes or not symbol.is_object:
                continue
            owner = next((e for e in entries if symbol.name.startswith(f"_ZZ{len(e)}{e}E")), entry)
            if owner == entry:
                start = symbol.address - section.address
                shared.append(Variable(plain_name(symbol.name), start, symbol.bytes))
                objects[start : start + symbol.bytes] = bytes([min(len(shared), 255)]) * symbol.bytes
        ways = taken(text, entry)
        if len(ways) != len(signature):  # written in a way that is not understood: it may do anything
            ways = (Taken.MUTABLE,) * len(signature)
        bounds = getattr(self._handle, f"bounds_{label}", None)
        size = getattr(self._handle, f"cluster_{label}", None)
        x, y, z = (1, 1, 1) if size is None else (int(size(axis)) for axis in range(3))
        return Kernel(
            entry, self._address(f"enter_{label}"), signature, ways, None if bounds is None else int(bounds()),
            (x, y, z), tuple(shared), bytes(objects),
        )  # fmt: skip

    def _address(self, name: str) -> int:
        address = ctypes.cast(getattr(self._handle, name), ctypes.c_void_p).value
        assert address is not None
        return address


def plain_name(mangled: str) -> str:
    """The last name in a mangled one: `tile` of `_ZZ4kernE4tile`, `weights` of `_ZN9variant_37weightsE`."""
    match = _LOCAL.search(mangled)
    if match is not None:
        return match["rest"][: int(match["length"])]
    name = mangled
    if mangled.startswith("_ZN"):
        rest = mangled[3:]
        while rest and (digits := re.match(r"L?(\d+)", rest)):
            end = digits.end() + int(digits[1])
            name, rest = rest[digits.end() : end], rest[end:]
    return name
