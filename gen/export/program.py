"""What an exported library knows of a spec: sizes of arrays, shape classes, candidates and plans, all as C++.

Everything is traced from the families and the chooser that `gen.load` asks, for devices of chosen architectures.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from gen.arch import Architecture, Attribute, Limits, arch_of
from gen.errors import ConfigError, ShapeError, SpecError
from gen.export.trace import IMPOSSIBLE, AnyTuple, Fork, Leaf, Refusal, Term, Trace, TracingError, Tree, leaves
from gen.families.base import WIDEST, Extents, Family, Launch, Layout, Operand, Spec, Variant
from gen.families.estimates import estimated_us
from gen.families.extents import PASS_ANOTHER, dense, dense_inputs
from gen.families.regions import Region, sizes_of
from gen.runtime.dispatch import Chooser, ClassVariants
from gen.store.winners import Winner

MOST_RANK = 3  # of arrays whose rank a spec leaves open
MANY = 16  # candidates of a shape class, of which the library then has only those that some problem gets
SAMPLES, SAMPLES_OF_A_SHAPE = 4000, 50  # random problems that are asked for that
_MOST_ELEMENTS_LOG2 = 34
_WORDS = {
    "bool": "whether", "double": "microseconds", "real": "number", "whole": "number", "real_of_arrays": "number",
    "whole_of_arrays": "number",
}  # fmt: skip
_TELLING = ("measure", "results", "misfit")  # of functions that say what is wrong
_IN_TABLES = ("bool", "double", "class", *_TELLING)  # of functions that tables name
_EXACT = "exact"  # begins a size that tells shapes apart of which nothing else is traced


class Taken(Enum):
    """Which arrays a library measures: of any strides that the spec takes, contiguous ones, those of known shapes."""

    STRIDED = "strided"
    DENSE = "dense"
    EXACT = "exact"


@dataclass(frozen=True)
class Target:
    """Devices for which a library chooses alike.

    Attributes:
        limits: of the architecture's best-known device, or of the device's architecture; the library asks the driver.
        device: what the driver calls it, where something was tuned for it; empty: all others.
    """

    limits: Limits
    device: str = ""

    @property
    def arch(self) -> str:
        """What its machine code is for."""
        return self.limits.arch

    def chooser(self, family: Family[Any], spec: Spec, winners: Iterable[Winner]) -> Chooser:
        """What `gen.load` asks on such a device."""
        return Chooser(family, spec, winners, self.device, self.limits, asked_by_calls=False)


def targets_of(archs: Sequence[str], winners: Iterable[Winner]) -> tuple[Target, ...]:
    """Those of architectures, and of devices that something was tuned for; one of unknown architecture is in each."""
    devices = sorted({winner.device for winner in winners})
    found: list[Target] = []
    for arch in archs:
        found.append(Target(Limits.of(arch)))
        major, minor = Architecture.parse(arch).compute_capability
        asked = {Attribute.COMPUTE_CAPABILITY_MAJOR: major, Attribute.COMPUTE_CAPABILITY_MINOR: minor}
        for device in devices:
            if arch_of(device) in (None, arch):
                limits = Limits.of_device(device, lambda attribute, asked=asked: asked.get(attribute, 0))  # type: ignore[misc]
                found.append(Target(replace(limits, arch=arch), device))
    return tuple(found)


@dataclass(frozen=True)
class Function:
    """A tree of decisions as a function of C++."""

    name: str
    returns: str
    body: str


@dataclass(frozen=True)
class Candidate:
    """A variant that a shape class may get, with the functions that say whether; empty: never, or no estimate.

    One that the library does not hold has the number -1: it counts among the first that can compute the sizes.
    """

    variant: int
    cannot: str
    slow: str
    estimate: str


@dataclass(frozen=True)
class Chosen:
    """What a winner, or the lack of one, gives a shape class; `holds` says for which sizes, empty: for all."""

    holds: str
    measured: bool
    worth: float
    candidate: Candidate
    wider: tuple[Candidate, ...]
    later: bool


@dataclass(frozen=True)
class ClassRow:
    """A shape class on a target: for arrays whose sizes have the names of one structure."""

    target: int
    structure: int
    number: int
    words: str
    chosen: tuple[Chosen, ...]
    others: tuple[Candidate, ...]
    base: Candidate
    first_stays: float
    most: int


@dataclass(frozen=True)
class Entry:
    """A variant in the library; `plan` is the body of a function."""

    variant: Variant
    plan: str


@dataclass(frozen=True)
class Rank:
    """How arrays of so many axes are measured: functions by name.

    Attributes:
        measure: gives sizes.
        results: gives the shapes of all other arrays.
        misfits: by array, what is said of one that has another number of axes.
    """

    axes: int
    measure: str
    results: str
    misfits: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """All that the library's text says of a spec.

    Attributes:
        sizes: names of all sizes.
        structures: which of them are there together.
        dense: numbers of axes of which only contiguous arrays are taken.
        files: of templates, whose functions of C++ are called.
        codes: the variants of each target, by number, that its code is compiled for.
    """

    family: Family[Any]
    spec: Spec
    targets: tuple[Target, ...]
    sizes: tuple[str, ...]
    structures: tuple[tuple[str, ...], ...]
    functions: tuple[Function, ...]
    ranks: tuple[Rank, ...]
    dense: tuple[int, ...]
    classes: tuple[str, ...]
    classify: tuple[str, ...]
    files: tuple[str, ...]
    rows: tuple[ClassRow, ...]
    entries: tuple[Entry, ...]
    codes: tuple[tuple[int, ...], ...] = field(default=())

    @property
    def name(self) -> str:
        """The spec's."""
        return self.family.name_of(self.spec)


