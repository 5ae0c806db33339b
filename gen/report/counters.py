"""The hardware's own counters, by Nsight Compute: what kernels really moved, and in how many wavefronts."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gen.emit.render import render
from gen.errors import MissingToolError, RunError
from gen.families import FAMILIES
from gen.families.base import Extents, Limits, Variant
from gen.families.plans import steps
from gen.paths import cache_home
from gen.proof.traffic import Kind, Space

if TYPE_CHECKING:
    from gen.report.explain import Explanation

Counted = Mapping[str, Mapping[str, float]]
"""Values by the symbol of the kernel, and by Nsight Compute's name of the metric."""

PROGRAM = "ncu"
PROFILER_SECONDS = 300  # for a few kernels, which are run several times over

# Those of instructions leave out that requests are made to wait for each other, and come again.
LOAD_SECTORS = (
    "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
)
STORE_SECTORS = ("smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_st.sum",)
SHARED_LOAD_WAVEFRONTS = ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",)
SHARED_STORE_WAVEFRONTS = (
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
)
WARP_INSTRUCTIONS = ("smsp__inst_executed.sum",)
BYTES_READ = ("dram__bytes_read.sum",)
BYTES_WRITTEN = ("dram__bytes_write.sum",)
ACTIVE_WARPS = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
NANOSECONDS = ("gpu__time_duration.sum",)
METRICS = (
    *LOAD_SECTORS, *STORE_SECTORS, *SHARED_LOAD_WAVEFRONTS, *SHARED_STORE_WAVEFRONTS, *WARP_INSTRUCTIONS, *BYTES_READ,
    *BYTES_WRITTEN, *ACTIVE_WARPS, *NANOSECONDS,
)  # fmt: skip


def profiler() -> Path | None:
    """Nsight Compute's program: the one on PATH, else that of a toolkit in its usual place; None if there is none."""
    on_path = shutil.which(PROGRAM)
    return Path(on_path) if on_path else next(iter(sorted(Path("/usr/local").glob(f"cuda*/bin/{PROGRAM}"))), None)


