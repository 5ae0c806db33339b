"""`gen tune` without a GPU and without arguments: a minute that shows what gen does."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import typer

from gen.cli import output
from gen.cli.prove import STOPPED, as_json, keep_failures, show_reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from gen.arch import Limits
    from gen.families.base import Extents, Family, Variant
    from gen.proof.verdicts import Host, Verdict
    from gen.toolchain.nvrtc import Nvrtc
    from gen.tune.predict import Prediction
    from gen.tune.rehearse import Rehearsed
    from gen.tune.targets import Sample

SECONDS = 55.0  # for all of it, on two cores
PROVING = 0.7  # of these, for compiling and proving; the rest ranks
BARRIER = "__syncthreads();"
COLUMNS = ("variant", "compiled", "proven", "predicted us", "bound by")
SHOWN_LINES = 40  # of the fastest kernel's text


@dataclass
class _Progress:
    """What is known of the variants so far, as a table, the fastest first.

    Attributes:
        samples: what is looked at.
        steps: by a variant's name, the steps that it has behind it.
        results: of the rehearsal, by name.
        predictions: by name.
        uncounted: names of those for which the model has no prediction at the sizes shown.
    """

    samples: Sequence[Sample]
    steps: dict[str, set[str]] = field(default_factory=dict)
    results: dict[str, Rehearsed] = field(default_factory=dict)
    predictions: dict[str, Prediction] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)

    def took(self, step: str, made: Variant) -> None:
        """Notes a step of a variant."""
        self.steps.setdefault(made.name, set()).add(step)

    def ranked(self, sample: Sample) -> list[Variant]:
        """The variants of a sample, the fastest by prediction first, those without one last."""
        far = float("inf")
        return sorted(sample.variants, key=lambda one: p.us if (p := self.predictions.get(one.name)) else far)

    def left_out(self) -> Iterator[str]:
        """Sentences about what the tables lack."""
        made = [one.name for sample in self.samples for one in sample.variants]
        proven = [name for name in made if name in self.results and self.results[name].verdict.status == "proven"]
        waiting = sum(name not in self.results for name in made)
        unranked = sum(name not in self.predictions and name not in self.uncounted for name in proven)
        if waiting:
            yield f"The minute was over before {waiting} of the variants were proven."
        if unranked:
            yield f"Proven, but not ranked, since the minute was over: {unranked}."
        if self.uncounted:
            yield (
                f"Proven, but not ranked: {len(self.uncounted)}. Such a variant does not take these sizes, or its "
                "blocks wait for each other, so that no part of it can be counted."
            )

    def rows(self, sample: Sample) -> list[tuple[str, ...]]:
        """The table's rows of a sample."""
        return [self._row(made) for made in self.ranked(sample)]

    def _row(self, made: Variant) -> tuple[str, ...]:
        from gen.toolchain.compiled import Compiled

        steps, result, prediction = (
            self.steps.get(made.name, set()), self.results.get(made.name), self.predictions.get(made.name)
        )  # fmt: skip
        compiled, proven = "yes" if "compiled" in steps else "", "yes" if "proven" in steps else ""
        if result is not None:
            code = result.compiled
            compiled = f"{code.registers} registers" if isinstance(code, Compiled) else "refused"
            proven = f"{result.verdict.cases} cases" if result.verdict.status == "proven" else result.verdict.status
        fast = ("", "") if prediction is None else (f"{prediction.us:.4g}", prediction.bound)
        return (made.name, compiled, proven, *fast)


def first_minute(families: tuple[Family[Any], ...], home: Path, limits: Limits, compiler: Nvrtc, *, json: bool) -> None:
    """Shows, within a minute: variants that are emitted, compiled, proven and ranked; a fault found; the fastest text.

    Raises:
        typer.Exit: with status 1, if a variant is wrong.
    """
    from gen.paths import cache_home
    from gen.proof.failures import read
    from gen.proof.verdicts import Host
    from gen.toolchain.farm import CompileFarm
    from gen.tune.rehearse import predicted, rehearse
    from gen.tune.targets import sample

    start = time.monotonic()
    samples = [found for family in families if (found := sample(family, limits)) is not None]
    # The first of each family come first, if the time is not enough for all.
    ranks = zip_longest(*(one.variants for one in samples))
    variants = [made for rank in ranks for made in rank if made is not None]
    so_far = _Progress(samples)
    names = ", ".join(one.family.name_of(one.spec) for one in samples)
    host = Host(limits, cache_home(home), kept=read(home))
    if not json:
        output.text(
            f"No GPU is here. In a minute, gen emits {len(variants)} variants of {len(samples)} kernels ({names}), "
            f"compiles them for {limits.arch} with {compiler.version}, runs each on the CPU under checks and compares "
            "its results with NumPy's, and ranks them by a model of the GPU."
        )
    with _shown(so_far, quiet=json) as redraw:

        def tick(step: str, made: Variant) -> None:
            so_far.took(step, made)
            redraw()

        try:
            with CompileFarm(compiler, width=1) as farm:
                done = rehearse(variants, limits, farm, host, deadline=start + SECONDS * PROVING, tick=tick)
            so_far.results.update({one.variant.name: one for one in done.variants})
            redraw()
            runner = host.runner()
            for one in done.variants:
                if one.verdict.status == "proven" and time.monotonic() < start + SECONDS:
                    extents = _extents(samples, one.variant)
                    prediction = predicted(one, runner, limits, extents)
                    if prediction is None:
                        so_far.uncounted.add(one.variant.name)
                    else:
                        so_far.predictions[one.variant.name] = prediction
                        redraw()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(STOPPED) from None
    keep_failures(home, [one.verdict for one in done.variants])
    fault = planted(host, variants)
    if json:
        output.data(_as_json(so_far, limits, compiler.version, fault, time.monotonic() - start))
    else:
        _tell(so_far, limits, fault, time.monotonic() - start)
    if not done.ok or not done.variants:
        raise typer.Exit(1)


