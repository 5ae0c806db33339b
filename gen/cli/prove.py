"""`gen prove`: runs kernels on the CPU and compares with NumPy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import output
from gen.cli.common import Home, Json, complete_any, families_of, find, home_of
from gen.errors import CompileError, MissingToolError, UnknownNameError, UnlinkedError

if TYPE_CHECKING:
    from gen.arch import Limits
    from gen.emit.kernel_file import KernelFile
    from gen.families.base import Family, Variant
    from gen.proof.verdicts import Verdict
    from gen.toolchain.compiled import Compiled
    from gen.toolchain.nvrtc import Nvrtc

MAX_COMPILED_HERE = 12  # variants that are compiled in this process
MAX_NAMED_FILES = 5  # changed files are named one by one
STOPPED = "Stopped. What was compiled and built is kept; what was proven is proven again next time."


def prove(
    ctx: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|FILE",
            autocompletion=complete_any,
            show_default=False,
            help="Variants by full name or as the literature calls them, families, specs such as reduction_sum_f32, "
            "and files of kernels that gen wrote, or folders of them.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Without a name: beside the base and named variants, a pairwise cover of every algorithm's space.",
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31, help="The seed of random numbers, sizes and orders.")
    ] = 0,
    results: Home = None,
    json: Json = False,
) -> None:
    """Prove that kernels compute what NumPy computes, without a GPU.

    The emitted CUDA text is compiled with g++ and run on the CPU under checks: every access, every barrier, every
    rounding counts. Without a name: the base and named variants of every catalogue. With a family or a spec: these,
    and configs in which every pair of parameter values meets. With a variant's name: that one.

    For a name, gen proves the text that it writes for the variant now. For a file that gen wrote, NAME.cu or any path,
    it proves the text in the file, with all changes in it: the header says which variant it is, and faults name the
    file and its line. If the folder of results holds a file of a variant that is proven, and its text differs from
    what gen writes, gen names the file and proves both.

    A case that fails is kept in failed_cases.jsonl and tried first on every variant of its spec; what is shown is the
    smallest that was found. A variant that takes none of the problems has failed; skipped is only what no CPU can run.

    Examples: `gen prove`, `gen prove transpose`, `gen prove reduceShfl`, `gen prove my_kernel.cu`, `gen prove out/`,
    `gen prove --seed 7`.
    """
    from gen.arch import Limits
    from gen.paths import cache_home
    from gen.proof.failures import read
    from gen.proof.verdicts import Host, with_registers
    from gen.workers import result_of

    families, home, limits = families_of(ctx), home_of(results), Limits.of(DEFAULT_ARCH)
    asked = asked_for(families, targets or (), home, cover=everything, limits=limits)
    found: list[Verdict] = []
    compiler = compiler_at_hand(cache_home(home))
    pool = ThreadPoolExecutor(1)
    host = Host(limits, cache_home(home), seed, read(home))
    try:
        with output.progress(proven=asked.count) as tick:
            for variants, files in asked.parts():
                by_name: dict[str, Verdict] = {}
                compiling = pool.submit(compile_all, compiler, variants, files)
                for verdict in replace(host, files=files).verdicts(variants):
                    by_name[verdict.variant.name] = verdict
                    tick("proven")
                compiled = result_of(compiling)
                paths = {file.variant.name: file.path for file in files}
                for made in variants:
                    verdict = replace(by_name[made.name], path=paths.get(made.name))
                    found.append(compiles(with_registers(verdict, compiled.get(made.name)), compiled.get(made.name)))
    except KeyboardInterrupt:
        raise KeyboardInterrupt(STOPPED) from None
    finally:
        pool.shutdown(wait=False)  # after Ctrl-C nobody waits for the rest
    found += asked.unreadable
    keep_failures(home, found)
    if json:
        output.data({"seed": seed, **count(found), "variants": [as_json(verdict) for verdict in found]})
    else:
        output.table(
            ("variant", "cases", "verdict"),
            [(v.called, v.cases, v.status + (f": {v.kind}" if v.kind else "")) for v in found],
        )
        show_reasons(found)
        output.text()
        output.text(", ".join(f"{number} {status}" for status, number in count(found).items()))
    name_changed(asked.changed)
    if any(verdict.status == "failed" for verdict in found):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Asked:
    """What is to be proven.

    Attributes:
        variants: those whose text is what gen writes for them.
        files: those that are proven as they stand.
        changed: the files among all these that hold other text than gen writes, and that nobody named.
        unreadable: the verdicts on those of them that do not say how they are launched.
    """

    variants: tuple[Variant, ...]
    files: tuple[KernelFile, ...]
    changed: tuple[Path, ...]
    unreadable: tuple[Verdict, ...]

    @property
    def count(self) -> int:
        """How many texts there are."""
        return len(self.variants) + len(self.files)

    def parts(self) -> Iterator[tuple[tuple[Variant, ...], tuple[KernelFile, ...]]]:
        """All of it in parts that have one text of each variant: the variants, and the files of those that have one."""
        if self.variants:
            yield self.variants, ()
        left = self.files
        while left:
            part = {file.variant.name: file for file in reversed(left)}
            yield tuple(file.variant for file in part.values()), tuple(part.values())
            left = tuple(file for file in left if file is not part[file.variant.name])


def asked_for(
    families: tuple[Family[Any], ...], targets: Sequence[str], home: Path, *, cover: bool, limits: Limits
) -> Asked:
    """What these names and paths stand for.

    Raises:
        UnknownNameError: something stands for nothing, or a file is no kernel that gen wrote.
        GenError: a file cannot be read.
    """
    from gen.emit.kernel_file import SUFFIX, changed_files, kernels_in, read_kernel
    from gen.families.names import Takes
    from gen.proof.verdicts import Verdict
    from gen.runtime.dispatch import family_and_spec
    from gen.tune.targets import select

    known = [family.name for family in families]
    others = [*known, *(named.name for family in families for named in family.named)]
    rule = "must be a family, a variant's full name, a kernel of the literature, a file or a spec, FAMILY_LABEL"
    takes = Takes("The name", rule, others)

    @cache
    def meant(name: str | None) -> tuple[Variant, ...]:
        return select(
            families, name, lambda name: find(families, name, home),
            lambda name: family_and_spec(families, name, home, takes), cover=cover, limits=limits,
        )  # fmt: skip

    @cache
    def is_path(target: str) -> bool:
        path = Path(target)  # of "", which is no name, the current folder
        if target.endswith(SUFFIX) or os.sep in target or (path.suffix != "" and path.is_file()):
            return True
        if not target or not path.is_dir():
            return False
        try:
            meant(target)
        except UnknownNameError:
            return True
        output.note(f"{target} is the name of kernels here; the folder is .{os.sep}{target}.")
        return False

    files: dict[Path, KernelFile] = {}
    for target in filter(is_path, targets):
        for path in kernels_in(Path(target)) if Path(target).is_dir() else [Path(target)]:
            files.setdefault(path.resolve(), read_kernel(families, path))
    variants: dict[str, Variant] = {}
    for name in [target for target in targets if not is_path(target)] if targets else [None]:
        variants |= {made.name: made for made in meant(name)}
    changed = [path for path in changed_files(variants.values(), home) if path.resolve() not in files]
    unreadable: list[Verdict] = []
    for path in changed:
        try:
            files[path] = read_kernel(families, path)
        except UnknownNameError as error:
            unreadable.append(Verdict(variants[path.stem], "failed", 0, str(error), "other header", path=path))
    return Asked(tuple(variants.values()), tuple(files.values()), tuple(changed), tuple(unreadable))


def name_changed(paths: Sequence[Path]) -> None:
    """Says which files are not what gen writes, and what to do about that."""
    for path in paths[:MAX_NAMED_FILES]:
        output.note(f"{path} holds other text than gen writes for {path.stem}: both were run.")
    if len(paths) > MAX_NAMED_FILES:
        output.note(f"And {len(paths) - MAX_NAMED_FILES} more files.")
    if paths:
        output.note(
            f"gen generate --home {paths[0].parent} writes such files anew. A change that is to stay belongs into the "
            "template."
        )


def compiler_at_hand(cache: Path) -> Nvrtc | None:
    """The GPU's compiler, which knows registers; None where it is not installed: then they are not checked."""
    try:
        from gen.toolchain.nvrtc import Nvrtc

        return Nvrtc(cache)
    except MissingToolError:
        return None


