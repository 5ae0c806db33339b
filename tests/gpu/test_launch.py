"""What an emitted file ends with, `launch`, computes what it says, in a program that nvcc makes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from gen.emit.render import render
from gen.families import FAMILIES
from gen.families.names import find_variant
from gen.toolchain.headers import find_program

PROGRAM = Path(__file__).parent / "launch.cu"
VARIANTS = {
    "sum": "reduction_sum_f32__grid_tpb512_u8_v16_bpm2",
    "transpose": "transpose_10_b32__tiled_t16_r16_p1_u4_dyn",
    "heat": "stencil_heat_de794a2b_f32__temporal_v1_r12_n1_t12",
    "naive": "stencil_heat_de794a2b_f32__naive_x32_y8_u1",
}


def test_a_program_that_calls_launch_computes_what_the_files_say(tmp_path: Path) -> None:
    """A sum twice, a transpose, and as many steps of a stencil by fused launches as one by one."""
    nvcc = find_program("nvcc")
    assert nvcc is not None, "nvcc is not installed"
    for file, name in VARIANTS.items():
        (tmp_path / f"{file}.cu").write_text(render(find_variant(FAMILIES, name, {})))
    names = [f"-D{file.upper()}={name}" for file, name in VARIANTS.items()]
    program = tmp_path / "program"
    built = subprocess.run(
        [nvcc, "-arch=native", "-std=c++17", "-I", tmp_path, *names, "-o", program, PROGRAM],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    said = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(said) == 10
    assert all(line.endswith(": 0 wrong") for line in said), ran.stdout
