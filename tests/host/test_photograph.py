"""A photograph, summed, transposed and smoothed by emitted kernels on the CPU, equal to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gen.families import FAMILIES
from gen.families.base import Layout, Variant
from gen.families.names import base_variants, find_family
from gen.proof.error_bounds import disagreement
from gen.proof.host import HostRunner


@pytest.fixture(scope="module")
def photograph() -> np.ndarray[Any, np.dtype[np.float32]]:
    from skimage import data

    image: np.ndarray[Any, np.dtype[np.float32]] = data.camera().astype(np.float32)
    return image  # 512 x 512 grey levels, 0 to 255


def run(runner: HostRunner, made: Variant, image: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    extents = made.family.extents(made.spec, {"in": Layout.of(image)})
    layout = made.family.layouts(made.spec, extents)["out"]
    out = np.full(layout.shape, np.nan, np.float32).view(layout.dtype)
    (kernel,) = runner.load([made])
    kernel.run(extents, {"in": image, "out": out})
    return out.view(image.dtype) if made.spec.operands[0].dtype.kind == "bits" else out


def base(family: str, shape_class: int = 0) -> Variant:
    found = find_family(FAMILIES, family)
    return base_variants(found, found.catalogue[0])[shape_class]


@pytest.mark.parametrize("shape_class", range(3))
def test_sum(photograph: np.ndarray[Any, Any], host_runner: HostRunner, shape_class: int) -> None:
    total = run(host_runner, base("reduction", shape_class), photograph)
    # Grey levels are whole numbers, yet their sum passes 2^24: the bound, not equality, is what f32 promises.
    made = base("reduction", shape_class)
    extents = {"n": photograph.size}
    expected = made.family.oracle(made.spec, {"in": photograph}, extents)["out"]
    roundings = made.algorithm.roundings(made.spec, made.config, extents, host_runner.limits)
    assert disagreement(expected, total, roundings, made.spec.operands[1].dtype) is None
    assert abs(float(total) - photograph.sum(dtype=np.float64)) <= 1e-5 * photograph.sum(dtype=np.float64)


def test_transpose(photograph: np.ndarray[Any, Any], host_runner: HostRunner) -> None:
    assert np.array_equal(run(host_runner, base("transpose"), photograph), photograph.T)


def test_transpose_of_a_cropped_view(photograph: np.ndarray[Any, Any], host_runner: HostRunner) -> None:
    crop = photograph[7:300, 11:402]  # pitched rows, a base that only 4 bytes divide
    assert np.array_equal(run(host_runner, base("transpose"), crop), crop.T)


def test_smoothing(photograph: np.ndarray[Any, Any], host_runner: HostRunner) -> None:
    smooth = run(host_runner, base("stencil"), photograph)
    wide = np.pad(photograph.astype(np.float64), 1)
    expected = 0.5 * wide[1:-1, 1:-1] + 0.125 * (wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:])
    assert np.array_equal(smooth, expected)  # eighths of whole numbers: nothing is rounded
