"""Names of variants, read and written: `{family}_{spec label}__{algorithm}[_{tag}]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from heapq import nlargest
from pathlib import PurePath
from typing import Any, TypeVar

from gen.dtypes import C64, C128, DTYPES
from gen.errors import ConfigError, GenError, SpecError, UnknownNameError
from gen.families.base import Algorithm, Family, Limits, Named, Spec, Variant
from gen.families.config import Config

MAX_NAME = 120
OWN_SPECS = "In Python, gen.remember(spec) writes one of your own down and says its name"
"""What to do next where a name finds no spec."""
_MIN_SIMILARITY = 0.5  # by difflib: of a name that may be meant
_MIN_SIMILARITY_TO_BEST = 0.75  # as a fraction of the most similar name's
_TYPES = (*DTYPES, C64.name, C128.name)
S = TypeVar("S", bound=Spec)
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_DIGEST = re.compile(r"_[0-9a-f]{8}_", re.ASCII)
_NUMBERED = re.compile(r":\d+\Z", re.ASCII)
_VARIANT = "must be FAMILY_SPEC__ALGORITHM_TAG or a kernel of the literature"


class NoSpecError(UnknownNameError):
    """A name that does not begin as one of a spec, or goes on as one of a variant."""


@dataclass(frozen=True)
class Takes:
    """What a command takes that is given a spec's name, for the error where it is given none.

    Attributes:
        subject: what must have another name.
        rule: what would do, a spec last.
        others: names that would do, beside those of specs.
    """

    subject: str = "The spec"
    rule: str = "must be FAMILY_LABEL"
    others: Sequence[str] = ()


SPECS = Takes()


Known = Mapping[str, Mapping[str, Any]]
"""JSON of specs by `{family}_{label}`, for those whose content no name can hold."""


def variant(family: Family[Any], spec: Spec, algorithm: str | Algorithm[Any, Any], config: Config) -> Variant:
    """The variant, if it is legal. Raises ConfigError with the reason if it is not."""
    found = find_algorithm(family, algorithm) if isinstance(algorithm, str) else algorithm
    made = Variant(family, spec, found, config)
    if not isinstance(config, found.config):
        raise ConfigError(f"{family.name} {found.name}", f"takes a {found.config.__name__}", type(config).__name__)
    reason = illegal(found, spec, config)
    if reason is not None:
        raise ConfigError(made.name, f"is illegal: {reason}")
    if not _NAME.fullmatch(made.name):
        rule = "must be made of letters from a to z, digits and underscores, for it names a kernel and its file"
        raise ConfigError(ascii(made.name), rule)
    if len(made.name) > MAX_NAME:
        raise ConfigError(made.name, f"must be at most {MAX_NAME} characters long", len(made.name))
    return made


def illegal(algorithm: Algorithm[Any, Any], spec: Spec, config: Config) -> str | None:
    """Why there is no such variant, in words; None if there is."""
    return config.illegal() or _illegal_for(algorithm, spec, config)


def _illegal_for(algorithm: Algorithm[Any, Any], spec: Spec, config: Config) -> str | None:
    """The same for a config that is not illegal alone."""
    return algorithm.illegal_spec(spec) or algorithm.illegal(spec, config)


def unsearched(algorithm: Algorithm[Any, Any], spec: Spec, config: Config) -> str | None:
    """Why tuning does not try a legal variant unless it is told to, in words; None if it does."""
    return config.unsearched() or algorithm.unsearched(spec, config)


def is_searched(algorithm: Algorithm[Any, Any], spec: Spec, config: Config) -> bool:
    """Whether there is such a variant, and tuning tries it without being told to."""
    return illegal(algorithm, spec, config) is None and unsearched(algorithm, spec, config) is None


def base_variants(family: Family[Any], spec: Spec) -> tuple[Variant, ...]:
    """What a spec gets without any tuning: one variant, or several where shape classes differ."""
    found: dict[str, Variant] = {}
    for shape_class in family.shape_classes(spec):
        made = variant(family, spec, *family.base(spec, shape_class))
        found.setdefault(made.name, made)
    return tuple(found.values())


def heuristic_variants(family: Family[Any], spec: Spec, shape_class: str, limits: Limits) -> Iterator[Variant]:
    """What a family expects to be fast for a shape class on such a device, as far as it is tried; the best first."""
    for name, config in family.heuristic_configs(spec, shape_class, limits):
        algorithm = find_algorithm(family, name)
        if is_searched(algorithm, spec, config):
            yield Variant(family, spec, algorithm, config)


def named_variant(family: Family[Any], named: Named) -> Variant:
    """A kernel of the literature, of the family's first spec; what it leaves open is at its base."""
    algorithm = find_algorithm(family, named.algorithm)
    spec = family.from_json({**family.catalogue[0].to_json(), **named.spec})
    base = algorithm.config()
    config = algorithm.config.from_json({**base.to_json(), **named.config})
    return variant(family, spec, algorithm, config)