def counters(program: Path, made: Variant, extents: Extents, limits: Limits, home: Path) -> Counted:
    """The metrics of every kernel of a variant, by symbol and metric, all its launches together.

    Args:
        program: Nsight Compute.
        made: the variant.
        extents: of the problem; inputs are random.
        limits: of the device, the first.
        home: holds what was compiled.

    Raises:
        MissingToolError: the driver lets nobody but the superuser count.
        RunError: it fails for another reason.
    """
    planned = steps(made.plan, {**extents, **limits.sizes()})
    symbols = sorted({made.name + step.entry for step in planned if not step.setup})
    command = [
        str(program), "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none",
        "--kernel-name", f"regex:^({'|'.join(symbols)})$", "--metrics", ",".join(METRICS),
        sys.executable, "-m", "gen.report.counters", json.dumps(request(made, extents, home)),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PROFILER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError("Nsight Compute", "must count what a kernel does", error) from error
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        next_step = "Run as root, or have the driver's NVreg_RestrictProfilingToAdminUsers set to 0"
        raise MissingToolError("Nsight Compute", "must be allowed to read the GPU's counters", next_step=next_step)
    found = parse(done.stdout)
    if done.returncode or not found.keys() >= set(symbols):
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RunError("Nsight Compute", f"must count what {made.name} does", " ".join(last) or None)
    return found


def request(made: Variant, extents: Extents, home: Path) -> dict[str, Any]:
    """What the process that runs it is asked."""
    family = type(made.family)
    outside = not any(type(known) is family for known in FAMILIES)
    return {
        "families": [f"{family.__module__}:{family.__qualname__}"] if outside else [],
        "specs": {made.spec_name: dict(made.spec.to_json())},
        "cache": str(cache_home(home)),
        "runs": [{"name": made.name, "extents": dict(extents)}],
    }


def parse(text: str) -> dict[str, dict[str, float]]:
    """The metrics of every kernel by symbol, those of all its launches together, in what `--csv --page raw` prints.

    Sums are added up, averages are not: of several launches the last counts.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found: dict[str, dict[str, float]] = {}
    if not lines:
        return found
    names, _, *rows = csv.reader(lines)  # the second row has units
    for row in rows:
        values = dict(zip(names, row, strict=True))
        mine = found.setdefault(values["Kernel Name"], {})
        for metric in METRICS:
            value = values.get(metric, "")
            if value.replace(",", "").replace(".", "", 1).isdecimal():
                number = float(value.replace(",", ""))
                mine[metric] = number + (mine.get(metric, 0.0) if metric.endswith(".sum") else 0.0)
    return found


def total(found: Counted, metrics: Sequence[str]) -> float | None:
    """The sum of metrics over all kernels; None where none of them was counted."""
    values = [kernel[metric] for kernel in found.values() for metric in metrics if metric in kernel]
    return sum(values) if values else None


@dataclass(frozen=True)
class ProfilerMetric:
    """A counter of the hardware.

    Attributes:
        name: for people.
        key: for JSON.
        metrics: Nsight Compute's, which are added up.
        predicted: None where nothing is.
        scale: by which they are multiplied.
        exact: whether the prediction counts the same thing, rather than estimates it.
    """

    name: str
    key: str
    metrics: Sequence[str]
    predicted: Callable[[Explanation], float | None]
    scale: float = 1.0
    exact: bool = False


def _sum(space: Space, kind: Kind, what: str) -> Callable[[Explanation], float]:
    return lambda one: sum(getattr(access, what) for access in one.found.of(space, kind))


COUNTERS = (
    ProfilerMetric("sectors loaded", "load_sectors", LOAD_SECTORS, _sum("global", "load", "sectors"), exact=True),
    ProfilerMetric("sectors stored", "store_sectors", STORE_SECTORS, _sum("global", "store", "sectors"), exact=True),
    ProfilerMetric(
        "wavefronts of shared loads", "shared_load_wavefronts", SHARED_LOAD_WAVEFRONTS,
        _sum("shared", "load", "wavefronts"), exact=True,
    ),
    ProfilerMetric(
        "wavefronts of shared stores", "shared_store_wavefronts", SHARED_STORE_WAVEFRONTS,
        _sum("shared", "store", "wavefronts"), exact=True,
    ),
    ProfilerMetric("instructions of warps", "warp_instructions", WARP_INSTRUCTIONS, lambda _: None),
    ProfilerMetric("bytes read from memory", "memory_bytes_read", BYTES_READ, lambda one: float(one.work.bytes_read)),
    ProfilerMetric("bytes written to memory", "memory_bytes_written", BYTES_WRITTEN, lambda _: None),  # some is cached
    ProfilerMetric("us, by the profiler", "profiled_us", NANOSECONDS, lambda one: one.predicted.us, 1e-3),
)  # fmt: skip


@dataclass(frozen=True)
class CountedMetric:
    """A counter of one variant on one problem."""

    counter: ProfilerMetric
    predicted: float | None
    counted: float

    @property
    def difference(self) -> float | None:
        """By how much what was counted exceeds what was predicted, as a share; None where that says nothing."""
        if self.predicted is None:
            return None
        if self.predicted == 0:
            return 0.0 if self.counted == 0 else float("inf")
        return self.counted / self.predicted - 1

    def shown(self) -> tuple[str, str, str, str]:
        """As a row of text."""
        predicted = "-" if self.predicted is None else f"{self.predicted:.6g}"
        difference = "-" if self.difference is None else f"{self.difference:+.1%}"
        return self.counter.name, predicted, f"{self.counted:.6g}", difference

    def as_json(self) -> dict[str, Any]:
        """As data."""
        return {"counter": self.counter.key, "predicted": self.predicted, "counted": self.counted}


def compared(one: Explanation, found: Counted) -> Iterator[CountedMetric]:
    """Every counter that there is."""
    for counter in COUNTERS:
        value = total(found, counter.metrics)
        if value is not None:
            yield CountedMetric(counter, counter.predicted(one), value * counter.scale)


def main() -> None:
    """Runs variants once each on the first GPU, under the profiler that started this process.

    The request is JSON: `families`, `specs` by name, `cache`, and `runs`: `name`, `extents`.
    """
    from gen.families import families
    from gen.families.names import find_variant
    from gen.gpu.kernel import CudaKernel
    from gen.gpu.timing import Instruments
    from gen.store.trials import Problem
    from gen.toolchain.nvrtc import Nvrtc
    from gen.tune.gpu_session import Buffers

    request = json.loads(sys.argv[1])
    known = families(*request["families"])
    instruments = Instruments.open(0, Nvrtc(Path(request["cache"])))
    device = instruments.device
    for run in request["runs"]:
        made, extents = find_variant(known, run["name"], request["specs"]), run["extents"]
        buffers = Buffers(device, instruments.service, Problem(made.family, made.spec, extents))
        kernel = CudaKernel(made, device.compile(made.name, render(made)), device, device.limits)
        addresses = {**kernel.scratch(extents), **buffers.addresses}
        buffers.reset(0)
        kernel.launches(kernel.steps(extents), extents, addresses)()
        device.synchronize()
        buffers.free()


if __name__ == "__main__":
    main()
