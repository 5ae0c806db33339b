"""Our kernel on one case against other libraries: checked, then timed in alternating rounds behind the same flush."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gen.compare.case import ComparisonCase, number_type
from gen.compare.checks import Checks, random_inputs
from gen.compare.gpu import ComparisonGpu, LostError
from gen.compare.peers.base import Contender, Handle, NotOfferedError, Outputs, Peer, SharedArray
from gen.compare.row import (
    BASE,
    FAILED,
    NOT_OFFERED,
    OURS,
    UNTUNED,
    WRONG,
    PairedTimes,
    Row,
    abba,
    block_size,
    digits,
    paired,
    pairs_within,
    parts,
    said,
)
from gen.errors import GenError
from gen.families.names import base_variants, find_variant
from gen.gpu.device import LEGACY_STREAM, Graph
from gen.gpu.timing import GRAPH_LAUNCHES, LATENCY_US, Sample
from gen.gpu.timing import Protocol as Caches
from gen.runtime.kernel import Kernel
from gen.runtime.load import kernel_of
from gen.workers import Report

WARM_UP_US = 100_000.0  # once a case
WARM_UP_AGAIN_US = 5_000.0  # before each contender
MAX_WARM_UPS = 2000
MAX_CLOCK_CHANGE = 0.02  # relative; after more, times are taken again
CAPTURES = 3  # of each side, in turn: a graph may be fast or slow by where it lies
NOTED_TIME_CHANGE = 0.05  # ours, beside a peer, is noted if it takes so much more or less than beside itself
# How long a step may take before the process that takes it is taken for hung. Timing may take longer once a pair has
# shown that calls are slow.
PREPARE_SECONDS, CHECK_SECONDS, TIME_SECONDS = 240.0, 120.0, 120.0


@dataclass(frozen=True)
class ContenderStep:
    """What a contender is at, which may crash or hang.

    Attributes:
        who: the contender.
        what: in words.
        protocol: under which it is timed; empty for all else.
    """

    who: str
    what: str
    protocol: str = ""


class Comparison:
    """Our kernel on one case, against one contender after another."""

    def __init__(
        self, gpu: ComparisonGpu, case: ComparisonCase, caches: Caches, report: Report,
        checks: Callable[[Any, ComparisonCase, Sequence[SharedArray]], Checks] = Checks, *, short_hot_too: bool = True,
    ) -> None:  # fmt: skip
        """Prepares for it.

        Args:
            gpu: where.
            case: what is computed.
            caches: what they hold before a launch.
            report: is told each `ContenderStep` as it begins, with the seconds that it may take, and each `Row`.
            checks: makes what checks results.
            short_hot_too: time kernels of under 20 us among many launches as well.
        """
        self._short_hot_too = short_hot_too
        self._gpu, self._case, self._caches, self._report, self._make_checks = gpu, case, caches, report, checks
        self._work = case.family.work(case.spec, case.extents)
        self._inputs: tuple[SharedArray, ...] = ()
        self._ours: list[Contender] = []  # our kernel twice: each with results of its own
        self._checks: Checks | None = None
        self._graphs: list[Graph] = []
        self._clock_note = ""
        self._step = ContenderStep(OURS, "timing")
        self._warm_up_us = WARM_UP_US
        self._alone: dict[Caches, PairedTimes] = {}
        self._rows: list[Row] = []

    def run(self, peers: Sequence[Peer], home: Path, tuned_seconds: float = 0.0) -> None:
        """Makes every row of the case.

        Args:
            peers: whom to compare with.
            home: where the winner is looked up.
            tuned_seconds: that went into tuning it.
        """
        row = Row(self._case.family.name, self._case.name, OURS, self._caches.value)
        start = time.monotonic()
        try:
            self._report(ContenderStep(OURS, "loading"), PREPARE_SECONDS)
            case = self._case
            kernel = kernel_of(case.family, case.spec, self._gpu.backend, home, case.extents, case.alignment)
            seconds = tuned_seconds + time.monotonic() - start
            row = replace(row, variant=kernel.variant, note=_untuned(kernel, case), seconds=seconds)
            wrong = self._check_ours(kernel)
            if wrong is not None:
                self._found(replace(row, note=f"{WRONG}{wrong}"))
                return
            protocols = self._time_alone(row)
            for peer in peers:
                self._compare_with(replace(row, peer=peer.name, note="", seconds=None), peer, protocols)
        except LostError:
            raise
        except GenError as error:
            self._found(replace(row, note=f"{FAILED}{said(error)}"))
            self._gpu.check_alive()
        finally:
            with suppress(Exception):  # the rows are told; whether the GPU is lost the next case finds out
                for graph in self._graphs:
                    graph.close()
                for contender in self._ours:
                    contender.close()

    def _check_ours(self, kernel: Kernel) -> str | None:
        """What is wrong with our results, in words."""
        self._report(ContenderStep(OURS, "checking"), CHECK_SECONDS)
        case, gpu = self._case, self._gpu
        self._inputs = random_inputs(gpu, case, 1)
        self._ours = [ours(kernel, case, self._inputs, gpu) for _ in range(2)]
        self._checks = self._make_checks(gpu, case, self._inputs)
        variant = find_variant((case.family,), kernel.variant, {kernel.spec: case.spec.to_json()})
        most = variant.algorithm.roundings(case.spec, variant.config, case.extents, gpu.backend.limits)
        for contender in self._ours:
            wrong = self._checks.wrong(
                contender, lambda less, inputs: ours(kernel, less, inputs, gpu), roundings=most
            )  # fmt: skip
            if wrong is not None:
                return wrong
        return None

    def _time_alone(self, row: Row) -> tuple[Caches, ...]:
        """Times our kernel against itself: the noise. Gives the protocols for the peers: under 20 us, HOT too."""
        mine, again = self._ours
        asked = self._caches
        self._begin_timing(OURS, asked)
        first = self._alone[asked] = self._paired(again, asked)
        self._tell(row, asked, first)
        short = first.ours_us < LATENCY_US and self._short_hot_too
        if asked is Caches.HOT or not short or mine.is_graph:
            return (asked,)
        self._begin_timing(OURS, Caches.HOT)
        try:
            self._alone[Caches.HOT] = hot = self._paired(again, Caches.HOT)
        except GenError as error:
            self._found(replace(row, protocol=Caches.HOT.value, note=f"{FAILED}{said(error)}"))
            self._gpu.check_alive()
            return (asked,)
        self._tell(row, Caches.HOT, hot)
        return (asked, Caches.HOT)

    def _compare_with(self, row: Row, peer: Peer, protocols: Sequence[Caches]) -> None:
        """Makes a peer ready, checks it, times it against ours; whatever goes wrong stands in its row."""
        start = time.monotonic()
        contender = None
        self._rows = []
        assert self._checks is not None
        try:
            self._report(ContenderStep(peer.name, "getting ready"), PREPARE_SECONDS)
            if len(self._inputs) > 1:
                raise NotOfferedError(peer.name, "is asked here for specs of one input")
            contender = peer.prepare(self._case, self._inputs[0], self._gpu)
            self._gpu.synchronize()
            row = replace(row, seconds=contender.seconds or time.monotonic() - start)
            self._report(ContenderStep(peer.name, "checking"), CHECK_SECONDS)
            notes = [contender.note, *self._checks.differences(contender.launch()), self._checks.note]
            wrong = self._checks.wrong(contender, lambda less, inputs: peer.prepare(less, inputs[0], self._gpu))
            row = replace(row, note="; ".join(filter(None, notes)))
            if wrong is not None:
                self._found(replace(row, note=f"{WRONG}{wrong}" + (f" ({row.note})" if row.note else "")))
                return
            for caches in protocols:
                self._time(replace(row, protocol=caches.value), contender, caches)
        except NotOfferedError as error:
            self._found(replace(row, note=f"{NOT_OFFERED}{error}"))
        except LostError:
            raise
        except Exception as error:  # noqa: BLE001  a library may raise anything, and the run goes on
            self._found(replace(row, note=f"{FAILED}{said(error)}"))
            self._gpu.check_alive()
        finally:
            self._end(contender)

    def _time(self, row: Row, contender: Contender, caches: Caches) -> None:
        """One protocol; what goes wrong in it leaves the rows of others as they are."""
        self._begin_timing(row.peer, caches)
        if caches is Caches.HOT and contender.on_stream is None and not contender.is_graph:
            self._found(replace(row, note="cannot be captured in a graph"))
            return
        try:
            found = self._paired(contender, caches)
        except Exception as error:  # noqa: BLE001  as above
            self._found(replace(row, note=f"{FAILED}{said(error)}"))
            self._gpu.check_alive()
        else:
            self._tell(row, caches, found)

    def _begin_timing(self, who: str, caches: Caches) -> None:
        self._step = ContenderStep(who, "timing", caches.value)
        self._report(self._step, TIME_SECONDS)

    def _end(self, contender: Contender | None) -> None:
        """Ends with a contender; a fault in that is told in the rows that it has already."""
        try:
            if contender is not None:
                contender.close()
            release_memory()
        except Exception as error:  # noqa: BLE001  as above
            for row in self._rows:
                fault = f"closing it failed: {said(error)}"
                self._report(replace(row, note="; ".join(filter(None, [row.note, fault]))))
            self._gpu.check_alive()

    def _found(self, row: Row) -> None:
        self._rows.append(row)
        self._report(row)

    def _tell(self, row: Row, caches: Caches, found: PairedTimes) -> None:
        alone = self._alone[caches]
        notes, self._clock_note = [row.note, self._clock_note], ""
        if abs(found.ours_us / alone.ours_us - 1) > NOTED_TIME_CHANGE:
            notes.append(f"gen took {digits(found.ours_us)} us beside it, {digits(alone.ours_us)} us beside itself")
        row = replace(
            row, protocol=caches.value, ours_us=found.ours_us, peer_us=found.peer_us, ratio=found.ratio.center,
            low=found.ratio.low, high=found.ratio.high, pairs=found.pairs,
            of_limit=self._gpu.limit_us(self._work, caches) / found.ours_us, note="; ".join(filter(None, notes)),
        )  # fmt: skip
        self._found(row if row.peer == OURS else replace(row, verdict=row.against(alone.noise)))

    def _paired(self, other: Contender, caches: Caches) -> PairedTimes:
        mine = self._ours[0]
        if caches is not Caches.HOT or other.is_graph:
            warm = caches is Caches.HOT
            return self._alternate(_launches(mine, warm=warm), _launches(other, warm=warm), caches, 1)
        if not self._graphs:
            self._graphs = self._captured(mine)
        theirs = self._captured(other)
        try:
            one, two = ([Sample(graph.replay, graph.replay) for graph in side] for side in (self._graphs, theirs))
            return self._alternate(one, two, caches, GRAPH_LAUNCHES)
        finally:
            for graph in theirs:
                graph.close()

    def _captured(self, contender: Contender) -> list[Graph]:
        """Several graphs, each writing to another place if there are several."""
        on_stream = contender.on_stream
        assert on_stream is not None

        def queue(stream: int) -> None:
            with on_stream(stream):
                for _ in range(GRAPH_LAUNCHES):
                    contender.launch()

        made: list[Graph] = []
        try:
            for number in range(CAPTURES):
                contender.use(number)
                made.append(self._gpu.graph(queue))
        except BaseException:
            for graph in made:
                graph.close()
            raise
        return made

    def _alternate(
        self, mine: Sequence[Sample], others: Sequence[Sample], caches: Caches, launches: int
    ) -> PairedTimes:  # fmt: skip
        first = (mine[0], others[0])
        pair_us = sum(self._gpu.time_in_order([first[second] for second in abba(1)], caches))
        self._warm_up(first, pair_us)
        self._warm_up_us = WARM_UP_AGAIN_US
        pairs = pairs_within(pair_us)
        seconds = 4 * pairs * pair_us / 1e6  # each part may be timed twice, and warmed up as long
        if seconds > TIME_SECONDS / 2:
            self._report(self._step, TIME_SECONDS + seconds)
        times: list[float] = []
        for samples in in_parts(mine, others, pairs):
            times += self._part(samples, caches)
        return paired([time / launches for time in times])

    def _part(self, samples: Sequence[Sample], caches: Caches) -> list[float]:
        """Times of a few pairs; once more if the clock changed meanwhile, and noted if it then changed again."""
        before, times, after = self._watched(samples, caches)
        if clock_changed(before, after):
            before, times, after = self._watched(samples, caches)
        if clock_changed(before, after):
            self._clock_note = f"the clock moved from {before} to {after} MHz while this was timed"
        return times

    def _watched(self, samples: Sequence[Sample], caches: Caches) -> tuple[int, list[float], int]:
        before = self._gpu.clock_mhz()
        times = self._gpu.time_in_order(samples, caches)
        return before, times, self._gpu.clock_mhz()

    def _warm_up(self, pair: Sequence[Sample], pair_us: float) -> None:
        """Launches both until the GPU has been busy for long enough, or the host has."""
        end = time.monotonic() + self._warm_up_us / 1e6
        for _ in range(min(int(self._warm_up_us / max(pair_us, 1.0)), MAX_WARM_UPS)):
            for sample in pair:
                sample.launch()
            if time.monotonic() > end:
                break
        self._gpu.synchronize()


def ours(kernel: Kernel, case: ComparisonCase, inputs: Sequence[SharedArray], gpu: ComparisonGpu) -> Contender:
    """Our kernel with results of its own, for arrays of a case's sizes; many time steps are a graph."""
    operands = dict(zip((operand.name for operand in case.inputs), inputs, strict=True))
    changed = {operand.name: gpu.copy(operands[operand.name]) for operand in case.results if operand.role == "inout"}
    outputs = {
        operand.name: Outputs(gpu, case.layouts[operand.name].shape, number_type(operand.dtype))
        for operand in case.results
        if operand.role == "out"
    }
    given, stream = [changed.get(name, array) for name, array in operands.items()], Handle()

    def results() -> tuple[SharedArray, ...]:
        names = [operand.name for operand in case.results]
        return tuple(outputs[name].now if name in outputs else changed[name] for name in names)

    def launch() -> Sequence[Any]:
        written = tuple(output.now for output in outputs.values())
        out = written[0] if len(written) == 1 else written or None
        kernel(*given, out=out, stream=stream.stream or LEGACY_STREAM, **case.runtime_parameters)
        return results()

    def use(number: int) -> None:
        for output in outputs.values():
            output.use(number)

    if case.runtime_parameters.get("steps", 1) == 1:
        places = max((output.places for output in outputs.values()), default=1)
        return Contender(launch, stream.on, places=places, use=use)

    def queue(handle: int) -> None:
        with stream.on(handle):
            launch()

    graph = gpu.graph(queue)

    def replay() -> Sequence[Any]:
        graph.replay()
        return results()

    return Contender(replay, is_graph=True, close=graph.close)


