"""What a family is: specs say what is computed, algorithms how, plans by which launches.

Nothing outside a family knows a family's name.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from html import escape
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

import numpy as np

from gen.arch import MAX_GRID_X, MAX_GRID_YZ, STATIC_SHARED_BYTES, Limits
from gen.dtypes import DType
from gen.families.config import Config, pairwise, word_of
from gen.families.estimates import Demand, Least, Smallest
from gen.families.plans import Launch, Plan, Scratch, beyond_grid, beyond_shared, with_limits

__all__ = [
    "MAX_GRID_X", "MAX_GRID_YZ", "STATIC_SHARED_BYTES", "WIDEST", "Algorithm", "Array", "Expected",
    "Extents", "Family", "Kernel", "Launch", "Layout", "Limits", "Named", "Operand", "Plan", "Role", "Runner",
    "Scratch", "Spec", "Variant", "Work", "beyond_grid", "with_limits",
]  # fmt: skip


Array = np.ndarray[Any, Any]
Extents = Mapping[str, int]
"""Run-time sizes by name: `{"rows": 4097, "cols": 8191, "in_pitch": 8192, "out_pitch": 4097}`."""

WIDEST = 16  # bytes: no kernel asks for a larger alignment

Role = Literal["in", "out", "inout", "number"]


@dataclass(frozen=True)
class Operand:
    """One array or number of a call, in the user's order.

    Attributes:
        axes: the extents that are its shape, slowest first, a number for one that is always the same; none for a
            number or a 0-d array.
        pitch: the extent that counts elements from one row to the next; empty where rows follow each other.
    """

    name: str
    role: Role
    dtype: DType
    axes: tuple[str | int, ...] = ()
    pitch: str = ""


@dataclass(frozen=True)
class Layout:
    """How an array lies in memory: shape, strides in bytes, element, and the bytes that divide base and strides."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    alignment: int = 16

    @classmethod
    def of(cls, array: Array) -> Layout:
        """The layout of a NumPy array."""
        address = array.ctypes.data
        return cls(array.shape, array.strides, array.dtype, int(np.gcd.reduce([256, address, *array.strides])))


class Spec(Protocol):
    """What is computed; a frozen dataclass of its family, canonical, hashable."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Arrays and numbers of a call, in the user's order."""
        ...

    @property
    def label(self) -> str:
        """The spec in a name: `sum_f32`. Content no name can hold is a word and 8 hex digits of `to_json()`."""
        ...

    @property
    def summary(self) -> str:
        """What is computed, in a sentence for the reader of an emitted file."""
        ...

    def to_json(self) -> Mapping[str, Any]:
        """All of it: stands in the header of every file and in every stored result."""
        ...

    def __hash__(self) -> int:
        """Equal specs are one and the same key."""
        ...


_ROLES = {"in": "input", "out": "output", "inout": "input and output", "number": "number"}


def html_table(title: str, rows: Iterable[Sequence[object]], *, source: str = "") -> str:
    """A title over a table, as HTML: what a notebook shows in the place of a long repr.

    Args:
        title: what is shown.
        rows: of the table, whose first cell says what the others are.
        source: the text of a kernel, which is folded; empty: none.
    """
    lines = (
        f"<tr>{_cell('th', name)}{''.join(_cell('td', content) for content in contents)}</tr>"
        for name, *contents in rows
    )
    text = f"<details><summary>source</summary><pre>{escape(source)}</pre></details>" if source else ""
    return f"<div><strong>{escape(title)}</strong><table>{''.join(lines)}</table>{text}</div>"


def _cell(tag: str, content: object) -> str:
    return f'<{tag} style="text-align:left">{escape(str(content))}</{tag}>'  # notebooks set cells to the right


class ShownSpec:
    """A spec that a notebook shows as a table: what it computes, and of which arrays."""

    def _repr_html_(self: Spec) -> str:
        def told(one: Operand) -> str:
            axes = f", {' x '.join(map(str, one.axes))}" if one.axes else ""
            return f"{_ROLES[one.role]}, {one.dtype.name}{axes}"

        arrays = ((one.name, told(one)) for one in self.operands)
        return html_table(self.label, (("computes", self.summary), *arrays))


def digest_label(word: str, spec: Spec, dtype: DType) -> str:
    """The label of a spec whose content no name can hold: `heat_3fa94c01_f32`."""
    content = json.dumps(spec.to_json(), sort_keys=True, separators=(",", ":"))
    return f"{word}_{hashlib.sha256(content.encode()).hexdigest()[:8]}_{dtype.name}"


