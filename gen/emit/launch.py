"""A plan as functions for the host, which stand at the end of an emitted file: what scratch memory takes, and a call.

NVRTC, and so gen itself, skips them: they are for a program that includes the file and is compiled by nvcc. What a
kernel takes they read from its text, by functions that stand last here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gen.arch import STATIC_SHARED_BYTES
from gen.families.base import Launch, Operand, Plan, Variant
from gen.families.expr import Expr
from gen.families.plans import TIME

HOST_ONLY = "#if defined(__CUDACC__) && !defined(__CUDACC_RTC__)"
"""The line from which on a file holds nothing that decides what the GPU executes."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Function:
    """A function of C++: comment, what stands before its parameters, these, and the lines of its body."""

    comment: str
    head: str
    parameters: tuple[str, ...]
    body: tuple[str, ...]


def functions(made: Variant, text: str, width: int) -> tuple[Function, ...]:
    """A function for each scratch memory, and `launch`; none where the text lacks a kernel of the plan.

    Args:
        made: the variant.
        text: its kernels.
        width: the most columns of a line, where a name does not take more.
    """
    kernels = _kernels(made, text)
    return tuple(_Writer(made, kernels, width).functions()) if len(kernels) == len(made.plan.launches) else ()


def names_in_header(made: Variant, text: str) -> Mapping[Expr, str]:
    """Names for parts of a plan's expressions where the header tells of it: those of the variables of `launch`.

    A grid, or a number of bytes, that stands there only once needs none.
    """
    plan = made.plan
    names = _names(plan, _taken(made), _kernels(made, text))
    shapes = [value for launch in plan.launches for value in (launch.grid[0], launch.shared_bytes)]
    inner = {part for one in expressions(plan) for operand in one.operands for part in operand.parts()}
    arguments = {one[1] for launch in plan.launches for one in launch.arguments if not isinstance(one, str)}
    for value in shapes:
        if not value.word and value not in arguments and value not in inner and shapes.count(value) == 1:
            names.pop(value, None)
    return names


def _kernels(made: Variant, text: str) -> list[tuple[str, ...]]:
    """The parameters of each launch's kernel, but of those that the text lacks."""
    plain = without_comments(text)
    found = [parameters(plain, made.name + launch.entry) for launch in made.plan.launches]
    return [taken for taken in found if taken is not None]


def _taken(made: Variant) -> set[str]:
    """Names that no variable of `launch` may have: of its parameters, and of what it counts."""
    sizes = {size for one in expressions(made.plan) for size in one.names()}
    operands, scratch = (one.name for one in made.spec.operands), (one.name for one in made.plan.scratch)
    return {*sizes, *operands, *scratch, "stream", TIME.name}


def _names(plan: Plan, taken: Collection[str], kernels: Sequence[tuple[str, ...]]) -> dict[Expr, str]:
    """Names for what is computed: the words of a plan, and those of kernels' parameters, grids and shared memory."""
    names = {part: part.word for one in expressions(plan) for part in one.parts() if part.word}
    values: dict[str, Expr] = {}
    for launch, parameters in zip(plan.launches, kernels, strict=False):
        for argument, parameter in zip(launch.arguments, parameters, strict=False):
            if not isinstance(argument, str):
                values.setdefault(_split(parameter)[1], argument[1])
    for launch in plan.launches:
        values.setdefault(f"blocks{launch.entry}", launch.grid[0])
        values.setdefault(f"shared_bytes{launch.entry}", launch.shared_bytes)
    for name, value in values.items():
        if value.operator is None or TIME.name in value.names():
            continue
        if name not in taken and name not in names.values():
            names.setdefault(value, name)
    return names


