"""The GPU of the bench: what its own kernels and checks need beside what `gen compare` has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gen.compare.gpu import ComparisonGpu
from gen.dtypes import U64, DType
from gen.families.plans import Step
from gen.gpu.service import ElementRows
from gen.proof.error_bounds import Allowance
from gen.toolchain.compiled import Compiler

if TYPE_CHECKING:
    from gen.tune.gpu_session import CalibratedGpu


class BenchGpu(ComparisonGpu):
    """A GPU with a compiler.

    Attributes:
        cache: where what was built is kept.
    """

    def __init__(self, bench: CalibratedGpu, compiler: Compiler, cache: Path) -> None:
        super().__init__(bench)
        self._compiler, self.cache = compiler, cache

    def beyond(
        self, got: int, dtype: DType, elements: int, value: int, magnitude: int, allowed: Allowance
    ) -> int:  # fmt: skip
        """How many elements lie further from the doubles expected than is allowed."""
        rows = ElementRows(1, elements, dtype.size, elements * dtype.size)
        return self._service.beyond_bounds(got, rows, dtype, value, magnitude, allowed)[0]

    def compile(self, name: str, source: str) -> Callable[..., None]:
        """Compiles CUDA C++ with one `extern "C"` kernel of that name.

        Gives `launch(stream, grid, block, arguments)`; arguments are addresses, or numbers with their types.
        """
        code = self.backend.load(self._compiler.compile(name, source, self.arch))

        def launch(
            stream: int, grid: tuple[int, int, int], block: tuple[int, int, int],
            arguments: Sequence[int | tuple[DType, int]],
        ) -> None:  # fmt: skip
            values = tuple(argument if isinstance(argument, tuple) else (U64, argument) for argument in arguments)
            code.prepare({}, [Step("", grid, block, values, 0, (1, 1, 1), setup=False)]).launch({}, {}, stream)

        return launch
