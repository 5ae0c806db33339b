"""A wave from a point source through layers of rock, drawn: `python bench/wave.py --shape 512x512x512 --steps 1000`.

Writes docs/wave.png and docs/wave.md. The wave equation is that of docs/systems.md, of order 8 in space, in three axes:
depth, y and x. Each step adds a wavelet at the source, and writes down what receivers along a line hear. First a small
model is computed and held against NumPy, in double, on the CPU run as well. Where there is a GPU, the large one is
timed on it; without one the CPU run takes it, a million cells and steps in a second.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import gen
from bench.program import as_called, ended
from gen.errors import ArgumentError, GenError
from gen.families.base import Array
from gen.families.system import SystemSpec
from gen.gpu import device as gpus
from gen.gpu.device import Device, Memory
from gen.paths import cache_home, output_home

DOCS = Path(__file__).resolve().parents[1] / "docs"
SMALL_SHAPE, SMALL_STEPS = (24, 20, 28), 30  # a model, and steps, that NumPy computes at once
ORDER, REACH = 8, 4  # of the differences in space, and how many cells away they read
SPACING = 10.0  # metres between cells
STEP = 0.001  # seconds
SPEEDS = (1500.0, 2000.0, 2600.0, 3200.0, 4000.0)  # of the layers in metres a second, from the top
INTERFACES = (0.22, 0.4, 0.6, 0.8)  # the depths between them
DIPS = (0.0, 0.12, -0.1, 0.06)  # how much deeper each lies at the end of x than at its start
CELLS_PER_WAVELENGTH = 10.0  # of the peak frequency, where waves are slowest
PARTS = 3  # of a run: the wave is drawn after each
BYTES_PER_CELL = 16  # u, v and m are read, u is written, 4 bytes each
TIMED = 4  # calls, of which the fastest counts: the first compiles, the second builds a graph
COPIED, COPIES = 1 << 30, 20  # bytes of a copy within the GPU, and how many are timed
MOST_ON_CPU = 1_000_000_000  # cells, times steps: a quarter of an hour
ALLOWED = 1e-4  # of the largest amplitude: how far f32 may be from NumPy's f64 on the small model


def spec_of_wave() -> SystemSpec:
    """Two fields and one coefficient; sources and receivers of `u`."""
    u, v, m = gen.fields("u v m", ndim=3)
    update = 2 * u - v + m * u.laplace(order=ORDER)
    return gen.system({u: update, v: u}, boundary="frozen", sources=u, receivers=u, word="seismic")


@dataclass(frozen=True)
class Survey:
    """What is computed.

    Attributes:
        layer: the number of the layer of each cell.
        courant: the square of the cells that a wave passes in a step, of each cell.
        sources: one point.
        wavelets: what is added there, step by step.
        receivers: points along x.
    """

    layer: Array
    courant: Array
    sources: Array
    wavelets: Array
    receivers: Array

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.wavelets)


def survey_of(shape: tuple[int, int, int], steps: int) -> Survey:
    """Layers that dip, a source near the top, and receivers as deep as that."""
    depth, _, across = (np.linspace(0.0, 1.0, extent) for extent in shape)
    layer = np.zeros(shape, np.int8)
    for interface, dip in zip(INTERFACES, DIPS, strict=True):
        layer += (depth[:, None, None] > (interface + dip * (across - 0.5))[None, None, :]).astype(np.int8)
    speed = np.asarray(SPEEDS)[layer]
    top = min(2 * REACH, shape[0] - 1)
    places = np.arange(REACH, shape[2] - REACH)
    receivers = np.stack([np.full_like(places, top), np.full_like(places, shape[1] // 2), places], axis=1)
    sources = np.array([[top, shape[1] // 2, shape[2] // 2]])
    peak = min(SPEEDS) / (CELLS_PER_WAVELENGTH * SPACING)
    phase = (np.pi * peak * (np.arange(steps) * STEP - 1.2 / peak)) ** 2
    wavelet = (1 - 2 * phase) * np.exp(-phase)  # Ricker's
    courant = ((speed * (STEP / SPACING)) ** 2).astype(np.float32)
    return Survey(layer, courant, sources, wavelet[:, None].astype(np.float32), receivers)


def by_numpy(survey: Survey) -> tuple[Array, Array]:
    """The wave after all steps, and what receivers have heard, in double."""
    shape, inner = survey.courant.shape, (slice(REACH, -REACH),) * 3
    courant = survey.courant.astype(np.float64)[inner]
    weights = gen.central_difference(2, ORDER)
    now, before = np.zeros(shape), np.zeros(shape)
    heard = np.zeros((survey.steps, len(survey.receivers)))
    for step in range(survey.steps):
        laplace = np.zeros_like(courant)
        for axis, extent in enumerate(shape):
            for place, weight in enumerate(weights):
                cells = list(inner)
                cells[axis] = slice(place, extent - 2 * REACH + place)
                laplace += float(weight) * now[tuple(cells)]
        following = now.copy()
        following[inner] = 2 * now[inner] - before[inner] + courant * laplace
        np.add.at(following, tuple(survey.sources.T), survey.wavelets[step])
        now, before = following, now
        heard[step] = now[tuple(survey.receivers.T)]
    return now, heard


class Place(Protocol):
    """Where a survey is computed."""

    name: str

    def put(self, array: Array) -> Any:
        """The array, where kernels take it."""
        ...

    def get(self, array: Any) -> Array:
        """The other way."""
        ...

    def waited(self) -> float:
        """Waits for all that was begun; the time in seconds."""
        ...

    @property
    def device(self) -> Any:
        """What `gen.load` takes."""
        ...


class OnCpu:
    """The CPU run, which takes arrays of NumPy."""

    name = "the CPU run"
    device = "cpu"

    def put(self, array: Array) -> Array:
        """As it is."""
        return array

    def get(self, array: Array) -> Array:
        """As it is."""
        return array

    def waited(self) -> float:
        """All is done."""
        return time.perf_counter()


class OnGpu:
    """A GPU."""

    def __init__(self, device: Device) -> None:
        self.device, self.name = device, device.name

    def put(self, array: Array) -> GpuArray:
        """A copy on the GPU."""
        dense = np.ascontiguousarray(array)
        entered = self.device.enter()
        try:
            memory = self.device.allocate(max(dense.nbytes, 1))
            self.device.upload(memory.address, dense)
        finally:
            self.device.leave(entered)
        return GpuArray(memory, dense.shape, dense.dtype)

    def get(self, array: GpuArray) -> Array:
        """A copy on the host."""
        found: Array = np.empty(array.shape, array.dtype)
        entered = self.device.enter()
        try:
            self.device.synchronize()
            self.device.download(found, array.memory.address)
        finally:
            self.device.leave(entered)
        return found

    def waited(self) -> float:
        """When the GPU has done all."""
        entered = self.device.enter()
        try:
            self.device.synchronize()
        finally:
            self.device.leave(entered)
        return time.perf_counter()

    def copy_bytes_per_second(self) -> float:
        """Bytes that a copy within the GPU reads and writes."""
        source, target = (self.put(np.zeros(COPIED // 8)) for _ in range(2))
        start = 0.0
        for number in range(COPIES + 1):
            if number == 1:  # the first one wakes the GPU
                start = self.waited()
            entered = self.device.enter()
            try:
                self.device.copy(source.memory.address, target.memory.address, COPIED)
            finally:
                self.device.leave(entered)
        return 2 * COPIED * COPIES / (self.waited() - start)


@dataclass(frozen=True)
class GpuArray:
    """An array on a GPU, dense."""

    memory: Memory
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """By which kernels find it."""
        data = (self.memory.address, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3}


class Run:
    """A survey that is computed in parts, each from where the one before ended."""

    def __init__(self, place: Place, survey: Survey, tune: float | None = None) -> None:
        """Makes it ready; `tune` are the seconds in which a call of other steps is tuned first."""
        self._place, self._survey = place, survey
        self._kernel = gen.load(spec_of_wave(), device=place.device, tune=tune)
        shape = survey.courant.shape
        self._fields, self._others = ([place.put(np.zeros(shape, np.float32)) for _ in range(2)] for _ in range(2))
        self._courant = place.put(survey.courant)
        self._sources, self._receivers = place.put(survey.sources), place.put(survey.receivers)

    def advance(self, first: int, last: int) -> tuple[Array, Array]:
        """The wave after the steps from `first` to before `last`, and what receivers have heard in them."""
        traces = self._call(self._place.put(self._survey.wavelets[first:last]), last - first)
        self._fields, self._others = self._others, self._fields
        return self._place.get(self._fields[0]), self._place.get(traces)

    @property
    def variant(self) -> str:
        """The variant that computes all steps in one call."""
        shape, points = self._survey.courant.shape, len(self._survey.receivers)
        return self._kernel.variant_for(shape, steps=self._survey.steps, u_receiver_count=points)

    def seconds(self) -> float:
        """The least time of all steps in one call."""
        wavelets = self._place.put(self._survey.wavelets)
        traces = self._place.put(np.empty((self._survey.steps, len(self._survey.receivers)), np.float32))
        found = []
        for _ in range(TIMED):
            start = self._place.waited()
            self._call(wavelets, self._survey.steps, traces)
            found.append(self._place.waited() - start)
        return min(found)

    def _call(self, wavelets: Any, steps: int, traces: Any = None) -> Any:
        if traces is None:
            traces = self._place.put(np.empty((steps, len(self._survey.receivers)), np.float32))
        inputs = (*self._fields, self._courant, self._sources, wavelets, self._receivers)
        self._kernel(*inputs, out=(*self._others, traces))
        return traces


def difference(place: Place, shape: tuple[int, int, int] = SMALL_SHAPE, steps: int = SMALL_STEPS) -> float:
    """How far a small model is from NumPy's, of the largest amplitude. Raises GenError where that is too far."""
    survey = survey_of(shape, steps)
    expected = by_numpy(survey)
    got = Run(place, survey).advance(0, steps)
    worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(got, expected, strict=True))
    if not worst <= ALLOWED:
        raise GenError(f"The wave on {place.name}", f"must be within {ALLOWED:g} of NumPy's", f"{worst:.3g}")
    return worst


