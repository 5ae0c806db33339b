"""Proves many variants, and goes on where one of them cannot even be built."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, Protocol

from gen.errors import CompileError, RunError
from gen.families.base import Variant
from gen.proof.cases import Case, cases_of, edge_cases
from gen.proof.failures import REFUSED, UNTRIED, Failure, Kept, cases_for
from gen.proof.launches import check_registers
from gen.proof.prover import AdjustableRunner, CasesOf, Proof, prove
from gen.proof.sampled import sampled_cases
from gen.toolchain.compiled import Compiled

Status = Literal["proven", "failed", "skipped"]
CHUNK = 40  # built together: two translation units, so that two cores have work and progress shows


@dataclass(frozen=True)
class Verdict:
    """What a proof came to.

    Attributes:
        variant: whose text was proven.
        cases: on how many problems the variant was right.
        reason: why it failed or was skipped, with the case; empty if it was proven.
        kind: what found it, if it failed: a kind of `Failure`, `compile error`, or `no case`.
        failure: what a case found, on the smallest problem that fails alike; None if none did.
        path: the file that the text was read from; None where it was written for the proof.
    """

    variant: Variant
    status: Status
    cases: int
    reason: str = ""
    kind: str = ""
    failure: Failure | None = None
    path: Path | None = None

    @property
    def called(self) -> str:
        """What was proven, by name: the file, or the variant."""
        return self.variant.name if self.path is None else str(self.path)


class KeepingRunner(AdjustableRunner, Protocol):
    """A runner that says where the text of a variant can be read."""

    def keep(self, variant: Variant) -> Path:
        """The file that holds it; written if there is none."""
        ...


def verdicts(
    runner: KeepingRunner, variants: Sequence[Variant], *, seed: int = 0, kept: Sequence[Kept] = ()
) -> Iterator[Verdict]:
    """Proves variants on the cases of their families and on their edge cases; first on those that were kept.

    One that g++ refuses has failed, and comes out before those it was to be built with. One that takes none of the
    cases has failed too: nothing is known of it.

    Args:
        runner: where they run.
        variants: best those of one spec next to each other.
        seed: of what the arrays hold and of the sizes that are drawn.
        kept: cases on which a variant has failed before.
    """
    for _, group in groupby(variants, key=lambda made: (made.family.name, made.spec)):
        yield from _of_one_spec(runner, tuple(group), seed, kept)


def refused(variants: Sequence[Variant], error: CompileError) -> Verdict:
    """The verdict on the variant that a compiler refused. Raises `error` if it is the fault of none of them."""
    for made in variants:
        if made.name == error.subject:
            return Verdict(made, "failed", 0, str(error), "compile error")
    raise error


def with_registers(verdict: Verdict, compiled: Compiled | CompileError | None) -> Verdict:
    """The verdict, or that a GPU would refuse a launch, if what the GPU's compiler says is known and says so."""
    made = verdict.variant
    if verdict.status == "failed" or not isinstance(compiled, Compiled):
        return verdict
    try:
        for launch in made.plan.launches:
            used = compiled.resources.get(made.name + launch.entry)
            if used is not None:
                check_registers(made.name + launch.entry, launch.block, used.registers)
    except RunError as error:
        return replace(verdict, status="failed", reason=f"{REFUSED}: {error}", kind=REFUSED)
    return verdict


def _of_one_spec(
    runner: KeepingRunner, variants: Sequence[Variant], seed: int, kept: Sequence[Kept]
) -> Iterator[Verdict]:
    family, spec = variants[0].family, variants[0].spec
    first = (*cases_for(kept, variants[0]), *cases_of(family, spec, seed))
    last = tuple(sampled_cases(family, spec, seed))

    def cases(made: Variant) -> Sequence[Case]:
        return (*first, *edge_cases(made, seed), *last)

    for start in range(0, len(variants), CHUNK):
        yield from _together(runner, variants[start : start + CHUNK], cases)


def _together(runner: KeepingRunner, variants: Sequence[Variant], cases: CasesOf) -> Iterator[Verdict]:
    proofs = prove(runner, variants, cases, shrink=True)
    try:
        first = next(proofs, None)  # everything is built before it
    except CompileError as error:
        verdict = refused(variants, error)
        yield verdict
        yield from _together(runner, [made for made in variants if made != verdict.variant], cases)
        return
    if first is not None:
        yield _verdict(runner, first)
    for proof in proofs:
        yield _verdict(runner, proof)


def _verdict(runner: KeepingRunner, proof: Proof) -> Verdict:
    if proof.failure is not None:
        failure = proof.failure
        reason = f"{failure}\n  in the text of {runner.keep(proof.variant)}"
        return Verdict(proof.variant, "failed", proof.cases, reason, failure.kind, failure)
    if proof.skipped is not None:
        return Verdict(proof.variant, "skipped", 0, proof.skipped)
    if proof.untried is not None:
        reason = (
            f"{proof.variant.name} takes none of the problems that it was to be proven on: {proof.untried}. "
            "Algorithm.edge_cases must name sizes that it takes"
        )
        return Verdict(proof.variant, "failed", proof.cases, reason, UNTRIED)
    return Verdict(proof.variant, "proven", proof.cases)
