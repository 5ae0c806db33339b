"""Tuning parameters, declared once: one dataclass field each.

From the field derive the search space, the tag in a name and its parser, JSON, help and the report's axes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from itertools import combinations, product
from typing import Any, ClassVar, Self, TypeVar

from gen.dtypes import LoadModifier, StoreModifier
from gen.errors import ConfigError, UnknownNameError

Value = int | bool | Enum
_HASH = "_hash"  # where a config keeps its own
_REQUIRED = object()  # the `off` of a parameter that is always used


@dataclass(frozen=True)
class Parameter:
    """A tuning parameter as its field declares it.

    Attributes:
        field: its name, for instance `threads_per_block`.
        label: its letters in a tag, for instance `tpb`.
        values: all it can be, in order.
        base: where tuning starts.
        off: the value that says "not used": absent from tag, JSON and text. None if it is always used.
        help: one line for people.
    """

    field: str
    label: str
    values: tuple[Value, ...]
    base: Value
    off: Value | None
    help: str

    @cached_property
    def _known(self) -> frozenset[tuple[type, Value]]:
        return frozenset((type(value), value) for value in self.values)

    def knows(self, value: object) -> bool:
        """Whether it can be this value, of this very type."""
        try:
            return (type(value), value) in self._known
        except TypeError:  # no value that can be hashed
            return False

    def token(self, value: Value) -> str:
        """The value as it stands in a tag: `tpb256`, `ldcs`; empty when off."""
        if self.off is not None and value == self.off:
            return ""
        return self.label if value is True else f"{self.label}{plain(value)}"

    def read(self, value: object, subject: str) -> Value:
        """The value that JSON or a command line spells. Raises ConfigError for any other."""
        for known in self.values:
            if type(value) is type(known) and value == known:
                return known
            if isinstance(known, Enum) and value == known.value:
                return known
        raise self.refuse(value, subject)

    def refuse(self, value: object, subject: str) -> ConfigError:
        """The error for a value that is not one of `values`."""
        rule = "must be one of " + ", ".join(repr(plain(known)) for known in self.values)
        return ConfigError(f"{subject}.{self.field}", rule, repr(value))


def plain(value: Value) -> int | bool | str:
    """The value as JSON spells it."""
    return str(value.value) if isinstance(value, Enum) else value


def word_of(value: object) -> str:
    """The value for people: `default` for a cache operator that is not chosen, `true` for a flag."""
    shown = value.value if isinstance(value, Enum) else value
    return "default" if shown == "" else str(shown).lower() if isinstance(shown, bool) else str(shown)


def tunable(label: str, values: tuple[Value, ...], *, base: Value, off: Any = _REQUIRED, help: str) -> Any:
    """A field of a Config: one tuning parameter."""
    metadata = {"label": label, "values": values, "off": None if off is _REQUIRED else off, "help": help}
    return dataclasses.field(default=base, metadata=metadata)


def choice(label: str, values: tuple[Value, ...], *, help: str) -> Any:
    """A tuning parameter whose first value is its base, and stands neither in the tag nor in JSON."""
    return tunable(label, values, base=values[0], off=values[0], help=help)


def load_modifier(*values: LoadModifier) -> Any:
    """The tuning parameter `load_modifier`: the cache operator of the loads, its base first."""
    return choice("ld", values, help="cache operator of global loads")


def store_modifier(*values: StoreModifier) -> Any:
    """The tuning parameter `store_modifier`: the cache operator of the stores, its base first."""
    return choice("st", values, help="cache operator of global stores")


@dataclass(frozen=True, kw_only=True)
class Config:
    """How a variant computes: one value for each tuning parameter of its algorithm."""

    _parameters: ClassVar[tuple[Parameter, ...]]

    def __init_subclass__(cls) -> None:
        setattr(cls, Config.__hash__.__name__, Config.__hash__)  # else each dataclass would get one of its own

    def __hash__(self) -> int:
        """Found once: dispatch looks up a great deal by configs."""
        known: int | None = self.__dict__.get(_HASH)
        if known is None:
            known = self.__dict__[_HASH] = hash(tuple(getattr(self, one.field) for one in self.parameters()))
        return known

    def __getstate__(self) -> dict[str, Value]:
        """The values alone: other processes have other hashes."""
        return {one.field: getattr(self, one.field) for one in self.parameters()}

    def __post_init__(self) -> None:
        for parameter in self.parameters():
            value = getattr(self, parameter.field)
            if not parameter.knows(value):
                raise parameter.refuse(value, type(self).__name__)

    @classmethod
    def parameters(cls) -> tuple[Parameter, ...]:
        """The tuning parameters, in the order of a tag."""
        if "_parameters" not in cls.__dict__:
            cls._parameters = tuple(
                Parameter(field=field.name, base=field.default, **field.metadata) for field in dataclasses.fields(cls)
            )
        return cls._parameters

    def illegal(self) -> str | None:
        """Why a kernel of these values would be wrong, or cannot be written, whatever the spec; None if it can."""
        return None

    def unsearched(self) -> str | None:
        """Why tuning does not try these values, legal as they are, unless it is told to; None if it does."""
        return None

    @property
    def tag(self) -> str:
        """The values as letters and digits: `tpb256_u8_v16_ldcs`."""
        tokens = (parameter.token(getattr(self, parameter.field)) for parameter in self.parameters())
        return "_".join(token for token in tokens if token)

    @classmethod
    def from_tag(cls, tag: str, algorithm: str = "", *, short: bool = False) -> Self:
        """The config that has this tag. Raises UnknownNameError, which names the algorithm if given, if none has.

        A short tag leaves out some parameters, which are at their base then.
        """
        subject = f"The tag of {algorithm or f'a {cls.__name__}'}"
        left = tag.split("_") if tag else []
        values: dict[str, Value] = {}
        passed: list[Parameter] = []  # that are off, since the last that is not
        for parameter in cls.parameters():
            token = left[0] if left else ""  # empty too where two underscores meet, which no tag has
            match = next((v for v in parameter.values if token and parameter.token(v) == token), None)
            if match is not None:
                left.pop(0)
                passed = []
            elif parameter.off is not None:
                match = parameter.off
                passed.append(parameter)
            elif short:
                match = parameter.base
            else:
                raise _unreadable(subject, tag, parameter, left)
            values[parameter.field] = match
        if left:
            raise _beyond(subject, tag, passed, left)
        return cls(**values)

    def values(self) -> dict[str, int | bool | str]:
        """All values by field name, those that are off too."""
        return {parameter.field: plain(getattr(self, parameter.field)) for parameter in self.parameters()}

    def template_inputs(self) -> dict[str, int | bool | str]:
        """All values by field name as templates read them: of a cache operator the function that has it."""
        found: dict[str, int | bool | str] = {}
        for parameter in self.parameters():
            value = getattr(self, parameter.field)
            is_modifier = isinstance(value, LoadModifier | StoreModifier)
            found[parameter.field] = value.intrinsic if is_modifier else plain(value)
        return found

    def to_json(self) -> dict[str, int | bool | str]:
        """The values by field name, those that are off left out."""
        return {
            p.field: plain(getattr(self, p.field)) for p in self.parameters() if p.token(getattr(self, p.field)) != ""
        }

    @classmethod
    def from_json(cls, values: Mapping[str, object]) -> Self:
        """The inverse of `to_json`. A value that is not given is off, or else at its base."""
        known = {parameter.field: parameter for parameter in cls.parameters()}
        for field in values:
            if field not in known:
                raise ConfigError(f"{cls.__name__}.{field}", "is no tuning parameter; there are " + ", ".join(known))
        read: dict[str, Value] = {}
        for field, parameter in known.items():
            if field in values:
                read[field] = parameter.read(values[field], cls.__name__)
            else:
                read[field] = parameter.base if parameter.off is None else parameter.off
        return cls(**read)

    @classmethod
    def space(cls) -> Iterator[Self]:
        """Every config that is not illegal alone, in the order of the fields' values."""
        parameters = cls.parameters()
        fields = [parameter.field for parameter in parameters]
        for values in product(*(parameter.values for parameter in parameters)):
            config = cls.__new__(cls)
            config.__dict__.update(zip(fields, values, strict=True))  # known values: `__init__` would look each up
            if config.illegal() is None:
                yield config


