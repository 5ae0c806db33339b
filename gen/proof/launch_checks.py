"""What a GPU checks before it launches a kernel, and what nobody checks: that plan and kernel agree on arguments."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gen.arch import (
    MAX_BLOCK_Z,
    MAX_CLUSTER,
    MAX_GRID_X,
    MAX_GRID_YZ,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    PARTITIONS,
    REGISTERS_PER_BLOCK,
    STATIC_SHARED_BYTES,
    WARP,
    Limits,
)
from gen.dtypes import DType
from gen.errors import RunError
from gen.families.plans import Step
from gen.proof.code import Kernel
from gen.toolchain.occupancy import occupancy, registers_per_warp

POINTER = "p8"  # a parameter, as `entry.h` spells its type


def check_arguments(kernel: Kernel, given: Sequence[str]) -> None:
    """Refuses arguments that are not of the parameters' types; the sign of an integer may differ."""

    def fits(taken: str, passed: str) -> bool:
        return taken == passed or (taken[0] in "iu" and passed[0] in "iu" and taken[1] == passed[1])

    if len(kernel.signature) != len(given) or not all(map(fits, kernel.signature, given)):
        rule = "must take the arguments that its plan passes, " + (" ".join(given) or "none")
        raise RunError(kernel.name, rule, " ".join(kernel.signature) or "none")


def spelled(dtype: DType) -> str:
    """The type of a number as `entry.h` spells it."""
    if dtype.cuda in ("float", "double"):
        return f"f{dtype.size}"
    if dtype.kind == "float" or dtype.cuda.startswith("uint"):  # half and vectors are classes
        return f"s{dtype.size % 10}"
    return f"{'i' if dtype.kind == 'int' else 'u'}{dtype.size}"


def packed(kernel: Kernel, dtype: DType, value: Any) -> bytes:
    """A number as its type stores it. Raises RunError for one that the type does not hold."""
    try:
        return np.array([value], dtype.numpy).tobytes()
    except (OverflowError, ValueError, TypeError) as error:
        raise RunError(kernel.name, f"takes a number of type {dtype.name}", value) from error


def resident_blocks(kernel: Kernel, step: Step, limits: Limits) -> int:
    """At most so many blocks run at the same time, as far as threads and shared memory say."""
    on_one = occupancy(
        limits,
        registers=0,
        static_shared_bytes=kernel.shared_bytes,
        dynamic_shared_bytes=step.shared_bytes,
        threads_per_block=prod(step.block),
    )
    return limits.multiprocessors * max(on_one.blocks, 1)


def check_registers(kernel: str, block: tuple[int, int, int], registers: int) -> None:
    """Refuses a kernel of which no block fits: all its threads need so many registers each.

    A warp gets them in steps of eight a thread, and each partition of a multiprocessor counts as many warps as the
    fullest: so does NVIDIA's occupancy calculator.
    """
    if registers > MAX_REGISTERS_PER_THREAD:
        raise RunError(kernel, f"must not need over {MAX_REGISTERS_PER_THREAD} registers a thread", registers)
    a_warp = registers_per_warp(registers)
    warps = -(-prod(block) // (WARP * PARTITIONS)) * PARTITIONS
    if a_warp * warps > REGISTERS_PER_BLOCK:
        rule = f"must not need over {REGISTERS_PER_BLOCK} registers a block, and needs {registers} a thread"
        raise RunError(kernel, rule, a_warp * warps)


def check_launch(kernel: Kernel, step: Step, limits: Limits, registers: int | None = None) -> None:
    """Refuses what a GPU would refuse.

    Args:
        kernel: what is launched.
        step: how.
        limits: of the device.
        registers: of one thread, as the GPU's compiler says; None where it was not asked.
    """
    grid, block, dynamic_bytes = step.grid, step.block, step.shared_bytes
    threads = prod(block)
    if not 1 <= threads <= MAX_THREADS_PER_BLOCK or min(block) < 1 or block[2] > MAX_BLOCK_Z:
        raise RunError(kernel.name, "must be launched with 1 to 1024 threads a block, at most 64 along z", block)
    if kernel.most_threads is not None and threads > kernel.most_threads:
        rule = f"must be launched with at most {kernel.most_threads} threads a block, as its __launch_bounds__ says"
        raise RunError(kernel.name, rule, threads)
    if min(grid) < 0 or grid[0] > MAX_GRID_X or max(grid[1:]) > MAX_GRID_YZ:
        rule = f"must be launched with a grid of at most {MAX_GRID_X} x {MAX_GRID_YZ} x {MAX_GRID_YZ} blocks"
        raise RunError(kernel.name, rule, grid)
    if kernel.shared_bytes > STATIC_SHARED_BYTES:
        raise RunError(kernel.name, f"must not use over {STATIC_SHARED_BYTES} bytes of static shared memory",
                       kernel.shared_bytes)  # fmt: skip
    if dynamic_bytes < 0 or kernel.shared_bytes + dynamic_bytes > limits.shared_bytes_per_block:
        rule = f"must not use over {limits.shared_bytes_per_block} bytes of shared memory on {limits.arch}"
        raise RunError(kernel.name, rule, kernel.shared_bytes + dynamic_bytes)
    if registers is not None:
        check_registers(kernel.name, block, registers)
    blocks = prod(grid)
    if step.cooperative and blocks > (most := resident_blocks(kernel, step, limits)):
        raise RunError(kernel.name, f"must have at most {most} blocks, which run at the same time", blocks)
    _check_cluster(kernel, step, limits)


def _check_cluster(kernel: Kernel, step: Step, limits: Limits) -> None:
    """Refuses clusters that text and plan disagree on, that the device does not have, or that do not fill the grid."""
    if step.cluster != kernel.cluster:
        rule = f"must be launched in clusters of {kernel.cluster} blocks, as its __cluster_dims__ says"
        raise RunError(kernel.name, rule, step.cluster)
    if step.cluster == (1, 1, 1):
        return
    if not limits.has_clusters:
        raise RunError(kernel.name, "must not be launched in clusters, which begin with sm_90", limits.arch)
    if prod(step.cluster) > MAX_CLUSTER:
        raise RunError(kernel.name, f"must have at most {MAX_CLUSTER} blocks in a cluster", step.cluster)
    if any(blocks % size for blocks, size in zip(step.grid, step.cluster, strict=True)):
        rule = f"must be launched with a grid of whole clusters of {step.cluster} blocks"
        raise RunError(kernel.name, rule, step.grid)
