"""What went wrong in a run, in words: the kernel, the line, the thread, the element."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from gen.emit.launch import without_comments
from gen.errors import RunError
from gen.proof.code import Code, Kernel
from gen.proof.native import DYNAMIC_SHARED, KINDS, RULES, STATIC_SHARED, DivergentBarrier, Fault

_BARRIER = re.compile(r"\b(?:__syncthreads\w*|__barrier_sync\w*|__cluster_barrier_wait|sync)\s*\(|\bbarrier\.")
_CALL = re.compile(r"\b(?!(?:if|for|while|switch|return|sizeof)\b)([A-Za-z_]\w*)\s*(?:<[^;(){}]*>\s*)?\(")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^)\n]*\))?((?:\\\n|[^\n])*)", re.MULTILINE)
_DEEP = 8  # macros in macros, functions in functions


def called_twice(text: str, line: str) -> str | None:
    """A function of the text that a line of it calls more than once, and in which there is a barrier; None without."""
    plain = without_comments(text)
    macros = {match[1]: match[2].replace("\\\n", " ") for match in _MACRO.finditer(plain)}
    for _ in range(_DEEP):
        expanded = re.sub(r"\b[A-Za-z_]\w*", lambda word: macros.get(word[0], word[0]), without_comments(line))
        if expanded == line:
            break
        line = expanded
    names = _CALL.findall(line)
    for name in dict.fromkeys(names):
        if names.count(name) > 1 and _has_barrier(plain, name, _DEEP):
            return str(name)
    return None


def _has_barrier(text: str, name: str, depth: int) -> bool:
    """Whether any function of this name holds a barrier, or calls one that does."""
    bodies = [body for body in _bodies(text, name) if depth]
    return any(
        _BARRIER.search(body)
        or any(_has_barrier(text, called, depth - 1) for called in set(_CALL.findall(body)) - {name})
        for body in bodies
    )


def _bodies(text: str, name: str) -> list[str]:
    """What stands between the braces of the functions and lambdas of this name."""
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}\s*(?:\([^;{{}}]*\)[^;{{}}]*|=\s*\[[^;{{}}]*)\{{", text):
        depth, place = 1, match.end()
        while depth and place < len(text):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        found.append(text[match.end() : place])
    return found


class HostFault(RunError):  # noqa: N818 - it names what happened
    """A rule that a kernel broke, and where.

    Attributes:
        kind: one of `gen.proof.native.KINDS`.
        kernel: the symbol of the kernel.
        block: coordinates of the block.
        thread: coordinates of the thread in its block.
        line: the line of the emitted file; 0 if it is not known.
        source: the text of that line.
        buffer: the operand, scratch buffer or shared array concerned; empty if there is none.
        offset: bytes from the buffer's first byte.
    """

    def __init__(self, rule: str, value: str, *, kind: str, kernel: str, block: tuple[int, int, int],
                 thread: tuple[int, int, int], line: int, source: str, buffer: str, offset: int) -> None:  # fmt: skip
        super().__init__(kernel, rule, value)
        self.kind = kind
        self.kernel = kernel
        self.block = block
        self.thread = thread
        self.line = line
        self.source = source
        self.buffer = buffer
        self.offset = offset


@dataclass(frozen=True)
class Place:
    """A buffer of a launch, as a message names it."""

    name: str
    bytes: int
    element_bytes: int = 0  # 0: not known


def explain(fault: Fault, code: Code, kernel: Kernel, places: Sequence[Place], dynamic_bytes: int) -> HostFault:
    """The error for a fault of a launch; `places` are its buffers in the runtime's order."""
    kind = KINDS[fault.kind]
    lines = [int(fault.line)] if fault.line else _lines(code, int(fault.pc))
    line = lines[0] if lines else 0
    source = _source(code, line)
    place, offset = _place(fault, kernel, places, dynamic_bytes)
    rule = f"{RULES[kind]} at {code.called}:{line}: `{source}`"
    if len(lines) > 1:
        rule += f" (called at line {lines[-1]}: `{_source(code, lines[-1])}`)"
    thread, block = fault.thread.as_tuple(), fault.block.as_tuple()
    value = f"thread {thread} of block {block}"
    text = fault.text.decode("utf-8", "replace")
    if place is not None:
        size = f"{fault.bytes} bytes of " if fault.bytes else ""
        value += f": {size}{place.name}, {_position(offset, place)}"
    elif kind.startswith("out-of-bounds"):  # nowhere near a buffer: all that is known is the address
        value += f": address {int(fault.offset) & 2**64 - 1:#x}"
    if kind == "barrier":
        value += f" waits there, thread {fault.other_thread.as_tuple()} did not come: it {text}"
    elif fault.other_pc and kind in ("race", "read-only path", "copy in flight"):
        value += f", {text} {_other(fault, code)}"
    elif text:
        value += f": {text}"
    return HostFault(
        rule, value, kind=kind, kernel=kernel.name, block=block, thread=thread, line=line, source=source,
        buffer=place.name if place else "", offset=offset if place else 0,
    )  # fmt: skip


