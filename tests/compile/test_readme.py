"""What the README prints of `gen tune` without a GPU is what that prints."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gen.arch import Limits
from gen.families.base import Family
from gen.tune import targets
from gen.tune.targets import Sample
from tests.host.cli.command import run

README = Path(__file__).parents[2] / "README.md"


def test_the_table_of_the_first_minute_is_what_gen_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quoted = re.findall(r"^transpose_10_b32(?:__| \().*", README.read_text(encoding="utf-8"), re.MULTILINE)
    names = {line.split()[0] for line in quoted}
    taken = targets.sample

    def narrowed(family: Family[Any], limits: Limits) -> Sample | None:
        found = taken(family, limits) if family.name == "transpose" else None
        return found and replace(found, variants=tuple(one for one in found.variants if one.name in names))

    monkeypatch.setattr(targets, "sample", narrowed)
    monkeypatch.setattr("gen.cli.first_minute.SECONDS", 600.0)  # a busy machine leaves nothing out
    monkeypatch.setattr("gen.gpu.device.find_gpu", lambda _index=0: None)
    monkeypatch.setenv("GEN_HOME", str(tmp_path))
    shown = [" ".join(line.split()) for line in run("tune").out.splitlines()]
    assert len(quoted) == 3
    for line in quoted:
        assert " ".join(line.split()) in shown, "stale: run gen tune without a GPU, and quote it anew"
