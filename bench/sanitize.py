"""Runs every algorithm under compute-sanitizer: `python -m bench.sanitize [--tool T] [--family F] [--json FILE]`.

Four tools, each over the base and named variants of every catalogue and a pairwise cover of every search space, on the
awkward sizes of each family. Nothing may be reported; what was run is written to `bench/sanitize-DEVICE.json`. Needs a
GPU and the compute-sanitizer of a CUDA toolkit. Status 1 if anything is found, 2 for an option that makes no sense.

`--plant` puts a fault of its own in front of each tool, which must find it: then status 1 is what is expected.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from gen.emit.render import render
from gen.errors import DeviceError, GenError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.names import find_variant
from gen.paths import cache_home, output_home
from gen.tune.device import find_device

if TYPE_CHECKING:
    pass
from bench.sanitizer.faults import FAULTS, TOOLS
from bench.sanitizer.process import find_sanitizer, run_one, stop_all, version_of
from bench.sanitizer.report import Outcome, digest_of, evidence, evidence_file, show
from bench.sanitizer.worker import chosen, work

ALL = 1000  # more awkward sizes than any family has
JOBS = 4


def texts_of(names: Sequence[str], limits: Limits, options: argparse.Namespace) -> dict[str, str]:
    """What the workers of these families will run, by name."""
    return {one.name: render(one) for family in names for one in chosen(family, limits, options.name)}


def compile_all(texts: Mapping[str, str], limits: Limits) -> None:
    """Compiles into the cache what the workers will load, on all cores."""
    from gen.toolchain.nvrtc import Flags, Nvrtc

    compiler = Nvrtc(cache_home(output_home()), Flags(line_info=True))
    for _ in compiler.compile_many(list(texts.items()), limits.arch):
        pass  # what is refused is refused once more in the worker, which says so


def jobs_of(options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    """Every tool with every family it is to run on."""
    tools = options.tool.split(",") if options.tool else TOOLS
    for tool in tools:
        name = FAULTS[tool].variant if options.plant else options.name
        if name is not None:
            yield tool, find_variant(FAMILIES, name, {}).family.name
            continue
        for family in [options.family] if options.family else [family.name for family in FAMILIES]:
            yield tool, family


def command_of(options: argparse.Namespace) -> str:
    """The command that runs the same again."""
    words = ["python -m bench.sanitize"]
    words += [f"--{key} {value}" for key in ("tool", "family", "name") if (value := getattr(options, key))]
    words += [f"--cases {options.cases}"] if options.cases != ALL else []
    return " ".join([*words, *(["--plant"] if options.plant else [])])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Ends the process with status 2 for one that makes no sense."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", help="only these, with commas between: " + ", ".join(TOOLS))
    parser.add_argument("--family", choices=[family.name for family in FAMILIES], help="only this one")
    parser.add_argument("--name", metavar="VARIANT", help="only this variant: reduceShfl")
    parser.add_argument("--cases", type=int, default=ALL, metavar="N", help="most sizes of a variant; default: all")
    parser.add_argument("--jobs", type=int, default=JOBS, metavar="N", help=f"workers at a time; default: {JOBS}")
    parser.add_argument("--plant", action="store_true", help="run a planted fault for each tool, which must find it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = set(options.tool.split(",") if options.tool else ()) - set(TOOLS)
    if unknown:
        parser.error(f"--tool must be some of {', '.join(TOOLS)}, not {', '.join(sorted(unknown))}")
    if options.cases < 1 or options.jobs < 1:
        parser.error("--cases and --jobs must be at least 1")
    if options.plant and not options.worker and (options.name or options.family):
        parser.error("--plant brings its own variants: leave out --name and --family")
    if options.name and options.family and not options.worker:
        parser.error("--name already says which family: leave out --family")
    return options


def finds(outcome: Outcome) -> bool:
    """Whether a tool reports the fault that is planted for it."""
    return any(FAULTS[outcome.tool].said in line for line in outcome.report.lines)


def drive(options: argparse.Namespace, run: Callable[..., Outcome] = run_one) -> int:
    """Runs all tools on all families and prints what they say; status 1 unless everything is clean."""
    sanitizer = find_sanitizer()
    device = find_device()
    if device is None:
        raise DeviceError("A GPU", "is needed to run kernels under compute-sanitizer", next_step="See gen doctor")
    jobs = list(jobs_of(options))
    start = time.monotonic()
    limits = Limits.of(device.arch)
    texts = texts_of(sorted({family for _, family in jobs}), limits, options)
    if not options.plant:
        compile_all(texts, limits)
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            for outcome in pool.map(lambda job: run(sanitizer, *job, options), jobs):
                show(outcome)
                outcomes.append(outcome)
        except BaseException:  # Ctrl-C above all: the pool would wait for every job
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            raise
    seconds = time.monotonic() - start
    found = evidence(outcomes, version_of(sanitizer), command_of(options), digest_of(texts), seconds)
    narrowed = options.plant or options.tool or options.family or options.name
    places = [options.json] if options.json else []
    if not narrowed and found["meta"]["device"]:
        places.append(evidence_file(found["meta"]["device"]))
    for place in places:
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"kept in {place}")
    verdict = "nothing was reported" if found["clean"] else "NOT CLEAN"
    print(f"{verdict}; {found['seconds']} s")
    if options.plant:
        missed = [outcome.tool for outcome in outcomes if not finds(outcome)]
        print(f"planted faults missed by: {', '.join(missed)}" if missed else "every planted fault was found")
    return 0 if found["clean"] else 1


def main() -> int:
    """Runs as driver or as worker."""
    options = parse(sys.argv[1:])
    try:
        if options.worker:
            done = work(options)
            options.result.write_text(json.dumps(done), encoding="utf-8")
            # To the tool, a program that fails is an error: there it must be the fault alone.
            return 1 if done["wrong"] and not options.plant else 0
        return drive(options)
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