@dataclass(frozen=True)
class Result:
    """What became of a run.

    Attributes:
        place: the GPU, or the CPU run.
        shape, steps: of the model.
        variant: that computed it.
        differences: from NumPy on the small model, by place.
        seconds: of all steps; None where nothing is timed.
        copy: bytes a second of a copy on that GPU; None without one.
    """

    place: str
    shape: tuple[int, int, int]
    steps: int
    variant: str
    differences: tuple[tuple[str, float], ...]
    seconds: float | None = None
    copy: float | None = None

    def lines(self) -> tuple[str, ...]:
        """For a reader."""
        model = f"{' x '.join(map(str, self.shape))} cells, {self.steps} steps, {self.place}"
        checked = "; ".join(f"{difference:.1e} on {place}" for place, difference in self.differences)
        small = f"{' x '.join(map(str, SMALL_SHAPE))} cells and {SMALL_STEPS} steps"
        found = [
            model,
            self.variant,
            f"largest difference from NumPy in double, {small}, of the largest amplitude: {checked}",
        ]
        if self.seconds is not None and self.copy is not None:
            cells = prod(self.shape) * self.steps / self.seconds
            found.append(f"{1e6 * self.seconds / self.steps:.1f} us a step, {cells / 1e9:.1f} GCell/s")
            share = cells * BYTES_PER_CELL / self.copy
            found.append(
                f"{share:.3f} of the memory's limit: {BYTES_PER_CELL} bytes a cell at {self.copy / 1e9:.0f} GB/s"
            )
        return tuple(found)


