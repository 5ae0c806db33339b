"""Templates broken on purpose, by family: for each mutant the CPU run must fail, by the detector that is named here.

Numbers in brackets are those of the defects that the literature's printed listings have. Not among the mutants: 12 and
13, which are faults of a harness, not of a kernel.
"""

from tests.mutants import reduction, scan, stencil, transpose
from tests.mutants.change import Mutant, Unchanged

_FAMILIES = (reduction, transpose, stencil, scan)

MUTANTS: tuple[Mutant, ...] = tuple(change for family in _FAMILIES for change in family.MUTANTS)
LARGE_MUTANTS: tuple[Mutant, ...] = tuple(change for family in _FAMILIES for change in family.LARGE)
UNCHANGED: tuple[Unchanged, ...] = tuple(change for family in _FAMILIES for change in family.UNCHANGED)
