"""Runs every algorithm under compute-sanitizer: `python bench/sanitize.py [--tool T] [--family F] [--json FILE]`.

Four tools, each over the base and named variants of every catalogue and a pairwise cover of every search space, on the
awkward sizes of each family. Nothing may be reported; what was run is written to `bench/sanitize-DEVICE.json`. Needs a
GPU and the compute-sanitizer of a CUDA toolkit. Status 1 if anything is found, 2 for an option that makes no sense.

`--plant` puts a fault of its own in front of each tool, which must find it: then status 1 is what is expected.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gen.emit.render import render
from gen.errors import DeviceError, GenError, MissingToolError, RunError
from gen.families import FAMILIES
from gen.families.base import Array, Kernel, Limits, Variant
from gen.families.names import find_family, find_variant
from gen.paths import cache_home, output_home
from gen.proof.cases import Case, cases_of
from gen.proof.prover import Proof, prove
from gen.tune.device import find_device
from gen.tune.select import of_family

if TYPE_CHECKING:
    from gen.gpu.device import CudaDevice
    from gen.gpu.kernel import CudaKernel, CudaRunner

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
FOUND = 9  # what compute-sanitizer ends with when it found something
GAP = 1024  # bytes that memcheck keeps between allocations, so that an overrun does not end in another array
SM_COUNT = 2  # of the device that is played: few, so that small problems make blocks go round and wait for each other
LEAST = 16  # bytes: gen's smallest allocation
ALL = 1000  # more awkward sizes than any family has
JOBS = 4
TIMEOUT, PLANTED_TIMEOUT = 540, 120  # seconds of one tool on one family, or on its planted fault


@dataclass(frozen=True)
class Fault:
    """A variant spoilt so that one tool must find it: in its text, `old` becomes `new`.

    Attributes:
        said: what the tool says of such a fault, among other things.
    """

    tool: str
    variant: str
    said: str
    old: str
    new: str

    def text(self, made: Variant) -> str:
        """The spoilt text. Raises RunError if the template has changed so that the fault no longer fits."""
        text = render(made)
        if text.count(self.old) != 1:
            raise RunError(f"The fault for {self.tool}", f"must fit {self.variant} once", text.count(self.old))
        return text.replace(self.old, self.new)


FAULTS = {
    fault.tool: fault
    for fault in (
        # reads one past the end
        Fault(
            "memcheck", "reduceShfl", "Invalid __global__ read",
            "if (i < n) sum += in[i];", "if (i <= n) sum += in[i];",
        ),
        # reads the tile before it is written
        Fault("racecheck", "transposeSmemPad", "Race reported", "\n  __syncthreads();\n", "\n"),
        # leaves the last element of the private copy as it was allocated
        Fault(
            "initcheck", "reduceInterleaved", "Uninitialized __global__ memory read",
            "i < n; i += stride) work[i]", "i < n - 1; i += stride) work[i]",
        ),
        # a barrier that only the adding threads reach
        Fault(
            "synccheck", "reduceInterleaved", "Barrier error",
            "    if (i < stride && i + stride < left) data[i] += data[i + stride];\n    __syncthreads();\n",
            "    if (i < stride && i + stride < left) {\n      data[i] += data[i + stride];\n      __syncthreads();\n"
            "    }\n",
        ),
    )
}  # fmt: skip


# The worker: runs under compute-sanitizer, on the GPU.


class Span:
    """An array's bytes on the device, with nothing behind them, at the same place within 256 bytes.

    The runner of the other tests keeps red zones around arrays, in the same allocation: memcheck would not see who
    reads there.
    """

    def __init__(self, device: CudaDevice, array: Array, *, blank: bool) -> None:
        """Copies an array to the device; with `blank`, all but its elements, so that initcheck sees who reads those."""
        self._device = device
        self._host = bytes_of(array)
        first = int(array.__array_interface__["data"][0]) % 256
        # A smaller allocation would be rounded up, behind the array.
        before = first if first + self._host.size >= LEAST else 256 + first
        self._memory = device.allocate(before + self._host.size)
        self.address = self._memory.address + before
        for start, end in gaps_of(array) if blank else [(0, self._host.size)]:
            device.upload(self.address + start, self._host[start:end])

    def fetch(self) -> None:
        """Copies the bytes back; initcheck reports those that were never written."""
        self._host[...] = self._device.download(self.address, self._host.size)


@dataclass
class ExactKernel:
    """A kernel whose arrays, and whose scratch in every problem, lie in allocations of exactly their size."""

    variant: Variant
    kernel: CudaKernel
    device: CudaDevice
    blank: bool
    _sizes: dict[str, int] = field(default_factory=dict)

    def run(self, extents: Mapping[str, int], buffers: Mapping[str, Any]) -> None:
        """Runs the plan once on NumPy arrays, copied to the device and back. Raises RunError if a launch fails."""
        if self._sizes != dict(extents):
            self.kernel.discard_scratch()
            self._sizes = dict(extents)
        written = {operand.name for operand in self.variant.spec.operands if operand.role == "out"}
        spans = {
            name: Span(self.device, array, blank=self.blank and name in written) for name, array in buffers.items()
        }
        addresses = self.kernel.scratch(extents) | {name: span.address for name, span in spans.items()}
        try:
            self.kernel.queue(self.kernel.steps(extents), addresses)
            self.device.synchronize()
        except RunError:
            self.kernel.discard_scratch()
            raise
        for span in spans.values():
            span.fetch()


@dataclass
class ExactRunner:
    """A GPU as a place where kernels run on arrays with nothing around them.

    Attributes:
        blank: outputs are not initialised.
        limits: of the device it plays.
    """

    runner: CudaRunner
    device: CudaDevice
    blank: bool
    limits: Limits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = self.runner.limits

    def on(self, limits: Limits) -> ExactRunner:
        """The same device, with plans made for other limits."""
        return ExactRunner(self.runner.on(limits), self.device, self.blank)

    def load(self, variants: Sequence[Variant]) -> tuple[Kernel, ...]:
        """Makes variants ready."""
        kernels = self.runner.load(variants)
        return tuple(ExactKernel(kernel.variant, kernel, self.device, self.blank) for kernel in kernels)


def bytes_of(array: Array) -> Array:
    """All bytes between an array's first and last, gaps between rows included, as a view."""
    low = int(array.__array_interface__["data"][0])
    size = 0
    if array.size:
        size = array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    interface = {"data": (low, False), "shape": (size,), "typestr": "|u1", "version": 3}
    return np.asarray(type("_View", (), {"__array_interface__": interface, "_keep": array})())