def compile_all(
    compiler: Nvrtc | None, variants: Sequence[Variant], files: Sequence[KernelFile] = ()
) -> dict[str, Compiled | CompileError]:
    """What a compiler makes of the variants, or says of those that it refuses, by name. Nothing without one.

    NVRTC takes Ctrl-C for itself while it compiles. In a process of its own it takes nobody's; for few sources that
    takes longer to start than they take.

    Args:
        compiler: the GPU's, or None.
        variants: each once.
        files: the texts of those of them that stand in files.
    """
    from gen.emit.render import render
    from gen.toolchain.compiled import Compiled, compile_each
    from gen.toolchain.farm import CompileFarm

    if compiler is None or DEFAULT_ARCH not in compiler.architectures:
        return {}
    texts = {made.name: render(made) for made in variants} | {file.variant.name: file.text for file in files}
    if len(texts) <= MAX_COMPILED_HERE:
        results = list(compile_each(compiler, texts.items(), DEFAULT_ARCH))
    else:
        with CompileFarm(compiler, width=1) as farm:
            results = list(farm.compile_many(texts.items(), DEFAULT_ARCH))
    return {result.name if isinstance(result, Compiled) else result.subject: result for result in results}


def compiles(verdict: Verdict, compiled: Compiled | CompileError | None) -> Verdict:
    """The verdict, or that the GPU's compiler refuses what ran on the CPU."""
    if verdict.status != "proven" or not isinstance(compiled, CompileError) or isinstance(compiled, UnlinkedError):
        return verdict
    reason = str(compiled) if verdict.path is None else f"{compiled}\n  in the text of {verdict.path}"
    return replace(verdict, status="failed", kind="compile error", reason=reason)


def keep_failures(home: Path, verdicts: Sequence[Verdict]) -> None:
    """Keeps the cases that failed, to be tried first from now on; says so to people."""
    from gen.proof.failures import FILE, Kept, keep

    new = keep(home, [Kept.of(v.variant, v.failure) for v in verdicts if v.failure is not None])
    if new:
        cases = "1 failing case is" if len(new) == 1 else f"{len(new)} failing cases are"
        output.note(f"{cases} kept in {home / FILE}, and tried first from now on.")


def count(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many came to what."""
    return {status: sum(v.status == status for v in verdicts) for status in ("proven", "failed", "skipped")}


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as data."""
    return {
        "name": verdict.variant.name,
        "file": None if verdict.path is None else str(verdict.path),
        "verdict": verdict.status,
        "cases": verdict.cases,
        "kind": verdict.kind or None,
        "reason": verdict.reason or None,
    }


def show_reasons(verdicts: Sequence[Verdict]) -> None:
    """Prints whole what went wrong, or why variants were skipped."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        if verdict.reason:
            reasons.setdefault((verdict.status, verdict.reason), []).append(verdict.called)
    for (status, reason), (first, *others) in reasons.items():
        output.text()
        output.text(f"{first}{f' and {len(others)} more' if others else ''} {status}:")
        output.verbatim(reason.rstrip("\n") + "\n")
