"""Emitted text to code that runs on this CPU: g++ builds it once, under the checks of `cuda_on_host/`.

Twenty variants share a translation unit, since reading the headers takes longer than compiling a kernel. What is built
is found again by its content: text, entries, headers, flags, compiler.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import as_file, files
from itertools import groupby
from math import ceil
from pathlib import Path
from threading import Lock

from gen.emit.folder import MAKE_ROOM, holding, write_whole
from gen.emit.launch import HOST_ONLY
from gen.errors import CompileError, MissingToolError, StoreError
from gen.proof import ptx
from gen.proof.code import Code, Library, cluster, most_threads, plain_name
from gen.proof.native import Runtime
from gen.proof.ptx import PtxError, translated
from gen.toolchain import elf
from gen.toolchain.cache import Cache
from gen.toolchain.headers import NEEDED, headers_for_gpp, lacking, places

GAP = 1024  # bytes before each array
LINE = 128  # each begins at a multiple of that, and as many bytes further on as it is aligned to

_TYPE = r"(?:(?:unsigned|signed|long|short)(?:\s+(?:long|int|short|char))*|[A-Za-z_][\w:]*(?:<[^;{}<>]*>)?)"
_DECLARED = re.compile(rf"\b__shared__((?:\s+(?:volatile|const|__align__\([^()]*\)))*)\s+({_TYPE})(?=\s+\w+\s*[\[;,])")
_SECTION = re.compile(r"\s*\.(section|text|data|bss)\b\s*([\w.]*)")
_ALIGN = re.compile(r"\s*\.align (\d+)$")
_OBJECT = re.compile(r"\s*\.type\s+\w+, @object$")


def aligned_as_declared(text: str) -> str:
    """The text of a variant, each shared array aligned as its elements and its own `__align__` say, by no more."""
    return _DECLARED.sub(r"__shared__ __attribute__((aligned(alignof(\2))))\1 \2", text)


def set_apart(assembly: str) -> str:
    """The assembly of a unit, a gap before each variable in a section `shared_N`."""
    return "\n".join(_lines(assembly.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    shared, alignment = False, 1
    for line in lines:
        if found := _SECTION.match(line):
            shared, alignment = found[2].startswith("shared_"), 1
        elif shared and (found := _ALIGN.match(line)):
            alignment = int(found[1])
            continue
        elif shared and _OBJECT.match(line):
            apart = max(LINE, 2 * alignment)
            yield f"\t.balign {apart}\n\t.zero {-(-GAP // apart) * apart + alignment}"
            alignment = 1
        yield line


# What a line says where a disk is full; of headers that it has read g++ says no more than the last.
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "cannot write PCH file")
_INSTALL_COMPILER = "Install it, for instance with `apt install g++` or `dnf install gcc-c++`."
_INSTALL_HEADERS = "Install them with `pip install nvidia-cuda-runtime nvidia-cuda-crt`."
_log = logging.getLogger(__name__)


class Gpp:
    """g++, found when it is first needed."""

    def compile(self, arguments: Sequence[str], subject: str, source: Path) -> None:
        """Runs g++.

        Raises:
            StoreError: a disk is full, which is no fault of the source.
            CompileError: about `subject`, with what g++ said and where the refused `source` is kept.
        """
        start = time.monotonic()
        result = subprocess.run(
            [self.path, *arguments], check=False, capture_output=True, text=True, errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        _log.info("g++ on %s: %.1f s", source, time.monotonic() - start)
        if result.returncode == 0:
            return
        full = next((line for line in result.stderr.splitlines() if any(words in line for words in _FULL)), None)
        if full is not None:
            raise StoreError("g++", "cannot write what it makes", full, next_step=MAKE_ROOM)
        raise CompileError(subject, result.stderr or f"g++ ended with status {result.returncode}", source)

    @cached_property
    def path(self) -> str:
        """The program. Raises MissingToolError if there is none."""
        path = shutil.which("g++")
        if path is None:
            raise MissingToolError("g++", "is needed to run kernels on the CPU", next_step=_INSTALL_COMPILER)
        return path

    @cached_property
    def version(self) -> str:
        """What it says of itself."""
        result = subprocess.run([self.path, "--version"], check=False, capture_output=True, text=True, errors="replace")
        if result.returncode != 0:
            rule = "is needed to run kernels on the CPU, and does not run"
            raise MissingToolError(self.path, rule, result.stderr.strip(), next_step=_INSTALL_COMPILER)
        return result.stdout

    @property
    def major(self) -> int:
        """The first number of its version; 0 if it does not say."""
        found = re.search(r"(?:^|\s)(\d+)\.\d+\.\d+", self.version)  # behind what its packager calls it
        return int(found[1]) if found else 0

    @cached_property
    def cuda_headers(self) -> Path:
        """The folder of CUDA's headers, from their wheels or a toolkit. Raises MissingToolError if they lack."""
        found = headers_for_gpp()
        if found is None:
            first = next(places(), None)
            missing = NEEDED[0] if first is None else lacking(first)[0]
            rule = "are needed to run kernels on the CPU"
            raise MissingToolError("CUDA's headers", rule, f"no {missing}", next_step=_INSTALL_HEADERS)
        return found


