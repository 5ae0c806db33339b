"""Tests that others wrote on our kernels on the GPU: tests/host/test_suites.py runs more of them on the CPU run."""

from __future__ import annotations

from pathlib import Path

from tests.host.test_suites import IN_THE_STANDARD, STAND_IN, SUITES, run_array_api, run_suite


def test_reductions_of_numpys_tests(tmp_path: Path) -> None:
    suite = SUITES["numpy_lib"]
    assert sum(run_suite(suite, tmp_path, GEN_DEVICE="0")["ours"].values()) >= suite.calls


def test_what_stands_in_for_array_api_tests(tmp_path: Path) -> None:
    ours = {name.rpartition(".")[2] for name in run_array_api(STAND_IN, tmp_path, GEN_DEVICE="0")["ours"]}
    assert ours >= set(IN_THE_STANDARD)
