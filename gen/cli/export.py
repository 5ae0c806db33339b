"""`gen export`: a library of C++ and a Python module from specs, which need gen no more."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gen.arch import DEFAULT_ARCH
from gen.cli import output
from gen.cli.common import Home, Json, complete_spec, families_of, folder_of, home_of, option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gen.export.program import Program
    from gen.toolchain.nvrtc import Nvrtc


def export(
    ctx: typer.Context,
    specs: Annotated[
        list[str],
        typer.Argument(metavar="SPEC...", autocompletion=complete_spec, help="Specs such as reduction_sum_f32."),
    ],
    folder: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            parser=folder_of("--out"),
            metavar="DIR",
            help="The folder to write: a new or an empty one.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        option("--name", "NAME", "The name of the library. Default: the spec's, or gen_kernels for several specs."),
    ] = None,
    arch: Annotated[
        str, typer.Option(metavar="SM,...", help="The architectures to compile machine code for, separated by commas.")
    ] = DEFAULT_ARCH,
    ptx: Annotated[
        bool, typer.Option("--ptx", help="Add PTX for the last of them, which drivers compile for later architectures.")
    ] = False,
    shape: Annotated[
        list[str] | None,
        option("--shape", "SHAPE", "Keep only the base and the variants chosen for this shape; repeatable: 8192x8192."),
    ] = None,
    results: Home = None,
    json: Json = False,
) -> None:
    """Write a library of C++ that computes specs, with a C header, a CMake package and a Python module.

    It needs neither gen nor a CUDA toolkit, and loads NVIDIA's driver when it is first called. A call checks its
    arrays, chooses the variant that gen.load would choose on the device, and launches its machine code, which the
    library holds. No GPU is needed to export it, nor to build it: README.md in the folder says how.

    Examples: `gen export reduction_sum_f32 -o sums`, `gen export transpose_10_b32 -o turn --shape 4096x4096 --arch
    sm_90,sm_100 --ptx`, `gen export reduction_sum_f32 -o sums --shape 2^20 --shape 2^28`.
    """
    from gen.export import folder as made
    from gen.export.program import program_of, targets_of
    from gen.paths import cache_home
    from gen.runtime.dispatch import family_and_spec, winners_of
    from gen.toolchain.nvrtc import Nvrtc
    from gen.tune.targets import read_shape

    home, families = home_of(results), families_of(ctx)
    found = [family_and_spec(families, one, home) for one in dict.fromkeys(specs)]
    library = name or (found[0][0].name_of(found[0][1]) if len(found) == 1 else "gen_kernels")
    made.check_name(library)
    made.check_folder(folder)
    shapes = [read_shape(one) for one in shape or ()]
    archs = list(dict.fromkeys(one.strip() for one in arch.split(",")))
    winners = winners_of(home)
    targets = targets_of(archs, winners)
    compiler = Nvrtc(cache_home(home))
    for one in archs:
        compiler.check(one)
    programs: list[Program] = []
    output.note("Tracing what gen.load chooses: up to half a minute a spec")
    with output.progress(traced=len(found)) as step:
        for family, spec in found:
            own = [winner.device for winner in winners if winner.spec == family.name_of(spec)]
            kept = [target for target in targets if not target.device or target.device in own]
            programs.append(program_of(family, spec, kept, winners, shapes))
            step("traced")
    last = archs[-1] if ptx else None
    codes = _compiled(compiler, programs, last)
    kernels = len({name for name, _, _ in codes})  # for each architecture, and as PTX, the same
    files = made.files_of(library, programs, lambda variant, arch, ptx: codes[variant.name, arch, ptx], last)
    made.write(folder, files)
    size = len(files[f"src/{library}.code"]) / 2**20
    if json:
        output.data({
            "folder": str(folder), "library": library, "architectures": archs, "kernels": kernels,
            "functions": [
                {"name": one.name, "axes": [rank.axes for rank in one.ranks], "contiguous": list(one.dense)}
                for one in programs
            ],
        })  # fmt: skip
        return
    output.text(
        f"{folder}: {_counted(len(programs), 'function')}, {_counted(kernels, 'kernel')}, "
        f"{size:.1f} MiB of code for {', '.join(archs)}"
    )
    for program in programs:
        ranks = " or ".join(str(rank.axes) for rank in program.ranks)
        gaps = f"; those of {', '.join(map(str, program.dense))} must be contiguous" if program.dense else ""
        axes = "axis" if ranks == "1" else "axes"
        output.text(f"{program.name}: arrays of {ranks} {axes}{gaps}", indent=2)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _compiled(
    compiler: Nvrtc, programs: Sequence[Program], ptx_for: str | None
) -> Mapping[tuple[str, str, bool], bytes]:  # fmt: skip
    """The code of every variant, by its name, the architecture, and whether it is PTX."""
    from gen.emit.render import render
    from gen.errors import GenError
    from gen.toolchain.farm import CompileFarm

    wanted: dict[str, dict[str, str]] = {}  # texts by architecture and name
    for program in programs:
        for target, variants in zip(program.targets, program.codes, strict=True):
            for one in variants:
                made = program.entries[one].variant
                wanted.setdefault(target.arch, {})[made.name] = render(made)
    count = sum(map(len, wanted.values()))
    found: dict[tuple[str, str, bool], bytes] = {}
    with (
        output.progress(compiled=count) as step,
        CompileFarm(compiler, width=min(count, len(os.sched_getaffinity(0)))) as farm,
    ):
        for arch, texts in wanted.items():
            for done in farm.compile_many(texts.items(), arch):
                if isinstance(done, GenError):
                    raise done
                found[done.name, arch, False] = done.cubin
                step("compiled")
    for name, text in wanted.get(ptx_for or "", {}).items():
        found[name, str(ptx_for), True] = compiler.ptx(name, text, str(ptx_for))
    return found