def gaps_of(array: Array) -> list[tuple[int, int]]:
    """Where the bytes of `bytes_of` belong to no element, as (start, end)."""
    inside = np.zeros(bytes_of(array).size, np.bool_)
    if array.size:
        shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
        np.lib.stride_tricks.as_strided(inside, shape, strides)[...] = True
    edges = np.flatnonzero(np.diff(np.concatenate(([True], inside, [True])).astype(np.int8)))
    return [(int(start), int(end)) for start, end in edges.reshape(-1, 2)]


def chosen(family: str, limits: Limits, name: str | None) -> tuple[Variant, ...]:
    """The variants of a family that are run; only the one of this name, if there is a name."""
    if name is not None:
        return (find_variant(FAMILIES, name, {}),)
    return of_family(find_family(FAMILIES, family), True, limits)


def sizes_of(variant: Variant, most: int) -> tuple[list[Case], int]:
    """The cases of a variant, each awkward size once, no more than `most` spread over all; and how many there are."""
    # Each size comes with exact integers and with another content, in turns: to a sanitizer they are the same.
    every = [replace(case, sm_count=SM_COUNT) for case in cases_of(variant.family, variant.spec)][::2]
    if most >= len(every):
        return every, len(every)
    return [every[place * len(every) // most] for place in range(most)], len(every)


def work(options: argparse.Namespace) -> dict[str, Any]:
    """Runs one family under the tool that this process runs under; what was done."""
    from gen.gpu.device import open_device
    from gen.gpu.kernel import CudaRunner
    from gen.toolchain.nvrtc import Flags, Nvrtc

    device = open_device(0)
    compiler = Nvrtc(cache_home(output_home()), Flags(line_info=True))
    text = FAULTS[options.tool].text if options.plant else render
    runner = ExactRunner(CudaRunner(device, compiler, text), device, blank=options.tool == "initcheck")
    proofs: list[Proof] = []
    sizes = available = 0
    variants = chosen(options.family, device.limits, options.name)
    for _, group in groupby(variants, key=lambda made: made.spec):
        alike = tuple(group)
        cases, count = sizes_of(alike[0], options.cases)
        sizes, available = sizes + len(cases), available + count
        proofs += prove(runner, alike, cases)
    return {
        "device": device.name,
        "driver": device.driver,
        "compiler": compiler.version,
        "algorithms": sorted({proof.variant.algorithm.name for proof in proofs}),
        "variants": sum(proof.skipped is None for proof in proofs),
        "skipped": sum(proof.skipped is not None for proof in proofs),
        "sizes": sizes,
        "sizes_available": available,
        "cases": sum(proof.cases + (proof.failure is not None) for proof in proofs),
        "wrong": [str(proof.failure) for proof in proofs if proof.failure is not None],
    }


# The driver: starts compute-sanitizer with a worker for each tool and family, and reads what it says.


@dataclass(frozen=True)
class Report:
    """What one run of compute-sanitizer says.

    Attributes:
        errors: how many it counts, warnings included; None where it ended without counting.
        lines: what it reports, beside its banner and its count.
    """

    errors: int | None
    lines: tuple[str, ...]


_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+) (?:errors?|hazards? displayed)\b")


def read_report(output: str) -> Report:
    """What compute-sanitizer printed, among what the program printed."""
    counts: list[int] = []
    lines: list[str] = []
    for line in output.splitlines():
        if not line.startswith("========="):
            continue
        said = line.removeprefix("=========").rstrip()
        if found := _SUMMARY.search(said):
            counts.append(int(found[1]))
        elif said.strip() and said.strip() != "COMPUTE-SANITIZER":
            lines.append(said)
    # A second summary tells how many of the first's were not printed.
    return Report(max(counts) if counts else None, tuple(lines))


@dataclass(frozen=True)
class Outcome:
    """One tool on one family.

    Attributes:
        status: what compute-sanitizer ended with; None if it was stopped for taking too long.
        done: what the worker says it did; None if it did not get so far.
    """

    tool: str
    family: str
    status: int | None
    report: Report
    done: Mapping[str, Any] | None
    output: str
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether everything ran, was right, and nothing at all was reported."""
        return (
            self.status == 0
            and self.report == Report(0, ())
            and self.done is not None
            and self.done["variants"] > 0
            and self.done["cases"] > 0
            and not self.done["wrong"]
        )

    def as_json(self) -> dict[str, Any]:
        """What is kept as evidence."""
        done = self.done or {}
        kept = ("algorithms", "variants", "skipped", "sizes", "sizes_available", "cases")
        return {
            "clean": self.clean,
            "errors": self.report.errors,
            "reported": len(self.report.lines),
            **{key: done.get(key) for key in kept},
            "wrong": len(done.get("wrong", ())),
            "seconds": round(self.seconds, 1),
        }


def arguments_of(sanitizer: str, tool: str, worker: Sequence[str]) -> list[str]:
    """The command line of one run."""
    found = [sanitizer, "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", "20"]
    if tool == "memcheck":
        # A call of the driver that fails is an error of gen's own. The bindings of CUDA ask a driver older than they
        # are for functions that it has not, which memcheck would count.
        found += ["--padding", str(GAP), "--report-api-errors", "no"]
    return [*found, sys.executable, str(Path(__file__).resolve()), "--worker", *worker]


def find_sanitizer() -> str:
    """The path of compute-sanitizer. Raises MissingToolError without one."""
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")] + ["/usr/local/cuda"]
    folders = [os.environ.get("PATH", ""), *(str(Path(home) / "bin") for home in homes if home)]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if found is None:
        raise MissingToolError(
            "compute-sanitizer", "must be on the PATH, or below $CUDA_HOME or /usr/local/cuda",
            next_step="It comes with the CUDA toolkit; on Debian and Ubuntu: apt install cuda-sanitizer-13-0",
        )  # fmt: skip
    return found


def version_of(sanitizer: str) -> str:
    """Its version: `2025.3.0.0`; `unknown` if it does not say."""
    said = subprocess.run([sanitizer, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Version (\d[\w.]*)", said)
    return found[1] if found else "unknown"


def run_one(sanitizer: str, tool: str, family: str, options: argparse.Namespace) -> Outcome:
    """Starts one worker under one tool and waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        worker = ["--tool", tool, "--family", family, "--cases", str(options.cases), "--result", str(result)]
        if options.plant:
            worker += ["--plant"]
        name = FAULTS[tool].variant if options.plant else options.name
        if name is not None:
            worker += ["--name", name]
        start = time.monotonic()
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]  # gen need not be installed
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        log = Path(folder) / "log"
        timeout = PLANTED_TIMEOUT if options.plant else TIMEOUT  # a planted fault may make the kernel hang
        status = wait(arguments_of(sanitizer, tool, worker), environment, log, timeout)
        output = log.read_text(encoding="utf-8", errors="replace")
        done = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else None
    return Outcome(tool, family, status, read_report(output), done, output, time.monotonic() - start)


