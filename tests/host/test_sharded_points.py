"""Sources and receivers of systems on several devices: what NumPy adds and hears, whatever the split and the order."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import gen
from gen.errors import ArgumentError, RunError, ShapeError
from gen.families.base import Array
from gen.families.system import System, SystemSpec
from gen.runtime.processes import Processes
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner
from tests.host.test_processes import device, together, with_processes
from tests.sharding import changed

BOUNDARIES: tuple[Any, ...] = ("wrap", ["mirror", "frozen"], [("constant", "nearest"), "wrap"])
OUTPUTS = ("u_out", "v_out", "u_traces", "v_traces")


class Survey:
    """Waves with sources in one field, many of them in the same cells, and receivers in both, on a split domain."""

    def __init__(self, seed: int, ranks: int | None = None) -> None:
        random = np.random.default_rng(seed)
        self.ranks = ranks or seed % 8 + 1
        u, v, m = gen.fields("u v m")
        updates = {u: 2 * u - v + 0.125 * m * u.laplace(order=2), v: u}
        self.spec: SystemSpec = gen.system(updates, sources=u, receivers=[u, v], boundary=BOUNDARIES[seed % 3])
        shape = int(random.integers(self.ranks + 1, 26)), int(random.integers(2, 9))
        self.fields = [random.random(shape).astype(np.float32) for _ in range(3)]
        places = random.choice(np.arange(1, shape[0]), self.ranks - 1, replace=False)
        self.extents = [tuple(np.diff([0, *sorted(places), shape[0]]).tolist()), (shape[1],)]
        self.steps, self.per_exchange = int(random.integers(0, 12)), int(random.integers(1, 5)) if seed % 4 else None

        def points(count: int) -> Array:
            drawn = np.stack([random.integers(0, extent, 3) for extent in shape], axis=1)
            return np.asarray(drawn[random.integers(0, 3, count)])

        sources = int(random.integers(0, 9))
        wavelets = random.random((self.steps, sources)).astype(np.float32)
        self.points = [points(sources), wavelets, points(int(random.integers(0, 6))), points(3)]

    def right(self, now: Array, before: Array) -> list[Array]:
        names = ("u", "v", "m", "u_sources", "u_wavelets", "u_receivers", "v_receivers")
        given = dict(zip(names, (now, before, self.fields[2], *self.points), strict=True))
        found = System().oracle(self.spec, given, {"steps": self.steps})
        return [found[name].value for name in OUTPUTS]

    def found(self, devices: list[Any], load: Any = gen.load) -> list[list[Array]]:
        """The results of two calls in a row, which nothing waits for in between."""
        kernel = load(self.spec, devices=devices, steps_per_exchange=self.per_exchange)
        now, before, speed = (kernel.scatter(field, self.extents) for field in self.fields)
        first = kernel(now, before, speed, *self.points)
        second = kernel(*first[:2], speed, *self.points, out=(now, before))
        return [[one.gather() for one in call] for call in (first, second)]

    def agrees(self, found: list[list[Array]]) -> bool:
        first = self.right(*self.fields[:2])
        wanted = [first, self.right(*first[:2])]
        pairs = zip((one for call in found for one in call), (one for call in wanted for one in call), strict=True)
        return all(one.shape == other.shape and one.tobytes() == other.tobytes() for one, other in pairs)


def simulated(seed: int, ranks: int, *, peer_access: bool = True) -> list[Any]:
    return list(Machine(seed=seed, runner=OracleRunner()).devices(ranks, peer_access=peer_access))


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(8), id="few"),
        pytest.param(range(8, 40), id="some", marks=pytest.mark.exhaustive),
        pytest.param(range(40, 120), id="many", marks=pytest.mark.further),
    ],
)
def test_random_surveys_have_the_bits_of_numpy(seeds: range) -> None:
    for seed in seeds:
        survey = Survey(seed)
        assert survey.agrees(survey.found(simulated(seed, survey.ranks, peer_access=seed % 3 > 0))), seed


def test_emitted_kernels_and_processes_too() -> None:
    survey = Survey(2, ranks=3)
    assert survey.steps > 0
    assert survey.agrees(survey.found(Machine(seed=0).devices(3)))

    def work(processes: Processes) -> list[list[Array]]:
        return survey.found([device(processes.rank)], with_processes(processes))

    for found in together(3, work):
        assert survey.agrees(found)


def test_what_is_wrong_is_said() -> None:
    survey = Survey(5)
    kernel = gen.load(survey.spec, devices=simulated(0, survey.ranks))
    fields = [kernel.scatter(field, survey.extents) for field in survey.fields]
    sources, wavelets, *receivers = survey.points
    with pytest.raises(
        ShapeError, match=r"u_sources must be points of fields of shape .*, counted from 0 \(got point 0"
    ):
        kernel(*fields, sources - 100, wavelets, *receivers)
    with pytest.raises(ShapeError, match="u_wavelets must have 77 steps, as the call says"):
        kernel(*fields, sources, wavelets, *receivers, steps=77)
    with pytest.raises(ShapeError, match=r"u_wavelets must have .* u_source_count"):
        kernel(*fields, sources, wavelets[:, 1:], *receivers)
    with pytest.raises(ArgumentError, match="must be a sharded array"):
        kernel(*survey.fields, sources, wavelets, *receivers)
    assert repr(kernel(*fields, sources, wavelets, *receivers)[2]).startswith("ShardedTraces(shape=(")


MUTANTS = {
    "a source is in its own cell alone": ("yield from range(along[0] // extent * extent, along[1], extent)", "yield 0"),
    "sources of a halo are left out": ("_images(self._given[f\"{name}_sources\"], cells, shape)",
                                       "_images(self._given[f\"{name}_sources\"], valid, shape)"),
    "points count from the domain's first cell": ("origin = np.array([begin for begin, _ in cells], np.int64)",
                                                  "origin = np.zeros(len(cells), np.int64)"),
    "repeated sources go before others": ("np.argsort(numbers, kind=\"stable\")", "np.argsort(-numbers)"),
    "every phase begins with the first step": ("first * shape[1] * self.dtype.itemsize", "0"),
    "a receiver hears what a halo has": ("_inside(points, valid)", "_inside(points, cells)"),
    "receivers are in the order of ranks": ("whole[:, one.receivers] = content\n                own +=",
                                            "whole[:, : len(one.receivers)] = content\n                own +="),
    "traces are read before they are there": ("rank.device.synchronize(rank.main.handle)", "pass"),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(name: str) -> None:
    load = changed("runtime.sharded_points", *MUTANTS[name])
    for seed in range(1, 24):
        survey = Survey(seed)
        with suppress(RunError):
            if survey.agrees(survey.found(simulated(seed, survey.ranks), load)):
                continue
        return
    pytest.fail("not caught")
