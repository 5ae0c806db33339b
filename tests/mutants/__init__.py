"""Templates broken on purpose, by family: for each mutant the CPU run must fail, by the detector that is named here.

Numbers in brackets are those of the defects that the literature's printed listings have. Not among the mutants: 12 and
13, which are faults of a harness, not of a kernel.
"""

from tests.mutants import (
    merge,
    probe,
    reduction,
    reduction_axes,
    reduction_cluster,
    reduction_single,
    reduction_tree,
    scan,
    stencil,
    system,
    transpose,
    transpose_forms,
    transpose_gather,
    transpose_packed,
    transpose_pieces,
    transpose_tiles,
    transpose_vectors,
    transpose_words,
)
from tests.mutants.change import Mutant, Unchanged

_PARTS = (
    reduction,
    reduction_axes,
    reduction_cluster,
    reduction_single,
    reduction_tree,
    transpose,
    transpose_forms,
    transpose_gather,
    transpose_packed,
    transpose_pieces,
    transpose_tiles,
    transpose_vectors,
    transpose_words,
    stencil,
    system,
    probe,
    merge,
    scan,
)

MUTANTS: tuple[Mutant, ...] = tuple(change for part in _PARTS for change in part.MUTANTS)
LARGE_MUTANTS: tuple[Mutant, ...] = tuple(change for part in _PARTS for change in part.LARGE)
UNCHANGED: tuple[Unchanged, ...] = tuple(change for part in _PARTS for change in part.UNCHANGED)
