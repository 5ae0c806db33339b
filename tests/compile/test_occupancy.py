"""Occupancy is what NVIDIA's own calculator says, in every field, on every architecture of the table."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gen.arch import (
    KNOWN,
    MAX_REGISTERS_PER_THREAD,
    STATIC_SHARED_BYTES,
    WARP,
    Limits,
    max_registers_per_thread,
)
from gen.toolchain.headers import headers_folder
from gen.toolchain.occupancy import Occupancy, bytes_in_flight, occupancy

NO_LIMIT = 2**31 - 1  # INT_MAX

# Shared memory of a multiprocessor in KiB, and threads: from the table "Compute Capabilities", not from gen.
DEVICES = {
    "sm_70": (96, 2048), "sm_75": (64, 1024), "sm_80": (164, 2048), "sm_86": (100, 1536), "sm_87": (164, 1536),
    "sm_89": (100, 1536), "sm_90": (228, 2048), "sm_100": (228, 2048), "sm_103": (228, 2048), "sm_110": (228, 1536),
    "sm_120": (100, 1536), "sm_121": (100, 1536),
}  # fmt: skip
LIMITS = {arch: Limits.of(arch) for arch in DEVICES}

CALCULATOR = """\
#include <cuda_occupancy.h>

extern "C" int calculate(int major, int minor, int threads_per_sm, int shared_per_sm, int reserved, int registers,
                         int static_shared, int dynamic_shared, int threads, int* out) {
  cudaOccDeviceProp device;
  device.computeMajor = major;
  device.computeMinor = minor;
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = threads_per_sm;
  device.regsPerBlock = 65536;
  device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 * 1024;
  device.sharedMemPerMultiprocessor = shared_per_sm;
  device.numSms = 1;
  device.sharedMemPerBlockOptin = shared_per_sm - reserved;
  device.reservedSharedMemPerBlock = reserved;
  cudaOccFuncAttributes kernel;
  kernel.maxThreadsPerBlock = 1024;
  kernel.numRegs = registers;
  kernel.sharedSizeBytes = static_shared;
  kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
  kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  kernel.maxDynamicSharedSizeBytes = dynamic_shared;
  kernel.numBlockBarriers = 1;
  cudaOccDeviceState state;
  cudaOccResult found;
  const int status =
      cudaOccMaxActiveBlocksPerMultiprocessor(&found, &device, &kernel, &state, threads, dynamic_shared);
  const int fields[] = {found.activeBlocksPerMultiprocessor, (int)found.limitingFactors, found.blockLimitRegs,
                        found.blockLimitSharedMem, found.blockLimitWarps, found.blockLimitBlocks,
                        found.allocatedRegistersPerBlock, (int)found.allocatedSharedMemPerBlock,
                        found.blockLimitBarriers, found.blockLimitVirtual};
  for (int i = 0; i < 10; ++i) out[i] = fields[i];
  return status;
}
"""
FACTORS = {0x01: "threads", 0x02: "registers", 0x04: "shared memory", 0x08: "blocks"}
BARRIERS = 0x10


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """NVIDIA's calculator, compiled with g++."""
    headers = headers_folder()
    assert (headers / "cuda_occupancy.h").is_file(), (
        f"{headers} has no cuda_occupancy.h; it comes with: pip install 'nvidia-cuda-runtime==13.0.*'"
    )
    folder: Path = tmp_path_factory.mktemp("calculator")
    (folder / "calculator.cpp").write_text(CALCULATOR, encoding="utf-8")
    subprocess.run(
        ["g++", "-shared", "-fPIC", "-O1", f"-I{headers}", "-o", folder / "calculator.so", folder / "calculator.cpp"],
        check=True,
    )
    return ctypes.CDLL(str(folder / "calculator.so")).calculate


def ours(arch: str, registers: int, static_shared: int, dynamic_shared: int, threads: int) -> Occupancy:
    return occupancy(
        LIMITS[arch], registers=registers, static_shared_bytes=static_shared, dynamic_shared_bytes=dynamic_shared,
        threads_per_block=threads,
    )  # fmt: skip


