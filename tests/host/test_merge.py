"""Merges of units that hold more elements than 32 bits count."""

from __future__ import annotations

import numpy as np
import pytest

from gen.dtypes import F16, F64
from gen.families.merge import Merges, MergeSpec
from gen.families.names import variant
from gen.families.reduction import ReductionSpec
from gen.proof.host import HostRunner

COUNTS = np.array([2**31 - 1, 0, 3, 2**32, 5])


@pytest.mark.parametrize(
    "whole", [ReductionSpec(("argmax",), F16), ReductionSpec(("mean",), F64)], ids=lambda one: one.label
)
def test_units_may_hold_more_elements_than_32_bits_count(host_runner: HostRunner, whole: ReductionSpec) -> None:
    spec, family = MergeSpec(whole), Merges()
    made = variant(family, spec, *family.base(spec, family.shape_classes(spec)[0]))
    random = np.random.default_rng(0)
    shape, sizes = (len(COUNTS), 33), {"units": len(COUNTS), "n": 33}
    inputs = {one: random.integers(-9, 9, shape).astype(dtype.numpy) for one, _, dtype in spec.partials}
    inputs = {one: abs(array) if array.dtype == np.int64 else array for one, array in inputs.items()}
    inputs["counts"] = COUNTS
    out = np.empty(33, spec.operands[-1].dtype.numpy)
    (kernel,) = host_runner.load([made])
    kernel.run(sizes, {**inputs, "out": out})
    right = family.oracle(spec, inputs, sizes)["out"].value
    assert np.allclose(out.astype(right.dtype), right, rtol=1e-15, atol=0)