PREFIX = "building-"
LOCKING_SECONDS = 60.0  # in which whoever has made a folder comes to lock it
ABANDONED_SECONDS = 24 * 3600.0  # after which nobody builds in a folder, where the file system knows no locks


class Workplace(tempfile.TemporaryDirectory[str]):
    """A folder in the cache that goes when its work is done: what it holds can be renamed into the cache.

    It is locked meanwhile. One that is not was left behind by a process that was killed, and goes with the next.
    """

    def __init__(self, cache: Path) -> None:
        remove_abandoned(cache)
        super().__init__(dir=cache, prefix=PREFIX)
        self._held = os.open(self.name, os.O_RDONLY)
        with suppress(OSError):  # a file system that knows no locks
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> Path:  # type: ignore[override]  # a path is what everyone needs
        return Path(super().__enter__())

    def __exit__(self, *error: object) -> None:
        os.close(self._held)
        super().__exit__(*error)  # type: ignore[arg-type]


def remove_abandoned(cache: Path) -> None:
    """Removes what processes that were killed left behind."""
    for folder in cache.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process may have removed it
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    age = time.time() - folder.stat().st_mtime
    if age < LOCKING_SECONDS:
        return False
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return age > ABANDONED_SECONDS
    finally:
        os.close(opened)
    return True


@cache
def preludes_in(folder: Path) -> Preludes:
    """Those kept in a folder, for all builders of this process."""
    return Preludes(folder)