S = TypeVar("S", bound=Spec)
C = TypeVar("C", bound=Config)


class Algorithm(ABC, Generic[S, C]):
    """One template and its config class.

    Four questions decide where a variant may be used. Each answer is a reason in words, or None:

    - `illegal`: its kernel would be wrong, or cannot be written. There is no such variant.
    - `unsearched`: it is correct, but by policy tuning does not try it. It can be rendered, proven and timed by name.
    - `infeasible`: this device cannot run it.
    - `unsupported_extents`: it cannot compute these sizes.

    `Config.illegal` and `Config.unsearched` answer the first two for a config alone.
    """

    name: ClassVar[str]
    template: ClassVar[str]
    summary: ClassVar[str]
    config: type[C]
    takes: ClassVar[type[Any] | tuple[type[Any], ...]] = object  # the classes of specs that it computes
    repeatable: ClassVar[bool] = True  # False: it may give other bits every time
    links: ClassVar[tuple[str, ...]] = ()  # libraries of device code that its text is linked with: `cudadevrt`
    not_on_host: ClassVar[str | None] = None  # why the CPU cannot run it: then it is proven on a GPU only
    # Words of 64 bits in zeroed scratch memory of a block that is done, and adds nothing.
    flag_word_of_finished_block: ClassVar[int] = 0

    @property
    def excluded_from_tuning(self) -> str | None:
        """Why neither tuning nor dispatch chooses it; None if they may."""
        if not self.repeatable:
            return "it does not give the same bits on every run"
        return f"it must be linked with {', '.join(self.links)} wherever it is loaded" if self.links else None

    @cached_property
    def is_estimated(self) -> bool:
        """Whether it says what its variants ask of a device."""
        return type(self).demand is not Algorithm.demand

    def illegal_spec(self, spec: S) -> str | None:
        """Why it computes no such spec, whatever the config; None if it does."""
        return None if isinstance(spec, self.takes) else f"it computes no {spec.label}"

    def illegal(self, spec: S, config: C) -> str | None:
        """Why a kernel of this config would compute this spec wrongly, or cannot be written for it."""
        return None

    def unsearched(self, spec: S, config: C) -> str | None:
        """Why tuning does not try this config for this spec, legal as it is, unless it is told to."""
        return None

    def description(self, config: C) -> str:
        """What a variant does, in a sentence or two; where a config leaves out what the summary says, without that."""
        return self.summary

    def infeasible(self, spec: S, config: C, limits: Limits) -> str | None:
        """Why this variant, legal as it is, cannot run on such a device.

        By default: where a launch forms clusters and the device has none, or takes too much shared memory at all sizes.
        """
        plan = plan_of(self, spec, config)
        if not limits.has_clusters and any(launch.cluster != (1, 1, 1) for launch in plan.launches):
            return "thread block clusters need sm_90 or later"
        for shared_bytes in plan.shared_bytes:
            if found := beyond_shared(shared_bytes.fixed() or 0, limits):
                return found
        return None

    def unsupported_extents(self, spec: S, config: C, extents: Extents, limits: Limits) -> str | None:
        """Why this variant cannot compute these sizes.

        By default: where a launch has more blocks than a grid, or takes more shared memory than a block has.
        """
        sizes = with_limits(extents, limits)
        plan = plan_of(self, spec, config)
        for grid in plan.grids:
            if found := beyond_grid(*[blocks.at(sizes) for blocks in grid]):
                return found
        for shared_bytes in plan.shared_bytes:
            if found := beyond_shared(shared_bytes.at(sizes), limits):
                return found
        return None

    def edge_cases(self, spec: S, config: C) -> Iterator[Extents]:
        """Sizes derived from this variant's tiles: the last one has 1, 2, all but 1 or all of its elements.

        The variant is proven on them beside the sizes of `Family.cases`, which all variants of a spec share. Where it
        takes few of those, they are other sizes that it takes. Each says extents of axes and pitches, as
        `Family.layouts` takes them; the family measures what else there is.
        """
        return iter(())

    def slow_path_reason(self, spec: S, config: C, extents: Extents, alignment: int, limits: Limits) -> str | None:
        """Why it takes these sizes the long way, slower than a variant that is made for them; None if this one is.

        Args:
            spec: the spec.
            config: the variant's.
            extents: sizes that it can take.
            alignment: the most bytes, up to 16, that divide the address of every array.
            limits: of the device.
        """
        return None

    def wider(self, config: C) -> C | None:
        """The config without what only some sizes allow, for the others; None if it is made for all."""
        return None

    def spec_inputs(self, spec: S) -> Mapping[str, object]:
        """What templates may read of a spec: of this a template is given what it declares."""
        return {}

    def inputs(self, spec: S, config: C) -> Mapping[str, object]:
        """What is derived for the template, which must declare all of it.

        Beside this it declares `name` and, as far as it reads them, fields of the config and of `spec_inputs`, of
        which a value from here replaces one that has the same name. Values are text, integers, booleans, frozen
        dataclasses of these, and tuples of these.
        """
        return {}

    @abstractmethod
    def plan(self, spec: S, config: C) -> Plan:
        """Every launch of one call."""

    def roundings(self, spec: S, config: C, extents: Extents, limits: Limits) -> int:
        """The most roundings on a path from an input to an output: the h of gamma_h. 0 where nothing is rounded."""
        return 0

    def bytes_in_flight(self, spec: S, config: C) -> int:
        """Bytes of loads that each thread of the main kernel, the one without `entry`, has under way at once.

        As the text asks for them: a compiler may wait for the first before it issues the last. What other threads read
        too counts once. 0: unknown.
        """
        return 0

    def demand(self, spec: S, config: C, extents: Extents, alignment: int, limits: Limits) -> Demand | None:
        """What the variant asks of a device at sizes that it supports; None: unknown, and no estimate is made.

        Args:
            spec: the spec.
            config: the variant's.
            extents: the problem's sizes.
            alignment: the most bytes, up to 16, that divide the address of every array.
            limits: of the device.
        """
        return None

    def least(self, spec: S, config: C, limits: Limits) -> Least:
        """What no demand at any sizes is below; the tighter it is, the fewer demands dispatch counts."""
        return Least()

    def arithmetic(self, spec: S, config: C, extents: Extents, limits: Limits) -> float:
        """Instructions that a thread of the main kernel issues between its loads and its stores, at least, in a launch.

        The mean of all launches of a call. Each counts as often as it takes the time of an addition of f32 on the
        device: `limits.slots`. For loops over what registers hold, which no access shows. 0: unknown.
        """
        return 0.0


