"""`gen prove`: runs kernels on the CPU and compares with NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import show
from gen.cli.common import Json, Out, Target, families_of, find, home_of
from gen.errors import MissingToolError

if TYPE_CHECKING:
    from pathlib import Path

    from gen.families.base import Variant
    from gen.toolchain.compiled import Compiled
    from gen.toolchain.nvrtc import Nvrtc
    from gen.tune.verdicts import Verdict

FEW = 12  # variants that are compiled in this process
STOPPED = "Stopped. What was compiled and built is kept; what was proven is proven again next time."


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(
        "prove", epilog="Examples: `gen prove`, `gen prove transpose`, `gen prove reduceShfl`, `gen prove --seed 7`."
    )(prove)


def prove(
    ctx: typer.Context,
    target: Target = None,
    all_algorithms: Annotated[
        bool,
        typer.Option(
            "--all-algorithms",
            help="Without a name: beside the base and named variants, a pairwise cover of every algorithm's space.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of numbers, sizes and orders.")] = 0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Prove that kernels compute what NumPy computes, without a GPU.

    The emitted CUDA text is compiled with g++ and run on the CPU under checks: every access, every barrier, every
    rounding counts. Without a name: the base and named variants of every catalogue. With a family or a spec: these,
    and configs in which every pair of parameter values meets. With a variant's name: that one. A case that fails is
    kept in failed_cases.jsonl and tried first on every variant of its spec; what is shown is the smallest that was
    found. A variant that takes none of the problems has failed; skipped is only what no CPU can run.
    """
    from gen.arch import Limits
    from gen.families.names import Takes
    from gen.paths import cache_home
    from gen.proof.replay import read
    from gen.runtime.dispatch import family_and_spec
    from gen.tune.processes import Host
    from gen.tune.select import select
    from gen.tune.verdicts import with_registers
    from gen.workers import result_of

    families, home, limits = families_of(ctx), home_of(out), Limits.of(DEFAULT_ARCH)
    others = [name for family in families for name in (family.name, *(named.name for named in family.named))]
    rule = "must be a family, a variant's full name, a kernel of the literature or a spec, FAMILY_LABEL"
    takes = Takes("The name", rule, others)
    variants = select(
        families, target, lambda name: find(families, name, home),
        lambda name: family_and_spec(families, name, home, takes), cover=all_algorithms, limits=limits,
    )  # fmt: skip
    by_name: dict[str, Verdict] = {}
    compiler = compiler_at_hand(cache_home(home))
    pool = ThreadPoolExecutor(1)
    try:
        with show.progress(proven=len(variants)) as tick:
            compiling = pool.submit(compile_all, compiler, variants)
            for verdict in Host(limits, cache_home(home), seed, read(home)).verdicts(variants):
                by_name[verdict.variant.name] = verdict
                tick("proven")
            compiled = result_of(compiling)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(STOPPED) from None
    finally:
        pool.shutdown(wait=False)  # after Ctrl-C nobody waits for the rest
    found = [with_registers(by_name[made.name], compiled.get(made.name)) for made in variants]
    failed = [verdict for verdict in found if verdict.status == "failed"]
    keep_failures(home, found)
    if json:
        show.data({"seed": seed, **count(found), "variants": [as_json(verdict) for verdict in found]})
    else:
        show.table(
            ("variant", "cases", "verdict"),
            [(v.variant.name, v.cases, v.status + (f": {v.kind}" if v.kind else "")) for v in found],
        )
        show_reasons(found)
        show.text()
        show.text(", ".join(f"{number} {status}" for status, number in count(found).items()))
    if failed:
        raise typer.Exit(1)


def compiler_at_hand(cache: Path) -> Nvrtc | None:
    """The GPU's compiler, which knows registers; None where it is not installed: then they are not checked."""
    try:
        from gen.toolchain.nvrtc import Nvrtc

        return Nvrtc(cache)
    except MissingToolError:
        return None


def compile_all(compiler: Nvrtc | None, variants: Sequence[Variant]) -> dict[str, Compiled]:
    """What a compiler makes of the variants, by name; those that it refuses are left out. Nothing without one.

    NVRTC takes Ctrl-C for itself while it compiles. In a process of its own it takes nobody's; for few sources that
    takes longer to start than they take.
    """
    from gen.emit.render import render
    from gen.toolchain.compiled import Compiled, compile_each
    from gen.toolchain.farm import CompileFarm

    if compiler is None or DEFAULT_ARCH not in compiler.architectures:
        return {}
    texts = {made.name: render(made) for made in variants}
    if len(texts) <= FEW:
        results = list(compile_each(compiler, texts.items(), DEFAULT_ARCH))
    else:
        with CompileFarm(compiler, width=1) as farm:
            results = list(farm.compile_many(texts.items(), DEFAULT_ARCH))
    return {result.name: result for result in results if isinstance(result, Compiled)}


def keep_failures(home: Path, verdicts: Sequence[Verdict]) -> None:
    """Keeps the cases that failed, to be tried first from now on; says so to people."""
    from gen.proof.replay import FILE, Kept, keep

    new = keep(home, [Kept.of(v.variant, v.failure) for v in verdicts if v.failure is not None])
    if new:
        cases = "1 failing case is" if len(new) == 1 else f"{len(new)} failing cases are"
        show.note(f"{cases} kept in {home / FILE}, and tried first from now on.")


def count(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many came to what."""
    return {status: sum(v.status == status for v in verdicts) for status in ("proven", "failed", "skipped")}


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as data."""
    return {
        "name": verdict.variant.name,
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
            reasons.setdefault((verdict.status, verdict.reason), []).append(verdict.variant.name)
    for (status, reason), (first, *others) in reasons.items():
        show.text()
        show.text(f"{first}{f' and {len(others)} more' if others else ''} {status}:")
        show.verbatim(reason.rstrip("\n") + "\n")
