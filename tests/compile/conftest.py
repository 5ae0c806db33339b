"""What the tests of compiled kernels share: each cubin is disassembled once."""

from __future__ import annotations

from functools import cache

import pytest

from gen.toolchain.sass import instructions

_instructions = cache(instructions)


@pytest.fixture(autouse=True)
def _disassembled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nvdisasm takes 0.4 s to start, and most tests of `gen explain` look at the same few kernels."""
    monkeypatch.setattr("gen.report.explain.instructions", _instructions)
