"""NVRTC compiles the kernels of the measuring side."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from bench.cases import sweep
from bench.stencils import begin_text, step_text
from gen.dtypes import F16, F32, F64, DType
from gen.toolchain.nvrtc import Nvrtc


def test_the_service_kernels_compile_without_spills(tmp_path: Path) -> None:
    text = (files("gen.gpu") / "kernels.cu").read_text(encoding="utf-8")
    compiled = Nvrtc(tmp_path).compile("gen_service", text, "sm_90")
    assert set(compiled.resources) == set(re.findall(r"\bgen_\w+(?=\()", text))
    assert len(compiled.resources) > 8
    for symbol, used in compiled.resources.items():
        assert used.registers <= 64, symbol  # 256 threads, four blocks at least a multiprocessor
        assert used.spill_store_bytes == used.stack_bytes == used.static_shared_bytes == 0, symbol


@pytest.mark.parametrize("dtype", [F16, F32, F64], ids=lambda dtype: dtype.name)
def test_what_judges_stencils_compiles_and_needs_no_stack(dtype: DType, tmp_path: Path) -> None:
    for text in (begin_text(dtype), step_text(sweep("box", 2, dtype, (16384, 16384), "wrap", 16))):
        used = Nvrtc(tmp_path).compile("gen_exact", text, "sm_90").resources["gen_exact"]
        assert used.stack_bytes == used.spill_store_bytes == 0