class _Writer:
    """Writes the functions of one variant; `kernels` has the parameters of each launch's kernel."""

    def __init__(self, made: Variant, kernels: Sequence[tuple[str, ...]], width: int) -> None:
        self._made, self._plan, self._kernels, self._width = made, made.plan, kernels, width
        self._operands = {operand.name: operand for operand in made.spec.operands}
        self._moved = {name for launch in self._plan.launches for pair in launch.swap for name in pair}
        self._types: dict[str, str] = {}  # of what a kernel takes by name, the first that does: `const float*`
        self._sizes: list[str] = []
        for launch, taken in zip(self._plan.launches, kernels, strict=True):
            for argument, parameter in zip(launch.arguments, taken, strict=False):
                if isinstance(argument, str):
                    self._types.setdefault(argument, _split(parameter)[0])
                elif argument[1].operator is None:
                    self._sizes.append(argument[1].name)
        named = {size for one in expressions(self._plan) for size in one.names()}
        named.discard(TIME.name)
        self._sizes = [size for size in dict.fromkeys([*self._sizes, *sorted(named)]) if size in named]
        self._sizes.sort(key=lambda size: size == "multiprocessors")  # what the device has comes last
        self._names = _names(self._plan, _taken(made), kernels)  # what is computed once, in a variable
        self._number = 0
        for one in expressions(self._plan):
            for part in one.parts():
                self._shorten(part)

    def functions(self) -> Iterator[Function]:
        """All of them."""
        for scratch in self._plan.scratch:
            state = ", 0 before the first launch; each leaves it 0" if scratch.zeroed else ""
            sizes = scratch.bytes.names()
            yield Function(
                f"// The bytes of {scratch.name}, scratch memory for launch(){state}.",
                f"inline long long {scratch.name}_bytes",
                tuple(f"long long {size}" for size in self._sizes if size in sizes),
                (*self._variables((scratch.bytes,)), f"  return {self._text(scratch.bytes)};"),
            )  # fmt: skip
        taken = [operand for operand in self._operands.values() if operand.name in self._types]
        yield Function(
            "// The launches that the header tells of, on a stream.", "inline cudaError_t launch",
            (
                *map(self._parameter, taken), *(f"void* {scratch.name}" for scratch in self._plan.scratch),
                *(f"long long {size}" for size in self._sizes), "cudaStream_t stream",
            ), tuple(self._body()),
        )  # fmt: skip

    def _parameter(self, operand: Operand) -> str:
        """Of an operand. Elements that are only moved may be of any type of their size."""
        if operand.role == "number":
            return f"{self._types[operand.name]} {operand.name}"
        element = "void" if operand.dtype.kind == "bits" else operand.dtype.cuda
        return f"{'const ' if operand.role == 'in' else ''}{element}* {operand.name}"

    def _body(self) -> Iterator[str]:
        yield from self._variables(expressions(self._plan, scratch=False))
        for name in (name for name in self._types if name in self._moved):
            kind = f"{_element(self._types[name])}*"
            if name in self._operands and self._operands[name].role == "in":
                yield f"  {kind} now_{name} = const_cast<{kind}>({name});  // it is only read"
            else:
                yield f"  {kind} now_{name} = {self._converted(name, kind)};"
        yield from self._demands()
        kernels = iter(self._kernels)
        for turn in self._plan.turns():
            times = turn[0].times
            is_repeated = str(times) != "1"
            if is_repeated:
                yield f"  for (long long {TIME.name} = 0; {TIME.name} < {self._text(times)}; ++{TIME.name}) {{"
            for launch in turn:
                yield from self._launch(launch, next(kernels), "    " if is_repeated else "  ")
            if is_repeated:
                yield "  }"
        yield "  return cudaGetLastError();"

    def _demands(self) -> Iterator[str]:
        """What a kernel may not have unless it is asked for: much shared memory, many launches of its own that wait."""
        calls: dict[str, None] = {}
        for launch in self._plan.launches:
            if str(launch.waiting) != "0":
                calls[f"cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, {self._text(launch.waiting)})"] = None
            fixed, kernel = launch.shared_bytes.fixed(), self._made.name + launch.entry
            if fixed is None or fixed > STATIC_SHARED_BYTES:
                limit = "cudaFuncAttributeMaxDynamicSharedMemorySize"
                calls[f"cudaFuncSetAttribute(\n      {kernel}, {limit}, {self._text(launch.shared_bytes)})"] = None
        for place, call in enumerate(calls):
            kind = "cudaError_t " if place == 0 else ""
            yield from f"  {kind}error = {call};\n  if (error != cudaSuccess) return error;".split("\n")

    def _launch(self, launch: Launch, taken: tuple[str, ...], inner: str) -> Iterator[str]:
        kernel, shared = self._made.name + launch.entry, self._text(launch.shared_bytes)
        grid = _dim3([self._text(blocks) for blocks in launch.grid])
        block = _dim3([str(threads) for threads in launch.block])
        arguments = [
            self._argument(argument, parameter) if isinstance(argument, str) else self._text(argument[1])
            for argument, parameter in zip(launch.arguments, taken, strict=False)
        ]
        call = inner
        empty = [f"{self._text(blocks)} > 0" for blocks in launch.grid if not is_positive(blocks)]
        if empty:
            yield f"{inner}if ({' && '.join(empty)}) {{"
            call += "  "
        if launch.cooperative:
            yield f"{call}cudaLaunchAttribute together{{}};  // all blocks must run at the same time"
            yield f"{call}together.id = cudaLaunchAttributeCooperative;"
            yield f"{call}together.val.cooperative = 1;"
            yield f"{call}cudaLaunchConfig_t config{{}};"
            yield f"{call}config.gridDim = {grid};"
            yield f"{call}config.blockDim = {block};"
            yield f"{call}config.dynamicSmemBytes = {shared};"
            yield f"{call}config.stream = stream;"
            yield f"{call}config.attrs = &together;"
            yield f"{call}config.numAttrs = 1;"
            yield f"{call}cudaLaunchKernelEx("
            yield from listed(["&config", kernel, *arguments], ");", call + "    ", self._width)
        else:
            yield f"{call}{kernel}<<<{grid}, {block}, {shared}, stream>>>("
            yield from listed(arguments, ");", call + "    ", self._width)
        if empty:
            yield f"{inner}}}"
        for one, other in launch.swap:
            yield f"{inner}std::swap(now_{one}, now_{other});"

    def _argument(self, name: str, parameter: str) -> str:
        """What launch() gives to a kernel that has such a parameter."""
        return f"now_{name}" if name in self._moved else self._converted(name, _split(parameter)[0])

    def _converted(self, name: str, kind: str) -> str:
        """A parameter of launch() as a kernel takes it."""
        operand = self._operands.get(name)
        is_void = operand is None or operand.dtype.kind == "bits"
        if operand is not None and (operand.role == "number" or (operand.dtype.cuda == _element(kind) and not is_void)):
            return name
        return f"{'static' if is_void else 'reinterpret'}_cast<{kind}>({name})"

    def _variables(self, some: Iterable[Expr]) -> Iterator[str]:
        """What the texts of expressions name, in order."""
        made: dict[str, str] = {}
        for one in some:
            for part in one.parts():
                if part in self._names:
                    made.setdefault(self._names[part], self._joined(part))
        yield from (f"  const long long {name} = {value};" for name, value in made.items())

    def _shorten(self, one: Expr) -> None:
        """Names parts of an expression whose text is too long."""
        parts = [operand for operand in one.operands if operand.operator is not None and operand not in self._names]
        for part in parts if len(self._joined(one)) > _LONG else ():
            self._number += 1
            self._names[part] = f"part_{self._number}"

    def _text(self, one: Expr) -> str:
        """An expression as C++ over variables of `long long`."""
        return one.text(self._names.get, "LL")

    def _joined(self, one: Expr) -> str:
        """The same, without a name for all of it."""
        return one.meaning(self._names.get, "LL")


