"""One of several processes that compute together, for tests: `python tests/process.py HOST:PORT RANK SIZE [gpu]`."""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np

import gen
from gen.errors import ProcessError
from gen.families.base import Array
from gen.families.stencil import Stencil
from gen.runtime.simulated import Machine
from tests.fakes import OracleRunner

STEPS = 7


def cells() -> Array:
    return np.random.default_rng(3).random((50, 20), np.float32)


def device(seed: int) -> Any:
    return Machine(seed=seed, runner=OracleRunner()).devices(1)[0]


def digest_of_one(where: Any = None) -> str:
    """Of the bits that one device computes, a simulated one if None."""
    kernel = gen.load(Stencil.catalogue[0], devices=[device(0) if where is None else where])
    return sha256(kernel(kernel.scatter(cells()), steps=STEPS).gather().tobytes()).hexdigest()


def say(words: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main(address: str, rank: int, size: int, where: Any) -> None:
    """Says the digest of what all compute; then computes until one of them dies, and says the error."""
    processes = gen.join(address, rank=rank, size=size, seconds=300)
    kernel = gen.load(Stencil.catalogue[0], devices=[where], processes=processes, steps_per_exchange=2)
    array = kernel.scatter(cells())
    say({"digest": sha256(kernel(array, steps=STEPS).gather().tobytes()).hexdigest()})
    try:
        while True:
            array = kernel(array, steps=STEPS)
            array.gather()
    except ProcessError as error:
        say({"error": str(error)})


if __name__ == "__main__":
    number = int(sys.argv[2])
    main(sys.argv[1], number, int(sys.argv[3]), 0 if "gpu" in sys.argv else device(number))
