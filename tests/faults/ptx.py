"""Faults of loads, stores and cache policies in PTX: of what the text of an instruction says."""

from __future__ import annotations

from tests.faults.fault import GUARD, INDEX, TILE, Planted


def load(name: str, to: str, source: str, *, memory: bool = False) -> str:
    """Loads a float by the instruction of this name."""
    clobbers = ' : "memory"' if memory else ""
    return f'asm volatile("{name} %0, [%1];" : "=f"({to}) : "l"({source}){clobbers});'


def store(to: str, value: str, name: str = "st.global.f32", vector: str = "%1") -> str:
    """Stores operands of four bytes by the instruction of this name."""
    return f'asm volatile("{name} [%0], {vector};" ::"l"({to}), {value} : "memory");'


FOUR = '"f"(1.0f), "f"(2.0f), "f"(3.0f), "f"(4.0f)'
VECTOR = "{ %1, %2, %3, %4 }"
ZEROED = INDEX + "if (i >= 24) return;\nfor (int k = 0; k < 4; ++k) out[4 * i + k] = 0.0f;\n"
WORDS, PAIR = '"l"(1ull), "l"(2ull)', "{ %1, %2 }"
WRITTEN = GUARD + "float x;\nout[i] = in[i];\n"
POLICY = 'unsigned long long policy = 1;\nasm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));\n'
HINTED = 'asm("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(x) : "l"(in + i), "l"(policy));'
LINES = INDEX + "const size_t line = (reinterpret_cast<size_t>(in) + 127) / 128 * 128;\n"
PRIORITY = 'asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"({}) : "memory");'

PLANTED = (
    Planted("ptx_read_only_load_of_what_is_written", "read-only path",
            WRITTEN + load("ld.global.nc.f32", "x", "out + i", memory=True) + "  // here",
            WRITTEN + load("ld.global.f32", "x", "out + i", memory=True) + "\nout[i] = x;", "out"),
    Planted("ptx_load_that_the_compiler_may_move", "read-only path",
            WRITTEN + load("ld.global.f32", "x", "out + i") + "  // here",
            GUARD + "float x;\n" + load("ld.global.f32", "x", "in + i") + "\nout[i] = x;", "out"),
    Planted("ptx_load_past_the_end", "out-of-bounds read",
            GUARD + "float x;\n" + load("ld.global.f32", "x", "in + i + 1") + "  // here\nout[i] = x;",
            GUARD + "float x;\n" + load("ld.global.f32", "x", "in + i") + "\nout[i] = x;", "in"),
    Planted("ptx_store_past_the_end", "out-of-bounds write",
            INDEX + store("out + i", '"f"(1.0f)') + "  // here", GUARD + store("out + i", '"f"(1.0f)'), "out"),
    Planted("ptx_vector_store_misaligned", "misaligned",
            INDEX + "if (i < 24) " + store("out + i", FOUR, "st.global.v4.f32", VECTOR) + "  // here",
            INDEX + "if (i < 24) " + store("out + 4 * i", FOUR, "st.global.v4.f32", VECTOR), "out"),
    Planted("ptx_atomic_vector_store_misaligned", "misaligned",
            ZEROED + store("out + 4 * i + 2", WORDS, "st.relaxed.gpu.global.v2.u64", PAIR) + "  // here",
            ZEROED + store("out + 4 * i", WORDS, "st.relaxed.gpu.global.v2.u64", PAIR), "out"),
    Planted("ptx_store_into_another_threads_vector", "race",
            INDEX + "if (i < 24) " + store("out + i / 2 * 4", FOUR, "st.global.v4.f32", VECTOR) + "  // here",
            INDEX + "if (i < 24) " + store("out + 4 * i", FOUR, "st.global.v4.f32", VECTOR), "out"),
    Planted("ptx_store_that_names_global_memory_to_shared_memory", "operand",
            TILE + store("&tile[threadIdx.x]", '"f"(1.0f)') + "  // here",
            TILE + "if (i < n) " + store("out + i", '"f"(1.0f)'), "tile"),
    Planted("ptx_load_that_names_global_memory_from_local_memory", "operand",
            GUARD + "float x;\nconst float mine[2] = {in[i], 1.0f};\n"
            + load("ld.global.f32", "x", "mine + i % 2") + "  // here\nout[i] = x;",
            GUARD + "float x;\n" + load("ld.global.f32", "x", "in + i % 2") + "\nout[i] = x;"),
    Planted("ptx_policy_that_nothing_has_made", "operand",
            GUARD + "float x;\nconst unsigned long long policy = 1;\n" + HINTED + "  // here\nout[i] = x;",
            GUARD + "float x;\n" + POLICY + HINTED + "\nout[i] = x;"),
    Planted("ptx_priority_of_half_a_line", "misaligned", LINES + PRIORITY.format("line + 64") + "  // here",
            LINES + PRIORITY.format("line"), "in"),
    Planted("ptx_priority_of_no_buffer", "operand",
            LINES + PRIORITY.format("line + 128 * static_cast<size_t>(n)") + "  // here",
            LINES + PRIORITY.format("line")),
)  # fmt: skip
