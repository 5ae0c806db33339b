"""The options of the suite that this folder stands in for."""

from __future__ import annotations

import hypothesis
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many examples, and no deadline: a kernel is built at its first call."""
    parser.addoption("--max-examples", type=int, default=10)
    parser.addoption("--disable-deadline", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """Makes them Hypothesis's."""
    deadline = None if config.getoption("--disable-deadline") else 200
    hypothesis.settings.register_profile("suite", max_examples=config.getoption("--max-examples"), deadline=deadline)
    hypothesis.settings.load_profile("suite")