@dataclass(frozen=True)
class Named:
    """A kernel of the literature: an algorithm with some parameters, and where it must some spec fields, fixed.

    Attributes:
        rank: its rung of the ladder.
        more: what it adds to the extents of a problem, where no others are given: `{"out_pitch": 64}`.
        over: the kernel beside which the literature shows what it gains; empty: the one before; None: it begins anew.
        published: how many times as fast as that the literature found it, on GPUs of 2010 to 2013; None: it does not
            say.
    """

    name: str
    algorithm: str
    config: Mapping[str, object]
    spec: Mapping[str, object]
    rank: int
    more: Mapping[str, int] = field(default_factory=dict)
    over: str | None = ""
    published: float | None = None


@cache
def searched_cover(algorithm: Algorithm[Any, C]) -> tuple[C, ...]:
    """Configs that hold every pair of values of all that tuning may try for some spec."""
    return pairwise([config for config in algorithm.config.space() if config.unsearched() is None])


@dataclass(frozen=True)
class Expected:
    """What one output must hold.

    Attributes:
        value: the result, exact, or in a wider type than the output's.
        magnitude: per element, the sum of the finite magnitudes of what was added; None: every bit must agree.
        accumulator: the type in which the kernel adds.
        integral: only whole numbers of magnitude 8 at most are added, each once.
    """

    value: Array
    magnitude: Array | None = None
    accumulator: DType | None = None
    integral: bool = False


@dataclass(frozen=True)
class Work:
    """The least a call must do; `limit` names the calibrated figure it is scored against."""

    bytes_read: int
    bytes_written: int
    cells: int
    limit: Literal["read", "copy", "write"]


