"""Faults of asynchronous copies: what is in flight is read or written, or cannot be copied."""

from __future__ import annotations

from tests.faults.fault import INDEX, Planted

RING = "__shared__ __align__(16) float ring[2][64];\n" + INDEX + "if (i >= 64) return;\nconst int t = threadIdx.x;\n"
COPY = RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);\n__pipeline_commit();\n"
COPY_MORE = "__pipeline_memcpy_async(&ring[1][t], in + i, 4);\n__pipeline_commit();\n"

PLANTED = (
    Planted("copy_read_before_it_is_waited_for", "copy in flight", COPY + "out[i] = ring[0][t];  // here",
            COPY + "__pipeline_wait_prior(0);\nout[i] = ring[0][t];"),
    Planted("copy_of_a_later_group", "copy in flight",
            COPY + COPY_MORE + "__pipeline_wait_prior(1);\nout[i] = ring[1][t];  // here",
            COPY + COPY_MORE + "__pipeline_wait_prior(1);\nout[i] = ring[0][t];"),
    Planted("copy_that_is_in_no_group", "copy in flight",
            COPY + "__pipeline_memcpy_async(&ring[1][t], in + i, 4);\n__pipeline_wait_prior(0);\n"
            "out[i] = ring[1][t];  // here",
            COPY + COPY_MORE + "__pipeline_wait_prior(0);\nout[i] = ring[1][t];"),
    Planted("copy_into_what_is_being_copied", "copy in flight",
            COPY + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);  // here",
            COPY + "__pipeline_wait_prior(0);\n__pipeline_memcpy_async(&ring[0][t], in + i, 4);"),
    Planted("write_into_what_is_being_copied", "copy in flight", COPY + "ring[0][t] = 1.0f;  // here",
            COPY + "__pipeline_wait_prior(0);\nring[0][t] = 1.0f;"),
    Planted("copy_of_a_neighbour_that_did_not_wait", "copy in flight",
            COPY + "__syncthreads();\nout[i] = ring[0][63 - t];  // here",
            COPY + "__pipeline_wait_prior(0);\n__syncthreads();\nout[i] = ring[0][63 - t];"),
    Planted("copy_past_the_end", "out-of-bounds read",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i + 64, 4);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i + 32, 4);", "in"),
    Planted("copy_misaligned", "misaligned",
            RING + "if (t < 8) __pipeline_memcpy_async(&ring[0][4 * t], in + t + 1, 16);  // here",
            RING + "if (t < 8) __pipeline_memcpy_async(&ring[0][4 * t], in + 4 * t, 16);", "in"),
    Planted("copy_of_three_bytes", "copy",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 3);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);"),
    Planted("copy_to_global_memory", "copy", RING + "__pipeline_memcpy_async(out + i, in + i, 4);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + i, 4);", "out"),
    Planted("copy_from_shared_memory", "copy",
            RING + "ring[1][t] = 1.0f;\n__pipeline_memcpy_async(&ring[0][t], &ring[1][t], 4);  // here",
            RING + "ring[1][t] = 1.0f;\n__pipeline_memcpy_async(&ring[0][t], in + i, 4);"),
    Planted("copy_of_a_local_array", "copy",
            RING + "const float mine[2] = {in[t], 1.0f};\n"
            "__pipeline_memcpy_async(&ring[0][t], mine + t % 2, 4);  // here",
            RING + "__pipeline_memcpy_async(&ring[0][t], in + t % 2, 4);"),
    Planted("copy_of_what_is_overwritten", "copy in flight",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);  // here\n"
            "__pipeline_commit();\nscratch[i] = -1.0f;\n__pipeline_wait_prior(0);",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);\n"
            "__pipeline_commit();\n__pipeline_wait_prior(0);\nscratch[i] = -1.0f;", "scratch"),
    Planted("copy_of_what_a_neighbour_overwrites", "copy in flight",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);  // here\n"
            "__pipeline_commit();\n__syncthreads();\nscratch[63 - i] = -1.0f;\n__syncthreads();\n"
            "__pipeline_wait_prior(0);",
            RING + "scratch[i] = in[i];\n__pipeline_memcpy_async(&ring[0][t], scratch + i, 4);\n"
            "__pipeline_commit();\n__pipeline_wait_prior(0);\n__syncthreads();\nscratch[63 - i] = -1.0f;", "scratch"),
)  # fmt: skip
