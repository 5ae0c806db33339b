"""The tables of docs/arrays.md are what the kernels say."""

from __future__ import annotations

from pathlib import Path

from tests.arrays_table import ASKED, tables

PAGE = Path(__file__).parents[3] / "docs" / "arrays.md"


def test_every_way_that_arrays_lie_is_told_as_kernels_take_it() -> None:
    page, made = PAGE.read_text(encoding="utf-8"), tables()
    for table in made:
        assert table in page, f"stale: PYTHONPATH=. python tests/arrays_table.py prints\n{table}"
    on_gpu, copied = (table.splitlines()[2:] for table in made)
    assert all(line.count(" | yes") == len(ASKED) for line in copied[:8]), "NumPy's arrays are copied, however they lie"
    assert all("must be writable" in line for line in (on_gpu[14], copied[14]))
