"""The heat equation on a photograph: `python bench/photograph.py [--out FILE]`, on a GPU.

Takes scikit-image's cameraman through 10, 100 and 1,000 steps of the catalogue's stencil in one call each, holds every
result against NumPy in float64, and writes the pictures next to each other into one file.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import gen
from bench.program import ended, need_gpu
from gen.families.stencil import Stencil, StencilSpec
from gen.runtime.kernel import Kernel

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "heat.png"
STEPS = (10, 100, 1000)
GAP = 8  # white columns between pictures
Image = np.ndarray[Any, np.dtype[np.float32]]


def main() -> int:
    """Writes the pictures; status 1 if a result is not NumPy's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURES, help="the file of the pictures")
    parser.add_argument("--home", type=Path, help="the folder of what gen wrote. Default: where commands look")
    options = parser.parse_args()
    need_gpu("python bench/photograph.py")
    spec = Stencil().catalogue[0]
    image: Image = import_module("skimage.data").camera().astype(np.float32)
    found = after(spec, image, gen.load(spec, home=options.home))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    import_module("PIL.Image").fromarray(panel([image, *found.values()])).save(options.out, optimize=True)
    return 0 if all(agrees(spec, image, steps, result) for steps, result in found.items()) else 1


def after(spec: StencilSpec, image: Image, kernel: Kernel) -> dict[int, Image]:
    """What the kernel makes of the photograph, by steps."""
    print(f"stencil_{spec.label}: {kernel.why_for(image.shape, steps=max(STEPS))}")
    return {steps: kernel(image, steps=steps) for steps in STEPS}


def agrees(spec: StencilSpec, image: Image, steps: int, result: Image) -> bool:
    """Whether that is what NumPy says in float64, within what the roundings of so many steps allow.

    A step of k terms is off by at most gamma_k times the sum of the weights' magnitudes times the largest cell.
    """
    now = image.astype(np.float64)
    for _ in range(steps):
        padded = np.pad(now, 1, constant_values=spec.cval)
        rows, cols = now.shape
        now = sum(
            (weight * padded[1 + y : 1 + y + rows, 1 + x : 1 + x + cols] for (y, x), weight in spec.taps),
            np.zeros(now.shape),
        )
    roundings = len(spec.taps) * spec.dtype.unit_roundoff
    magnitude = sum(abs(weight) for _, weight in spec.taps)
    assert magnitude <= 1  # or what a step is off would grow
    bound = steps * roundings / (1 - roundings) * magnitude * float(image.max())
    off = float(np.abs(result - now).max())
    print(f"{steps:5d} steps: at most {off:.1e} grey levels of 255 off; roundings allow {bound:.1e}")
    return off <= bound


def panel(images: list[Image]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The pictures at half their size, next to each other."""
    halves = [image.reshape(image.shape[0] // 2, 2, -1, 2).mean(axis=(1, 3)) for image in images]
    gap = np.full((halves[0].shape[0], GAP), 255.0)
    rows = [part for half in halves for part in (half, gap)][:-1]
    return np.hstack(rows).round().clip(0, 255).astype(np.uint8)


if __name__ == "__main__":
    sys.exit(ended(main))