class Family(ABC, Generic[S]):
    """Kernels that share a purpose: all that the rest of gen asks about them.

    Attributes:
        algorithms: by name.
        named: the kernels of the literature.
        catalogue: the specs that are generated, proven and tuned when none is named.
        extra_proof_specs: by algorithm, a spec on which it is proven too, where a catalogue leaves it little to do.
        templates: the folder that holds `{name}/`; the shared partials are found from every family.
        label_help: labels, a colon, what they are made of: for whoever misspells one. Empty: the catalogue shows it.
        most_candidates: dispatch chooses among the first so many of the heuristics that can compute the sizes.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    algorithms: Mapping[str, Algorithm[S, Any]]
    named: tuple[Named, ...] = ()
    catalogue: tuple[S, ...]
    extra_proof_specs: Mapping[str, S] = MappingProxyType({})
    templates: Traversable
    label_help: ClassVar[str] = ""
    most_candidates: ClassVar[int] = 40

    def name_of(self, spec: S) -> str:
        """The spec's name, with its family: `reduction_sum_f32`."""
        return f"{self.name}_{spec.label}"

    def from_label(self, label: str) -> S | None:
        """The spec outside the catalogue whose label says all of it; None if there is none."""
        return None

    @abstractmethod
    def from_json(self, content: Mapping[str, Any]) -> S:
        """The inverse of `Spec.to_json`."""

    def for_outputs(self, spec: S, outputs: Mapping[str, np.dtype[Any]]) -> S:
        """The spec that computes the same into outputs that a caller brings: of other dtypes, where nothing is lost.

        A spec whose outputs can have no other dtype stays as it is, and the call is refused.
        """
        return spec

    def takes(self, spec: object) -> bool:
        """Whether this is a spec of the family."""
        return any(type(known) is type(spec) for known in self.catalogue)

    def chosen(self, spec: S) -> Literal["greatest", "least", ""]:
        """Which of its elements a result is, or is the place of; empty if it is made of all."""
        return ""

    def runtime_parameters(self, spec: S) -> Mapping[str, int]:
        """Sizes that no array has and a call states by name, with what they are where it does not: `{"steps": 1}`.

        They are extents like any other, so that plans may name them; `extents` gives them these values.
        """
        return {}

    @abstractmethod
    def extents(self, spec: S, layouts: Mapping[str, Layout]) -> Extents:
        """The problem's sizes. Raises ShapeError naming operand, rule and value."""

    @abstractmethod
    def layouts(self, spec: S, extents: Extents) -> Mapping[str, Layout]:
        """How every array of a problem of these sizes lies in memory, results included."""

    def check_content(self, spec: S, inputs: Mapping[str, Array], extents: Extents) -> None:
        """Raises ShapeError for what arrays on the host may not hold, such as a place that lies outside another.

        What lies on a GPU is not looked at, for no call waits for one: kernels break no rule whatever arrays hold.
        """

    def holds_places(self, spec: S, operand: Operand) -> bool:
        """Whether an input holds places in another: in proofs these are small, so that some of them lie inside."""
        return False

    @abstractmethod
    def oracle(self, spec: S, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """What NumPy says the outputs are."""

    def oracle_at(
        self, spec: S, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """What NumPy says of single elements of an output that is too large to be computed whole.

        A family that has this is proven on more than 2^32 elements too: chosen blocks of a large grid are run.

        Args:
            spec: what is computed.
            inputs: whole, but of no more memory than is looked at; none of them may be copied. For an output without
                axes: only the elements that the chosen blocks have read, in order.
            extents: those of `inputs`.
            name: the output.
            index: an array of places along each of its axes: as many elements as each array has.

        Returns:
            The elements along one axis; the one of an output without axes. None if it cannot be said: for an output
            without axes, unless partial results that are missing, and so 0, change nothing.
        """
        return None

    @abstractmethod
    def work(self, spec: S, extents: Extents) -> Work:
        """The least such a problem takes."""

    def smallest(self, spec: S, extents: Extents, limits: Limits) -> Smallest:
        """What every variant that computes such a problem has to do, by what its demand counts."""
        return Smallest(0, 0)

    @abstractmethod
    def shape_classes(self, spec: S) -> tuple[str, ...]:
        """Every shape class, in words."""

    @abstractmethod
    def shape_class(self, spec: S, extents: Extents, alignment: int = WIDEST) -> str:
        """The class of sizes, one of `shape_classes`, that shares a tuned variant.

        Args:
            spec: what is computed.
            extents: the problem's sizes.
            alignment: the most bytes, up to 16, that divide the address of every array.
        """

    def can_share_tuning(self, spec: S, other: S) -> bool:
        """Whether what was tuned for the other is likely to be fast for the spec too, in the same shape class."""
        return False

    @abstractmethod
    def representative(self, spec: S, shape_class: str) -> Extents:
        """The sizes that stand for a shape class when it is tuned."""

    def first_stays(self, shape_class: str) -> float:
        """Part of the estimated time of what comes first untuned in a class, under which another is taken."""
        return 0.87

    def sizes_for_numpy(self, spec: S, extents: Extents) -> Extents:
        """The nearest sizes at which NumPy computes the results in seconds.

        Where they are smaller, base is proven at them, and its own result is what others must equal, bit for bit.
        """
        return extents

    @abstractmethod
    def cases(self, spec: S) -> Iterator[Extents]:
        """Awkward sizes, small enough for the CPU run."""

    def far_cases(self, spec: S) -> Iterator[Extents]:
        """Sizes at which elements have numbers beyond 2^33, on memory that exists where it is touched.

        Those of few elements, whose rows lie far apart, are run whole. Others have few results, neighbours in memory if
        they are several, which all blocks share; chosen blocks run.
        """
        return iter(())

    def proof_cover(self) -> Iterator[tuple[str, S, Config]]:
        """Algorithms, specs and configs that are proven beside those of the catalogue, when the family is.

        In them features of specs, such as the operator and the dtype, meet each other and every algorithm.
        """
        return iter(())

    @abstractmethod
    def base(self, spec: S, shape_class: str) -> tuple[str, Config]:
        """Algorithm and config that a spec gets without any tuning: they take every size of the class."""

    def heuristic_configs(self, spec: S, shape_class: str, limits: Limits) -> Iterable[tuple[str, Config]]:
        """What is often faster than base, the best first; some may be illegal for a spec, or not take all sizes.

        An untuned device gets the first that is legal, takes the sizes and is not slow at them; tuning tries all early.
        """
        return ()


@dataclass(frozen=True, repr=False)
class Variant:
    """One kernel, one file, one name. Made by `gen.families.names.variant`, which refuses what is illegal."""

    family: Family[Any]
    spec: Spec
    algorithm: Algorithm[Any, Any]
    config: Config

    @cached_property
    def name(self) -> str:
        """The kernel's symbol, its file's stem, its argument on a command line."""
        tag = self.config.tag
        return f"{self.spec_name}__{self.algorithm.name}" + (f"_{tag}" if tag else "")

    @property
    def spec_name(self) -> str:
        """The spec's name: `reduction_sum_f32`."""
        return self.family.name_of(self.spec)

    @property
    def plan(self) -> Plan:
        """Every launch of one call."""
        return plan_of(self.algorithm, self.spec, self.config)

    def __repr__(self) -> str:
        return f"<gen variant {self.name}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The same, for printers that take dataclasses apart: Hypothesis refuses to print many variants so."""
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        return html_table(self.name, self.described)

    @property
    def described(self) -> tuple[tuple[str, str], ...]:
        """What it computes and how, in words, with the value of each tuning parameter."""
        values = ((name, word_of(value)) for name, value in self.config.values().items())
        how = self.algorithm.description(self.config)
        return (("computes", self.spec.summary), ("algorithm", f"{self.algorithm.name}: {how}"), *values)

    def edge_cases(self) -> Iterator[Extents]:
        """Its algorithm's edge cases, measured."""
        family, spec = self.family, self.spec
        for sizes in self.algorithm.edge_cases(spec, self.config):
            counted = {name: sizes.get(name, usual) for name, usual in family.runtime_parameters(spec).items()}
            yield {**family.extents(spec, family.layouts(spec, sizes)), **counted}


@lru_cache(maxsize=2048)
def plan_of(algorithm: Algorithm[Any, Any], spec: Spec, config: Config) -> Plan:
    """The plan of a variant, made once."""
    return algorithm.plan(spec, config)


class Kernel(Protocol):
    """A variant ready to run, with scratch of its own that stays from run to run."""

    variant: Variant

    def run(self, extents: Extents, buffers: Mapping[str, Any]) -> None:
        """Runs the plan once on arrays by operand name. Raises RunError if a rule is broken while it runs."""
        ...


class Runner(Protocol):
    """Where plans run: the CPU, a GPU, a fake in tests."""

    limits: Limits

    def cannot_run(self, variant: Variant) -> str | None:
        """Why it runs no such variant at all; None if it does."""
        ...

    def load(self, variants: Sequence[Variant]) -> tuple[Kernel, ...]:
        """Makes variants ready, many at once."""
        ...
