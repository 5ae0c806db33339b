"""What is run under which tool, in which pieces: many workers are to end at about the same time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

PIECE = 40  # variants of one job: below that, most of its time goes into starting the tool
SLOW = {"racecheck": 1.3, "initcheck": 1.2}  # than the other tools, by as much
Item = TypeVar("Item")


@dataclass(frozen=True)
class Job:
    """One run of a tool.

    Attributes:
        part, parts: of the variants of the family, one in `parts`, from number `part` on; counted from 0.
        planted: what runs is the fault that is planted for the tool, which must find it.
    """

    tool: str
    family: str
    part: int = 0
    parts: int = 1
    planted: bool = False

    def of(self, variants: Sequence[Item]) -> tuple[Item, ...]:
        """Those that this job runs: of every algorithm some."""
        return tuple(variants[self.part :: self.parts])

    def __str__(self) -> str:
        part = f" {self.part + 1}/{self.parts}" if self.parts > 1 else ""
        return f"{self.tool} {self.family}{part}" + (" planted" if self.planted else "")


def pieces(tools: Iterable[str], counts: Mapping[str, int], workers: int) -> list[Job]:
    """Jobs for every tool and family, the longest first.

    Args:
        tools: by name.
        counts: of every family, how many variants are run.
        workers: that run at a time; for one of them nothing is split.
    """
    jobs = []
    for tool in tools:
        for family, count in counts.items():
            parts = max(min(-(-count // PIECE), workers), 1)
            jobs += [(count / parts * SLOW.get(tool, 1.0), Job(tool, family, part, parts)) for part in range(parts)]
    return [job for _, job in sorted(jobs, key=lambda pair: -pair[0])]
