"""What a GPU refuses to launch the CPU run refuses too, and the last that is allowed it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from gen.dtypes import F32
from gen.errors import RunError
from gen.families.base import Launch, Limits, Operand, Plan
from gen.families.expr import constant
from gen.proof.host import HostRunner
from gen.toolchain.occupancy import occupancy
from tests.fake_family import fake_variant

OUT = Operand("out", "out", F32, ("n",))
TEXT = """
extern "C" __global__ void NAME(float* out) {
  if (blockIdx.x + blockIdx.y + blockIdx.z + threadIdx.x + threadIdx.y + threadIdx.z == 0) out[0] = 1.0f;
}
"""


def launch(
    cache: Path, grid: tuple[int, int, int] = (1, 1, 1), block: tuple[int, int, int] = (1, 1, 1), *,
    shared_bytes: int = 0, arch: str = "sm_90", registers: int | None = None, cooperative: bool = False,
) -> None:  # fmt: skip
    """Launches a kernel that stores one number; raises RunError if that is refused."""
    x, y, z = map(constant, grid)
    made = fake_variant(
        "limits",
        (OUT,),
        Plan((Launch((x, y, z), block, ("out",), shared_bytes=constant(shared_bytes), cooperative=cooperative),)),
    )
    known: Mapping[str, int] | None = None if registers is None else {made.name: registers}
    runner = HostRunner(
        Limits.of(arch), cache=cache, text=lambda variant: TEXT.replace("NAME", variant.name), registers=known
    )
    (kernel,) = runner.load([made])
    out = np.zeros(1, np.float32)
    kernel.run({"n": 1}, {"out": out})
    assert out[0] == 1.0


def test_blocks_that_run_at_the_same_time(cache: Path) -> None:
    most = Limits.of("sm_90").multiprocessors * 2  # of 1024 threads
    launch(cache, (most, 1, 1), (1024, 1, 1), cooperative=True)
    launch(cache, (most + 1, 1, 1), (1024, 1, 1))
    with pytest.raises(RunError, match=f"at most {most} blocks, which run at the same time"):
        launch(cache, (most + 1, 1, 1), (1024, 1, 1), cooperative=True)


@pytest.mark.parametrize(
    ("grid", "refused"), [((1, 65535, 1), (1, 65536, 1)), ((1, 1, 65535), (1, 1, 65536))], ids=["y", "z"]
)
def test_grid(cache: Path, grid: tuple[int, int, int], refused: tuple[int, int, int]) -> None:
    launch(cache, grid)
    with pytest.raises(RunError, match="65535"):
        launch(cache, refused)


@pytest.mark.parametrize(
    ("block", "refused"),
    [
        ((1024, 1, 1), (1025, 1, 1)), ((1, 1024, 1), (1, 1025, 1)), ((1, 1, 64), (1, 1, 65)),
        ((32, 16, 2), (33, 16, 2)), ((1, 1, 1), (1, 0, 1)),
    ],
)  # fmt: skip
def test_threads(cache: Path, block: tuple[int, int, int], refused: tuple[int, int, int]) -> None:
    launch(cache, block=block)
    with pytest.raises(RunError, match="1 to 1024 threads a block, at most 64 along z"):
        launch(cache, block=refused)


@pytest.mark.parametrize(
    ("arch", "most"), [("sm_70", 98304), ("sm_75", 65536), ("sm_80", 166912), ("sm_89", 101376), ("sm_90", 232448)]
)
def test_dynamic_shared_memory_is_the_architectures(cache: Path, arch: str, most: int) -> None:
    launch(cache, shared_bytes=most, arch=arch)
    with pytest.raises(RunError, match=f"must not use over {most} bytes of shared memory on {arch}"):
        launch(cache, shared_bytes=most + 1, arch=arch)


@pytest.mark.parametrize(
    ("threads", "registers", "refused"), [(1024, 64, 65), (512, 128, 129), (513, 96, 97), (257, 168, 169)]
)
def test_registers_times_threads(cache: Path, threads: int, registers: int, refused: int) -> None:
    """A warp gets registers for all its lanes, eight a lane at a time; all partitions count as the fullest."""
    for each, fits in ((registers, True), (refused, False)):
        found = occupancy(
            Limits.of("sm_90"), registers=each, static_shared_bytes=0, dynamic_shared_bytes=0, threads_per_block=threads
        )
        assert (found.blocks > 0) == fits
    launch(cache, block=(threads, 1, 1), registers=registers)
    with pytest.raises(RunError, match=rf"not need over 65536 registers a block, and needs {refused} a thread"):
        launch(cache, block=(threads, 1, 1), registers=refused)
    launch(cache, block=(threads, 1, 1))  # nobody has asked the compiler


def test_registers_of_a_thread(cache: Path) -> None:
    launch(cache, block=(32, 1, 1), registers=255)
    with pytest.raises(RunError, match="must not need over 255 registers a thread"):
        launch(cache, block=(32, 1, 1), registers=256)
