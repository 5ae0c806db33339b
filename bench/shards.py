"""What several ranks cost on one GPU: `python bench/shards.py [--json FILE]`, on a GPU, or with `--simulated`.

Computes many time steps of a stencil, or of a system without scalars, by the kernel of one GPU, and by one, two and
four ranks that share this GPU, for several numbers of steps between two exchanges. All must have the same bits; status
1 if one has not. Every way is timed in turns, hot, by events of the legacy default stream, which takes turns with all
streams of the ranks. A row holds all times, and how much longer their median is than that of the kernel of one GPU.

With `--simulated` the ranks are simulated on the CPU, in a random order of streams, and nothing is timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import gen
from bench.program import ended, need_gpu, write_results
from gen.cli.gpu import alone
from gen.families.base import Array
from gen.families.stencil import Stencil
from gen.gpu.device import Peer
from gen.runtime.sharded import ShardedArray
from gen.runtime.sharded_kernel import ShardedKernel
from gen.runtime.simulated import Machine

SHAPE, STEPS = (16384, 16384), 128
SMALL_SHAPE, FEW_STEPS = (90, 64), 12  # of a simulated run
RANKS = (1, 2, 4)
EXCHANGES = (None, 1, 4, 8, 16, 32)  # steps between two exchanges; None: what is chosen
WARM_UP, TURNS = 2, 12
GOAL = 0.03  # that several ranks may take longer than one, at the shape above


@dataclass(frozen=True)
class Row:
    """One way to compute the steps.

    Attributes:
        ranks: how many; 0 for the kernel of one GPU.
        steps_per_exchange: between two exchanges; 0 where there is none.
        chosen: whether that is what is chosen where nobody says it.
        equal: whether the bits are those of the kernel of one GPU.
        ms: of each turn; empty if nothing was timed.
        overhead: how much longer the median is than that of the kernel of one GPU, as a fraction.
    """

    ranks: int
    steps_per_exchange: int
    chosen: bool
    equal: bool
    ms: tuple[float, ...] = ()
    overhead: float | None = None

    def __str__(self) -> str:
        who = f"{self.ranks} ranks" if self.ranks > 1 else "1 rank" if self.ranks else "gen.load(spec)"
        exchange = f"{self.steps_per_exchange}{' *' if self.chosen else ''}" if self.steps_per_exchange else "-"
        time = f"{statistics.median(self.ms):.3f}" if self.ms else "-"
        overhead = "-" if self.overhead is None or not self.ranks else f"{100 * self.overhead:+.2f} %"
        return f"{who:16}{exchange:>20}{time:>12}{overhead:>12}  {'equal' if self.equal else 'NOT EQUAL'}"


HEAD = f"{'':16}{'steps an exchange':>20}{'ms':>12}{'overhead':>12}  bits"


@dataclass(frozen=True)
class Way:
    """A row that is still to be timed, and what computes it."""

    row: Row
    run: Callable[[], object]


Timed = Callable[[Callable[[], object]], float]


def ways(
    spec: str, fields: Sequence[Array], steps: int, device: Peer, ranks: Sequence[int], exchanges: Sequence[int | None]
) -> Iterator[Way]:
    """The kernel of one GPU, and the same by ranks that share it; each has been run, and its bits compared."""
    one, single = gen.load(spec, device=device), gen.load(spec, devices=[device])
    arrays, outs = arrays_of(single, fields)
    shards = [array.shards[0] for array in arrays]
    by_one = partial(one, *shards, out=tuple(out.shards[0] for out in outs), steps=steps)
    by_one()
    wanted = [out.gather().tobytes() for out in outs]
    yield Way(Row(0, 0, chosen=False, equal=True), by_one)
    for count in ranks:
        kernel = single
        if count > 1:
            kernel = gen.load(spec, devices=[device] * count, shared=True)
            arrays, outs = arrays_of(kernel, fields)
        chosen = kernel.steps_chosen(arrays[0].cuts, steps)
        for exchange in dict.fromkeys(min(number or chosen, steps) for number in exchanges if count > 1 or not number):
            run = partial(_run, kernel, arrays, outs, steps, exchange)
            run()
            equal = [out.gather().tobytes() for out in outs] == wanted
            yield Way(Row(count, exchange, exchange == chosen, equal), run)


def arrays_of(kernel: ShardedKernel, fields: Sequence[Array]) -> tuple[list[ShardedArray], tuple[ShardedArray, ...]]:
    """Of the inputs, and of the outputs of a kernel."""
    return [kernel.scatter(field) for field in fields], tuple(kernel.empty(fields[0].shape) for _ in kernel.outputs)


def _run(
    kernel: ShardedKernel, arrays: Sequence[ShardedArray], outs: tuple[ShardedArray, ...], steps: int, exchange: int
) -> None:
    kernel.steps_per_exchange = exchange  # one object, so that its memory is taken once
    kernel(*arrays, out=outs, steps=steps)


def measured(found: Sequence[Way], timed: Timed | None, turns: int) -> list[Row]:
    """The rows with their times: every way once a turn, the first of a turn another each time."""
    if timed is None:
        return [way.row for way in found]
    ms: list[list[float]] = [[] for _ in found]
    for turn in range(WARM_UP + turns):
        for place in range(len(found)):
            number = (place + turn) % len(found)
            took = timed(found[number].run)
            if turn >= WARM_UP:
                ms[number].append(took)
    medians = [statistics.median(one) for one in ms]
    return [
        replace(way.row, ms=tuple(round(one, 4) for one in times), overhead=round(median / medians[0] - 1, 5))
        for way, times, median in zip(found, ms, medians, strict=True)
    ]


def timer(device: Peer) -> Timed:
    """Milliseconds of what is queued on any stream of a GPU, by events of its legacy default stream."""

    def timed(run: Callable[[], object]) -> float:
        entered = device.enter()
        try:
            before, after = device.timer.event(), device.timer.event()
            device.synchronize()
            before.record()
            run()
            after.record()
            device.synchronize()
            return after.us_since(before) / 1000
        finally:
            device.leave(entered)

    return timed


def main() -> int:
    """Prints a line a way; status 1 if bits differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulated", action="store_true", help="simulate the ranks on the CPU, and time nothing")
    parser.add_argument("--seed", type=int, help="of the order of streams of a simulated run. Default: drawn, and told")
    parser.add_argument(
        "--spec", default=f"stencil_{Stencil.catalogue[0].label}", help="the name of a stencil, or of a system"
    )
    parser.add_argument("--shape", type=shape_of, help=f"ROWSxCOLS. Default: {SHAPE}, simulated {SMALL_SHAPE}")
    parser.add_argument("--steps", type=positive, help=f"Default: {STEPS}, simulated {FEW_STEPS}")
    parser.add_argument("--turns", type=positive, default=TURNS, help="how often each way is timed")
    parser.add_argument("--gpu", type=int, default=0, help="the number of the GPU")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    program = "python bench/shards.py"
    shape = options.shape or (SMALL_SHAPE if options.simulated else SHAPE)
    steps = options.steps or (FEW_STEPS if options.simulated else STEPS)
    machine = Machine(seed=options.seed) if options.simulated else None
    if machine is None:
        need_gpu(program)
    with nullcontext() if machine else alone(options.gpu, None, program):
        device = machine.devices(1)[0] if machine else gen.load(options.spec, devices=[options.gpu]).ranks[0].device
        fields = drawn_fields(gen.load(options.spec, devices=[device]), shape)
        found = list(ways(options.spec, fields, steps, device, RANKS, EXCHANGES))
        rows = measured(found, None if machine else timer(device), options.turns)
    where = f"simulated on the CPU, seed {machine.seed}" if machine else f"{device.name}, driver {device.driver}"
    print(f"{options.spec}, {' x '.join(map(str, shape))}, {steps} steps, {where}\n{HEAD}")
    for row in rows:
        print(row)
    goal = "nothing was timed" if machine else f"the goal is at most {100 * GOAL:g} % at {SHAPE} of f32"
    print(f"* chosen where nobody says how many; {goal}")
    more = {"spec": options.spec, "shape": list(shape), "steps": steps, "goal": GOAL,
            "seed": machine.seed if machine else None}  # fmt: skip
    write_results(options.json, program, device, more, rows=rows)
    return 0 if all(row.equal for row in rows) else 1


def drawn_fields(kernel: ShardedKernel, shape: tuple[int, ...]) -> list[Array]:
    """Random numbers for every input of a kernel."""
    random, floating = np.random.default_rng(0), kernel.dtype.kind != "i" and kernel.dtype.kind != "u"
    drawn = (random.random(shape, np.float32) if floating else random.integers(0, 256, shape) for _ in kernel.inputs)
    return [one.astype(kernel.dtype) for one in drawn]


def shape_of(text: str) -> tuple[int, ...]:
    """A shape as it is typed: `4096x4096`."""
    return tuple(positive(part) for part in text.split("x"))


def positive(text: str) -> int:
    """A number as it is typed. Raises ValueError for one below 1."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(ended(main))
