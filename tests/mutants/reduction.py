"""Changes to the templates of the reductions."""

from __future__ import annotations

from gen.proof.failures import AGAIN, UNTOUCHED, WRONG
from tests.mutants.change import (
    ABSENT,
    BARRIER,
    INDEX,
    OUTSIDE_READ,
    OUTSIDE_WRITE,
    OVERFLOW,
    RACE,
    REFUSED,
    UNINITIALISED,
    Mutant,
    Unchanged,
)

BLOCK = "_block.cu.jinja"
STATE = "reduction/_state.cu.jinja"
SHARE = "reduction/_share.cu.jinja"
GRID = "reduction/grid.cu.jinja"
SECOND = "reduction/_second_pass.cu.jinja"
FLAGS = "reduction/flags.cu.jinja"
HANDING = "reduction/_handing.cu.jinja"
INTERLEAVED = "reduction/interleaved.cu.jinja"
SHFL = "reduction/shfl.cu.jinja"

ON_GRID = "reduction_sum_f32__grid_tpb128_u4_v16_bpm2"
ON_PAIRS = "reduction_sum_f32__grid_tpb128_u4_v8_bpm2"  # only an empty array ends before its first vector
ON_SINGLES = "reduction_sum_f32__grid_tpb128_u4_v4_bpm2"  # more than 2^15 vectors
ON_SECOND = "reduction_sum_f32__grid_tpb128_u8_v16_bpm2_secondpass"
ON_SECOND_OF_ROWS = "reduction_sum_f32_axis1__grid_tpb128_u8_v16_bpm8_secondpass"
ON_FLAGS = "reduction_sum_f32__flags_tpb128_u4_v16_bpm2"
ON_GRID_OF_ROWS = "reduction_sum_f32_axis1__grid_tpb128_u4_v16_bpm2"
ON_FLAGS_OF_ROWS = "reduction_sum_f32_axis1__flags_tpb128_u4_v16_bpm2"
ON_INTERLEAVED = "reduction_sum_f32__interleaved_tpb128_u4"
ON_WIDE = "reduction_sum_f32__interleaved_tpb512_u8"
ON_SHFL = "reduction_sum_f32__shfl_tpb128_u2"

TAKEN_AS_CONST = "const State* __restrict__ partials,{{ counted }} long long n) {"
ON_VARIANCE = "reduction_var_f32__flags_tpb128_u8_v16_bpm2"
ON_ROWS_OF_SUMS = "reduction_sum_f32_axis1__rows_tpb128_g8_u4_v16"
VOLATILE = "volatile float* const lanes = data; lanes[i] += lanes[i + stride];"

