"""What compute-sanitizer prints, and what becomes of a run of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.sanitizer.report import Outcome, read_report

CLEAN = """\
========= COMPUTE-SANITIZER
the program's own words
========= ERROR SUMMARY: 0 errors
"""
CLEAN_RACES = """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
OVERRUN = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at reduction_sum_f32__shfl_tpb128_u1+0x190 in reduction_sum_f32__shfl_tpb128_u1.cu:52
=========     by thread (1,0,0) in block (0,0,0)
=========     Access at 0x7f3a2e000104 is out of bounds
=========
========= ERROR SUMMARY: 25 errors
========= ERROR SUMMARY: 5 errors were not printed because the print limit has been reached
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at tiled+0x310 in tiled.cu:48
=========     and Read access at tiled+0x590 in tiled.cu:60 [4096 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
WARNING = """\
========= COMPUTE-SANITIZER
========= Warning: Race reported between Write access at k+0x310
========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)
"""
UNINITIALISED = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at reduction_sum_f32__interleaved_tpb128_u1+0x1f0 in reduction_sum_f32__interleaved_tpb128_u1.cu:61
=========     by thread (0,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
HANGING = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at reduction_sum_f32__interleaved_tpb128_u1+0x250 in reduction_sum_f32__interleaved_tpb128_u1.cu:60
"""
FOUND = {"memcheck": OVERRUN, "racecheck": RACE, "initcheck": UNINITIALISED, "synccheck": HANGING}
DONE = {
    "device": "NVIDIA H100 80GB HBM3", "driver": "580.1, CUDA 13.0", "compiler": "nvrtc 13.0.88", "variants": 3,
    "skipped": 0, "algorithms": ["shfl"], "sizes": {"sum_f32": (18, 18)}, "cases": 54, "wrong": [], "seconds": 1.5,
}  # fmt: skip


def outcome(tool: str = "memcheck", family: str = "reduction", output: str = CLEAN, **changes: Any) -> Outcome:
    said = Outcome(tool, family, 0, read_report(output), DONE, output, 2.0, f"{tool} {family}")
    return replace(said, **changes)
