"""Winners that are no longer: whose kernel has another text now, or whose shape class has algorithms that came later.

A winner keeps the digest of its kernel's text without comments, that of its template with all partials, and the
algorithms that there were. The template's is found without Jinja: where it is the same, so is the kernel's text. A
winner that keeps none of them was chosen by a gen that did not write them down: nothing is known against it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gen.emit.launch import HOST_ONLY
from gen.emit.render import digest_of_template, render
from gen.errors import GenError
from gen.families.base import Family, Limits, Spec, Variant
from gen.families.names import Known, find_variant, heuristic_variants
from gen.store.winners import Winner

TEXT, TEMPLATE, ALGORITHMS = "text", "template", "algorithms"
_COMMENT = re.compile(r"//[^\n]*")


def provenance(made: Variant) -> Mapping[str, object]:
    """What a winner keeps of what it was chosen from, beside its evidence."""
    return {
        TEXT: digest_of_code(render(made)),
        TEMPLATE: digest_of_template(made.family, made.algorithm.template),
        ALGORITHMS: algorithms(made.family, made.spec),
    }


def digest_of_code(text: str) -> str:
    """Of a kernel's text without comments, empty lines and what only a host reads: 16 hex digits."""
    kernels = text.partition(HOST_ONLY)[0]
    lines = (line.rstrip() for line in _COMMENT.sub("", kernels).splitlines())
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()[:16]


def algorithms(family: Family[Any], spec: Spec) -> list[str]:
    """The algorithms that tuning tries for a spec."""
    found = family.algorithms.values()
    return sorted(one.name for one in found if one.excluded_from_tuning is None and isinstance(spec, one.takes))


def why_stale(winner: Winner, made: Variant, limits: Limits, text_of: Callable[[Variant], str] = render) -> str | None:
    """Why a winner should be measured again, in words; None if nothing is known against it.

    Args:
        winner: of a shape class or a part of it.
        made: its variant.
        limits: of the device: they say which later algorithms are often fast in that class.
        text_of: gives the text of a variant.
    """
    if winner.shape not in made.family.shape_classes(made.spec):
        return "there is no such class of sizes any more"
    text, known = winner.evidence.get(TEXT), winner.evidence.get(ALGORITHMS)
    unchanged = winner.evidence.get(TEMPLATE) == digest_of_template(made.family, made.algorithm.template)
    if isinstance(text, str) and not unchanged and text != digest_of_code(text_of(made)):
        return "its kernel has another text now"
    if isinstance(known, list) and set(algorithms(made.family, made.spec)) - set(known):
        often = {one.algorithm.name for one in heuristic_variants(made.family, made.spec, winner.shape, limits)}
        later = sorted(often - set(known))
        if later:
            return f"{', '.join(later)} came later"
    return None


def came_later(winner: Winner, made: Variant) -> bool:
    """Whether the algorithm of a variant was not there when a winner was chosen."""
    known = winner.evidence.get(ALGORITHMS)
    return isinstance(known, list) and made.algorithm.name not in known


def stale(
    winners: Iterable[Winner], families: Sequence[Family[Any]], known: Known, limits: Limits
) -> Iterator[tuple[Winner, str]]:
    """The winners that should be measured again, with the reason; those of families that are not at hand are left out.

    Args:
        winners: of devices with such limits.
        families: where their variants are looked up.
        known: JSON of specs by name.
        limits: of the device.
    """
    for winner in winners:
        if not winner.variant.startswith(tuple(f"{family.name}_" for family in families)):
            continue
        try:
            reason = why_stale(winner, find_variant(families, winner.variant, known), limits)
        except GenError:
            reason = "there is no such variant any more"
        if reason is not None:
            yield winner, reason
