"""On which cases tests prove a variant: a part of its own and of its family's, so that many variants take little time.

`gen prove` takes them all, and so does the profile `deep` of tests that name it. Which part a variant has, its name
decides: of a cover of variants, each case is met by some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from zlib import crc32

import pytest
from _pytest.mark import ParameterSet
from hypothesis import settings

from gen.families.base import Limits, Variant
from gen.proof.cases import MULTIPROCESSOR_COUNTS, Case, Content, edge_cases, has_elements

DEEP = settings.get_current_profile_name() == "deep"
GROUP = 20  # variants that are built in one translation unit
_H100 = Limits.of("sm_90")


def every_edge(made: Variant) -> tuple[Case, ...]:
    """All its edge cases."""
    return tuple(edge_cases(made))


def some_edges(made: Variant) -> tuple[Case, ...]:
    """A third of its edge cases; all of them under `deep`."""
    edges = every_edge(made)
    return edges if DEEP else edges[crc32(made.name.encode()) % min(3, len(edges) or 1) :: 3]


def few(made: Variant) -> tuple[Case, ...]:
    """Every content once, on sizes of the family in turns; a third of its edge cases."""
    edges, start = every_edge(made), crc32(made.name.encode())
    taken = [
        extents
        for extents in made.family.cases(made.spec)
        if has_elements(made.family, made.spec, extents)
        and made.algorithm.unsupported_extents(made.spec, made.config, extents, _H100) is None
    ] or [case.extents for case in edges]
    return (
        *(
            Case(taken[(start + place) % len(taken)], content, place, place % 4, MULTIPROCESSOR_COUNTS[place % 4])
            for place, content in enumerate(Content)
        ),
        *some_edges(made),
    )


def some_and_others(variants: Sequence[Variant], step: int) -> tuple[list[Variant], list[Variant]]:
    """Of each algorithm its first variant and every `step`-th after it, for `.ci/run`; the others, for `make check`."""
    seen: Counter[str] = Counter()
    parts: tuple[list[Variant], list[Variant]] = ([], [])
    for made in variants:
        parts[seen[made.algorithm.name] % step > 0].append(made)
        seen[made.algorithm.name] += 1
    return parts


def groups(name: str, cover: Sequence[Variant], *, in_make_test: bool) -> Iterator[ParameterSet]:
    """Variants from all over a cover, as many as are built together.

    Every second of each algorithm comes first, in groups that are exhaustive, but for the first where it is
    `in_make_test`; groups of the others are `further`.
    """
    for mark, part in zip((pytest.mark.exhaustive, pytest.mark.further), some_and_others(cover, 2), strict=True):
        count = -(-len(part) // GROUP)
        for place in range(count):
            of_all = in_make_test and place == 0 and mark is pytest.mark.exhaustive
            yield pytest.param(part[place::count], id=f"{name} {mark.name} {place}", marks=[] if of_all else [mark])
