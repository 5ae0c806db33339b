"""Faults of asynchronous copies: what is in flight is read or written, or cannot be copied."""

from __future__ import annotations

from tests.faults.fault import INDEX, Planted

RING = "__shared__ __align__(16) float ring[2][64];\n" + INDEX + "if (i >= 64) return;\nconst int t = threadIdx.x;\n"
BEFORE = """
__device__ unsigned shared_address(const void* place) { return static_cast<unsigned>(__cvta_generic_to_shared(place)); }
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLater>
__device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory"); }
"""


def copy(to: str, source: str, size: int = 4, operator: str = "ca", read: int | None = None) -> str:
    """Begins a copy of so many bytes, of which it reads so many."""
    operands = f'"r"(shared_address({to})), "l"({source})' + ("" if read is None else f', "r"({read})')
    sizes = f"{size}" + ("" if read is None else ", %2")
    return f'asm volatile("cp.async.{operator}.shared.global [%0], [%1], {sizes};" ::{operands} : "memory");'


ONE = copy("&ring[0][t]", "in + i")
COPY = RING + ONE + "\ncommit();\n"
COPY_MORE = copy("&ring[1][t]", "in + i") + "\ncommit();\n"
WAIT_ALL = 'asm volatile("cp.async.wait_all;" ::: "memory");\n'
OVERWRITTEN = RING + "scratch[i] = in[i];\n" + copy("&ring[0][t]", "scratch + i")
OF_NEIGHBOUR = "__syncthreads();\nscratch[63 - i] = -1.0f;\n"
FOUR_AT_ONCE = RING + "if (t % 4) return;\n"
SHOW_FOUR = "\ncommit();\nwait<0>();\nfor (int k = 0; k < 4; ++k) out[i + k] = ring[0][t + k];"


def planted(name: str, kind: str, faulty: str, clean: str, buffer: str = "", before: str = BEFORE) -> Planted:
    return Planted(f"copy_{name}", kind, faulty, clean, buffer, before=before)


PLANTED = (
    planted("read_before_it_is_waited_for", "copy in flight", COPY + "wait<1>();\nout[i] = ring[0][t];  // here",
            COPY + "wait<0>();\nout[i] = ring[0][t];"),
    planted("of_a_later_group", "copy in flight", COPY + COPY_MORE + "wait<1>();\nout[i] = ring[1][t];  // here",
            COPY + COPY_MORE + "wait<1>();\nout[i] = ring[0][t];"),
    planted("that_is_in_no_group", "copy in flight",
            COPY + copy("&ring[1][t]", "in + i") + "\nwait<0>();\nout[i] = ring[1][t];  // here",
            COPY + copy("&ring[1][t]", "in + i") + "\n" + WAIT_ALL + "out[i] = ring[1][t];"),
    planted("into_what_is_being_copied", "copy in flight", COPY + ONE + "  // here", COPY + "wait<0>();\n" + ONE),
    planted("while_its_place_is_written", "copy in flight", COPY + "ring[0][t] = 1.0f;  // here",
            COPY + "wait<0>();\nring[0][t] = 1.0f;"),
    planted("of_a_neighbour_that_did_not_wait", "copy in flight",
            COPY + "__syncthreads();\nout[i] = ring[0][63 - t];  // here",
            COPY + "wait<0>();\n__syncthreads();\nout[i] = ring[0][63 - t];"),
    planted("of_half_a_vector", "uninitialised read",
            FOUR_AT_ONCE + copy("&ring[0][t]", "in + i", 8) + SHOW_FOUR + "  // here",
            FOUR_AT_ONCE + copy("&ring[0][t]", "in + i", 16, "cg") + SHOW_FOUR),
    planted("past_the_end", "out-of-bounds read", RING + copy("&ring[0][t]", "in + i + 64") + "  // here",
            RING + copy("&ring[0][t]", "in + i + 32"), "in"),
    planted("past_the_end_of_shared_memory", "out-of-bounds write",
            RING + copy("&ring[1][t] + 4", "in + i") + "  // here", RING + copy("&ring[0][t] + 4", "in + i"), "ring"),
    planted("misaligned", "misaligned", FOUR_AT_ONCE + copy("&ring[0][t]", "in + t + 1", 16) + "  // here",
            FOUR_AT_ONCE + copy("&ring[0][t]", "in + t", 16), "in"),
    planted("to_a_misaligned_place", "misaligned", FOUR_AT_ONCE + copy("&ring[0][t + 2]", "in + t", 16) + "  // here",
            FOUR_AT_ONCE + copy("&ring[0][t]", "in + t", 16), "ring"),
    planted("that_reads_more_than_it_writes", "operand",
            RING + copy("&ring[0][t]", "in + i", read=8) + "  // here", RING + copy("&ring[0][t]", "in + i", read=4)),
    planted("to_global_memory", "operand", RING + copy("out + i", "in + i") + "  // here", RING + ONE, "out",
            before=BEFORE.replace("}\n", "}  // here\n", 1)),
    planted("to_no_address_of_shared_memory", "operand",
            RING + ONE.replace("shared_address(&ring[0][t])", "16u * t") + "  // here", RING + ONE),
    planted("from_shared_memory", "operand",
            RING + "ring[1][t] = 1.0f;\n" + copy("&ring[0][t]", "&ring[1][t]") + "  // here",
            RING + "ring[1][t] = 1.0f;\n" + ONE),
    planted("from_local_memory", "operand",
            RING + "const float mine[2] = {in[t], 1.0f};\n" + copy("&ring[0][t]", "mine + t % 2") + "  // here",
            RING + copy("&ring[0][t]", "in + t % 2")),
    planted("of_what_is_overwritten", "copy in flight",
            OVERWRITTEN + "  // here\ncommit();\nscratch[i] = -1.0f;\nwait<0>();",
            OVERWRITTEN + "\ncommit();\nwait<0>();\nscratch[i] = -1.0f;", "scratch"),
    planted("of_what_a_neighbour_overwrites", "copy in flight",
            OVERWRITTEN + "  // here\ncommit();\n" + OF_NEIGHBOUR + "__syncthreads();\nwait<0>();",
            OVERWRITTEN + "\ncommit();\nwait<0>();\n" + OF_NEIGHBOUR, "scratch"),
)  # fmt: skip
