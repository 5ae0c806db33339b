"""The CPU run and how arrays lie in memory: where they begin, what lies between their rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gen.families.base import Plan
from gen.families.expr import size
from gen.proof.host import HostFault
from gen.proof.memory import levels_of
from tests.host.host_kernels import COPY, COPY_PLAN, COUNT, IN, OUT, one_launch, run_text


@pytest.mark.parametrize("offset", range(4))
def test_arrays_may_start_at_any_element(cache: Path, offset: int) -> None:
    source = np.arange(104, dtype=np.float32)[offset : offset + 100]
    memory = np.full(104, 7.0, np.float32)
    run_text(cache, COPY, (IN, OUT), COPY_PLAN, {"n": 100}, {"in": source, "out": memory[offset : offset + 100]})
    assert np.array_equal(memory[offset : offset + 100], source)
    assert (memory[:offset] == 7.0).all()
    assert (memory[offset + 100 :] == 7.0).all()


def test_base_alignment_is_the_callers(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(const float* in, float* out, int n) {
      out[0] = (float)((size_t)in % 256);
    }
    """
    memory = np.zeros(300, np.float32)
    for start in (0, 1, 2, 33):
        out = np.zeros(1, np.float32)
        source = memory[start : start + 100]
        run_text(cache, text, (IN, OUT), one_launch(1), {"n": 100}, {"in": source, "out": out})
        assert out[0] == source.ctypes.data % 256


PITCHED = """
extern "C" __global__ void NAME(const float* in, float* out, long long in_pitch, long long out_pitch, int n) {
  out[blockIdx.x * out_pitch + threadIdx.x] = in[blockIdx.x * in_pitch + threadIdx.x];
}
"""


def pitched_plan() -> Plan:
    from gen.dtypes import I64

    pitches = ((I64, size("in_pitch")), (I64, size("out_pitch")))
    return one_launch(8, size("rows"), "in", "out", *pitches, COUNT)


def test_pitched_rows(cache: Path) -> None:
    source = np.arange(5 * 12, dtype=np.float32).reshape(5, 12)[:, 2:10]
    memory = np.full((5, 11), 7.0, np.float32)
    extents = {"rows": 5, "in_pitch": 12, "out_pitch": 11, "n": 8}
    buffers = {"in": source, "out": memory[:, 1:9]}
    run_text(cache, PITCHED, (IN, OUT), pitched_plan(), extents, buffers)
    assert np.array_equal(memory[:, 1:9], source)
    assert (memory[:, 0] == 7.0).all()
    assert (memory[:, 9:] == 7.0).all()


@pytest.mark.parametrize(("name", "in_pitch", "out_pitch"), [("out", 11, 10), ("in", 10, 11)])
def test_what_lies_between_rows_belongs_to_no_element(cache: Path, name: str, in_pitch: int, out_pitch: int) -> None:
    """Rows of 8 that begin 11 elements apart; a pitch of 10 has the second begin where the gap ends."""
    memory = np.full((2, 2, 11), 7.0, np.float32)
    extents = {"rows": 2, "in_pitch": in_pitch, "out_pitch": out_pitch, "n": 8}
    with pytest.raises(HostFault, match="outside the row") as caught:
        run_text(cache, PITCHED, (IN, OUT), pitched_plan(), extents, {"in": memory[0, :, :8], "out": memory[1, :, :8]})
    fault = caught.value
    assert fault.kind == f"out-of-bounds {'write' if name == 'out' else 'read'}"
    assert (fault.buffer, fault.offset, fault.block, fault.thread) == (name, 40, (1, 0, 0), (0, 0, 0))
    assert fault.source.startswith("out[blockIdx.x * out_pitch")


def test_a_vector_over_the_end_of_a_row_is_out_of_bounds(cache: Path) -> None:
    text = """
    extern "C" __global__ void NAME(const float* in, float* out, long long in_pitch, long long out_pitch, int n) {
      const float2 pair = *(const float2*)(in + blockIdx.x * in_pitch + 2 * threadIdx.x);
      out[blockIdx.x * out_pitch + threadIdx.x] = pair.x;
    }
    """
    memory = np.zeros((3, 16), np.float32)
    for width in (16, 15):
        buffers = {"in": memory[:, :width], "out": np.zeros((3, 8), np.float32)}
        extents = {"rows": 3, "in_pitch": 16, "out_pitch": 8, "n": 8}
        if width == 16:
            run_text(cache, text, (IN, OUT), pitched_plan(), extents, buffers)
        else:
            with pytest.raises(HostFault, match="out-of-bounds read") as caught:
                run_text(cache, text, (IN, OUT), pitched_plan(), extents, buffers)
            assert (caught.value.thread[0], caught.value.offset % 64) == (7, 56)


def test_gaps_of_an_array() -> None:
    memory = np.zeros((6, 5, 8), np.float32)
    assert levels(memory) == levels(memory[2:4]) == levels(memory.transpose(2, 0, 1)) == levels(memory[::-1]) == ()
    assert levels(memory[:, :, :7]) == ((32, 28),)
    assert levels(memory[:, :3]) == ((160, 96),)
    assert levels(memory[:, :3, 1:4]) == levels(memory[::-1, :3, 1:4]) == ((160, 76), (32, 12))
    assert levels(memory[:, :3, ::2]) == ((160, 92), (8, 4))
    assert levels(memory[:, :1, :2]) == ((160, 8),)
    assert levels(memory[0, 0, ::3]) == ((12, 4),)
    assert levels(np.broadcast_to(memory[0], (3, 5, 8))) == ()  # rows on each other
    assert levels(np.lib.stride_tricks.sliding_window_view(memory[0, 0], 3)) == ()


def levels(array: np.ndarray[Any, Any]) -> tuple[tuple[int, int], ...]:
    return levels_of(array.shape, array.strides, array.itemsize)


def test_rows_in_reverse(cache: Path) -> None:
    source = np.arange(5 * 8, dtype=np.float32).reshape(5, 8)
    out = np.zeros((5, 8), np.float32)
    extents = {"rows": 5, "in_pitch": -8, "out_pitch": 8, "n": 8}
    run_text(cache, PITCHED, (IN, OUT), pitched_plan(), extents, {"in": source[::-1], "out": out})
    assert np.array_equal(out, source[::-1])
