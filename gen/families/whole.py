"""Whole numbers as a caller may give them."""

from __future__ import annotations

from typing import Any

import numpy as np


def whole(value: Any) -> Any:
    """NumPy's integers as Python's; anything else as it is, for whoever checks it."""
    counts = isinstance(value, np.integer) and value.dtype.kind in "iu"  # spans of time are integers to NumPy, too
    return int(value) if counts else value
