"""Fused steps of one axis: what they cost in machine code, in shared memory and, by prediction, in time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gen.emit.render import render
from gen.families.base import Limits, Variant
from gen.families.names import variant
from gen.families.stencil import Stencil, StencilSpec
from gen.paths import cache_home, output_home
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.sass import disassembler, instructions
from gen.toolchain.usage import usage
from gen.tune.predict import INSTRUCTIONS, MEMORY, Prediction, predict

FAMILY = Stencil()
LIMITS = Limits.of("sm_90")
CACHE = cache_home(output_home())
LINE = StencilSpec("l", (0.25, 0.5, 0.125), (3,), boundary="wrap")


def made(algorithm: str, tag: str) -> Variant:
    config = FAMILY.algorithms[algorithm].config.from_tag(tag, algorithm)
    return variant(FAMILY, LINE, algorithm, config)


def test_the_machine_code_holds_a_step_once() -> None:
    one, program = made("overlapped", "v8_w4_t16"), disassembler()
    assert program is not None, "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm"
    found = instructions(Nvrtc(CACHE).compile(one.name, render(one), "sm_90").cubin, program)[one.name]
    cells = 8 * 4
    assert found["FFMA"] == cells * len(LINE.taps)
    assert found["SHFL.UP"] == found["SHFL.DOWN"] == 1
    # What the prediction counts of a step: these, a shuffle as four, and the loop.
    counted = one.algorithm.arithmetic(LINE, one.config, {"cols": 1 << 20, "steps": 1}, LIMITS)
    assert counted == found["FFMA"] + 4 * 2 + 4
    launches_of_16 = one.algorithm.arithmetic(LINE, one.config, {"cols": 1 << 20, "steps": 64}, LIMITS)
    assert launches_of_16 == 16 * counted


@pytest.mark.parametrize("vectors", [2, 8])
def test_lanes_find_their_vectors_in_different_banks(vectors: int) -> None:
    config = FAMILY.algorithms["overlapped"].config.from_tag(f"v{vectors}_w2_t4", "overlapped")
    one = variant(FAMILY, replace(LINE, boundary="mirror"), "overlapped", config)  # no end but in whole vectors
    (kernel,) = HostRunner(LIMITS, cache=CACHE, text=render).load([one])
    found = traffic(kernel, LIMITS, {"cols": 1 << 14, "steps": 4})
    assert found.conflict_degree < 1.1  # 1 but where a segment is written: lanes of its halo write nothing
    assert found.efficiency("load") == 1


def predicted(one: Variant, steps: int) -> Prediction:
    extents = {"cols": 1 << 22, "steps": steps}
    (kernel,) = HostRunner(LIMITS, cache=CACHE, text=render).load([one])
    used = usage(one, Nvrtc(CACHE).compile(one.name, render(one), "sm_90"), LIMITS, extents)
    moved = traffic(kernel, LIMITS, extents)
    return predict(one, moved, used, LIMITS, extents)


def test_fused_steps_cost_a_sweep_of_memory_until_arithmetic_takes_longer() -> None:
    single, few, many = (
        predicted(made(*one), 48)
        for one in (("stream", "u4_x1_y4"), ("overlapped", "v8_w4_t4"), ("overlapped", "v8_w4_t48"))
    )
    assert (single.bound, few.bound, many.bound) == (MEMORY, MEMORY, INSTRUCTIONS)
    assert single.us > 3 * few.us > 6 * many.us