MUTANTS = (
    # The sum over a warp and a block, which all reductions share.
    Mutant("block sum: no barrier [5]", ON_SHFL, BLOCK, "", "", (RACE, UNINITIALISED), at="barrier"),
    Mutant("block sum: mask of half a warp", ON_SHFL, BLOCK, "0xffffffffu", "0x0000ffffu", ABSENT),
    Mutant("block sum: first distance 8", ON_SHFL, BLOCK, "distance = 16", "distance = 8", WRONG),
    Mutant("block sum: identity 1", ON_SHFL, BLOCK, ": 0.0f);", ": 1.0f);", WRONG),
    Mutant("block sum: all lanes write", ON_SHFL, BLOCK, "if (threadIdx.x % 32 == 0) warp", "warp", RACE),
    Mutant("block sum: warps share a place", ON_SHFL, BLOCK, "[threadIdx.x / 32]", "[0]", RACE),
    Mutant("block sum: place of a half warp", ON_SHFL, BLOCK, "[threadIdx.x / 32]", "[threadIdx.x / 16]", INDEX),
    Mutant("block sum: one warp too many", ON_SHFL, BLOCK, "x < kWarps ?", "x <= kWarps ?", INDEX),
    Mutant("block sum: last warp left out", ON_SHFL, BLOCK, "x < kWarps ?", "x < kWarps - 1 ?", WRONG),
    Mutant(
        "block sum: shuffles in divergent code", ON_SHFL, BLOCK, "if (threadIdx.x < 32)", "if (threadIdx.x < kWarps)",
        ABSENT,
    ),
    Mutant("block sum: warps that do not exist [14]", ON_SHFL, SHFL, "kThreadsPerBlock / 32;", "32;", UNINITIALISED),
    # The second launch, which adds up the blocks' partial results.
    Mutant("finish: one partial too many", ON_SHFL, BLOCK, "i < count", "i <= count", OUTSIDE_READ),
    Mutant("finish: last partial left out", ON_SHFL, BLOCK, "i < count", "i < count - 1", WRONG),
    Mutant("finish: partials added twice", ON_INTERLEAVED, BLOCK, "i += kThreadsPerBlock)", "i += 32)", WRONG),
    Mutant(
        "finish: whole numbers only", ON_SHFL, BLOCK, "float sum = 0.0f;", "int sum = 0;", ("conversion", WRONG),
        at="sum",
    ),
    Mutant("finish: all threads write", ON_SHFL, BLOCK, "if (threadIdx.x == 0) *out", "*out", RACE),
    # The states of a warp and a block, which all reductions but the literature's share.
    Mutant("block: no barrier [5]", ON_GRID, STATE, "", "", (RACE, UNINITIALISED), at="barrier"),
    Mutant(
        "block: first distance 8", ON_GRID, STATE, "kCount / 2; dist", "kCount / 4; dist", WRONG, at="first distance",
    ),
    Mutant("block: one warp too many", ON_GRID, STATE, "x < kWarps ?", "x <= kWarps ?", INDEX),
    Mutant("block: last warp left out", ON_GRID, STATE, "x < kWarps ?", "x < kWarps - 1 ?", WRONG),
    # identities, which only arrays of one value show
    Mutant(
        "min: identity the largest finite number", "reduction_min_f32__grid_tpb128_u4_v16_bpm2", STATE,
        "", "  return 3.402823466e38f;\n", WRONG, at="identity",
    ),
    Mutant(
        "max: identity the least finite number", "reduction_max_f32_axis1__rows_tpb128_g8_u4_v16", STATE,
        "", "  return -3.402823466e38f;\n", WRONG, at="identity",
    ),
    Mutant(
        "min: identity 0", "reduction_min_f64__single_tpb128_u4_v16", STATE,
        "", "  return 0.0;\n", WRONG, at="identity",
    ),
    Mutant(
        "any: identity true", "reduction_any_bool__grid_tpb128_u4_v16_bpm2", STATE,
        "", "  return 1;\n", WRONG, at="identity",
    ),
    Mutant(
        "sum of bytes in 16 bits", "reduction_sum_u8__single_tpb128_u4_v16", STATE,
        "{{ combined(s.parts[0]) }}", "static_cast<unsigned short>({{ combined(s.parts[0]) }})", WRONG, at="combine",
    ),
    # signs, which a bound of more roundings than there are would hide where results are small
    Mutant(
        "moments: the mean moves away", ON_VARIANCE, STATE, "(apart, weights.share, from)",
        "(apart, -weights.share, from)", WRONG,
    ),
    Mutant(
        "moments: squares of one set less those of the other", ON_VARIANCE, STATE,
        "a.m2 + m2", "a.m2 - m2", WRONG,
    ),
    Mutant(
        "moments: squares less those between means", ON_VARIANCE, STATE,
        "(apart * apart, weights", "(-apart * apart, weights", WRONG,
    ),
    Mutant(
        "sum: the other way round", ON_ROWS_OF_SUMS, STATE,
        "{{ combined(s.parts[0]) }}", "a - b", WRONG, at="combine",
    ),
    # grid: heads, tails and guards
    Mutant("grid: tail dropped [1]", ON_GRID, SHARE, "i = first; i < tail;", "i = first; i < 0;", WRONG),
    Mutant("grid: head dropped", ON_GRID, SHARE, "i = first; i < head;", "i = first; i < 0;", WRONG),
    Mutant("grid: vectors from the first element", ON_GRID, SHARE, "(in + head)", "(in)", "misaligned"),
    Mutant("grid: head longer than the array", ON_PAIRS, SHARE, "n < to_first ? n :", "false ? n :", OUTSIDE_READ),
    Mutant("grid: last chain dropped", ON_GRID, SHARE, "= 1; chain < kChains;", "= 1; chain < kChains - 1;", WRONG),
    Mutant("grid: last items of vectors dropped", ON_GRID, SHARE, "0; i < kVecItems;", "0; i < kVecItems - 1;", WRONG),
    Mutant("grid: leftover vectors dropped [1]", ON_GRID, SHARE, "  if (i < vectors) {", "  if (false) {", WRONG),
    Mutant(
        "grid: one vector too many [2]", ON_GRID, SHARE, "if (i + u * team < vectors) loaded",
        "if (i + u * team <= vectors) loaded", OUTSIDE_READ,
    ),
    Mutant("grid: unrolled loop unguarded", ON_GRID, SHARE, "i + (kUnroll - 1) * team < v", "i < v", OUTSIDE_READ),
    Mutant(
        "grid: neighbours, not a stride apart", ON_GRID, SHARE,
        'if (i + u * team < vectors) loaded[u].raw = {{ load_from(load, "body", "i + u * team") }}',
        'if (i + u * team < vectors) loaded[u].raw = {{ load_from(load, "body", "i + u") }}', WRONG,
    ),
    Mutant(
        "grid: blocks read the same", ON_GRID, GRID,
        "kThreadsPerBlock, {{ block }}, {{ blocks }}", "kThreadsPerBlock, 0, {{ blocks }}", WRONG,
    ),
    Mutant("grid: index of 16 bits", ON_SINGLES, SHARE, "  long long i = part", "  short i = part",
           OUTSIDE_READ),
    Mutant("grid: sums begin at 1", ON_GRID, SHARE, "states[chain] = identity();", "states[chain] = 1.0f;", WRONG),
    Mutant(
        "grid: return before a barrier [3]", ON_GRID, GRID, "  const State share",
        "  if (0 < n && n <= threadIdx.x) return;\n  const State share", ABSENT,
    ),
    Mutant(
        "grid: partials as narrow as bfloat16", ON_GRID, GRID, "{{ of_row }}[{{ block }}] = partial;",
        "partials[blockIdx.x] = __uint_as_float(__float_as_uint(partial) & 0xffff0000u);", WRONG,
    ),
    Mutant("grid: vector of the wrong width", ON_GRID, SHARE, '16: "uint4"', '16: "uint2"', REFUSED),
    # grid: the block that comes last
    Mutant("grid: no fence after the partial", ON_GRID, GRID, "", "", RACE, at="partial fence"),
    Mutant(
        "grid: fence of the block only, before the ticket", ON_GRID, GRID, "__threadfence();  // the partial",
        "__threadfence_block();  // the partial", RACE,
    ),
    Mutant(
        "grid: no fence after the ticket", ON_GRID, GRID, "    if (is_last_block) __threadfence();", "   ", RACE,
    ),
    Mutant(
        "grid: both fences after the ticket", ON_GRID, GRID,
        "    __threadfence();  // the partial result is visible before the ticket is counted\n", "", RACE,
        (("    if (is_last_block) __thr", "    __threadfence();\n    if (is_last_block) __thr"),),
    ),
    Mutant(
        "grid: fence of the block only, after the ticket", ON_GRID, GRID, "if (is_last_block) __threadfence();",
        "if (is_last_block) __threadfence_block();", RACE,
    ),
    Mutant(
        "grid: fence after the barrier", ON_GRID, GRID, "    if (is_last_block) __threadfence();", "   ", RACE,
        (("return;\n\n  State total", "return;\n\n  __threadfence();\n  State total"),),
    ),
    Mutant(
        "grid: plain counter", ON_GRID, GRID, "atomicInc({{ ticket }}, {{ blocks }} - 1)",
        "(*ticket = (*ticket + 1) % gridDim.x, (*ticket + gridDim.x - 1) % gridDim.x)", RACE,
    ),
    Mutant(
        "grid: counter not reset", ON_GRID, GRID, "atomicInc({{ ticket }}, {{ blocks }} - 1)", "atomicAdd(ticket, 1)",
        AGAIN,
    ),
    Mutant(
        "grid: counter wraps one late", ON_GRID, GRID, "atomicInc({{ ticket }}, {{ blocks }} - 1)",
        "atomicInc(ticket, gridDim.x)", AGAIN,
    ),
    Mutant(
        "grid: last but one takes itself for last", ON_GRID, GRID, ") == {{ blocks }} - 1;", ") == {{ blocks }} - 2;",
        (UNINITIALISED, RACE),
    ),
    Mutant("grid: all blocks finish", ON_GRID, GRID, "", "", (UNINITIALISED, RACE), at="last block"),
    Mutant("grid: no barrier after the ticket", ON_GRID, GRID, "", "", (UNINITIALISED, RACE), at="ticket barrier"),
    Mutant(
        "grid: barrier in divergent code [3]", ON_GRID, GRID, "",
        "    partials[blockIdx.x] = partial;\n    __syncthreads();\n", BARRIER, at="leave partial",
    ),
    Mutant("grid: partials by the read-only path", ON_GRID, STATE, "return __ldcg(", "return __ldg(", "read-only path"),
    Mutant(
        "grid: partials by the read-only path, in PTX", ON_GRID, STATE, "return __ldcg(partial);",
        'State state;\n  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(state) : "l"(partial) : "memory");\n'
        "  return state;", "read-only path",
    ),
    Mutant(
        "grid: partials by a load that the compiler may move", ON_GRID, STATE, "return __ldcg(partial);",
        'State state;\n  asm("ld.global.f32 %0, [%1];" : "=f"(state) : "l"(partial));\n  return state;',
        "read-only path",
    ),
    Mutant(
        "grid: partials taken as const __restrict__", ON_GRID, GRID,
        "State* partials,{{ counted }} long long n) {",
        f"{TAKEN_AS_CONST}\n#define partials const_cast<float*>(partials)", "read-only path",
    ),
    Mutant(
        "grid: one block takes a ticket too", ON_GRID, GRID, "if ({{ blocks }} == 1) {", "if (false) {",
        OUTSIDE_WRITE, at="one block",
    ),
    # grid: a second launch
    Mutant("second pass: last partial left out", ON_SECOND, SECOND, "split < splits;", "split + 1 < splits;", WRONG),
    Mutant("second pass: one partial too many", ON_SECOND, SECOND, "split < splits;", "split <= splits;", OUTSIDE_READ),
    Mutant("second pass: partials added twice", ON_SECOND, SECOND, "split += kThreadsPerBlock)", "split += 32)", WRONG),
    Mutant("second pass: all rows the first", ON_SECOND_OF_ROWS, SECOND, "result * splits;", "0 * result;", WRONG),
    Mutant("second pass: rows one after another", ON_SECOND_OF_ROWS, SECOND, "result * splits;", "result;", WRONG),
    Mutant("second pass: all threads write", ON_SECOND, SECOND, "if (threadIdx.x == 0) write", "write", RACE),
    Mutant("second pass: one result for all", ON_SECOND_OF_ROWS, SECOND, "(total, n, result,", "(total, n, 0,",
           (RACE, WRONG)),
    Mutant("second pass: all threads leave a partial", ON_SECOND, GRID, "", "", RACE, at="first thread"),
    Mutant("second pass: blocks share a partial", ON_SECOND, GRID, "{{ own }} = partial;", "partials[0] = partial;",
           RACE),
    Mutant("second pass: blocks of rows share partials", ON_SECOND_OF_ROWS, GRID, "{{ own }} = partial;",
           "partials[split] = partial;", RACE),
    Mutant(
        "second pass: one block leaves a partial too", ON_SECOND, GRID, "if ({{ blocks }} > 1) {", "if (true) {",
        OUTSIDE_WRITE, at="shared",
    ),
    # flags: the last block waits for the others
    Mutant("flags: it looks once", ON_FLAGS, HANDING, "[w] >= kThere;", "[w] >= 0;", (WRONG, AGAIN)),
    Mutant("flags: slots stay as they are", ON_FLAGS, HANDING, "0ull);", "kThere);", (WRONG, AGAIN)),
    Mutant("flags: handed over without a flag", ON_FLAGS, HANDING, "kThere | words.words[w]", "words.words[w]", "hang"),
    Mutant(
        "flags: plain stores", ON_FLAGS, HANDING, "atomicExch(slots + w, kThere | words.words[w]);",
        "slots[w] = kThere | words.words[w];", RACE,
    ),
    Mutant("flags: one block too few", ON_FLAGS, FLAGS, "left = (others", "left = -1 + (others", (WRONG, AGAIN)),
    Mutant(
        "flags: the last state left out", ON_FLAGS, FLAGS, "State total = threadIdx.x == 0 ? partial : identity();",
        "State total = identity();", WRONG,
    ),
    Mutant("grid: blocks share a partial", ON_GRID, GRID, "{{ of_row }}[{{ block }}]", "partials[0]", RACE),
    Mutant(
        "grid: partial of the next block", ON_GRID, GRID, "{{ of_row }}[{{ block }}]", "partials[blockIdx.x + 1]",
        OUTSIDE_WRITE,
    ),
    Mutant("grid: last partial left out", ON_GRID, GRID, "block < {{ blocks }};", "block + 1 < {{ blocks }};", WRONG),
    Mutant("grid: one partial too many", ON_GRID, GRID, "block < {{ blocks }};", "block <= {{ blocks }};",
           OUTSIDE_READ),
    Mutant("grid: partials start one late", ON_GRID, GRID, "block = threadIdx.x;", "block = threadIdx.x + 1;", WRONG),
    # interleaved
    Mutant(
        "interleaved: barrier in divergent code [3]", ON_INTERLEAVED, INTERLEAVED,
        "data[i] += data[i + stride];", "{ data[i] += data[i + stride]; __syncthreads(); }", BARRIER, at="pair",
    ),
    Mutant("interleaved: no barrier between steps", ON_INTERLEAVED, INTERLEAVED, "", "", RACE, at="barrier"),
    Mutant("interleaved: no barrier after the fold [5]", ON_INTERLEAVED, INTERLEAVED, "", "", RACE, at="fold barrier"),
    Mutant(
        "interleaved: warps in lock-step [4]", ON_INTERLEAVED, INTERLEAVED, "__syncthreads();",
        "if (stride > 32) __syncthreads();", RACE, at="barrier",
    ),
    Mutant(
        "interleaved: volatile warps in lock-step [4]", ON_INTERLEAVED, INTERLEAVED,
        "data[i] += data[i + stride];", f"{{ {VOLATILE} }}", RACE,
        also=(("__syncthreads();\n  }\n  if", "if (stride > 32) __syncthreads();\n  }\n  if"),), at="pair",
    ),
    Mutant(
        "interleaved: unroll drops the tail [1]", ON_WIDE, INTERLEAVED, "  if (i < left) {",
        "  if (i + (kUnroll - 1) * kThreadsPerBlock < left) {", WRONG,
    ),
    Mutant(
        "interleaved: unroll drops what fills no share [1]", ON_INTERLEAVED, INTERLEAVED,
        "i + u * kThreadsPerBlock < left", "kUnroll * kThreadsPerBlock <= left", WRONG,
    ),
    Mutant(
        "interleaved: off-by-one guard [2]", ON_INTERLEAVED, INTERLEAVED, "i + u * kThreadsPerBlock < left",
        "i + u * kThreadsPerBlock <= left", OUTSIDE_READ,
    ),
    Mutant(
        "interleaved: return before a barrier [3]", ON_INTERLEAVED, INTERLEAVED, "",
        "  const int i = threadIdx.x;\n  if (0 < left && left <= i) return;\n", BARRIER, at="thread",
    ),
    Mutant(
        "interleaved: tree past the end", ON_INTERLEAVED, INTERLEAVED, "i < stride && i + stride < left", "i < stride",
        OUTSIDE_READ,
    ),
    Mutant(
        "interleaved: tree of all threads", ON_INTERLEAVED, INTERLEAVED, "i < stride && i + stride < left",
        "i + stride < left", RACE,
    ),
    Mutant(
        "interleaved: shares overlap", ON_INTERLEAVED, INTERLEAVED, "(blockIdx.x) * kUnroll * kThreadsPerBlock",
        "(blockIdx.x) * kThreadsPerBlock", RACE,
    ),
    Mutant(
        "interleaved: empty array unguarded", ON_INTERLEAVED, INTERLEAVED, "left > 0 ? data[0] : 0.0f", "data[0]",
        OUTSIDE_READ,
    ),
    Mutant("interleaved: identity 1", ON_INTERLEAVED, INTERLEAVED, "data[0] : 0.0f", "data[0] : 1.0f", WRONG),
    Mutant(
        "interleaved: copy drops the last", ON_INTERLEAVED, INTERLEAVED, "i < n; i += stride", "i < n - 1; i += stride",
        UNINITIALISED,
    ),
    Mutant("interleaved: copy without end", ON_INTERLEAVED, INTERLEAVED, "i < n; i += stride", "i < n; i += 0", "hang"),
    Mutant(
        "interleaved: copy goes round once", ON_INTERLEAVED, INTERLEAVED, "i < n; i += stride", "i < n; i += n",
        UNINITIALISED,
    ),
    Mutant(
        "interleaved: block of no power of two", ON_INTERLEAVED, INTERLEAVED,
        "kThreadsPerBlock = {{ threads_per_block }};", "kThreadsPerBlock = {{ threads_per_block }} + 32;", REFUSED,
    ),
    # shfl
    Mutant(
        "shfl: return before a barrier [3]", ON_SHFL, SHFL, "if (i < n) sum += in[i];",
        "if (u == 0 && 0 < n && n <= i) return;\n    if (i < n) sum += in[i];", ABSENT,
    ),
    Mutant("shfl: unguarded", ON_SHFL, SHFL, "if (i < n) sum", "sum", OUTSIDE_READ),
    Mutant("shfl: off-by-one guard [2]", ON_SHFL, SHFL, "if (i < n) sum", "if (i <= n) sum", OUTSIDE_READ),
    Mutant(
        "shfl: unroll drops the tail [1]", ON_SHFL, SHFL, "if (i < n) sum",
        "if (begin + kUnroll * kThreadsPerBlock <= n) sum", WRONG,
    ),
    Mutant(
        "shfl: block sum in divergent code", ON_SHFL, SHFL, "  sum = block_sum(",
        "  if (begin + threadIdx.x < n) sum = block_sum(", ABSENT,
    ),
    Mutant(
        "shfl: works in the caller's array", ON_SHFL, SHFL, "sum += in[i];", "sum = const_cast<float*>(in)[i] += sum;",
        "write to input",
    ),
)  # fmt: skip

