"""One process for each GPU, for `bench/devices.py`: by NCCL and by the hosts' memory, and when one of them dies."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import gen
from bench.device_rows import (
    ROOT,
    WARM_UP,
    Place,
    Row,
    environment,
    free_address,
    program_words,
    read_rows,
    rounded,
    same_bits,
    shape_text,
    timed,
    write_row,
)
from bench.device_steps import CASES, Case, Job, fields_of, heat
from gen.errors import ProcessError
from gen.gpu.device import Peer
from gen.runtime.processes import Processes


def processes(place: Place) -> Iterator[Row]:
    """One process for each GPU, by NCCL and by the hosts' memory."""
    for mode in ("nccl", "hosts"):
        yield from _spawned(place, mode, 75)


def killed(place: Place) -> Iterator[Row]:
    """One process of several dies while all compute."""
    for mode in ("nccl-killed", "hosts-killed"):
        yield from _spawned(place, mode, 45)


def _spawned(place: Place, mode: str, seconds: float) -> Iterator[Row]:
    """The rows that processes write, one process for each GPU."""
    address, count = free_address(), len(place.devices)
    file = place.folder / f"{mode}.jsonl"
    words = ["--of", str(count), "--mode", mode, "--address", address, "--child", str(file)]
    if place.machine is not None:
        words += ["--simulated", str(count)]
    begun = [_begun([*program_words(), *words, "--process", str(rank)]) for rank in range(count)]
    limit = time.monotonic() + seconds
    for rank, process in enumerate(begun):
        try:
            said = process.communicate(timeout=max(limit - time.monotonic(), 1))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0] + "\nIt took too long."
            process.returncode = 124
        meant = -signal.SIGKILL if mode.endswith("killed") and rank == count - 1 else 0
        if process.returncode != meant:
            part = "killed" if mode.endswith("killed") else "processes"
            yield Row(part, f"process {rank}, {mode}", f"failed, status {process.returncode}", count,
                      lines=tuple(said.splitlines()[-40:]))  # fmt: skip
    yield from read_rows(file)


def _begun(words: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(), cwd=ROOT
    )


@dataclass(frozen=True)
class Member:
    """One of several processes.

    Attributes:
        joined: all of them.
        device: of this one.
        mode: how they exchange.
        file: for the rows, which the first one writes.
        small: whether the devices are simulated, and nothing is timed.
    """

    joined: Processes
    device: Peer
    mode: str
    file: Path
    small: bool

    def all_true(self, said: bool) -> bool:
        """Whether it is true in all of them."""
        return set(self.joined.all_say(str(said))) == {"True"}

    def most(self, number: float) -> float:
        """The largest of all of them."""
        return max(map(float, self.joined.all_say(str(number))))

    def times(self, run: Callable[[], object], turns: int = 5) -> tuple[list[float], float]:
        """Milliseconds until the last is done, and the median of those until this one has queued."""
        found = []
        for _ in range(WARM_UP + turns):
            self.joined.all_say("ready")
            ms, queued = timed([self.device], run)
            found.append((self.most(ms), queued))
        return [ms for ms, _ in found[WARM_UP:]], statistics.median([queued for _, queued in found[WARM_UP:]])

    def write(self, row: Row) -> None:
        """Adds a row, without times where they mean nothing."""
        if self.joined.rank == 0:
            write_row(self.file, replace(row, ms=(), queued_ms=None, value=None) if self.small else row)


def process(member: Member) -> None:
    """What one of several processes does: time steps, a transpose, a sum."""
    for case in CASES[: 3 if member.mode == "nccl" else 1]:
        _steps_of_process(member, case)
    count, extent = member.joined.size, 96 if member.small else 16384
    matrix = fields_of((extent, extent), ["matrix"], np.dtype(np.float32))[0]
    turn = gen.load(gen.permutation((1, 0), "float32"), devices=[member.device], processes=member.joined)
    array, out = turn.scatter(matrix), turn.empty((extent, extent), dtype=matrix.dtype)
    ms, queued = member.times(partial(turn, array, out=out))
    equal = member.all_true(np.array_equal(out.shards[0].numpy(), matrix.T[out.slices[0]]))
    rate = extent * extent * 4 // count * (count - 1) // count / statistics.median(ms) / 1e6
    member.write(Row("processes", f"transpose f32, {extent} x {extent}", member.mode, count, equal, rounded(ms),
                     round(queued, 4), round(rate, 1), "GB/s out of a GPU"))  # fmt: skip
    spec = gen.reduction("sum", "float32")
    total = gen.load(spec, devices=[member.device], processes=member.joined)
    alone = gen.load(spec, devices=[member.device])
    array = total.scatter(matrix)
    ms, queued = member.times(partial(total, array))
    equal = member.all_true(total(array).numpy().tobytes() == alone(alone.scatter(matrix)).numpy().tobytes())
    member.write(Row("processes", f"sum f32, {extent} x {extent}", member.mode, count, equal, rounded(ms),
                     round(queued, 4)))  # fmt: skip


def _steps_of_process(member: Member, case: Case) -> None:
    spec, count, device = case.spec(), member.joined.size, member.device
    shape, steps = (case.small, 12) if member.small else (case.shape, case.steps)
    single, one = gen.load(spec, devices=[device]), gen.load(spec, device=device)
    kernel = gen.load(spec, devices=[device], processes=member.joined)
    wide = fields_of((shape[0] * count, *shape[1:]), single.inputs, single.dtype)
    reference = Job.of(single, wide)
    reference.run_alone(one, steps)
    wanted = reference.result()
    del reference
    base, job = Job.of(single, [field[: shape[0]] for field in wide]), Job.of(kernel, wide)
    chosen = kernel.steps_chosen(job.arrays[0].cuts, steps)
    alone = statistics.median(member.times(partial(base.run_alone, one, steps))[0])
    for exchange in dict.fromkeys((chosen, min(2 * chosen, steps))):
        ms, queued = member.times(partial(job.run, steps, exchange))
        equal = member.all_true(same_bits(job.outs[0].shards[0].numpy(), wanted[job.outs[0].slices[0]]))
        how = f"{member.mode}, {exchange} steps an exchange"
        about, speedup = f"{case.about}, {shape_text(shape)} a GPU", round(count * alone / statistics.median(ms), 4)
        member.write(Row("processes", about, how, count, equal, rounded(ms), round(queued, 4), speedup,
                         "times one GPU"))  # fmt: skip


def process_that_dies(member: Member) -> None:
    """Steps until the last process is killed; the others say how long they took to notice."""
    moment, last = member.file.with_suffix(".moment"), member.joined.size - 1
    spec, shape, steps = heat("f32"), (4096 * (last + 1), 4096), 256
    if member.small:
        shape, steps = (64 * (last + 1), 60), 4
    kernel = gen.load(spec, devices=[member.device], processes=member.joined)
    job = Job.of(kernel, fields_of(shape, kernel.inputs, kernel.dtype))
    for number in range(100_000):
        if member.joined.rank == last and number == 50:
            moment.write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            job.run(steps)
            job.outs[0].synchronize()
        except ProcessError as error:
            seconds = time.time() - float(moment.read_text())
            how = f"{member.mode.partition('-')[0]}, process {member.joined.rank}"
            row = Row("killed", f"process {last} of {last + 1} dies", how, last + 1, value=round(seconds, 3),
                      unit="seconds until the error", goal=10, note=str(error).splitlines()[0])  # fmt: skip
            write_row(member.file, row)
            return