class Preludes:
    """Headers as g++ keeps them when it has read them (`.h.gch`), beside the text it falls back on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries = Cache(folder, ".h.gch")
        self._known: dict[str, Path] = {}
        self._lock = Lock()

    def header(self, key: str, headers: Sequence[str], gpp: Gpp, arguments: Sequence[str]) -> Path:
        """The file to include, once and first, for these of the headers that not every text needs.

        Args:
            key: of all that decides what g++ makes of it.
            headers: as `Source.headers` says.
            gpp: the compiler.
            arguments: those with which units are compiled; others would not take what is kept.
        """
        with self._lock:
            if key not in self._known or not self._known[key].exists():
                kept = self._entries.file(key) or self._read(key, _text(headers), gpp, arguments)
                self._known[key] = kept.with_suffix("")
                write_whole(self._known[key], _text(headers).encode())
            return self._known[key]

    def _read(self, key: str, text: str, gpp: Gpp, arguments: Sequence[str]) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True)
        with Workplace(self._folder.parent) as place:
            written, kept = place / "prelude.h", place / "prelude.h.gch"
            written.write_text(text)
            gpp.compile(
                [*arguments, "-x", "c++-header", str(written), "-o", str(kept)], "The CPU run's header", written
            )
            return self._entries.write(key, kept.read_bytes())


def _text(headers: Sequence[str]) -> str:
    return "".join(f"#define CUDA_ON_HOST_{header.upper()}\n" for header in headers) + '#include "cuda_on_host.h"\n'


VARIANTS_PER_UNIT = 20
KERNEL_FLAGS = (
    "-O1", "-g1", "-gdwarf-4",  # version 5 credits a unit's first text to the unit's own file
    "-fno-var-tracking",  # where variables lie takes a fifth of the time, and nothing asks
    "-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique",
    "-fno-tree-sra", "-fno-store-merging", "-fno-tree-slp-vectorize",  # a float4 load must stay one access
    "-fno-tree-fre",  # it takes what one path leaves unset for what another sets
    # Passes over machine code, behind all that the checks are made of: a quarter of the time that g++ takes.
    "-fno-forward-propagate", "-fno-dse", "-fno-move-loop-invariants", "-fno-cprop-registers", "-fno-if-conversion",
    "-fno-if-conversion2", "-fno-split-wide-types", "-fira-region=one",
    "-ffp-contract=off", "-fmax-errors=5", "-fstack-clash-protection",  # no frame steps over the guard of a stack
    "-fno-omit-frame-pointer",  # the runtime finds out which calls led to a barrier
    "-fsanitize=thread", "--param", "tsan-distinguish-volatile=1", "--param", "tsan-instrument-func-entry-exit=0",
    "-fsanitize=signed-integer-overflow,bounds-strict,alignment,integer-divide-by-zero,shift-exponent,return",
    "-fsanitize=float-cast-overflow,object-size",
)  # fmt: skip
# What is read before it is set makes results wrong in every run. Pointers to what is gone are refused.
LOCALS_FLAGS = ("-ftrivial-auto-var-init=pattern", "-Werror=dangling-pointer", "-Werror=return-local-addr")
LOCALS_GXX = 12  # the first version that knows them
# Without start files every writable variable in a library is one of the variants'.
LINK_FLAGS = ("-shared", "-nostartfiles", "-Wl,-z,defs", "-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset")
RUNTIME_FLAGS = ("-O2", "-g1", "-std=c++17", "-fPIC", "-fvisibility=hidden")
DYNAMIC_SHARED = "extern __shared__ __align__(16) unsigned char shared_bytes[];"

# An array, as CUDA has it, of a length that is not known.
_SHARED_BYTES = (
    "unsigned char (&shared_bytes)[] = *reinterpret_cast<unsigned char (*)[]>(cuda_on_host::dynamic_shared());"
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<cuda_(fp16|bf16)\.h>", re.MULTILINE)
_SIMD = re.compile(r"\b__v\w+\s*\(")
_EXTERN_SHARED = re.compile(r"\bextern\s+__shared__")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|el)\w*[ \t](?:\\\n|[^\n])*", re.MULTILINE)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_OF_A_COMPILER = re.compile(r"\b__[A-Z]\w*__\b")
_ARCH = re.compile(r"\b(?:__CUDA_ARCH__|asm)\b")  # inline PTX says since when it exists


@dataclass(frozen=True)
class Source:
    """The text of one variant, and the names of the kernels in it.

    Attributes:
        cuda_arch: the `__CUDA_ARCH__` that it is compiled for.
        path: the file that it was read from; None where it was written for this.
    """

    name: str
    text: str
    entries: tuple[str, ...]
    cuda_arch: int
    path: Path | None = None

    @property
    def called(self) -> str:
        """The text's name in messages."""
        return f"{self.name}.cu" if self.path is None else str(self.path)

    @property
    def has_namespace(self) -> bool:
        """Whether its kernels stand in a namespace of its name, as in all that gen writes."""
        return re.search(rf"^namespace {re.escape(self.name)} \{{", self.text, re.MULTILINE) is not None

    @property
    def headers(self) -> tuple[str, ...]:
        """What it needs beside the rest: CUDA's `cuda_NAME.h` that it includes, `simd.h` where it calls that."""
        return tuple(sorted({*_INCLUDE.findall(self.text), *(["simd"] if _SIMD.search(self.text) else [])}))


