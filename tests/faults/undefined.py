"""What C++ leaves undefined: overflow, indices, division, conversion, shifts, no return, a stack that is too small."""

from __future__ import annotations

from tests.faults.fault import GUARD, Planted

PLANTED = (
    Planted("index_overflows", "signed overflow", GUARD + "out[i] = in[(n * 50000000) % 2];  // here",
            GUARD + "out[i] = in[(n * 50000000LL) % 2];"),
    Planted("column_past_its_row", "index",
            "__shared__ float tile[64][3];\nfor (int k = 0; k <= 3; ++k) tile[threadIdx.x / 2][k] = 1.0f;  // here",
            "__shared__ float tile[64][3];\nfor (int k = 0; k < 3; ++k) tile[threadIdx.x][k] = 1.0f;"),
    Planted("local_array_overrun", "index",
            GUARD + "float kept[4] = {1.0f, 2.0f, 3.0f, 4.0f};\nfloat* const p = kept;\n"
            "for (int k = 0; k < 4 + i / 99; ++k) p[k] = in[i];  // here\nout[i] = kept[i % 4];",
            GUARD + "float kept[4] = {1.0f, 2.0f, 3.0f, 4.0f};\nfloat* const p = kept;\n"
            "for (int k = 0; k < 4; ++k) p[k] = in[i];\nout[i] = kept[i % 4];"),
    Planted("local_array_read_past_the_end", "index",
            GUARD + "const float kept[4] = {in[i], 2.0f, 3.0f, 4.0f};\nconst float* const p = kept;\n"
            "out[i] = p[i % 5];  // here",
            GUARD + "const float kept[4] = {in[i], 2.0f, 3.0f, 4.0f};\nconst float* const p = kept;\n"
            "out[i] = p[i % 4];"),
    Planted("divides_by_zero", "division", GUARD + "out[i] = 7 / (n - 100);  // here", GUARD + "out[i] = 7 / n;"),
    Planted("float_to_int_out_of_range", "conversion", GUARD + "out[i] = in[int(in[i] * 1e9f) % 2];  // here",
            GUARD + "out[i] = in[(long long)(in[i] * 1e9f) % 2];"),
    Planted("nan_to_int", "conversion", GUARD + "out[i] = int(sqrtf(-in[i] - 1.0f));  // here",
            GUARD + "out[i] = int(sqrtf(in[i] + 1.0f));"),
    Planted("shifts_too_far", "shift", GUARD + "out[i] = 1u << (n - 50);  // here",
            GUARD + "out[i] = 1u << (n % 32);"),
    Planted("returns_nothing", "no return", GUARD + "out[i] = sign(in[i] - 50.0f);", GUARD + "out[i] = sign(in[i]);",
            before="__device__ float sign(float x) {  // here\nif (x >= 0.0f) return 1.0f;  // here\n}  // here\n"),
    Planted("recursion_without_end", "stack overflow", GUARD + "out[i] = deep(i);",
            GUARD + "out[i] = deep(0);",
            before="__device__ __noinline__ int deep(int n) {  // here\nvolatile int kept = n;  // here\n"
            "return kept == 0 ? 0 : deep(kept + 1) + kept;  // here\n}\n"),
    Planted("array_larger_than_the_stack", "stack overflow", GUARD + "out[i] = wide<90000>(i);",
            GUARD + "out[i] = wide<900>(i);",
            before="template <int n>\n__device__ __noinline__ float wide(int i) {  // here\n"
            "volatile float kept[n];  // here\nkept[i] = 1.0f;  // here\nreturn kept[i];\n}\n"),
)  # fmt: skip
