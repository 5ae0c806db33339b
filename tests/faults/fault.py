"""What a planted fault is, and how most of the kernels begin: a thread's place, and a tile in shared memory."""

from __future__ import annotations

from dataclasses import dataclass

from gen.proof import native


@dataclass(frozen=True)
class Planted:
    """A kernel `(const float* in, float* out, float* scratch, int n)` with a fault, and the same without.

    Attributes:
        kind: what the fault must be called.
        faulty: the body with the fault, in the line that ends in `// here`.
        clean: the body without.
        buffer: the buffer the fault must name.
        threads: of a block; the grid covers 100 elements.
        before: what stands before the kernel.
        steps: of all threads of a launch together, after which it is given up.
    """

    name: str
    kind: str
    faulty: str
    clean: str
    buffer: str = ""
    threads: int = 64
    shared_bytes: int = 0
    before: str = ""
    steps: int = native.ANY_STEPS


INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
GUARD = INDEX + "if (i >= n) return;\n"
TILE = "__shared__ float tile[64];\n" + INDEX