_LONG = 60  # columns: of a longer expression parts have a line of their own


def expressions(plan: Plan, scratch: bool = True) -> Iterator[Expr]:
    """All that a plan comes to at given sizes, with or without the bytes of scratch memory."""
    for launch in plan.launches:
        yield from launch.grid
        yield launch.shared_bytes
        yield launch.times
        yield launch.waiting
        yield from (argument[1] for argument in launch.arguments if not isinstance(argument, str))
    if scratch:
        yield from (one.bytes for one in plan.scratch)


def is_positive(expression: Expr) -> bool:
    """Whether it is above 0 for all sizes, as far as its form says."""
    parts = map(is_positive, expression.operands)
    match expression.operator:
        case None:
            return expression.number > 0
        case "max" | "+":
            return any(parts)
        case "min" | "*":
            return all(parts)
    return False


def listed(some: Sequence[str], end: str, indent: str, width: int) -> Iterator[str]:
    """Lines of what commas separate."""
    line = indent
    for place, one in enumerate(some):
        added = one + (end if place == len(some) - 1 else ",")
        if line != indent and len(f"{line} {added}") > width:
            yield line
            line = indent
        line += added if line == indent else " " + added
    yield line if some else indent + end


def _dim3(extents: list[str]) -> str:
    while len(extents) > 1 and extents[-1] == "1":
        extents = extents[:-1]
    return extents[0] if len(extents) == 1 else f"dim3({', '.join(extents)})"


def _split(parameter: str) -> tuple[str, str]:
    """The type and the name of a parameter."""
    kind, _, name = parameter.replace("__restrict__", " ").rpartition(" ")
    return kind.rstrip(), name


def _element(kind: str) -> str:
    """What a pointer's type points to."""
    return kind.removeprefix("const ").rstrip(" *")


def without_comments(text: str) -> str:
    """The text, a space in the place of each comment."""
    return _COMMENT.sub(" ", text)


def parameters(text: str, kernel: str) -> tuple[str, ...] | None:
    """Each parameter of the kernel of this name as the text, without comments, has it; None where it defines none."""
    for match in re.finditer(rf"\b{re.escape(kernel)}\s*\(", text):
        found = within(text, match.end())
        if text[match.end() + len(found) + 1 :].lstrip().startswith("{"):
            return tuple(" ".join(parameter.split()) for parameter in separate(found))
    return None


def within(text: str, start: int) -> str:
    """What stands between a bracket that opens just before `start` and the one that closes it."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return text[start:place]
    return text[start:]


def separate(listed: str) -> list[str]:
    """What commas outside brackets separate."""
    parts, depth = [""], 0
    for letter in listed:
        depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts if listed.strip() else []
