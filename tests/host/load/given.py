"""What the tests of `gen.load` give it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

SUM, TRANSPOSE = "reduction_sum_f32", "transpose_10_b32"
LARGE = "more than 2^20 elements"


def arange(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def tuned(home: Path, *winners: Mapping[str, Any], text: str | None = None) -> Path:
    home.mkdir(parents=True, exist_ok=True)
    content = json.dumps({"schema": 1, "winners": winners}) if text is None else text
    (home / "tuned.json").write_text(content, encoding="utf-8")
    return home


def winner(variant: str, **more: Any) -> dict[str, Any]:
    return {"device": "Fake GPU", "spec": SUM, "shape": LARGE, "variant": variant, **more}
