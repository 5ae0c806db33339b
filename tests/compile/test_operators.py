"""The cache operators that variants ask for stand in the machine code that NVRTC makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from gen.dtypes import LoadModifier, StoreModifier
from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.base import Variant
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.sass import CACHE_OPERATORS, disassembler, holds_operator, instructions
from tests.host.test_parameter_effects import neighbours


def asking() -> Iterator[tuple[Variant, str]]:
    """Of every algorithm and every operator that its loads or stores can have a variant, and what it calls."""
    for family in FAMILIES:
        for name, algorithm in family.algorithms.items():
            for parameter in algorithm.config.parameters():
                seen = set()
                values = [one for one in parameter.values if isinstance(one, LoadModifier | StoreModifier)]
                for pair in neighbours(family, name, parameter.field) if values else ():
                    for made in pair:
                        intrinsic = getattr(made.config, parameter.field).intrinsic
                        if intrinsic in CACHE_OPERATORS and intrinsic not in seen:
                            seen.add(intrinsic)
                            yield made, intrinsic
                    if len(seen) == len({one.intrinsic for one in values} & CACHE_OPERATORS.keys()):
                        break


ASKING = tuple(asking())


@pytest.mark.parametrize(
    ("made", "intrinsic"),
    [
        pytest.param(
            made, intrinsic, id=f"{made.algorithm.name}-{intrinsic}", marks=[pytest.mark.exhaustive] * (n % 8 > 0)
        )
        for n, (made, intrinsic) in enumerate(ASKING)
    ],
)
def test_a_cache_operator_is_in_the_machine_code(made: Variant, intrinsic: str) -> None:
    program = disassembler()
    assert program is not None, "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm"
    found = instructions(Nvrtc(None).compile(made.name, render(made), "sm_90").cubin, program)
    assert holds_operator(sum(found.values(), Counter()), intrinsic), made.name
