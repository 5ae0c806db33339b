"""Machine code as instructions, by nvdisasm, of gen's extra `sass` or a CUDA toolkit."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gen.dtypes import LoadModifier, StoreModifier
from gen.errors import CompileError
from gen.families.config import Config
from gen.toolchain.headers import find_program

_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")


def disassembler() -> Path | None:
    """nvdisasm, if it is installed."""
    return find_program("nvdisasm")


def instructions(cubin: bytes, program: Path) -> dict[str, Counter[str]]:
    """How often each instruction stands in each kernel: `LDG.E.EF`, `STS`, `BAR.SYNC.DEFER_BLOCKING`.

    Raises CompileError if nvdisasm cannot read the code.
    """
    return parse(listing(cubin, program))


def listing(cubin: bytes, program: Path) -> str:
    """What nvdisasm prints of machine code. Raises CompileError if it cannot read the code."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code.cubin")
        file.write_bytes(cubin)
        done = subprocess.run([program, "-c", file], check=False, capture_output=True, text=True)
        if done.returncode:
            raise CompileError("nvdisasm", done.stderr.strip() or "failed", file)
    return done.stdout


def parse(text: str) -> dict[str, Counter[str]]:
    """The instructions of each kernel in what nvdisasm prints; padding after the last branch is left out."""
    starts = list(_SECTION.finditer(text))
    found: dict[str, Counter[str]] = {}
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        body = text[start.end() : end.start() if end else len(text)]
        opcodes = Counter(match[1] for match in _INSTRUCTION.finditer(body))
        opcodes.pop("NOP", None)
        found[start[1]] = opcodes
    return found


# How cache operators are spelled in machine code, after the instruction: `.EF` evicts first, `.STRONG.GPU` bypasses the
# first-level cache, `.CONSTANT` takes the read-only path.
CACHE_OPERATORS = {
    "__ldcs": (".EF",),
    "__ldcg": (".STRONG.GPU",),
    "__ldg": (".CONSTANT",),
    "__ldlu": (".LU",),
    "__ldcv": (".STRONG.SYS",),
    "__stcs": (".EF",),
    "__stcg": (".STRONG.GPU",),
    "__stwt": (".STRONG.SYS",),
}


def holds_operator(opcodes: Counter[str], intrinsic: str) -> bool:
    """Whether a global load, or store, of the kind that a CUDA intrinsic asks for is among the instructions."""
    kind = "LDG" if intrinsic.startswith("__ld") else "STG"
    return any(
        opcode.startswith(kind) and any(mark in opcode for mark in CACHE_OPERATORS[intrinsic]) for opcode in opcodes
    )


def asked_for(config: Config, opcodes: Counter[str]) -> Iterator[str]:
    """Whether the cache operators that a config asks for are in the machine code, in words."""
    for value in vars(config).values():
        intrinsic = value.intrinsic if isinstance(value, LoadModifier | StoreModifier) else ""
        if intrinsic in CACHE_OPERATORS:
            kind = "loads" if isinstance(value, LoadModifier) else "stores"
            there = "is" if holds_operator(opcodes, intrinsic) else "is not"
            marks = ", ".join(CACHE_OPERATORS[intrinsic])
            yield f"Its {kind} ask for {intrinsic}, which {there} in the machine code ({marks})."
        elif value is LoadModifier.EVICT_LAST:
            there = "is" if any(one.startswith("LDG") and ".EL" in one for one in opcodes) else "is not"
            yield f"What its loads bring is to leave the caches last, which {there} in the machine code (.EL)."
        elif value is StoreModifier.EVICT_LAST:
            yield "What its stores write is to leave the L2 last, by a policy that no opcode shows."
