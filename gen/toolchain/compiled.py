"""What a compiler gives back, whichever it is. Imports no compiler."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol

from gen.errors import CompileError, GenError
from gen.toolchain import elf


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies, as ptxas reports it.

    Attributes:
        registers: of one thread.
        spill_store_bytes: written to local memory by one thread for want of registers.
        spill_load_bytes: read back from there.
        stack_bytes: of one thread, with those of the functions it calls.
        static_shared_bytes: of one block; dynamic shared memory comes on top.
        constant_bytes: of the kernel's arguments and literals; 0 where ptxas is silent about them, as from sm_80 on.
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    constant_bytes: int


@dataclass(frozen=True)
class Compiled:
    """Machine code of one source for one architecture.

    Attributes:
        name: whatever the caller called the source.
        arch: `sm_90`.
        cubin: an ELF file that the driver loads.
        resources: by kernel symbol.
        compile_ms: what compiling took; 0 where it was compiled before.
    """

    name: str
    arch: str
    cubin: bytes
    resources: Mapping[str, Resources]
    compile_ms: float = field(default=0.0, compare=False)

    @property
    def registers(self) -> int:
        """Of one thread, in the kernel that takes most; 0 where nothing is known."""
        return max((used.registers for used in self.resources.values()), default=0)

    @property
    def spill_bytes(self) -> int:
        """Written to local memory by one thread of each kernel, for want of registers."""
        return sum(used.spill_store_bytes for used in self.resources.values())

    @property
    def static_shared_bytes(self) -> int:
        """Of one block, in the kernel that takes most."""
        return max((used.static_shared_bytes for used in self.resources.values()), default=0)

    def pack(self) -> bytes:
        """Everything but the name, which does not belong to the content, as bytes."""
        about = {"arch": self.arch, "resources": {symbol: asdict(used) for symbol, used in self.resources.items()}}
        head = json.dumps(about, sort_keys=True).encode()
        return b"%d\n%s" % (len(head), head) + self.cubin

    @classmethod
    def unpack(cls, name: str, packed: bytes) -> Compiled:
        """The inverse of `pack`."""
        length, _, rest = packed.partition(b"\n")
        about = json.loads(rest[: int(length)])
        resources = {symbol: Resources(**used) for symbol, used in about["resources"].items()}
        return cls(name, about["arch"], rest[int(length) :], resources)


class Compiler(Protocol):
    """Turns CUDA C++ into machine code."""

    @property
    def version(self) -> str:
        """Which compiler, in all that can change its output but its options."""
        ...

    @property
    def options(self) -> str:
        """Its options, but for the architecture."""
        ...

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        """Compiles one source. Raises CompileError with the compiler's own text."""
        ...


def compile_each(compiler: Compiler, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
    """Compiles sources, name and text of each, one after another: what was compiled, or why it was not."""
    for name, text in items:
        try:
            yield compiler.compile(name, text, arch)
        except CompileError as error:
            yield error


_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FUNCTION = re.compile(r"Function properties for (\S+)")
_LOCAL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(.*)")


def read_ptxas(log: str) -> dict[str, Resources]:
    """What `ptxas -v` says about every kernel, by symbol.

    Functions that a kernel calls have lines of their own: their spills count for no kernel, their stack for its caller.

    Raises:
        GenError: a kernel is named without what it uses; this ptxas writes another form.
    """
    kernels: dict[str, Resources] = {}
    local: dict[str, tuple[int, int, int]] = {}
    entry = function = ""
    named: list[str] = []
    for line in log.splitlines():
        if found := _ENTRY.search(line):
            entry = found[1]
            named.append(entry)
        elif found := _FUNCTION.search(line):
            function = found[1]
        elif found := _LOCAL.search(line):
            local[function] = (int(found[1]), int(found[2]), int(found[3]))
        elif (found := _USED.search(line)) and entry in local:
            frame, stores, loads = local[entry]
            stack = max(frame, _bytes(found[2], "cumulative stack size"))
            shared, constant = _bytes(found[2], "smem"), _bytes(found[2], r"cmem\[\d+\]")
            kernels[entry] = Resources(int(found[1]), stores, loads, stack, shared, constant)
    for symbol in named:
        if symbol not in kernels:
            raise GenError("The log of ptxas", f"must say what {symbol} uses", log)
    return kernels


def _bytes(text: str, what: str) -> int:
    return sum(map(int, re.findall(rf"(\d+) bytes {what}", text)))


INSTRUCTION_BYTES = 16  # since sm_70
_TEXT = ".text."
_CODE = (_TEXT, ".nv.constant", ".nv.shared.", ".nv.global")


def code_digest(cubin: bytes, symbol: str) -> str:
    """A digest of what runs: instructions, constants, and the sizes of shared and global memory.

    The whole file is never the same: it holds the kernel's name.

    Args:
        cubin: an ELF file of 64 bits.
        symbol: what the kernels' names begin with; what follows it tells those of one file apart.
    """
    if not elf.is_elf(cubin):  # of another kind: all of it counts
        return hashlib.sha256(cubin).hexdigest()
    digest = hashlib.sha256()
    for section in sorted(elf.read(cubin).sections, key=lambda one: one.name):
        if section.name.startswith(_CODE):
            name = section.name.replace(symbol, "").encode()
            for part in (name, str((section.info >> 24, section.size)).encode(), section.content):
                digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()


def instructions(cubin: bytes) -> dict[str, int]:
    """How many instructions there are in the machine code of each kernel, by symbol; padding counts."""
    sections = elf.read(cubin).sections if elf.is_elf(cubin) else ()
    return {
        section.name.removeprefix(_TEXT): section.size // INSTRUCTION_BYTES
        for section in sections
        if section.name.startswith(_TEXT)
    }
