"""Research codes beside gen: `python -m bench.foreign --peer NAME=COMMAND --shape 16384x16384 --steps 1000`.

A peer is a program that is already built; it is run by its command and never read. In the command `{shape}`
(16384x16384), `{extents}` (16384 16384), `{steps}`, `{dtype}`, `{input}` and `{output}` are replaced; `{input}` is a
file of the cells in C order, and a peer that writes its result to `{output}` likewise is compared cell by cell. Its
time is the last one that it prints, `12.5 ms`, or what the two groups of `--time NAME=REGEX` find: a number, and s, ms
or us. In every round each peer and gen run once, in turns, and the order turns too; the clock is noted after each.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import gen
from bench.program import ended, write_results
from bench.wave import Place, place_of_largest
from gen.errors import ArgumentError, GenError
from gen.families.base import Array
from gen.families.stencil import StencilSpec
from gen.families.stencil.spec import BOUNDARIES
from gen.gpu import device as gpus
from gen.gpu.nvml import Nvml
from gen.proof.error_bounds import gamma

LAST_TIME = r"([0-9.]+(?:[eE][-+]?[0-9]+)?)\s*(us|ms|s)\b"
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
NUMPY = {"f32": "float32", "f64": "float64"}
PLACES = ("shape", "extents", "steps", "dtype", "input", "output")
ROUNDS, LIMIT_SECONDS = 5, 600.0  # of a peer's run
LONG_ENOUGH = 0.5  # seconds in which gen repeats its call, so that NVML's counter of energy has moved many times


@dataclass(frozen=True)
class Peer:
    """A program of others.

    Attributes:
        name: for the table.
        command: with places in braces.
        time: a regular expression with two groups, a number and its unit.
    """

    name: str
    command: str
    time: str = LAST_TIME


@dataclass(frozen=True)
class Turn:
    """One run of one contender.

    Attributes:
        contender: a peer's name, or `gen`.
        seconds: that it took.
        sm_mhz: the clock of the multiprocessors after it; 0 where NVML does not tell.
        joules: of the run; None of a peer, whose process does more than it times, and where NVML does not tell.
    """

    contender: str
    seconds: float
    sm_mhz: int
    joules: float | None = None


@dataclass(frozen=True)
class Difference:
    """How far a peer's result is from gen's: of all cells the largest, and how far rounding may bring them apart."""

    peer: str
    largest: float
    allowed: float


def run_peer(peer: Peer, places: Mapping[str, str]) -> float:
    """The seconds that a peer says it took. Raises GenError where it fails, or prints no time."""
    words = shlex.split(_filled(peer, places))
    subject = f"--peer {peer.name}"
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    except OSError as error:
        raise ArgumentError(subject, "must be a program that can be run", error) from error
    except subprocess.TimeoutExpired as error:
        raise GenError(subject, f"must end within {LIMIT_SECONDS:g} s", shlex.join(words)) from error
    if done.returncode:
        raise GenError(subject, f"ended with status {done.returncode}", (done.stderr or done.stdout).strip()[-500:])
    found = re.findall(peer.time, done.stdout)
    if not found:
        again = f"Say where it stands: --time {peer.name}=REGEX, with a group for the number and one for s, ms or us"
        raise GenError(subject, f"must print its time as {peer.time}", done.stdout.strip()[-200:], next_step=again)
    number, unit = found[-1]
    return float(number) * UNITS[unit]


def _filled(peer: Peer, places: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in places:
            known = ", ".join(PLACES)
            raise ArgumentError(f"--peer {peer.name}", f"has places of these names only: {known}", repr(match[0]))
        return places[match[1]]

    return re.sub(r"\{(\w*)\}", value, peer.command)


def difference(peer: Peer, result: Path, ours: Array, spec: StencilSpec, first: Array, steps: int) -> Difference | None:
    """How far the result that a peer has written is from gen's; None where it has written none.

    Each of both passes through one rounding for each product and each sum of a step, in whatever order they are added:
    so gamma of twice the terms, for all steps, twice, times the largest cell that there can be.

    Raises GenError where the file has another size, or a cell is farther away.
    """
    if not result.exists():
        return None
    theirs = np.fromfile(result, ours.dtype)
    if theirs.size != ours.size:
        raise GenError(f"--peer {peer.name}", f"must write {ours.size} cells of {spec.dtype.name}", str(theirs.size))
    largest_cell = max(1.0, sum(map(abs, spec.weights))) ** steps * float(np.abs(first).max())
    allowed = 2 * gamma(2 * len(spec.taps) * steps, spec.dtype.unit_roundoff) * largest_cell
    apart = np.abs(theirs.reshape(ours.shape).astype(np.float64) - ours)
    place = np.unravel_index(int(np.argmax(np.where(np.isnan(apart), np.inf, apart))), ours.shape)
    largest = float(apart[place])
    if not largest <= allowed:
        where = ", ".join(str(int(index)) for index in place)
        rule = f"must be within {allowed:.3g} of gen's, which is what the roundings of {steps} steps can do"
        again = "Its weights and what it reads outside must be those of --stencil, --weights and --boundary"
        raise GenError(f"The cell ({where}) of {peer.name}", rule, f"{largest:.3g} away", next_step=again)
    return Difference(peer.name, largest, allowed)


class Contest:
    """Gen and its peers on one problem."""

    def __init__(
        self, spec: StencilSpec, shape: tuple[int, ...], steps: int, place: Place, nvml: Nvml | None, tune: float | None
    ) -> None:
        """Draws the cells, and computes them once by gen."""
        self.spec, self.shape, self.steps, self._place, self._nvml = spec, shape, steps, place, nvml
        self.cells = np.random.default_rng(0).uniform(-1, 1, shape).astype(NUMPY[spec.dtype.name])
        self._kernel = gen.load(spec, device=place.device, tune=tune)
        self._source, self._target = place.put(self.cells), place.put(np.zeros_like(self.cells))
        self._call()
        self.ours = place.get(self._target)
        self.variant = self._kernel.variant_for(shape, steps=steps)

    def turns(self, peers: Sequence[Peer], rounds: int, folder: Path) -> tuple[list[Turn], list[Difference]]:
        """All runs, and what the peers' results are like."""
        source = folder / "input"
        self.cells.tofile(source)
        done: list[Turn] = []
        differences: list[Difference] = []
        for number in range(rounds):
            order: list[Peer | None] = [None, *peers]
            for peer in order if number % 2 == 0 else order[::-1]:
                if peer is None:
                    done.append(self._own_turn())
                    continue
                result = folder / f"output of {peer.name}"
                result.unlink(missing_ok=True)
                extents = [str(extent) for extent in self.shape]
                files = (shlex.quote(str(file)) for file in (source, result))
                values = ("x".join(extents), " ".join(extents), str(self.steps), self.spec.dtype.name, *files)
                places = dict(zip(PLACES, values, strict=True))
                done.append(Turn(peer.name, run_peer(peer, places), self._sm_mhz()))
                found = difference(peer, result, self.ours, self.spec, self.cells, self.steps)
                if found is not None:
                    differences.append(found)
        return done, differences

    def _own_turn(self) -> Turn:
        """The median of calls that follow each other, the first of which wakes the GPU, and the energy of one."""
        self._call()
        self._place.waited()
        joules = self._joules()
        times: list[float] = []
        while not times or sum(times) < LONG_ENOUGH:
            start = time.perf_counter()
            self._call()
            times.append(self._place.waited() - start)
        used, mhz = self._joules(), self._sm_mhz()
        energy = None if joules is None or used is None else (used - joules) / len(times)
        return Turn("gen", median(times), mhz, energy)

    def _call(self) -> None:
        self._kernel(self._source, steps=self.steps, out=self._target)

    def _joules(self) -> float | None:
        return None if self._nvml is None else self._nvml.joules()

    def _sm_mhz(self) -> int:
        seen = None if self._nvml is None else self._nvml.clocks()
        return 0 if seen is None else seen.sm_mhz


