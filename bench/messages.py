"""What the process that measures tells the one that waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.rows import Row


@dataclass(frozen=True)
class Opened:
    """The device is ready, the limits are measured, the peers are imported.

    Attributes:
        missing: why a peer cannot take part, by name.
    """

    device: str
    driver: str
    calibration: Mapping[str, Any]
    versions: Mapping[str, str]
    missing: Mapping[str, str]


@dataclass(frozen=True)
class Begun:
    """A step begins that may crash or hang; or it turned out that it needs longer, from now on.

    Attributes:
        who: the contender at work.
        what: in words.
        seconds: after which it is taken for hung.
        protocol: under which it is timed; empty for all else.
    """

    who: str
    what: str
    seconds: float
    protocol: str = ""


@dataclass(frozen=True)
class Found:
    """A row is there."""

    row: Row


@dataclass(frozen=True)
class Refused:
    """The process cannot begin: there is no device, or what was asked for makes no sense. It ends."""

    reason: str


@dataclass(frozen=True)
class Lost:
    """The device no longer answers: whoever was at work took it down. The process ends."""

    reason: str


@dataclass(frozen=True)
class Finished:
    """The case is done."""


Message = Opened | Begun | Found | Refused | Lost | Finished
