"""Variants that are known by name: the winner so far, and those of earlier runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gen.errors import GenError
from gen.families.base import Variant
from gen.families.names import find_variant
from gen.gpu.trial import Problem


def known(problem: Problem, names: Iterable[str]) -> Iterator[Variant]:
    """The variants of these names, made one by one; without those that are no longer any of the problem's spec."""
    specs = {problem.spec_name: problem.spec.to_json()}
    for name in names:
        try:
            made = find_variant((problem.family,), name, specs)
        except GenError:
            continue
        if made.spec == problem.spec and made.algorithm.only_if_asked is None:
            yield made