def table(turns: Sequence[Turn], differences: Sequence[Difference], cell_steps: int) -> list[str]:
    """A line for each contender: medians, and how often gen is as fast, round by round."""
    lines = [f"{'contender':20s} {'ms':>10s} {'TCell-steps/s':>14s} {'gen is':>8s} {'SM MHz':>12s}  compared"]
    own = [turn.seconds for turn in turns if turn.contender == "gen"]
    for name in dict.fromkeys(turn.contender for turn in turns):
        runs = [turn for turn in turns if turn.contender == name]
        seconds, clocks = median(turn.seconds for turn in runs), [turn.sm_mhz for turn in runs]
        ratio = median(turn.seconds / mine for turn, mine in zip(runs, own, strict=True))
        found = [one for one in differences if one.peer == name]
        compared = "wrote no result" if name != "gen" else ""
        if found:
            worst = max(one.largest for one in found)
            compared = f"largest difference {worst:.2g}, {found[0].allowed:.2g} allowed"
        if used := [turn.joules for turn in runs if turn.joules]:
            compared = f"{cell_steps / median(used) / 1e9:.2f} x 10^9 cell-steps a joule"
        lines.append(
            f"{name:20s} {seconds * 1e3:10.3f} {cell_steps / seconds / 1e12:14.3f} {ratio:7.2f}x "
            f"{min(clocks):5d}-{max(clocks):<6d}  {compared}"
        )
    return lines


