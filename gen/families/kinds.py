"""A family whose specs are of several kinds, each of which has sizes, cases and an oracle of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from gen.arch import Limits
from gen.families.base import WIDEST, Array, Expected, Extents, Family, Layout, Spec, Work
from gen.families.config import Config


class Kinds(Family[Any]):
    """Hands every question about a spec to the family of its kind; name, algorithms and templates are shared.

    Attributes:
        kinds: a family for each class of specs.
    """

    kinds: ClassVar[Mapping[type[Any], Family[Any]]]

    @abstractmethod
    def kind_of(self, content: Mapping[str, Any]) -> type[Any]:
        """The class of the spec that has this JSON."""

    def takes(self, spec: object) -> bool:
        """Specs of every kind."""
        return type(spec) in self.kinds

    def _kind(self, spec: Spec) -> Family[Any]:
        return self.kinds[type(spec)]

    def spell(self, label: str) -> Spec | None:
        """The first kind's that can."""
        spelled = (kind.spell(label) for kind in self.kinds.values())
        return next((spec for spec in spelled if spec is not None), None)

    def from_json(self, content: Mapping[str, Any]) -> Spec:
        """The inverse of `Spec.to_json`."""
        found: Spec = self.kinds[self.kind_of(content)].from_json(content)
        return found

    def for_outputs(self, spec: Spec, outputs: Mapping[str, np.dtype[Any]]) -> Spec:
        """The spec that computes the same into outputs of other dtypes."""
        found: Spec = self._kind(spec).for_outputs(spec, outputs)
        return found

    def counts(self, spec: Spec) -> Mapping[str, int]:
        """As the spec's kind says; so do all that follow."""
        return self._kind(spec).counts(spec)

    def extents(self, spec: Spec, layouts: Mapping[str, Layout]) -> Extents:
        """The problem's sizes."""
        return self._kind(spec).extents(spec, layouts)

    def layouts(self, spec: Spec, extents: Extents) -> Mapping[str, Layout]:
        """How arrays lie in memory."""
        return self._kind(spec).layouts(spec, extents)

    def oracle(self, spec: Spec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """What NumPy says the outputs are."""
        return self._kind(spec).oracle(spec, inputs, extents)

    def part(
        self, spec: Spec, inputs: Mapping[str, Array], extents: Extents, name: str, index: tuple[Array, ...]
    ) -> Expected | None:
        """What NumPy says of single elements."""
        return self._kind(spec).part(spec, inputs, extents, name, index)

    def work(self, spec: Spec, extents: Extents) -> Work:
        """The least such a problem takes."""
        return self._kind(spec).work(spec, extents)

    def shape_classes(self, spec: Spec) -> tuple[str, ...]:
        """Every shape class."""
        return self._kind(spec).shape_classes(spec)

    def shape_class(self, spec: Spec, extents: Extents, alignment: int = WIDEST) -> str:
        """The class of sizes."""
        return self._kind(spec).shape_class(spec, extents, alignment)

    def alike(self, spec: Spec, other: Spec) -> bool:
        """As the kind says, if both are of one."""
        return type(spec) is type(other) and self._kind(spec).alike(spec, other)

    def representative(self, spec: Spec, shape_class: str) -> Extents:
        """The sizes that stand for a class."""
        return self._kind(spec).representative(spec, shape_class)

    def provable(self, spec: Spec, extents: Extents) -> Extents:
        """The nearest sizes that NumPy computes in seconds."""
        return self._kind(spec).provable(spec, extents)

    def cases(self, spec: Spec) -> Iterator[Extents]:
        """Awkward sizes."""
        return self._kind(spec).cases(spec)

    def base(self, spec: Spec, shape_class: str) -> tuple[str, Config]:
        """What a spec gets without tuning."""
        return self._kind(spec).base(spec, shape_class)

    def likely(self, spec: Spec, shape_class: str, limits: Limits) -> Sequence[tuple[str, Config]]:
        """What is often faster."""
        return self._kind(spec).likely(spec, shape_class, limits)
