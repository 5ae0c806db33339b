"""The programs of `bench/`: results say by which call they were measured, and errors end in a message."""

from __future__ import annotations

import pytest

from gen.cli.common import as_called, ended
from gen.errors import RunError, SpecError


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


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (RunError("The GPU", "must answer", "nothing"), 1, "error: The GPU must answer (got nothing)\n"),
        (SpecError("The spec", "must be one"), 2, "error: The spec must be one\n"),
        (KeyboardInterrupt(), 130, "Stopped.\n"),
    ],
    ids=str,
)
def test_a_program_ends_in_one_message(
    raised: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def program() -> int:
        raise raised

    assert ended(program) == status
    assert capsys.readouterr() == ("", said)
    assert ended(lambda: 3) == 3
