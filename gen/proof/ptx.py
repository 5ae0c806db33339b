"""Inline PTX as C++ that the CPU run checks: each `asm` statement of a text is translated where it stands.

What an instruction does is derived from its own text: which memory it reads or writes, how many bytes, in which order
its operands come. So an instruction that a template has wrong does the same wrong here. What is not among the forms at
the end of this module is refused, and so is a statement that hides from the compiler what its instruction does: one
that writes memory must clobber "memory" (NVIDIA, Inline PTX Assembly, "Incorrect Optimization"). The forms are those of
the PTX ISA, 9.0; the C++ functions stand in `cuda_on_host/ptx.h`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_STRING = r'"(?:\\.|[^"\\\n])*"'
_CHARACTER = r"'(?:\\.|[^'\\\n])*'"
_COMMENT = r"//[^\n]*|/\*.*?\*/"
_ASM = re.compile(rf"{_COMMENT}|{_STRING}|{_CHARACTER}|\b(?P<asm>(?:__)?asm(?:__)?)\b(?:\s*\bvolatile\b)?", re.DOTALL)
_PIECE = re.compile(
    rf"{_COMMENT}|{_STRING}|{_CHARACTER}|(?P<open>[(\[{{])|(?P<close>[)\]}}])|(?P<mark>[:,])", re.DOTALL
)
_TO_DROP = re.compile(rf"(?P<kept>{_STRING}|{_CHARACTER})|{_COMMENT}", re.DOTALL)
_STRINGS = re.compile(rf"\s*(?:{_STRING}\s*)+")
_OPERAND = re.compile(r'"([^"]*)"\s*\((.*)\)', re.DOTALL)
_INSTRUCTION = re.compile(r"([\w.:]+)(?:\s+([^;]*?))?\s*;")
_PLACE = re.compile(r"%(\d+)")

# The bytes of the registers that a constraint stands for, and the kinds of PTX types that they hold.
_REGISTERS = {"r": (4, "bus"), "l": (8, "bus"), "f": (4, "bf"), "d": (8, "bf")}
_VECTOR_BYTES = 16  # the longest vector of every architecture


class PtxError(ValueError):
    """An `asm` statement that the CPU run cannot execute.

    Attributes:
        line: where it begins.
    """

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        super().__init__(reason)


class _RefusalError(ValueError):
    """Why a statement is refused, before its line is known."""


@dataclass(frozen=True)
class _Operand:
    """An operand of a statement: its constraint without `=` or `+`, and the C++ expression."""

    constraint: str
    expression: str


@dataclass(frozen=True)
class _Statement:
    """An `asm` statement: its PTX, its operands, the outputs first, and whether it clobbers "memory"."""

    ptx: str
    operands: tuple[_Operand, ...]
    outputs: int
    memory: bool


@dataclass(frozen=True)
class _Instruction:
    """The instruction of a statement, as one of the forms matches it."""

    statement: _Statement
    shape: re.Match[str]
    operands: tuple[str, ...]

    def value(self, operand: str, constraints: str) -> str:
        """What `%N` holds, in C++. It must have one of these constraints."""
        found = self._find(operand)
        if found is None or found.constraint not in tuple(constraints):
            raise _RefusalError(f"{operand} must be an operand with the constraint {' or '.join(constraints)}")
        return f"cuda_on_host::in_register<'{found.constraint}'>({found.expression})"

    def assigned(self, operand: str, value: str) -> str:
        """The C++ that gives `%N` a value."""
        output = self.statement.operands[int(operand[1:])]
        return f"cuda_on_host::put_register<'{output.constraint}'>({output.expression}, {value})"

    def number(self, operand: str) -> str:
        """A number in the PTX, or `%N` with the constraint n, as a constant expression of C++."""
        found = self._find(operand)
        if found is None and operand.isdecimal():
            return f"({operand})"
        if found is None or found.constraint != "n":
            raise _RefusalError(f"{operand} must be a number, or an operand with the constraint n")
        return f"({found.expression})"

    def address(self, operand: str, constraints: str) -> str:
        """What `[%N]` holds."""
        if not re.fullmatch(r"\[\s*%\d+\s*\]", operand):
            raise _RefusalError(f"{operand} must be an address that is an operand, such as [%0]")
        return self.value(operand[1:-1].strip(), constraints)

    def elements(self, operand: str) -> tuple[tuple[str, ...], int]:
        """The `%N` of a vector `{ %0, %1 }` or of one element, and the bytes of each; all of them hold the type."""
        count, type_ = int(self.shape["vector"] or 1), self.shape["type"]
        kind, size = type_[0], int(type_[1:]) // 8
        names = _separate(operand[1:-1]) if operand.startswith("{") else (operand,)
        if len(names) != count or operand.startswith("{") != (count > 1):
            raise _RefusalError(f"{operand} must be as many operands as are moved, {count}")
        if count * size > _VECTOR_BYTES:
            raise _RefusalError(f"a vector must have at most {_VECTOR_BYTES} bytes, not {count * size}")
        for name in names:
            self.value(name, "".join(c for c, (held, kinds) in _REGISTERS.items() if held == size and kind in kinds))
        return names, size

    def policy(self) -> str:
        """The check of the cache policy, the last operand of an instruction with `.L2::cache_hint`."""
        return f"cuda_on_host::check_policy({self.value(self.operands[-1], 'l')}); " if self.shape["hint"] else ""

    def _find(self, operand: str) -> _Operand | None:
        found = _PLACE.fullmatch(operand)
        if found is None:
            return None
        if int(found[1]) >= len(self.statement.operands):
            raise _RefusalError(f"the statement has no operand {operand}")
        return self.statement.operands[int(found[1])]


def translated(text: str) -> str:
    """The text of a variant with each `asm` statement as C++, every line at its place.

    Raises PtxError for a statement that cannot be executed.
    """
    parts, end = [], 0
    for found in _ASM.finditer(text):
        if found["asm"] is None or found.start() < end:
            continue
        try:
            if found["asm"] != "asm":
                raise _RefusalError(f"`{found['asm']}` is no word of CUDA: write `asm`")
            statement, stop = _statement(text, found.end())
            code = _code(statement)
        except _RefusalError as refusal:
            raise PtxError(text.count("\n", 0, found.start()) + 1, str(refusal)) from refusal
        parts += [text[end : found.start()], code, *re.findall(r"\\?\n", text[found.start() : stop])]
        end = stop
    return "".join((*parts, text[end:]))


def _statement(text: str, start: int) -> tuple[_Statement, int]:
    """The statement whose `asm` ends at `start`, and where it ends."""
    opening = re.compile(r"\s*\(").match(text, start)
    if opening is None:
        raise _RefusalError("between `asm` and its bracket nothing but `volatile` is known")
    sections = [[""]]
    depth, place = 1, opening.end()
    while depth:
        found = _PIECE.search(text, place)
        if found is None:
            raise _RefusalError("the bracket of the `asm` statement does not close")
        before, piece, place = text[place : found.start()], found[0], found.end()
        depth += 1 if found["open"] else -1 if found["close"] else 0
        sections[-1][-1] += before
        if depth == 1 and piece == ":":
            sections.append([""])
        elif depth == 1 and piece == ",":
            sections[-1].append("")
        elif depth:
            sections[-1][-1] += piece
    if re.search(r"^\s*#", text[start:place], re.MULTILINE):
        raise _RefusalError("an `asm` statement must have no directives in it")
    parts = [_in_one_line(section) for section in sections]
    templates, outputs, inputs, clobbers = [*parts, [], [], []][:4]
    if len(templates) != 1 or not _STRINGS.fullmatch(templates[0]) or any(parts[4:]):
        raise _RefusalError("an `asm` statement must be a text in quotes, outputs, inputs and clobbers")
    ptx = _contents(templates[0])
    mark = "=" if ptx else "+"  # what no instruction writes keeps its value
    operands = [_operand(one, mark, "rlfd") for one in outputs] + [_operand(one, "", "rlfdn") for one in inputs]
    return _Statement(ptx, tuple(operands), len(outputs), '"memory"' in clobbers), place


def _in_one_line(section: list[str]) -> list[str]:
    """The parts of a section, without comments and line ends; none where it is empty."""
    parts = [_TO_DROP.sub(lambda found: found["kept"] or " ", part) for part in section]
    parts = [re.sub(r"\\?\n", " ", part).strip() for part in parts]
    return [] if parts == [""] else parts


def _operand(text: str, mark: str, letters: str) -> _Operand:
    found = _OPERAND.fullmatch(text)
    if found is None or found[1] not in {mark + letter for letter in letters}:
        known = ", ".join(f'"{mark}{letter}"' for letter in letters)
        raise _RefusalError(f"`{text}` must be one of the constraints {known} and an expression in brackets")
    return _Operand(found[1].removeprefix(mark), found[2].strip())


def _contents(strings: str) -> str:
    """What the strings of a text say together, white space as one blank."""
    text = "".join(string[1:-1] for string in re.findall(_STRING, strings))
    text = text.replace("\\n", " ").replace("\\t", " ")
    return " ".join(text.split())


def _separate(operands: str) -> tuple[str, ...]:
    """The operands of an instruction: split at commas outside braces."""
    return tuple(part.strip() for part in re.findall(r"(?:\{[^}]*\}|[^,{])+", operands))


def _code(statement: _Statement) -> str:
    """The statement in C++, without the semicolon that follows it."""
    if not statement.ptx:  # for the compiler alone: nothing is executed
        kept = [f"cuda_on_host::keep_register<'{one.constraint}'>({one.expression})" for one in statement.operands]
        return ", ".join(kept) or "static_cast<void>(0)"
    try:
        return _code_of_instruction(statement)
    except _RefusalError as refusal:
        raise _RefusalError(f"`{statement.ptx}`: {refusal}") from refusal


def _code_of_instruction(statement: _Statement) -> str:
    found = _INSTRUCTION.fullmatch(statement.ptx)
    if found is None:
        raise _RefusalError("the text must be one instruction that ends in a semicolon")
    matches = ((form, re.fullmatch(form.pattern, found[1])) for form in _FORMS)
    form, shape = next(((form, shape) for form, shape in matches if shape), (None, None))
    if form is None or shape is None:
        known = ", ".join(form.name for form in _FORMS)
        raise _RefusalError(f"the CPU run does not know this form of PTX; it knows forms of {known}")
    instruction = _Instruction(statement, shape, _separate(found[2] or ""))
    hinted = bool(shape.groupdict().get("hint"))
    if len(instruction.operands) - hinted not in form.operands:
        raise _RefusalError(f"the instruction does not take {len(instruction.operands)} operands")
    if form.writes_memory and not statement.memory:
        raise _RefusalError('the statement must clobber "memory", which the instruction writes or waits for')
    written = _PLACE.findall(instruction.operands[0]) if form.has_output else []
    if sorted(written) != sorted(map(str, range(statement.outputs))):
        raise _RefusalError("the outputs of the statement must be what the instruction writes")
    arch = 80 if hinted else form.arch
    since = f'static_assert(__CUDA_ARCH__ >= {arch}0, "{form.name} in this form needs sm_{arch} or later")'
    return f"do {{ {since}; {form.code(instruction)}; }} while (0)"


def _load(load: _Instruction) -> str:
    names, size = load.elements(load.operands[0])
    # A compiler that does not know of the access may move it to before or behind what the kernel writes.
    read_only = load.shape["nc"] or not load.statement.memory
    function = f"cuda_on_host::load_global<{size}, {len(names)}, {'true' if read_only else 'false'}>"
    parts = [f"{load.policy()}const auto cuda_on_host_loaded = {function}({load.address(load.operands[1], 'l')})"]
    parts += [load.assigned(name, f"cuda_on_host_loaded.at[{place}]") for place, name in enumerate(names)]
    return "; ".join(parts)


def _store(store: _Instruction) -> str:
    names, _ = store.elements(store.operands[1])
    values = ", ".join(store.value(name, "rlfd") for name in names)
    return f"{store.policy()}cuda_on_host::store_global({store.address(store.operands[0], 'l')}, {values})"


def _load_flags(load: _Instruction) -> str:
    names, size = load.elements(load.operands[0])
    acquire = "true" if load.shape["order"] == "acquire" else "false"
    function = f"cuda_on_host::load_flags<{size}, {len(names)}, {acquire}>"
    parts = [f"const auto cuda_on_host_loaded = {function}({load.address(load.operands[1], 'l')})"]
    parts += [load.assigned(name, f"cuda_on_host_loaded.at[{place}]") for place, name in enumerate(names)]
    return "; ".join(parts)


def _store_flags(store: _Instruction) -> str:
    names, _ = store.elements(store.operands[1])
    values = ", ".join(store.value(name, "rl") for name in names)
    function = f"cuda_on_host::store_flags<{'true' if store.shape['order'] == 'release' else 'false'}>"
    return f"{function}({store.address(store.operands[0], 'l')}, {values})"


def _copy(copy: _Instruction) -> str:
    to, source, size, *rest = copy.operands
    read = [copy.value(rest[0], "r")] if len(rest) > bool(copy.shape["hint"]) else []
    least = 16 if copy.shape["operator"] == "cg" else 4
    arguments = ", ".join([copy.address(to, "rl"), copy.address(source, "l"), *read])
    return f"{copy.policy()}cuda_on_host::copy_async<{copy.number(size)}, {least}>({arguments})"


def _create_policy(create: _Instruction) -> str:
    policy, fraction = create.operands
    create.value(policy, "l")
    if not re.fullmatch(r"1\.0+|0\.0*[1-9]\d*", fraction):
        raise _RefusalError(f"{fraction} must be a fraction over 0.0 and at most 1.0")
    return create.assigned(policy, "cuda_on_host::kPolicy")


def _apply_priority(apply: _Instruction) -> str:
    address, size = apply.operands
    if size != "128":
        raise _RefusalError(f"the size must be 128, not {size}")
    return f"cuda_on_host::apply_priority({apply.address(address, 'l')})"


@dataclass(frozen=True)
class _Form:
    """Instructions of one kind.

    Attributes:
        name: what messages call them.
        pattern: of the name with all its modifiers.
        operands: how many they may have, beside a cache policy.
        code: makes C++ of one.
        arch: the first architecture that has them; a cache hint needs sm_80.
        has_output: whether the first operand is written.
        writes_memory: whether memory is written, or what writes it is ended or waited for.
    """

    name: str
    pattern: str
    operands: tuple[int, ...]
    code: Callable[[_Instruction], str]
    arch: int = 80
    has_output: bool = False
    writes_memory: bool = True


_EVICT = (
    r"(?:\.L1::(?:evict_normal|evict_unchanged|evict_first|evict_last|no_allocate))?"
    r"(?:\.L2::(?:evict_normal|evict_first|evict_last))?(?P<hint>\.L2::cache_hint)?"
)
_FETCH = r"(?:\.L2::(?:64|128|256)B)?"
_TYPE = r"(?:\.v(?P<vector>[24]))?\.(?P<type>[bus](?:32|64)|f32|f64)"
_FLAG_TYPE = r"(?:\.v(?P<vector>[24]))?\.(?P<type>[bu](?:32|64))"
_FORMS = (
    _Form("ld.global", rf"ld\.global(?:\.c[ags])?(?P<nc>\.nc)?{_EVICT}{_FETCH}{_TYPE}", (2,), _load,
          arch=70, has_output=True, writes_memory=False),
    _Form("st.global", rf"st\.global(?:\.wb|\.c[gs])?{_EVICT}{_TYPE}", (2,), _store, arch=70),
    _Form("ld.acquire", rf"ld\.(?P<order>acquire|relaxed)\.gpu\.global{_FLAG_TYPE}", (2,), _load_flags,
          arch=70, has_output=True),
    _Form("st.release", rf"st\.(?P<order>release|relaxed)\.gpu\.global{_FLAG_TYPE}", (2,), _store_flags, arch=70),
    _Form("cp.async", rf"cp\.async\.(?P<operator>c[ag])\.shared(?:::cta)?\.global(?P<hint>\.L2::cache_hint)?{_FETCH}",
          (3, 4), _copy),
    _Form("cp.async.commit_group", r"cp\.async\.commit_group", (0,), lambda _: "cuda_on_host::commit_copies()"),
    _Form("cp.async.wait_group", r"cp\.async\.wait_group", (1,),
          lambda wait: f"cuda_on_host::wait_for_groups<{wait.number(wait.operands[0])}>()"),
    _Form("cp.async.wait_all", r"cp\.async\.wait_all", (0,), lambda _: "cuda_on_host::wait_for_all_copies()"),
    _Form("createpolicy", r"createpolicy\.fractional\.L2::evict_(?:normal|first|last|unchanged)\.b64", (2,),
          _create_policy, has_output=True, writes_memory=False),
    _Form("applypriority", r"applypriority\.global\.L2::evict_normal", (2,), _apply_priority),
)  # fmt: skip
