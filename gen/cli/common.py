"""What the commands share: options, the families at hand, and the exit status of an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gen.errors import ConfigError, GenError, ShapeError, SpecError, UnknownNameError

if TYPE_CHECKING:
    from gen.arch import Limits
    from gen.families.base import Family, Variant
    from gen.gpu.device import GpuInfo


class OptionError(GenError):
    """An option, or options together, that make no sense."""


def option(name: str, metavar: str, meaning: str, *, rare: bool = False) -> Any:
    """An option whose default is stated by its meaning; a rare one is shown by `--help-all` alone."""
    return typer.Option(name, metavar=metavar, show_default=False, help=meaning, hidden=rare)


def folder_of(option: str) -> Callable[[str], Path]:
    """Reads a folder's option. Path("") is ".": a variable of the shell that is not set would fill the current one."""

    def read(text: str) -> Path:
        if not text:
            raise OptionError(option, "must name a folder", repr(text), next_step=f"{option} . is the current one")
        return Path(text)

    return read


Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        parser=folder_of("--out"),
        metavar="DIR",
        show_default=False,
        help="The folder of what gen writes. Default: $GEN_HOME, else out/local/ in a checkout, else a data folder.",
    ),
]


def _show_all(ctx: typer.Context, wanted: bool) -> None:
    """Prints the help of a command with the options that `--help` leaves out, and ends."""
    if not wanted:
        return
    rare: list[Any] = [one for one in ctx.command.params if getattr(one, "hidden", False)]
    for one in rare:
        one.hidden = False
    try:
        typer.echo(ctx.get_help())
    finally:
        for one in rare:
            one.hidden = True
    raise typer.Exit


HelpAll = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=_show_all, help="Show what is rarely needed too.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Invocation:
    """What stood before the command: families from outside, as `module:NAME`."""

    families: tuple[str, ...] = ()


_USAGE = (UnknownNameError, ConfigError, SpecError, ShapeError, OptionError)


def status_of(error: GenError) -> int:
    """The exit status: 2 for what the user asked for wrongly, 1 for everything else."""
    return 2 if isinstance(error, _USAGE) else 1


def families_of(ctx: typer.Context) -> tuple[Family[Any], ...]:
    """The families of this invocation."""
    from gen.families import families

    invocation = ctx.find_object(Invocation) or Invocation()
    if invocation.families:
        # The installed script, unlike `python -m gen`, does not look for modules in the user's folder.
        sys.path.insert(0, str(Path.cwd()))
    return families(*invocation.families)


def complete_name(incomplete: str) -> list[str]:
    """What a shell offers for the beginning of a name: families, specs, kernels by their names."""
    from gen.families import FAMILIES
    from gen.paths import output_home
    from gen.runtime.dispatch import winners_of
    from gen.store.folder import read_specs

    home = output_home(None)
    found = {path.stem for path in home.glob("*.cu")} | {winner.variant for winner in winners_of(home)}
    with suppress(GenError):
        found |= set(read_specs(home))
    for family in FAMILIES:
        found |= {family.name, *(named.name for named in family.named), *map(family.name_of, family.catalogue)}
    return sorted(name for name in found if name.startswith(incomplete))


def complete_family(incomplete: str) -> list[str]:
    """What a shell offers for the beginning of a family's name."""
    from gen.families import FAMILIES

    return [family.name for family in FAMILIES if family.name.startswith(incomplete)]


def home_of(out: Path | None, default: Callable[[Path | None], Path] | None = None) -> Path:
    """The folder of results, or by another of `gen.paths`. Raises OptionError if what was asked for is no folder."""
    from gen.paths import output_home

    try:
        return (default or output_home)(out)
    except GenError as error:
        raise OptionError(error.subject, error.rule, error.value) from error


