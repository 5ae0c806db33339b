"""Recorded trials as variants, and how ranks are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.predict import LEAST_PAIRS, TRIALS, config_of, ranks, sentence, spaces, spearman
from gen.families import FAMILIES
from gen.families.names import find_spec, illegal


def test_equal_values_share_a_rank() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4, 1, 4, 2, 4]
    assert ranks(np.array([1.0, 1.0])).tolist() == [1.5, 1.5]


def test_a_correlation_is_of_the_order_alone() -> None:
    times = np.array([1.0, 2.0, 4.0, 8.0, 100.0])
    assert spearman(times, np.log(times)) == pytest.approx(1)
    assert spearman(times, -times) == pytest.approx(-1)
    # Three of five places off by one or two: 1 - 6 * 6 / (5 * 24).
    assert spearman(times, np.array([2.0, 3.0, 1.0, 4.0, 5.0])) == pytest.approx(0.7)


@pytest.mark.parametrize("file", sorted(TRIALS.glob("*.csv.gz")), ids=lambda file: file.name)
def test_enough_of_what_was_recorded_is_still_a_variant(file: Path) -> None:
    for (name, _), rows in spaces(file).items():
        family, spec = find_spec(FAMILIES, name, {})
        found = [
            config
            for row in rows
            if (algorithm := family.algorithms.get(row.algorithm))
            and (config := config_of(algorithm.config, row.config))
            and illegal(algorithm, spec, config) is None
        ]
        assert len(found) >= LEAST_PAIRS, name


def test_the_lowest_space_of_each_family_stands_beside_the_mean() -> None:
    rows = [
        {"spec": "probe_read11_f32", "shape": "n=4", "correlation": 0.67},
        {"spec": "probe_soa2_f32", "shape": "n=2", "correlation": 0.91},
        {"spec": "transpose_10_b32", "shape": "rows=4 cols=4", "correlation": 0.93},
    ]
    said = sentence({"command": "c", "families": {"probe": 0.79, "transpose": 0.93}, "spaces": rows})
    assert "probe 0.79 (2 spaces, the lowest 0.67: probe_read11_f32 at n=4), transpose 0.93 (1 space)" in said
    assert "The goal is 0.7 for each family; 1 of 3 spaces is under it." in said