@dataclass(frozen=True)
class RandomProblem:
    """Arrays to call a kernel with, at random: the layout of each, and what divides their addresses."""

    layouts: Mapping[str, Layout]
    parameters: Mapping[str, int]
    alignment: int

    def extents(self, family: Family[Any], spec: Spec) -> Extents:
        """Its sizes."""
        return {**family.extents(spec, self.layouts), **self.parameters}


def leaves_rank_open(spec: Spec) -> bool:
    """Whether the first input may have any number of axes, or many."""
    axes = arrays_of(spec)[0].axes
    return "n" in axes or "d0" in axes


def ranks_of(family: Family[Any], spec: Spec) -> tuple[int, ...]:
    """How many axes the first input may have, up to `MOST_RANK` where the spec does not say."""
    first = arrays_of(spec)[0]
    if not leaves_rank_open(spec):
        return (len(first.axes),)
    found = []
    for rank in range(1, MOST_RANK + 1):
        try:
            family.extents(spec, dense_inputs(family, spec, (2,) * rank))
        except ShapeError:
            continue
        found.append(rank)
    return tuple(found)


def arrays_of(spec: Spec) -> tuple[Operand, ...]:
    """The spec's arrays, in the order of a call: inputs, then outputs."""
    inputs = tuple(x for x in spec.operands if x.role in ("in", "inout"))
    return inputs + tuple(x for x in spec.operands if x.role == "out")


def problems(
    family: Family[Any], spec: Spec, ranks: Sequence[int], count: int, seed: int = 0,
    shapes: Sequence[Sequence[int]] = (),
) -> Iterator[RandomProblem]:  # fmt: skip
    """Random problems: of many sizes, some with gaps after rows, at many alignments; or of these shapes only."""
    draw = random.Random(seed)
    operands = arrays_of(spec)
    first, size = operands[0], operands[0].dtype.size
    largest = max(one.dtype.size for one in operands)
    parameters = family.runtime_parameters(spec)
    while count > 0:
        count -= 1
        shape = tuple(draw.choice(shapes)) if shapes else _random_shape(draw, draw.choice(ranks))
        gap = draw.choice((0, 0, 1, 4, 64)) if first.pitch or len(shape) > 1 else 0
        rows = (*shape[:-1], shape[-1] + gap) if shape and not shapes else shape
        strides = dense(first, rows).strides
        stated = {name: draw.choice((0, 1, 1, 2, 7, 48, 1000)) for name in parameters}
        try:
            given = dense_inputs(family, spec, shape) | {first.name: Layout(shape, strides, first.dtype.numpy, size)}
            extents = {**family.extents(spec, given), **stated}
        except ShapeError:
            continue
        expected = family.layouts(spec, extents)
        given |= {x.name: replace(expected[x.name], alignment=x.dtype.size) for x in operands[1:]}
        yield RandomProblem(given, stated, max(draw.choice((1, 2, 4, 8, 16, 16, 16)), min(largest, WIDEST)))


