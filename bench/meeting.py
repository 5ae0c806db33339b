"""Our kernel on one case against one contender after another, timed in turns."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from bench.arrays import Shared
from bench.messages import Begun, Found, Message
from bench.peers.base import Contender, NotOfferedError, Peer, Replay
from bench.referee import Referee
from bench.ring import LostError, Ring, check_alive
from bench.rows import FAILED, NOT_OFFERED, OURS, WRONG, Row, digits, said
from bench.verdicts import Duel, block_of, duel, pairs_within, parts, turns
from bench.works import Case
from gen.errors import GenError
from gen.gpu.timing import GRAPH_LAUNCHES, LATENCY_US, Sample
from gen.gpu.timing import Protocol as Caches
from gen.gpu.trial import Problem

WARM_UP_US = 100_000.0  # once a case
WARM_AGAIN_US = 5_000.0  # before each contender
MOST_WARM_UPS = 2000
CLOCK_MOVED = 0.02  # more than this, and times are taken again
CAPTURES = 3  # of each side, in turn: a graph may be fast or slow by where it lies
OTHERWISE = 0.05  # ours, beside a peer, is noted if it takes so much more or less than beside itself
# How long a step may take before the process that takes it is taken for hung. Timing may take longer once a pair has
# shown that calls are slow.
PREPARE_SECONDS, CHECK_SECONDS, TIME_SECONDS = 240.0, 120.0, 120.0

Tell = Callable[[Message], None]


class Meeting:
    """Our kernel on one case, against one contender after another."""

    def __init__(
        self, ring: Ring, protocol: Caches, tell: Tell, case: Case, problem: Problem, mine: Contender,
        referee: Referee,
    ) -> None:  # fmt: skip
        self._ring, self._protocol, self._send = ring, protocol, tell
        self._case, self._work = case, problem.family.work(problem.spec, problem.extents)
        self._mine, self._referee = mine, referee
        self._graphs: list[Replay] = []
        self._moved = ""
        self._timing = Begun(OURS, "timing", TIME_SECONDS)
        self._warm_us = WARM_UP_US
        self._alone: dict[Caches, Duel] = {}
        self._told: list[Row] = []
        self.protocols: tuple[Caches, ...] = ()

    def with_itself(self, row: Row, again: Contender) -> tuple[Caches, ...]:
        """Times our kernel against itself: the noise. Gives the protocols for the peers: under 20 us, HOT too."""
        asked = self._protocol
        self._begin_timing(OURS, asked)
        first = self._alone[asked] = self._fight(again, asked)
        self._tell(row, asked, first)
        if asked is Caches.HOT or first.ours_us >= LATENCY_US or self._mine.is_graph:
            return (asked,)
        self._begin_timing(OURS, Caches.HOT)
        try:
            self._alone[Caches.HOT] = hot = self._fight(again, Caches.HOT)
        except GenError as error:
            self._found(replace(row, protocol=Caches.HOT.value, note=f"{FAILED}{said(error)}"))
            check_alive(self._ring)
            return (asked,)
        self._tell(row, Caches.HOT, hot)
        return (asked, Caches.HOT)

    def meet(self, row: Row, peer: Peer, source: Shared) -> None:
        """Makes a peer ready, checks it, times it against ours; whatever goes wrong stands in its row."""
        tell, start = self._send, time.monotonic()
        contender = None
        self._told = []
        try:
            tell(Begun(peer.name, "getting ready", PREPARE_SECONDS))
            contender = peer.prepare(self._case, source, self._ring)
            self._ring.synchronize()
            row = replace(row, seconds=contender.seconds or time.monotonic() - start)
            tell(Begun(peer.name, "checking", CHECK_SECONDS))
            notes = [contender.note, *self._differences(contender), self._referee.note]
            wrong = self._referee.wrong_peer(contender)
            row = replace(row, note="; ".join(filter(None, notes)))
            if wrong is not None:
                self._found(replace(row, note=f"{WRONG}{wrong}" + (f" ({row.note})" if row.note else "")))
                return
            for protocol in self.protocols:
                self._time(replace(row, protocol=protocol.value), contender, protocol)
        except NotOfferedError as error:
            self._found(replace(row, note=f"{NOT_OFFERED}{error}"))
        except LostError:
            raise
        except Exception as error:  # noqa: BLE001  a library may raise anything, and the run goes on
            self._found(replace(row, note=f"{FAILED}{said(error)}"))
            check_alive(self._ring)
        finally:
            self._shut(contender)

    def close(self) -> None:
        """Gives back what was captured."""
        for graph in self._graphs:
            graph.close()

    def _differences(self, contender: Contender) -> list[str]:
        return self._referee.differences(contender.launch())

    def _time(self, row: Row, contender: Contender, protocol: Caches) -> None:
        """One protocol; what goes wrong in it leaves the rows of others as they are."""
        self._begin_timing(row.peer, protocol)
        if protocol is Caches.HOT and contender.on_stream is None and not contender.is_graph:
            self._found(replace(row, note="cannot be captured in a graph"))
            return
        try:
            found = self._fight(contender, protocol)
        except Exception as error:  # noqa: BLE001  as above
            self._found(replace(row, note=f"{FAILED}{said(error)}"))
            check_alive(self._ring)
        else:
            self._tell(row, protocol, found)

    def _begin_timing(self, who: str, protocol: Caches) -> None:
        self._timing = Begun(who, "timing", TIME_SECONDS, protocol.value)
        self._send(self._timing)

    def _shut(self, contender: Contender | None) -> None:
        """Ends with a contender; a fault in that is told in the rows that it has already."""
        try:
            if contender is not None:
                contender.close()
            release()
        except Exception as error:  # noqa: BLE001  as above
            for row in self._told:
                fault = f"closing it failed: {said(error)}"
                self._send(Found(replace(row, note="; ".join(filter(None, [row.note, fault])))))
            check_alive(self._ring)

    def _found(self, row: Row) -> None:
        self._told.append(row)
        self._send(Found(row))

    def _tell(self, row: Row, protocol: Caches, found: Duel) -> None:
        ratio, alone = found.ratio, self._alone[protocol]
        notes, self._moved = [row.note, self._moved], ""
        if abs(found.ours_us / alone.ours_us - 1) > OTHERWISE:
            notes.append(f"gen took {digits(found.ours_us)} us beside it, {digits(alone.ours_us)} us beside itself")
        self._found(
            replace(
                row,
                protocol=protocol.value, ours_us=found.ours_us, peer_us=found.peer_us, ratio=ratio.center,
                low=ratio.low, high=ratio.high, pairs=found.pairs,
                of_limit=self._ring.floor_us(self._work, protocol) / found.ours_us,
                verdict=row.verdict if row.peer == OURS else found.verdict(alone.noise).value,
                note="; ".join(filter(None, notes)),
            )
        )  # fmt: skip

    def _fight(self, other: Contender, protocol: Caches) -> Duel:
        if protocol is not Caches.HOT or other.is_graph:
            warm = protocol is Caches.HOT
            return self._in_turns(_launches(self._mine, warm=warm), _launches(other, warm=warm), protocol, 1)
        if not self._graphs:
            self._graphs = self._captured(self._mine)
        theirs = self._captured(other)
        try:
            mine, others = ([Sample(graph.replay, graph.replay) for graph in side] for side in (self._graphs, theirs))
            return self._in_turns(mine, others, protocol, GRAPH_LAUNCHES)
        finally:
            for graph in theirs:
                graph.close()

    def _captured(self, contender: Contender) -> list[Replay]:
        """Several graphs, each writing to another place if there are several."""
        on_stream = contender.on_stream
        assert on_stream is not None

        def queue(stream: int) -> None:
            with on_stream(stream):
                for _ in range(GRAPH_LAUNCHES):
                    contender.launch()

        made: list[Replay] = []
        try:
            for number in range(CAPTURES):
                contender.use(number)
                made.append(self._ring.graph(queue))
        except BaseException:
            for graph in made:
                graph.close()
            raise
        return made

    def _in_turns(
        self, mine: Sequence[Sample], others: Sequence[Sample], protocol: Caches, launches: int
    ) -> Duel:  # fmt: skip
        first = (mine[0], others[0])
        pair_us = sum(self._ring.in_turns([first[second] for second in turns(1)], protocol))
        self._warm_up(first, pair_us)
        self._warm_us = WARM_AGAIN_US
        pairs = pairs_within(pair_us)
        seconds = 4 * pairs * pair_us / 1e6  # each part may be timed twice, and warmed up as long
        if seconds > TIME_SECONDS / 2:
            self._send(replace(self._timing, seconds=TIME_SECONDS + seconds))
        times: list[float] = []
        for samples in in_parts(mine, others, pairs):
            times += self._part(samples, protocol)
        return duel([time / launches for time in times])

    def _part(self, samples: Sequence[Sample], protocol: Caches) -> list[float]:
        """Times of a few pairs; once more if the clock moved meanwhile, and noted if it then moved again."""
        before, times, after = self._watched(samples, protocol)
        if moved(before, after):
            before, times, after = self._watched(samples, protocol)
        if moved(before, after):
            self._moved = f"the clock moved from {before} to {after} MHz while this was timed"
        return times

    def _watched(self, samples: Sequence[Sample], protocol: Caches) -> tuple[int, list[float], int]:
        before = self._ring.clock_mhz()
        times = self._ring.in_turns(samples, protocol)
        return before, times, self._ring.clock_mhz()

    def _warm_up(self, pair: Sequence[Sample], pair_us: float) -> None:
        """Launches both until the device has been busy for long enough, or the host has."""
        end = time.monotonic() + self._warm_us / 1e6
        for _ in range(min(int(self._warm_us / max(pair_us, 1.0)), MOST_WARM_UPS)):
            for sample in pair:
                sample.launch()
            if time.monotonic() > end:
                break
        self._ring.synchronize()


def moved(before: int, after: int) -> bool:
    """Whether a clock, in MHz, changed by more than is let pass; not where nobody saw it."""
    return bool(before and after) and abs(after / before - 1) > CLOCK_MOVED


def in_parts(mine: Sequence[Sample], others: Sequence[Sample], pairs: int) -> Iterator[list[Sample]]:
    """What is timed between two looks at the clock, in turns; in each block another of ours meets another of theirs."""
    samples, size = [], block_of(pairs)
    for place, second in enumerate(turns(pairs)):
        block = place // 2 // size
        meets = (block + block // len(mine)) % len(others)
        samples.append(others[meets] if second else mine[block % len(mine)])
    start = 0
    for count in parts(pairs):
        yield samples[start : start + 2 * count]
        start += 2 * count


def _launches(contender: Contender, *, warm: bool) -> list[Sample]:
    """One launch, to each place; warm: after another of the same, which leaves its data in the caches."""

    def sample(number: int) -> Sample:
        def launch() -> None:
            contender.use(number)
            contender.launch()

        return Sample(launch, launch) if warm else Sample(launch)

    return [sample(number) for number in range(contender.places)]


def release() -> None:
    """Lets libraries give memory back that nobody uses."""
    gc.collect()
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and hasattr(torch, "cuda"):
        torch.cuda.empty_cache()
    if cupy is not None and hasattr(cupy, "get_default_memory_pool"):
        cupy.get_default_memory_pool().free_all_blocks()