def _extents(samples: Sequence[Sample], made: Variant) -> Extents:
    (found,) = (one for one in samples if made in one.variants)
    return found.family.representative(found.spec, found.shape_class)


@contextmanager
def _shown(so_far: _Progress, *, quiet: bool) -> Iterator[Callable[[], None]]:
    """The table on a terminal, drawn anew as it fills; nothing elsewhere. Gives what draws it."""
    with output.live(quiet=quiet) as draw:

        def redraw() -> None:
            draw(COLUMNS, [row for one in so_far.samples for row in so_far.rows(one)])

        yield redraw


@dataclass(frozen=True)
class Fault:
    """What became of a kernel from which a barrier was taken.

    Attributes:
        line: of the barrier in the kernel's text, from 1.
    """

    line: int
    verdict: Verdict


def planted(host: Host, variants: Sequence[Variant]) -> Fault | None:
    """Takes the first barrier out of the shortest kernel that has one, and proves what remains; None without one."""
    from dataclasses import replace
    from pathlib import Path

    from gen.emit.kernel_file import SUFFIX, KernelFile
    from gen.emit.render import render

    texts = sorted(((render(made), made) for made in variants), key=lambda pair: len(pair[0]))
    for text, made in texts:
        lines = text.splitlines(keepends=True)
        found = next((number for number, line in enumerate(lines) if line.strip() == BARRIER), None)
        if found is not None:
            lines[found] = lines[found].replace(BARRIER, "")
            file = KernelFile(Path(f"{made.name}{SUFFIX}"), made, "".join(lines))
            (verdict,) = replace(host, files=(file,)).verdicts([made])
            return Fault(found + 1, replace(verdict, path=file.path))
    return None


def _tell(so_far: _Progress, limits: Limits, fault: Fault | None, seconds: float) -> None:
    from gen.families.extents import told_extents

    for one in so_far.samples:
        extents = one.family.representative(one.spec, one.shape_class)
        sizes = ", ".join(f"{size} {extent:,}" for size, extent in told_extents(extents, pitches=False).items())
        output.text()
        output.text(f"{one.family.name_of(one.spec)} ({sizes}), predicted for {limits.arch}, not measured", "bold")
        output.table(COLUMNS, so_far.rows(one))
    show_reasons([one.verdict for one in so_far.results.values() if one.verdict.status != "proven"])
    if fault is not None:
        output.text()
        output.text(
            f"A planted fault: {BARRIER} was deleted from line {fault.line} of a kernel. The proof says:", "bold"
        )
        output.verbatim(fault.verdict.reason.rstrip("\n") + "\n")
    fastest = _fastest(so_far)
    if fastest is not None:
        output.text()
        output.text(f"The text of {fastest.name}, below its header", "bold")
        output.verbatim(_kernel_text(fastest))
    output.text()
    for sentence in so_far.left_out():
        output.text(sentence)
    output.text(
        f"That took {seconds:.0f} s. On a GPU the same command measures variants of every kernel of the catalogue "
        "for a minute, and writes the winners to tuned.json and as .cu files, which gen.load and gen.sum then call."
    )
    output.text(
        "Next: gen tune --all proves the whole catalogue, which takes minutes; gen list transpose; gen explain NAME."
    )


def _fastest(so_far: _Progress) -> Variant | None:
    """Of the families' fastest variants the one whose text is shortest; None if nothing was ranked."""
    found = [so_far.ranked(one)[0] for one in so_far.samples if so_far.ranked(one)[0].name in so_far.predictions]
    return min(found, key=_length) if found else None


def _length(made: Variant) -> int:
    from gen.emit.render import render

    return len(render(made))


def _kernel_text(made: Variant) -> str:
    from gen.emit.render import render

    lines = render(made).splitlines()
    first = next(number for number, line in enumerate(lines) if "__global__" in line)
    shown = lines[first : first + SHOWN_LINES]
    more = len(lines) - first - len(shown)
    return "\n".join(shown) + "\n" + (f"// {more} more lines: gen render {made.name}\n" if more else "")


def _as_json(so_far: _Progress, limits: Limits, compiler: str, fault: Fault | None, seconds: float) -> dict[str, Any]:
    return {
        "arch": limits.arch,
        "compiler": compiler,
        "device": None,
        "measured": False,
        "seconds": round(seconds, 1),
        "variants": [
            {
                **as_json(result.verdict),
                "predicted_us": p.us if (p := so_far.predictions.get(made.name)) else None,
                "bound": p.bound if p else None,
            }
            for one in so_far.samples
            for made in so_far.ranked(one)
            if (result := so_far.results.get(made.name)) is not None
        ],
        "planted": None if fault is None else {**as_json(fault.verdict), "line": fault.line},
    }
