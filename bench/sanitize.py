"""Runs algorithms under compute-sanitizer: `python -m bench.sanitize [--tool T] [--algorithm A] [--json FILE]`.

Every algorithm but `nested`. Four tools, each over the base and named variants of every catalogue and a pairwise cover
of every search space, on the awkward sizes of each family. Nothing may be reported there; first each tool is shown a
planted fault, which it must find. What was run is written to `bench/sanitize-DEVICE.json`, if it was all. Needs a GPU
and the compute-sanitizer of a CUDA toolkit. A line a job tells how it ended. Status 0 if every planted fault is found
and nothing else, 1 if not, 2 for an option that makes no sense; where it is ended early, what remained is said, and
kept.

`--plant` runs the planted faults alone; `--family` and `--name` leave them out. `--algorithm` is for what a change to a
template touched: `--algorithm march,stacked`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from bench.program import need_gpu
from bench.sanitizer.faults import FAULTS, TOOLS
from bench.sanitizer.jobs import Job, pieces
from bench.sanitizer.process import find_sanitizer, run_one, stop_all, version_of
from bench.sanitizer.report import Outcome, digest_of, evidence, evidence_file, show
from bench.sanitizer.worker import chosen, work
from gen.cli.gpu import alone
from gen.emit.render import render
from gen.errors import GenError
from gen.families import FAMILIES
from gen.families.base import Limits
from gen.families.names import find_variant
from gen.paths import cache_home, output_home

ALL = 1000  # more awkward sizes than any family has


def texts_of(names: Sequence[str], limits: Limits, options: argparse.Namespace) -> dict[str, str]:
    """What the workers of these families will run, by name."""
    return {
        one.name: render(one) for family in names for one in chosen(family, limits, options.name, options.algorithm)
    }


def compile_all(texts: Mapping[str, str], limits: Limits) -> None:
    """Compiles into the cache what the workers will load, on all cores."""
    from gen.toolchain.farm import CompileFarm
    from gen.toolchain.nvrtc import Nvrtc

    compiler = Nvrtc(cache_home(output_home()), line_info=True)
    with CompileFarm(compiler) as farm:
        list(
            farm.compile_many(texts.items(), limits.arch)
        )  # what is refused is refused once more in the worker, which says so


def jobs_of(options: argparse.Namespace, limits: Limits) -> list[Job]:
    """Every tool with every family it is to run on, in pieces for the workers there are; the longest first."""
    tools = options.tool.split(",") if options.tool else TOOLS
    planted = [Job(tool, find_variant(FAMILIES, FAULTS[tool].variant, {}).family.name, planted=True) for tool in tools]
    if options.plant:
        return planted
    if options.name is not None:
        return [Job(tool, find_variant(FAMILIES, options.name, {}).family.name) for tool in tools]
    families = [options.family] if options.family else [family.name for family in FAMILIES]
    counts = {family: len(chosen(family, limits, None, options.algorithm)) for family in families}
    counts = {family: count for family, count in counts.items() if count}
    return [*([] if options.family else planted), *pieces(tools, counts, options.jobs)]


def command_of(options: argparse.Namespace) -> str:
    """The command that runs the same again."""
    words = ["python -m bench.sanitize"]
    words += [f"--{key} {value}" for key in ("tool", "family", "name") if (value := getattr(options, key))]
    words += [f"--algorithm {','.join(options.algorithm)}"] if options.algorithm else []
    words += [f"--cases {options.cases}"] if options.cases != ALL else []
    return " ".join([*words, *(["--plant"] if options.plant else [])])


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options. Ends the process with status 2 for one that makes no sense."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", help="only these, with commas between: " + ", ".join(TOOLS))
    parser.add_argument("--family", choices=[family.name for family in FAMILIES], help="only this one")
    parser.add_argument(
        "--algorithm", metavar="NAMES", type=lambda names: names.split(","), default=[],
        help="only these, with commas between: march,stacked",
    )  # fmt: skip
    parser.add_argument("--name", metavar="VARIANT", help="only this variant: reduceShfl")
    parser.add_argument("--cases", type=int, default=ALL, metavar="N", help="most sizes of a variant; default: all")
    workers = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=workers, metavar="N", help="workers at a time; default: the cores")
    parser.add_argument("--plant", action="store_true", help="run the planted faults alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = set(options.tool.split(",") if options.tool else ()) - set(TOOLS)
    if unknown:
        parser.error(f"--tool must be some of {', '.join(TOOLS)}, not {', '.join(sorted(unknown))}")
    # A worker of one family gets all names.
    families = [family for family in FAMILIES if options.worker or options.family in (None, family.name)]
    algorithms = sorted({name for family in families for name in family.algorithms})
    unknown = set(options.algorithm) - set(algorithms)
    if unknown:
        parser.error(f"--algorithm must be some of {', '.join(algorithms)}, not {', '.join(sorted(unknown))}")
    if options.cases < 1 or options.jobs < 1:
        parser.error("--cases and --jobs must be at least 1")
    if options.plant and not options.worker and (options.name or options.family or options.algorithm):
        parser.error("--plant brings its own variants: leave out --name, --family and --algorithm")
    if options.name and options.algorithm:
        parser.error("--name already says which algorithm: leave out --algorithm")
    if options.name and options.family and not options.worker:
        parser.error("--name already says which family: leave out --family")
    return options


def drive(options: argparse.Namespace, run: Callable[..., Outcome] = run_one) -> int:
    """Runs all tools on all families and prints what they say; status 1 unless all is as expected."""
    device = need_gpu("python -m bench.sanitize")
    sanitizer = find_sanitizer()
    start = time.monotonic()
    limits = device.limits
    jobs = jobs_of(options, limits)
    texts = texts_of(sorted({job.family for job in jobs}), limits, options)
    if not options.plant:
        compile_all(texts, limits)
        print(f"{len(texts)} variants compiled, {time.monotonic() - start:.0f} s; {len(jobs)} jobs", flush=True)
    outcomes: list[Outcome] = []

    def found_so_far() -> dict[str, Any]:
        ended = {outcome.job for outcome in outcomes}
        remained = [str(job) for job in jobs if str(job) not in ended]
        seconds = time.monotonic() - start
        return evidence(outcomes, version_of(sanitizer), command_of(options), digest_of(texts), seconds, remained)

    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            running = [pool.submit(run, sanitizer, job, options) for job in jobs]
            for future in as_completed(running):
                outcomes.append(future.result())
                show(outcomes[-1], f"{len(outcomes)}/{len(jobs)} ")
        except BaseException:  # Ctrl-C above all: the pool would wait for every job
            pool.shutdown(wait=False, cancel_futures=True)
            stop_all()
            found = found_so_far()
            print(f"ended early, {found['seconds']} s; remained: {', '.join(found['remained'])}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            raise
    found = found_so_far()
    narrowed = options.plant or options.tool or options.family or options.algorithm or options.name
    narrowed = narrowed or options.cases != ALL
    places = [options.json] if options.json else []
    if not narrowed and found["meta"]["device"]:
        places.append(evidence_file(found["meta"]["device"]))
    for place in places:
        place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"kept in {place}")
    if not options.plant:
        print(f"{'nothing was reported' if found['clean'] else 'NOT CLEAN'}; {found['seconds']} s")
    missed = [tool for tool, planted in found["planted"].items() if not planted["found"]]
    if found["planted"]:
        print(f"planted faults missed by: {', '.join(missed)}" if missed else "every planted fault was found")
    return 1 if missed or not (options.plant or found["clean"]) else 0


def _end(*_: object) -> None:
    """A request to end is like Ctrl-C: what was found is said."""
    raise KeyboardInterrupt


def main() -> int:
    """Runs as driver or as worker."""
    options = parse(sys.argv[1:])
    try:
        if options.worker:
            done = work(options)
            options.result.write_text(json.dumps(done), encoding="utf-8")
            # To the tool, a program that fails is an error: there it must be the fault alone.
            return 1 if done["wrong"] and not options.plant else 0
        signal.signal(signal.SIGTERM, _end)
        with alone(0, None, "bench/sanitize.py"):  # which would disturb whoever measures
            return drive(options)
    except KeyboardInterrupt:
        return 130
    except GenError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
