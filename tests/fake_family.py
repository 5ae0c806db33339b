"""A family made of nothing but a text and a plan, for tests that bring their own kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gen.families.base import WIDEST, Algorithm, Expected, Extents, Family, Layout, Operand, Plan, Variant, Work
from gen.families.config import Config


@dataclass(frozen=True)
class FakeSpec:
    """Named by hand, with operands given by hand."""

    label: str
    operands: tuple[Operand, ...]
    summary: str = "what a test wants"

    def to_json(self) -> Mapping[str, Any]:
        """Its label: enough for a fake."""
        return {"label": self.label}


@dataclass(frozen=True, kw_only=True)
class FakeConfig(Config):
    """No tuning parameter."""


class FakeAlgorithm(Algorithm[FakeSpec, FakeConfig]):
    """Has one plan, whatever the spec."""

    name = "fake"
    template = "fake"
    summary = "a kernel of a test"
    config = FakeConfig

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def plan(self, spec: FakeSpec, config: FakeConfig) -> Plan:
        """The plan it was made with."""
        return self._plan


class FakeFamily(Family[FakeSpec]):
    """Answers none of the questions that only a real family can."""

    name = "fake"
    summary = "kernels of tests"
    algorithms: Mapping[str, Algorithm[FakeSpec, Any]] = {}
    catalogue: tuple[FakeSpec, ...] = ()
    templates = Path()

    def parse(self, label: str, known: Mapping[str, Mapping[str, Any]]) -> FakeSpec:
        raise NotImplementedError

    def from_json(self, content: Mapping[str, Any]) -> FakeSpec:
        raise NotImplementedError

    def extents(self, spec: FakeSpec, layouts: Mapping[str, Layout]) -> Extents:
        raise NotImplementedError

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        raise NotImplementedError

    def oracle(self, spec: FakeSpec, inputs: Mapping[str, Any], extents: Extents) -> Mapping[str, Expected]:
        raise NotImplementedError

    def work(self, spec: FakeSpec, extents: Extents) -> Work:
        raise NotImplementedError

    def shape_classes(self, spec: FakeSpec) -> tuple[str, ...]:
        raise NotImplementedError

    def shape_class(self, spec: FakeSpec, extents: Extents, alignment: int = WIDEST) -> str:
        raise NotImplementedError

    def representative(self, spec: FakeSpec, shape_class: str) -> Extents:
        raise NotImplementedError

    def cases(self, spec: FakeSpec) -> Iterator[Extents]:
        raise NotImplementedError

    def base(self, spec: FakeSpec, shape_class: str) -> tuple[str, Config]:
        raise NotImplementedError


def fake_variant(label: str, operands: tuple[Operand, ...], plan: Plan) -> Variant:
    """A variant named `fake_LABEL__fake` with these operands and this plan."""
    return Variant(FakeFamily(), FakeSpec(label, operands), FakeAlgorithm(plan), FakeConfig())


@dataclass(frozen=True)
class CalledVariant(Variant):
    """A variant with a name given by hand, for texts whose kernels are called after no spec."""

    called: str = ""

    @property
    def name(self) -> str:
        """The name given."""
        return self.called


def called_variant(name: str, operands: tuple[Operand, ...], plan: Plan) -> Variant:
    """A variant of this name: its kernels are called after that and their entries."""
    return CalledVariant(FakeFamily(), FakeSpec(name, operands), FakeAlgorithm(plan), FakeConfig(), name)
