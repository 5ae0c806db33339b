"""NVRTC compiles the kernels of the measuring side."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from gen.toolchain.nvrtc import Nvrtc


def test_the_service_kernels_compile_without_spills(tmp_path: Path) -> None:
    text = (files("gen.gpu") / "kernels.cu").read_text(encoding="utf-8")
    compiled = Nvrtc(tmp_path).compile("gen_service", text, "sm_90")
    assert set(compiled.resources) == set(re.findall(r"\bgen_\w+(?=\()", text))
    assert len(compiled.resources) > 8
    for symbol, used in compiled.resources.items():
        assert used.registers <= 64, symbol  # 256 threads, four blocks at least a multiprocessor
        assert used.spill_store_bytes == used.stack_bytes == used.static_shared_bytes == 0, symbol