def nvidias(calculator: Any, arch: str, *kernel: int) -> tuple[int, ...]:
    number = int(arch.removeprefix("sm_"))
    shared, threads_per_sm = DEVICES[arch]
    reserved = 1024 if number >= 80 else 0
    out = (ctypes.c_int * 10)()
    assert calculator(number // 10, number % 10, threads_per_sm, shared * 1024, reserved, *kernel, out) == 0
    return tuple(out)


def compare(calculator: Any, arch: str, *kernel: int) -> None:
    found = ours(arch, *kernel)
    blocks, factors, *rest, barriers, virtual = nvidias(calculator, arch, *kernel)
    here = f"{arch}, {kernel}"
    assert found.blocks == blocks, here
    assert set(found.limiters) == {word for bit, word in FACTORS.items() if factors & bit}, here
    assert [
        NO_LIMIT if found.by_registers is None else found.by_registers,
        NO_LIMIT if found.by_shared_memory is None else found.by_shared_memory,
        found.by_threads,
        found.by_blocks,
        found.registers_per_block,
        found.shared_bytes_per_block,
    ] == rest, here
    warps = -(-kernel[3] // WARP)
    assert found.warps == blocks * warps, here
    assert found.fraction == blocks * warps / (DEVICES[arch][1] // WARP), here
    # With one barrier a block, barriers limit nothing that the number of blocks does not.
    assert barriers >= found.by_blocks, here
    assert not factors & BARRIERS or "blocks" in found.limiters, here
    assert virtual == NO_LIMIT, here


@settings(max_examples=10 * settings().max_examples)
@given(
    registers=st.integers(0, 260) | st.sampled_from((16, 24, 32, 40, 48, 64, 128, 255)),
    static_shared=st.integers(0, STATIC_SHARED_BYTES) | st.sampled_from((0, 128, 1024, 32768)),
    dynamic_shared=st.just(0) | st.integers(0, 240 * 1024),
    threads=st.integers(1, 1100) | st.sampled_from((32, 64, 128, 256, 512, 1024)),
)
@example(registers=0, static_shared=0, dynamic_shared=0, threads=1)
@example(registers=255, static_shared=0, dynamic_shared=0, threads=256)
@example(registers=32, static_shared=0, dynamic_shared=227 * 1024, threads=1024)
@example(registers=32, static_shared=1, dynamic_shared=227 * 1024, threads=1024)
def test_every_field_is_nvidias(
    calculator: Any, registers: int, static_shared: int, dynamic_shared: int, threads: int
) -> None:
    for arch in DEVICES:
        compare(calculator, arch, registers, static_shared, dynamic_shared, threads)


def test_every_architecture_of_the_table_is_compared() -> None:
    assert [known.arch for known in KNOWN] == list(DEVICES)
    for arch, (shared, threads) in DEVICES.items():
        found = LIMITS[arch]
        assert (found.shared_bytes_per_multiprocessor, found.threads_per_multiprocessor) == (shared * 1024, threads)


@given(warps=st.integers(1, 64))
def test_a_thread_gets_the_most_registers_with_which_its_warps_are_resident(warps: int) -> None:
    most = max_registers_per_thread(warps)
    roomy = replace(LIMITS["sm_90"], blocks_per_multiprocessor=64)

    def resident(registers: int) -> int | None:
        return occupancy(
            roomy, registers=registers, static_shared_bytes=0, dynamic_shared_bytes=0, threads_per_block=WARP
        ).by_registers

    assert (resident(most) or 0) >= warps
    assert most == MAX_REGISTERS_PER_THREAD or (resident(most + 1) or 0) < warps


def test_the_limiter_is_said_in_words() -> None:
    assert ours("sm_90", 32, 0, 0, 1024).limiter == "registers and threads"
    assert ours("sm_90", 33, 0, 0, 1024).limiter == "registers"
    assert ours("sm_90", 16, 0, 200_000, 128).limiter == "shared memory"
    assert ours("sm_90", 16, 0, 0, 32).limiter == "blocks"
    nothing = ours("sm_75", 16, 0, 70_000, 128)
    assert (nothing.blocks, nothing.warps, nothing.fraction, nothing.limiter) == (0, 0, 0.0, "shared memory")


def test_bytes_in_flight_are_those_of_all_resident_threads() -> None:
    assert bytes_in_flight(64, 1024, 2) == 131072
    assert bytes_in_flight(0, 1024, 2) is None
