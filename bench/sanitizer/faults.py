"""Planted faults: a variant spoilt for each tool, which must find it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gen.emit.render import render
from gen.errors import RunError
from gen.families.base import Variant

if TYPE_CHECKING:
    pass

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


@dataclass(frozen=True)
class Fault:
    """A variant spoilt so that one tool must find it: in its text, `old` becomes `new`.

    Attributes:
        said: what the tool says of such a fault, among other things.
    """

    tool: str
    variant: str
    said: str
    old: str
    new: str

    def text(self, made: Variant) -> str:
        """The spoilt text. Raises RunError if the template has changed so that the fault no longer fits."""
        text = render(made)
        if text.count(self.old) != 1:
            raise RunError(f"The fault for {self.tool}", f"must fit {self.variant} once", text.count(self.old))
        return text.replace(self.old, self.new)


FAULTS = {
    fault.tool: fault
    for fault in (
        # reads one past the end
        Fault(
            "memcheck", "reduceShfl", "Invalid __global__ read",
            "if (i < n) sum += in[i];", "if (i <= n) sum += in[i];",
        ),
        # reads the tile before it is written
        Fault("racecheck", "transposeSmemPad", "Race reported", "\n  __syncthreads();\n", "\n"),
        # leaves the last element of the private copy as it was allocated
        Fault(
            "initcheck", "reduceInterleaved", "Uninitialized __global__ memory read",
            "i < n; i += stride) work[i]", "i < n - 1; i += stride) work[i]",
        ),
        # a barrier that only the adding threads reach
        Fault(
            "synccheck", "reduceInterleaved", "Barrier error",
            "    if (i < stride && i + stride < left) data[i] += data[i + stride];\n    __syncthreads();\n",
            "    if (i < stride && i + stride < left) {\n      data[i] += data[i + stride];\n      __syncthreads();\n"
            "    }\n",
        ),
    )
}  # fmt: skip