@lru_cache(maxsize=128)  # as many as a catalogue has are asked for again and again
def legal_space(algorithm: Algorithm[Any, Any], spec: Spec) -> tuple[Config, ...]:
    """Every legal config of an algorithm for a spec."""
    if not isinstance(spec, algorithm.takes):
        return ()
    return tuple(config for config in algorithm.config.space() if algorithm.illegal(spec, config) is None)


def search_space(algorithm: Algorithm[Any, Any], spec: Spec, limits: Limits | None = None) -> tuple[Config, ...]:
    """Every legal config that tuning tries unless it is told to try all; with `limits`, those feasible on a device."""
    return tuple(
        config
        for config in legal_space(algorithm, spec)
        if unsearched(algorithm, spec, config) is None
        and (limits is None or algorithm.infeasible(spec, config, limits) is None)
    )


def find_family(families: Sequence[Family[Any]], name: str) -> Family[Any]:
    """The family of this name."""
    for family in families:
        if family.name == name:
            return family
    raise unknown("The family", name, [family.name for family in families])


def find_algorithm(family: Family[Any], name: str) -> Algorithm[Any, Any]:
    """The family's algorithm of this name."""
    if name not in family.algorithms:
        raise unknown(f"The algorithm of {family.name}", name, list(family.algorithms))
    return family.algorithms[name]


def find_spec(
    families: Sequence[Family[Any]], name: str, known: Known, takes: Takes = SPECS
) -> tuple[Family[Any], Spec]:
    """The spec of a name like `reduction_sum_f32`."""
    family = _begun(families, name)
    if family is None or "__" in name:
        raise _no_spec(families, name, known, takes)
    prefix = family.name + "_"
    labels = {key.removeprefix(prefix): value for key, value in known.items() if key.startswith(prefix)}
    return family, parse_label(family, name.removeprefix(prefix), labels)


def parse_label(family: Family[S], label: str, known: Mapping[str, Mapping[str, Any]]) -> S:
    """The spec of a family that has this label. `known` holds the JSON of specs by label, for those it cannot spell.

    Raises UnknownNameError if no spec has it.
    """
    for spec in family.catalogue:
        if spec.label == label:
            return spec
    if label in known:
        return family.from_json(known[label])
    spelled = family.from_label(label)
    if spelled is not None:
        return spelled
    labels = [spec.label for spec in family.catalogue]
    meant = did_you_mean(
        [f"{family.name}_{one}" for one in _respelled_label(family, label) or near(label, [*labels, *known])]
    )
    # A digest is mostly copied from where it was printed: then the spec is missing, and no letter is wrong.
    if not meant or _DIGEST.search(label):
        meant = f"{meant} {OWN_SPECS}".strip()
    raise UnknownNameError(
        "The spec",
        f"must be {family.name}_LABEL, with a LABEL such as {family.label_help or labels[0]}",
        repr(f"{family.name}_{label}"),
        next_step=meant,
    )


def _respelled_label(family: Family[Any], label: str) -> list[str]:
    """The label in lower case, or with the most similar dtype in place of one of its words: those that a spec has."""
    words = label.lower().split("_")
    found = {label.lower(): None}
    for index, word in enumerate(words):
        for name in get_close_matches(word, _TYPES, n=1, cutoff=_MIN_SIMILARITY):
            found["_".join([*words[:index], name, *words[index + 1 :]])] = None
    return [one for one in found if _is_spelled(family, one)]


def _is_spelled(family: Family[Any], label: str) -> bool:
    try:
        return family.from_label(label) is not None
    except SpecError:  # words that do not go together
        return False


def _no_spec(families: Sequence[Family[Any]], name: str, known: Known, takes: Takes) -> NoSpecError:
    specs = [family.name_of(spec) for family in families for spec in family.catalogue]
    catalogue = [one for one in specs if one.startswith(f"{name}_")]
    spec_name = spec_of_variant(families, name)
    if catalogue and name in [family.name for family in families]:
        what, next_step = "and this is a family", f"Its catalogue holds {', '.join(catalogue)}"
    elif spec_name is not None:
        what, next_step = "and this is a variant of one", f"Its spec is {spec_name}"
    else:
        meant = _respelled(families, name, known) or near(name, [*specs, *known, *takes.others])
        what = f"such as {specs[0]}"
        next_step = did_you_mean(meant) or f"gen list shows families and specs. {OWN_SPECS}"
    return NoSpecError(takes.subject, f"{takes.rule}, {what}", repr(name), next_step=next_step)


def names_variant(families: Sequence[Family[Any]], name: str) -> bool:
    """Whether a name has the form of a variant's, is a number of `gen show`, SPEC:2, or a kernel of the literature."""
    return "__" in name or _NUMBERED.search(name) is not None or find_named(families, name) is not None


def spec_of_variant(families: Sequence[Family[Any]], name: str) -> str | None:
    """The spec in the name of a variant, or that of a kernel of the literature; None where a name has none."""
    kernel = _kernel(families, name)
    spec_name, separator, _ = (_NUMBERED.sub("__", name) if kernel is None else kernel.name).partition("__")
    return spec_name if separator and _begun(families, spec_name) is not None else None


