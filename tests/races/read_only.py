"""Reads on the read-only path, or as const, of what the kernel writes all the same."""

from __future__ import annotations

from tests.races.race import HEAD, INDEX, Planted, last_block

PLANTED = (
    Planted("partials_by_ldg", "read-only path", "part",
            last_block(read="out[threadIdx.x] = __ldg(part + threadIdx.x);  // here"), last_block(), "written by"),
    Planted("own_element_by_ldg", "read-only path", "part",
            INDEX + "part[i] = in[i];\nout[i] = __ldg(part + i);  // here",
            INDEX + "part[i] = in[i];\nout[i] = __ldcs(part + i) + __ldg(in + i);"),
    Planted("ldg_before_the_write", "read-only path", "part",
            INDEX + "atomicExch(part + i, 1.0f);  // here\nout[i] = __ldg(part + i);  // here",
            INDEX + "part[i] = in[i];\nout[i] = __ldg(in + i);"),
    Planted("written_though_const_restrict", "read-only path", "part",
            INDEX + "((float*)part)[i] = in[i];  // here", INDEX + "((float*)part)[i] = in[i];",
            head=HEAD.replace("float* part", "const float* __restrict__ part")),
    Planted("written_though_const", "write to input", "part",
            INDEX + "((float*)part)[i] = in[i];  // here", INDEX + "((float*)part)[i] = in[i];",
            head=HEAD.replace("float* part", "float const * part")),
    Planted("const_restrict_beside_a_writer", "read-only path", "part",
            INDEX + "part[i] = in[i];\nout[i] = again[i];  // here", INDEX + "part[i] = in[i];\nout[i] = again[i];",
            head=HEAD.replace("int n", "const float* __restrict__ again, int n"),
            clean_head=HEAD.replace("int n", "const float* again, int n"), again=True),
)  # fmt: skip