def explain_undefined(fault: Fault, code: Code) -> str:
    """Where a launch that ended well first got an undefined value."""
    lines = _lines(code, int(fault.pc))
    place = f"{code.called}:{lines[0]}: `{_source(code, lines[0])}`: " if lines else ""
    text = fault.text.decode("utf-8", "replace")
    return f"{place}thread {fault.thread.as_tuple()} of block {fault.block.as_tuple()}: {text}"


def explain_divergent_barrier(barrier: DivergentBarrier, code: Code, kernel: Kernel) -> HostFault | None:
    """The error for threads that met at a barrier; None where they came by the same lines, of which g++ made copies."""
    ways = (barrier.way, barrier.other_way)
    way, other = ([line for pc in pcs if pc for line in _lines(code, int(pc))] for pcs in ways)
    if not way or not other:
        return None
    called = [name for line in way if (name := called_twice(code.text, _source(code, line)))] if way == other else []
    if way == other and not called:
        return None

    def steps(lines: Sequence[int]) -> str:
        return "lines " + ", ".join(map(str, reversed(lines)))

    source = _source(code, way[0])
    thread, block = barrier.thread.as_tuple(), barrier.block.as_tuple()
    how = (
        f"the same, of which one calls {called[0]} more than once: give each call a line of its own"
        if called
        else f"{steps(other)}: these are two barriers"
    )
    value = f"thread {thread} of block {block} comes there by {steps(way)}, thread {barrier.other_thread.as_tuple()} by"
    return HostFault(
        f"{RULES['barrier']} at {code.called}:{way[0]}: `{source}`", f"{value} {how}",
        kind="barrier", kernel=kernel.name, block=block, thread=thread, line=way[0], source=source, buffer="", offset=0,
    )  # fmt: skip


@dataclass(frozen=True)
class Line:
    """A line of the emitted file, and that of the kernel from which it is reached by calls; the same without any."""

    number: int
    text: str
    called_from: int


def locate(code: Code, pc: int) -> Line:
    """Where a return address lies: the innermost function's line. 0 where it is not known."""
    lines = _lines(code, pc)
    return Line(lines[0], _source(code, lines[0]), lines[-1]) if lines else Line(0, "", 0)


def _other(fault: Fault, code: Code) -> str:
    """The thread that got in the way, and where."""
    block, lines = fault.other_block.as_tuple(), _lines(code, int(fault.other_pc))
    name = f"thread {fault.other_thread.as_tuple()}"
    if block != fault.block.as_tuple():
        name += f" of block {block}"
    name += f" at line {lines[0]}" if lines else ""
    if KINDS[fault.kind] == "race" and block != fault.block.as_tuple():
        if int(fault.buffer) in (STATIC_SHARED, DYNAMIC_SHARED):
            name += "; no barrier of their cluster orders the two"
        else:
            name += "; no __threadfence and atomic there, atomic and __threadfence here, order the two"
            name += " (volatile accesses are no atomics: in CUDA C++ they order nothing)"
    return name


def _position(offset: int, place: Place) -> str:
    """Where in a buffer, in elements too where their size is known."""
    if not place.element_bytes:
        return f"byte {offset} of {place.bytes}"
    element, rest = divmod(offset, place.element_bytes)
    inside = f" + {rest} bytes" if rest else ""
    return f"element {element}{inside} of {place.bytes // place.element_bytes}, byte {offset}"


def _place(fault: Fault, kernel: Kernel, places: Sequence[Place], dynamic_bytes: int) -> tuple[Place | None, int]:
    """The buffer a fault concerns, and the byte in it."""
    number, offset = int(fault.buffer), int(fault.offset)
    if number == DYNAMIC_SHARED:
        return Place("shared_bytes", dynamic_bytes), offset
    if number == STATIC_SHARED:
        before = [variable for variable in kernel.shared if variable.start <= offset] or list(kernel.shared)
        if not before:
            return Place("shared memory", kernel.shared_bytes), offset
        variable = max(before, key=lambda variable: variable.start)
        return Place(variable.name, variable.bytes), offset - variable.start
    if number >= 0:
        return places[number], offset
    return None, 0


def _source(code: Code, line: int) -> str:
    lines = code.text.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def _lines(code: Code, pc: int) -> list[int]:
    """The lines of the emitted file that led to a return address: the innermost function's first."""
    tool = shutil.which("addr2line")
    offset = pc - 1 - code.base
    if tool is None or offset < 0:
        return []
    arguments = [tool, "-i", "-e", str(code.library), hex(offset)]
    found = subprocess.run(arguments, check=False, capture_output=True, text=True, errors="replace").stdout
    name = re.escape(f"{code.name}.cu")
    return [int(match[1]) for match in re.finditer(rf"(?:^|/){name}:(\d+)", found, re.MULTILINE)]