def wait(arguments: Sequence[str], environment: Mapping[str, str], log: Path, timeout: float) -> int | None:
    """Runs a program to its end, what it prints going into a file; its status, or None if it took too long."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        _running.add(process)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            stop(process)
            return None
        finally:
            _running.discard(process)


_running: set[subprocess.Popen[bytes]] = set()


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process that `wait` started, with the program that it runs."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def texts_of(names: Sequence[str], limits: Limits, options: argparse.Namespace) -> dict[str, str]:
    """What the workers of these families will run, by name."""
    return {one.name: render(one) for family in names for one in chosen(family, limits, options.name)}


def compile_all(texts: Mapping[str, str], limits: Limits) -> None:
    """Compiles into the cache what the workers will load, on all cores."""
    from gen.toolchain.nvrtc import Flags, Nvrtc

    compiler = Nvrtc(cache_home(output_home()), Flags(line_info=True))
    for _ in compiler.compile_many(list(texts.items()), limits.arch):
        pass  # what is refused is refused once more in the worker, which says so


def digest_of(texts: Mapping[str, str]) -> str:
    """What tells whether evidence is of the kernels that gen writes now."""
    return hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]


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


def evidence(outcomes: Sequence[Outcome], version: str, command: str, texts: str, seconds: float) -> dict[str, Any]:
    """What was run and found, as it is kept; `texts` is the digest of the kernels."""
    done = next((outcome.done for outcome in outcomes if outcome.done), {})
    tools: dict[str, Any] = {}
    for tool, group in groupby(outcomes, key=lambda outcome: outcome.tool):
        rows = {outcome.family: outcome.as_json() for outcome in group}
        totals = {key: _sum([row[key] for row in rows.values()]) for key in ("variants", "cases", "errors")}
        tools[tool] = {**totals, "families": rows}
    return {
        "meta": {
            "command": command,
            "date": date.today().isoformat(),
            "device": done.get("device"),
            "driver": done.get("driver"),
            "compiler": done.get("compiler"),
            "compute_sanitizer": version,
            "texts": texts,
        },
        "clean": bool(outcomes) and all(outcome.clean for outcome in outcomes),
        "seconds": round(seconds, 1),
        "tools": tools,
    }


def _sum(numbers: Sequence[int | None]) -> int | None:
    """Their sum; None if one of them is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def command_of(options: argparse.Namespace) -> str:
    """The command that runs the same again."""
    words = ["python bench/sanitize.py"]
    words += [f"--{key} {value}" for key in ("tool", "family", "name") if (value := getattr(options, key))]
    words += [f"--cases {options.cases}"] if options.cases != ALL else []
    return " ".join([*words, *(["--plant"] if options.plant else [])])


