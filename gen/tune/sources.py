"""What is tried in a run, for all its problems: each space, each text and each compilation once."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field

from gen.emit.render import render
from gen.errors import CompileError
from gen.families.base import Variant
from gen.gpu.trial import Problem
from gen.toolchain.compiled import Compiled
from gen.toolchain.farm import Farm
from gen.tune.search import Space

KEPT = 4096  # texts, and compiled sources, that are kept for other problems and for variants of the same code
_COMMENT = re.compile(r"//[^\n]*")


@dataclass
class Source:
    """A text that is being compiled, and the variants that wait for it."""

    future: Future[Compiled]
    variants: list[Variant] = field(default_factory=list)


class Sources:
    """The spaces, texts and compilations of a run.

    Texts that differ in comments and in the kernel's name alone are compiled once: variants that differ in their plan
    alone share their machine code.
    """

    def __init__(self, farm: Farm, arch: str, text: Callable[[Variant], str] = render) -> None:
        """Begins nothing.

        Args:
            farm: compiles.
            arch: `sm_90`.
            text: gives the text of a variant.
        """
        self.width = farm.width
        self._farm, self._arch, self._make = farm, arch, text
        self._spaces: list[Space] = []
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._to_come: Iterator[Variant | None] = iter(())
        self._found: OrderedDict[str, Source] = OrderedDict()  # by what is left without names and comments
        self._ahead: list[Future[Compiled]] = []

    def space(self, problem: Problem, *, complete: bool = False) -> Space:
        """The space of a problem's spec: the same for all its problems. `complete`: see `Space`."""
        found = Space(problem.family, problem.spec, complete)
        if found not in self._spaces:
            self._spaces.append(found)
        return self._spaces[self._spaces.index(found)]

    def text(self, variant: Variant) -> str:
        """The text of a variant."""
        text = self._texts.get(variant.name)
        if text is None:
            text = self._texts[variant.name] = self._make(variant)
            if len(self._texts) > KEPT:
                self._texts.popitem(last=False)
        return text

    def begin(self, variant: Variant) -> Source:
        """The compilation of a variant."""
        text = self.text(variant)
        core = _COMMENT.sub("", text).replace(variant.name, "")
        source = self._found.get(core)
        if source is None or source.future.cancelled():
            source = self._found[core] = Source(self._farm.submit(variant.name, text, self._arch))
            if len(self._found) > KEPT and next(iter(self._found.values())).future.done():
                self._found.popitem(last=False)
        return source

    def codes(
        self, variants: Iterable[Variant], deadline: float | None = None
    ) -> Iterator[tuple[Variant, Compiled | CompileError]]:
        """What compiling variants gives, all at once; without those that are not there at the deadline."""
        for variant, source in [(one, self.begin(one)) for one in variants]:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            try:
                yield variant, source.future.result(left)
            except CompileError as error:
                yield variant, error
            except (TimeoutError, CancelledError):  # cancelled for another of the same code
                source.future.cancel()

    def foresee(self, to_come: Iterable[Variant | None]) -> None:
        """What will be asked for later, in this order; None stands for what needs no compilation."""
        self._to_come = iter(to_come)

    def go_ahead(self, most: int) -> bool:
        """Looks at one that will be asked for later; False if so many are on their way, or there are no more."""
        self._ahead = [future for future in self._ahead if not future.done()]
        if len(self._ahead) >= most:
            return False
        try:
            variant = next(self._to_come)
        except StopIteration:
            return False
        if variant is not None:
            self._ahead.append(self.begin(variant).future)
        return True
