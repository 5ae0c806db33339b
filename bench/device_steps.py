"""Time steps on several GPUs, for `bench/devices.py`: weak and strong scaling, and when ranks compute and exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import gen
from bench.device_rows import Place, Row, Way, same_bits, shape_text, speedups
from gen.families.base import Array, Spec
from gen.gpu.device import Peer
from gen.runtime.sharded import Rank, ShardedArray
from gen.runtime.sharded_kernel import ShardedKernel

TILE_ROWS = 1021  # after which random rows are repeated: a prime, so that shards differ


def heat(dtype: str) -> Spec:
    """Five points."""
    return gen.stencil(np.array([[0, 1, 0], [1, 4, 1], [0, 1, 0]]) / 8, dtype=dtype, word="heat")


def wave() -> Spec:
    """The literature's kernel_2dfd: two fields, order 8 in space."""
    u, v, m = gen.fields("u v m")
    return gen.system({u: 2 * u - v + m * u.laplace(order=8), v: u}, word="wave")


def cube(dtype: str = "f32") -> Spec:
    """Seven points in three axes."""
    weights = np.zeros((3, 3, 3))
    weights[1, 1, :] = weights[1, :, 1] = weights[:, 1, 1] = 1 / 8
    weights[1, 1, 1] = 1 / 4
    return gen.stencil(weights, dtype=dtype, word="heat")


@dataclass(frozen=True)
class Case:
    """Time steps of a domain.

    Attributes:
        name: of the part.
        about: what is computed.
        spec: of it.
        shape: of a GPU where the domain grows with them, and of the whole where it does not.
        small: that shape on simulated devices.
        steps: of a call.
        exchanges: steps between two exchanges that are tried beside those that are chosen.
        weak, strong: goals of two GPUs: as a part of twice one GPU; times one GPU. None: there is none.
    """

    name: str
    about: str
    spec: Callable[[], Spec]
    shape: tuple[int, ...]
    small: tuple[int, ...]
    steps: int
    exchanges: tuple[int, ...]
    weak: float | None = None
    strong: float | None = None


CASES = (
    Case("heat", "5 points f32", partial(heat, "f32"), (16384, 16384), (96, 70), 256, (8, 32, 64), 0.99, 1.97),
    Case("heat-small", "5 points f32", partial(heat, "f32"), (4096, 4096), (64, 60), 2048, (8, 32, 64), 0.95),
    Case("wave", "kernel_2dfd f32", wave, (8192, 8192), (80, 60), 64, (1, 2, 4, 8), 0.96, 1.92),
    Case("cube", "7 points 3-D f32", cube, (512, 512, 512), (40, 20, 24), 64, (1, 2, 4, 8)),
    Case("heat-f64", "5 points f64", partial(heat, "f64"), (16384, 16384), (64, 60), 128, (8, 32)),
    Case("heat-f64-small", "5 points f64", partial(heat, "f64"), (4096, 4096), (64, 60), 1024, (8, 32)),
)


def fields_of(shape: tuple[int, ...], names: Sequence[str], dtype: np.dtype[Any]) -> list[Array]:
    """Random numbers for every input, the same wherever they are drawn; waves stay finite."""
    random = np.random.default_rng(0)
    tile = random.random((min(TILE_ROWS, shape[0]), *shape[1:]), np.float32).astype(dtype)
    made = []
    for number, name in enumerate(names):
        one = np.roll(tile, number + 1, axis=0) * dtype.type(0.25 if name == "m" else 1)
        made.append(np.resize(one, shape))
    return made


@dataclass(frozen=True)
class Job:
    """A kernel of several devices with its arrays."""

    kernel: ShardedKernel
    arrays: tuple[ShardedArray, ...]
    outs: tuple[ShardedArray, ...]

    @classmethod
    def of(cls, kernel: ShardedKernel, fields: Sequence[Array]) -> Job:
        """Scatters fields."""
        outs = tuple(kernel.empty(fields[0].shape) for _ in kernel.outputs)
        return cls(kernel, tuple(kernel.scatter(field) for field in fields), outs)

    def run(self, steps: int, exchange: int | None = None, *, replays: bool = True) -> None:
        """Queues a call."""
        self.kernel.steps_per_exchange, self.kernel.replays = exchange, replays  # one object for all: memory once
        self.kernel(*self.arrays, out=self.outs, steps=steps)

    def run_alone(self, kernel: Any, steps: int) -> None:
        """Queues a call of the kernel of one GPU, with the arrays of the one rank."""
        kernel(*(array.shards[0] for array in self.arrays), out=tuple(out.shards[0] for out in self.outs), steps=steps)

    def result(self) -> Array:
        """What the first output holds."""
        return self.outs[0].gather()


def with_ranks(kernel: ShardedKernel, change: Callable[[Rank], Rank]) -> ShardedKernel:
    """A kernel that has not been called yet, with other streams."""
    ranks = []
    for rank in kernel.ranks:
        with rank.current():
            ranks.append(change(rank))
    kernel.ranks = tuple(ranks)
    return kernel


