"""What is being compiled, or was: each text once, for all problems of a run."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice

from gen.families.base import Variant
from gen.toolchain.compiled import Compiled
from gen.toolchain.farm import Farm

KEPT = 4096  # compiled sources that are kept, for variants of the same code
_COMMENT = re.compile(r"//[^\n]*")


@dataclass
class Source:
    """A text that is being compiled, and the variants that wait for it."""

    future: Future[Compiled]
    variants: list[Variant] = field(default_factory=list)


class Sources:
    """The compilations of a run.

    Texts that differ in comments and in the kernel's name alone are compiled once: variants that differ in their plan
    alone share their machine code.
    """

    def __init__(self, farm: Farm, arch: str, to_come: Iterable[tuple[Variant, str]] = ()) -> None:
        """Begins nothing.

        Args:
            farm: compiles.
            arch: `sm_90`.
            to_come: variants and texts that will be asked for later, in this order.
        """
        self.width = farm.width
        self._farm, self._arch = farm, arch
        self._to_come: Iterator[tuple[Variant, str]] = iter(to_come)
        self._found: OrderedDict[str, Source] = OrderedDict()  # by what is left without names and comments
        self._ahead: list[Future[Compiled]] = []

    def begin(self, variant: Variant, text: str) -> Source:
        """The compilation of a text."""
        core = _COMMENT.sub("", text).replace(variant.name, "")
        source = self._found.get(core)
        if source is None or source.future.cancelled():
            source = self._found[core] = Source(self._farm.submit(variant.name, text, self._arch))
            if len(self._found) > KEPT and next(iter(self._found.values())).future.done():
                self._found.popitem(last=False)
        return source

    def go_ahead(self, most: int) -> None:
        """Begins what will be asked for later, until so many of these are on their way."""
        self._ahead = [future for future in self._ahead if not future.done()]
        for variant, text in islice(self._to_come, max(most - len(self._ahead), 0)):
            self._ahead.append(self.begin(variant, text).future)