def _unreadable(subject: str, tag: str, parameter: Parameter, left: list[str]) -> UnknownNameError:
    place = f"at {left[0]!r}" if left else "at its end"
    rule = f"cannot be read {place}: {parameter.field} comes there, one of {', '.join(_tokens(parameter))}"
    return UnknownNameError(subject, rule, repr(tag))


def _beyond(subject: str, tag: str, passed: Sequence[Parameter], left: list[str]) -> UnknownNameError:
    """An error for what comes after all that was read; parameters that are off might have come there."""
    choices = [token for parameter in passed for token in _tokens(parameter)]
    rest = f"only {', '.join(choices)} may follow" if choices else "nothing follows the last parameter"
    return UnknownNameError(subject, f"cannot be read at {left[0]!r}: {rest}", repr(tag))


def _tokens(parameter: Parameter) -> list[str]:
    return [parameter.token(value) for value in parameter.values if parameter.token(value)]


C = TypeVar("C", bound=Config)
Pair = tuple[str, Value, str, Value]


def pairs(config: Config) -> frozenset[Pair]:
    """Every two parameters with their values; a lone parameter counts as a pair with itself."""
    values = [(parameter.field, getattr(config, parameter.field)) for parameter in config.parameters()]
    if len(values) == 1:
        values = values * 2
    return frozenset((*first, *second) for first, second in combinations(values, 2))


def pairwise(configs: Sequence[C]) -> tuple[C, ...]:
    """Configs among these, in their order, that hold every pair of values that any of them holds.

    Greedy: each step takes the first config with the most pairs still missing.
    """
    numbers: dict[tuple[str, Value], int] = {}  # of each value: values are hashed once, and not in every pair
    bits: dict[tuple[int, int], int] = {}
    held: list[int] = []
    for config in configs:
        own = [numbers.setdefault((p.field, getattr(config, p.field)), len(numbers)) for p in config.parameters()]
        together = combinations(own if len(own) > 1 else own * 2, 2)
        held.append(sum(bits.setdefault(pair, 1 << len(bits)) for pair in together))
    missing = (1 << len(bits)) - 1
    # How many pairs a config would add never grows: one whose count still holds is ahead of all that stand behind it.
    queue = [(-each.bit_count(), place) for place, each in enumerate(held)]
    heapify(queue)
    chosen: list[int] = []
    while missing:
        count, place = queue[0]
        now = (held[place] & missing).bit_count()
        if now == -count:
            heappop(queue)
            missing &= ~held[place]
            chosen.append(place)
        else:
            heapreplace(queue, (-now, place))
    return tuple(configs[place] for place in sorted(chosen))