def scaling(place: Place, case: Case) -> Iterator[Row]:
    """Weak and strong scaling of a case: the domain of one GPU, as many of them as there are GPUs, and it on all."""
    spec, steps, shape = case.spec(), case.steps, case.shape
    if place.machine is not None:
        shape, steps = case.small, 12
    ways: list[Way] = []
    wanted: dict[bool, Array] = {}
    single = gen.load(spec, devices=place.devices[:1])
    one = gen.load(spec, device=place.devices[0])
    fields = fields_of(shape, single.inputs, single.dtype)
    base = Job.of(single, fields)
    row = Row(case.name, f"{case.about}, {shape_text(shape)}", "one GPU", 1)
    ways.append(Way(row, partial(base.run_alone, one, steps), base.result))
    for device in place.devices[1:] if place.timed else ():
        alone = gen.load(spec, devices=[device])
        job = Job.of(alone, fields)
        there = replace(row, how=f"one GPU, number {device.index}")
        ways.append(Way(there, partial(job.run_alone, gen.load(spec, device=device), steps), None, 0))
    for count in place.counts:
        devices = place.devices[:count]
        large = (shape[0] * count, *shape[1:])
        wide = fields_of(large, single.inputs, single.dtype)
        if place.timed:
            ways.append(_apart(case, row, devices, fields, steps))
        else:
            reference = Job.of(single, wide)
            for weak, job in ((True, reference), (False, base)):
                job.run_alone(one, steps)
                wanted[weak] = job.result()
            del reference, job
        for weak in (True, False):
            about = f"{case.about}, {shape_text(shape)} {'a GPU' if weak else 'in all'}"
            made = _ways(devices, case, wide if weak else fields, steps, about, weak=weak)
            if place.timed:
                ways += made
                continue
            for way in made:  # one after the other, so that memory is given back
                if place.machine is None and not way.row.how.endswith(("chosen", "columns")):
                    continue  # small domains are compared in all ways, by the parts named check
                assert way.result is not None
                for _ in range(3):  # the third may be a graph
                    way.run()
                yield replace(way.row, equal=same_bits(way.result(), wanted[weak]))
    if place.timed:
        yield from speedups(ways, place.devices)


def _apart(case: Case, row: Row, devices: Sequence[Peer], fields: Sequence[Array], steps: int) -> Way:
    """The kernel of one GPU on each of several, which exchange nothing: more than that no split can reach."""
    jobs = [
        (Job.of(gen.load(case.spec(), devices=[one]), fields), gen.load(case.spec(), device=one)) for one in devices
    ]

    def run() -> None:
        for job, kernel in jobs:
            job.run_alone(kernel, steps)

    about = f"{row.case} a GPU"
    return Way(replace(row, case=about, how="apart, no exchange", gpus=len(devices)), run, None, 0, len(devices))


def _ways(
    devices: Sequence[Peer], case: Case, fields: Sequence[Array], steps: int, about: str, *, weak: bool
) -> Iterator[Way]:  # fmt: skip
    count, spec = len(devices), case.spec()
    goal = (None if case.weak is None else case.weak * count) if weak else case.strong if count == 2 else None
    row = Row(case.name, about, "", count, goal=goal)
    times = count if weak else 1

    def way(job: Job, how: str, exchange: int) -> Way:
        return Way(replace(row, how=how), partial(job.run, steps, exchange), job.result, 0, times)

    job = Job.of(gen.load(spec, devices=devices), fields)
    chosen = job.kernel.steps_chosen(job.arrays[0].cuts, steps)
    for exchange in dict.fromkeys((chosen, *(min(one, steps) for one in case.exchanges))):
        most = job.arrays[0].shape[0] // count // 4
        if exchange == chosen or exchange <= most:
            yield way(job, f"{exchange} steps an exchange{', chosen' if exchange == chosen else ''}", exchange)
    run = partial(job.run, steps, chosen, replays=False)
    yield Way(replace(row, how=f"{chosen}, queued by the host"), run, job.result, 0, times)
    changes: list[tuple[str, Callable[[Rank], Rank]]] = [("not overlapped", lambda rank: replace(rank, rim=rank.main))]
    if weak:
        changes.append(("streams of one priority", lambda rank: replace(rank, rim=rank.device.stream())))
    for how, change in changes:
        yield way(Job.of(with_ranks(gen.load(spec, devices=devices), change), fields), f"{chosen}, {how}", chosen)
    if weak:
        grid = (1, count) + (1,) * (len(fields[0].shape) - 2)
        split = Job.of(gen.load(spec, devices=devices, grid=grid), fields)
        chosen = split.kernel.steps_chosen(split.arrays[0].cuts, steps)
        yield way(split, f"{chosen}, split along columns", chosen)


def timelines(place: Place) -> Iterator[Row]:
    """When the ranks compute and exchange, by events of the streams."""
    if not place.timed or len(place.devices) < 2:
        return
    from bench.timeline import WatchedDevice, drawn, hidden, timeline

    devices = [WatchedDevice(device.index) for device in place.devices]
    for case in CASES:
        if case.name.startswith("heat-f64"):
            continue
        spec = case.spec()
        kernel = gen.load(spec, devices=devices)
        fields = fields_of((case.shape[0] * len(devices), *case.shape[1:]), kernel.inputs, kernel.dtype)
        job = Job.of(kernel, fields)
        chosen = kernel.steps_chosen(job.arrays[0].cuts, case.steps)
        spans = timeline(kernel, partial(job.run, 4 * chosen, chosen, replays=False))
        parts = [
            hidden([span for span in spans if span.stream.startswith(f"rank {rank} ")]) for rank in range(len(devices))
        ]
        whole, beside = (sum(one) / len(parts) for one in zip(*parts, strict=True))
        note = f"{beside:.0f} of {whole:.0f} us of rims a GPU, of {max(span.end_us for span in spans):.0f} us in all"
        about, how = f"{case.about}, {shape_text(case.shape)} a GPU", f"{chosen} steps an exchange"
        share = round(100 * beside / whole, 1) if whole else None
        yield Row(
            "timeline", about, how, len(devices), value=share, unit="% hidden", note=note, lines=tuple(drawn(spans))
        )