class Builder:
    """Builds variants and loads them, each once. What a killed process was building goes when one is made.

    Attributes:
        cache: the folder where what is built is kept.
    """

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        remove_abandoned(cache)
        self._slots = Cache(cache / "slots", ".json")  # of each text: its library, and which variant of it
        self._kernels = Cache(cache / "kernels", ".so")
        self._runtimes = Cache(cache / "runtime", ".so")
        self._gpp = Gpp()
        self._codes: dict[str, Code] = {}
        self._libraries: dict[str, Library] = {}

    def load(self, sources: Sequence[Source]) -> list[Code]:
        """The code of every source. Raises CompileError for one that g++ refuses, MissingToolError without g++."""
        keys = [self._key(source) for source in sources]
        missing = {key: source for key, source in zip(keys, sources, strict=True) if not self._find(key, source)}
        if missing:
            self._build(missing)
        return [replace(self._codes[key], called=source.called) for key, source in zip(keys, sources, strict=True)]

    @cached_property
    def runtime(self) -> Runtime:
        """The runtime that runs launches, built if it is not yet."""
        return Runtime.load(self._runtime_library)

    def _find(self, key: str, source: Source) -> bool:
        """Whether the code is loaded now: from memory, or from the cache."""
        if key in self._codes:
            return True
        note = self._slots.read(key)
        if note is None:
            return False
        content = json.loads(note)
        library, slot = content["library"], content["slot"]
        path = self._libraries[library].path if library in self._libraries else self._kernels.file(library)
        if path is None:
            return False
        self.runtime  # noqa: B018 - kernels find its functions only if it is loaded before them
        try:
            if library not in self._libraries:
                self._libraries[library] = Library(path)  # whole: loading a damaged one could end the process
            self._codes[key] = self._libraries[library].code(slot, source.name, source.text, source.entries)
        except (OSError, ValueError, AttributeError) as error:  # not loadable, no ELF, without the entries
            self._libraries.pop(library, None)
            self._kernels.set_aside(library, str(error))
            return False
        return True

    def _build(self, missing: dict[str, Source]) -> None:
        def headers(key: str) -> tuple[str, ...]:
            return missing[key].headers

        workers = _workers()
        units: list[list[str]] = []
        for _, group in groupby(sorted(missing, key=lambda key: (headers(key), missing[key].name)), key=headers):
            keys = list(group)
            length = min(VARIANTS_PER_UNIT, ceil(len(keys) / workers))
            units += [keys[start : start + length] for start in range(0, len(keys), length)]
        self.runtime  # noqa: B018 - built once, not by every worker
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(lambda keys: self._build_unit(keys, missing), units))
        for key, source in missing.items():
            if not self._find(key, source):
                raise CompileError(source.name, "g++ built it, but it does not load", self.keep(source))

    def keep(self, source: Source) -> Path:
        """The file that a text is in: it is written to the cache unless it was read from one."""
        if source.path is not None:
            return source.path
        write_whole(self._kept(source), source.text.encode())
        return self._kept(source)

    def _build_unit(self, keys: list[str], missing: dict[str, Source]) -> None:
        """Compiles a translation unit; where it is refused, its variants one by one, to name the culprit."""
        sources = [missing[key] for key in keys]
        try:
            self._compile_unit(keys, sources)
        except CompileError as error:
            if len(keys) == 1:
                log = error.log.replace(f"{sources[0].name}.cu:", f"{sources[0].called}:")
                raise CompileError(error.subject, log, error.source) from None
            for key in keys:
                self._build_unit([key], missing)

    def _compile_unit(self, keys: list[str], sources: list[Source]) -> None:
        for source in sources:
            if told := _told_apart(source):
                raise CompileError(source.name, told, self.keep(source))
            if _EXTERN_SHARED.search(source.text.replace(DYNAMIC_SHARED, "")):
                raise CompileError(
                    source.name, f"dynamic shared memory is declared in one form: {DYNAMIC_SHARED}", self.keep(source)
                )
        texts = [self._executable(source) for source in sources]
        with self._workplace() as place:
            unit, assembly, linked = place / "unit.cpp", place / "unit.s", place / "unit.so"
            arguments = [*self._kernel_flags, f"-I{self._sources}", "-isystem", str(self._gpp.cuda_headers)]
            headers = sources[0].headers
            prelude = preludes_in(self.cache / "headers").header(
                _digest(self._environment, *headers), headers, self._gpp, arguments
            )
            unit.write_text(_unit(sources, texts))
            subject, kept = sources[0].name, self._kept(sources[0])
            try:
                # Not by a line of the text: there is none for a folder with quotes in its name.
                included = [*arguments, "-include", str(prelude)]
                self._gpp.compile([*included, "-S", str(unit), "-o", str(assembly)], subject, kept)
                assembly.write_text(set_apart(assembly.read_text()))
                self._gpp.compile(
                    [*LINK_FLAGS, str(assembly), str(self._runtime_library), "-lm", "-o", str(linked)], subject, kept
                )
                stray = _stray_variables(linked.read_bytes())
                if stray:
                    raise CompileError(
                        subject,
                        f"{stray} is a variable outside shared and constant memory: `__device__` variables and static "
                        "locals keep their values between launches, which no plan says, and are not supported. Shared "
                        "arrays are declared in the kernel itself, not in a function template, and passed on.",
                        kept,
                    )
            except CompileError:
                if len(sources) == 1:
                    self.keep(sources[0])
                raise
            library = _digest(*keys)
            self._kernels.write(library, linked.read_bytes())
        for slot, key in enumerate(keys):
            self._slots.write(key, json.dumps({"library": library, "slot": slot}).encode())

    def _executable(self, source: Source) -> str:
        """The text as g++ takes it. Raises CompileError where inline PTX stands in it that the CPU cannot execute."""
        try:
            text = translated(source.text)
        except PtxError as error:
            said = f"{source.name}.cu:{error.line}: {error}"
            raise CompileError(source.name, said, self.keep(source)) from error
        return aligned_as_declared(text.replace(DYNAMIC_SHARED, _SHARED_BYTES))

    def _kept(self, source: Source) -> Path:
        """Where the text of a variant stands, or is kept if it fails."""
        return source.path or self.cache / "failed" / f"{source.name}.cu"

    def _workplace(self) -> Workplace:
        self.cache.mkdir(parents=True, exist_ok=True)
        return Workplace(self.cache)

    @cached_property
    def _runtime_library(self) -> Path:
        found = self._runtimes.file(self._runtime_key)
        if found is not None:
            return found
        with holding(self.cache / "runtime" / "lock"):  # it takes seconds: who comes second finds it
            return self._runtimes.file(self._runtime_key) or self._build_runtime()

    def _build_runtime(self) -> Path:
        pieces = sorted((self._sources / "runtime").glob("*.cpp"))
        with self._workplace() as place:
            built = place / f"runtime-{self._runtime_key}.so"
            objects = [place / f"{piece.stem}.o" for piece in pieces]

            def compile_piece(piece: Path, compiled: Path) -> None:
                self._gpp.compile([*RUNTIME_FLAGS, "-c", str(piece), "-o", str(compiled)], "The CPU runtime", piece)

            with ThreadPoolExecutor(_workers()) as pool:
                list(pool.map(compile_piece, pieces, objects))
            flags = ("-shared", f"-Wl,-soname,{built.name}")  # kernels then find the one that is loaded
            self._gpp.compile([*flags, *map(str, objects), "-o", str(built), "-lrt"], "The CPU runtime", pieces[0])
            return self._runtimes.write(self._runtime_key, built.read_bytes())

    @cached_property
    def _runtime_key(self) -> str:
        folder = self._sources / "runtime"
        parts = [path.read_text() for path in (*sorted(folder.iterdir()), self._sources / "collective.h")]
        return _digest(self._gpp.version, *RUNTIME_FLAGS, *parts)

    def _key(self, source: Source) -> str:
        arch = str(source.cuda_arch) if _ARCH.search(source.text) else ""
        return _digest(self._environment, source.name, source.text, arch, *source.entries)

    @cached_property
    def _environment(self) -> str:
        """All that decides what a text becomes, beside the text."""
        sources = (
            *sorted(self._sources.glob("*.h")),
            self._sources / "nv" / "target",
            Path(ptx.__file__),
        )
        own = [path.read_text() for path in sources]
        flags = (*self._kernel_flags, *LINK_FLAGS)
        return _digest(self._gpp.version, str(self._gpp.cuda_headers), self._runtime_key, *flags, *own)

    @cached_property
    def _kernel_flags(self) -> tuple[str, ...]:
        return (*KERNEL_FLAGS, *LOCALS_FLAGS) if self._gpp.major >= LOCALS_GXX else KERNEL_FLAGS

    @cached_property
    def _sources(self) -> Path:
        with as_file(files("gen.proof") / "cuda_on_host") as folder:
            return folder  # gen is never installed as an archive: the folder stays


