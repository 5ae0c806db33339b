"""Several GPUs, measured: `python bench/devices.py [--json FILE]`, on as many GPUs as there are, or `--simulated N`.

Each part runs in processes of its own, within a time of its own, and the file is written anew after each: what fails or
takes too long loses its own rows alone. Bits are compared first, by all parts at once; then each part is timed alone.

- links: what the driver copies from GPU to GPU.
- check: stencils, systems, reductions and transposes, split in many ways, against one GPU.
- heat, heat-small, heat-f64, heat-f64-small, wave, cube: weak and strong scaling of time steps.
- timeline: when rims are computed and sent, and how much of that is beside an inside.
- transpose, reduction: of arrays whose rows are split.
- processes, killed: one process for each GPU, by NCCL and by the hosts' memory; and when one of them dies.
- peers: five points by CUDA, JAX and torch, and torch's permute, all-to-all, permute.

Times are the host's, from idle GPUs to idle GPUs, in turns. With `--simulated` devices are simulated on the CPU, and
bits alone are compared.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import gen
from bench import device_peers
from bench.device_checks import checked_reductions, checked_steps, checked_transposes, checks
from bench.device_moves import links, reductions, transposes
from bench.device_processes import Member, killed, process, process_that_dies, processes
from bench.device_rows import HEAD, Place, Row, environment, program_words, read_rows, write_row
from bench.device_steps import CASES, scaling, timelines
from bench.program import ended, need_gpu, write_results
from gen.errors import ArgumentError, GenError
from gen.gpu import device as gpus
from gen.gpu.device import Peer
from gen.paths import cache_home, output_home
from gen.runtime import transport
from gen.runtime.simulated import Machine

PROGRAM = "python bench/devices.py"


@dataclass(frozen=True)
class Part:
    """One of this program's parts.

    Attributes:
        name: of it.
        run: gives its rows.
        seconds: that it may take.
        checks: whether it compares bits first.
    """

    name: str
    run: Callable[[Place], Iterator[Row]]
    seconds: float
    checks: bool = True


CHECK_SECONDS = 100


PARTS = (
    Part("links", links, 40, checks=False),
    Part("check-2d", partial(checks, checked=partial(checked_steps, axes=2)), CHECK_SECONDS),
    Part("check-3d", partial(checks, checked=partial(checked_steps, axes=3)), CHECK_SECONDS),
    Part("check-reduction", partial(checks, checked=checked_reductions), CHECK_SECONDS),
    Part("check-transpose", partial(checks, checked=checked_transposes), CHECK_SECONDS),
    *(Part(case.name, partial(scaling, case=case), 45) for case in CASES),
    Part("timeline", timelines, 45, checks=False),
    Part("transpose", transposes, 45),
    Part("processes", processes, 120),
    Part("killed", killed, CHECK_SECONDS),
    Part("peers", device_peers.rows, 130, checks=False),
    Part("reduction", reductions, 40),
)
FIRST = (
    "check-2d", "check-3d", "check-reduction", "check-transpose", "heat", "heat-small", "wave", "cube", "transpose",
    "killed",
)  # fmt: skip
LATER = ("reduction", "heat-f64", "heat-f64-small")


def schedule(names: Sequence[str]) -> Iterator[list[tuple[Part, bool]]]:
    """Which parts run at once, and whether they are timed: what is worth most comes first, bits before times."""
    known = {part.name: part for part in PARTS}
    alone = ("heat", "heat-small", "wave", "transpose", "cube", "processes", "timeline")
    last = (*LATER, "peers")
    for group, timed in (
        (("links",), True), (FIRST, False), *(((name,), True) for name in alone), (LATER, False),
        *(((name,), True) for name in last),
    ):  # fmt: skip
        found = [(known[name], timed or not known[name].checks) for name in group if name in names]
        if found:
            yield found


@dataclass(frozen=True)
class Ended:
    """How a child has ended."""

    part: str
    status: int | None
    seconds: float
    said: str


def child(name: str, place: Place, file: Path) -> int:
    """Runs a part, and writes each row as it comes."""
    [part] = [part for part in PARTS if part.name == name]
    for row in part.run(place):
        write_row(file, row)
    return 0


class Program:
    """Runs parts in children, and keeps what they find."""

    def __init__(
        self, path: Path | None, folder: Path, simulated: int, seed: int | None, limit: float,
        words: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Runs nothing yet.

        Args:
            path: of the results, written anew after each group of parts; None: nowhere.
            folder: for what children write and print.
            simulated: how many devices are simulated; 0 for GPUs.
            seed: of the order of their streams.
            limit: seconds that all may take.
            words: by which children are called; this program's if None.
        """
        self._path, self._folder, self._simulated, self._seed = path, folder, simulated, seed
        self._words = program_words() if words is None else words
        self._limit = time.monotonic() + limit
        self.rows: dict[tuple[str, str, str, int], Row] = {}
        self.ended: list[Ended] = []

    def run(self, parts: Sequence[tuple[Part, bool]]) -> None:
        """Runs parts at once, each timed or not."""
        left = self._limit - time.monotonic()
        if left < 8:
            self.ended += [Ended(part.name, None, 0.0, "no time was left") for part, _ in parts]
            return
        seconds = max(part.seconds if timed else CHECK_SECONDS for part, timed in parts)
        begin, limit = time.monotonic(), time.monotonic() + min(seconds, left - 2)
        begun = []
        for part, timed in parts:
            file = self._folder / f"{part.name}-{'times' if timed else 'bits'}.jsonl"
            words = ["--part", part.name, "--child", str(file), *([] if timed else ["--bits"])]
            if self._simulated:
                words += ["--simulated", str(self._simulated), *(["--seed", str(self._seed)] if self._seed else [])]
            with file.with_suffix(".log").open("w") as log:
                running = subprocess.Popen(
                    [*self._words, *words], stdout=log, stderr=subprocess.STDOUT, env=environment(),
                    start_new_session=True,
                )  # fmt: skip
            begun.append((part, timed, file, running))
        for part, timed, file, running in begun:
            try:
                status: int | None = running.wait(max(limit - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                status = None
            with suppress(ProcessLookupError):  # its children too
                os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            said = file.with_suffix(".log").read_text(errors="replace")
            short = "\n".join(said.splitlines()[-25:]) if status != 0 else ""
            seconds, name = round(time.monotonic() - begin, 1), f"{part.name}{'' if timed else ', bits'}"
            self.ended.append(Ended(name, status, seconds, short))
            for row in read_rows(file):
                self.add(row)
            print(f"== {self.ended[-1].part}: status {status}, {self.ended[-1].seconds} s\n{short}", flush=True)
        self._write()

    def add(self, row: Row) -> None:
        """Keeps a row in the place of one of the same key; whether bits were equal is kept too."""
        known = self.rows.get(row.key)
        if known is not None and row.equal is None:
            row = replace(row, equal=known.equal)
        self.rows[row.key] = row

    def _write(self) -> None:
        found = None if self._simulated else gpus.find_gpu()
        more = {"gpus": self._simulated or gpu_count(), "simulated": bool(self._simulated)}
        write_results(self._path, PROGRAM, found, more, ended=self.ended, rows=list(self.rows.values()))


def gpu_count() -> int:
    """How many GPUs there are."""
    found = 0
    with suppress(GenError):
        while gpus.find_gpu(found) is not None:
            found += 1
    return found


def main() -> int:
    """Runs all parts, and prints the table; status 1 if bits differ or a part has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=[part.name for part in PARTS], help="these alone")
    parser.add_argument("--simulated", type=int, default=0, metavar="N", help="simulate so many devices on the CPU")
    parser.add_argument("--seed", type=int, help="of the order of streams of simulated devices")
    parser.add_argument("--seconds", type=float, default=560, help="that all may take")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--logs", type=Path, help="keep what the parts print in this folder")
    for hidden in ("--child", "--mode", "--address"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    for hidden in ("--process", "--of"):
        parser.add_argument(hidden, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bits", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        return as_process(options)
    if options.child is not None:
        machine = Machine(seed=options.seed) if options.simulated else None
        file = Path(options.child)
        place = Place(opened(machine, options.simulated), not options.bits, machine, file.parent)
        return child(options.part[0], place, file)
    if not options.simulated:
        need_gpu(PROGRAM)
    elif options.simulated < 2:
        raise ArgumentError("--simulated", "must be at least 2", options.simulated)
    names = options.part or [part.name for part in PARTS]
    with tempfile.TemporaryDirectory() as folder:
        kept = options.logs or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        program = Program(options.json, kept, options.simulated, options.seed, options.seconds)
        groups = schedule(names)
        if options.simulated:
            groups = iter([[(part, False) for part in PARTS if part.checks and part.name in names]])
        for group in groups:
            program.run(group)
    rows = list(program.rows.values())
    print(f"{HEAD}")
    for row in rows:
        if row.part not in ("check", "links") or row.equal is False or row.value is not None:
            print(row)
    bits = [row.equal for row in rows if row.equal is not None]
    print(f"{sum(bits)} of {len(bits)} have the bits of one GPU")
    failed = [one.part for one in program.ended if one.status != 0]
    print(f"failed: {', '.join(failed) or 'nothing'}")
    return 0 if all(bits) and not failed else 1


def as_process(options: argparse.Namespace) -> int:
    """Runs as one of several processes."""
    if options.mode.startswith("hosts"):  # as if NCCL were not installed
        vars(transport)["find_spec"] = lambda *_: None
    joined = gen.join(options.address, rank=options.process, size=options.of)
    machine = Machine(seed=options.process) if options.simulated else None
    device = machine.devices(1)[0] if machine else opened_gpu(options.process)
    member = Member(joined, device, options.mode, Path(options.child), machine is not None)
    (process_that_dies if options.mode.endswith("killed") else process)(member)
    return 0


def opened(machine: Machine | None, count: int) -> tuple[Peer, ...]:
    """All devices."""
    return tuple(machine.devices(count)) if machine is not None else tuple(map(opened_gpu, range(gpu_count())))


def opened_gpu(number: int) -> Peer:
    """A GPU."""
    from gen.gpu.cuda import CudaDevice

    return CudaDevice(number, cache_home(output_home()))


if __name__ == "__main__":
    sys.exit(ended(main))