# Indices of 32 bits where 64 are needed: found on more than 2^32 elements, of which a few blocks are run.
LARGE = (
    Mutant(
        "grid: where a row begins in 32 bits", ON_GRID_OF_ROWS, GRID, "in + row * pitch",
        "in + static_cast<unsigned>(row * pitch)", OUTSIDE_READ,
    ),
    Mutant(
        "flags: where a row begins in 31 bits", ON_FLAGS_OF_ROWS, FLAGS, "in + row * pitch",
        "in + static_cast<int>(row * pitch)", OUTSIDE_READ,
    ),
    Mutant("grid: i of 31 bits", ON_SINGLES, SHARE, "  long long i = part", "  int i = part", OUTSIDE_READ),
    Mutant("grid: i of 32 bits", ON_SINGLES, SHARE, "  long long i = part", "  unsigned i = part", "hang"),
    Mutant(
        "grid: vectors counted in 31 bits", ON_PAIRS, SHARE, "long long vectors = (n", "int vectors = (n", OVERFLOW,
    ),
    Mutant(
        "grid: tail at an index of 31 bits", ON_GRID, SHARE, "const long long behind =", "const int behind =",
        UNTOUCHED,
    ),
    Mutant(
        "grid: tail at an index of 32 bits", ON_GRID, SHARE, "const long long behind =", "const unsigned behind =",
        UNTOUCHED,
    ),
    Mutant(
        "flags: tail at an index of 32 bits", ON_FLAGS, SHARE, "const long long behind =", "const unsigned behind =",
        UNTOUCHED,
    ),
    Mutant(
        "flags: slots counted in 16 bits", ON_FLAGS, FLAGS, "+ {{ block }} * kWords, partial",
        "+ static_cast<unsigned short>({{ block }} * kWords), partial", "hang",
    ),
    Mutant(
        "interleaved: share begins at 31 bits", ON_INTERLEAVED, INTERLEAVED,
        "static_cast<long long>(blockIdx.x) * kUnroll", "static_cast<int>(blockIdx.x) * kUnroll", OVERFLOW,
    ),
    Mutant(
        "interleaved: share begins at 32 bits", ON_INTERLEAVED, INTERLEAVED,
        "static_cast<long long>(blockIdx.x) * kUnroll", "blockIdx.x * kUnroll", (RACE, UNTOUCHED),
    ),
    Mutant(
        "interleaved: elements left in 31 bits", ON_INTERLEAVED, INTERLEAVED, "long long left =", "int left =",
        UNTOUCHED,
    ),
    Mutant(
        "interleaved: copy in 31 bits", ON_INTERLEAVED, INTERLEAVED, "for (long long i = first;", "for (int i = first;",
        OUTSIDE_READ,
    ),
    Mutant(
        "interleaved: copy in 32 bits", ON_INTERLEAVED, INTERLEAVED, "for (long long i = first;",
        "for (unsigned i = first;", "hang",
    ),
    Mutant(
        "interleaved: copy from 32 bits", ON_INTERLEAVED, INTERLEAVED, "work[i] = in[i];", "work[i] = in[unsigned(i)];",
        WRONG,
    ),
    Mutant(
        "interleaved: copy from and to 32 bits", ON_INTERLEAVED, INTERLEAVED, "work[i] = in[i];",
        "work[unsigned(i)] = in[unsigned(i)];", UNTOUCHED,
    ),
    Mutant(
        "shfl: share begins at 31 bits", ON_SHFL, SHFL, "static_cast<long long>(blockIdx.x)",
        "static_cast<int>(blockIdx.x)", OVERFLOW,
    ),
    Mutant(
        "shfl: share begins at 32 bits", ON_SHFL, SHFL, "static_cast<long long>(blockIdx.x)", "blockIdx.x", UNTOUCHED,
    ),
    Mutant("shfl: index of 31 bits", ON_SHFL, SHFL, "const long long i =", "const int i =", OUTSIDE_READ),
    Mutant("shfl: index of 32 bits", ON_SHFL, SHFL, "const long long i =", "const unsigned i =", UNTOUCHED),
    Mutant("shfl: guard of 31 bits", ON_SHFL, SHFL, "if (i < n) sum", "if (i < int(n)) sum", UNTOUCHED),
)  # fmt: skip

