"""The family `mine`: each element of an array, doubled.

`gen --family mine:Mine list mine` shows it, `gen --family mine:Mine prove mine` proves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gen.dtypes import F32, F64, I64, DType, read_dtype
from gen.errors import SpecError
from gen.families.base import Algorithm, Array, Expected, Extents, Launch, Operand, Plan, ShownSpec
from gen.families.config import Config, tunable
from gen.families.expr import ONE, size
from gen.families.extents import DenseFamily


@dataclass(frozen=True)
class MineSpec(ShownSpec):
    """What is computed: all that is known when the text of a kernel is written.

    Attributes:
        dtype: of the elements, f32 or f64.
    """

    dtype: DType = F32

    def __post_init__(self) -> None:
        if self.dtype not in (F32, F64):
            raise SpecError("mine.dtype", "must be f32 or f64", self.dtype.name)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The arrays of a call: as many elements out as in, of one axis whose extent is `n`."""
        return (Operand("in", "in", self.dtype, ("n",)), Operand("out", "out", self.dtype, ("n",)))

    @property
    def label(self) -> str:
        """The spec in the names of its variants."""
        return self.dtype.name

    @property
    def summary(self) -> str:
        """What is computed, for the header of every file."""
        return f"Each of n {self.dtype.cuda}s is doubled."

    def to_json(self) -> dict[str, Any]:
        """All of the spec."""
        return {"dtype": self.dtype.name}


@dataclass(frozen=True, kw_only=True)
class SimpleConfig(Config):
    """The tuning parameters of `simple`: the letters in a tag, all values, the one without tuning, the meaning."""

    threads_per_block: int = tunable("tpb", (64, 128, 256), base=256, help="threads per block")
    unroll: int = tunable("u", (1, 2, 4), base=1, help="elements per thread, threads_per_block apart")


class Simple(Algorithm[MineSpec, SimpleConfig]):
    """One way to compute it: a config, a template, and the launches."""

    name = "simple"
    template = "mine/simple.cu.jinja"
    summary = "Each thread doubles a few elements; neighbouring threads have neighbouring ones."
    config = SimpleConfig

    def spec_inputs(self, spec: MineSpec) -> Mapping[str, object]:
        """What the template reads of the spec; the fields of the config it has anyway."""
        return {"element": spec.dtype.cuda}

    def plan(self, spec: MineSpec, config: SimpleConfig) -> Plan:
        """One launch, with a block for each share of the elements."""
        n = size("n")
        launch = Launch(
            grid=(n.ceil_div(config.threads_per_block * config.unroll), ONE, ONE),
            block=(config.threads_per_block, 1, 1),
            arguments=("in", "out", (I64, n)),
        )
        return Plan((launch,))

    def edge_cases(self, spec: MineSpec, config: SimpleConfig) -> Iterator[Extents]:
        """Sizes that leave the last block 1, 2, all but 1 or all of its elements: the proof tries them."""
        share = config.threads_per_block * config.unroll
        return ({"n": n} for n in (share + 1, share + 2, 2 * share - 1, 2 * share))

    def bytes_in_flight(self, spec: MineSpec, config: SimpleConfig) -> int:
        """Of loads, by each thread at once: what the model of a GPU asks."""
        return config.unroll * spec.dtype.size


class Mine(DenseFamily[MineSpec]):
    """The family: its algorithms, its specs, and what NumPy computes."""

    name = "mine"
    summary = "elements, doubled"
    algorithms: Mapping[str, Algorithm[MineSpec, Any]] = {a.name: a for a in (Simple(),)}
    catalogue = (MineSpec(), MineSpec(F64))
    templates = Path(__file__).parent / "templates"

    def from_json(self, content: Mapping[str, Any]) -> MineSpec:
        """The inverse of `MineSpec.to_json`."""
        return MineSpec(read_dtype(content.get("dtype"), "mine.dtype"))

    def oracle(self, spec: MineSpec, inputs: Mapping[str, Array], extents: Extents) -> Mapping[str, Expected]:
        """What NumPy computes. Without a bound on the error, every bit must agree."""
        with np.errstate(over="ignore"):
            return {"out": Expected(2 * inputs["in"])}

    def representative(self, spec: MineSpec, shape_class: str) -> Extents:
        """The size at which it is tuned."""
        return {"n": 2**26}

    def cases(self, spec: MineSpec) -> Iterator[Extents]:
        """Sizes on which every variant is proven."""
        return ({"n": n} for n in (0, 1, 31, 32, 33, 1000, 4099))

    def base(self, spec: MineSpec, shape_class: str) -> tuple[str, Config]:
        """What a call gets without tuning."""
        return "simple", SimpleConfig()