def page(result: Result, command: str) -> str:
    """The page of the documents."""
    about = "\n".join(result.lines())
    slow, fast = f"{SPEEDS[0]:.0f}", f"{SPEEDS[-1]:.0f}"
    return f"""# A wave through layers of rock

A source near the top sends a wave down through five layers, in which it travels at {slow} to {fast} metres a second.
Part of it comes back from each interface, and receivers along a line hear that. The wave equation is written as in
[Systems of several fields](systems.md), in three axes, with differences of order {ORDER}:

```python
import gen

u, v, m = gen.fields("u v m", ndim=3)  # the wave, the wave one step before, and how fast it travels
update = 2 * u - v + m * u.laplace(order={ORDER})
seismic = gen.system({{u: update, v: u}}, boundary="frozen", sources=u, receivers=u, word="seismic")
```

![Slices through the wave after each third of the steps, and what the receivers heard](wave.png)

Each slice is vertical, through the source; lines are the interfaces. At the right the steps go down, and the receivers
stand side by side. The outermost {REACH} cells are frozen, so waves come back from the sides too.

```text
{about}
```

A step reads `u`, `v` and `m` and writes `u`, {BYTES_PER_CELL} bytes a cell. What that takes at the speed of a copy is
the memory's limit. This page and its picture are written by one command:

```sh
{command}
```

Without `--shape` and `--steps` it takes 512 x 512 x 512 cells and 1,000 steps, for which it needs a GPU.
"""


