"""What more GPUs bring to tuning, and whether one disturbs another: `python bench/tune_gpus.py [--json FILE]`.

First `gen tune` runs on one GPU, on two, and so on, each time from nothing and for as many seconds: how many variants a
second were compiled, proven and timed, over those of one GPU. Then variants are timed on the first GPU in rounds, by
turns while the machine is idle and while it tunes: all other GPUs try variants, and all cores compile. The ratio of the
two must be 1, within what finals tell apart.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone, of_one_model
from gen.emit.render import render
from gen.errors import RunError
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.families.names import heuristic_variants
from gen.store.trials import Problem
from gen.store.winners import TUNED_FILE, text_of_winners
from gen.toolchain.farm import CompileFarm, Farm
from gen.toolchain.nvrtc import Nvrtc
from gen.tune.choose import over
from gen.tune.device import Entrant, Session, TuningDevice
from gen.tune.one_problem import base_of
from gen.tune.targets import problems

PROBLEMS = (("reduction_sum_f32", "2^15"), ("reduction_sum_f32", "2^28"), ("transpose_10_b32", "4096x4096"))
TUNED = "transpose_10_b32"
TURNS, ROUNDS = 20, 10  # of each kind, and rounds of a turn
TICKS, SAMPLED_SECONDS = os.sysconf("SC_CLK_TCK"), 0.25  # of the kernel's clock a second; between two looks
SETTLED = 0.003  # a difference that finals tell apart
NOT_TRIED = ("infeasible", "pruned")


@dataclass(frozen=True)
class Rate:
    """A run of `gen tune`.

    Attributes:
        gpus: on how many.
        tried: variants.
        seconds: that took.
        problems: that were begun.
        own_cores: cores that its own process kept busy, which feeds all others; about 1 is all that Python can.
        other_cores: cores that compilations and what drives the GPUs kept busy.
    """

    gpus: int
    tried: int
    seconds: float
    problems: int
    own_cores: float = 0.0
    other_cores: float = 0.0

    @property
    def a_second(self) -> float:
        """Variants that were tried a second."""
        return self.tried / self.seconds


@dataclass(frozen=True)
class Disturbance:
    """The time of a variant while the machine tunes over that while it is idle, with its 95 % interval."""

    problem: str
    variant: str
    idle_us: float
    ratio: float
    low: float
    high: float

    @property
    def is_free(self) -> bool:
        """Whether no difference is shown that finals would tell apart."""
        return self.low <= 1 + SETTLED and self.high >= 1 - SETTLED


def main() -> int:
    """Prints a line a run and a line a variant; status 1 if a time is disturbed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="the budget of each run of gen tune")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    gpu = need_gpu("python bench/tune_gpus.py")
    from gen.tune.device import IsolatedDevice
    from gen.tune.gpu_session import GpuFactory

    numbers = of_one_model(None)
    rates: list[Rate] = []
    rows: list[Disturbance] = []

    def write() -> None:  # what is there by then is kept
        cores = len(os.sched_getaffinity(0))
        write_results(
            options.json, "python bench/tune_gpus.py", gpu, {"gpus": len(numbers), "cores": cores},
            rates=[asdict(rate) for rate in rates], rows=[asdict(row) for row in rows],
        )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for count in range(1, len(numbers) + 1):
            rates.append(rate_of(numbers[:count], options.seconds, home / str(count)))
            rate = rates[-1]
            print(f"{count} GPUs: {rate.tried} variants of {rate.problems} problems in {rate.seconds:.1f} s, "
                  f"{rate.a_second:.1f} a second, {rate.a_second / rates[0].a_second:.3f} times one; "
                  f"its process had {rate.own_cores:.2f} cores, all others {rate.other_cores:.1f}",
                  flush=True)  # fmt: skip
            write()
        with ExitStack() as kept:
            for number in numbers:
                kept.enter_context(alone(number, None, "bench/tune_gpus.py"))
            farm = kept.enter_context(CompileFarm(Nvrtc(None)))  # without a cache: it compiles again and again
            devices = [kept.enter_context(IsolatedDevice(GpuFactory(number, Nvrtc(None), home))) for number in numbers]
            for spec, shape in PROBLEMS:
                (problem,) = problems(FAMILIES, spec, {}, (shape,))
                for row in disturbances(problem, devices, farm):
                    rows.append(row)
                    print(f"{row.problem} {row.variant}: {row.idle_us:.2f} us, times {row.ratio:.4f} "
                          f"({row.low:.4f} to {row.high:.4f}) while the machine tunes", flush=True)  # fmt: skip
                write()
    return 0 if all(row.is_free for row in rows) else 1


