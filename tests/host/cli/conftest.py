"""A folder of results that is the test's own, and proofs that take no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gen.proof.cases import cases_of
from gen.proof.verdicts import Host, Verdict, verdicts
from tests.fakes import OracleRunner


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results that no other test has."""
    folder = tmp_path / "home"
    monkeypatch.setenv("GEN_HOME", str(folder))
    return folder


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch) -> OracleRunner:
    """Proofs run on NumPy, on few cases."""
    runner = OracleRunner()
    monkeypatch.setattr("gen.proof.verdicts.cases_of", lambda *asked: tuple(cases_of(*asked))[::9])

    def prove(host: Host, variants: Any, _deadline: float | None = None) -> Iterator[Verdict]:
        return verdicts(runner, variants, seed=host.seed, kept=host.kept)

    monkeypatch.setattr(Host, "verdicts", prove)
    monkeypatch.setattr("gen.cli.prove.compiler_at_hand", lambda _: None)
    return runner
