"""How well predicted times rank recorded ones, without a GPU: `python bench/predict.py [--json FILE]`.

For every search space in bench/trials: Spearman's rank correlation of the recorded medians and the predictions of a
random sample of its configurations, always the same. 1: the same order; 0: none. The model's constants were set with
these spaces in view: this says how well it fits them.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from bench.program import as_called, ended
from gen.emit.render import render
from gen.errors import GenError, StoreError
from gen.families import FAMILIES
from gen.families.base import Array, Extents, Limits, Variant
from gen.families.config import Config, plain
from gen.families.names import find_spec, variant
from gen.paths import cache_home, output_home
from gen.proof.host import HostRunner
from gen.proof.trace import traffic
from gen.store.trial_files import FIRST_COLUMNS, LAST_COLUMNS
from gen.toolchain.nvrtc import Nvrtc
from gen.toolchain.usage import usage
from gen.tune.predict import predict

TRIALS = Path(__file__).parent / "trials"
ARCH = "sm_90"
SAMPLE = 32  # configurations of a space
LEAST_PAIRS = 8  # of which a rank correlation says something
GOAL = 0.7


@dataclass(frozen=True)
class Measured:
    """A configuration of a search space.

    Attributes:
        shape: sizes by name, and the alignment where it is less than 16: `cols=8192 rows=8192`.
        config: the values of the tuning parameters by name, as texts.
        time_ms: the median; None if the configuration failed.
    """

    spec: str
    shape: str
    algorithm: str
    config: Mapping[str, str]
    time_ms: float | None
    compile_ms: float


def main() -> int:
    """Prints a line a space, and the mean of each family; status 1 if one misses the goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="configurations of each space (%(default)s)")
    options = parser.parse_args()
    found: dict[str, list[float]] = {}
    rows: list[dict[str, Any]] = []
    for file in sorted(TRIALS.glob("*.csv.gz")):
        for (spec, shape), space in spaces(file).items():
            chosen = random.Random(f"{spec} {shape}").sample(space, min(options.sample, len(space)))
            pairs = list(predicted(spec, chosen))
            if len(pairs) < LEAST_PAIRS:
                continue
            rho = spearman(*np.array(pairs).T)
            found.setdefault(spec.partition("_")[0], []).append(rho)
            device = file.name.partition(".")[0]
            rows.append({"device": device, "spec": spec, "shape": shape, "of": len(pairs), "correlation": rho})
            print(f"{rho:5.2f}  {device:24} {spec:36} {shape}  ({len(pairs)} of {len(space)})", flush=True)
    for family, values in found.items():
        print(f"{family}: {mean(values):.2f} (goal {GOAL})")
    if options.json:
        families = {family: mean(values) for family, values in found.items()}
        content = {"command": as_called("python bench/predict.py"), "families": families, "spaces": rows}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return 0 if all(mean(values) >= GOAL for values in found.values()) else 1


def sentence(content: Mapping[str, Any]) -> str:
    """What docs/literature.md says of the results in a file."""
    spaces_of = Counter(row["spec"].partition("_")[0] for row in content["spaces"])
    lowest: dict[str, Mapping[str, Any]] = {}
    for row in content["spaces"]:
        family = row["spec"].partition("_")[0]
        lowest[family] = min(lowest.get(family, row), row, key=lambda one: one["correlation"])
    families = ", ".join(
        f"{family} {value:.2f} ({spaces_of[family]} spaces, the lowest {_of(lowest[family])})"
        if spaces_of[family] > 1
        else f"{family} {value:.2f} (1 space)"
        for family, value in content["families"].items()
    )
    under = sum(row["correlation"] < GOAL for row in content["spaces"])
    missed = f"; {under} of {len(content['spaces'])} spaces {'are' if under > 1 else 'is'} under it" if under else ""
    return (
        f"By `{content['command']}`, Spearman's rank correlation, a mean over search spaces: {families}. The goal is "
        f"{GOAL} for each family{missed}.\n"
    )


def _of(row: Mapping[str, Any]) -> str:
    return f"{row['correlation']:.2f}: {row['spec']} at {row['shape']}"