def evidence_file(device: str) -> Path:
    """Where the evidence of a device is kept: `bench/sanitize-nvidia-h100-80gb-hbm3.json`."""
    return ROOT / "bench" / f"sanitize-{re.sub(r'[^a-z0-9]+', '-', device.lower()).strip('-')}.json"


def show(outcome: Outcome) -> None:
    """Prints one line for what is clean; what was reported, too, for what is not."""
    done = outcome.done or {}
    errors = "no count" if outcome.report.errors is None else f"{outcome.report.errors} errors"
    print(
        f"{outcome.tool:10} {outcome.family:10} {done.get('variants', 0):4} variants on {done.get('sizes', 0)} of "
        f"{done.get('sizes_available', 0)} sizes, {done.get('cases', 0)} cases: {errors}, {outcome.seconds:.0f} s"
        + ("" if outcome.clean else "  NOT CLEAN"),
        flush=True,
    )
    if done.get("skipped"):
        print(f"  {done['skipped']} variants were skipped: their algorithms say why")
    if outcome.clean:
        return
    if outcome.status is None:
        print(f"  stopped after {outcome.seconds:.0f} s")
    for line in (*outcome.report.lines[:30], *(f" {wrong}" for wrong in done.get("wrong", ())[:5])):
        print(f"  {line}")
    if not outcome.report.lines and not done.get("wrong"):
        for line in outcome.output.splitlines()[-30:]:
            print(f"  {line}")


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
            for process in tuple(_running):
                stop(process)
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