def in_parts(mine: Sequence[Sample], others: Sequence[Sample], pairs: int) -> Iterator[list[Sample]]:
    """What is timed between two looks at the clock; in each block another of ours beside another of theirs."""
    samples, size = [], block_size(pairs)
    for place, second in enumerate(abba(pairs)):
        block = place // 2 // size
        theirs = (block + block // len(mine)) % len(others)
        samples.append(others[theirs] if second else mine[block % len(mine)])
    start = 0
    for count in parts(pairs):
        yield samples[start : start + 2 * count]
        start += 2 * count


def clock_changed(before: int, after: int) -> bool:
    """Whether a clock, in MHz, changed by more than is let pass; not where nobody saw it."""
    return bool(before and after) and abs(after / before - 1) > MAX_CLOCK_CHANGE


def release_memory() -> None:
    """Lets libraries give memory back that nobody uses."""
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and hasattr(torch, "cuda"):
        torch.cuda.empty_cache()
    if cupy is not None and hasattr(cupy, "get_default_memory_pool"):
        cupy.get_default_memory_pool().free_all_blocks()


def _launches(contender: Contender, *, warm: bool) -> list[Sample]:
    """One launch, to each place; warm: after another of the same, which leaves its data in the caches."""

    def sample(number: int) -> Sample:
        def launch() -> None:
            contender.use(number)
            contender.launch()

        return Sample(launch, launch) if warm else Sample(launch)

    return [sample(number) for number in range(contender.places)]


def _untuned(kernel: Kernel, case: ComparisonCase) -> str:
    """The note of a kernel that was not tuned; empty for one that was."""
    if kernel.tuned:
        return ""
    nothing = "nothing is tuned for it on this device"
    base = kernel.variant in {made.name for made in base_variants(case.family, case.spec)}
    return f"{BASE}{nothing}" if base else f"{UNTUNED}a heuristic for the shape class, because {nothing}"