def spec_of(options: argparse.Namespace, ndim: int) -> StencilSpec:
    """The stencil that the options name."""
    if options.weights is not None:
        try:
            weights = np.load(options.weights)
        except (OSError, ValueError) as error:
            raise ArgumentError("--weights", "must be a file of NumPy's, .npy", error) from error
    else:
        match = re.fullmatch(r"(star|box)([0-9]+)", options.stencil)
        if match is None:
            raise ArgumentError("--stencil", "must be star or box and a radius, such as star1", repr(options.stencil))
        weights = {"star": gen.star, "box": gen.box}[match[1]](ndim, int(match[2]))
    if weights.ndim != ndim:
        raise ArgumentError("--weights", f"must have as many axes as --shape: {ndim}", str(weights.ndim))
    return gen.stencil(weights, boundary=options.boundary, dtype=NUMPY[options.dtype])


def peers_of(options: argparse.Namespace) -> tuple[Peer, ...]:
    """The peers that the options name."""
    named = dict(_named("--peer", text) for text in options.peer)
    times = dict(_named("--time", text) for text in options.time)
    for name, pattern in times.items():
        if name not in named:
            raise ArgumentError("--time", f"must name one of the peers: {', '.join(named)}", repr(name))
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ArgumentError("--time", "must be a regular expression", error) from error
        if groups != 2:
            raise ArgumentError("--time", "must have two groups: the number, and s, ms or us", repr(pattern))
    return tuple(Peer(name, command, times.get(name, LAST_TIME)) for name, command in named.items())


def _named(option: str, text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign or not name or name == "gen" or "/" in name:
        raise ArgumentError(option, "must be NAME=TEXT, with a name that is neither gen nor a path", repr(text))
    return name, value


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND", required=True, help="repeatable")
    parser.add_argument("--time", action="append", default=[], metavar="NAME=REGEX", help="how a peer prints its time")
    parser.add_argument("--shape", required=True, help="16384x16384, 512x512x512")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--dtype", choices=tuple(NUMPY), default="f32")
    parser.add_argument("--stencil", default="star1", help="star or box with its radius; equal weights, together 1")
    parser.add_argument("--weights", type=Path, help="a file of NumPy's, in place of --stencil")
    parser.add_argument("--boundary", choices=BOUNDARIES, default="constant")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--tune", type=float, help="seconds in which gen is tuned first")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if re.fullmatch(r"[1-9][0-9]*(x[1-9][0-9]*){0,2}", options.shape) is None:
        raise ArgumentError("--shape", "must be one to three extents with x between them", repr(options.shape))
    if options.steps < 1 or options.rounds < 1:
        raise ArgumentError("--steps and --rounds", "must be 1 or more", f"{options.steps} and {options.rounds}")
    shape = tuple(int(extent) for extent in options.shape.split("x"))
    peers, spec = peers_of(options), spec_of(options, len(shape))
    place = place_of_largest()
    contest = Contest(spec, shape, options.steps, place, _nvml(), options.tune)
    with tempfile.TemporaryDirectory() as folder:
        turns, differences = contest.turns(peers, options.rounds, Path(folder))
    print(f"{spec.label} {options.shape}, {options.steps} steps, {place.name}: {contest.variant}")
    for line in table(turns, differences, prod(shape) * options.steps):
        print(line)
    content: dict[str, Any] = {"turns": turns, "differences": differences, "variant": contest.variant}
    write_results(options.json, "python -m bench.foreign", None, {"place": place.name}, **content)
    return 0


def _nvml() -> Nvml | None:
    """NVML's view of the first GPU; None where there is none, or NVML is not there."""
    found = gpus.find_gpu()
    try:
        return None if found is None else Nvml(found.uuid)
    except GenError:
        return None


if __name__ == "__main__":
    sys.exit(ended(main))
