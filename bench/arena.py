"""One case on one device: our kernel made ready and checked, then every peer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.meeting import CHECK_SECONDS, PREPARE_SECONDS, Meeting, Tell
from bench.messages import Begun, Found
from bench.offers import problem_of
from bench.ours import Ours
from bench.peers.base import Peer
from bench.referee import Referee
from bench.ring import LostError, Ring, check_alive
from bench.rows import FAILED, NOT_OFFERED, OURS, WRONG, Row, said
from bench.works import Case
from gen.errors import GenError
from gen.families.base import Family
from gen.gpu.timing import Protocol as Caches


@dataclass(frozen=True)
class Arena:
    """Where contenders meet.

    Attributes:
        ring: the device.
        families: gen's.
        home: where winners are looked up.
        protocol: what the caches hold before a launch.
        tell: told what happens.
    """

    ring: Ring
    families: Sequence[Family[Any]]
    home: Path
    protocol: Caches
    tell: Tell

    def run(self, case: Case, peers: Sequence[Peer], tuned_for: float = 0.0) -> None:
        """Makes every row of a case, into whose tuning so many seconds went."""
        row = Row(case.family, case.name, OURS, self.protocol.value)
        try:
            problem = problem_of(case, self.families)
        except GenError as error:
            self.tell(Found(replace(row, note=f"{NOT_OFFERED}{error}")))
            return
        start = time.monotonic()
        closing = ExitStack()
        try:
            self._begin(OURS, "loading", PREPARE_SECONDS)
            loaded = Ours.load(case, problem, self.ring, self.home)
            seconds = tuned_for + time.monotonic() - start
            row = replace(row, variant=loaded.variant, note=loaded.note, seconds=seconds)
            self._begin(OURS, "checking", CHECK_SECONDS)
            source = self.ring.random(case.shape, case.dtype, 1)
            mine, again = (loaded.contender(case, problem, source, self.ring) for _ in range(2))
            for contender in (mine, again):
                closing.callback(contender.close)
            referee = Referee(self.ring, case, problem, source)
            wrong = referee.wrong_ours(loaded, mine, again)
            if wrong is not None:
                self.tell(Found(replace(row, note=f"{WRONG}{wrong}")))
                return
            meeting = Meeting(self.ring, self.protocol, self.tell, case, problem, mine, referee)
            closing.callback(meeting.close)
            meeting.protocols = meeting.with_itself(row, again)
            for peer in peers:
                meeting.meet(replace(row, peer=peer.name, note="", seconds=None), peer, source)
        except LostError:
            raise
        except GenError as error:
            self.tell(Found(replace(row, note=f"{FAILED}{said(error)}")))
            check_alive(self.ring)
        finally:
            with suppress(Exception):  # the rows are told; whether the device is lost the next case finds out
                closing.close()

    def _begin(self, who: str, what: str, seconds: float) -> None:
        self.tell(Begun(who, what, seconds))
