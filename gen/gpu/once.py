"""Runs variants once each on the first GPU, for a profiler that looks on: `python -m gen.gpu.once REQUEST`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gen.emit.render import render
from gen.families import families
from gen.families.names import find_variant
from gen.gpu.buffers import Buffers
from gen.gpu.kernel import CudaKernel
from gen.gpu.open import open_instruments
from gen.gpu.trial import Problem
from gen.toolchain.nvrtc import Nvrtc


def main() -> int:
    """Runs them. The request is JSON: `families`, `specs` by name, `cache`, and `runs`: `name`, `extents`."""
    request = json.loads(sys.argv[1])
    known, compiler = families(*request["families"]), Nvrtc(Path(request["cache"]))
    instruments = open_instruments(0, compiler)
    device = instruments.device
    for run in request["runs"]:
        made, extents = find_variant(known, run["name"], request["specs"]), run["extents"]
        buffers = Buffers(device, instruments.service, Problem(made.family, made.spec, extents))
        kernel = CudaKernel(made, compiler.compile(made.name, render(made), device.limits.arch), device, device.limits)
        addresses = {**kernel.scratch(extents), **buffers.addresses}
        buffers.reset(0)
        kernel.launches(kernel.steps(extents), extents, addresses)()
        device.synchronize()
        buffers.free()
    return 0


if __name__ == "__main__":
    sys.exit(main())
