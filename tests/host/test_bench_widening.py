"""What a contender gave is widened without losing a bit, whichever process the dtype came from."""

from __future__ import annotations

import pickle

import pytest

from gen.bench.widening import widening
from gen.dtypes import F16, F32, F64, DType


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
def test_a_dtype_of_another_process_is_widened_alike(dtype: DType) -> None:
    assert widening(pickle.loads(pickle.dumps(dtype))) == widening(dtype)


def test_doubles_pass_through_no_float() -> None:
    assert "float" not in widening(F64)