def _begun(families: Sequence[Family[Any]], name: str) -> Family[Any] | None:
    """The family that begins a name."""
    longest_first = sorted(families, key=lambda family: -len(family.name))
    return next((family for family in longest_first if name.startswith(family.name + "_")), None)


def _respelled(families: Sequence[Family[Any]], name: str, known: Known) -> list[str]:
    """The spec of a name in lower case, with the most similar family in place of its first word, if there is one."""
    word, _, label = name.lower().partition("_")
    for family in near(word, [family.name for family in families])[:1]:
        with suppress(GenError):
            find_spec(families, f"{family}_{label}", known)
            return [f"{family}_{label}"]
    return []


def find_named(families: Sequence[Family[Any]], name: str) -> Named | None:
    """The kernel of the literature of this name; None if there is none."""
    return next((named for family in families for named in family.named if named.name == name), None)


def _kernel(families: Sequence[Family[Any]], name: str) -> Variant | None:
    """The variant that a kernel of the literature is."""
    found = (named_variant(family, one) for family in families for one in family.named if one.name == name)
    return next(found, None)


def find_variant(families: Sequence[Family[Any]], name: str, known: Known) -> Variant:
    """The variant of a full name, or of a kernel of the literature like `reduceShfl`."""
    try:
        return _find_variant(families, name, known)
    except GenError:
        stem = PurePath(name).name.removesuffix(".cu")  # where a file of out/ is named
        for other in {stem, stem.lower()} - {name}:
            with suppress(GenError):
                meant = _find_variant(families, other, known).name
                break
        else:
            raise
    raise UnknownNameError("The variant", _VARIANT, repr(name), next_step=did_you_mean([meant]))


def find_by_short_name(families: Sequence[Family[Any]], name: str, known: Known) -> Variant | None:
    """The variant of a name that leaves out tuning parameters, which are at their base; None if there is none."""
    with suppress(GenError):
        return _find_variant(families, name, known, short=True)
    return None


def _find_variant(families: Sequence[Family[Any]], name: str, known: Known, *, short: bool = False) -> Variant:
    kernel = _kernel(families, name)
    if kernel is not None:
        return kernel
    spec_name, separator, how = name.partition("__")
    if not separator:
        _refuse_spec(families, name, known)
        choices = [named.name for family in families for named in family.named]
        choices += [family.name_of(spec) for family in families for spec in family.catalogue]
        otherwise = "gen list shows what names are put together from"
        raise unknown("The variant", name, choices, _VARIANT, otherwise=otherwise)
    try:
        family, spec = find_spec(families, spec_name, known)
    except NoSpecError as error:
        rule = f"{_VARIANT}, and {spec_name!r} is no spec"
        raise UnknownNameError("The variant", rule, repr(name), next_step=error.next_step) from None
    for algorithm in sorted(family.algorithms.values(), key=lambda algorithm: -len(algorithm.name)):
        if how == algorithm.name or how.startswith(algorithm.name + "_"):
            tag = how.removeprefix(algorithm.name).removeprefix("_")
            config = algorithm.config.from_tag(tag, algorithm.name, short=short)
            found = variant(family, spec, algorithm, config)
            if found.name != name and not short:
                raise UnknownNameError("The variant", f"is spelled {found.name}", repr(name))
            return found
    raise unknown(f"The algorithm of {family.name}", how.split("_")[0], list(family.algorithms))


def _refuse_spec(families: Sequence[Family[Any]], name: str, known: Known) -> None:
    """Raises UnknownNameError if a name is that of a spec: there are many variants of it."""
    try:
        family, spec = find_spec(families, name, known)
    except GenError:
        return
    base = base_variants(family, spec)[0].name
    next_step = f"gen show {name} lists variants of it, such as {base}; with --shape it says which one suits a shape"
    raise UnknownNameError("The variant", f"{_VARIANT}, and this is a spec", repr(name), next_step=next_step)


def unknown(subject: str, name: str, choices: Sequence[str], rule: str = "", *, otherwise: str = "") -> GenError:
    """The error for a name that finds nothing, with the nearest names that would; `otherwise` if none is near."""
    next_step = did_you_mean(near(name, choices)) or otherwise
    return UnknownNameError(subject, rule or "must be one of " + ", ".join(choices), repr(name), next_step=next_step)


def near(name: str, choices: Iterable[str]) -> list[str]:
    """The names that may be meant, the most similar first, three at most; if one differs in case alone, only that."""
    similarity = {choice: SequenceMatcher(None, choice.lower(), name.lower()).ratio() for choice in choices}
    best = nlargest(3, similarity, key=lambda choice: similarity[choice])
    least = max((similarity[choice] for choice in best), default=0.0)
    least = 1.0 if least == 1.0 else max(_MIN_SIMILARITY, _MIN_SIMILARITY_TO_BEST * least)
    return [choice for choice in best if similarity[choice] >= least]


def did_you_mean(names: Sequence[str]) -> str:
    """What to do next, where there are names that may be meant."""
    return "Did you mean " + " or ".join(names) + "?" if names else ""