def draw(survey: Survey, slices: Sequence[tuple[int, Array]], traces: Array, path: Path) -> None:
    """The slices, each with the step after which it was, and what receivers heard."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    layer = survey.layer[:, survey.layer.shape[1] // 2, :]
    figure, panels = plt.subplots(1, len(slices) + 1, figsize=(3.1 * (len(slices) + 1), 3.4), layout="constrained")
    for axes, (step, cells) in zip(panels, slices, strict=False):
        most = max(float(np.percentile(np.abs(cells), 99.5)), 1e-30)
        axes.imshow(cells, cmap="RdBu", vmin=-most, vmax=most, aspect="auto")
        axes.contour(layer, levels=np.arange(len(INTERFACES)) + 0.5, colors="k", linewidths=0.5)
        axes.set_title(f"after {1e3 * STEP * step:.0f} ms", fontsize=9)
    most = max(float(np.percentile(np.abs(traces), 98)), 1e-30)
    panels[-1].imshow(traces, cmap="gray", vmin=-most, vmax=most, aspect="auto")
    panels[-1].set_title("receivers, time downwards", fontsize=9)
    for axes in panels:
        axes.set_xticks([])
        axes.set_yticks([])
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def place_of_largest() -> Place:
    """The first GPU; the CPU run where there is none."""
    if gpus.find_gpu() is None:
        return OnCpu()
    from gen.gpu.cuda import CudaDevice

    return OnGpu(CudaDevice(0, cache_home(output_home())))


def computed(
    shape: tuple[int, int, int], steps: int, folder: Path, command: str, tune: float | None = None
) -> Result:  # fmt: skip
    """Computes, draws, times where that means something, and writes both files into a folder.

    Args:
        shape: of the model.
        steps: of the whole run.
        folder: for wave.md and wave.png.
        command: by which this can be repeated.
        tune: seconds in which the variant that is timed is chosen; None: the one that is chosen untuned.
    """
    place = place_of_largest()
    work = prod(shape) * steps
    if isinstance(place, OnCpu) and work > MOST_ON_CPU:
        rule = f"must have at most {MOST_ON_CPU:,} cells, times steps, without a GPU"
        raise ArgumentError("--shape", rule, f"{work:,}", next_step="--shape 72x80x96 --steps 240 take minutes")
    places = (place,) if isinstance(place, OnCpu) else (OnCpu(), place)
    differences = tuple((one.name, difference(one)) for one in places)
    survey, parts = survey_of(shape, steps), [steps * part // PARTS for part in range(PARTS + 1)]
    run, slices, heard = Run(place, survey), [], []
    for first, last in pairwise(parts):
        wave, traces = run.advance(first, last)
        slices.append((last, wave[:, shape[1] // 2, :].copy()))
        heard.append(traces)
    draw(survey, slices, np.concatenate(heard), folder / "wave.png")
    seconds = copy = None
    if isinstance(place, OnGpu):
        run = Run(place, survey, tune)
        seconds, copy = run.seconds(), place.copy_bytes_per_second()
    result = Result(place.name, shape, steps, run.variant, differences, seconds, copy)
    (folder / "wave.md").write_text(page(result, command), encoding="utf-8")
    return result


def read_shape(text: str) -> tuple[int, int, int]:
    """Raises ArgumentError for what is no shape that a wave fits into."""
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        raise ArgumentError("--shape", "must be three numbers with x between, depth first: 512x512x512", repr(text))
    depth, down, across = map(int, parts)
    if min(depth, down, across) <= 4 * REACH:
        raise ArgumentError("--shape", f"must have more than {4 * REACH} cells along each axis", text)
    return depth, down, across


def main() -> int:
    """Writes the page and the picture, and says what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="512x512x512", help="cells along depth, y and x")
    parser.add_argument("--steps", type=int, default=1000, help="time steps")
    parser.add_argument("--tune", type=float, help="on a GPU: seconds in which variants are timed first")
    parser.add_argument("--out", type=Path, default=DOCS, help="the folder of wave.md and wave.png; made where needed")
    given = parser.parse_args()
    if given.steps < PARTS:
        raise ArgumentError("--steps", f"must be at least {PARTS}", given.steps)
    try:
        given.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError("--out", f"must be a folder: {error.strerror}", given.out) from None
    command = as_called("python bench/wave.py")
    for line in computed(read_shape(given.shape), given.steps, given.out, command, given.tune).lines():
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(ended(main))