def _random_shape(draw: random.Random, rank: int) -> tuple[int, ...]:
    """Extents whose logarithms are uniform, many of them at powers of two and at multiples of 8."""
    left, shape = draw.uniform(0, _MOST_ELEMENTS_LOG2), []
    cuts = sorted(draw.uniform(0, left) for _ in range(rank - 1))
    for low, high in zip((0.0, *cuts), (*cuts, left), strict=True):
        extent = int(2 ** (high - low))
        extent = draw.choice((extent, extent, 1 << extent.bit_length() - 1, -(-extent // 8) * 8, draw.randint(0, 9)))
        shape.append(extent)
    draw.shuffle(shape)
    return tuple(shape)


def program_of(
    family: Family[Any], spec: Spec, targets: Sequence[Target], winners: Sequence[Winner],
    shapes: Sequence[Sequence[int]] = (), samples: int = SAMPLES,
) -> Program:  # fmt: skip
    """Traces everything.

    Args:
        family: of the spec.
        spec: what is computed.
        targets: devices.
        winners: of tuning.
        shapes: of the first input; where there are some, variants that none of them gets are left out, but for base.
        samples: random problems that show which of many candidates a device gets.

    Raises:
        SpecError: the spec has what a library cannot do yet, or its arrays can be too different.
    """
    every = (Taken.STRIDED, Taken.DENSE)
    for ways in (every, (Taken.EXACT,)) if shapes else (every,):
        try:
            return _Maker(family, spec, targets, winners, shapes, samples, ways).program()
        except TracingError:
            continue
    rule = "depends on the sizes of arrays in too many ways to be exported for all"
    next_step = "Give the shapes that it is called with: --shape 8192x8192"
    raise SpecError(family.name_of(spec), rule, next_step="" if shapes else next_step)


# As `host.hpp` has room for.
MOST_ARRAYS, MOST_LAUNCHES, MOST_ARGUMENTS, MOST_SWAPS = 24, 48, 512, 160

_INCLUDE = "Include its emitted file, and call launch(): docs/export.md"


class _Maker:
    """Collects the functions of one program."""

    def __init__(
        self, family: Family[Any], spec: Spec, targets: Sequence[Target], winners: Sequence[Winner],
        shapes: Sequence[Sequence[int]], samples: int,
        ways: Sequence[Taken],
    ) -> None:  # fmt: skip
        self._family, self._spec, self._targets = family, spec, tuple(targets)
        self._name = family.name_of(spec)
        if any(x.role == "number" for x in spec.operands):
            raise SpecError(
                self._name, "takes numbers, which an exported library does not pass yet", next_step=_INCLUDE
            )
        self._operands = arrays_of(spec)
        axes = {*self._operands[0].axes}
        if unknown := [x.name for x in self._operands if x.role == "in" and {*filter(_named, x.axes)} - axes]:
            rule = f"takes arrays whose sizes its first one does not say, which an exported library lacks: {unknown[0]}"
            raise SpecError(self._name, rule, next_step=_INCLUDE)
        self._choosers = [target.chooser(family, spec, winners) for target in targets]
        self._shapes, self._samples, self._ways = shapes, samples, ways
        self._trace = Trace(self._call)
        self._measuring = True  # of arrays; then of sizes
        self._functions: dict[tuple[str, int], Function] = {}
        self._kept: list[Tree] = []  # whose identity is a key
        self._sizes: dict[str, None] = dict.fromkeys(family.runtime_parameters(spec))
        self._structures: dict[tuple[str, ...], int] = {}
        self._values: dict[tuple[str, ...], dict[str, set[Term]]] = {}  # by structure and name
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._candidates: dict[tuple[str, int, Limits], Candidate] = {}
        multiprocessors = self._trace.variable("device.multiprocessors", least=1, most=4096, key=True)
        clock, bandwidth = (
            self._trace.variable(f"device.{name}", least=1.0, most=1e15, real=True, key=True)
            for name in ("clock_hz", "memory_bytes_per_second")
        )
        made: Any = {"multiprocessors": multiprocessors, "clock_hz": clock, "memory_bytes_per_second": bandwidth}
        self._limits = [replace(target.limits, **made) for target in targets]
        self._alignment = self._trace.variable("alignment", least=1, most=WIDEST)

    def program(self) -> Program:
        """All of it."""
        ranks, dense_ranks = [], []
        asked = {len(shape) for shape in self._shapes}
        known = ranks_of(self._family, self._spec)
        for axes in sorted(asked & set(known) if asked else known):
            how, measure = self._measured(axes)
            if how is not Taken.STRIDED:
                dense_ranks.append(axes)
            misfits = tuple(self._misfit(axes, place) for place in range(len(self._operands)))
            ranks.append(Rank(axes, measure, self._results(axes, how), misfits))
        if not ranks:
            rule = (
                f"must have {' or '.join(map(str, known))} extents at least once, as arrays of {self._name} have axes"
            )
            raise ShapeError("--shape", rule, " and ".join(map(str, sorted(asked))))
        self._measuring = False
        numbers: dict[str, int] = {}  # of classes
        structures = tuple(self._structures)
        trees = [self._class_tree(names, numbers) for names in structures]
        classes = tuple(numbers)
        rows, codes = [], []
        for number, chooser in enumerate(self._choosers):
            many = any(len(chooser.row(words).others) > MANY for words in classes) or self._shapes
            reached = self._reached(chooser, [rank.axes for rank in ranks]) if many else set()
            used = set()
            for structure, tree in enumerate(trees):
                for place in sorted({found for found in leaves(tree) if isinstance(found, int)}):
                    row = self._row(number, structure, place, classes[place], chooser.row(classes[place]), reached)
                    rows.append(row)
                    used |= {row.base.variant} | {one.variant for one in row.others if one.variant >= 0}
                    used |= {one.variant for part in row.chosen for one in (part.candidate, *part.wider)}
            codes.append(tuple(sorted(used)))
        classify = tuple(self._function("class", tree, _integer) for tree in trees)
        return Program(
            self._family, self._spec, self._targets, tuple(self._sizes), structures,
            tuple(_called(list(self._functions.values()))), tuple(ranks), tuple(dense_ranks), tuple(classes), classify,
            tuple(self._trace.files), tuple(rows),
            tuple(entry for _, entry in self._entries.values()), tuple(codes),
        )  # fmt: skip

    def _measured(self, axes: int) -> tuple[Taken, str]:
        """Which arrays of so many axes are taken, and the function that measures them: as many as can be traced."""
        *others, last = self._ways
        for how in others:
            try:
                return how, self._measure(axes, how)
            except TracingError:
                continue
        return last, self._measure(axes, last)

    def _sizes_of(self, given: Mapping[str, Layout], how: Taken) -> Extents:
        """What a family says of arrays; of exact shapes, of these instead."""
        if how is not Taken.EXACT:
            return self._family.extents(self._spec, given)
        first = self._operands[0]
        found = given[first.name].shape
        for place, shape in enumerate(self._shapes):
            if len(shape) == len(found) and found == tuple(shape):
                extents = self._family.extents(self._spec, dense_inputs(self._family, self._spec, tuple(shape)))
                return {**extents, f"{_EXACT}{place}": 1}
        rule = f"must have a shape that {self._name} was exported for: {', '.join(map(str, self._shapes))}"
        raise ShapeError(first.name, rule, found)

    def _reached(self, chooser: Chooser, ranks: Sequence[int]) -> set[str]:
        """The variants that problems of these ranks get, and those beside which they are much faster."""
        found = set()
        count = SAMPLES_OF_A_SHAPE * len(self._shapes) or self._samples
        for problem in problems(self._family, self._spec, ranks, count, shapes=self._shapes):
            extents = problem.extents(self._family, self._spec)
            try:
                choice = chooser.covering(chooser.choose(extents, problem.alignment), extents)
            except ConfigError:
                continue
            found.add(choice.variant.name)
            words = self._family.shape_class(self._spec, extents, problem.alignment)
            if first := chooser.first_estimated(words, extents, problem.alignment):
                found.add(first.name)
        return found

    def _views(self, ranks: Sequence[int], *, strided: bool) -> dict[str, Layout]:
        """Layouts of traced numbers, of arrays of so many axes each."""
        made = {}
        for place, (operand, rank) in enumerate(zip(self._operands, ranks, strict=False)):
            shape: tuple[Any, ...] = tuple(
                self._trace.variable(f"arrays[{place}].shape[{axis}]") for axis in range(rank)
            )
            strides: tuple[Any, ...] = tuple(
                self._trace.variable(f"arrays[{place}].strides[{axis}]", least=-(2.0**62)) for axis in range(rank)
            )
            if not strided:
                strides = dense(operand, shape).strides
            alignment: Any = self._trace.variable(f"arrays[{place}].alignment", least=1, most=32)
            made[operand.name] = Layout(shape, strides, operand.dtype.numpy, alignment)
        return made

    def _expected(self, extents: Extents) -> list[tuple[Operand, tuple[Any, ...]]]:
        layouts = self._family.layouts(self._spec, extents)
        return [(x, layouts[x.name].shape) for x in self._operands if x.role == "out"]

    def _ranks(self, axes: int) -> tuple[int, ...]:
        """How many axes every array has where the first has so many."""
        layouts = self._family.layouts(
            self._spec, self._family.extents(self._spec, dense_inputs(self._family, self._spec, (2,) * axes))
        )
        return (axes, *(len(layouts[x.name].shape) for x in self._operands[1:]))

    def _measure(self, axes: int, how: Taken) -> str:
        """The function that gives sizes, and the number of their structure."""

        def measured() -> Any:
            given = self._views(self._ranks(axes), strided=how is Taken.STRIDED)
            extents = self._sizes_of(given, how)
            for operand, shape in self._expected(extents):
                if given[operand.name].shape != shape:
                    value = given[operand.name].shape
                    raise ShapeError(operand.name, f"must have shape {shape}", value, next_step=PASS_ANOTHER)
            return extents

        parameters = self._family.runtime_parameters(self._spec)

        def terms(extents: Extents) -> tuple[tuple[str, Term], ...]:
            return tuple((name, self._trace.term(value)) for name, value in extents.items() if name not in parameters)

        tree = self._trace.tree(measured, terms)
        for found in leaves(tree):
            if isinstance(found, tuple):
                names = tuple(sorted({name for name, _ in found} | set(parameters)))
                self._structures.setdefault(names, len(self._structures))
                self._sizes |= dict.fromkeys(names)
                values = self._values.setdefault(names, {})
                for name, term in found:
                    values.setdefault(name, set()).add(term)
        return self._function("measure", tree, self._assigned)

    def _assigned(self, found: tuple[tuple[str, Term], ...], known: Names) -> str:
        names = tuple(sorted({name for name, _ in found} | set(self._family.runtime_parameters(self._spec))))
        sizes = " ".join(f"sizes[{name}] = {term.cpp(known)};" for name, term in found)
        return f"{sizes} return {self._structures[names]};"

    def _results(self, axes: int, how: Taken) -> str:
        """The function that gives the shapes of all arrays but the first, which has so many axes, one after another."""

        def shapes() -> Any:
            first = self._operands[0].name
            given = dense_inputs(self._family, self._spec, self._views((axes,), strided=False)[first].shape)
            extents = self._sizes_of(given, how)
            others = [given[x.name].shape for x in self._operands[1:] if x.name in given]
            return others + [shape for _, shape in self._expected(extents)]

        def terms(found: list[tuple[Any, ...]]) -> tuple[tuple[Term, ...], ...]:
            return tuple(tuple(map(self._trace.term, shape)) for shape in found)

        tree = self._trace.tree(shapes, terms)

        def assigned(found: tuple[tuple[Term, ...], ...], known: Names) -> str:
            parts = []
            for place, shape in enumerate(found):
                parts.append(f"results[{place}].ndim = {len(shape)};")
                parts += [f"results[{place}].shape[{axis}] = {term.cpp(known)};" for axis, term in enumerate(shape)]
            return " ".join((*parts, "return 0;"))

        return self._function("results", tree, assigned)

    def _misfit(self, axes: int, place: int) -> str:
        """The function that says what is wrong with an array of too few or too many axes; null: what was exported does.

        Of a first array that gen takes with more axes, or fewer, than the library does.
        """
        name = self._operands[place].name
        if place == 0 and leaves_rank_open(self._spec):
            return "nullptr"

        def refused() -> str:
            given = self._views(self._ranks(axes), strided=False)
            shape = AnyTuple(self._trace, f"tuple_of(arrays[{place}].shape, arrays[{place}].ndim)")
            given[name] = replace(given[name], shape=shape, strides=shape)
            self._family.extents(self._spec, given)
            return IMPOSSIBLE

        return self._function("misfit", self._trace.tree(refused), _integer)

    def _known(self, names: Sequence[str]) -> dict[str, Any]:
        """Traced extents of a structure."""
        parameters = self._family.runtime_parameters(self._spec)
        found: dict[str, Any] = {}
        for name in names:
            if name.startswith(_EXACT):
                continue
            values = list(self._values[tuple(names)].get(name, ()))
            if len(values) == 1 and values[0].operator == "number":  # the same for all arrays
                found[name] = values[0].value
            else:
                most = 2.0**31 if name in parameters else 2.0**62
                found[name] = self._trace.variable(f"sizes[{name}]", most=most)
        return found

    def _class_tree(self, names: Sequence[str], classes: dict[str, int]) -> Tree:
        def found() -> str:
            alignment: Any = self._alignment
            return self._family.shape_class(self._spec, self._known(names), alignment)

        return self._trace.tree(found, lambda words: classes.setdefault(words, len(classes)))

    def _row(
        self, target: int, structure: int, place: int, words: str, row: ClassVariants, reached: set[str]
    ) -> ClassRow:  # fmt: skip
        def candidate(made: Variant) -> Candidate:
            return self._candidate(target, structure, made)

        many = len(row.others) > MANY or bool(self._shapes)
        most = self._family.most_candidates
        held = [
            not many or place == 0 or made.name in reached or made == row.base for place, made in enumerate(row.others)
        ]
        others = tuple(
            candidate(made) if kept else Candidate(-1, self._cannot(target, structure, made), "", "")
            for made, kept in zip(row.others, held, strict=True)
            if kept or len(row.others) > most
        )
        chosen = tuple(
            Chosen(
                self._region(structure, part.region), part.measured, part.worth, candidate(part.variant),
                tuple(map(candidate, part.wider)), part.later,
            )
            for part in row.parts
        )  # fmt: skip
        return ClassRow(target, structure, place, words, chosen, others, candidate(row.base), row.first_stays, most)

    def _candidate(self, target: int, structure: int, made: Variant) -> Candidate:
        # What differs between devices of an architecture is not known here, or changes nothing here.
        key = made.name, structure, replace(self._targets[target].limits, needed_bytes_in_flight=None)
        if key in self._candidates:
            return self._candidates[key]
        names, limits = tuple(self._structures)[structure], self._limits[target]
        algorithm, spec, config = made.algorithm, made.spec, made.config
        alignment: Any = self._alignment

        def estimated() -> Any:
            demand = algorithm.demand(spec, config, self._known(names), alignment, limits)
            return None if demand is None else estimated_us(demand, limits)

        slow, time = (
            self._trace.tree(function, made_of)
            for function, made_of in (
                (lambda: algorithm.slow_path_reason(spec, config, self._known(names), alignment, limits), _said),
                (estimated, lambda value: None if value is None else self._trace.term(value)),
            )
        )
        found = self._candidates[key] = Candidate(
            self._entry(made), self._cannot(target, structure, made),
            self._function("bool", slow, _boolean), self._function("double", time, _estimate),
        )  # fmt: skip
        return found

    def _cannot(self, target: int, structure: int, made: Variant) -> str:
        """The function that says whether a variant cannot compute sizes."""
        names, limits = tuple(self._structures)[structure], self._limits[target]

        def unsupported() -> str | None:
            return made.algorithm.unsupported_extents(made.spec, made.config, self._known(names), limits)

        return self._function("bool", self._trace.tree(unsupported, _said), _boolean)

    def _region(self, structure: int, region: Region | None) -> str:
        if region is None or not region.bounds:
            return ""
        names = tuple(self._structures)[structure]
        alignment: Any = self._alignment

        def holds() -> bool:
            return region.holds(sizes_of(self._family, self._spec, self._known(names), alignment))

        return self._function("bool", self._trace.tree(holds), _boolean, empty=None)

    def _function(
        self, returns: str, tree: Tree, leaf: Callable[[Any, Names], str], empty: object = False
    ) -> str:  # fmt: skip
        """The name of the function that a tree is; nothing where it says `empty`, or None, everywhere."""
        if isinstance(tree, Leaf) and returns in ("bool", "double") and tree.result in (None, empty):
            return ""
        if (returns, id(tree)) not in self._functions:
            self._kept.append(tree)
            word = _WORDS.get(returns, returns)
            name = f"{word}_{len(self._functions)}"
            body = "\n".join(_lines(tree, leaf, returns, 1))
            self._functions[returns, id(tree)] = Function(name, returns, body)
        return self._functions[returns, id(tree)].name

    def _call(self, tree: Tree, real: bool) -> str:
        """The call of a function that gives one number."""
        kind = ("real" if real else "whole") + ("_of_arrays" if self._measuring else "")
        name = self._function(kind, tree, lambda term, names: f"return {term.cpp(names)};")
        return f"{name}({'arrays' if self._measuring else 'sizes, device, alignment'})"

    def _entry(self, made: Variant) -> int:
        """The number of a variant in the library."""
        if made.name not in self._entries:
            self._entries[made.name] = len(self._entries), Entry(made, self._plan(made))
        return self._entries[made.name][0]

    def _plan(self, made: Variant) -> str:
        """The body of the function that says what is launched."""
        plan = made.plan
        if plan.constants or any(launch.waiting.fixed() != 0 or launch.follows for launch in plan.launches):
            rule = "has constants, launches by kernels or some that take turns, which an exported library lacks"
            raise SpecError(made.name, rule)
        for what, count, most in (
            ("arrays", len(self._operands), MOST_ARRAYS), ("launches", len(plan.launches), MOST_LAUNCHES),
            ("arguments", sum(len(launch.arguments) for launch in plan.launches), MOST_ARGUMENTS),
            ("exchanges of arrays", sum(len(launch.swap) for launch in plan.launches), MOST_SWAPS),
        ):  # fmt: skip
            if count > most:
                raise SpecError(made.name, f"must have at most {most} {what} to be exported", count, next_step=_INCLUDE)
        slots = {x.name: place for place, x in enumerate(self._operands)}
        slots |= {scratch.name: len(slots) + place for place, scratch in enumerate(plan.scratch)}
        sizes = {name: self._trace.variable(f"sizes[{name}]") for name in self._sizes}
        sizes["multiprocessors"] = self._trace.variable("device.multiprocessors", least=1, most=4096)

        def value(expression: Any) -> str:
            tree = self._trace.tree(lambda: expression.at(sizes), self._trace.term)
            assert isinstance(tree, Leaf)
            term: Term = tree.result
            return term.cpp()

        lines = [f"plan.scratch({value(one.bytes)}, {json.dumps(one.zeroed)});" for one in plan.scratch]
        for launch in plan.launches:
            lines += self._launch(launch, slots, value)
        return "\n".join(f"  {line}" for line in lines)

    def _launch(self, launch: Launch, slots: Mapping[str, int], value: Callable[[Any], str]) -> Iterator[str]:
        grid = ", ".join(map(value, launch.grid))
        block = ", ".join(map(str, launch.block))
        shared, times = value(launch.shared_bytes), value(launch.times)
        yield f'plan.launch("{launch.entry}", {grid}, {block}, {shared}, {times});'
        if launch.cooperative:
            yield "plan.cooperative();"
        for argument in launch.arguments:
            if isinstance(argument, str):
                yield f"plan.array({slots[argument]});"
            else:
                dtype, expression = argument
                yield f"plan.number<{dtype.cuda}>({value(expression)});"
        for one, other in launch.swap:
            yield f"plan.swap({slots[one]}, {slots[other]});"


def _named(axis: str | int) -> bool:
    return isinstance(axis, str)


def _called(functions: Sequence[Function]) -> list[Function]:
    """Without functions of one number that none of those after them call any more, as their ways came to the same."""
    kept: list[Function] = []
    names: set[str] = set()
    for one in reversed(functions):
        if one.returns in _IN_TABLES or one.name in names:
            kept.append(one)
            names.update(re.findall(r"\bnumber_\d+", one.body))
    return kept[::-1]


def _estimate(term: Term | None, names: Names) -> str:
    return f"return {'NAN' if term is None else term.cpp(names)};"


def _integer(found: int, _: Names) -> str:
    return f"return {found};"


def _said(reason: str | None) -> bool:
    return reason is not None


def _boolean(found: Any, _: Names) -> str:
    return f"return {json.dumps(bool(found))};"


def _lines(
    tree: Tree, leaf: Callable[[Any, Names], str], returns: str, depth: int, names: Names | None = None
) -> Iterator[str]:
    """The statements of a tree; what a statement needs more than once is a variable of its block."""
    pad = "  " * depth
    names = Names(names or {})
    while isinstance(tree, Fork):
        condition = tree.condition
        yield from (pad + line for line in names.declared((condition.left, condition.right)))
        here, other, text = tree.yes, tree.no, condition.cpp(names)
        if isinstance(other, Leaf) and not isinstance(here, Leaf):
            here, other, text = other, here, f"!({text})"
        yield f"{pad}if ({text}) {{"
        yield from _lines(here, leaf, returns, depth + 1, names)
        yield f"{pad}}}"
        tree = other
    yield from (pad + line for line in _leaf(tree, leaf, returns, names))


class Names(dict[Term, str]):
    """The variables that hold terms where a statement stands."""

    def declared(self, terms: Iterable[Term]) -> Iterator[str]:
        """Declares what is in these terms twice."""
        counts: dict[Term, int] = {}
        order: list[Term] = []

        def visit(term: Term) -> None:
            if term in self or not (term.operands or term.operator == "alone"):
                return
            counts[term] = counts.get(term, 0) + 1
            if counts[term] == 1:
                for one in term.operands:
                    visit(one)
                order.append(term)

        for term in terms:
            visit(term)
        for term in order:
            if counts[term] > 1:
                text = term.cpp(self)
                self[term] = f"t{len(self)}"
                yield f"const {term.cpp_type} {self[term]} = {text};"


def _told(term: Term, names: Names) -> str:
    return term.cpp(names) if term.operator == "text" else f"number({term.cpp(names)})"


def _leaf(tree: Leaf, leaf: Callable[[Any, Names], str], returns: str, names: Names) -> Iterator[str]:
    found = tree.result
    if isinstance(found, Refusal):
        if returns not in _TELLING:
            yield "return {};"
            return
        words = " + ".join(json.dumps(one) if isinstance(one, str) else _told(one, names) for one in found.parts)
        yield f"return refuse(words, std::string() + {words});"
    elif found is IMPOSSIBLE:
        refused = 'return refuse(words, "The arrays cannot be described");'
        yield refused if returns in _TELLING else "return {};"
    else:
        if isinstance(found, Term):
            yield from names.declared((found,))
        elif isinstance(found, tuple):
            yield from names.declared([term for several in found for term in several if isinstance(term, Term)])
        yield leaf(found, names)
