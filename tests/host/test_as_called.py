"""Results say by which call they were measured."""

from __future__ import annotations

import pytest

from gen.cli.common import as_called


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "python bench/x.py"),
        (["--json", "a file"], "python bench/x.py"),
        (["--json=x", "--seconds", "5"], "python bench/x.py --seconds 5"),
        (["--only", "star2d1r f32", "--json", "x", "--plant"], "python bench/x.py --only 'star2d1r f32' --plant"),
        (["--json"], "python bench/x.py"),
    ],
)
def test_a_call_is_told_with_all_that_narrows_it(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["x.py", *words])
    assert as_called("python bench/x.py") == said
