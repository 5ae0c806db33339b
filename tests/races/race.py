"""What a planted race is, and the kernel most have: the block that comes last reads what all have written."""

from __future__ import annotations

from dataclasses import dataclass

BLOCKS = 4
HEAD = "(const float* in, float* out, float* part, unsigned* flag, int n)"


@dataclass(frozen=True)
class Planted:
    """A kernel of 4 blocks of 64 threads with a fault in a line that ends in `// here`, and the same without.

    Attributes:
        says: what the report must hold beside the line.
        head: its parameters, and of the clean twin where they differ.
        again: `part` is passed a second time.
        runs: how often the clean twin runs; once where it leaves flags behind.
        blocks: of the grid.
    """

    name: str
    kind: str
    buffer: str
    faulty: str
    clean: str
    says: str = ""
    head: str = HEAD
    clean_head: str = ""
    again: bool = False
    runs: int = 2
    blocks: int = BLOCKS


INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"


def last_block(
    write: str = "part[blockIdx.x] = in[i];", before: str = "__threadfence();",
    ticket: str = "last = atomicInc(flag, gridDim.x - 1) == gridDim.x - 1;", after: str = "__threadfence();",
    late: str = "", read: str = "out[threadIdx.x] = __ldcg(part + threadIdx.x);",
) -> str:  # fmt: skip
    """A sum over blocks in one launch: the block that comes last reads what all have written."""
    return f"""{INDEX}__shared__ bool last;
if (threadIdx.x == 0) {{
{write}
{before}
{ticket}
{after}
}}
__syncthreads();
if (!last) return;
{late}
if (threadIdx.x < gridDim.x)
{read}
"""
