"""What the CPU run predicts of sectors and of turns of the banks is what the hardware counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from gen.families import FAMILIES
from gen.families.base import Extents, Limits
from gen.families.names import find_variant
from gen.gpu.cuda import CudaDevice
from gen.paths import output_home
from gen.report.counters import ACTIVE_WARPS, COUNTERS, compared, counters, profiler, total
from gen.report.explain import explanations
from tests.counted_kernels import COUNTED

WITHIN = 0.01  # what a sample of a launch's blocks may be off by
FEW = 64  # or so many, of a launch that reads or writes next to nothing


@pytest.mark.parametrize(("name", "extents"), COUNTED, ids=[name for name, _ in COUNTED])
def test_sectors_and_wavefronts_are_counted_as_predicted(name: str, extents: Extents, device: CudaDevice) -> None:
    program = profiler()
    assert program is not None, "Nsight Compute is not installed: ncu is not on PATH"
    made, home = find_variant(FAMILIES, name, {}), output_home()
    limits = device.limits
    (one,) = explanations([made], Limits.of(limits.arch), home, [extents])
    found = counters(program, made, extents, limits, Path(home))
    rows = {row.counter.key: row for row in compared(one, found)}
    assert rows.keys() == {counter.key for counter in COUNTERS}
    for row in rows.values():
        if row.counter.exact:
            assert row.predicted is not None
            assert row.counted == pytest.approx(row.predicted, rel=WITHIN, abs=FEW), row.shown()
    warps = total({one.main.kernel: found[one.main.kernel]}, ACTIVE_WARPS)  # percent of those that could be resident
    assert warps is not None
    assert 0 < warps <= 100
