"""Changes to the template of kernels that launch kernels. The CPU run cannot take it: two other tests find these.

`tests/host/test_nested.py` runs one step after the other on the CPU, `tests/gpu/test_nested.py` the real thing.
"""

from __future__ import annotations

from gen.proof.failures import WRONG
from tests.mutants.change import Mutant

NESTED = "reduction/nested.cu.jinja"

ON_SYNC = "reduction_sum_f32__nested_tpb64_sync"
ON_NOSYNC = "reduction_sum_f32__nested_tpb64_nosync"
ON_WHOLE = "reduction_sum_f32__nested_tpb64_whole"
CHILD = "data, partials + blockIdx.x, left);"

SIZES = (130, 129, 100, 65, 0)  # of few blocks, where all of them launch; what a larger one left shows in the next

# Found in some orders of threads, which a GPU need not take.
RACES = (Mutant("nested: pairs past the half", ON_NOSYNC, NESTED, "i < stride && i + stride", "i + stride", WRONG),)
MUTANTS = (
    Mutant("nested: pairs past the end", ON_SYNC, NESTED, "i < stride && i + stride < left", "i < stride", WRONG),
    Mutant("nested: all blocks share a sum", ON_SYNC, NESTED, CHILD, "data, partials, left);", WRONG),
    Mutant("nested: all blocks share a child", ON_NOSYNC, NESTED, CHILD, CHILD.replace("data", "work"), WRONG),
    Mutant("nested: a child sees the whole array", ON_SYNC, NESTED, CHILD, CHILD.replace("left", "n"), WRONG),
    Mutant("nested: a child is too narrow", ON_NOSYNC, NESTED, "<<<1, stride, 0", "<<<1, stride / 2, 0", WRONG),
    Mutant("nested: whole: pairs past the end", ON_WHOLE, NESTED, "if (i + stride < left)", "if (i < left)", WRONG),
    Mutant("nested: whole: every block launches", ON_WHOLE, NESTED, "else if (blockIdx.x == 0) {", "else {", WRONG),
    Mutant("nested: whole: one block is launched", ON_WHOLE, NESTED, "<<<gridDim.x, stride", "<<<1, stride", WRONG),
    Mutant("nested: whole: a child skips a step", ON_WHOLE, NESTED, "stride / 2, 0", "(stride + 2) / 4, 0", WRONG),
)  # fmt: skip
