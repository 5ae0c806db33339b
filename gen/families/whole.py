"""Whole numbers as a caller may give them."""

from __future__ import annotations

from typing import Any

import numpy as np


def whole(value: Any) -> Any:
    """NumPy's integers as Python's; anything else as it is, for whoever checks it."""
    # NumPy counts spans of time among its integers.
    return int(value) if isinstance(value, np.integer) and not isinstance(value, np.timedelta64) else value