def rate_of(numbers: Sequence[int], seconds: float, home: Path) -> Rate:
    """A run of `gen tune` from nothing."""
    home.mkdir()
    (home / TUNED_FILE).write_text(text_of_winners([]), encoding="utf-8")
    words = ["tune", TUNED, "--gpu", ",".join(map(str, numbers)), "--budget", f"{seconds}s", "--home", str(home)]
    begin = time.monotonic()
    running = subprocess.Popen([sys.executable, "-m", "gen", *words, "--json"], stdout=subprocess.PIPE)
    used: dict[int, float] = {}
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(running.communicate)
        while not said.done():
            used |= cpu_seconds(running.pid)
            wait([said], SAMPLED_SECONDS)
    if running.returncode:
        raise RunError("gen tune", "must find winners; it says above why it has not", f"status {running.returncode}")
    took, own = time.monotonic() - begin, used.pop(running.pid, 0.0)
    found = rate_in(json.loads(said.result()[0]), len(numbers))
    return replace(found, own_cores=round(own / took, 3), other_cores=round(sum(used.values()) / took, 2))


def cpu_seconds(ancestor: int) -> dict[int, float]:
    """What a process, and each of those that it has started, has had of the CPUs, by number; as Linux counts it."""
    parents, seconds = dict[int, int](), dict[int, float]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = file.read_text().rpartition(")")[2].split()  # a name may hold anything
            number = int(file.parent.name)
            parents[number], seconds[number] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    kept = {ancestor}
    while more := {one for one, parent in parents.items() if parent in kept} - kept:
        kept |= more
    return {one: seconds[one] for one in kept if one in seconds}


def rate_in(content: dict[str, object], gpus: int) -> Rate:
    """The rate that `gen tune --json` tells of."""
    outcomes = content["outcomes"]
    assert isinstance(outcomes, list)
    assert isinstance(content["seconds"], float)
    counts = [one["statuses"] for one in outcomes]
    tried = sum(count for statuses in counts for status, count in statuses.items() if status not in NOT_TRIED)
    return Rate(gpus, tried, content["seconds"], len(outcomes))


def disturbances(problem: Problem, devices: Sequence[TuningDevice], farm: Farm) -> Iterator[Disturbance]:
    """Times base and what is often fast on the first device, by turns while all else is idle and while it is not."""
    limits = devices[0].limits
    first = next(iter(heuristic_variants(problem.family, problem.spec, problem.shape_class, limits)), None)
    made = [base_of(problem, devices[0]), *([] if first is None else [first])]
    entrants = [Entrant(one, farm.submit(one.name, render(one), limits.arch).result()) for one in dict.fromkeys(made)]
    sessions = [device.open(problem, entrants[0]) for device in devices]
    for session in sessions:
        session.ready().result()
    times: dict[bool, dict[str, list[float]]] = {
        busy: {entrant.name: [] for entrant in entrants} for busy in (False, True)
    }
    for turn in range(2 * TURNS):
        busy = turn % 4 in (1, 2)  # idle, busy, busy, idle: a drift of the clock is the same for both
        with busied(sessions[1:], entrants, farm, limits.arch) if busy else ExitStack():
            found = sessions[0].rounds(entrants, ROUNDS)
        for name, more in found.times_us.items():
            times[busy][name] += more
    for session in sessions:
        session.close()
    for entrant in entrants:
        ratio = over(times[True][entrant.name], times[False][entrant.name])
        idle = sorted(times[False][entrant.name])
        short = entrant.name.partition("__")[2]
        yield Disturbance(str(problem), short, idle[len(idle) // 2], ratio.center, ratio.low, ratio.high)


@contextmanager
def busied(sessions: Sequence[Session], entrants: Sequence[Entrant], farm: Farm, arch: str) -> Iterator[None]:
    """Has these sessions try variants, and the farm compile, as long as it lasts."""
    ended_now = threading.Event()

    def attempts(session: Session) -> None:
        for entrant in itertools.cycle(entrants):
            if ended_now.is_set():
                return
            session.submit(entrant, float("inf")).result()

    def compilations(made: Variant) -> None:
        text = render(made)
        while not ended_now.is_set():
            farm.submit(made.name, text, arch).result()

    jobs = [partial(attempts, session) for session in sessions]
    jobs += [partial(compilations, entrants[number % len(entrants)].variant) for number in range(farm.width)]
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended_now.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    sys.exit(ended(main))