def read_table(place: Path) -> Iterator[Measured]:
    """The configurations of a CSV file, compressed or not. Raises StoreError, with the line, for anything else."""
    try:
        content = place.read_bytes()
        text = (gzip.decompress(content) if place.suffix == ".gz" else content).decode()
        yield from _measured(csv.reader(io.StringIO(text, newline="")), str(place))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise StoreError(str(place), "must be a table of trials", error) from error


def _measured(lines: Iterator[list[str]], place: str) -> Iterator[Measured]:
    head = next(lines, [])
    if tuple(head[:3]) != FIRST_COLUMNS or tuple(head[-2:]) != LAST_COLUMNS or len(set(head)) != len(head):
        columns = ", ".join((*FIRST_COLUMNS, "...", *LAST_COLUMNS))
        raise StoreError(place, f"must begin with the columns {columns}", ", ".join(head)[:200])
    for number, line in enumerate(lines, 2):
        try:
            values = dict(zip(head, line, strict=True))
            config = {
                name: value for name, value in values.items() if value and name not in (*FIRST_COLUMNS, *LAST_COLUMNS)
            }
            time = float(values["time_ms"]) if values["time_ms"] else None
            compile_ms = float(values["compile_ms"])
            yield Measured(values["spec"], values["shape"], values["algorithm"], config, time, compile_ms)
        except ValueError as error:
            raise StoreError(f"{place}: line {number}", "must have a value for each column", error) from error


def spaces(file: Path) -> dict[tuple[str, str], list[Measured]]:
    """The configurations that gave a time, by spec and shape."""
    found: dict[tuple[str, str], list[Measured]] = {}
    for row in read_table(file):
        if row.time_ms is not None and "alignment" not in row.shape:
            found.setdefault((row.spec, row.shape), []).append(row)
    return found


def predicted(spec_name: str, rows: list[Measured]) -> Iterator[tuple[float, float]]:
    """The recorded and the predicted time of each configuration that gen still has."""
    family, spec = find_spec(FAMILIES, spec_name, {})
    made: list[tuple[Variant, Measured]] = []
    for row in rows:
        algorithm = family.algorithms.get(row.algorithm)
        config = config_of(algorithm.config, row.config) if algorithm else None
        if config is not None:
            try:
                made.append((variant(family, spec, row.algorithm, config), row))
            except GenError:  # no longer legal
                continue
    limits, cache = Limits.of(ARCH), cache_home(output_home())
    compiler = Nvrtc(cache)
    kernels = HostRunner(limits, cache=cache, text=render).load([one for one, _ in made])
    for kernel, (one, row) in zip(kernels, made, strict=True):
        extents: Extents = {name: int(size) for name, size in (part.split("=") for part in row.shape.split())}
        used = usage(one, compiler.compile(one.name, render(one), ARCH), limits, extents)
        moved = traffic(kernel, limits, extents)
        assert row.time_ms is not None
        yield row.time_ms, predict(one, moved, used, limits, extents).us


def config_of(config: type[Config], texts: Mapping[str, str]) -> Config | None:
    """The config that a row spells; None if parameters or values have changed since."""
    values = {}
    for parameter in config.parameters():
        if parameter.field not in texts:
            if parameter.off is not None:
                values[parameter.field] = parameter.off
            elif "" in map(plain, parameter.values):
                continue  # an empty cell: the base, which is spelled by no letter
            else:
                return None
            continue
        known = {_text(plain(value)): value for value in parameter.values}
        if texts[parameter.field] not in known:
            return None
        values[parameter.field] = known[texts[parameter.field]]
    try:
        return config(**values)
    except GenError:
        return None


def _text(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def spearman(one: Array, other: Array) -> float:
    """The correlation of ranks; equal values share theirs."""
    return float(np.corrcoef(ranks(one), ranks(other))[0, 1])


def ranks(values: Array) -> Array:
    """The place of each value among all; the mean of the places of those that are equal."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


if __name__ == "__main__":
    sys.exit(ended(main))
