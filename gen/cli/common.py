"""What the commands share: options, the families at hand, and the exit status of an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

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


class Command(TyperCommand):
    """A command that takes `--help-all`, which shows its rare options too."""

    def __init__(self, *those: Any, **options: Any) -> None:
        """As Typer calls it."""
        super().__init__(*those, **options)
        self._rare: list[Any] = [one for one in self.params if getattr(one, "hidden", False)]
        if self._rare:
            self.epilog = f"{self.epilog or ''} `--help-all` shows options that are rarely needed too.".lstrip()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """What is left of the arguments. Ends the command where they ask for all of its help."""
        if "--help-all" not in args:
            return super().parse_args(ctx, args)
        for one in self._rare:
            one.hidden = False
        try:
            typer.echo(ctx.get_help())
        finally:
            for one in self._rare:
                one.hidden = True
        raise typer.Exit


def folder_of(option: str) -> Callable[[str], Path]:
    """Reads a folder's option. Path("") is ".": a variable of the shell that is not set would fill the current one."""

    def read(text: str) -> Path:
        if not text:
            raise OptionError(option, "must name a folder", repr(text), next_step=f"{option} . is the current one")
        return Path(text)

    return read


def home_option(in_checkout: str) -> Any:
    """The option that names the folder of results, with the default that it has in a checkout."""
    meaning = f"The folder of results. Default: $GEN_HOME, else {in_checkout} in a checkout, else a data folder."
    return typer.Option("--home", parser=folder_of("--home"), metavar="DIR", show_default=False, help=meaning)


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


def complete_family(incomplete: str) -> list[str]:
    """What a shell offers for the beginning of a family's name."""
    from gen.families import FAMILIES

    return _begun_by(incomplete, [family.name for family in FAMILIES])


def complete_spec(incomplete: str) -> list[str]:
    """What a shell offers for the beginning of a spec's name: those of the catalogues, and those written down."""
    from gen.families import FAMILIES
    from gen.paths import output_home
    from gen.store.folder import read_specs

    found = {family.name_of(spec) for family in FAMILIES for spec in family.catalogue}
    with suppress(GenError):
        found |= set(read_specs(output_home()))
    return _begun_by(incomplete, found)


def complete_family_or_spec(incomplete: str) -> list[str]:
    """What a shell offers where either may stand."""
    return complete_family(incomplete) + complete_spec(incomplete)


def complete_spec_or_variant(incomplete: str) -> list[str]:
    """What a shell offers where a spec or a variant may stand: kernels by their names too."""
    from gen.families import FAMILIES
    from gen.paths import output_home
    from gen.runtime.dispatch import winners_of

    home = output_home()
    found = {path.stem for path in home.glob("*.cu")} | {winner.variant for winner in winners_of(home)}
    found |= {named.name for family in FAMILIES for named in family.named}
    return _begun_by(incomplete, found | set(complete_spec(incomplete)))


def complete_any(incomplete: str) -> list[str]:
    """What a shell offers where a family, a spec or a variant may stand."""
    return complete_family(incomplete) + complete_spec_or_variant(incomplete)


def _begun_by(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


Home = Annotated[Path | None, home_option("out/local/")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Shape = Annotated[
    str | None,
    option(
        "--shape",
        "SHAPE",
        "The shape of the first input: 8192x8192, 2^28. Default: the largest that stands for a shape class.",
    ),
]
RuntimeParameters = Annotated[
    list[str] | None,
    option(
        "--param", "NAME=N", "A runtime parameter of the call: steps=100 of a stencil, nreps=20 of a copy; repeatable."
    ),
]
NameOrSpec = Annotated[
    str,
    typer.Argument(
        metavar="NAME|SPEC",
        autocompletion=complete_spec_or_variant,
        help="The full name of a variant, or a name of the literature such as reduceShfl; or a spec, with --shape.",
    ),
]


def home_of(given: Path | None) -> Path:
    """The folder of results. Raises OptionError if what was asked for is no folder."""
    from gen.paths import output_home

    try:
        return output_home(given)
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
    families: tuple[Family[Any], ...], name: str, home: Path, shape: str | None, parameters: Sequence[str],
    arch: str | None = None,
) -> Variant:  # fmt: skip
    """The variant of a name; of a spec with a shape, what `gen.load` gives on GPUs of an architecture, or on this."""
    from gen.emit.kernel_file import SUFFIX
    from gen.families.names import names_variant
    from gen.runtime.dispatch import family_and_spec
    from gen.runtime.load import chooser_for
    from gen.tune.targets import problem_at, read_runtime_parameters

    if shape is None or names_variant(families, name) or name.endswith(SUFFIX):
        return find(families, name, home)
    family, spec = family_and_spec(families, name, home)
    problem = problem_at(family, spec, shape, read_runtime_parameters(parameters))
    return chooser_for(family, spec, home, arch).for_call(problem.extents).variant


def find(families: tuple[Family[Any], ...], name: str, home: Path) -> Variant:
    """The variant of a name, or of a file that holds what gen writes; specs of no catalogue are looked up in `home`.

    A name may leave out tuning parameters, which are at their base then, or be a number of `gen show`: `SPEC:2`.
    """
    from gen.emit.kernel_file import SUFFIX

    if name.endswith(SUFFIX) and Path(name).is_file():
        return _written(families, Path(name))
    return _named(families, resolved(families, name, home), home)


def resolved(families: tuple[Family[Any], ...], name: str, home: Path) -> str:
    """The name of a variant in the place of its number, `SPEC:2`; any other name as it is."""
    spec, colon, number = name.partition(":")
    return _numbered(families, spec, home, int(number)) if colon and number.isdecimal() else name


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