def limits_for(arch: str | None, device: GpuInfo | None = None) -> Limits:
    """The limits of the architecture asked for, else of the GPU at hand, else of the one that stands for all.

    Says so where the table has no figures of it. Raises UnknownNameError for what names no architecture.
    """
    from gen.arch import DEFAULT_ARCH, Limits

    limits = device.limits if arch is None and device is not None else Limits.of(arch or DEFAULT_ARCH)
    note_stand_in(limits)
    return limits


def note_stand_in(limits: Limits) -> None:
    """Says whose figures are taken where an architecture is in no table; once in a run of a command."""
    from gen.cli import output

    if limits.stand_in is not None:
        output.note(limits.stand_in)


def check_feasible(variant: Variant, limits: Limits) -> None:
    """Raises ConfigError where no device of this architecture can run the variant."""
    reason = variant.algorithm.infeasible(variant.spec, variant.config, limits)
    if reason is not None:
        raise ConfigError(
            variant.name, f"cannot run on {limits.arch}: {reason}", next_step="Give --arch another architecture"
        )


def find_or_choose(
    families: tuple[Family[Any], ...], name: str, home: Path, shape: str | None, count: Sequence[str],
    arch: str | None = None,
) -> Variant:  # fmt: skip
    """The variant of a name; of a spec with a shape, what `gen.load` gives on GPUs of an architecture, or on this."""
    from gen.emit.kernel_file import SUFFIX
    from gen.families.names import names_variant
    from gen.runtime.dispatch import family_and_spec
    from gen.runtime.load import chooser_for
    from gen.tune.problems import problem_at, read_runtime_parameters

    if shape is None or names_variant(families, name) or name.endswith(SUFFIX):
        return find(families, name, home)
    family, spec = family_and_spec(families, name, home)
    problem = problem_at(family, spec, shape, read_runtime_parameters(count))
    return chooser_for(family, spec, home, arch).for_call(problem.extents).variant


def find(families: tuple[Family[Any], ...], name: str, home: Path) -> Variant:
    """The variant of a name, or of a file that holds what gen writes; specs of no catalogue are looked up in `home`.

    A name may leave out tuning parameters, which are at their base then, or be a number of `gen show`: `SPEC:2`.
    """
    from gen.emit.kernel_file import SUFFIX

    if name.endswith(SUFFIX) and Path(name).is_file():
        return _written(families, Path(name))
    spec, _, number = name.partition(":")
    if number.isdecimal():
        name = _numbered(families, spec, home, int(number))
    return _named(families, name, home)


def _numbered(families: tuple[Family[Any], ...], spec_name: str, home: Path, number: int) -> str:
    from gen.cli.show import numbered
    from gen.runtime.dispatch import family_and_spec

    names = numbered(*family_and_spec(families, spec_name, home), home)
    if not 1 <= number <= len(names):
        next_step = f"gen show {spec_name} shows them"
        raise UnknownNameError("The number", f"must be one from 1 to {len(names)}", number, next_step=next_step)
    return names[number - 1]


def _named(families: tuple[Family[Any], ...], name: str, home: Path) -> Variant:
    """The variant of a name; a note says which where the name leaves out parameters."""
    from gen.cli import output
    from gen.families.names import Known, find_by_short_name, find_variant
    from gen.store.folder import find_known

    def named(known: Known) -> Variant:
        try:
            return find_variant(families, name, known)
        except UnknownNameError:
            meant = find_by_short_name(families, name, known)
            if meant is None:
                raise
            output.note(f"{name} is short for {meant.name}.")
            return meant

    return find_known(home, named)


def _written(families: tuple[Family[Any], ...], path: Path) -> Variant:
    """The variant whose text a file holds. Raises UnknownNameError if somebody has changed it."""
    from gen.emit.kernel_file import read_kernel
    from gen.emit.render import render

    kernel = read_kernel(families, path)
    if kernel.text != render(kernel.variant):
        raise UnknownNameError(
            str(path),
            f"must hold what gen writes for {kernel.variant.name}",
            "another text",
            next_step=f"gen prove {path} takes a changed text; gen explain {kernel.variant.name} what gen writes",
        )
    return kernel.variant