def _told_apart(source: Source) -> str:
    """Why the GPU may execute other lines than the CPU run: a macro that the compilers define; empty if none decides.

    Architectures may be told apart, since the CPU run plays one; and what stands below `HOST_ONLY` is not the GPU's.
    """
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source.text.partition(HOST_ONLY)[0])
    own = {*_DEFINED.findall(text), "defined", "__CUDA_ARCH__"}
    named = [(found.start() + name.start(), name[0]) for found in _CONDITION.finditer(text)
             for name in list(re.finditer(r"[A-Za-z_]\w*", found[0]))[1:]]  # fmt: skip
    named += [(found.start(), found[0]) for found in _OF_A_COMPILER.finditer(text)]
    for place, name in sorted(named):
        if name not in own and not name.startswith("GEN_"):  # which no compiler defines
            line = text.count("\n", 0, place) + 1
            return (
                f"{source.called}:{line}: `{name}` is known to some compilers alone, so what runs here may not be what "
                "the GPU executes. A text may ask for __CUDA_ARCH__, and for macros that it defines itself."
            )
    return ""


def _unit(sources: Sequence[Source], texts: Sequence[str]) -> str:
    """One translation unit: each text in a namespace and in sections of its own, its line numbers kept."""
    return "\n".join(_unit_lines(sources, texts)) + "\n"