UNCHANGED = (
    Unchanged(
        "grid: a tile counted in 31 bits", ON_GRID, SHARE, "static_cast<long long>(team) * kUnroll", "team * kUnroll",
        "a tile is 8192 vectors at most",
    ),
    Unchanged(
        "finish: partials counted in 31 bits", ON_SHFL, BLOCK, "for (long long i = threadIdx.x;",
        "for (int i = threadIdx.x;", "a grid has fewer than 2^31 blocks, and each one partial result",
    ),
    Unchanged(
        "block sum: shuffles down", ON_SHFL, BLOCK, "__shfl_xor_sync", "__shfl_down_sync",
        "only lane 0 of a warp uses the sum, and it adds the same lanes in the same order",
    ),
    Unchanged(
        "block sum: every warp adds up the warps' sums", ON_SHFL, BLOCK, "if (threadIdx.x < 32) value", "value",
        "only thread 0 uses the sum; the condition saves the other warps their work",
    ),
    Unchanged(
        "grid: every block fences after its ticket", ON_GRID, GRID, "if (is_last_block) __thr", "__thr",
        "only the last block reads what others wrote; the condition saves the other blocks their time",
    ),
    Unchanged(
        "grid: plain loads of the partials", ON_GRID, GRID, "load_partial({{ of_row }} + block)", "partials[block]",
        "the fence before them orders plain loads too",
    ),
    Unchanged(
        "interleaved: no barrier after the last step", ON_INTERLEAVED, INTERLEAVED, "__sync",
        "if (stride > 1) __sync", "thread 0 alone takes the last step, and reads its result", at="barrier",
    ),
)  # fmt: skip
