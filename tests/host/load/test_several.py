"""Calls of several inputs, several outputs, and numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gen
from gen.dtypes import F32, I64
from gen.errors import (
    ArgumentError,
)
from gen.families import FAMILIES
from gen.families.base import WIDEST, Algorithm, Extents, Launch, Layout, Operand, Plan
from gen.families.config import Config
from gen.families.expr import ONE, size
from gen.families.extents import layouts_of, measure
from tests.fake_device import FakeDevice, OnDevice
from tests.fake_family import FakeConfig, FakeFamily, FakeSpec
from tests.host.load.given import arange


class PairAlgorithm(Algorithm[FakeSpec, FakeConfig]):
    name = "sum"
    template = "pair.cu.jinja"
    summary = "One thread an element."
    config = FakeConfig

    def inputs(self, spec: FakeSpec, config: FakeConfig) -> Mapping[str, object]:
        return {}

    def plan(self, spec: FakeSpec, config: FakeConfig) -> Plan:
        arguments = ("x", "y", "alpha", "k", "total", "difference", (I64, size("n")))
        return Plan((Launch((size("n").ceil_div(128), ONE, ONE), (128, 1, 1), arguments),))


class PairFamily(FakeFamily):
    """total, difference = x + alpha y + k, x - alpha y - k."""

    name = "pair"
    catalogue = (
        FakeSpec(
            "f32",
            (
                Operand("x", "in", F32, ("n",)), Operand("y", "in", F32, ("n",)), Operand("alpha", "number", F32),
                Operand("k", "number", I64), Operand("total", "out", F32, ("n",)),
                Operand("difference", "out", F32, ("n",)),
            ),
        ),
    )  # fmt: skip
    algorithms: Mapping[str, Algorithm[FakeSpec, Any]] = {"sum": PairAlgorithm()}

    def parse(self, label: str, known: Mapping[str, Mapping[str, Any]]) -> FakeSpec:
        return self.catalogue[0]

    def extents(self, spec: FakeSpec, layouts: Mapping[str, Layout]) -> Extents:
        return measure(spec.operands, layouts)

    def layouts(self, spec: FakeSpec, extents: Extents) -> Mapping[str, Layout]:
        return layouts_of(spec.operands, extents)

    def shape_classes(self, spec: FakeSpec) -> tuple[str, ...]:
        return ("any size",)

    def shape_class(self, spec: FakeSpec, extents: Extents, alignment: int = WIDEST) -> str:
        return "any size"

    def base(self, spec: FakeSpec, shape_class: str) -> tuple[str, Config]:
        return "sum", FakeConfig()


TEXT = """{# inputs: name #}
extern "C" __global__ void {{ name }}(const float* x, const float* y, float alpha, long long k, float* total,
                                      float* difference, long long n) {
  const long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    total[i] = x[i] + alpha * y[i] + k;
    difference[i] = x[i] - alpha * y[i] - k;
  }
}
"""


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeSpec:
    """A family from outside with two inputs, two numbers and two outputs."""
    (tmp_path / "pair.cu.jinja").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(PairFamily, "templates", tmp_path)
    family = PairFamily()
    monkeypatch.setattr("gen.families.FAMILIES", (*FAMILIES, family))
    return family.catalogue[0]


@pytest.mark.usefixtures("pair")
def test_several_outputs_and_numbers(computing: FakeDevice) -> None:
    kernel, x, y = gen.load("pair_f32", device=computing), arange(300), arange(300) + 1
    for total, difference in (kernel(x, y, 0.5, 3), kernel(x, y, 0.5, k=3), kernel(x, y, k=3, alpha=0.5)):
        assert np.array_equal(total, x + y / 2 + 3)
        assert np.array_equal(difference, x - y / 2 - 3)
    out = (np.empty(300, np.float32), np.empty(300, np.float32))
    written = kernel(x, y, np.float32(2), 0, out=out)
    assert written[0] is out[0]
    assert np.array_equal(out[1], x - 2 * y)
    assert len(computing.prepared) == 1  # numbers change from call to call, and prepare nothing anew


def test_a_shape_of_several_inputs(pair: FakeSpec, backend: FakeDevice) -> None:
    assert gen.load(pair, shape=7, device=backend).variant == "pair_f32__sum"


@pytest.mark.parametrize(
    ("arguments", "numbers", "message"),
    [
        ((1, 2, 3, 4, 5), {}, r"pair_f32 takes 2 to 4 arguments: x, y, alpha, k \(got 5\)"),
        ((1,), {}, r"takes 2 to 4 arguments.*\(got 1\)"),
        ((), {"alpha": 1.0}, "k is missing"),
        ((1.0,), {"alpha": 1.0, "k": 1}, "alpha is given twice"),
        ((1.0, 1), {"beta": 1.0}, "beta is no number of this kernel, which takes x, y, alpha, k"),
        ((1.0, 1.5), {}, r"k must be a number that i64 holds \(got 1.5\)"),
        ((1.0, 2**63), {}, "k must be a number that i64 holds"),
        ((1e39, 1), {}, r"alpha must be a number that f32 holds \(got 1e\+39\)"),
        (("1", 1), {}, "alpha must be a number that f32 holds"),
        ((True, 1), {}, "alpha must be a number that f32 holds"),
    ],
)
def test_numbers_that_do_not_fit(
    pair: FakeSpec, backend: FakeDevice, arguments: tuple[Any, ...], numbers: dict[str, Any], message: str
) -> None:
    arrays = (arange(3), arange(3)) if len(arguments) not in (1, 5) or numbers else ()
    with pytest.raises(ArgumentError, match=message):
        gen.load(pair, device=backend)(*arrays, *arguments, **numbers)
    assert backend.launched == []


def test_outputs_may_not_overlap_each_other_or_an_input(pair: FakeSpec, backend: FakeDevice) -> None:
    kernel, memory = gen.load(pair, device=backend), arange(40)
    given = [OnDevice(memory[start : start + 10]) for start in (0, 10, 20)]
    with pytest.raises(ArgumentError, match="difference must not overlap total"):
        kernel(given[0], given[1], 1.0, 1, out=(given[2], OnDevice(memory[25:35])))
    with pytest.raises(ArgumentError, match="difference must not overlap y"):
        kernel(given[0], given[1], 1.0, 1, out=(given[2], given[1]))
    kernel(given[0], given[0], 1.0, 1, out=(given[1], given[2]))  # inputs may
    with pytest.raises(ArgumentError, match=r"out must be as many arrays as there are outputs: total.*\(got 1\). Pass"):
        kernel(given[0], given[0], 1.0, 1, out=given[1])