def _unit_lines(sources: Sequence[Source], texts: Sequence[str]) -> Iterator[str]:
    for slot, (source, text) in enumerate(zip(sources, texts, strict=True)):
        yield f"#undef __CUDA_ARCH__\n#define __CUDA_ARCH__ {source.cuda_arch}"
        yield f'#undef SHARED_SECTION\n#define SHARED_SECTION "shared_{slot}"'
        yield f'#undef CONSTANT_SECTION\n#define CONSTANT_SECTION "constant_{slot}"'
        yield f'namespace variant_{slot} {{\n#line 1 "{source.name}.cu"'
        yield text
        yield f'}}\n#line 1 "entries of {source.name}"'
        inside = f"variant_{slot}::{source.name}" if source.has_namespace else f"variant_{slot}"
        for number, entry in enumerate(source.entries):
            yield f"CUDA_ON_HOST_ENTRY({slot}_{number}, {inside}::{entry})"
            bounds = most_threads(source.text, entry)
            if bounds:
                yield f"namespace {inside} {{ CUDA_ON_HOST_BOUNDS({slot}_{number}, ({bounds})) }}"
            size = cluster(source.text, entry)
            if size:
                yield f"namespace {inside} {{ CUDA_ON_HOST_CLUSTER({slot}_{number}, {size}) }}"


def _stray_variables(library: bytes) -> str:
    """The variables that lie neither in shared nor in constant memory; the guards of shared arrays are none."""
    names = {
        plain_name(symbol.name)
        for symbol in elf.read(library).symbols
        if symbol.is_object
        and symbol.section.writable
        and symbol.section.name.startswith((".data", ".bss", ".tdata", ".tbss"))
        and not symbol.section.name.startswith(".data.rel.ro")
        and not symbol.name.startswith("_ZGV")
    }
    return ", ".join(sorted(names))


def _workers() -> int:
    return len(os.sched_getaffinity(0))


def _digest(*parts: str) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(f"{len(part)}:{part}".encode())
    return total.hexdigest()[:32]
