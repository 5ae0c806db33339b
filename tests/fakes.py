"""Stand-ins for what a test does not want to wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gen.errors import CompileError, UnlinkedError
from gen.families.base import Array, Limits, Variant
from gen.proof.verdicts import KeepingRunner, Verdict, verdicts
from gen.toolchain.compiled import Compiled, Resources
from tests.host.numpy_kernel import Buffers, NumpyKernel, NumpyRunner


@dataclass
class OracleRunner(NumpyRunner):
    """Computes with NumPy, on any machine at once.

    Attributes:
        wrong: names of variants that compute something else.
        refused: names of variants that no compiler takes.
        seen: every input of every run.
    """

    limits: Limits = field(default_factory=lambda: Limits.of("sm_90"))
    wrong: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    seen: list[Array] = field(default_factory=list)

    def load(self, variants: Sequence[Variant]) -> tuple[NumpyKernel, ...]:
        """Refuses the first of the refused."""
        for variant in variants:
            if variant.name in self.refused:
                raise CompileError(variant.name, "unit.cpp:3: no", Path("refused.cu"))
        return tuple(NumpyKernel(variant, self._spoil(variant.name)) for variant in variants)

    def _spoil(self, name: str) -> Callable[[Buffers, int], None]:
        def spoil(buffers: Buffers, _: int) -> None:
            self.seen += [array.copy() for operand, array in buffers.items() if operand != "out"]
            if name in self.wrong:
                buffers["out"].view("u4")[...] ^= 0x40000000

        return spoil


@dataclass(frozen=True)
class InProcess:
    """Proves in this process, whatever the machine has."""

    runner: Callable[[], KeepingRunner]
    seed: int = 0

    def verdicts(self, variants: Sequence[Variant], _deadline: float | None = None) -> Iterator[Verdict]:
        """As `gen.proof.verdicts.Host` does."""
        return verdicts(self.runner(), variants, seed=self.seed)


@dataclass(frozen=True)
class FakeCompiler:
    """Takes every source but those of `refused` and `unlinked` variants; gives results in reverse, as threads may."""

    refused: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()
    version: str = "fake 1.0"
    options: str = ""
    architectures: tuple[str, ...] = ("sm_75", "sm_90")

    def compile(self, name: str, text: str, arch: str) -> Compiled:
        """The same for one."""
        (found,) = self.compile_many([(name, text)], arch)
        if isinstance(found, CompileError):
            raise found
        return found

    def compile_many(self, items: Iterable[tuple[str, str]], arch: str) -> Iterator[Compiled | CompileError]:
        """20 registers for the kernel, 30 for a finishing one."""
        for name, text in reversed(list(items)):
            if name in self.refused:
                yield CompileError(name, f"{name}.cu(7): error: expected a ';'", Path("failed.cu"))
                continue
            if name in self.unlinked:
                yield UnlinkedError(name, "A linker must be installed", Path("it.cu"), "Run: pip install it")
                continue
            used = {name: Resources(20, 0, 0, 0, 0, 0)}
            if f"{name}_finish" in text:
                used[f"{name}_finish"] = Resources(30, 8, 8, 0, 0, 0)
            yield Compiled(name, arch, b"\x7fELF", used)
