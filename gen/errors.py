"""Every error a user can cause. Each names its subject, the rule, the value, and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class GenError(Exception):
    """Something the caller asked for cannot be done.

    The message reads `SUBJECT RULE (got VALUE). NEXT`, for instance
    `GridConfig.threads_per_block must be one of 128, 256, 512, 1024 (got 100)`.
    """

    def __init__(self, subject: str, rule: str, value: object = None, *, next_step: str = "") -> None:
        self.subject = subject
        self.rule = rule
        self.value = value
        self.next_step = next_step
        text = f"{subject} {rule}"
        if value is not None:
            text += f" (got {value})"
        if next_step:
            text += f". {next_step}"
        super().__init__(text)

    def __reduce__(self) -> tuple[Callable[..., GenError], tuple[object, ...]]:
        """So that it can go from process to process: the value as text, which may be anything."""
        value = None if self.value is None else str(self.value)
        return _restored, (type(self), self.args, {**self.__dict__, "value": value})


def _restored(kind: type[GenError], arguments: tuple[object, ...], attributes: dict[str, object]) -> GenError:
    error = kind.__new__(kind, *arguments)  # keeps the arguments, which are the text
    error.__dict__.update(attributes)
    return error


class SpecError(GenError):
    """A spec that no family can compute: an operator, a dtype, weights."""


class ConfigError(GenError):
    """A config that is illegal alone, with its spec, on this device or at this size."""


class UnknownNameError(GenError):
    """A name that finds no family, algorithm, spec or variant."""


class ShapeError(GenError):
    """An array whose shape, strides or dtype the spec does not take."""


class ArgumentError(GenError):
    """A call that a kernel cannot take: too few arguments, an array of another device, a read-only result."""


class TemplateError(GenError):
    """A template that reads what it was not given, or prints what CUDA cannot read."""


class MissingToolError(GenError):
    """A program or package that is not installed."""


class StoreError(GenError):
    """A file of results that cannot be read."""


class CompileError(GenError):
    """The compiler refused a source.

    Attributes:
        log: the compiler's own text.
        source: where the refused source was kept.
    """

    def __init__(self, subject: str, log: str, source: Path) -> None:
        self.log = log
        self.source = source
        super().__init__(
            subject, "does not compile", next_step=f"The source is kept in {source}. The compiler said:\n{log.strip()}"
        )


class UnlinkedError(CompileError):
    """A source that compiles, but cannot be linked here: it is not wrong, something is not installed."""

    def __init__(self, subject: str, log: str, source: Path, next_step: str) -> None:
        self.log = log
        self.source = source
        GenError.__init__(self, subject, f"compiles, but is not linked: {log}", next_step=next_step)


class DeviceError(GenError):
    """No GPU, no driver, or no memory left on it."""


class RunError(GenError):
    """A kernel that broke a rule while it ran: an access out of bounds, a barrier not reached by all."""


class ProcessError(GenError):
    """One of several processes that compute together has died, or does something else than the others."""
